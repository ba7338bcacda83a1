"""Stand-ins for arrays of GPUs, in host memory: by `__cuda_array_interface__` (cupy), and tensors (torch)."""

import numpy


class CudaArray:
    """An array by `__cuda_array_interface__` alone."""

    def __init__(self, data):
        self.data = data

    @property
    def __cuda_array_interface__(self):
        about = self.data.__array_interface__
        return {name: about[name] for name in ("shape", "typestr", "data", "strides", "version")}


class CudaTensor:
    """A tensor as torch has it, which says that it is a GPU's."""

    is_cuda = True
    # Views whose memory has other values.
    conjugate = negated = False

    def is_conj(self):
        return self.conjugate

    def is_neg(self):
        return self.negated

    def __init__(self, data):
        self.data = data

    def data_ptr(self):
        # As torch's: an empty one has no address.
        return self.data.__array_interface__["data"][0] if self.data.size else 0

    def is_contiguous(self):
        return self.data.flags.c_contiguous

    def numel(self):
        return self.data.size

    def element_size(self):
        return self.data.itemsize

    def stride(self):
        return tuple(n // self.data.itemsize for n in self.data.strides)

    @property
    def shape(self):
        return self.data.shape

    @property
    def dtype(self):
        return self.data.dtype


class HostTensor(CudaTensor):
    """A tensor of the host."""

    is_cuda = False


KINDS = [numpy.asarray, CudaArray, CudaTensor, HostTensor]
