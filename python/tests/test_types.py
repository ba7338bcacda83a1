"""The stubs say what the compiled module has, and the package passes mypy --strict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rushmem

HERE = Path(rushmem.__file__).parent


def check(tmp_path, *command):
    pytest.importorskip("mypy", reason="mypy is not installed")
    environment = {**os.environ, "MYPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_stubs_are_the_module_s(tmp_path):
    check(tmp_path, "mypy.stubtest", "rushmem._rushmem")


def test_the_package_is_typed(tmp_path):
    # torch has types of its own, where it is installed.
    check(tmp_path, "mypy", "--strict", "--ignore-missing-imports", "--allow-subclassing-any", "-p", "rushmem")


def test_every_code_of_the_c_abi_has_a_class():
    header = HERE / "include" / "rushmem.h"
    if not header.exists():
        pytest.skip("no header in this package")
    import re

    codes = dict(re.findall(r"#define (RUSHMEM_ERR_\w+) \((-\d+)\)", header.read_text()))
    from rushmem._errors import BY_CODE

    ours = {error.name: str(code) for code, error in BY_CODE.items() if code > -1000}
    assert ours == codes
