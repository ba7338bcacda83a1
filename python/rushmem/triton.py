"""rushmem in Triton kernels: put, get, signals, waits, atomics and meetings of PEs, called by programs.

    import triton, triton.language as tl
    import rushmem.triton as rt

    @rt.jit
    def ring(inbox, outbox, arrived, n):
        right = (rt.my_pe() + 1) % rt.n_pes()
        rt.put_signal(inbox, outbox, n, arrived, 1, "add", right)
        rt.signal_wait_until(arrived, ">=", 1)

    rt.attach(world)                       # this GPU's kernels are this PE's
    ring[(1,)](inbox, outbox, arrived, n)  # pointers: symmetric tensors

A program calls each function once, whatever its number of warps: its threads meet before and after, what
they stored before is there for the others, and all get one result. `p`, `g` and `ptr` take blocks of
pointers, too: then they work by element, and no thread waits for another. Lengths count elements of the
pointers' type.

`rt.jit` is `triton.jit` with rushmem's bitcode linked in. Elsewhere (autotuned kernels, `triton.compile`)
say `extern_libs=rt.extern_libs()`. Programs that wait for one another take `launch_cooperative_grid=True`.
Not for kernels of several CTAs (`num_ctas`) or with warp specialisation.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable

import triton
from triton import knobs
from triton.language import core
from triton.runtime import driver

import rushmem
from rushmem import World

_LIBRARY = "rushmem"
_STATE = b"rushmem_state"
_COMPARE = {"==": 0, "!=": 1, ">": 2, ">=": 3, "<": 4, "<=": 5}
_SIGNAL = {"set": 0, "add": 1}
_TYPES = {
    "i32": core.int32, "u32": core.uint32, "i64": core.int64, "u64": core.uint64, "f32": core.float32, "f64": core.float64,
    "u8": core.uint8, "u16": core.uint16, "ptr": core.int64, "void": core.int32,
}

# Operation -> element -> scope -> the row.
_ROWS: dict[str, dict[str | None, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
for _row in rushmem.device_functions():
    _ROWS[_row["operation"]][_row["element"]][_row["scope"]] = _row

__all__ = ["attach", "extern_libs", "jit", *_ROWS]  # pyright: ignore[reportUnsupportedDunderAll]


def extern_libs(capability: int | None = None) -> dict[str, str]:
    """What a launch (or an autotuner's, or triton.compile's options) takes as `extern_libs`: the bitcode for
    the current GPU, or for one of that capability (90 for sm_90)."""
    if capability is None:
        return _of_gpu(driver.active.get_current_device())
    return {_LIBRARY: str(rushmem.bitcode(capability))}


@functools.cache
def _of_gpu(ordinal: int) -> dict[str, str]:
    """The same for the current GPU, which is asked once: launches ask each time."""
    return extern_libs(int(driver.active.get_current_target().arch))


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`triton.jit`, whose launches have rushmem's bitcode linked in."""
    if fn is None:
        return functools.partial(jit, **options)
    made: Any = triton.jit(fn, **options)
    launch = made.run

    def run(*args: Any, **named: Any) -> Any:
        named.setdefault("extern_libs", extern_libs())
        return launch(*args, **named)

    made.run = run
    return made


# --- how kernels learn who their PE is ----------------------------------------------------------------------

# Of each GPU: the world whose kernels are Triton's there, and the loaded modules that ask.
_worlds: dict[int, World] = {}
_modules: dict[int, list[int]] = defaultdict(list)


def _ordinal(world: World) -> int:
    kind, _, number = world.device.partition(":")
    if kind != "cuda":
        raise rushmem.Unsupported(f"Triton's kernels run on GPUs, and {world!r} has the CPU as its device")
    return int(number.split()[0]) if number else 0


def attach(world: World) -> World:
    """Triton's kernels on this world's GPU are its PE's from now on, those that are loaded included. No such
    kernel runs meanwhile. Another world of the same GPU takes its place by another call."""
    at = _ordinal(world)
    for module in _modules[at]:
        world.initialise_module(module)
    _worlds[at] = world
    return world


def _loaded(module: Any, function: Any, name: str, metadata_group: dict[str, str], hash: str) -> None:
    code = next((path for file, path in metadata_group.items() if file.endswith(".cubin")), None)
    if code is None or _STATE not in Path(code).read_bytes():
        return
    at = driver.active.get_current_device()
    _modules[at].append(module)
    world = _worlds.get(at)
    if world is None or world.has_ended:
        raise rushmem.BadHandle(
            f"the Triton kernel {name} calls rushmem, and no world is attached on GPU {at}: call rushmem.triton.attach(world) "
            "before its first launch"
        )
    world.initialise_module(module)


knobs.runtime.kernel_load_end_hook.add(_loaded)


# --- the functions of kernels -------------------------------------------------------------------------------


def _constant(value: Any) -> Any:
    return value.value if isinstance(value, core.constexpr) else value


def _is_pointer(value: Any) -> bool:
    return isinstance(value, core.tensor) and bool(value.dtype.is_ptr())


def _element(operation: str, variants: dict[str | None, Any], at: Any) -> tuple[str | None, Any]:
    """The element for which an operation is called, and Triton's type of it, by what it is called on."""
    if None in variants:
        return None, None
    if not _is_pointer(at):
        raise TypeError(f"rushmem.triton.{operation} takes a pointer, which says how long an element is")
    kind = at.dtype.element_ty
    bits = max(kind.primitive_bitwidth, 8)
    letter = "f" if kind.is_floating() else "u" if kind.is_int_unsigned() else "i"
    for name in (f"{letter}{bits}", f"u{bits}"):
        # By its bits where the operation only moves it: all its types are unsigned then.
        if name in variants and (name[0] == letter or all(str(one)[0] == "u" for one in variants)):
            return name, kind
    raise TypeError(f"rushmem.triton.{operation} is not for elements of type {kind}: for {', '.join(map(str, variants))}")


def _check(operation: str, semantic: Any) -> None:
    options = semantic.builder.options
    if _LIBRARY not in dict(options.extern_libs or ()):
        raise ValueError(
            f"rushmem.triton.{operation}: this kernel is compiled without rushmem's bitcode: decorate it with rushmem.triton.jit, "
            "or launch it with extern_libs=rushmem.triton.extern_libs()"
        )
    if options.num_ctas > 1:
        raise ValueError(f"rushmem.triton.{operation}: kernels with num_ctas > 1 cannot call rushmem")


def _argument(operation: str, kind: str, name: str, value: Any, element: Any, semantic: Any) -> Any:
    """A value as the C function takes it."""
    if name in ("cmp", "op"):
        words = _COMPARE if name == "cmp" else _SIGNAL
        given = _constant(value)
        if isinstance(given, str):
            if given not in words:
                raise ValueError(f"rushmem.triton.{operation}: {name} is one of {', '.join(words)}, not {given!r}")
            value = words[given]
    wanted = _TYPES[kind]
    if _is_pointer(value) and kind != "ptr":
        raise TypeError(f"rushmem.triton.{operation}: {name} is a number, not a pointer")
    if kind == "ptr" or element is None or name not in ("value", "cond"):
        return core.cast(value, wanted, _semantic=semantic)
    # An element: of the pointer's type first, so that 1.5 for a pointer to floats is 1.5.
    exact = core.cast(value, core.int8 if element.is_bool() else element, _semantic=semantic)
    return core.cast(exact, wanted, bitcast=True, _semantic=semantic)


def _call(operation: str, given: list[Any], semantic: Any) -> Any:
    variants = _ROWS[operation]
    _check(operation, semantic)
    element, kind = _element(operation, variants, given[0] if given else None)
    scopes = variants[element]
    row = scopes["thread"]
    blocks = [value for value in given if isinstance(value, core.tensor) and value.type.is_block()]
    if blocks and row["kind"] not in ("pure", "each"):
        raise TypeError(f"rushmem.triton.{operation} takes scalars: a program makes one call")
    if not blocks:
        row = scopes.get("program", row)
    for value, (what, name) in zip(given, row["arguments"]):
        if kind is not None and what == "ptr" and name == "src" and _is_pointer(value):
            if max(value.dtype.element_ty.primitive_bitwidth, 8) != max(kind.primitive_bitwidth, 8):
                raise TypeError(f"rushmem.triton.{operation}: the pointers' elements are {kind} and {value.dtype.element_ty}")
    args = [
        _argument(operation, what, name, value, kind, semantic) for value, (what, name) in zip(given, row["arguments"])
    ]
    types = tuple(arg.dtype for arg in args)
    result = core.extern_elementwise(
        "", "", args, {types: (row["symbol"], _TYPES[row["result"]])}, is_pure=row["kind"] == "pure", _semantic=semantic
    )
    if row["result"] == "ptr":
        return core.cast(result, given[0].dtype, _semantic=semantic) if _is_pointer(given[0]) else result
    if kind is not None and row["result"] == element:
        return core.cast(result, core.int8 if kind.is_bool() else kind, bitcast=True, _semantic=semantic)
    return result


def _make(operation: str) -> Callable[..., Any]:
    row = next(iter(_ROWS[operation].values()))["thread"]
    names = [name for _, name in row["arguments"]]
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def function(*args: Any, _semantic: Any = None, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        return _call(operation, [bound.arguments[name] for name in names], _semantic)

    function.__name__ = function.__qualname__ = operation
    function.__doc__ = f"{operation}({', '.join(names)}): rushmem's function of that name, by a program."
    made: Callable[..., Any] = core.extern(function)
    return made


for _operation in _ROWS:
    globals()[_operation] = _make(_operation)
