"""Mixture-of-experts exchanges against numpy's arithmetic, with random tokens and routing, bit for bit."""

import numpy
import pytest

import rushmem
from conftest import ON_GPU
from rushmem.moe import AllToAll, RoundRefused
from rushmem.testing import run

pytestmark = pytest.mark.skipif(ON_GPU, reason="numpy's arrays are out of a GPU's reach: test_torch.py has tensors")

T, HIDDEN, EXPERTS, K = 5, 144, 7, 3


def widen(bits):
    """bfloat16 as float32."""
    return (bits.astype("uint32") << 16).view("float32")


def narrow(x):
    """float32 as bfloat16, to nearest even."""
    bits = x.view("uint32")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")


def draw(rng, n_pes):
    """All ranks' tokens: none on one of them; experts differ within a token, some are nowhere (-1)."""
    ranks, without = [], rng.integers(n_pes)
    for rank in range(n_pes):
        n = 0 if rank == without else int(rng.integers(1, T + 1))
        experts = numpy.array([rng.permutation(EXPERTS)[:K] for _ in range(n)], "int64").reshape(n, K)
        experts[rng.random(experts.shape) < 0.3] = -1
        if n > 1:
            experts[0] = -1
        ranks.append((rng.standard_normal((n, HIDDEN), "float32"), experts, rng.standard_normal((n, K), "float32")))
    return ranks


def combined(ranks, me, local, n_pes, y):
    """The sums of rank `me`: on each rank in the order of the token's experts, then in the order of ranks."""
    x, experts, weights = ranks[me]
    out = numpy.zeros((len(x), HIDDEN), "float32")
    for t in range(len(x)):
        total = None
        for rank in range(n_pes):
            terms = [weights[t, k] * y(x[t], e) for k, e in enumerate(experts[t]) if e >= 0 and e // local == rank]
            for i, term in enumerate(terms):
                part = term if i == 0 else part + term
            if terms:
                total = part if total is None else total + part
        out[t] = 0 if total is None else total
    return out


def scaled(x, expert):
    """What an expert makes of a token."""
    return x * numpy.float32(expert + 1.5)


def expert_major(world, seed, shared_routing):
    rng, me, n = numpy.random.default_rng(seed), world.my_pe, world.n_pes
    types = dict(dispatch_dtype="float32", combine_dtype="float32", shared_routing=shared_routing)
    exchange = AllToAll(world, max_tokens=T, hidden=HIDDEN, experts=EXPERTS, top_k=K, **types)
    local, stream = exchange.local_experts, world.stream()
    assert (local, exchange.capacity) == (-(-EXPERTS // n), n * T)
    for round_ in range(4):
        ranks = draw(rng, n)
        x, experts, weights = ranks[me]
        if round_ == 1:
            exchange.dispatch_send(x, experts, weights)
            here = exchange.dispatch_receive()
        elif round_ == 2:
            here = exchange.received(x)
            # As many as a word of the device's memory says: the arrays are as long as can be.
            long = [numpy.concatenate([a, numpy.zeros((T - len(a), *a.shape[1:]), a.dtype)]) for a in ranks[me]]
            exchange.dispatch(*long, count=numpy.array([len(x)], "uint32"), out=here, stream=stream)
            stream.synchronize()
            exchange.check()
        else:
            here = exchange.dispatch(x, experts, weights)
        y = numpy.full((local, n * T, HIDDEN), numpy.nan, "float32")
        for e in range(local):
            global_ = me * local + e
            came = [(rank, t) for rank in range(n) for t in range(len(ranks[rank][0])) if global_ in ranks[rank][1][t]]
            assert here.counts[e] == len(came)
            assert here.sources[e, : len(came)].tolist() == [rank * T + t for rank, t in came]
            for row, (rank, t) in enumerate(came):
                numpy.testing.assert_array_equal(here.x[e, row], ranks[rank][0][t])
                y[e, row] = scaled(here.x[e, row], global_)
        if round_ == 1:
            exchange.combine_send(y)
            out = exchange.combine_receive()
        else:
            out = exchange.combine(y)
        numpy.testing.assert_array_equal(out[: len(x)], combined(ranks, me, local, n, scaled))
    # What all ranks refuse, and the next round, which is as usual.
    x, experts, weights = numpy.ones((1, HIDDEN), "float32"), numpy.full((1, K), -1), numpy.ones((1, K), "float32")
    wrong = experts.copy()
    wrong[0, 0] = EXPERTS if me == n - 1 else -1
    refused = "no error"
    try:
        exchange.dispatch(x, wrong, weights)
    except RoundRefused as error:
        refused = f"{error.round}: {error}"
    assert f"token 0 of rank {n - 1} names an expert that does not exist" in refused and refused.startswith("5: ")
    exchange.dispatch(x, experts, weights)
    assert not exchange.combine(y).any()
    before = world.heap_info()["allocations"]
    exchange.free()
    try:
        exchange.dispatch(x, experts, weights)
    except rushmem.BadHandle as error:
        return before - world.heap_info()["allocations"], "was freed" in str(error)


# 0: kernels read the experts in place, as they do where shared memory has no room for them.
@pytest.mark.parametrize("n, shared_routing", [(2, None), (3, None), (3, 0)])
def test_experts_get_their_tokens_and_sums_return(rng, n, shared_routing):
    assert run(n, expert_major, int(rng.integers(1 << 31)), shared_routing) == [(1, True)] * n


def rank_major(world, seed):
    """bfloat16 there and back, as its bits; a token once on each rank, whose program adds and weights."""
    rng, me, n = numpy.random.default_rng(seed), world.my_pe, world.n_pes
    sizes = dict(max_tokens=T, hidden=HIDDEN, experts=EXPERTS, top_k=K)
    exchange = AllToAll(world.team, **sizes, layout="rank_major", out_dtype="float32", expert_dtype="int32")
    local = exchange.local_experts
    ranks = [(narrow(x), experts.astype("int32"), weights) for x, experts, weights in draw(rng, n)]
    here = exchange.dispatch(*ranks[me])
    y = numpy.zeros((n, T, HIDDEN), "uint16")
    for rank, (x, experts, weights) in enumerate(ranks):
        mine = [t for t in range(len(x)) if (experts[t][experts[t] >= 0] // local == me).any()]
        assert here.counts[rank] == len(x)
        for t in mine:
            numpy.testing.assert_array_equal(here.x[rank, t], x[t])
            wanted = [(e - me * local, w) for e, w in zip(experts[t], weights[t]) if e >= 0 and e // local == me]
            got = [(e, w) for e, w in zip(here.experts[rank, t], here.weights[rank, t]) if e >= 0]
            assert got == wanted
            y[rank, t] = narrow(widen(x[t]) * numpy.float32(sum(w for _, w in got)))
    out = exchange.combine(y)
    x, experts, weights = ranks[me]
    for t in range(len(x)):
        total = numpy.zeros(HIDDEN, "float32")
        for rank in range(n):
            on = [w for e, w in zip(experts[t], weights[t]) if e >= 0 and e // local == rank]
            if on:
                total = total + widen(narrow(widen(x[t]) * numpy.float32(sum(on))))
        numpy.testing.assert_array_equal(out[t], total)
    return True


def flat(world, seed):
    """Tokens of bytes with bytes beside them, in parts of whole fours; nothing is combined."""
    rng, me, n = numpy.random.default_rng(seed), world.my_pe, world.n_pes
    sizes = dict(max_tokens=T, hidden=HIDDEN, experts=EXPERTS, top_k=K)
    exchange = AllToAll(world, **sizes, token_bytes=48, side_bytes=16, layout="flat", align=4, weighted=False)
    local = exchange.local_experts
    for _ in range(2):
        ranks = draw(rng, n)
        tokens = [(rng.integers(256, size=(len(x), 48)).astype("uint8"), experts) for x, experts, _ in ranks]
        beside = [rng.integers(256, size=(len(x), 16)).astype("uint8") for x, _ in tokens]
        here, at = exchange.dispatch(*tokens[me], side=beside[me]), 0
        for e in range(local):
            came = [(r, t) for r in range(n) for t in range(len(tokens[r][0])) if me * local + e in tokens[r][1][t]]
            assert here.counts[e] == len(came)
            for row, (r, t) in enumerate(came):
                numpy.testing.assert_array_equal(here.x[at + row], tokens[r][0][t])
                numpy.testing.assert_array_equal(here.side[at + row], beside[r][t])
            at += -(-len(came) // 4) * 4
    return True


@pytest.mark.parametrize("f", [rank_major, flat])
def test_other_layouts(rng, f):
    assert run(2, f, int(rng.integers(1 << 31))) == [True, True]


def test_what_does_not_fit_is_refused(world):
    sizes = dict(max_tokens=4, hidden=32, experts=4, top_k=2)
    for wrong, text in [
        (dict(hidden=33), "multiple of 16"), (dict(layout="rows"), "layout"), (dict(dispatch_dtype="float64"), "float64"),
        (dict(expert_dtype="int8"), "int8"), (dict(top_k=33), "top_k"), (dict(scales="bfloat16"), "scales"),
    ]:
        with pytest.raises(rushmem.InvalidArgument, match=text):
            AllToAll(world, **{**sizes, **wrong})
    exchange = AllToAll(world, **sizes, dispatch_dtype="float32", combine_dtype="float32")
    x, experts, weights = numpy.ones((3, 32), "float32"), numpy.tile([0, 1], (3, 1)), numpy.ones((3, 2), "float32")
    y = numpy.ones((4, 4, 32), "float32")
    for call, text in [
        (lambda: exchange.dispatch(x.astype("float64"), experts, weights), "x is of type float64"),
        (lambda: exchange.dispatch(x[:, :16], experts, weights), r"\(3, 32\)"),
        (lambda: exchange.dispatch(x, experts.astype("int32"), weights), "int32"),
        (lambda: exchange.dispatch(x, experts), "weights are not given"),
        (lambda: exchange.dispatch(x, experts, weights, count=4), "x has 384 bytes, 512"),
        (lambda: exchange.dispatch(*[numpy.concatenate([a, a]) for a in (x, experts, weights)]), "max_tokens"),
        (lambda: exchange.combine(y), "combine is out of turn"),
        (lambda: exchange.dispatch_receive(), "give out"),
        (lambda: exchange.set_absent([True]), "takes itself out"),
    ]:
        with pytest.raises(rushmem.InvalidArgument, match=text):
            call()
    here = exchange.dispatch(x, experts, weights)
    with pytest.raises(rushmem.InvalidArgument, match="y has the shape"):
        exchange.combine(y[:3])
    assert here.counts.tolist() == [3, 3, 0, 0]
    numpy.testing.assert_array_equal(exchange.combine(y), numpy.full((3, 32), 2, "float32"))


def test_tokens_become_fp8_on_their_way(world, rng):
    """Each group's largest is the format's, 448: its scale is 1, and these numbers keep their values."""
    exchange = AllToAll(world, max_tokens=T, hidden=HIDDEN, experts=2, top_k=1, dispatch_dtype="float8_e4m3fn")
    values, bits = numpy.array([448, 1, 2, -0.5, 0], "float32"), numpy.array([0x7E, 0x38, 0x40, 0xB0, 0], "uint8")
    drawn = rng.integers(5, size=(T, HIDDEN))
    drawn[:, [0, 128]] = 0
    experts = rng.integers(2, size=(T, 1))
    here = exchange.dispatch(narrow(values[drawn]), experts, numpy.full((T, 1), 0.5, "float32"))
    assert here.side.shape == (2, T, 2) and here.side.dtype == "float32"
    y = numpy.zeros((2, T, HIDDEN), "uint16")
    for e in range(2):
        mine = numpy.flatnonzero(experts[:, 0] == e)
        numpy.testing.assert_array_equal(here.x[e, : len(mine)], bits[drawn[mine]])
        assert here.counts[e] == len(mine) and (here.side[e, : len(mine)] == 1).all()
        y[e, : len(mine)] = narrow(values[drawn[mine]])
    numpy.testing.assert_array_equal(widen(exchange.combine(y)), values[drawn] / 2)
