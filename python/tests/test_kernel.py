"""Kernels from Python: the same source on the CPU device and on GPUs."""

import numpy
import pytest

import rushmem
from rushmem.testing import run
from conftest import ON_GPU

SOURCE = r"""
#include <rushmem/rushmem.cuh>

extern "C" __global__ void axpy(double *y, const double *x, double a, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void numbers(long long *out, signed char a, unsigned short b, int c, unsigned long long d, float e, bool f) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = (long long)d; out[4] = (long long)(e * 4); out[5] = f;
}

extern "C" __global__ void ring(long long *inbox, const long long *out, unsigned long n, uint64_t *arrived) {
    using namespace rushmem;
    put_signal<block>(inbox, out, n, arrived, 1, signal::set, (my_pe() + 1) % n_pes());
    if (threadIdx.x == 0) signal_wait_until(arrived, cmp::ge, 1);
}

extern "C" __global__ void total(rushmem::team team, float *dst, const float *src, unsigned long n) {
    rushmem::reduce<rushmem::block>(team, dst, src, n, rushmem::sum{});
}
"""


def test_launch(world, rng):
    module = world.load(SOURCE, name="test.cu")
    assert set(module.kernels) >= {"axpy", "numbers"}
    n = 1000
    x, y = rng.random(n), rng.random(n)
    a, b = world.empty(n, "float64"), world.empty(n, "float64")
    a.put(x, 0)
    b.put(y, 0)
    kernel = module.kernel("axpy")
    assert kernel.n_params == 4 and kernel.max_blocks(256) >= 4
    kernel.launch(4, (256, 1), b, a, 2.5, n)
    stream = world.stream()
    world.synchronize()
    kernel.launch((4,), 256, b, a, 1, n, stream=stream)
    stream.synchronize()
    got = numpy.empty(n)
    b.get(0, got)
    numpy.testing.assert_allclose(got, y + 3.5 * x)
    out = world.empty(6, "int64")
    module.kernel("numbers").launch(1, 1, out, -7, 65535, -(1 << 31), (1 << 64) - 1, 0.75, True)
    world.synchronize()
    got = numpy.empty(6, "int64")
    out.get(0, got)
    assert got.tolist() == [-7, 65535, -(1 << 31), -1, 3, 1]
    for args in [(b, a, 1.0), (b, a, 1.0, n, n)]:
        with pytest.raises(rushmem.Launch, match="takes 4 arguments"):
            kernel.launch(1, 1, *args)
    with pytest.raises(rushmem.Launch):
        kernel.launch(1 << 20, 256, b, a, 1.0, n)
    kernel.launch(20_000, 8, b, a, 1.0, n, in_turns=True)
    world.synchronize()
    numpy.testing.assert_allclose(b.get(0, numpy.empty(n)), y + 4.5 * x)
    with pytest.raises(rushmem.Launch, match="nothing"):
        module.kernel("nothing")
    with pytest.raises(rushmem.Compile, match="test2.cu"):
        world.load("__global__ void f() { nonsense }", name="test2.cu")
    module.unload()
    with pytest.raises(rushmem.BadHandle):
        module.kernel("axpy")


def test_options_of_either_compiler(world):
    source = 'extern "C" __global__ void number(int *out) { *out = NUMBER; }'
    options = ["-DHALF=3", "--nvrtc=--fmad=false", "--nvrtc=-DNUMBER=HALF+HALF", "--cxx=-O1", "--cxx=-DNUMBER=HALF+HALF"]
    out = world.empty(1, "int32")
    world.load(source, options=options).kernel("number").launch(1, 1, out)
    world.synchronize()
    assert out.get(0).tolist() == [6]
    with pytest.raises(rushmem.Compile, match="NUMBER"):
        world.load(source, options=["--nvrtc=-DNUMBER=1" if not ON_GPU else "--cxx=-DNUMBER=1"])


@pytest.mark.skipif(ON_GPU, reason="kernels of a GPU do not reach this host memory")
def test_arguments_are_compared_with_the_parameters(world):
    module = world.load(SOURCE)
    kernel, a, f = module.kernel("axpy"), world.empty(4, "float64"), world.empty(4, "float32")
    with pytest.raises(rushmem.Launch):
        kernel.launch(1, 4, a, f, 1.0, 4)
    for wrong, error in [((a, a, a, 4), TypeError), ((a, a, 1.0, -1), OverflowError), ((1.5, a, 1.0, 4), TypeError)]:
        with pytest.raises(error):
            kernel.launch(1, 4, *wrong)
    # Host memory is good for a kernel of the CPU device, and is held until the kernel has ended.
    y = numpy.zeros(4)
    for _ in range(100):
        kernel.launch(1, 4, y, numpy.ones(4), 1.0, 4)
    world.synchronize()
    assert y.tolist() == [100.0] * 4


def kernels(world):
    me, n = world.my_pe, 1000
    module = world.load(SOURCE)
    inbox, out, arrived = world.empty(n, "int64"), world.empty(n, "int64"), world.signals()
    out.put(numpy.arange(n) * (me + 1), me)
    module.kernel("ring").launch(1, 128, inbox, out, n, arrived)
    world.synchronize()
    left = (me - 1) % world.n_pes
    assert (inbox.get(me) == numpy.arange(n) * (left + 1)).all()
    dst, src = world.empty(n), world.empty(n)
    src.put(numpy.full(n, me + 1, "float32"), me)
    world.barrier_all()
    module.kernel("total").launch(1, 128, world.team, dst, src, n)
    world.synchronize()
    return float(dst.get(me).sum())


def test_kernels_of_several_pes():
    assert run(2, kernels) == [3000.0] * 2


def test_streams_of_all_kinds(world):
    a = world.empty(4, "int32")
    stream = world.stream()

    class Torch:
        cuda_stream = stream.handle

    class Cupy:
        ptr = stream.handle

    class Cuda:
        def __cuda_stream__(self):
            return (0, stream.handle)

    for one in [stream, stream.handle, Torch(), Cupy(), Cuda(), world.default_stream]:
        a.put(numpy.arange(4, dtype="int32"), 0, stream=one)
        world.fence(stream=one)
        world.quiet(stream=one)
        world.sync_all(stream=one)
        world.barrier_all(stream=one)
        world.synchronize(one)
    assert a.get(0).tolist() == [0, 1, 2, 3]
    # What a stream reads is held until it has been read.
    flag = world.signals()
    flag.wait_until("==", 1, stream=stream)
    a.put(numpy.full(4, 9, "int32"), 0, stream=stream)
    junk = [numpy.full(4, 5, "int32") for _ in range(100)]
    flag.p(1, 0)
    stream.synchronize()
    assert a.get(0).tolist() == [9] * 4 and len(junk) == 100
