"""Mixture-of-experts exchanges: tokens go to the ranks of their experts (dispatch), the experts' results come
back and are added up (combine). On GPUs and on the CPU device; `docs/moe.md` says how.

    from rushmem.moe import AllToAll

    exchange = AllToAll(world, max_tokens=128, hidden=7168, experts=256, top_k=8,
                        dispatch_dtype="float8_e4m3fn")
    here = exchange.dispatch(x, experts, weights)      # here.x[e, :here.counts[e]] is for local expert e
    y = run_experts(here)
    out = exchange.combine(y)                          # [tokens, hidden]

Arrays are torch's, numpy's on the CPU device, or any that rushmem takes. Tensors of a GPU: calls are on
torch's current stream, and can be captured. Otherwise, and without `stream=`, a call is over when it returns.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from . import Error, InvalidArgument, Stream, Team, World
from ._profile import range_of, torch_of
from ._rushmem import _AllToAll

__all__ = ["AllToAll", "Received", "RoundRefused"]

# Where numpy lacks a type, its bits.
_IN_NUMPY = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


class RoundRefused(Error):
    """A round that all ranks refused alike: an expert's capacity, `max_tokens`, an expert that does not
    exist. `round` is its number, from 1 on."""

    def __init__(self, text: str, round: int):
        super().__init__(text)
        self.round = round

    name = "round refused"


@dataclasses.dataclass
class Received:
    """What dispatch leaves for this rank's experts. None is not written; `x` must be there.

    `x`: `[local experts, capacity, hidden]`, `[ranks, max_tokens, hidden]` or, flat, `[capacity, hidden]`.
    `counts`: int32, of each local expert; rank-major: of all tokens of each source. `sources`: int32 for each
    row, `source * max_tokens + token`. `side`: scales or side bytes of each row. Rank-major alone: `experts`
    (int32, local ones; -1 is none) and `weights`, `[ranks, max_tokens, top_k]`. Rows that no token has are
    not written."""

    x: Any
    counts: Any = None
    sources: Any = None
    side: Any = None
    experts: Any = None
    weights: Any = None


def _type(array: Any) -> str:
    """The name of an array's type of elements."""
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _check(what: str, array: Any, wanted: str, shape: tuple[int | None, ...]) -> None:
    """Refuses another type or shape; None is any length."""
    given = _type(array)
    if given not in (wanted, _IN_NUMPY.get(wanted, wanted)):
        raise InvalidArgument(f"{what} is of type {given}, and the exchange of {wanted}")
    have = tuple(array.shape)
    if len(have) != len(shape) or any(b is not None and a != b for a, b in zip(have, shape)):
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidArgument(f"{what} has the shape {have}; it should be ({expected})")


class AllToAll:
    """An exchange of a team's members, its ranks; of a world: of all PEs. Collective over all PEs of the
    world.

    At most `max_tokens` tokens a rank in a round, of `hidden` columns (a multiple of 16), each for `top_k` of
    `experts` experts. Rank r of n has the experts from `r * ceil(experts / n)` on.

    `dispatch_dtype`: bfloat16, float16 or float32 as they are; float8_e4m3fn or float8_e5m2: tokens of
    bfloat16 are cast on their way, with a scale for each 128 columns (`scales`: float32, or ue8m0 bytes).
    `token_bytes` instead: tokens of so many bytes whatever they are, `side_bytes` beside each.
    `combine_dtype`: what experts produce; `out_dtype`: the sums. `layout`: expert_major, rank_major or flat
    (`align`: rows to which an expert's part is rounded up). `capacity`, `rounded_sums`, `few`, `blocks`,
    `threads`, `shared_routing`: `docs/moe.md`. Without `weighted` results are added as they are."""

    def __init__(
        self,
        of: World | Team,
        *,
        max_tokens: int,
        hidden: int,
        experts: int,
        top_k: int,
        dispatch_dtype: Any = "bfloat16",
        scales: str = "float32",
        token_bytes: int | None = None,
        side_bytes: int = 0,
        combine_dtype: Any = "bfloat16",
        out_dtype: Any = None,
        layout: str = "expert_major",
        align: int = 1,
        capacity: int | None = None,
        rounded_sums: bool = False,
        weighted: bool = True,
        expert_dtype: Any = "int64",
        few: int | None = None,
        blocks: int | None = None,
        threads: int | None = None,
        shared_routing: int | None = None,
    ):
        self.team = of.team if isinstance(of, World) else of
        self.max_tokens, self.hidden, self.top_k, self.layout = max_tokens, hidden, top_k, layout
        self._in, self._y = _name(dispatch_dtype), _name(combine_dtype)
        self._out, self._expert = _name(out_dtype or combine_dtype), _name(expert_dtype)
        if self._expert not in ("int32", "int64"):
            raise InvalidArgument(f"numbers of experts are of int32 or int64, not of {self._expert}")
        self._weighted, self._scales, self._bytes = weighted, scales, token_bytes
        self._cast = token_bytes is None and self._in.startswith("float8")
        of_bytes = None if token_bytes is None else (token_bytes, side_bytes)
        self._raw = _AllToAll(
            self.team, max_tokens, hidden, experts, top_k, dispatch_dtype=self._in, scales=scales, row_and_side_bytes=of_bytes,
            combine_dtype=self._y, out_dtype=self._out, layout=layout, align=align, capacity=capacity,
            rounded_sums=rounded_sums, weighted=weighted, wide_experts=self._expert == "int64", few=few, blocks=blocks,
            threads=threads, shared_routing=shared_routing,
        )
        self.local_experts, self._rows, self.capacity, _, self._side, _ = self._raw.sizes()
        self._tokens: int | None = None
        self._like: Any = None

    @property
    def symmetric_bytes(self) -> int:
        """What the exchange takes of each PE's symmetric heap."""
        return self._raw.symmetric_bytes

    def _lead(self) -> tuple[int, ...]:
        """The dimensions of received rows."""
        if self.layout == "flat":
            return (self._rows,)
        if self.layout == "rank_major":
            return (len(self.team), self.max_tokens)
        return (self.local_experts, self.capacity)

    def received(self, like: Any) -> Received:
        """New buffers for `dispatch`, of the kind of `like`: torch's on its device, or numpy's."""
        lead, ranked = self._lead(), self.layout == "rank_major"
        side = None
        if self._side:
            side = (self._side // 4, "float32") if self._cast and self._scales == "float32" else (self._side, "uint8")
        counts = len(self.team) if ranked else self.local_experts
        row = (self.hidden, self._in) if self._bytes is None else (self._bytes, "uint8")
        chosen = (*lead, self.top_k)
        return Received(
            _empty(like, (*lead, row[0]), row[1]),
            _empty(like, (counts,), "int32"),
            _empty(like, lead, "int32"),
            _empty(like, (*lead, side[0]), side[1]) if side else None,
            _empty(like, chosen, "int32") if ranked else None,
            _empty(like, chosen, "float32") if ranked and self._weighted else None,
        )

    def _tokens_of(self, x: Any, experts: Any, weights: Any, side: Any, count: Any) -> tuple[Any, Any]:
        """The arrays of tokens, compared with the configuration, and their number."""
        n = x.shape[0]
        if self._bytes is None:
            _check("x", x, "bfloat16" if self._cast else self._in, (n, self.hidden))
        _check("experts", experts, self._expert, (n, self.top_k))
        if self._weighted != (weights is not None):
            wants = "the exchange is weighted, and" if self._weighted else "the exchange is not weighted, but"
            raise InvalidArgument(f"{wants} weights are {'not ' if weights is None else ''}given")
        if weights is not None:
            _check("weights", weights, "float32", (n, self.top_k))
        # A number of numpy's is one; a tensor is a word of the device's, whatever its shape.
        if count is not None and not torch_of(count) and not getattr(count, "shape", ()):
            count = int(count)
        return [x, side, experts, weights], n if count is None else count

    def dispatch(
        self,
        x: Any,
        experts: Any,
        weights: Any = None,
        *,
        side: Any = None,
        count: Any = None,
        out: Received | None = None,
        stream: Any = None,
    ) -> Received:
        """Sends this rank's tokens `x` to the ranks of their experts, and receives those for its own.

        `experts`: `[tokens, top_k]`, a negative one is nowhere; `weights`: the same of float32. `count`: so
        many of them; an array of one 32-bit word is read on the device, so that a graph serves for any number
        (the arrays are then `max_tokens` long). `out`: where to, else new buffers. All ranks call it, those
        without tokens, too."""
        tokens, n = self._tokens_of(x, experts, weights, side, count)
        came = self._receive(tokens, n, self.received(x) if out is None else out, stream)
        self._began(x, count)
        return came

    def _began(self, x: Any, count: Any) -> None:
        """A round with these tokens: `combine` makes as many sums."""
        self._tokens, self._like = (count if isinstance(count, int) else x.shape[0]), x[:0]

    def dispatch_send(
        self, x: Any, experts: Any, weights: Any = None, *, side: Any = None, count: Any = None, stream: Any = None
    ) -> None:
        """The first half of `dispatch`: sends, and waits for nothing."""
        tokens, n = self._tokens_of(x, experts, weights, side, count)
        with range_of(torch_of(x), "moe::dispatch_send"):
            self._raw.dispatch(tokens, n, None, _stream(x, stream))
        self._began(x, count)

    def dispatch_receive(self, out: Received | None = None, *, stream: Any = None) -> Received:
        """The second half: receives. What runs between the halves has the device for itself."""
        return self._receive(None, 0, self.received(self._last()) if out is None else out, stream)

    def _receive(self, tokens: Any, n: Any, out: Received, stream: Any) -> Received:
        on = _stream(out.x, stream)
        places = [out.x, out.side, out.counts, out.sources, out.experts, out.weights]
        with range_of(torch_of(out.x), "moe::dispatch" if tokens else "moe::dispatch_receive"):
            self._raw.dispatch(tokens, n, places, on)
        if on is None:
            self.check()
        return out

    def combine(self, y: Any, out: Any = None, *, stream: Any = None) -> Any:
        """Brings the results of a dispatch back, and adds them up: for each of this rank's tokens the sum of
        weight times result, in float32, on each rank in the order of the token's experts, then in the order
        of ranks. `y` has the experts' results where dispatch left their tokens. A token without experts gets
        zeros."""
        return self._combine(y, self._sums(y) if out is None else out, stream)

    def combine_send(self, y: Any, *, stream: Any = None) -> None:
        """The first half of `combine`: sends, and waits for nothing."""
        _check("y", y, self._y, (*self._lead(), self.hidden))
        with range_of(torch_of(y), "moe::combine_send"):
            self._raw.combine(y, None, 0, _stream(y, stream))

    def combine_receive(self, out: Any = None, *, stream: Any = None) -> Any:
        """The second half: adds up what has come."""
        return self._combine(None, self._sums(self._last()) if out is None else out, stream)

    def _combine(self, y: Any, out: Any, stream: Any) -> Any:
        if y is not None:
            _check("y", y, self._y, (*self._lead(), self.hidden))
        _check("out", out, self._out, (None, self.hidden))
        on = _stream(out, stream)
        with range_of(torch_of(out), "moe::combine_receive" if y is None else "moe::combine"):
            self._raw.combine(y, out, self._tokens or 0, on)
        if on is None:
            self.check()
        return out

    def _sums(self, like: Any) -> Any:
        return _empty(like, (self._tokens or 0, self.hidden), self._out)

    def _last(self) -> Any:
        if self._like is None:
            raise InvalidArgument("there is no dispatch whose arrays show of what kind new ones are: give out")
        return self._like

    def check(self) -> None:
        """Raises RoundRefused for the first round since the last call that was. Call it when the stream has
        been synchronised; calls without a stream do."""
        refused = self._raw.check()
        if refused:
            raise RoundRefused(refused[1], refused[0])

    def set_absent(self, absent: Sequence[bool]) -> None:
        """Ranks whose flag is true are neither sent to nor waited for from the next call on. All ranks that
        remain make the same call between the same rounds; one comes back only in a new exchange."""
        self._raw.set_absent(list(absent))

    def free(self) -> None:
        """Gives the memory back. Collective over the world. Without it, that of an exchange which all PEs
        have dropped is given back by a later `world.empty()`."""
        self._raw.free()


def _name(dtype: Any) -> str:
    if isinstance(dtype, str):
        return dtype
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)).removeprefix("torch.")


def _stream(array: Any, stream: Any) -> Stream | Any:
    """The stream of a call: for tensors of a GPU torch's current one."""
    torch = torch_of(array)
    if stream is None and torch and array.is_cuda:
        return torch.cuda.current_stream(array.device)
    return stream


def _empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A new array of the kind of `like`."""
    torch = torch_of(like)
    if torch:
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if hasattr(like, "__cuda_array_interface__"):
        raise InvalidArgument("arrays of a GPU that are not torch's: give out")
    import numpy

    if _type(like) == dtype:
        return numpy.empty(shape, numpy.asarray(like).dtype)
    return numpy.empty(shape, _IN_NUMPY.get(dtype, dtype))
