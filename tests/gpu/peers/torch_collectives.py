"""Times torch's collectives in CUDA graphs: NCCL's, and those of symmetric memory. A process a GPU.

    python3 torch_collectives.py FILE [RANKS]     FILE: CSV, as rushmem-perf --compare reads it

NVLink multicast stays off: the variables that say so are set before torch is loaded. `bytes` are those of a
rank's larger array, as in rushmem-perf's rows.
"""

import os
import statistics
import sys

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
OPS_PER_GRAPH = 20
ROUNDS = 12


def graph_of(call):
    """A graph of OPS_PER_GRAPH calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(OPS_PER_GRAPH):
            call()
    return graph


def microseconds(call):
    """Device time of one call, of each round."""
    graph = graph_of(call)
    dist.barrier()
    times = []
    for _ in range(3):
        graph.replay()
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / OPS_PER_GRAPH)
    return times


def calls(ranks, elements, device):
    """NCCL's collectives, by name, on f32."""
    shared = max(elements // ranks, 1)
    whole = torch.ones(shared * ranks, device=device)
    other = torch.empty_like(whole)
    part = torch.ones(shared, device=device)
    data = torch.zeros(elements, device=device)
    return {
        "all_reduce": lambda: dist.all_reduce(data),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda: dist.broadcast(data, 0),
    }


def symmetric(ranks, elements, device):
    """Those of torch's symmetric memory."""
    import torch.distributed._symmetric_memory as memory

    group = dist.group.WORLD.group_name
    # Its kernels take 16 bytes a rank at least.
    data = memory.empty(max(elements, 4 * ranks), device=device, dtype=torch.float32)
    data.zero_()
    memory.rendezvous(data, group)
    ops = torch.ops.symm_mem
    return {
        "one_shot_all_reduce": lambda: ops.one_shot_all_reduce(data, "sum", group),
        "two_shot_all_reduce_": lambda: ops.two_shot_all_reduce_(data, "sum", group),
    }


def rank_main(rank, ranks, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=device)
    rows = []
    for size in SIZES:
        for peer, made in (("nccl", calls), ("torch-symm", symmetric)):
            try:
                table = made(ranks, size // 4, device)
            except Exception as why:
                print(f"SKIP {peer}: {why}", flush=True)
                continue
            for name, call in table.items():
                times = torch.tensor(microseconds(call), device=device)
                dist.all_reduce(times, op=dist.ReduceOp.MAX)
                times = times.tolist()
                median, least = statistics.median(times), min(times)
                rate = size / median / 1000
                rows.append(f"{peer},{name},float,{size},graph,{ranks},{median:.3f},{least:.3f},{rate:.3f}")
    if rank == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        with open(path, "w") as file:
            name = torch.cuda.get_device_name()
            print(f"# torch {torch.__version__} nccl {nccl} {name} ops_per_graph {OPS_PER_GRAPH}", file=file)
            print("peer,op,dtype,bytes,mode,ranks,us_median,us_min,GBps", *rows, sep="\n", file=file)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    processes.spawn(rank_main, (ranks, sys.argv[1]), nprocs=ranks)
