"""Operations on single PEs' memory, against numpy."""

import weakref

import numpy
import pytest

import rushmem
from rushmem.testing import run
from conftest import ON_GPU, PES


def exchange(world, seed, on_stream):
    rng = numpy.random.default_rng(seed)
    me, right = world.my_pe, (world.my_pe + 1) % world.n_pes
    left = (me - 1) % world.n_pes
    stream = world.stream() if on_stream else None

    def settle():
        if stream:
            stream.synchronize()
        world.barrier_all()

    for n in [1, 2, 7, 8, 9, 1000, 1023, 4096, 100_001]:
        for dtype in ["uint8", "int16", "float32", "float64"]:
            data = [(rng.random(n) * 100).astype(dtype) for _ in range(world.n_pes)]
            a = world.empty(n, dtype)
            a.put(data[me], right, stream=stream)
            settle()
            got = numpy.empty(n, dtype)
            a.get(me, got, stream=stream)
            settle()
            numpy.testing.assert_array_equal(got, data[left])
            numpy.testing.assert_array_equal(a.get(right), data[me])
    # Strided on either side.
    a = world.empty((6, 10), "int32")
    column = rng.integers(0, 1000, (world.n_pes, 6)).astype("int32")
    a[:, 3].put(column[me], right, stream=stream)
    a[2, 5:].put(column[me].repeat(2)[::2][:5], right, stream=stream)
    settle()
    got = a.get(me)
    expected = numpy.zeros((6, 10), "int32")
    expected[:, 3] = column[left]
    expected[2, 5:] = column[left][:5]
    numpy.testing.assert_array_equal(got, expected)
    out = numpy.zeros(12, "int32")
    a[:, 3].get(right, out[::2], stream=stream)
    settle()
    numpy.testing.assert_array_equal(out[::2], column[me])
    assert not out[1::2].any()
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_put_and_get(rng, on_stream):
    assert all(run(PES, exchange, int(rng.integers(1 << 31)), on_stream))


def words(world, on_stream):
    me, n = world.my_pe, world.n_pes
    right = (me + 1) % n
    stream = world.stream() if on_stream else None
    data, arrived, counted = world.empty(100, "int64"), world.signals(2), world.signals()
    source = numpy.arange(100) + 1000 * me
    data.put_signal(source, arrived[0], 7, right, stream=stream)
    arrived[1].signal_op(9, right, stream=stream)
    counted.signal_op(me + 1, 0, op="add", stream=stream)
    if stream:
        arrived[0].signal_wait_until("==", 7, stream=stream)
        stream.synchronize()
    assert arrived[0].signal_wait_until(">=", 1) == 7
    assert (data.get(me) == numpy.arange(100) + 1000 * ((me - 1) % n)).all()
    arrived[1].wait_until("==", 9, timeout=20)
    assert arrived[1].test("==", 9) and not arrived[1].test("<", 9)
    if me == 0:
        counted.wait_until("==", n * (n + 1) // 2)
        assert counted.signal_fetch() == n * (n + 1) // 2
    # p and g, of each type.
    for dtype, value in [("int8", -5), ("uint16", 65535), ("int32", -(1 << 31)), ("uint64", (1 << 64) - 1), ("float32", 0.5),
                         ("float64", -1e300), ("float16", 1.5), ("bfloat16", -2.0), ("bool", True)]:
        a = world.empty(3, dtype)
        a[1].p(value, right, stream=stream)
        if stream:
            stream.synchronize()
        world.barrier_all()
        assert a[1].g(me) == value and a[1].g(right) == value and a[0].g(me) == 0
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_words_and_signals(on_stream):
    assert all(run(PES, words, on_stream))


def atomics(world):
    n = world.n_pes
    for dtype in ["int32", "uint32", "int64", "uint64"]:
        a = world.empty(4, dtype)
        for _ in range(50):
            a[0].atomic_add(world.my_pe + 1, 0)
        old = [a[1].atomic_fetch_add(1, n - 1) for _ in range(20)]
        assert old == sorted(set(old))
        a[2].atomic_or(1 << world.my_pe, 0)
        world.barrier_all()
        assert a[0].atomic_fetch(0) == 50 * n * (n + 1) // 2
        assert a[1].g(n - 1) == 20 * n and a[2].g(0) == (1 << n) - 1
        winners = a[3].atomic_compare_swap(0, world.my_pe + 1, 0)
        world.barrier_all()
        won = a[3].g(0)
        assert (winners == 0) == (won == world.my_pe + 1)
        world.barrier_all()
        if world.my_pe == 0:
            assert a[2].atomic_swap(12, 0) == (1 << n) - 1
            assert a[2].atomic_fetch_and(10, 0) == 12 and a[2].atomic_fetch_or(1, 0) == 8
            assert a[2].atomic_fetch_xor(3, 0) == 9 and a[2].g(0) == 10
            assert a[2].atomic_set(5, 0) is None and a[2].atomic_xor(1, 0) is None and a[2].atomic_and(6, 0) is None
            assert a[2].g(0) == 4
    f = world.empty(1, "float64")
    f.atomic_set(2.5, world.my_pe)
    assert f.atomic_swap(3.5, world.my_pe) == 2.5 and f.atomic_fetch(world.my_pe) == 3.5
    try:
        f.atomic_add(1.0, 0)
    except rushmem.InvalidArgument:
        return True


def test_atomics():
    assert run(PES, atomics) == [True] * PES


def vectors(world):
    flags = world.empty(world.n_pes * 2, "int32")
    for pe in range(world.n_pes):
        flags[world.my_pe].p(world.my_pe + 1, pe)
    flags[: world.n_pes].wait_until_all("!=", 0)
    assert flags.wait_until_any("==", world.n_pes) == world.n_pes - 1
    assert flags.wait_until_some(">", 0) == list(range(world.n_pes))
    assert flags[:0].wait_until_any("==", 1) is None
    try:
        flags[-1].wait_until("==", 1, timeout=0.05)
    except rushmem.Timeout as error:
        assert isinstance(error, TimeoutError) and error.code == -7
        return True


def test_vectors_of_waits():
    assert run(PES, vectors) == [True] * PES


def test_wrong_arguments(world):
    a = world.empty(10, "int32")
    data = numpy.zeros(10, "int32")
    for call, error, text in [
        (lambda: a.put(data, 1), rushmem.BadPe, "PE 1"),
        (lambda: a.put(data[:9], 0), rushmem.InvalidArgument, "9 elements of 4 bytes"),
        (lambda: a.put(numpy.zeros((10, 10), "int32")[:, :1].T[:, ::2], 0), rushmem.InvalidArgument, "5 elements"),
        (lambda: a.put(numpy.zeros((4, 10), "int32")[::2, ::2], 0), BufferError, "gaps"),
        (lambda: a.put([1] * 10, 0), TypeError, "src is a list"),
        (lambda: a.put(world.empty(10, "float32"), 0), rushmem.InvalidArgument, "of type float32"),
        (lambda: a.put(numpy.zeros(10, "float32"), 0), rushmem.InvalidArgument, "src is of type float32"),
        (lambda: a.get(0, numpy.zeros(10, "uint32")), rushmem.InvalidArgument, "out is of type uint32"),
        (lambda: a.put(numpy.zeros(10, ">i4"), 0), rushmem.InvalidArgument, "byte order"),
        (lambda: a.get(0, b"x" * 40), BufferError, "read-only"),
        (lambda: a.p(1, 0), rushmem.InvalidArgument, "one element"),
        (lambda: a[0].p(1 << 31, 0), OverflowError, "int32"),
        (lambda: a[0].p("x", 0), TypeError, None),
        (lambda: a[0].wait_until("=>", 0), ValueError, "no comparison"),
        (lambda: a[0].signal_op(1, 0), rushmem.InvalidArgument, "uint64"),
        (lambda: world.signals().signal_op(1, 0, op="sub"), ValueError, "no operation of signals"),
        (lambda: a.put(data, 0, stream=object()), TypeError, "no stream"),
        (lambda: world.fence(stream="x"), TypeError, "no stream"),
        (lambda: rushmem.init(rank=0, n_pes=1), TypeError, "uid"),
        (lambda: rushmem.init(uid=b"x", rank=0, n_pes=1), ValueError, "128 bytes"),
        (lambda: rushmem.init(device="gpu"), ValueError, "no device"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert issubclass(rushmem.BadPe, IndexError) and rushmem.BadPe("x").code == -2
    assert str(rushmem.BadPe("x")) == "x (RUSHMEM_ERR_BAD_PE)"
    if not ON_GPU:
        with pytest.raises(rushmem.Error):
            a.put(data, 0, stream=12345)
        with pytest.raises(rushmem.InvalidArgument, match="shows PE 0's memory"):
            a.peer(0).put(data, 0)


def peers(world):
    a = world.empty(8, "int64")
    a.put(numpy.arange(8) + 10 * world.my_pe, world.my_pe)
    world.barrier_all()
    right = (world.my_pe + 1) % world.n_pes
    theirs, info = a[2:6].peer(right), world.peer_info(right)
    assert info["pid"] > 0 and info["host"]
    if info["transport"] != "direct":
        return theirs is None
    assert theirs.pe == right and a.pe is None
    return True if ON_GPU else numpy.asarray(theirs).tolist() == [10 * right + i for i in range(2, 6)]


def test_a_peer_s_memory_is_seen():
    assert run(2, peers) == [True] * 2


def non_blocking(world, seed, far):
    rng, me = numpy.random.default_rng(seed), world.my_pe
    right, left = (me + 1) % world.n_pes, (me - 1) % world.n_pes
    data = rng.integers(1 << 40, size=(world.n_pes, 3, 5000))
    a, b, arrived = world.empty((3, 5000), "int64"), world.empty(5000, "int64"), world.signals()
    b.put(data[me, 0], me)
    world.barrier_all()
    context, parts = world.context(), [part.copy() for part in data[me]]
    # Nobody else holds the sources: the world does, until a quiet.
    a[0].put_nbi(parts[0], right)
    with context as entered:
        assert entered is context
        a[1].put_nbi(parts[1], right)
        with world.context():
            pass
        context.fence()
        a[2].put_signal_nbi(parts[2], arrived, 7, right)
    held = [weakref.ref(part) for part in parts]
    del parts
    junk = [numpy.full(5000, -1) for _ in range(20)]
    assert [one() is None for one in held] == [False] * 3
    context.quiet()
    assert [one() is None for one in held] == [False, True, True]
    out = numpy.zeros(5000, "int64")
    b.get_nbi(right, out)
    world.quiet()
    numpy.testing.assert_array_equal(out, data[right, 0])
    assert held[0]() is None and len(junk) == 20
    arrived.signal_wait_until("==", 7)
    # The signal is behind its own data, and the fence behind the context's.
    numpy.testing.assert_array_equal(numpy.asarray(a)[1:], data[left, 1:])
    world.barrier_all()
    numpy.testing.assert_array_equal(numpy.asarray(a)[0], data[left, 0])
    for wrong in [lambda: a[:, ::2].put_nbi(out, right), lambda: a[0].put_nbi(out[:7], right), lambda: a[0].get_nbi(right, out[::2])]:
        try:
            wrong()
            return "no error"
        except rushmem.InvalidArgument:
            pass
    world.barrier_all()
    return world.peer_info(right)["transport"] == ("fake" if far else "direct")


@pytest.mark.skipif(ON_GPU, reason="numpy's view of an array is the host's")
@pytest.mark.parametrize("far", [False, True])
def test_non_blocking_calls_hold_their_memory_until_a_quiet(rng, far, monkeypatch):
    if far:
        monkeypatch.setenv("RUSHMEM_TRANSPORT", "fake")
        monkeypatch.setenv("RUSHMEM_PES_PER_NODE", "1")
    assert run(2, non_blocking, int(rng.integers(1 << 31)), far, threads=far) == [True, True]
