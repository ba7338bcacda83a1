"""Tests of the package: on the CPU device unless RUSHMEM_DEVICE says otherwise; PEs are processes."""

import os

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
