"""Tests of the package: on the CPU device unless RUSHMEM_DEVICE says otherwise; PEs are processes. What a run
has passed goes to the file RUSHMEM_TEST_RECORD, where that is set: scripts/beside."""

import datetime
import importlib.metadata
import json
import os
import platform

import numpy
import pytest

os.environ.setdefault("RUSHMEM_DEVICE", "cpu")

import rushmem  # noqa: E402

ON_GPU = os.environ["RUSHMEM_DEVICE"].startswith("cuda")
# Processes that share a GPU take turns on it.
PES = 2 if ON_GPU else 3


@pytest.fixture
def rng(request):
    """Fresh data with each run; the seed is in the report of a test that fails."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return numpy.random.default_rng(seed)


@pytest.fixture
def world():
    with rushmem.init() as world:
        yield world


_reports = []


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _reports.append(report)


def pytest_sessionfinish():
    path = os.environ.get("RUSHMEM_TEST_RECORD")
    if not path:
        return
    versions = {"python": platform.python_version()}
    for name in ("rushmem", "numpy", "torch", "triton", "jax", "cupy-cuda13x"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    tests = {}
    for report in _reports:
        # A skipped test's text is the last of place, line and reason.
        tests[report.nodeid] = {"outcome": report.outcome, **({"why": report.longrepr[2]} if report.skipped else {})}
        tests[report.nodeid].update(report.user_properties)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "commit": os.environ.get("RUSHMEM_TEST_COMMIT", ""),
        "device": os.environ["RUSHMEM_DEVICE"], "versions": versions, "tests": dict(sorted(tests.items())),
    }
    with open(path, "w") as file:
        file.write(json.dumps(record, indent=1) + "\n")
