"""Teams and their collectives, against numpy."""

import numpy
import pytest

import rushmem
from rushmem.testing import run
from conftest import PES


def reduced(op, arrays):
    return {
        "sum": lambda a: numpy.add.reduce(a), "prod": lambda a: numpy.multiply.reduce(a), "min": lambda a: numpy.min(a, 0),
        "max": lambda a: numpy.max(a, 0), "and": lambda a: numpy.bitwise_and.reduce(a),
        "or": lambda a: numpy.bitwise_or.reduce(a), "xor": lambda a: numpy.bitwise_xor.reduce(a),
    }[op](arrays)


def collectives(world, seed, on_stream):
    rng = numpy.random.default_rng(seed)
    team, me, n = world.team, world.my_pe, world.n_pes
    stream = world.stream() if on_stream else None

    def check(dst, expected, what):
        if stream:
            stream.synchronize()
        got = numpy.empty(dst.shape, dst.dtype)
        dst.get(me, got)
        numpy.testing.assert_array_equal(got, expected, err_msg=f"{what} of {dst.shape}")

    for size in [1, 3, 64, 1000, 5000]:
        data = rng.integers(0, 100, (n, size)).astype("int32")
        blocks = rng.integers(0, 100, (n, n, size)).astype("int32")
        src, many, dst, all_ = (world.empty(shape, "int32") for shape in [size, (n, size), size, (n, size)])
        src.put(data[me], me)
        many.put(blocks[me], me)
        team.broadcast(dst, src, root=n - 1, stream=stream)
        check(dst, data[n - 1], "broadcast")
        team.fcollect(all_, src, stream=stream)
        check(all_, data, "fcollect")
        team.alltoall(all_, many, stream=stream)
        check(all_, blocks[:, me], "alltoall")
        for op in ["sum", "prod", "min", "max", "and", "or", "xor"] if size == 64 else ["sum", "max"]:
            team.reduce(dst, src, op, stream=stream)
            check(dst, reduced(op, data), op)
        team.reducescatter(dst, many, stream=stream)
        check(dst, blocks.sum(0, dtype="int32")[me], "reducescatter")
        team.inscan(dst, src, stream=stream)
        check(dst, data[: me + 1].sum(0), "inscan")
        team.exscan(dst, src, stream=stream)
        check(dst, data[:me].sum(0), "exscan")
        team.reduce(src, stream=stream)
        check(src, data.sum(0), "reduce in place")
        # As many as each likes.
        several = world.empty(n * size, "int32")
        received = team.collect(several, src[: me + 1 if size > n else 1], stream=stream)
        if stream is None:
            assert received == 4 * sum(min(pe + 1 if size > n else 1, size) for pe in range(n))
        if stream:
            stream.synchronize()
        spread, apart = world.empty(2 * n * size, "int32"), world.empty(3 * n * size, "int32")
        apart[::3].put(blocks[me].reshape(-1), me)
        team.alltoalls(spread, apart, size, dst_stride=2, src_stride=3, stream=stream)
        check(spread[::2], blocks[:, me].reshape(-1), "alltoalls")
    team.sync(stream=stream)
    team.barrier(stream=stream)
    if stream:
        stream.synchronize()
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_collectives(rng, on_stream):
    assert all(run(PES, collectives, int(rng.integers(1 << 31)), on_stream, timeout=240))


def types(world, seed):
    rng = numpy.random.default_rng(seed)
    me, n = world.my_pe, world.n_pes
    for dtype in ["int8", "uint8", "int16", "uint64", "float16", "float32", "float64", "complex64", "complex128"]:
        data = rng.integers(0, 10, (n, 100)).astype(dtype)
        # Memory of one's own does, too.
        mine = data[me].copy()
        world.team.reduce(mine)
        numpy.testing.assert_array_equal(mine, data.sum(0, dtype=dtype))
    a = world.empty(100, "bfloat16")
    for i in range(100):
        a[i].p(float(me + i % 7), me)
    world.team.reduce(a)
    assert [a[i].g(me) for i in range(100)] == [sum(range(n)) + n * (i % 7) for i in range(100)]
    counts = numpy.arange(n) + me + 1
    at = numpy.concatenate([[0], numpy.cumsum(counts)[:-1]])
    src = numpy.concatenate([numpy.full(counts[j], 10 * me + j) for j in range(n)])
    dst = numpy.zeros(100, "int64")
    came = world.team.alltoallv(dst, [10 * i for i in range(n)], src, at.tolist(), counts.tolist())
    assert came == [me + i + 1 for i in range(n)]
    assert all((dst[10 * i : 10 * i + came[i]] == 10 * i + me).all() for i in range(n))
    # On a stream lists are the device's, too.
    stream, to, from_ = world.stream(), world.empty(100, "int64"), world.empty(100, "int64")
    lists = world.empty((4, n), "uint64")
    lists.put(numpy.array([[10 * i for i in range(n)], at, counts, [0] * n], "uint64"), me)
    from_[: len(src)].put(src, me)
    world.team.alltoallv(to, lists[0], from_, lists[1], lists[2], received=lists[3], stream=stream)
    stream.synchronize()
    assert lists[3].get(me).tolist() == came and (to.get(me) == dst).all()
    return True


def test_reductions_of_all_types_and_of_own_memory(rng):
    assert all(run(PES, types, int(rng.integers(1 << 31))))


def teams(world):
    me, n, all_ = world.my_pe, world.n_pes, world.team
    assert (all_.my_pe, all_.n_pes, all_.members, len(all_)) == (me, n, list(range(n)), n)
    even = all_.split_strided(0, 2, (n + 1) // 2)
    assert (even is None) == (me % 2 == 1)
    halves = all_.split(me % 2, -me)
    assert halves.members == sorted(range(me % 2, n, 2), reverse=True)
    chosen = all_.split_list([n - 1, 0], slot_sets=3)
    assert (chosen is None) == (me not in (0, n - 1))
    row, column = all_.split_2d(2)
    assert row.members == [me // 2 * 2, me // 2 * 2 + 1] and column.members == list(range(me % 2, n, 2))
    node = world.node_team()
    assert node.n_pes == sum(world.peer_info(pe)["transport"] == "direct" for pe in range(n))
    none = all_.split(None if me == 1 else 0)
    assert (none is None) == (me == 1)
    value = numpy.array([me + 1])
    halves.reduce(value)
    assert value[0] == sum(pe + 1 for pe in range(me % 2, n, 2))
    assert all_.translate(0, halves) == (halves.members.index(0) if me % 2 == 0 else None)
    assert halves.translate(0, all_) == halves.members[0]
    if chosen is not None:
        assert chosen.slot_sets == 3 and chosen.members == [n - 1, 0]
        chosen.free()
    halves.free()
    try:
        halves.reduce(value)
    except rushmem.BadHandle as error:
        assert "was freed" in str(error)
    return True


def test_teams():
    assert all(run(4, teams))


def test_wrong_sizes(world):
    a, b = world.empty(4, "int32"), world.empty(5, "int32")
    for call, error, text in [
        (lambda: world.team.reduce(a, b), rushmem.InvalidArgument, "16 bytes and src 20"),
        (lambda: world.team.reduce(a, numpy.zeros(4, "float32")), rushmem.InvalidArgument, "src of float32"),
        (lambda: world.team.fcollect(a, b), rushmem.InvalidArgument, "fcollect"),
        (lambda: world.team.reduce(a, op="mean"), ValueError, "no operator"),
        (lambda: world.team.broadcast(a, root=1), rushmem.BadPe, "1"),
        (lambda: world.team.reduce(world.empty(4, "bool")), rushmem.InvalidArgument, "type bool"),
        (lambda: world.team.reduce(world.empty(4, "float32"), op="xor"), rushmem.InvalidArgument, "no xor of float"),
        (lambda: world.team.alltoalls(a, a, 3, src_stride=2), rushmem.InvalidArgument, "do not fit"),
        (lambda: world.team.alltoallv(a, [0], b, [0], [6]), rushmem.InvalidArgument, "member 0"),
        (lambda: world.team.reduce(a[::2], a[::2]), rushmem.InvalidArgument, "gaps"),
        (lambda: world.team.sync(slot_set=7, stream=world.stream()), rushmem.InvalidArgument, "slot set"),
    ]:
        with pytest.raises(error, match=text):
            call()


def differ(world):
    a = numpy.zeros(4 + world.my_pe)
    try:
        world.team.reduce(a)
    except rushmem.Mismatch:
        world.barrier_all()
        return True


def test_members_that_disagree_get_an_error_each():
    assert run(2, differ) == [True, True]
