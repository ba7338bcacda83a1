"""torch beside rushmem: symmetric tensors, collectives on torch's stream, graphs, the pool, groups."""

import gc

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import rushmem  # noqa: E402
from conftest import ON_GPU  # noqa: E402
from rushmem.testing import run  # noqa: E402


def start(world):
    import rushmem.torch as rt

    rt.use(world)
    if ON_GPU:
        torch.cuda.set_device(world.device)
    return rt


def settle():
    if ON_GPU:
        torch.cuda.synchronize()


def collectives(world, seed):
    rt = start(world)
    me, n = world.my_pe, world.n_pes
    all_of = torch.Generator().manual_seed(seed)
    for dtype in [torch.float32, torch.bfloat16, torch.float16, torch.int64]:
        for size in [1, 7, 1024, 40_000]:
            data = torch.randint(-8, 8, (n, size), generator=all_of).to(dtype)
            blocks = torch.randint(-8, 8, (n, n, size), generator=all_of).to(dtype)
            for make in [rt.empty, lambda *shape, dtype: torch.zeros(*shape, dtype=dtype, device=world.device)]:
                x = make(size, dtype=dtype)
                assert x.device.type == torch.device(world.device).type and not x.any()
                x.copy_(data[me])
                rt.all_reduce(x)
                settle()
                assert torch.equal(x.cpu(), data.sum(0).to(dtype)), ("all_reduce", dtype, size)
                x.copy_(data[me])
                rt.all_reduce(x, torch.distributed.ReduceOp.MAX if torch.distributed.is_available() else "max")
                settle()
                assert torch.equal(x.cpu(), data.max(0).values)
                if dtype.is_floating_point and torch.distributed.is_available():
                    x.copy_(data[me])
                    rt.all_reduce(x, torch.distributed.ReduceOp.AVG, async_op=True).wait()
                    settle()
                    # Small integers and two PEs: halves are exact in every type.
                    assert torch.equal(x.cpu(), data.sum(0) / n)
                x.copy_(data[me])
                y = make(n, size, dtype=dtype)
                rt.all_gather_into_tensor(y, x)
                settle()
                assert torch.equal(y.cpu(), data) and torch.equal(rt.all_gather(x).cpu(), data)
                z = make(n, size, dtype=dtype)
                z.copy_(blocks[me])
                rt.all_to_all_single(y, z)
                settle()
                assert torch.equal(y.cpu(), blocks[:, me])
                rt.reduce_scatter_tensor(x, z)
                settle()
                assert torch.equal(x.cpu(), blocks.sum(0).to(dtype)[me])
                assert torch.equal(rt.reduce_scatter(z)[0].cpu(), x.cpu())
                x.copy_(data[me])
                rt.broadcast(x, n - 1)
                settle()
                assert torch.equal(x.cpu(), data[n - 1])
    rt.barrier()
    settle()
    return True


def test_collectives():
    assert run(2, collectives, torch.seed() % (1 << 31), timeout=240) == [True, True]


def splits(world, seed):
    rt = start(world)
    me, n = world.my_pe, world.n_pes
    everyone = torch.Generator().manual_seed(seed)
    for most in [1, 5, 3000]:
        rows = torch.randint(0, most + 1, (n, n), generator=everyone)
        data = [torch.randn(int(rows[pe].sum()), 3, generator=everyone) for pe in range(n)]
        out = torch.zeros(int(rows[:, me].sum()), 3, device=world.device)
        work = rt.all_to_all_single(out, data[me].to(world.device), rows[:, me].tolist(), rows[me].tolist(), async_op=True)
        work.wait()
        settle()
        assert work.is_completed()
        parts = [data[pe].split(rows[pe].tolist())[me] for pe in range(n)]
        assert torch.equal(out.cpu(), torch.cat(parts))
    return True


def test_all_to_all_with_splits():
    assert run(2, splits, torch.seed() % (1 << 31)) == [True, True]


def tensors(world):
    rt = start(world)
    me, right = world.my_pe, (world.my_pe + 1) % world.n_pes
    x = rt.empty(4, 8)
    assert x.shape == (4, 8) and x.dtype == torch.float32 and x.is_contiguous()
    a = rt.array(x)
    assert a.shape == (4, 8) and a.address == x.data_ptr()
    # Strided views, both ways.
    x.copy_(torch.arange(32.0).reshape(4, 8) + 100 * me)
    settle()
    assert torch.equal(torch.from_dlpack(a[1:3, ::2]).cpu(), x[1:3, ::2].cpu())
    row = torch.full((8,), float(me), device=world.device)
    settle()
    world.barrier_all()
    rt.array(x[2]).put(row, right, stream=rt.stream())
    settle()
    world.barrier_all()
    assert (x[2] == (me - 1) % world.n_pes).all()
    theirs = rt.peer(x, right)
    assert (theirs[2] == me).all() and theirs[0, 0] == 100 * right
    out = torch.zeros(4, 8, device=world.device)
    a.get(right, out)
    assert torch.equal(out, theirs)
    for wrong in [lambda: rt.array(row), lambda: a.put(x.t(), right), lambda: a.put(row, right)]:
        try:
            wrong()
            return "no error"
        except (rushmem.Error, BufferError):
            pass
    # The tensor holds the memory.
    before = world.heap_info()["allocations"]
    del a, theirs
    gc.collect()
    world.collect()
    kept = world.heap_info()["allocations"]
    del x
    gc.collect()
    world.collect()
    return kept == before and world.heap_info()["allocations"] == before - 1


def test_tensors_are_symmetric_memory():
    assert run(2, tensors) == [True, True]


def operations(world):
    """Puts, gets and signals on torch's current stream, which holds what is dropped behind them."""
    rt = start(world)
    me, right, left = world.my_pe, (world.my_pe + 1) % world.n_pes, (world.my_pe - 1) % world.n_pes
    x, flag, number = rt.empty(4, 1000), rt.empty(1, dtype=torch.int64), rt.empty(3)
    arrived, out = world.signals(), torch.zeros(4, 1000, device=world.device)
    for round_ in range(1, 20):
        # Nobody else holds the sources, and what is made next has their memory.
        rt.put_signal(x, torch.full((4, 1000), me + 10.0 * round_, device=world.device), arrived, round_, right)
        junk = torch.full((4, 1000), -1.0, device=world.device)
        rt.signal_wait_until(arrived, ">=", round_)
        rt.get(out, x, me)
        rt.put(x[:, 3], torch.full((4, 8), me + 0.5, device=world.device)[:, 1], me)
        rt.fence()
        rt.signal_op(flag, 1, right, op="add")
        rt.wait_until(flag, ">=", round_)
        rt.p(number[1], 2.0 * round_, right)
        rt.quiet()
        settle()
        assert (out == left + 10.0 * round_).all() and (junk == -1).all()
        assert (x[:, 3] == me + 0.5).all() and (x[:, 4] == left + 10.0 * round_).all()
        world.barrier_all()
        assert number.tolist() == [0, 2.0 * round_, 0] and flag.item() == round_
        world.barrier_all()
    return True


def test_puts_gets_and_signals():
    assert run(2, operations) == [True, True]


def other_device(world):
    """The world's GPU counts, and not torch's current one."""
    rt = start(world)
    side = torch.cuda.Stream(world.device)
    others = [i for i in range(torch.cuda.device_count()) if torch.device("cuda", i) != torch.device(world.device)]
    torch.cuda.set_device(others[0])
    with torch.cuda.stream(side):
        torch.cuda.set_device(others[0])
        return rt.stream() == side


@pytest.mark.skipif(not ON_GPU or torch.cuda.device_count() < 2, reason="it takes two GPUs")
def test_the_stream_is_of_the_world_s_gpu():
    assert run(1, other_device) == [True]


def graph(world):
    rt = start(world)
    x, y = rt.empty(1000), rt.empty(2, 1000)
    world.team.prepare("reduce", torch.float32, "sum")
    world.team.prepare("fcollect")
    captured, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(captured, stream=side):
        x.add_(1)
        rt.all_reduce(x)
        rt.all_gather_into_tensor(y, x)
    for round_ in range(5):
        x.fill_(world.my_pe + round_)
        settle()
        captured.replay()
        settle()
        expected = sum(pe + round_ + 1 for pe in range(world.n_pes))
        assert (x == expected).all() and (y == expected).all()
    return True


@pytest.mark.skipif(not ON_GPU, reason="CUDA graphs are GPUs'")
def test_collectives_in_a_cuda_graph():
    assert run(2, graph) == [True, True]


def pool(world):
    rt = start(world)
    me, right = world.my_pe, (world.my_pe + 1) % world.n_pes
    made = rt.pool()
    with torch.cuda.use_mem_pool(made):
        x = torch.zeros(1 << 20, device=world.device)
        y = torch.ones(100, device=world.device) * me
    settle()
    world.barrier_all()
    rt.array(x[:100]).put(y, right, stream=rt.stream())
    settle()
    world.barrier_all()
    assert (x[:100] == (me - 1) % world.n_pes).all()
    rt.all_reduce(x)
    settle()
    return bool((x[:100] == sum(range(world.n_pes))).all())


@pytest.mark.skipif(not ON_GPU, reason="torch has memory pools for GPUs alone")
def test_a_pool_of_torch_s_is_symmetric():
    assert run(2, pool) == [True, True]


def registered(world):
    rt = start(world)
    me, right = world.my_pe, (world.my_pe + 1) % world.n_pes
    own = torch.zeros(1 << 20, device=world.device)
    settle()
    shared = world.register(own).view_as("float32")
    part = torch.full((100,), float(me + 1), device=world.device)
    settle()
    world.barrier_all()
    shared[50:150].put(part, right, stream=rt.stream())
    settle()
    world.barrier_all()
    good = bool((own[50:150] == (me - 1) % world.n_pes + 1).all() and not own[:50].any())
    world.barrier_all()
    world.unregister(shared)
    return good


@pytest.mark.skipif(not ON_GPU, reason="of the host whole pages alone can be registered: test_memory.py")
def test_a_tensor_s_memory_becomes_symmetric():
    assert run(2, registered) == [True, True]


def group(world):
    """A second world of torch.distributed's group, which itself meets at a port of the first."""
    import rushmem.bench
    import rushmem.torch as rt

    dist = torch.distributed
    if not dist.is_available():
        return True
    store = dist.TCPStore("127.0.0.1", rushmem.bench.meeting(world), world.n_pes, world.my_pe == 0)
    dist.init_process_group("gloo", store=store, rank=world.my_pe, world_size=world.n_pes)
    with rushmem.init_from_store(store, world.my_pe, world.n_pes) as second:
        assert (second.my_pe, second.n_pes) == (world.my_pe, world.n_pes)
    if ON_GPU:
        torch.cuda.set_device(world.device)
    with rt.init() as third:
        x = rt.empty(10)
        x.fill_(third.my_pe + 1)
        rt.all_reduce(x)
        settle()
        good = bool((x == sum(range(1, third.n_pes + 1))).all())
    dist.destroy_process_group()
    return good


def test_worlds_of_torch_distributed():
    assert run(2, group) == [True, True]


def profiled(world):
    rt = start(world)
    x = rt.empty(10)
    with torch.profiler.profile() as profile:
        rt.all_reduce(x)
        settle()
    return any(event.key == "rushmem::all_reduce" for event in profile.key_averages())


def test_the_profiler_shows_collectives():
    assert run(2, profiled) == [True, True]


def kernels(world):
    rt = start(world)
    module = world.load('extern "C" __global__ void twice(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }')
    symmetric, own = rt.empty(100), torch.ones(100, device=world.device)
    symmetric.fill_(3)
    settle()
    for x in (symmetric, own, rt.array(symmetric)):
        module.kernel("twice").launch(1, 128, x, 100, stream=rt.stream())
    settle()
    world.synchronize()
    return symmetric[7].item(), own[99].item()


def test_kernels_take_tensors():
    assert run(1, kernels) == [(12.0, 2.0)]


def experts(world, captured):
    """Each expert gives its tokens back; weights are 1: a token comes back as often as it has experts."""
    from rushmem.moe import AllToAll

    rt, me = start(world), world.my_pe
    exchange = AllToAll(world, max_tokens=8, hidden=256, experts=6, top_k=2, capacity=16)
    make = torch.Generator().manual_seed(me)
    x = torch.randn(8, 256, generator=make).to(torch.bfloat16).to(world.device)
    chosen = torch.stack([torch.randperm(6, generator=make)[:2] for _ in range(8)])
    chosen[0, 1] = chosen[1] = -1
    weights = torch.ones(8, 2, device=world.device)
    chosen, graph = chosen.to(world.device), torch.cuda.CUDAGraph() if captured else None
    here, out = exchange.received(x), torch.empty_like(x)
    settle()

    def layer():
        exchange.dispatch(x, chosen, weights, out=here)
        exchange.combine(here.x, out)

    if graph:
        with torch.cuda.graph(graph):
            layer()
    for _ in range(3):
        graph.replay() if graph else layer()
    settle()
    exchange.check()
    assert rt.stream() is None or here.x.is_cuda
    return torch.equal(out.cpu(), (x.float() * (chosen >= 0).sum(1, keepdim=True)).to(torch.bfloat16).cpu())


@pytest.mark.parametrize("captured", [False, pytest.param(True, marks=pytest.mark.skipif(not ON_GPU, reason="CUDA graphs are GPUs'"))])
def test_mixture_of_experts(captured):
    assert run(2, experts, captured) == [True, True]
