"""rushmem for torch: symmetric tensors, puts and signals, and collectives as torch.distributed has them.

    import rushmem.torch as rt

    rt.init()                                  # torchrun's PEs, or those of torch.distributed's group
    x = rt.empty(1024, dtype=torch.bfloat16)   # a tensor in the symmetric heap
    rt.all_reduce(x)                           # in the turn of torch's current stream; graphs take it
    rt.put(x, y, pe)                           # y, any tensor of the device, to x on PE pe; likewise

Collectives work on any contiguous tensor of the PE's device; symmetric ones are faster, because every PE
reaches them. All is in the turn of torch's current stream of the world's device; on the CPU device these are
calls of the host. A world of one's own is `rt.init()`; `with rushmem.init() as world` and `rt.use(world)` do
as well.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Sequence

import torch
import torch.distributed as dist

import rushmem
from rushmem import Array, Stream, Team, World
from rushmem._profile import range_of

__all__ = [
    "Work", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "array", "barrier", "broadcast",
    "ddp_hook", "empty", "fence", "finalize", "get", "init", "p", "peer", "pool", "put", "put_signal", "quiet", "reduce_scatter",
    "reduce_scatter_tensor", "signal_op", "signal_wait_until", "stream", "team", "use", "wait_until", "world",
]

_world: World | None = None
_OPS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "and", "BOR": "or", "BXOR": "xor"}
_AVERAGE = ("AVG", "avg")


def init(group: Any = None, **options: Any) -> World:
    """Joins a job: with an initialised torch.distributed, that of its group's members (the default group
    where none is given); else what the environment says. `options` are those of rushmem.init; the device is
    torch's current one where it has GPUs. Collective."""
    if "device" not in options and torch.cuda.is_available():
        options["device"] = f"cuda:{torch.cuda.current_device()}"
    if dist.is_available() and dist.is_initialized():
        rank, n_pes = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise rushmem.InvalidArgument("this process is no member of the group")
        made = [rushmem.uid() if rank == 0 else None]
        dist.broadcast_object_list(made, src=dist.get_global_rank(group, 0) if group else 0, group=group)
        joined = rushmem.init(uid=made[0], rank=rank, n_pes=n_pes, **options)
    else:
        joined = rushmem.init(**options)
    return use(joined)


def use(joined: World) -> World:
    """The functions of this module are about this world from now on."""
    global _world
    _world = joined
    return joined


def world() -> World:
    """The world in use."""
    if _world is None or _world.has_ended:
        raise rushmem.BadHandle("no world is in use: call rushmem.torch.init()")
    return _world


def finalize() -> None:
    """Leaves the job in good order. Collective. Tensors that are alive keep their memory."""
    global _world
    if _world is not None:
        torch.cuda.synchronize(_world.device) if _on_gpu() else None
        _world.finalize()
    _world = None


def team() -> Team:
    """The team of all PEs."""
    return world().team


def _on_gpu() -> bool:
    return _world is not None and _world.device.startswith("cuda")


def stream() -> Any:
    """What operations take as their stream: torch's current one on the world's GPU, which need not be torch's
    current device; none on the CPU."""
    return torch.cuda.current_stream(_world.device) if _world is not None and _on_gpu() else None


def empty(*shape: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A zeroed tensor in the symmetric heap. Collective, with the same arguments on all PEs. It is given
    back once the tensors of all PEs are gone, by a later `empty`."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (Sequence, torch.Size)) else shape
    memory = world().empty(tuple(sizes), dtype or torch.get_default_dtype())
    return torch.from_dlpack(memory)


def pool() -> Any:
    """A memory pool of torch's on the symmetric heap: tensors made under `with
    torch.cuda.use_mem_pool(pool)` are symmetric. All PEs make the same tensors in the same order there.
    GPUs alone."""
    if not _on_gpu():
        raise rushmem.Unsupported("torch has memory pools for GPUs alone; rushmem.torch.empty() serves the CPU")
    from rushmem import _rushmem

    _rushmem._pool_of(world())
    functions = ("rushmem_torch_alloc", "rushmem_torch_free")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_rushmem.__file__, *functions)
    made = torch.cuda.MemPool(allocator.allocator())
    # The pool holds torch's part of the allocator; the functions live as long as the process.
    made._rushmem = allocator
    return made


def array(tensor: torch.Tensor | Array) -> Array:
    """The symmetric array behind a tensor of `empty`'s, or behind a part of one that is contiguous or has one
    distance between its elements: for put, get, signals and kernels."""
    if isinstance(tensor, Array):
        return tensor
    if tensor.is_conj() or tensor.is_neg():
        raise rushmem.InvalidArgument("the tensor is a conjugate or negated view, whose memory has other values than it")
    if tensor.is_contiguous() or not tensor.numel():
        return world().array_at(tensor.data_ptr(), tuple(tensor.shape), tensor.dtype)
    wide = [(n, stride) for n, stride in zip(tensor.shape, tensor.stride()) if n > 1]
    if len(wide) != 1 or wide[0][1] < 1:
        raise rushmem.InvalidArgument("the tensor has gaps between its elements in more than one dimension")
    [(n, stride)] = wide
    return world().array_at(tensor.data_ptr(), ((n - 1) * stride + 1,), tensor.dtype)[::stride]


def peer(tensor: torch.Tensor, pe: int) -> torch.Tensor:
    """PE `pe`'s copy of a symmetric tensor, to load from and store to."""
    theirs = array(tensor).peer(pe)
    if theirs is None:
        raise rushmem.Unsupported(f"PE {pe}'s memory is not mapped here; put and get reach it")
    return torch.from_dlpack(theirs)


def put(dst: torch.Tensor | Array, src: torch.Tensor | Array, pe: int) -> None:
    """`src`, any tensor of the device, to `dst`, a symmetric one of as many elements, on PE `pe`. It is seen
    there after `quiet()` or a barrier on the stream, or by a signal."""
    with range_of(torch, "put"):
        array(dst).put(src, pe, stream=stream())


def get(dst: torch.Tensor | Array, src: torch.Tensor | Array, pe: int) -> torch.Tensor | Array:
    """`src`, a symmetric tensor, of PE `pe` to `dst`, any tensor of the device with as many elements."""
    with range_of(torch, "get"):
        array(src).get(pe, dst, stream=stream())
    return _written(dst)


def p(dst: torch.Tensor | Array, value: Any, pe: int) -> None:
    """One number to `dst`, a symmetric tensor of one element, on PE `pe`. It arrives in one piece."""
    with range_of(torch, "p"):
        array(dst).p(value, pe, stream=stream())


def _signal(tensor: torch.Tensor | Array) -> Array:
    """A signal is a word of uint64, for which torch has few operations: int64 stands for it."""
    word = array(tensor)
    return word.view_as("uint64") if word.dtype == "int64" else word


def put_signal(
    dst: torch.Tensor | Array, src: torch.Tensor | Array, signal: torch.Tensor | Array, value: int, pe: int, *, op: str = "set"
) -> None:
    """`put`, and then `signal` on PE `pe` becomes `value`, or that much more (`op="add"`): what waits for it
    there finds the data. Signals are those of `world().signals()`, or words of a symmetric int64 tensor."""
    with range_of(torch, "put_signal"):
        array(dst).put_signal(src, _signal(signal), value, pe, op=op, stream=stream())


def signal_op(signal: torch.Tensor | Array, value: int, pe: int, *, op: str = "set") -> None:
    """`signal` on PE `pe` becomes `value`, or that much more (`op="add"`)."""
    with range_of(torch, "signal_op"):
        _signal(signal).signal_op(value, pe, op=op, stream=stream())


def signal_wait_until(signal: torch.Tensor | Array, cmp: str, value: int) -> None:
    """What is behind this on the stream begins once this PE's `signal` compares so: `(arrived, ">=", 1)`. On
    the CPU the call returns then."""
    with range_of(torch, "signal_wait_until"):
        _signal(signal).signal_wait_until(cmp, value, stream=stream())


def wait_until(ivar: torch.Tensor | Array, cmp: str, value: Any) -> None:
    """The same of any symmetric tensor of one element, of this PE's."""
    with range_of(torch, "wait_until"):
        array(ivar).wait_until(cmp, value, stream=stream())


def fence() -> None:
    """What the stream has put, updated and signalled before is seen before what comes after."""
    with range_of(torch, "fence"):
        world().fence(stream=stream())


def quiet() -> None:
    """What the stream has put before has arrived, for what is behind it."""
    with range_of(torch, "quiet"):
        world().quiet(stream=stream())


class Work:
    """What a collective gives for `async_op=True`. It is on the stream that was torch's current one, or was
    over on return; `wait` puts what comes next on the stream that is current then behind it."""

    def __init__(self) -> None:
        on = stream()
        self._device = world().device
        self._event = None if on is None else on.record_event()

    def wait(self, timeout: Any = None) -> bool:
        """Blocks no thread on a GPU, as torch's of NCCL; `timeout` is the world's."""
        if self._event is not None:
            torch.cuda.current_stream(self._device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event is None or bool(self._event.query())


def _written(tensor: Any) -> Any:
    """Tells autograd that a tensor has other values: a backward pass that needs the old ones is an error."""
    if isinstance(tensor, torch.Tensor):
        torch.autograd.graph.increment_version(tensor)
    return tensor


def _done(result: Any, async_op: bool) -> Any:
    _written(result)
    return Work() if async_op else result


def _team_of(group: Team | None) -> Team:
    if group is None:
        return world().team
    if isinstance(group, Team):
        return group
    raise TypeError(
        f"group is a {type(group).__name__}: a rushmem.Team is wanted, as rushmem.torch.team().split(...) makes; a world "
        "of a ProcessGroup's members is rushmem.torch.init(group)"
    )


def _name(op: Any) -> str:
    """Of a word, of `ReduceOp.SUM`, and of a `ReduceOp` object, which has its operator as `op`."""
    return str(getattr(op, "op", op)).rsplit(".", 1)[-1]


def _op(op: Any) -> str:
    """An operator by torch's name or ours; AVG is a sum that is divided."""
    name = _name(op)
    return "sum" if name in _AVERAGE else _OPS.get(name, name)


def _is_mean(op: Any, *tensors: torch.Tensor) -> bool:
    is_mean = _name(op) in _AVERAGE
    if is_mean and not all(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        raise rushmem.InvalidArgument("averages are of floating-point numbers")
    return is_mean


def all_reduce(
    tensor: torch.Tensor, op: Any = "sum", group: Team | None = None, async_op: bool = False, *, slot_set: int = 0
) -> Any:
    """`tensor` of all members, combined by `op`, in place: the same bits on each, in every run."""
    team, is_mean = _team_of(group), _is_mean(op, tensor)
    with range_of(torch, "all_reduce"):
        team.reduce(tensor, None, _op(op), stream=stream(), slot_set=slot_set)
        if is_mean:
            tensor.div_(len(team))
    return _done(tensor, async_op)


def ddp_hook(group: Team | None, bucket: Any) -> Any:
    """Averages the gradients of DistributedDataParallel: `model.register_comm_hook(None, rt.ddp_hook)`, or a
    team in place of None."""
    buffer = all_reduce(bucket.buffer(), "avg", group)
    done: Any = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    done.set_result(buffer)
    return done


# DDP compares annotations of hooks with types, and these would be text.
ddp_hook.__annotations__.clear()


def all_gather_into_tensor(
    output: torch.Tensor, input: torch.Tensor, group: Team | None = None, async_op: bool = False, *, slot_set: int = 0
) -> Any:
    """`input` of each member is a part of `output` on all, in their order."""
    with range_of(torch, "all_gather"):
        _team_of(group).fcollect(output, input, stream=stream(), slot_set=slot_set)
    return _done(output, async_op)


def all_gather(tensor: torch.Tensor, group: Team | None = None, *, slot_set: int = 0) -> torch.Tensor:
    """`tensor` of each member as a part of a new one, whose first dimension is the members. Private memory:
    for the symmetric, `all_gather_into_tensor`."""
    members = len(_team_of(group))
    output = torch.empty((members, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    all_gather_into_tensor(output, tensor, group, slot_set=slot_set)
    return output


def reduce_scatter_tensor(
    output: torch.Tensor, input: torch.Tensor, op: Any = "sum", group: Team | None = None, async_op: bool = False, *,
    slot_set: int = 0,
) -> Any:
    """Block j of all members' `input`, combined by `op`, is member j's `output`."""
    team, is_mean = _team_of(group), _is_mean(op, output)
    with range_of(torch, "reduce_scatter"):
        team.reducescatter(output, input, _op(op), stream=stream(), slot_set=slot_set)
        if is_mean:
            output.div_(len(team))
    return _done(output, async_op)


def _rows(tensor: torch.Tensor) -> int:
    if not tensor.ndim:
        raise rushmem.InvalidArgument("a tensor without dimensions has no rows to cut it into")
    return int(tensor.shape[0])


def reduce_scatter(tensor: torch.Tensor, op: Any = "sum", group: Team | None = None, *, slot_set: int = 0) -> torch.Tensor:
    """This member's block of all members' `tensor` combined, as a new tensor. The first dimension is cut."""
    members = len(_team_of(group))
    if _rows(tensor) % members:
        raise rushmem.InvalidArgument(f"{tensor.shape[0]} rows are no equal parts for {members} members")
    shape = (tensor.shape[0] // members, *tensor.shape[1:])
    output = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    reduce_scatter_tensor(output, tensor, op, group, slot_set=slot_set)
    return output


def _parts(tensor: torch.Tensor, sizes: Sequence[int] | None, members: int, name: str) -> list[int]:
    """Rows of `tensor` for each member: as said, or equal."""
    rows = _rows(tensor)
    parts = list(sizes) if sizes else [rows // members] * members
    if len(parts) != members or min(parts) < 0 or sum(parts) != rows:
        said = list(sizes) if sizes else "not given"
        raise rushmem.InvalidArgument(f"{name} ({said}) are a number of rows for each of {members} members, {rows} in all")
    return parts


def all_to_all_single(
    output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Team | None = None, async_op: bool = False, *, slot_set: int = 0,
) -> Any:
    """Block j of each member's `input` is block `my_pe` of member j's `output`. Blocks are equal, or as many
    rows as the lists say of each member. On a GPU a call with lists is for no CUDA graph, and that lists of
    different members agree is the caller's word."""
    team, on = _team_of(group), stream()
    with range_of(torch, "all_to_all"):
        if not output_split_sizes and not input_split_sizes:
            team.alltoall(output, input, stream=on, slot_set=slot_set)
            return _done(output, async_op)
        members, row = len(team), math.prod(input.shape[1:])
        if math.prod(output.shape[1:]) != row or output.dtype != input.dtype:
            raise rushmem.InvalidArgument("rows of output and input are of one size and type")
        came = [row * n for n in _parts(output, output_split_sizes, members, "output_split_sizes")]
        goes = [row * n for n in _parts(input, input_split_sizes, members, "input_split_sizes")]
        came_at, goes_at = ([*itertools.accumulate(n, initial=0)][:-1] for n in (came, goes))
        if on is None:
            got = team.alltoallv(output, came_at, input, goes_at, goes)
            if got != came:
                raise rushmem.InvalidArgument(f"output_split_sizes make {came} elements of each member; {got} have come")
        else:
            lists = torch.tensor([came_at, goes_at, goes], dtype=torch.int64).pin_memory()
            lists = lists.to(world().device, non_blocking=True)
            team.alltoallv(output, lists[0], input, lists[1], lists[2], stream=on, slot_set=slot_set)
    return _done(output, async_op)


def broadcast(
    tensor: torch.Tensor, src: int | None = None, group: Team | None = None, async_op: bool = False, *,
    root: int | None = None, slot_set: int = 0,
) -> Any:
    """`tensor` of one member is that of all: of PE `src` of the world, as torch counts, or of member `root`
    of the group, which is 0 where neither is given."""
    team = _team_of(group)
    if src is not None and root is not None:
        raise TypeError("src is a PE of the world, root a member of the group: one of them is wanted")
    if src is not None and src not in team.members:
        raise rushmem.BadPe(f"PE {src} is no member of the group, whose members are {team.members}")
    member = root or 0 if src is None else team.members.index(src)
    with range_of(torch, "broadcast"):
        team.broadcast(tensor, None, root=member, stream=stream(), slot_set=slot_set)
    return _done(tensor, async_op)


def barrier(group: Team | None = None, async_op: bool = False, *, slot_set: int = 0) -> Any:
    """What members' streams have put before is there on all, for what is behind it on this one's."""
    with range_of(torch, "barrier"):
        _team_of(group).barrier(stream=stream(), slot_set=slot_set)
    return _done(None, async_op)
