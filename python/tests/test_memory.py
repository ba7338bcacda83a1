"""When memory is given back: the garbage collectors of PEs do not run in step."""

import gc
import mmap
import os
import threading
import time

import numpy
import pytest

import rushmem
from rushmem.testing import run
from conftest import ON_GPU, PES


def drops(world, seed):
    """Arrays die on different PEs at different times. No PE may free what another one still sees."""
    shared, own = numpy.random.default_rng(seed), numpy.random.default_rng([seed, world.my_pe])
    held = []
    for step in range(60):
        n = int(shared.integers(1, 5000))
        a = world.empty(n, "int64")
        value = step + 1000 * world.my_pe
        a.put(numpy.full(n, value), world.my_pe)
        world.quiet()
        held.append((a, n, value))
        # Each PE forgets others.
        held = [one for one in held if own.random() < 0.7]
        for array, n, value in held:
            got = array.get(world.my_pe)
            assert got.shape == (n,) and (got == value).all()
    a = array = None
    held.clear()
    gc.collect()
    world.barrier_all()
    world.collect()
    info = world.heap_info()
    return info["allocations"], info["unused"]


def test_what_all_have_dropped_is_freed_and_nothing_else(rng):
    counts = run(PES, drops, int(rng.integers(1 << 31)))
    assert len(set(counts)) == 1 and counts[0][1] == 0, counts


def keeps(world):
    world.empty(1)  # the first is freed by the second
    base = world.heap_info()["allocations"]
    a = world.empty(1000)
    if world.my_pe == 1:
        view = a[10:20]
    del a
    before = world.collect(), world.heap_info()["allocations"]
    if world.my_pe == 1:
        del view
    after = world.collect(), world.heap_info()["allocations"]
    return base, before, after


def test_one_pe_s_view_keeps_all_pes_memory():
    for base, before, after in run(2, keeps):
        # The base's one was freed by the empty behind it.
        assert before == (0, base) and after == (1, base - 1)


def frees(world):
    a, b = world.empty(100), world.empty(50)
    view = numpy.asarray(a) if world.my_pe == 2 and not ON_GPU else a[1:] if world.my_pe == 2 else None
    try:
        a.free()
    except rushmem.Busy as error:
        refused = str(error)
    del view
    a.free()
    b.free()
    try:
        a.put(numpy.zeros(100, "float32"), 0)
    except rushmem.BadAddress:
        pass
    try:
        b.free()
    except rushmem.BadAddress as error:
        assert "was freed" in str(error)
    return refused, world.heap_info()["unused"]


def test_free_is_refused_on_all_pes_where_one_has_views():
    for refused, unused in run(3, frees):
        assert refused.startswith("free: PE 2 still has views of this array") and unused == 0


def in_flight(world):
    """An array that a stream still uses is not freed, and nobody waits for the stream."""
    flag, a = world.signals(), world.empty(1000, "int64")
    source = numpy.arange(1000)
    other = world.stream()
    flag.wait_until("==", 1, stream=other)
    a.put(source, world.my_pe, stream=other)
    del a, source
    gc.collect()
    busy = world.collect()
    flag.p(1, world.my_pe)
    other.synchronize()
    return busy, world.collect()


def test_what_a_stream_uses_is_not_freed():
    assert run(2, in_flight) == [(0, 1), (0, 1)]


def mappings():
    with open("/proc/self/maps") as maps:
        return sum("rushmem" in line for line in maps), len(os.listdir("/proc/self/fd"))


def outlives(world):
    """Arrays outlive the streams that used them, and the memory is given back all the same."""
    source, peer = world.empty(1000, "int64"), (world.my_pe + 1) % world.n_pes
    for _ in range(3):
        stream, a = world.stream(), world.empty(1000, "int64")
        a.put(source, peer, stream=stream)
        stream.synchronize()
        world.barrier_all()
        del stream, a
        gc.collect()
        # Streams that ended with nothing on them are destroyed when others end.
        for _ in range(3):
            del_me = world.stream()
            del del_me
    world.barrier_all()
    freed = world.collect()
    return freed, world.heap_info()["unused"]


def test_arrays_outlive_the_streams_that_used_them():
    # The others were freed by the allocations that came after them.
    assert run(PES, outlives) == [(1, 0)] * PES


@pytest.mark.skipif(ON_GPU, reason="a world takes a second there")
def test_many_worlds_leave_nothing():
    def one(i):
        with rushmem.init() as world:
            a = world.empty(100)
            n = numpy.asarray(a)
            n[:] = i
            return n if i % 3 == 0 else None

    for i in range(10):
        one(i)
    gc.collect()
    before = mappings()
    for i in range(1000):
        one(i)
    gc.collect()
    assert mappings() == before


def test_a_world_that_is_dropped_alone_is_finalised(capfd):
    world = rushmem.init()
    a = world.empty(10)
    del world
    gc.collect()
    a.p  # the array holds the job
    a[0].p(3.0, 0)
    assert a[0].g(0) == 3.0
    del a
    gc.collect()
    assert "leaves" not in capfd.readouterr().err


def registers(world, seed):
    if ON_GPU:
        return True
    own = numpy.random.default_rng([seed, world.my_pe])
    pages = mmap.mmap(-1, 4 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mine = numpy.frombuffer(pages, "int64")
    data = own.integers(0, 1 << 60, mine.size)
    mine[:] = data
    shared = world.register(mine).view_as("int64")
    world.barrier_all()
    right = (world.my_pe + 1) % world.n_pes
    theirs = numpy.random.default_rng([seed, right]).integers(0, 1 << 60, mine.size)
    assert (shared.get(right) == theirs).all()
    world.barrier_all()
    shared[:3].put(numpy.array([1, 2, 3]), right)
    world.barrier_all()
    assert mine[:3].tolist() == [1, 2, 3] and (mine[3:] == data[3:]).all()
    # Others see the owner's memory, which stays where it is.
    seen, taken = numpy.asarray(shared[1:]), numpy.from_dlpack(shared)
    try:
        numpy.asarray(shared.peer(right))
        return "no error"
    except BufferError as error:
        assert "array.get" in str(error)
    world.unregister(shared)
    mine[:2] = 7
    assert seen[:2].tolist() == [7, 3] and taken[0] == 7
    try:
        shared.get(right)
    except rushmem.Error:
        return True


def test_memory_of_others_becomes_symmetric(rng):
    assert run(2, registers, int(rng.integers(1 << 31))) == [True, True]


@pytest.mark.skipif(ON_GPU, reason="numpy's view of an array is the host's")
def test_views_of_registered_memory_outlive_the_world():
    with rushmem.init() as world:
        pages = mmap.mmap(-1, 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        shared = world.register(numpy.frombuffer(pages, "int64")).view_as("int64")
        shared[:2].put(numpy.array([4, 5]), 0)
        seen, taken = numpy.asarray(shared), numpy.from_dlpack(shared[1:])
        del pages, shared
    del world
    gc.collect()
    seen[1] += 1
    assert seen[:3].tolist() == [4, 6, 0] and taken[0] == 6


def threads_drop(world):
    """Other threads see, slice and drop arrays while the main one is in collective calls."""
    stop, pile, errors = threading.Event(), [], []

    def drop():
        try:
            while not stop.is_set():
                if pile:
                    array = pile.pop()
                    views = [array[1:], array.reshape(-1), array.__dlpack__(), world.heap_info()]
                    del array, views
                time.sleep(1e-4)
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=drop) for _ in range(3)]
    for thread in others:
        thread.start()
    for step in range(100):
        pile.append(world.empty(100, "int64"))
        if step % 20 == 0:
            gc.collect()
    stop.set()
    for thread in others:
        thread.join()
    pile.clear()
    gc.collect()
    world.barrier_all()
    world.collect()
    return errors, world.heap_info()["unused"]


def test_threads_drop_arrays_while_others_allocate():
    assert run(2, threads_drop) == [([], 0)] * 2
