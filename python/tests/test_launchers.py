"""How PEs find one another: launchers, a store, a communicator."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import rushmem
from rushmem.testing import run

RUN = Path(rushmem.__file__).parent / "bin" / "rushmem-run"
# One write: a launcher puts the lines of PEs together as they come.
SUM = """
import numpy, os, rushmem
with rushmem.init() as world:
    a = numpy.array([world.my_pe + 1])
    world.team.reduce(a)
    os.write(1, f"PE {world.my_pe}: sum {a[0]} of {world.n_pes}\\n".encode())
"""


def slurm(n, rank, job):
    """What srun gives a task, as tests/launchers.rs has it."""
    return {
        "SLURM_PROCID": rank, "SLURM_NTASKS": n, "SLURM_NPROCS": n, "SLURM_STEP_NUM_TASKS": n, "SLURM_LOCALID": rank, "SLURM_NODEID": 0,
        "SLURM_NNODES": 1, "SLURM_JOB_ID": job, "SLURM_JOBID": job, "SLURM_STEP_ID": 0, "SLURM_STEPID": 0,
        "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": n, "SLURM_TASKS_PER_NODE": n,
    }


def torchrun(n, rank, job):
    """What torchrun gives a worker."""
    return {
        "RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 20_000 + job % 10_000, "TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_RESTART_COUNT": 0,
    }


@pytest.mark.parametrize("launcher", [slurm, torchrun])
def test_pes_meet_by_what_a_launcher_leaves_in_the_environment(launcher):
    n, job = 3, 5_000_000 + os.getpid()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD_", "RUSHMEM_RANK"))}
    pes = [
        subprocess.Popen(
            [sys.executable, "-c", SUM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=kept | {name: str(value) for name, value in launcher(n, rank, job).items()},
        )
        for rank in range(n)
    ]
    try:
        texts = [pe.communicate(timeout=60)[0] for pe in pes]
    finally:
        for pe in pes:
            pe.kill()
    assert [text.splitlines()[-1] for text in texts] == [f"PE {rank}: sum 6 of 3" for rank in range(n)], texts
    assert [pe.returncode for pe in pes] == [0] * n, texts


class Store(dict):
    def set(self, key, value):
        self[key] = value

    def get(self, key):
        while key not in self:
            time.sleep(0.001)
        return self[key]


def test_pes_meet_over_a_store():
    store, seen = Store(), []

    def body(pe):
        with rushmem.init_from_store(store, pe, 2, key="one") as world:
            seen.append((world.my_pe, world.n_pes))

    pes = [threading.Thread(target=body, args=(pe,)) for pe in range(2)]
    for thread in pes:
        thread.start()
    for thread in pes:
        thread.join(30)
    assert sorted(seen) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpirun_starts_pes(mpi, tmp_path):
    launcher = shutil.which(f"mpirun.{mpi}")
    plugin = RUN.parent.parent / "lib" / f"librushmem_bootstrap_{mpi}.so"
    if not launcher or not plugin.exists():
        pytest.skip(f"no mpirun.{mpi}, or no plug-in for it in this package")
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    options = ["--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", "sh"] if mpi == "openmpi" else []
    done = subprocess.run(
        [launcher, *options, "-n", "2", sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=90,
    )
    assert done.returncode == 0 and done.stdout.count("sum 3 of 2") == 2, done.stdout


class Communicator:
    """As mpi4py's, of the PEs of a world."""

    def __init__(self, world):
        self.world = world

    def Get_rank(self):
        return self.world.n_pes - 1 - self.world.my_pe

    def Get_size(self):
        return self.world.n_pes

    def bcast(self, data, root):
        length = numpy.array([len(data or b"")])
        self.world.team.broadcast(length, root=self.world.n_pes - 1 - root)
        passed = numpy.zeros(length[0], "uint8") if data is None else numpy.frombuffer(data, "uint8").copy()
        self.world.team.broadcast(passed, root=self.world.n_pes - 1 - root)
        return passed.tobytes()


def of_communicator(world):
    with rushmem.init_from_mpi(Communicator(world)) as second:
        total = numpy.array([1 << second.my_pe])
        second.team.reduce(total)
        return second.my_pe, int(total[0])


def test_a_world_of_a_communicator():
    assert run(3, of_communicator) == [(2, 7), (1, 7), (0, 7)]
