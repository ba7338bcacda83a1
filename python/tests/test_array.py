"""Arrays as numpy and others see them, on one PE."""

import gc

import numpy
import pytest

import rushmem
from conftest import ON_GPU

pytestmark = pytest.mark.skipif(ON_GPU, reason="numpy sees host memory alone")

NUMPY_TYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_every_view_is_the_same_memory(world, rng, dtype):
    a = world.empty((3, 5), dtype)
    data = (rng.random((3, 5)) * 100).astype(dtype)
    by_buffer, by_dlpack = numpy.asarray(a), numpy.from_dlpack(a)
    by_interface = numpy.array([])

    class Interface:
        __array_interface__ = a.__array_interface__

    by_interface = numpy.asarray(Interface())
    assert not by_buffer.any() and by_buffer.dtype == dtype
    by_buffer[:] = data
    for view in (by_dlpack, by_interface, numpy.asarray(memoryview(a))):
        assert view.dtype == dtype and view.shape == (3, 5)
        numpy.testing.assert_array_equal(view, data)
    assert (a.shape, a.size, a.nbytes, a.itemsize) == ((3, 5), 15, 15 * data.itemsize, data.itemsize)


def test_slices_are_numpys(world, rng):
    a = world.empty((4, 6, 5), "int32")
    n = numpy.asarray(a)
    n[:] = rng.integers(0, 1000, n.shape)
    for index in [
        0, -1, slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(5, 2, -2), slice(3, 3), ..., (1, 2, 3),
        (slice(1, None), 2), (..., 3), (0, ..., slice(None, None, 3)), (slice(None), slice(4, 0, -3), -2), (),
    ]:
        part = a[index]
        numpy.testing.assert_array_equal(numpy.asarray(part), n[index], err_msg=str(index))
        if part.size and any(stride < 0 and length > 1 for stride, length in zip(part.strides, part.shape)):
            # torch ends the process at such a one.
            with pytest.raises(BufferError, match="runs backwards"):
                numpy.from_dlpack(part)
        else:
            numpy.testing.assert_array_equal(numpy.from_dlpack(part), n[index], err_msg=str(index))
        assert part.strides == n[index].strides or n[index].size <= 1
    for wrong, error in [(4, IndexError), ((0, 0, 0, 0), IndexError), ("x", TypeError), ((..., ...), IndexError)]:
        with pytest.raises(error):
            a[wrong]


def test_reshape_and_view_as(world, rng):
    a = world.empty(24, "int32")
    n = numpy.asarray(a)
    n[:] = rng.integers(0, 1 << 30, 24)
    numpy.testing.assert_array_equal(numpy.asarray(a.reshape(2, -1, 3)), n.reshape(2, -1, 3))
    numpy.testing.assert_array_equal(numpy.asarray(a.reshape((6, 4))), n.reshape(6, 4))
    numpy.testing.assert_array_equal(numpy.asarray(a.view_as("uint8")), n.view("uint8"))
    numpy.testing.assert_array_equal(numpy.asarray(a.reshape(4, 6).view_as("int64")), n.reshape(4, 6).view("int64"))
    for shape in [(5, 5), (-1, -1), (7, -1), (-2,)]:
        with pytest.raises(ValueError):
            a.reshape(*shape)
    with pytest.raises(ValueError):
        a[::2].reshape(3, 4)
    with pytest.raises(rushmem.InvalidArgument):
        a[:3].view_as("int64")


def test_types_without_numpy_go_by_dlpack(world):
    for dtype in ["bfloat16", "float8_e4m3fn", "float8_e5m2"]:
        a = world.empty(4, dtype)
        assert a.__dlpack_device__() == (1, 0)
        assert "dltensor" in repr(a.__dlpack__()) and "versioned" in repr(a.__dlpack__(max_version=(1, 1)))
        with pytest.raises(BufferError, match="DLPack"):
            memoryview(a)
        with pytest.raises(AttributeError):
            a.__array_interface__
    with pytest.raises(AttributeError):
        a.__cuda_array_interface__
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(2, 0))


def test_types_have_many_names(world):
    for name, expected in [(numpy.float32, "float32"), (numpy.dtype("int16"), "int16"), (float, "float64"), (int, "int64")]:
        assert world.empty(1, name).dtype == expected
    for wrong in ["float31", object, 5]:
        with pytest.raises(TypeError, match="no type of elements"):
            world.empty(1, wrong)
    for wrong in [(-1,), "x", 1.5]:
        with pytest.raises((TypeError, OverflowError)):
            world.empty(wrong)
    with pytest.raises(rushmem.InvalidArgument):
        world.empty((1 << 40, 1 << 40))


def test_an_array_of_nothing(world):
    a = world.empty((0, 3))
    assert a.nbytes == 0 and numpy.asarray(a).shape == (0, 3) and numpy.from_dlpack(a).shape == (0, 3)
    a.put(numpy.zeros((0, 3), "float32"), 0)
    assert a.get(0).shape == (0, 3)
    a.free()


def test_views_hold_the_memory(world, rng):
    data = rng.random(1000)
    a = world.empty(1000, "float64")
    views = [numpy.asarray(a), numpy.from_dlpack(a), numpy.asarray(a[3:].peer(0))]
    views[0][:] = data
    del a
    gc.collect()
    for _ in range(3):
        # Would get the same place, zeroed.
        assert not numpy.asarray(world.empty(1000, "float64")).any()
    numpy.testing.assert_array_equal(views[1], data)
    numpy.testing.assert_array_equal(views[2], data[3:])


def test_memory_outlives_its_world(rng):
    data = rng.random(1000)
    with rushmem.init() as world:
        a = world.empty(1000, "float64")
        view = numpy.asarray(a)
        view[:] = data
    assert world.has_ended
    numpy.testing.assert_array_equal(view, data)
    view += 1
    for refused in [lambda: a.put(data, 0), lambda: numpy.from_dlpack(a), lambda: a.free(), lambda: world.empty(1)]:
        with pytest.raises(rushmem.BadHandle, match="has ended: it was finalised"):
            refused()
    world.finalize()
