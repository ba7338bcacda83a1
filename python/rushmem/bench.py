"""What calls from Python cost, and what torch's collectives beside ours take:

    rushmem-run -n 2 python -m rushmem.bench [--csv FILE] [--plot FILE]

Calls: a put of 8 bytes on the host and on a stream, in a loop of Python and in a loop of the C ABI; their
difference is Python's part. Collectives, where torch is: an all-reduce of float32 by rushmem.torch, in a CUDA
graph where the device is a GPU, beside torch.distributed (NCCL on GPUs, gloo on the CPU) and
torch.ops.symm_mem, where these are: its one-shot and its two-shot form, of which `symm_mem_us` is the faster
one for each size. Times are medians, in microseconds.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import itertools
import statistics
import sys
import time
from typing import Any, Callable, Iterator

import rushmem

CALLS = 2_000
# Microseconds.
LIMIT = 3
ROUNDS = 7
SIZES = [1 << n for n in range(3, 25)]
# torch's two forms of an all-reduce on symmetric memory: small and large arrays' respectively.
SYMM_MEM = {"symm_mem_one_shot": "one_shot_all_reduce", "symm_mem_two_shot": "two_shot_all_reduce_"}


def per_call(f: Callable[[], Any], n: int) -> float:
    """Seconds of one of `n` calls: the median of several rounds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(n):
            f()
        times.append((time.perf_counter() - begin) / n)
    return statistics.median(times)


def calls(world: rushmem.World) -> list[dict[str, Any]]:
    """Python's part of a call."""
    a, source = world.empty(8, "uint8"), world.empty(8, "uint8")
    word, flag, stream = world.empty(1, "int64"), world.signals(), world.stream()
    pe = (world.my_pe + 1) % world.n_pes
    rows = []

    def row(what: str, python: float, c: float | None) -> None:
        rows.append({"what": what, "us": python * 1e6, "c_us": c and c * 1e6, "over_c_us": c and (python - c) * 1e6})

    for what, on in [("put of 8 B, host", None), ("put of 8 B, stream", stream)]:
        python = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(CALLS):
                a.put(source, pe, stream=on)
            python.append((time.perf_counter() - begin) / CALLS)
            world.synchronize()
        c = statistics.median(rushmem._rushmem._time_puts(a, source, pe, CALLS, on) / CALLS for _ in range(ROUNDS))
        row(what, statistics.median(python), c)
    row("p of 8 B, host", per_call(lambda: word.p(1, pe), CALLS), None)
    row("atomic_fetch_add", per_call(lambda: word.atomic_fetch_add(1, pe), CALLS), None)
    row("signal_fetch", per_call(flag.signal_fetch, CALLS), None)
    row("barrier_all", per_call(world.barrier_all, CALLS // 10), None)
    return rows


def timed(f: Callable[[], Any], torch: Any, on_gpu: bool, n: int) -> float:
    """Seconds of one call of `f`, in a CUDA graph of ten on a GPU."""
    if not on_gpu:
        f()
        return per_call(f, n)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        f()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(10):
            f()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times: list[float] = []
    for _ in range(ROUNDS):
        with torch.cuda.stream(side):
            begin.record()
            for _ in range(max(1, n // 10)):
                graph.replay()
            end.record()
        side.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / (max(1, n // 10) * 10))
    return statistics.median(times)


def collectives(world: rushmem.World) -> list[dict[str, Any]]:
    """All-reduces beside torch's."""
    torch: Any = importlib.import_module("torch")
    rt: Any = importlib.import_module("rushmem.torch")
    rt.use(world)
    on_gpu = world.device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(world.device)

    def ours(n: int) -> Callable[[], Any]:
        mine = rt.empty(n, dtype=torch.float32)
        return lambda: rt.all_reduce(mine)

    # Ours first, and each series shown when it is there: what torch has may hang.
    rows: list[dict[str, Any]] = [{"what": "all_reduce", "bytes": size} for size in SIZES]
    for name, make in itertools.chain([("", ours)], peers(torch, world, on_gpu)):
        key = f"{name}_us" if name else "us"
        for row in rows:
            world.barrier_all()
            try:
                n = 100 if row["bytes"] <= 1 << 20 else 20
                row[key] = timed(make(row["bytes"] // 4), torch, on_gpu, n) * 1e6
            except Exception as error:
                # What torch cannot do here is not ours to fail for.
                if not name:
                    raise
                if world.my_pe == 0:
                    print(f"{name} of {row['bytes']} bytes: {type(error).__name__}: {error}", file=sys.stderr)
        if world.my_pe == 0:
            print(f"{key}:", " ".join(f"{row['bytes']}={row.get(key, 0):.2f}" for row in rows), flush=True)
    for row in rows:
        forms = [us for key in SYMM_MEM if (us := row.get(f"{key}_us"))]
        if forms:
            row["symm_mem_us"] = min(forms)
    return rows


def peers(
    torch: Any, world: rushmem.World, on_gpu: bool
) -> Iterator[tuple[str, Callable[[int], Callable[[], Any]]]]:
    """What else is there: a name, and a function that makes a call of so many elements."""
    dist = torch.distributed
    if not dist.is_available():
        return
    address = meeting(world)
    store = dist.TCPStore("127.0.0.1", address, world.n_pes, world.my_pe == 0)
    backend = "nccl" if on_gpu and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=world.my_pe, world_size=world.n_pes)
    device = torch.device(world.device)

    def own(n: int) -> Callable[[], Any]:
        tensor = torch.zeros(n, device=device)
        return lambda: dist.all_reduce(tensor)

    def symmetric(form: str) -> Callable[[int], Callable[[], Any]]:
        def make(n: int) -> Callable[[], Any]:
            symm_mem = importlib.import_module("torch.distributed._symmetric_memory")
            # Zeroed: one of the forms adds in place, as often as it is timed.
            tensor = symm_mem.empty(n, device=device).zero_()
            symm_mem.rendezvous(tensor, dist.group.WORLD)
            call, group = getattr(torch.ops.symm_mem, form), dist.group.WORLD.group_name
            return lambda: call(tensor, "sum", group)

        return make

    yield backend, own
    if on_gpu:
        for name, form in SYMM_MEM.items():
            yield name, symmetric(form)


def meeting(world: rushmem.World) -> int:
    """A free port of PE 0's, known to all."""
    import socket

    port = world.empty(1, "int64")
    if world.my_pe == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            for pe in range(world.n_pes):
                port.p(probe.getsockname()[1], pe)
    world.barrier_all()
    return int(port.g(world.my_pe))


def plot(rows: list[dict[str, Any]], file: str) -> None:
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    # The faster of torch's two forms is one of them.
    series = [key for key in rows[0] if key.endswith("us") and key != "symm_mem_us"]
    for key in series:
        there = [row for row in rows if row.get(key)]
        pyplot.loglog([row["bytes"] for row in there], [row[key] for row in there], marker="o", label=key)
    pyplot.xlabel("bytes")
    pyplot.ylabel("us")
    pyplot.legend()
    pyplot.savefig(file)


def main() -> int:
    about = argparse.ArgumentParser(prog="python -m rushmem.bench", description=__doc__.split("\n")[0])
    about.add_argument("--csv", metavar="FILE")
    about.add_argument("--plot", metavar="FILE", help="the collectives, by matplotlib")
    about.add_argument("--check", action="store_true", help=f"fail where a call costs more than {LIMIT} us over C")
    about.add_argument("--only", choices=["calls", "collectives"])
    options = about.parse_args()
    with rushmem.init() as world:
        rows = calls(world) if options.only != "collectives" else []
        if options.only != "calls":
            if importlib.util.find_spec("torch"):
                rows += collectives(world)
            elif world.my_pe == 0:
                print("collectives: torch is not installed", file=sys.stderr)
        if world.my_pe == 0:
            keys = list(dict.fromkeys(key for row in rows for key in row))
            for row in rows:
                # Numbers of calls, and of collectives side by side.
                shown = (f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if v is not None)
                print("  ".join(shown))
            if options.csv:
                with open(options.csv, "w", newline="") as file:
                    writer = csv.DictWriter(file, keys)
                    writer.writeheader()
                    writer.writerows(rows)
            slow = [row["what"] for row in rows if (row.get("over_c_us") or 0) > LIMIT]
            if options.check and slow:
                raise SystemExit(f"more than {LIMIT} us over C: {', '.join(slow)}")
            if options.plot:
                plot([row for row in rows if "bytes" in row], options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
