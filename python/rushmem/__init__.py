"""rushmem: symmetric memory for GPUs.

N processing elements (PEs) each own a heap of one layout. Any PE, from the host, from a stream or from inside
a kernel, puts into, gets from, updates atomically, or waits on any other PE's heap.

    import numpy, rushmem

    with rushmem.init() as world:
        inbox = world.empty(4, "int64")
        arrived = world.signals()
        right = (world.my_pe + 1) % world.n_pes
        inbox.put_signal(numpy.full(4, world.my_pe), arrived, 1, right)
        arrived.signal_wait_until(">=", 1)
        print(world.my_pe, "heard from", numpy.asarray(inbox)[0])

Run it by `rushmem-run -n 4 python program.py`, torchrun, mpirun or Slurm; by itself it is a job of one PE.
"""

from __future__ import annotations

import atexit as _atexit
import json as _json
import os as _os
import sys as _sys
import time as _time
from pathlib import Path as _Path
from typing import Any as _Any

from . import _rushmem
from ._errors import (
    BadAddress, BadHandle, BadPe, Bootstrap, Busy, Compile, Environment, Error, Forked, HeapExhausted, Internal, Interrupted,
    InvalidArgument, Io, Launch, LibraryNotFound, Mismatch, OutOfBounds, PeerDead, Timeout, Unsupported, Version,
)
from ._rushmem import Array, Context, Kernel, Module, Stream, Team, World, init, runtime, uid

__version__ = "0.1.0"

__all__ = [
    "Array", "Context", "Kernel", "Module", "Stream", "Team", "World",
    "bitcode", "device_functions", "include_dir", "init", "init_from_mpi", "init_from_store", "library", "runtime", "uid",
    "BadAddress", "BadHandle", "BadPe", "Bootstrap", "Busy", "Compile", "Environment", "Error", "Forked", "HeapExhausted",
    "Internal", "Interrupted", "InvalidArgument", "Io", "Launch", "LibraryNotFound", "Mismatch", "OutOfBounds", "PeerDead",
    "Timeout", "Unsupported", "Version",
]

_HERE = _Path(__file__).resolve().parent
_rushmem._set_library(_HERE / "lib" / "librushmem_host.so")


def library() -> _Path:
    """The file of librushmem_host.so that this process uses: for C and C++ in it, which share it."""
    return _Path(runtime()[1])


def include_dir() -> _Path:
    """The folder of rushmem.h and of what kernels include: for nvcc, `-I` this."""
    return _HERE / "include"


def bitcode(capability: int = 80) -> _Path:
    """The device library as LLVM bitcode, for GPUs of that capability (90 for sm_90) and later ones: what
    Triton takes as an external library (rushmem.triton does it), and other compilers of kernels link. A
    kernel that is linked with it learns its PE before its first launch, by `world.initialise_module`."""
    found = _HERE / "lib" / f"rushmem_device.sm_{90 if capability >= 90 else 80}.bc"
    if capability < 80:
        raise Unsupported(f"the device library is for sm_80 and later, not for sm_{capability}")
    if not found.is_file():
        raise Unsupported(
            f"this wheel was built without bitcode, because its build had no clang ({found} is not there): apt-get install "
            "clang-16, and build it again (make wheel)"
        )
    return found


def device_functions() -> list[dict[str, _Any]]:
    """The functions in `bitcode()`: for each its symbol, scope, operation, element, result and arguments, as
    types (i32, u64, f32, ptr, void) and names. A function is `pure`, for `each` thread or for `all`, of `one`
    thread or of a `group`."""
    bitcode()
    made: list[dict[str, _Any]] = _json.loads((_HERE / "lib" / "rushmem_functions.json").read_text())
    return made


def init_from_store(store: _Any, rank: int, n_pes: int, *, key: str = "rushmem/uid", **options: _Any) -> World:
    """Joins a job whose PEs share a key-value store with `set(key, bytes)` and a `get(key)` that waits:
    `torch.distributed.TCPStore` and its like. Each world of one store needs a key of its own. `options` are
    those of `init`."""
    if rank == 0:
        made = uid()
        store.set(key, made)
    else:
        made = bytes(store.get(key))
    return init(uid=made, rank=rank, n_pes=n_pes, **options)


def init_from_mpi(comm: _Any = None, **options: _Any) -> World:
    """Joins a job of a communicator's processes: mpi4py's COMM_WORLD where none is given, or any object with
    Get_rank, Get_size and bcast. Its rank 0 makes a unique ID, which goes round by `comm.bcast`; MPI is used
    for nothing else. `options` are those of `init`. Collective over the communicator."""
    if comm is None:
        from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

        comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    made = comm.bcast(uid() if rank == 0 else None, root=0)
    return init(uid=made, rank=rank, n_pes=comm.Get_size(), **options)


# How a program ends. An exception that escapes ends the job at once, and the other PEs' errors name this PE
# and the exception. A program that ends without finalize() leaves: PEs that end likewise within a moment are
# not disturbed.

_excepthook = _sys.excepthook


def _on_exception(kind: type[BaseException], exception: BaseException, traceback: _Any) -> None:
    # The text first: its reader wants to see it before the other PEs' errors.
    _excepthook(kind, exception, traceback)
    _rushmem._abort_all(kind, exception)


def _on_exit() -> None:
    if _rushmem._leave_all():
        # So that the launcher sees the PE that failed first end first.
        _time.sleep(0.3)


_sys.excepthook = _on_exception
_atexit.register(_on_exit)
_os.register_at_fork(after_in_child=_rushmem._after_fork)
