"""rushmem.torch where torch is not: operations and collectives of tensors over a stand-in for torch, by calls
of the host and on streams. With torch itself: test_torch.py."""

import types

import numpy
import pytest

import fake_torch
import rushmem
from conftest import ON_GPU
from rushmem.testing import run

pytestmark = pytest.mark.skipif(ON_GPU, reason="the stand-in's tensors are numpy's")


class Place:
    """rushmem.torch of one PE: by host calls, or on a stream as on a GPU."""

    def __init__(self, world, on_stream):
        self.torch = fake_torch.install()
        import rushmem.torch as rt

        self.rt, self.world, self.stream = rt, world, None
        rt.use(world)
        if on_stream:
            self.stream = fake_torch.current[world.device] = fake_torch.Stream(world.stream())
            rt._on_gpu = lambda: True

    def settle(self):
        """The stream has passed everything, on all PEs."""
        if self.stream:
            self.stream.synchronize()
        self.world.barrier_all()


def ours(data):
    return fake_torch.Tensor(numpy.array(data))


def refused(errors, *calls):
    for i, call in enumerate(calls):
        try:
            call()
        except errors:
            continue
        raise AssertionError(f"call {i} was no error")


def words(world, on_stream, seed):
    place = Place(world, on_stream)
    rt, me, n = place.rt, world.my_pe, world.n_pes
    right, left = (me + 1) % n, (me - 1) % n
    data = numpy.random.default_rng(seed).integers(1 << 40, size=(n, 6, 8))
    x, flag, number = rt.empty(6, 8, dtype="int64"), rt.empty(1, dtype="int64"), rt.empty(3, dtype="float32")
    arrived = world.signals()
    rt.put(x, ours(data[me]), right)
    place.settle()
    numpy.testing.assert_array_equal(x.data, data[left])
    out = ours(numpy.zeros((6, 8), "int64"))
    assert rt.get(out, x, right) is out
    place.settle()
    numpy.testing.assert_array_equal(out.data, data[me])
    # Parts of tensors: rows, and columns on either side.
    rt.put(x[2:4], ours(data[me, :2]), right)
    rt.put(x[:, 3], fake_torch.Tensor(data[me].copy()[:, 5]), right)
    expected = data[left].copy()
    expected[2:4], expected[:, 3] = data[left, :2], data[left, :, 5]
    place.settle()
    numpy.testing.assert_array_equal(x.data, expected)
    rt.get(out[:, 0], x[:, 3], me)
    place.settle()
    numpy.testing.assert_array_equal(out.data[:, 0], data[left, :, 5])
    # A signal is a word of world.signals(), or an int64 tensor's.
    rt.put_signal(x, ours(data[me] + 1), arrived, 7, right)
    rt.signal_wait_until(arrived, "==", 7)
    rt.get(out, x, me)
    place.settle()
    numpy.testing.assert_array_equal(out.data, data[left] + 1)
    rt.put_signal(x[0], ours(data[me, 0]), flag, 2, right, op="add")
    rt.fence()
    rt.signal_op(flag, 3, right, op="add")
    rt.wait_until(flag, ">=", 5)
    rt.p(number[1], 2.5, right)
    rt.quiet()
    place.settle()
    numpy.testing.assert_array_equal(x.data[0], data[left, 0])
    assert flag.data.tolist() == [5] and number.data.tolist() == [0, 2.5, 0]
    refused(
        (rushmem.Error, BufferError),
        lambda: rt.put(ours([1, 2]), ours([1, 2]), right),
        lambda: rt.put(x[:, ::2], ours(numpy.zeros((6, 4), "int64")), right),
        lambda: rt.put(x, ours([1, 2]), right),
        lambda: rt.signal_op(number[:1], 1, right),
        lambda: rt.p(number, 1, right),
    )
    for name in ["conjugate", "negated"]:
        setattr(view := x[0], name, True)
        refused(rushmem.InvalidArgument, lambda: rt.put(view, ours(data[me, 0]), right))
    # torch's empty tensors have no address: nothing is moved, and a signal is one.
    rt.put(x[:0], ours(data[me, :0]), right)
    assert rt.get(ours(data[me, :0]), x[3:3], right).version == 1 and out.version == 2
    place.settle()
    rt.put_signal(x[:0], ours(data[me, :0]), arrived, 9, right)
    rt.signal_wait_until(arrived, "==", 9)
    shown = {"put", "get", "put_signal", "signal_op", "signal_wait_until", "wait_until", "p", "fence", "quiet"}
    assert shown <= {name.removeprefix("rushmem::") for name in fake_torch.ranges}
    # Without a profiler nobody makes ranges, which cost more than the calls.
    place.torch.autograd.profiler._is_profiler_enabled = False
    before = len(fake_torch.ranges)
    rt.fence()
    assert len(fake_torch.ranges) == before
    # The world's device decides, and not torch's current one.
    assert set(fake_torch.asked) == ({world.device} if on_stream else set())
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_operations(rng, on_stream):
    assert run(2, words, on_stream, int(rng.integers(1 << 31))) == [True, True]


def collectives(world, on_stream, seed):
    place = Place(world, on_stream)
    rt, me, n = place.rt, world.my_pe, world.n_pes
    data = numpy.random.default_rng(seed).integers(-50, 50, (n, n, 7)).astype("float32")
    odd = rt.team().split(me % 2, -me)  # the last one is first
    for group in [None, odd]:
        members = range(n) if group is None else [pe for pe in reversed(range(n)) if pe % 2 == me % 2]
        mine, k = members.index(me), len(members)
        all_of = data[list(members), :k]
        x = ours(data[me, 0])
        assert rt.all_reduce(x, "ReduceOp.SUM", group) is x
        place.settle()
        numpy.testing.assert_array_equal(x.data, all_of[:, 0].sum(0))
        for op in ["ReduceOp.AVG", "avg"]:
            x = ours(data[me, 0])
            work = rt.all_reduce(x, op=op, group=group, async_op=True)
            place.settle()
            assert isinstance(work, rt.Work) and work.wait() is True and work.is_completed() is not on_stream
            if on_stream:
                # What comes next on the stream that is current now is behind the call.
                assert place.stream.waits[-1] is work._event
                work._event.is_done = True
                assert work.is_completed()
            numpy.testing.assert_array_equal(x.data, (all_of[:, 0].sum(0) / k).astype("float32"))
        y = ours(numpy.zeros((k, 7), "float32"))
        rt.all_gather_into_tensor(y, ours(data[me, 0]), group=group)
        place.settle()
        numpy.testing.assert_array_equal(y.data, all_of[:, 0])
        gathered = rt.all_gather(ours(data[me, 1]), group)
        place.settle()
        numpy.testing.assert_array_equal(gathered.data, data[list(members), 1])
        x = ours(numpy.zeros(7, "float32"))
        rt.reduce_scatter_tensor(x, ours(data[me, :k]), "avg", group)
        place.settle()
        numpy.testing.assert_array_equal(x.data, (all_of[:, mine].sum(0) / k).astype("float32"))
        rt.all_to_all_single(y, ours(data[me, :k]), group=group)
        place.settle()
        numpy.testing.assert_array_equal(y.data, all_of[:, mine])
        last = members[-1]
        for which in [{"src": last}, {"root": k - 1}]:
            x = ours(data[me, 0])
            rt.broadcast(x, group=group, **which)
            place.settle()
            numpy.testing.assert_array_equal(x.data, data[last, 0])
        rt.barrier(group, async_op=True).wait()
    # DDP's bucket of gradients; its hook has no annotations that DDP would compare.
    x = ours(data[me, 0])
    assert rt.ddp_hook(odd, types.SimpleNamespace(buffer=lambda: x)).value() is x and not rt.ddp_hook.__annotations__
    place.settle()
    numpy.testing.assert_array_equal(x.data, (all_of[:, 0].sum(0) / k).astype("float32"))
    numbers = ours(numpy.arange(4))
    refused(rushmem.InvalidArgument, lambda: rt.all_reduce(numbers, "avg"), lambda: rt.reduce_scatter_tensor(numbers, numbers, "avg"))
    refused(TypeError, lambda: rt.all_reduce(numbers, group="WORLD"), lambda: rt.broadcast(numbers, 0, root=0))
    refused(rushmem.BadPe, lambda: rt.broadcast(numbers, src=1 - me % 2, group=odd), lambda: rt.broadcast(numbers, n))
    refused(ValueError, lambda: rt.all_reduce(numbers, "PREMUL_SUM"))
    # A ReduceOp object has its operator within; a tensor without dimensions has no rows.
    x = rt.all_reduce(ours([me]), types.SimpleNamespace(op="RedOpType.MAX"))
    place.settle()
    assert x.data.tolist() == [n - 1] and x.version == 1
    refused(rushmem.InvalidArgument, lambda: rt.reduce_scatter(ours(1.0)), lambda: rt.all_to_all_single(ours(1), ours(1), [1, 1, 1]))
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_collectives_as_torch_distributed_has_them(rng, on_stream):
    assert run(3, collectives, on_stream, int(rng.integers(1 << 31))) == [True] * 3


def splits(world, on_stream, seed):
    place = Place(world, on_stream)
    rt, me, n = place.rt, world.my_pe, world.n_pes
    rng = numpy.random.default_rng(seed)
    for shape in [(), (5,), (2, 3)]:
        for most in [1, 4, 300]:
            rows = rng.integers(0, most + 1, (n, n))
            # One sends nothing, and another one gets nothing.
            rows[0] = 0 if most == 4 else rows[0]
            rows[:, 1] = 0 if most == 4 else rows[:, 1]
            data = [rng.integers(1 << 40, size=(rows[pe].sum(), *shape)) for pe in range(n)]
            out = ours(numpy.full((rows[:, me].sum(), *shape), -1))
            rt.all_to_all_single(out, ours(data[me]), rows[:, me].tolist(), rows[me].tolist())
            place.settle()
            starts = rows.cumsum(1) - rows
            expected = [data[pe][starts[pe, me] : starts[pe, me] + rows[pe, me]] for pe in range(n)]
            numpy.testing.assert_array_equal(out.data, numpy.concatenate(expected))
    # One list, and equal blocks on the other side: everyone's rows go to all alike.
    out, data = ours(numpy.zeros((2 * n, 2), "int64")), numpy.arange(4 * n).reshape(2 * n, 2) + 100 * me
    rt.all_to_all_single(out, ours(data), None, [2] * n)
    place.settle()
    numpy.testing.assert_array_equal(out.data[:, 0], [100 * pe + 4 * me + 2 * i for pe in range(n) for i in range(2)])
    x = ours(numpy.zeros((4, 2), "int64"))
    refused(
        rushmem.InvalidArgument,
        lambda: rt.all_to_all_single(x, x, [4], [4]),
        lambda: rt.all_to_all_single(x, x, [2, 1, 0], [2, 1, 1]),
        lambda: rt.all_to_all_single(x, x, [5, -1, 0], [2, 1, 1]),
        lambda: rt.all_to_all_single(x, x, [2, 1, 1]),
        lambda: rt.all_to_all_single(x, ours(numpy.zeros((4, 3), "int64")), [2, 1, 1], [2, 1, 1]),
        lambda: rt.all_to_all_single(x, ours(numpy.zeros((4, 2), "float32")), [2, 1, 1], [2, 1, 1]),
    )
    if not on_stream:
        # PE 0's lists do not agree with the others': it sees that where their rows arrive.
        goes = [[2, 1, 1], [1, 2, 1], [1, 1, 2]]
        call = lambda: rt.all_to_all_single(x, x, [1, 2, 1] if me == 0 else goes[me], goes[me])  # noqa: E731
        refused(rushmem.InvalidArgument, call) if me == 0 else call()
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_all_to_all_with_splits(rng, on_stream):
    assert run(3, splits, on_stream, int(rng.integers(1 << 31))) == [True] * 3
