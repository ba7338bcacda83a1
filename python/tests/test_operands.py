"""What operations take beside symmetric arrays: how long a stream holds it, and its strides."""

import gc
import time
import weakref

import numpy
import pytest

import rushmem
from conftest import ON_GPU
from rushmem.testing import run
from stand_ins import KINDS, CudaTensor, HostTensor

pytestmark = pytest.mark.skipif(ON_GPU, reason="the stand-ins' memory is the host's")
TWICE = """
extern "C" __global__ void twice(const long *from, long *to, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = 2 * from[i];
}"""


def held_on_streams(world, kind, seed):
    """Each call holds what it reads and writes until the stream has passed it, and no longer."""
    rng, me = numpy.random.default_rng(seed), world.my_pe
    right, left = (me + 1) % world.n_pes, (me - 1) % world.n_pes
    data = rng.integers(1 << 40, size=(world.n_pes, 5000))
    a, b, arrived, gate = world.empty(5000, "int64"), world.empty(5000, "int64"), world.signals(), world.signals()
    total, stream, other = world.empty(5000, "int64"), world.stream(), world.stream()
    twice = world.load(TWICE).kernel("twice")
    gate.wait_until("==", 1, stream=stream)
    sources = [kind(data[me].copy()) for _ in range(4)]
    outs = [kind(numpy.zeros(5000, "int64")) for _ in range(2)]
    a.put(sources[0], right, stream=stream)
    b.put_signal(sources[1], arrived, 7, right, stream=stream)
    world.team.reduce(total, sources[2], "sum", stream=stream)
    twice.launch(1, 64, sources[3], outs[0], 5000, stream=stream)
    world.barrier_all(stream=stream)
    a.get(me, outs[1], stream=stream)
    # The memory is looked at below; the objects go.
    seen = [] if kind is numpy.asarray else [out.data for out in outs]
    held = [weakref.ref(one) for one in sources + outs]
    del sources, outs
    gc.collect()
    # Calls on another stream let nothing of this one go.
    kept = weakref.ref(passing := kind(numpy.ones(5000, "int64")))
    b[:0].put(numpy.zeros(0, "int64"), me, stream=other)
    total[:1].get(me, numpy.zeros(1, "int64"), stream=other)
    other.synchronize()
    assert [one() is None for one in held] == [False] * 6
    gate.p(1, me)
    stream.synchronize()
    assert [one() is None for one in held] == [True] * 6, [one() is None for one in held]
    # A call on any stream lets go of what others have passed.
    a.put(passing, me, stream=stream)
    del passing
    limit = time.monotonic() + 20
    while kept() is not None and time.monotonic() < limit:
        world.fence(stream=other)
        total[:1].get(me, numpy.zeros(1, "int64"), stream=other)
    assert kept() is None
    world.barrier_all()
    numpy.testing.assert_array_equal(numpy.asarray(b), data[left])
    numpy.testing.assert_array_equal(numpy.asarray(total), data.sum(0))
    for out, expected in zip(seen, [2 * data[me], data[left]]):
        numpy.testing.assert_array_equal(out, expected)
    world.barrier_all()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_streams_hold_what_they_read_and_write(rng, kind):
    assert run(2, held_on_streams, kind, int(rng.integers(1 << 31))) == [True, True]


def far_behind(world, kind, n):
    """Objects of many calls live until their own call was passed, at least, and then go."""
    a, stream, gate = world.empty(n, "int64"), world.stream(), world.signals()
    halfway = n // 2
    gate.wait_until(">=", 1, stream=stream)
    held = []
    for i in range(n):
        if i == halfway:
            gate.wait_until(">=", 2, stream=stream)
        source = kind(numpy.array([i + 1]))
        a[i].put(source, world.my_pe, stream=stream)
        held.append(weakref.ref(source))
    del source
    assert all(one() is not None for one in held)
    gate.p(1, world.my_pe)
    a[halfway - 1].wait_until("==", halfway)
    world.collect()
    assert all(one() is not None for one in held[halfway:])
    gate.p(2, world.my_pe)
    stream.synchronize()
    assert all(one() is None for one in held)
    numpy.testing.assert_array_equal(numpy.asarray(a), numpy.arange(n) + 1)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_are_far_behind_hold_everything(kind):
    # Around lots of 32 calls, of which a call alone is one at first.
    for n in [2, 15, 18, 64, 1001]:
        assert run(1, far_behind, kind, n) == [True]


def test_allocations_let_go_of_what_streams_have_passed(world):
    a, stream = world.empty(100, "int64"), world.stream()
    event = world.signals()
    source = CudaTensor(numpy.arange(100))
    a.put(source, 0, stream=stream)
    event.signal_op(1, 0, stream=stream)
    held = weakref.ref(source)
    del source
    event.signal_wait_until("==", 1)
    limit = time.monotonic() + 20
    while held() is not None and time.monotonic() < limit:
        world.collect()
    assert held() is None


def strided(world, seed):
    """One distance between elements is taken from every kind of array, as from numpy's."""
    rng, me = numpy.random.default_rng(seed), world.my_pe
    right = (me + 1) % world.n_pes
    stream = world.stream()
    for kind in KINDS:
        for dtype in ["uint8", "int32", "float64"]:
            everyone = rng.integers(0, 100, (world.n_pes, 40, 6)).astype(dtype)
            mine, theirs = everyone[me].copy(), everyone[(me - 1) % world.n_pes]
            a = world.empty((40, 6), dtype)
            world.barrier_all()
            for on in [None, stream]:
                a[:3].put(kind(mine[:18, :1]), right, stream=on)
                world.quiet(stream=on)
                a[:, 1].put(kind(mine[:, 2]), right, stream=on)
                a[0:8, 3].put(kind(mine[::5, 4]), right, stream=on)
                stream.synchronize()
                world.barrier_all()
                expected = numpy.zeros((40, 6), dtype)
                expected[:3] = theirs[:18, 0].reshape(3, 6)
                expected[:, 1] = theirs[:, 2]
                expected[0:8, 3] = theirs[::5, 4]
                numpy.testing.assert_array_equal(a.get(me), expected)
                out = numpy.zeros((40, 6), dtype)
                a[:, 1].get(me, kind(out[:, 5]), stream=on)
                stream.synchronize()
                numpy.testing.assert_array_equal(out[:, 5], theirs[:, 2])
                assert not out[:, :5].any()
                world.barrier_all()
                a.put(numpy.zeros((40, 6), dtype), me)
                world.barrier_all()
            flat = a.reshape(240)
            for into, wrong in [
                (flat[:120], mine[:, ::2]), (flat, mine.T), (flat[:40], mine[::-1, 2]), (flat[:40], numpy.broadcast_to(mine[0, 0], 40)),
            ]:
                try:
                    into.put(kind(wrong), right)
                    return f"{kind} {wrong.strides}: no error"
                except BufferError:
                    pass
    world.barrier_all()
    return True


def test_strided_arrays_of_every_kind(rng):
    assert run(2, strided, int(rng.integers(1 << 31))) == [True, True]


def test_kernels_and_collectives_refuse_gaps(world):
    twice = world.load(TWICE).kernel("twice")
    a = world.empty(5, "int64")
    for kind in KINDS:
        wide = kind(numpy.zeros(10, "int64")[::2])
        with pytest.raises(rushmem.InvalidArgument, match="gaps"):
            twice.launch(1, 5, wide, a, 5)
        with pytest.raises(rushmem.InvalidArgument, match="gaps"):
            world.team.reduce(a, wide)


class Meta(HostTensor):
    """A tensor of torch's device "meta", which has elements and no memory."""

    def data_ptr(self):
        return 0


def test_views_and_tensors_whose_memory_is_something_else(world):
    a, z, words = world.empty(4), world.empty(4, "complex64"), world.empty(4, "int64")
    with pytest.raises(TypeError, match="without memory"):
        a.put(Meta(numpy.zeros(4, "float32")), 0)
    for name, into in [("conjugate", z), ("negated", z), ("negated", a)]:
        view = HostTensor(numpy.ones(4, into.dtype))
        setattr(view, name, True)
        with pytest.raises(BufferError, match=name):
            into.put(view, 0)
    # Bytes stand for anything, and integers for types that numpy has not: nothing else for something else.
    words.put(numpy.zeros(32, "uint8"), 0)
    world.empty(32, "uint8").put(numpy.zeros(4), 0)
    world.empty(4, "bfloat16").put(numpy.zeros(4, "uint16"), 0)
    for into, other in [(a, numpy.zeros(2)), (words, numpy.zeros(8, "int32")), (world.empty(4, "bfloat16"), numpy.zeros(4, "float16"))]:
        with pytest.raises(rushmem.InvalidArgument, match="src is of type"):
            into.put(other, 0)
    with pytest.raises(rushmem.InvalidArgument, match="dst is of type bfloat16, src of float32"):
        world.team.reduce(world.empty(4, "bfloat16"), numpy.zeros(2, "float32"))
