"""rushmem.torch where torch is not: operations and collectives of tensors over a stand-in for torch, by calls
of the host and on streams. With torch itself: test_torch.py."""

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
    shown = {"put", "get", "put_signal", "signal_op", "signal_wait_until", "wait_until", "p", "fence", "quiet"}
    assert shown <= {name.removeprefix("rushmem::") for name in fake_torch.ranges}
    # The world's device decides, and not torch's current one.
    assert set(fake_torch.asked) == ({world.device} if on_stream else set())
    return True


@pytest.mark.parametrize("on_stream", [False, True])
def test_operations(rng, on_stream):
    assert run(2, words, on_stream, int(rng.integers(1 << 31))) == [True, True]
