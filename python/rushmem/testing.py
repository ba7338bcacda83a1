"""Several PEs in a test: `rushmem.testing.run(4, f)` calls `f(world)` on four, and gives what they return.

    def ring(world, steps):
        ...
        return total

    def test_ring():
        assert rushmem.testing.run(4, ring, 10) == [...]

PEs are processes, so `f` and its arguments are pickled: `f` is a function of a module. With `threads=True`
they are threads of this process, and `f` may be anything.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import wait as _wait
from typing import Any, Callable

from . import PeerDead, World, init, uid

__all__ = ["Failed", "run"]

# What a launcher of the tests themselves has left would be taken for the PEs' own.
_LAUNCHERS = ("RUSHMEM_RANK", "RUSHMEM_WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_", "OMPI_", "PMIX_", "SLURM_")


@dataclasses.dataclass
class _Error:
    """Why a PE failed, and whether it did because another one had."""

    text: str
    headline: str = ""
    follows: bool = False

    def __post_init__(self) -> None:
        self.headline = self.headline or self.text


class Failed(AssertionError):
    """A PE failed: `errors` has each one's text, by number; the text begins with the PE that was first."""

    def __init__(self, errors: dict[int, str], first: int, rest: list[str]):
        self.errors, self.first = errors, first
        super().__init__("\n".join([f"PE {first} failed:", errors[first], *rest]))


def run(
    n: int, f: Callable[..., Any], *args: Any, timeout: float = 60.0, threads: bool = False, env: dict[str, str] | None = None,
    **options: Any,
) -> list[Any]:
    """Calls `f(world, *args)` on each of `n` PEs; their results, by number. Finalises where `f` returns, and
    aborts where it raises: then `Failed`, with every PE's text. What has not ended within `timeout` seconds
    is killed (threads are left), and named by a TimeoutError. `env` are further variables of the processes,
    `options` are those of `rushmem.init`."""
    name = uid()
    if threads:
        return _threads(n, f, args, timeout, name, options)
    context = multiprocessing.get_context("forkserver")
    # What takes seconds to import is imported once; torch where the tests use it.
    context.set_forkserver_preload(["rushmem.testing", "numpy", *(["torch"] if "torch" in sys.modules else [])])
    variables = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}
    # Of a forkserver's children the runtime must see PEs of this job alone.
    variables.update(env or {})
    processes, pipes = [], []
    for pe in range(n):
        ours, theirs = context.Pipe(duplex=False)
        # Not daemonic, which may have no children (torch's DataLoader): `finally` below ends it.
        process = context.Process(target=_process, args=(theirs, name, pe, n, f, args, variables, options))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    try:
        return _outcome(_receive(processes, pipes, timeout), n, timeout)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def _receive(processes: list[Any], pipes: list[Any], timeout: float) -> list[Any]:
    """What each PE has sent; None for one that has not in time."""
    deadline = time.monotonic() + timeout
    came: list[Any] = [None] * len(pipes)
    left = dict(zip(pipes, range(len(pipes))))
    while left and (rest := deadline - time.monotonic()) > 0:
        ready: list[Any] = list(_wait(list(left), rest))
        for pipe in ready:
            pe = left.pop(pipe)
            try:
                came[pe] = (*pipe.recv(), time.monotonic())
            except EOFError:
                processes[pe].join(5)
                came[pe] = (False, _Error(f"its process ended with exit code {processes[pe].exitcode}"), 0.0)
    return came


def _outcome(came: list[Any], n: int, timeout: float) -> list[Any]:
    errors = {pe: one for pe, one in enumerate(came) if one is not None and not one[0]}
    if errors:
        # A PE that ended because of another is not the first.
        first = min(errors, key=lambda pe: (errors[pe][1].follows, errors[pe][2]))
        rest = [f"PE {pe}: {one[1].headline}" for pe, one in errors.items() if pe != first]
        raise Failed({pe: one[1].text for pe, one in errors.items()}, first, rest)
    late = [str(pe) for pe, one in enumerate(came) if one is None]
    if late:
        raise TimeoutError(f"PE {', '.join(late)} of {n} did not end within {timeout} s")
    return [one[1] for one in came]


def _call(world: World, f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with world:
        return f(world, *args)


def _guarded(name: bytes, pe: int, n: int, f: Callable[..., Any], args: Any, options: Any) -> tuple[bool, Any]:
    try:
        return True, _call(init(uid=name, rank=pe, n_pes=n, **options), f, args)
    except BaseException as error:
        headline = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
        return False, _Error(traceback.format_exc(), headline, isinstance(error, PeerDead))


def _process(
    pipe: Any, name: bytes, pe: int, n: int, f: Callable[..., Any], args: Any, variables: dict[str, str], options: Any
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    pipe.send(_guarded(name, pe, n, f, args, options))
    pipe.close()


def _threads(n: int, f: Callable[..., Any], args: Any, timeout: float, name: bytes, options: Any) -> list[Any]:
    came: list[Any] = [None] * n

    def body(pe: int) -> None:
        came[pe] = (*_guarded(name, pe, n, f, args, options), time.monotonic())

    threads = [threading.Thread(target=body, args=(pe,), name=f"PE {pe}", daemon=True) for pe in range(n)]
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return _outcome(list(came), n, timeout)
