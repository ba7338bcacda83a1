"""The commands of the package: rushmem-run, rushmem-info and rushmem-perf, as they lie in bin/."""

import os
import sys
from pathlib import Path

BIN = Path(__file__).resolve().parent / "bin"


def _exec(name: str) -> int:
    tool = BIN / name
    if not tool.is_file():
        print(f"{name}: this wheel was built without it ({tool} is not there)", file=sys.stderr)
        return 127
    if not os.access(tool, os.X_OK):
        # Some installers lose the bit.
        tool.chmod(0o755)
    os.execv(tool, [name, *sys.argv[1:]])


def run() -> int:
    return _exec("rushmem-run")


def info() -> int:
    return _exec("rushmem-info")


def perf() -> int:
    return _exec("rushmem-perf")
