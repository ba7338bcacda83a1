"""torch itself beside rushmem on the CPU device: results beside gloo's, elements of all types, and mistakes.
`scripts/test-torch` fetches torch and runs it."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import rushmem  # noqa: E402
from conftest import ON_GPU  # noqa: E402
from rushmem.testing import run  # noqa: E402

pytestmark = pytest.mark.skipif(ON_GPU, reason="the tensors are the host's")
# What gloo has, and what it has not.
GLOO = "float32 float64 bfloat16 float16 int8 uint8 int32 int64 complex64".split()
OTHERS = "float8_e4m3fn float8_e5m2 bool int16 uint16 uint32 uint64 complex128".split()


def start(world):
    import rushmem.torch as rt

    torch.set_num_threads(1)
    rt.use(world)
    return rt


def gloo(world):
    """torch.distributed over gloo, of the world's PEs."""
    import rushmem.bench

    dist = torch.distributed
    store = dist.TCPStore("127.0.0.1", rushmem.bench.meeting(world), world.n_pes, world.my_pe == 0)
    dist.init_process_group("gloo", store=store, rank=world.my_pe, world_size=world.n_pes)
    return dist


def numbers(generator, shape, dtype):
    """Small ones, so that sums of three are exact in every type."""
    if dtype.is_complex:
        return torch.complex(*(torch.randint(-8, 8, shape, generator=generator).float() for _ in range(2))).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 6, shape, generator=generator).to(dtype)


# --- results ------------------------------------------------------------------------------------------------


def beside_gloo(world, seed):
    """Each collective as torch.distributed makes it, by the same arguments, of all PEs and of a group."""
    rt, dist, me, n = start(world), gloo(world), world.my_pe, world.n_pes
    mine = torch.Generator().manual_seed(seed + me)
    everyone = torch.Generator().manual_seed(seed)
    op = dist.ReduceOp
    pair, its_group = rt.team().split(0 if me != 1 else 1, me), dist.new_group([0, 2])
    groups = [(None, None, n, list(range(n)))] + ([(pair, its_group, 2, [0, 2])] if me != 1 else [])
    for dtype in [getattr(torch, name) for name in GLOO]:
        ops = [op.SUM] if dtype.is_complex else [op.SUM, op.PRODUCT, op.MIN, op.MAX]
        ops += [] if dtype.is_floating_point or dtype.is_complex else [op.BAND, op.BOR, op.BXOR]
        for size in [1, 33, 5000]:
            x = numbers(mine, (size,), dtype)
            symmetric = rt.empty(size, dtype=dtype)
            for team, group, members, pes in groups:
                for one in ops:
                    theirs = x.clone()
                    dist.all_reduce(theirs, one, group)
                    for y in [x.clone(), symmetric.copy_(x)]:
                        work = rt.all_reduce(y, one, team, True)
                        assert work.wait() and work.is_completed()
                        assert torch.equal(y, theirs), ("all_reduce", dtype, size, one)
                ours, theirs = torch.zeros(members, size, dtype=dtype), torch.zeros(members, size, dtype=dtype)
                rt.all_gather_into_tensor(ours, x, team)
                dist.all_gather(list(theirs.unbind()), x, group)
                assert torch.equal(ours, theirs) and torch.equal(rt.all_gather(x, team), theirs)
                assert torch.equal(ours[pes.index(me)], x)
                # In place: each one's part is where it belongs.
                ours[:] = 0
                ours[pes.index(me)] = x
                rt.all_gather_into_tensor(ours, ours[pes.index(me)], team)
                assert torch.equal(ours, theirs)
                for root in pes:
                    ours, theirs = x.clone(), x.clone()
                    rt.broadcast(ours, root, team)
                    dist.broadcast(theirs, root, group)
                    assert torch.equal(ours, theirs)
                blocks = numbers(mine, (members, size), dtype)
                ours, theirs = torch.zeros_like(blocks), torch.zeros_like(blocks)
                rt.all_to_all_single(ours, blocks, group=team)
                dist.all_to_all_single(theirs, blocks, group=group)
                assert torch.equal(ours, theirs), ("all_to_all_single", dtype, size)
                total = blocks.to(torch.complex128 if dtype.is_complex else torch.float64, copy=True)
                dist.all_reduce(total, group=group)
                ours = rt.reduce_scatter_tensor(torch.zeros(size, dtype=dtype), blocks, op.SUM, team)
                assert torch.equal(ours, total[pes.index(me)].to(dtype))
                assert torch.equal(rt.reduce_scatter(blocks, "sum", team)[0], ours)
                rows = torch.randint(0, 7, (n, n), generator=everyone)
                rows = rows[pes][:, pes]
                i = pes.index(me)
                x_rows = numbers(mine, (int(rows[i].sum()), 3), dtype)
                ours, theirs = (torch.zeros(int(rows[:, i].sum()), 3, dtype=dtype) for _ in range(2))
                lists = rows[:, i].tolist(), rows[i].tolist()
                rt.all_to_all_single(ours, x_rows, *lists, team)
                dist.all_to_all_single(theirs, x_rows, *lists, group)
                assert torch.equal(ours, theirs), ("splits", dtype, lists)
            if me == 1:
                torch.randint(0, 7, (n, n), generator=everyone)
    # Sums whose order counts: the same bits on all PEs, and what gloo has but for rounding.
    x = torch.randn(10_000, generator=mine)
    theirs, ours = x.clone(), rt.all_reduce(x.clone(), op.AVG)
    dist.all_reduce(theirs)
    assert torch.allclose(ours, theirs / n, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(part, ours) for part in rt.all_gather(ours))
    dist.destroy_process_group()
    return True


def test_results_are_those_of_gloo():
    assert run(3, beside_gloo, torch.seed() % (1 << 31), timeout=400) == [True] * 3


def all_types(world, seed):
    rt, me, n = start(world), world.my_pe, world.n_pes
    right, left = (me + 1) % n, (me - 1) % n
    everyone = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (n, 64), generator=everyone).to(torch.uint8)
    for name in GLOO + OTHERS:
        dtype = getattr(torch, name)
        data = [(bits[pe] % 2 if name == "bool" else bits[pe]).view(dtype) for pe in range(n)]
        same = lambda a, b: torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))  # noqa: E731
        x, size = rt.empty(len(data[0]), dtype=dtype), len(data[0])
        assert x.dtype == dtype and rt.array(x).address == x.data_ptr() and not x.view(torch.uint8).any()
        rt.barrier()
        rt.put(x, data[me], right)
        rt.barrier()
        assert same(x, data[left]) and same(rt.peer(x, right), data[me])
        rt.barrier()
        # Every other element, on both sides.
        rt.put(x[::2], data[me][1::2], right)
        rt.barrier()
        assert same(x[::2], data[left][1::2]) and same(x[1::2], data[left][1::2])
        out = torch.zeros(size, dtype=dtype)
        assert rt.get(out[1::2], x[::2], right).data_ptr() and same(out[1::2], data[me][1::2])
        assert same(rt.all_gather(data[me]), torch.stack(data))
        assert same(rt.broadcast(data[me].clone(), n - 1), data[n - 1])
        if name.startswith("float8") or name == "bool":
            try:
                rt.all_reduce(x)
                return f"{name}: no error"
            except rushmem.InvalidArgument as error:
                assert f"reduce does not take elements of type {name}" in str(error)
        rt.barrier()
    return True


def test_elements_of_every_type():
    assert run(2, all_types, torch.seed() % (1 << 31), timeout=120) == [True, True]


def registered(world):
    """Whole pages of a tensor become symmetric."""
    rt, right = start(world), (world.my_pe + 1) % world.n_pes
    page = os.sysconf("SC_PAGESIZE") // 4
    own = torch.zeros(4 * page)
    first = -own.data_ptr() % (4 * page) // 4
    part = own[first : first + 2 * page]
    shared = world.register(part).view_as("float32")
    seen = torch.from_dlpack(shared)
    shared[:100].put(torch.full((100,), world.my_pe + 1.0), right)
    world.barrier_all()
    expected = (world.my_pe - 1) % world.n_pes + 1
    assert (part[:100] == expected).all() and not part[100:].any() and (seen[:100] == expected).all()
    rt.all_reduce(part)
    assert (part[:100] == 3).all()
    world.barrier_all()
    world.unregister(shared)
    # The memory is the tensor's alone again, and what saw it sees it.
    part.fill_(7)
    assert (seen == 7).all() and seen.data_ptr() == part.data_ptr()
    try:
        world.register(own[first + 1 : first + 3])
    except rushmem.Error:
        return True


def test_a_tensor_of_the_host_becomes_symmetric():
    assert run(2, registered) == [True, True]


def trains(world, seed):
    """DistributedDataParallel with our hook takes the steps that it takes over gloo alone."""
    rt, dist, me = start(world), gloo(world), world.my_pe
    data = torch.randn(20, 2, 8, 16, generator=torch.Generator().manual_seed(seed))
    ends = []
    for hook in [None, rt.ddp_hook]:
        torch.manual_seed(seed)
        layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        # Buckets of 1 KiB: several to a step.
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1 / 1024)
        if hook:
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in data[:, me]:
            optimizer.zero_grad()
            model(step).square().mean().backward()
            optimizer.step()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in layers.parameters()]))
    dist.destroy_process_group()
    assert torch.allclose(*ends, rtol=1e-4, atol=1e-5), (ends[0] - ends[1]).abs().max()
    assert all(torch.equal(end, ends[1]) for end in rt.all_gather(ends[1]))
    return True


def test_data_parallel_training_by_our_hook():
    assert run(2, trains, torch.seed() % (1 << 31), timeout=240) == [True, True]


# --- mistakes -----------------------------------------------------------------------------------------------


def mistakes(world):
    rt = start(world)
    x, y, z = rt.empty(4), torch.ones(4), rt.empty(4, dtype=torch.complex64)
    n, complex_ = world.n_pes, torch.ones(4, dtype=torch.complex64)
    op = torch.distributed.ReduceOp
    cases = [
        (TypeError, 'without memory, as of the device "meta"', lambda: rt.put(x, torch.empty(4, device="meta"), 0)),
        (TypeError, "without memory", lambda: rt.get(torch.empty(4, device="meta"), x, 0)),
        (TypeError, "without memory", lambda: rt.all_reduce(torch.empty(4, device="meta"))),
        (BufferError, "conjugate view: call resolve_conj", lambda: rt.put(z, complex_.conj(), 0)),
        (BufferError, "conjugate view", lambda: rt.all_reduce(complex_.conj())),
        (BufferError, "negated view: call resolve_neg", lambda: rt.put(x, (complex_ * 1j).conj().imag, 0)),
        (rushmem.InvalidArgument, "conjugate or negated", lambda: rt.put(z.conj(), complex_, 0)),
        (BufferError, "repeats them", lambda: rt.put(x, torch.ones(1).expand(4), 0)),
        (BufferError, "runs backwards", lambda: torch.from_dlpack(rt.array(x)[::-1])),
        (BufferError, "make it contiguous", lambda: rt.put(x, torch.ones(4).to_sparse(), 0)),
        (rushmem.InvalidArgument, "gaps", lambda: rt.all_reduce(torch.ones(4, 4)[:, 1])),
        (rushmem.InvalidArgument, "gaps", lambda: rt.array(rt.empty(4, 4)[:, :2])),
        (rushmem.InvalidArgument, "4 elements of 8 bytes", lambda: rt.put(x, y.double(), 0)),
        (rushmem.InvalidArgument, "src is of type bfloat16", lambda: rt.put(x, torch.ones(8, dtype=torch.bfloat16), 0)),
        (rushmem.InvalidArgument, "src is of type int32", lambda: rt.put(x, y.int(), 0)),
        (rushmem.InvalidArgument, "3 elements of 4 bytes", lambda: rt.put(x, y[:3], 0)),
        (rushmem.InvalidArgument, "of type bfloat16, src of float32",
         lambda: rt.all_gather_into_tensor(torch.ones(2 * n, dtype=torch.bfloat16), torch.ones(1))),
        (rushmem.InvalidArgument, "bytes", lambda: rt.all_gather_into_tensor(torch.ones(4 * n + 1), y)),
        (rushmem.InvalidArgument, "bytes", lambda: rt.reduce_scatter_tensor(torch.ones(3), torch.ones(4 * n))),
        (rushmem.InvalidArgument, "no equal parts", lambda: rt.reduce_scatter(torch.ones(n + 1))),
        (rushmem.InvalidArgument, "no rows", lambda: rt.reduce_scatter(torch.tensor(1.0))),
        (rushmem.InvalidArgument, "no rows", lambda: rt.all_to_all_single(torch.tensor(1.0), torch.tensor(1.0), [1] * n, [1] * n)),
        (rushmem.BadAddress, "in no symmetric array", lambda: rt.put(y, y, 0)),
        (rushmem.BadPe, "", lambda: rt.put(x, y, n)),
        (rushmem.BadPe, "", lambda: rt.put(x, y, -1)),
        (TypeError, "", lambda: rt.put(x, y, 0.5)),
        (TypeError, "a list", lambda: rt.put(x, [1.0] * 4, 0)),
        (TypeError, "no type of elements", lambda: rt.empty(4, dtype=torch.complex32)),
        (TypeError, "no shape", lambda: rt.empty(-1)),
        (rushmem.HeapExhausted, "", lambda: rt.empty(1 << 50)),
        (ValueError, "PREMUL_SUM", lambda: rt.all_reduce(y, torch.distributed._make_nccl_premul_sum(2.0))),
        (rushmem.InvalidArgument, "averages", lambda: rt.all_reduce(torch.ones(2, dtype=torch.int32), op.AVG)),
        (rushmem.InvalidArgument, "one element", lambda: rt.p(x, 1.0, 0)),
        (rushmem.InvalidArgument, "a signal is a word of uint64", lambda: rt.signal_op(x[:1], 1, 0)),
    ]
    for i, (errors, text, call) in enumerate(cases):
        try:
            call()
        except errors as error:
            assert text in str(error), (i, str(error))
        else:
            raise AssertionError(f"case {i}, {text}: no error")
    # Nothing of it has touched the world, or a tensor.
    rt.barrier()
    assert not x.any() and not z.any() and (y == 1).all()
    assert torch.equal(rt.all_reduce(y.clone(), op(op.MAX)), y)
    # Nothing is something: no bytes at no address, with or without a signal.
    rt.put(x[:0], y[:0], 0)
    rt.get(y[:0], x[2:2], 0)
    flag = world.signals()
    rt.put_signal(x[:0], y[:0], flag, 3, world.my_pe)
    rt.signal_wait_until(flag, "==", 3)
    assert rt.all_gather(torch.empty(0, 3)).shape == (n, 0, 3) and rt.all_reduce(torch.tensor(2.0)) == 2 * n
    rt.barrier()
    return True


@pytest.mark.filterwarnings("ignore")
def test_mistakes_are_errors():
    assert run(2, mistakes) == [True, True]


def gradients(world):
    """A backward pass that needs what a call has overwritten is an error, not a wrong number."""
    rt, n = start(world), world.n_pes
    w = torch.ones(4, requires_grad=True)
    for call in [
        lambda y: rt.all_reduce(y), lambda y: rt.all_reduce(y, async_op=True).wait(), lambda y: rt.broadcast(y, 0),
        lambda y: rt.get(y, rt.empty(4), 0), lambda y: rt.reduce_scatter_tensor(y, torch.ones(4 * n)),
        lambda y: rt.all_gather_into_tensor(y, torch.ones(4 // n)), lambda y: rt.all_to_all_single(y, torch.ones(4)),
    ]:
        y = w.exp()
        call(y)
        try:
            y.sum().backward()
            return "no error"
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
    with torch.inference_mode():
        rt.all_reduce(torch.ones(4))
    with torch.no_grad():
        rt.all_reduce(w)
    return torch.equal(w, torch.full((4,), float(n)))


def test_autograd_knows_what_was_overwritten():
    assert run(2, gradients) == [True, True]
