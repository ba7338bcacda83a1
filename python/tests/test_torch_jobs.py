"""torch itself beside rushmem on the CPU device: how worlds with tensors live and end, and launchers.
`scripts/test-torch` fetches torch and runs it."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import rushmem  # noqa: E402
import test_docs  # noqa: E402
from conftest import ON_GPU  # noqa: E402
from rushmem.testing import Failed, run  # noqa: E402

pytestmark = pytest.mark.skipif(ON_GPU, reason="the tensors are the host's")
RUN = Path(rushmem.__file__).parent / "bin" / "rushmem-run"


def start(world):
    import rushmem.torch as rt

    torch.set_num_threads(1)
    rt.use(world)
    return rt


# --- lives and ends -----------------------------------------------------------------------------------------


def mappings():
    return sum(1 for _ in open("/proc/self/maps")), len(os.listdir("/proc/self/fd"))


def test_worlds_with_tensors_leave_nothing():
    import rushmem.torch as rt

    kept = []

    def one(i):
        rt.use(rushmem.init())
        x, y = rt.empty(1000), rt.empty(10, dtype=torch.bfloat16)
        rt.put(x, torch.full((1000,), float(i)), 0)
        rt.all_reduce(y)
        kept[:] = [x[5:7]]
        rt.finalize()
        # A part of a tensor of a world that has ended is memory, and no more.
        assert kept[0].tolist() == [i, i]
        with pytest.raises(rushmem.BadHandle):
            rt.put(x, x, 0)

    rounds = int(os.environ.get("RUSHMEM_TEST_WORLDS", 100))
    for i in range(20):
        one(i)
    gc.collect()
    before = mappings()
    for i in range(rounds):
        one(i)
    gc.collect()
    after = mappings()
    # torch's own threads and allocator may add some, once.
    assert after[1] == before[1] and after[0] <= before[0] + 8, (before, after)


def dropped(world):
    """Tensors of a stream's operations live until they were read, and not longer."""
    rt, me, right = start(world), world.my_pe, (world.my_pe + 1) % world.n_pes
    x, gate, stream = rt.empty(50, 1000), world.signals(), world.stream()
    gate.wait_until("==", 1, stream=stream)
    held = []
    for i in range(50):
        source = torch.full((1000,), 100.0 * me + i)
        rt.array(x[i]).put(source, right, stream=stream)
        held.append(weakref.ref(source))
        del source
    total = torch.ones(1000)
    world.team.reduce(total, None, "sum", stream=stream)
    gc.collect()
    junk = [torch.full((1000,), -1.0) for _ in range(100)]
    assert all(one() is not None for one in held)
    gate.p(1, me)
    stream.synchronize()
    world.barrier_all()
    assert all(one() is None for one in held) and len(junk) == 100
    left = (me - 1) % world.n_pes
    assert (total == world.n_pes).all() and (x == 100.0 * left + torch.arange(50.0)[:, None]).all()
    world.barrier_all()
    # A tensor that is dropped while a non-blocking call reads it.
    rt.array(x[0]).put_nbi(torch.full((1000,), -5.0), right)
    gc.collect()
    junk += [torch.full((1000,), -2.0) for _ in range(100)]
    world.barrier_all()
    return bool((x[0] == -5).all())


def test_tensors_are_held_while_operations_need_them():
    assert run(2, dropped) == [True, True]


def threads(world):
    """Threads put, get and make views at once, each by its own tensors."""
    rt, right = start(world), (world.my_pe + 1) % world.n_pes
    x, errors = rt.empty(4, 1000), []

    def body(i):
        try:
            for step in range(100):
                rt.put(x[i], torch.full((1000,), float(step)), right)
                out = rt.get(torch.empty(1000), x[i], right)
                if not (out == step).all():
                    errors.append((i, step))
        except BaseException as error:
            errors.append(error)

    bodies = [threading.Thread(target=body, args=(i,)) for i in range(4)]
    for thread in bodies:
        thread.start()
    for thread in bodies:
        thread.join()
    rt.barrier()
    return errors


def test_threads_with_tensors():
    assert run(2, threads) == [[], []]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.full((10,), float(i))


def loads(world):
    """Workers that torch forks beside a live world: what they do is torch's alone, and they end quietly."""
    rt = start(world)
    x = rt.empty(10)
    x.fill_(1)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for batch in loader:
            rt.all_reduce(batch.sum(0))
    child = os.fork()
    if child == 0:
        try:
            rt.all_reduce(x)
        except rushmem.Forked:
            os._exit(int(x.sum().item()))
        os._exit(99)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    rt.barrier()
    return code, rt.all_reduce(x).tolist()


def test_forked_workers_beside_a_world():
    assert run(2, loads, timeout=120) == [(10, [2.0] * 10)] * 2


def stops(world):
    rt = start(world)
    for i in range(200):
        if world.my_pe == 1 and i == 100:
            raise ValueError("no more soup")
        rt.all_reduce(torch.ones(1000))


def test_an_exception_in_the_middle_of_collectives():
    with pytest.raises(Failed, match="PE 1 failed:") as failed:
        run(2, stops)
    assert "no more soup" in failed.value.errors[0] and "PeerDead" in failed.value.errors[0]


def torchrun(n, *options):
    return ["torchrun", "--standalone", f"--nproc-per-node={n}", *options]


def job(program, tmp_path, *launcher):
    """A program's exit code and text."""
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [*launcher, sys.executable]
    if launcher[0] == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", *launcher[1:]]
    done = subprocess.run(
        [*command, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150, cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout


ENDS = """
import os, torch, rushmem.torch as rt
world = rt.init()
x = rt.empty(4)
x.fill_(world.my_pe + 1)
rt.all_reduce(x)
part = x[1:]
{}
os.write(1, f"reads {{x.tolist()}}\\n".encode())
"""


@pytest.mark.parametrize("end", ["", "rt.finalize()", "x = part; rt.finalize(); del part"])
def test_an_interpreter_ends_with_live_tensors(end, tmp_path):
    code, text = job(ENDS.format(end), tmp_path, RUN, "-n", "2", "--")
    assert code == 0 and text.count("reads [3.0, 3.0, 3.0") == 2 and "rushmem [" not in text, text


# --- launchers ----------------------------------------------------------------------------------------------

SUM = """
import os, torch, torch.distributed as dist, rushmem, rushmem.torch as rt
with rushmem.init() as world:
    rt.use(world)
    os.write(1, f"PE {world.my_pe}: sum {rt.all_reduce(torch.tensor([world.my_pe + 1.0])).item()}\\n".encode())
"""
BESIDE = """
import os, torch, torch.distributed as dist, rushmem, rushmem.torch as rt
dist.init_process_group("gloo")
me, n = dist.get_rank(), dist.get_world_size()
one = torch.arange(4.0) + me
dist.all_reduce(one)
# Of the default group, twice; of a group of its last member and of those before, each a world.
for _ in range(2):
    with rt.init() as world:
        assert (world.my_pe, world.n_pes) == (me, n)
        assert torch.equal(rt.all_reduce(torch.arange(4.0) + me), one)
groups = [dist.new_group(list(range(n - 1))), dist.new_group([n - 1])]
mine = groups[me == n - 1]
with rt.init(mine) as world:
    assert world.n_pes == dist.get_world_size(mine) and world.my_pe == dist.get_rank(mine)
    total = rt.all_reduce(torch.tensor([2.0 ** me]))
    dist.all_reduce(check := torch.tensor([2.0 ** me]), group=mine)
    assert torch.equal(total, check)
try:
    rt.init(groups[me != n - 1])
    raise SystemExit("no error")
except (rushmem.InvalidArgument, ValueError) as error:
    assert "member" in str(error) or "part of group" in str(error), error
# A store: the default group's own.
with rushmem.init_from_store(dist.distributed_c10d._get_default_store(), me, n, key="ours") as world:
    rt.use(world)
    assert torch.equal(rt.all_reduce(torch.arange(4.0) + me), one)
dist.destroy_process_group()
os.write(1, f"PE {me}: good\\n".encode())
"""


@pytest.mark.parametrize("launcher", ["torchrun", "rushmem-run", "openmpi", "mpich"])
def test_launchers(launcher, tmp_path):
    command = [RUN, "-n", "2", "--"]
    if launcher == "torchrun":
        command = torchrun(2)
    elif launcher != "rushmem-run":
        mpirun = shutil.which(f"mpirun.{launcher}")
        if not mpirun or not (RUN.parent.parent / "lib" / f"librushmem_bootstrap_{launcher}.so").exists():
            pytest.skip(f"no mpirun.{launcher}, or no plug-in for it in this package")
        more = ["--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", "sh"] if launcher == "openmpi" else []
        command = [mpirun, *more, "-n", "2"]
    code, text = job(SUM, tmp_path, *command)
    assert code == 0 and text.count(": sum 3.0") == 2, text


def test_worlds_of_torchrun_s_process_groups(tmp_path):
    code, text = job(BESIDE, tmp_path, *torchrun(3))
    assert code == 0 and text.count(": good") == 3, text


FAILS = """
import os, sys, torch, rushmem, rushmem.torch as rt
world = rt.init()
again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for i in range(20):
    if again == 0 and world.my_pe == 1 and i == 10:
        raise ValueError("no more soup")
    rt.all_reduce(x := torch.ones(1000))
rt.finalize()
os.write(1, f"PE {world.my_pe}: round {again}\\n".encode())
"""


def test_torchrun_starts_workers_again(tmp_path):
    code, text = job(FAILS, tmp_path, *torchrun(2, "--max-restarts=1"))
    assert code == 0 and text.count(": round 1") == 2 and "no more soup" in text, text


# --- the page's blocks --------------------------------------------------------------------------------------


def test_the_page_s_blocks_with_torch(tmp_path):
    texts = [text for heading, _, text in test_docs.blocks() if heading == "An all-reduce"]
    if not texts:
        pytest.skip("no docs/python.md beside the tests")
    first, second = texts
    # The second block comes before the end of the first one's job.
    body = first.replace("rt.finalize()", "assert (x == sum(range(rt.world().n_pes))).all()\n") + second
    body += "assert (inbox == 1).all()\nrt.finalize()\nprint('good')\n"
    code, text = job(body, tmp_path, RUN, "-n", "2", "--")
    assert code == 0 and text.count("good") == 2, text
