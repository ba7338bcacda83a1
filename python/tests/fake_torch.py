"""A stand-in for torch where there is none: tensors on numpy's arrays, streams that are a world's, a profiler
that notes its ranges. As much as rushmem.torch uses; `install` puts it in torch's place in this process."""

import sys
import types
from contextlib import contextmanager

import numpy

from stand_ins import HostTensor

ranges = []
# By device: the stream that is current there, and the devices that were asked for.
current, asked = {}, []


class Tensor(HostTensor):
    ndim = property(lambda self: self.data.ndim)
    device = "cpu"
    # How often autograd has heard of new values.
    version = 0

    def is_floating_point(self):
        return self.data.dtype.kind == "f"

    def is_complex(self):
        return self.data.dtype.kind == "c"

    def div_(self, n):
        # In the turn of the device's current stream, as torch's operations are.
        for stream in current.values():
            stream.synchronize()
        self.data /= n
        return self

    def pin_memory(self):
        return self

    def to(self, device, non_blocking=False):
        return self

    def __getitem__(self, index):
        # A view of one element, too, where numpy makes a number.
        return Tensor(self.data[(*index, ...) if isinstance(index, tuple) else (index, ...)])


class Event:
    def __init__(self):
        self.is_done, self.waits = False, []

    def query(self):
        return self.is_done


class Stream:
    """A stream of a world's, by its handle."""

    def __init__(self, stream):
        self.stream, self.waits = stream, []
        self.cuda_stream = stream.cuda_stream

    def synchronize(self):
        self.stream.synchronize()

    def record_event(self):
        return Event()

    def wait_event(self, event):
        self.waits.append(event)


class Future:
    def __init__(self, devices=None):
        assert devices is None

    def set_result(self, result):
        self.value = lambda: result


@contextmanager
def record_function(name):
    ranges.append(name)
    yield


def increment_version(tensor):
    tensor.version += 1


def current_stream(device=None):
    asked.append(device)
    return current[device]


def install():
    torch = types.ModuleType("torch")
    torch.Tensor, torch.Size, torch.dtype = Tensor, tuple, numpy.dtype
    torch.get_default_dtype = lambda: numpy.dtype("float32")
    torch.from_dlpack = lambda array: Tensor(numpy.from_dlpack(array))
    torch.empty = lambda shape, dtype=None, device=None: Tensor(numpy.empty(shape, dtype))
    torch.tensor = lambda data, dtype=None: Tensor(numpy.array(data, dtype))
    torch.int64 = numpy.dtype("int64")
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: False, current_device=lambda: 0, current_stream=current_stream, synchronize=lambda device=None: None
    )
    torch.autograd = types.SimpleNamespace(
        graph=types.SimpleNamespace(increment_version=increment_version), profiler=types.SimpleNamespace(_is_profiler_enabled=True)
    )
    torch.futures = types.SimpleNamespace(Future=Future)
    torch.profiler = types.SimpleNamespace(record_function=record_function)
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.is_available = lambda: False
    sys.modules["torch"], sys.modules["torch.distributed"] = torch, torch.distributed
    return torch
