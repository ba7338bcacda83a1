"""What operations take beside symmetric arrays: how long a stream holds it."""

import gc
import time
import weakref

import numpy
import pytest

from conftest import ON_GPU
from rushmem.testing import run
from stand_ins import KINDS, CudaTensor

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
