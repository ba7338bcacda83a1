"""Symmetric arrays as jax and cupy see them: the same memory. `scripts/test-jax` fetches jax and runs it; on
a GPU host both are what the host has."""

import os

import numpy
import pytest

# jax would take most of a GPU's memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import rushmem  # noqa: E402
from conftest import ON_GPU  # noqa: E402

TYPES = ["int8", "uint16", "int32", "float16", "float32", "bfloat16", "complex64"]


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="no jax here")


@pytest.fixture
def cupy():
    if not ON_GPU:
        pytest.skip("cupy's arrays are a GPU's")
    return pytest.importorskip("cupy", reason="no cupy here")


@pytest.mark.parametrize("dtype", TYPES)
def test_jax_sees_the_same_memory(jax, world, dtype):
    a = world.empty((3, 5), dtype)
    x = jax.dlpack.from_dlpack(a)
    assert (x.shape, str(x.dtype), x.unsafe_buffer_pointer()) == ((3, 5), dtype, a.address)


def test_what_a_put_brings_is_in_jax_s_array(jax, world, rng):
    data = rng.random(1000, dtype=numpy.float32)
    a = world.empty(1000, "float32")
    x = jax.dlpack.from_dlpack(a)
    a.put(data, world.my_pe)
    world.quiet()
    assert (numpy.asarray(x) == data).all()


def test_an_array_of_jax_s_can_be_put(jax, world, rng):
    data = rng.random(1000, dtype=numpy.float32)
    source = jax.block_until_ready(jax.numpy.asarray(data) * 2)
    a = world.empty(1000, "float32")
    a.put(source, world.my_pe)
    world.quiet()
    assert (numpy.asarray(jax.dlpack.from_dlpack(a)) == data * 2).all()


@pytest.mark.skipif(ON_GPU, reason="memory of a GPU goes with its world")
def test_jax_holds_the_memory(jax, rng):
    data = rng.random(1000, dtype=numpy.float32)
    with rushmem.init() as world:
        a = world.empty(1000, "float32")
        a.put(data, world.my_pe)
        world.quiet()
        x = jax.dlpack.from_dlpack(a)
        del a
    assert (numpy.asarray(x) == data).all()


def test_jax_takes_no_array_with_gaps(jax, world):
    """jax's own word, and no copy that looks like the memory."""
    with pytest.raises(Exception, match="strid"):
        jax.dlpack.from_dlpack(world.empty((4, 6), "float32")[:, ::2])


def test_cupy_sees_the_same_memory_with_gaps_too(cupy, world, rng):
    data = rng.random((4, 6), dtype=numpy.float32)
    a = world.empty((4, 6), "float32")
    a.put(data, world.my_pe)
    world.quiet()
    for x in (cupy.asarray(a), cupy.from_dlpack(a)):
        assert x.data.ptr == a.address and (x.get() == data).all()
    assert (cupy.asarray(a[:, ::2]).get() == data[:, ::2]).all()
