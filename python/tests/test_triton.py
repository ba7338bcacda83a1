"""Triton kernels that call rushmem. Everywhere with Triton: each function in a kernel, compiled to machine
code for two GPUs that need not be there. On GPUs: kernels of two PEs, run."""

import re

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import rushmem  # noqa: E402
from conftest import ON_GPU  # noqa: E402
from rushmem.testing import run  # noqa: E402

try:
    rushmem.bitcode()
except rushmem.Unsupported as error:
    pytest.skip(str(error), allow_module_level=True)

import rushmem.triton as rt  # noqa: E402

PES = 2
on_gpus = pytest.mark.skipif(not ON_GPU, reason="no GPU")


# --- without a GPU ------------------------------------------------------------------------------------------


@triton.jit
def words(x, w, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    rt.p(x + at, at, 1)
    rt.p(x, 1, 0)
    tl.store(out + at, rt.g(x + at, 1) + rt.g(x, 0))
    theirs = rt.ptr(x, rt.n_pes() - 1)
    tl.store(theirs + at, tl.load(rt.ptr(x + at, rt.my_pe())))


@triton.jit
def arrays(x, w, out, n, B: tl.constexpr):
    rt.put(x, out, n, 1)
    rt.put_nbi(x, out, n, 1)
    rt.get(out, x, n, 1)
    rt.get_nbi(out, x, n, 1)
    rt.put_signal(x, out, n, w, 1, "set", 1)
    rt.put_signal_nbi(x, out, n, sig=w, signal=1, op="add", pe=1)
    rt.fence()
    rt.quiet()


@triton.jit
def waits(x, w, out, n, B: tl.constexpr):
    rt.signal_op(w, 3, "add", 1)
    seen = rt.signal_fetch(w) + rt.signal_wait_until(w, ">=", 3)
    rt.wait_until(w, "!=", 7)
    rt.wait_until_all(w, 4, "<", 1 << 40)
    first = rt.wait_until_any(w, 4, "<=", n)
    if rt.test(w, "==", seen) + rt.test_all(w, 4, ">", 0) != 0:
        rt.sync_all()
    rt.barrier_all()
    rt.team_sync(-1)
    rt.team_barrier(3)
    tl.store(out, (first + rt.team_my_pe(1) + rt.team_n_pes(1) + rt.team_world_pe(1, 0)).to(tl.int32))


@triton.jit
def atomics(x, w, out, n, B: tl.constexpr):
    rt.atomic_set(x, 1, 1)
    rt.atomic_add(x, 1, 1)
    old = rt.atomic_fetch(x, 1) + rt.atomic_swap(x, 2, 1) + rt.atomic_fetch_add(x, 3, 1)
    tl.store(out, old)


@triton.jit
def integers(x, w, out, n, B: tl.constexpr):
    rt.atomic_inc(x, 1)
    rt.atomic_and(x, 1, 1)
    rt.atomic_or(x, 1, 1)
    rt.atomic_xor(x, 1, 1)
    old = rt.atomic_compare_swap(x, 0, 2, 1) + rt.atomic_fetch_inc(x, 1)
    old += rt.atomic_fetch_and(x, 1, 1) + rt.atomic_fetch_or(x, 1, 1) + rt.atomic_fetch_xor(x, 1, 1)
    tl.store(out, old)


@triton.jit
def no_pointer(x, w, out, n, B: tl.constexpr):
    rt.put(5, out, n, 1)


@triton.jit
def unlike_elements(x, w, out, n, B: tl.constexpr):
    rt.put(w, x, n, 1)


@triton.jit
def wrong_word(x, w, out, n, B: tl.constexpr):
    rt.signal_wait_until(w, "=>", 1)


@triton.jit
def many_atomics(x, w, out, n, B: tl.constexpr):
    rt.atomic_add(x + tl.arange(0, B), 1, 1)


def compiled(kernel, element, capability=90, **options):
    signature = {"x": f"*{element}", "w": "*u64", "out": f"*{element}", "n": "i32", "B": "constexpr"}
    options = {"extern_libs": rt.extern_libs(capability), **options}
    return triton.compile(ASTSource(kernel, signature, {"B": 128}), target=GPUTarget("cuda", capability, 32), options=options)


CASES = [
    *[(words, element) for element in "i8 u8 i16 bf16 fp16 i32 u32 fp32 i64 u64 fp64 i1".split()],
    *[(arrays, element) for element in "i8 bf16 fp32 i64".split()],
    (waits, "i32"),
    *[(atomics, element) for element in "i32 u32 fp32 i64 u64 fp64".split()],
    *[(integers, element) for element in "i32 u64".split()],
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, request):
    if "compil" in request.node.name:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("capability", [80, 90])
def test_every_function_compiles_to_machine_code(capability, record_property):
    called = set()
    kernels = CASES if capability == 90 else {kernel: (kernel, element) for kernel, element in CASES}.values()
    for kernel, element in kernels:
        made = compiled(kernel, element, capability)
        called |= set(re.findall(r"rt\.(\w+)", made.asm["source"] + kernel.src))
        assert made.asm["cubin"][:4] == b"\x7fELF" and b"rushmem_state" in made.asm["cubin"]
        assert re.search(r"\.visible \.const \.align 8 \.b8 rushmem_state\[\d+\]", made.asm["ptx"])
        # All that is called is there, and the block's memory is Triton's alone.
        assert ".extern" not in made.asm["ptx"].replace(".extern .shared", "")
        assert set(re.findall(r"\.shared .* (\w+)\[", made.asm["ptx"])) <= {"global_smem"}
    functions = set(rt.__all__) - {"attach", "extern_libs", "jit"}
    assert called >= functions, "each function is in a kernel"
    record_property("functions", sorted(functions))
    record_property("kernels", len(kernels))


@pytest.mark.parametrize("num_warps", [1, 2, 8])
def test_any_number_of_warps_compiles(num_warps):
    assert compiled(waits, "i32", num_warps=num_warps).metadata.num_warps == num_warps


@pytest.mark.parametrize("kernel, element, options, text", [
    (words, "fp32", {"extern_libs": None}, r"compiled without rushmem's bitcode: decorate it with rushmem.triton.jit"),
    (words, "fp32", {"num_ctas": 2}, r"num_ctas > 1"),
    (no_pointer, "fp32", {}, r"put takes a pointer"),
    (unlike_elements, "fp32", {}, r"the pointers' elements are uint64 and fp32"),
    (wrong_word, "fp32", {}, r"cmp is one of ==, !=, >, >=, <, <=, not '=>'"),
    (many_atomics, "i32", {}, r"atomic_add takes scalars: a program makes one call"),
    (atomics, "bf16", {}, r"atomic_set is not for elements of type bf16: for i32, "),
])
def test_mistakes_are_errors_when_a_kernel_is_compiled(kernel, element, options, text):
    with pytest.raises(Exception) as raised:
        compiled(kernel, element, **options)
    texts, error = [], raised.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert any(re.search(text, one) for one in texts), texts


# --- on GPUs: a process each --------------------------------------------------------------------------------


def tensors(world, *specs):
    import torch

    torch.cuda.set_device(world.device)
    import rushmem.torch as torch_of

    torch_of.use(world)
    made = [torch_of.empty(*shape, dtype=getattr(torch, dtype)).zero_() for shape, dtype in specs]
    torch.cuda.synchronize()
    world.barrier_all()
    rt.attach(world)
    return torch, *made


@rt.jit
def ring_kernel(inbox, outbox, arrived, seen, n, rounds, B: tl.constexpr):
    me = rt.my_pe()
    right = (me + 1) % rt.n_pes()
    for turn in range(rounds):
        for first in range(0, n, B):
            at = first + tl.arange(0, B)
            tl.store(outbox + at, (me * 64 + turn + at % 32).to(outbox.dtype.element_ty), mask=at < n)
        rt.put_signal(inbox, outbox, n, arrived, 1, "add", right)
        tl.store(seen + turn, rt.signal_wait_until(arrived, ">=", turn + 1))
        # The right-hand PE has read what this one overwrites in the next turn.
        rt.barrier_all()


def ring(world, n, dtype, num_warps):
    torch, inbox, outbox, arrived, seen = tensors(world, ((n,), dtype), ((n,), dtype), ((1,), "int64"), ((4,), "int64"))
    ring_kernel[(1,)](inbox, outbox, arrived, seen, n, 4, B=256, num_warps=num_warps)
    torch.cuda.synchronize()
    left = (world.my_pe - 1) % world.n_pes
    expected = (left * 64 + 3 + torch.arange(n) % 32).to(getattr(torch, dtype))
    assert torch.equal(inbox.cpu(), expected), (inbox, expected)
    assert seen.cpu().tolist() == [1, 2, 3, 4]


@on_gpus
@pytest.mark.parametrize("n, dtype, num_warps", [(1, "float32", 1), (255, "int8", 4), (4097, "bfloat16", 8), (300_001, "int64", 4)])
def test_a_ring_that_puts_signals_and_waits(n, dtype, num_warps):
    run(PES, ring, n, dtype, num_warps, timeout=120)


@rt.jit
def words_kernel(theirs, mine, out, counter, olds, big, B: tl.constexpr):
    me = rt.my_pe()
    other = (me + 1) % rt.n_pes()
    at = tl.arange(0, B)
    rt.p(theirs + at, (me * 1000 + at).to(tl.float32), other)
    rt.barrier_all()
    tl.store(out + at, rt.g(theirs + at, other) + tl.load(rt.ptr(theirs, other) + at))
    # Once for each program, whatever its warps, and with one result for all threads.
    tl.store(olds + tl.program_id(0), rt.atomic_fetch_add(counter, 1, 0))
    rt.atomic_add(counter + 1, (1 << 40) + 3, other)
    value = rt.atomic_fetch(big, me)
    tl.store(mine + at, tl.full((B,), 0, tl.int64) + value)
    rt.barrier_all()


def words_of(world, num_warps):
    import random

    specs = [((128,), "float32"), ((128,), "int64"), ((128,), "float32"), ((2,), "int64"), ((4,), "int64"), ((1,), "int64")]
    torch, theirs, mine, out, counter, olds, big = tensors(world, *specs)
    chance = random.SystemRandom().getrandbits(63)
    print("value", chance)
    big.fill_(chance)
    torch.cuda.synchronize()
    words_kernel[(1,)](theirs, mine, out, counter, olds, big, B=128, num_warps=num_warps)
    torch.cuda.synchronize()
    world.barrier_all()
    me, other = world.my_pe, (world.my_pe + 1) % world.n_pes
    at = torch.arange(128, dtype=torch.float32)
    assert torch.equal(theirs.cpu(), other * 1000 + at)
    assert torch.equal(out.cpu(), 2 * (me * 1000 + at))
    assert mine.cpu().tolist() == [chance] * 128
    if me == 0:
        assert counter[0].item() == world.n_pes
    assert counter[1].item() == (1 << 40) + 3
    return olds[0].item()


@on_gpus
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
def test_words_atomics_and_one_result_for_all_threads(num_warps):
    assert sorted(run(PES, words_of, num_warps, timeout=120)) == list(range(PES))


def graph(world):
    torch, inbox, outbox, arrived, seen = tensors(world, ((512,), "int32"), ((512,), "int32"), ((1,), "int64"), ((4,), "int64"))
    arguments = (inbox, outbox, arrived, seen, 512, 1)
    ring_kernel[(1,)](*arguments, B=256)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        ring_kernel[(1,)](*arguments, B=256)
    for _ in range(9):
        captured.replay()
    torch.cuda.synchronize()
    assert arrived.cpu().tolist() == [10]


@on_gpus
def test_a_kernel_in_a_graph():
    run(PES, graph, timeout=120)


@rt.jit
def team_kernel(out):
    tl.store(out, rt.team_my_pe(5))
    tl.store(out + 1, rt.team_n_pes(5))
    tl.store(out + 2, rt.team_world_pe(5, 0))
    rt.team_sync(5)
    rt.team_barrier(-1)


def teams(world):
    torch, out = tensors(world, ((3,), "int32"))
    backwards = world.team.split(0, world.n_pes - world.my_pe)
    backwards.set_number(5)
    team_kernel[(1,)](out)
    torch.cuda.synchronize()
    assert out.cpu().tolist() == [world.n_pes - 1 - world.my_pe, world.n_pes, world.n_pes - 1]
    backwards.free()


@on_gpus
def test_teams_by_number():
    run(PES, teams, timeout=120)


def two_worlds(world):
    """A kernel that was loaded for one world is the next one's, and needs one at first."""
    torch, out = tensors(world, ((3,), "int32"))
    rt._worlds.clear()

    @rt.jit
    def fresh(out):
        tl.store(out, rt.n_pes())

    with pytest.raises(rushmem.BadHandle, match="no world is attached"):
        fresh[(1,)](out)
    rt.attach(world)
    fresh[(1,)](out)
    torch.cuda.synchronize()
    assert out.cpu().tolist() == [world.n_pes, 0, 0]
    with rushmem.init(device=world.device, uid=rushmem.uid(), rank=0, n_pes=1) as alone:
        rt.attach(alone)
        fresh[(1,)](out)
        torch.cuda.synchronize()
        assert out.cpu().tolist() == [1, 0, 0]
    rt.attach(world)


@on_gpus
def test_kernels_follow_the_attached_world():
    run(PES, two_worlds, timeout=120)
