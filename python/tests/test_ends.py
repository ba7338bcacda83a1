"""How a PE ends: in good order, by an exception, by a signal, without a word; children of fork; threads."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import rushmem
from conftest import ON_GPU
from rushmem.testing import Failed, run

RUN = Path(rushmem.__file__).parent / "bin" / "rushmem-run"


def job(n, program, timeout=60, interpreter=("-c",)):
    """A program's exit code and text under rushmem-run, and how long it took."""
    if not RUN.exists():
        pytest.skip("no rushmem-run in this package")
    begin = time.monotonic()
    done = subprocess.run(
        [RUN, "-n", str(n), "--", sys.executable, *interpreter, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=timeout,
    )
    return done.returncode, done.stdout, time.monotonic() - begin


def test_an_end_without_finalize_is_quiet():
    code, text, _ = job(3, "import rushmem; w = rushmem.init(); a = w.empty(3); w.barrier_all(); print('fine')")
    assert code == 0 and text.count("fine") == 3 and "rushmem [" not in text, text


@pytest.mark.skipif(ON_GPU, reason="numpy's view of an array is the host's")
def test_an_end_with_finalize_and_arrays_alive():
    code, text, _ = job(
        2, "import rushmem, numpy; w = rushmem.init(); a = w.empty(3); n = numpy.asarray(a); w.finalize(); n[:] = 1; print(n)"
    )
    assert code == 0 and text.count("[1. 1. 1.]") == 2, text


def test_an_exception_ends_the_job_at_once_by_name():
    program = """
import os, rushmem, time
world = rushmem.init()
world.barrier_all()
if world.my_pe == 1:
    raise ValueError("no more soup")
try:
    world.barrier_all()
except rushmem.PeerDead as error:
    # One write: the launcher puts the lines of PEs together as they come.
    os.write(1, f"PE {world.my_pe} reads: {error}\\n".encode())
    raise SystemExit(3)
"""
    code, text, took = job(3, program)
    assert code != 0 and took < 30
    assert text.count("its program raised ValueError: no more soup") >= 2, text
    for pe in (0, 2):
        assert f"PE {pe} reads:" in text, text
    assert text.count("raised ValueError: no more soup (RUSHMEM_ERR_PEER_DEAD)") == 2, text


def test_an_exception_in_the_middle_of_a_collective_on_one_rank():
    program = """
import rushmem, numpy
with rushmem.init() as world:
    for i in range(1000):
        if world.my_pe == 2 and i == 500:
            {}["missing"]
        world.team.reduce(numpy.ones(1000))
"""
    code, text, took = job(3, program)
    assert code != 0 and took < 30 and "KeyError: 'missing'" in text, text
    assert text.count("PeerDead") >= 2 or text.count("RUSHMEM_ERR_PEER_DEAD") >= 2, text


def test_exits_and_threads_that_wait():
    good = "import rushmem, sys\nwith rushmem.init() as world:\n    world.barrier_all()\n    sys.exit({})"
    code, text, _ = job(2, good.format("0"))
    assert code == 0 and not text, text
    code, text, _ = job(2, good.format("3"))
    assert code == 3, (code, text)
    program = """
import rushmem, threading
world = rushmem.init()
flag = world.signals()
def wait():
    try:
        flag.wait_until("==", 1)
    except rushmem.Error:
        pass
threading.Thread(target=wait, daemon={daemon}).start()
world.barrier_all()
{end}
"""
    code, text, took = job(2, program.format(daemon=True, end="print('over')"))
    assert code == 0 and text.count("over") == 2 and took < 15, text
    code, text, took = job(2, program.format(daemon=False, end="1 / 0"))
    assert code == 1 and "ZeroDivisionError" in text and took < 15, text


def test_a_world_that_is_dropped_ends_the_job():
    program = """
import rushmem, time
world = rushmem.init()
if world.my_pe == 0:
    del world
    time.sleep(20)
else:
    world.barrier_all()
"""
    code, text, took = job(2, program)
    assert code != 0 and took < 15 and "dropped without finalize()" in text, text


def interrupted(program, ready="ready"):
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    try:
        # Python 3.12 and later warn of a fork first.
        lines = [process.stdout.readline()]
        while lines[-1] and ready not in lines[-1]:
            lines.append(process.stdout.readline())
        assert ready in lines[-1], lines
        time.sleep(0.2)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
        return process.returncode, rest, time.monotonic() - begin
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "wait",
    [
        "flag.wait_until('==', 1)",
        "flag.signal_wait_until('==', 1)",
        "flag.wait_until_all('==', 1)",
        "flag.wait_until('==', 1, stream=stream); stream.synchronize()",
        "flag.wait_until('==', 1, stream=stream); world.synchronize()",
    ],
)
def test_ctrl_c_ends_a_wait(wait):
    program = f"""
import rushmem
world = rushmem.init()
flag, stream = world.signals(), world.stream()
print("ready", flush=True)
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
flag.p(1, 0)
stream.synchronize()
print("and on", flag.g(0))
world.finalize()
"""
    code, text, took = interrupted(program)
    assert code == 0 and "interrupted" in text and "and on 1" in text and took < 5, (code, text)


def test_ctrl_c_ends_a_collective_and_the_join():
    program = """
import rushmem, os, signal
uid = rushmem.uid()
if os.fork() == 0:
    with rushmem.init(uid=uid, rank=1, n_pes=2) as world:
        try:
            world.signals().wait_until("==", 1)
        except rushmem.PeerDead as error:
            print("the other reads:", error, flush=True)
            world.abort("over")
    os._exit(0)
with rushmem.init(uid=uid, rank=0, n_pes=2) as world:
    world.signals()
    print("ready", flush=True)
    world.barrier_all()
"""
    code, text, took = interrupted(program)
    assert code == -signal.SIGINT and took < 30, (code, text)
    assert "the other reads:" in text and "its program raised KeyboardInterrupt (RUSH" in text, text
    program = """
import rushmem
print("ready", flush=True)
rushmem.init(uid=rushmem.uid(), rank=0, n_pes=2, timeout=60)
"""
    code, text, took = interrupted(program)
    assert code != 0 and "KeyboardInterrupt" in text and took < 20, (code, text)


def forks(world):
    a = world.empty(4, "int64")
    a.put(numpy.arange(4), world.my_pe)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in [
            lambda: a.put(numpy.arange(4), 0), lambda: world.barrier_all(), lambda: a.__dlpack__(), lambda: world.empty(1),
            lambda: rushmem.init(), lambda: world.finalize(), lambda: a[0].atomic_add(1, 0),
        ]:
            try:
                call()
                texts.append("no error")
            except rushmem.Forked as error:
                texts.append("forked" if "was forked from PE" in str(error) else str(error))
            except BaseException as error:
                texts.append(repr(error))
        os.write(write, "|".join(texts).encode())
        os._exit(0)
    os.waitpid(child, 0)
    texts = os.read(read, 4096).decode().split("|")
    world.barrier_all()
    return texts, a.get(world.my_pe).tolist()


def test_a_child_of_fork_is_refused_and_the_parent_goes_on():
    for texts, data in run(2, forks):
        assert texts == ["forked"] * 7 and data == [0, 1, 2, 3]


def threads(world):
    """Waits of some threads leave the interpreter to the others."""
    flags, seen = world.signals(4), []
    waiting = [threading.Thread(target=lambda i=i: seen.append(flags[i].signal_wait_until(">=", 5))) for i in range(4)]
    for thread in waiting:
        thread.start()
    for i in range(4):
        for pe in range(world.n_pes):
            flags[i].atomic_add(5, pe)
    for thread in waiting:
        thread.join(20)
    return sorted(seen)[0] >= 5 and len(seen) == 4


def test_threads_wait_without_the_gil():
    assert run(2, threads) == [True, True]


def test_pes_may_be_threads():
    data = {}

    def body(world, offset):
        a = world.empty(10, "int64")
        a.put(numpy.full(10, world.my_pe + offset), (world.my_pe + 1) % world.n_pes)
        world.barrier_all()
        data[world.my_pe] = a.get(world.my_pe).tolist()
        return world.my_pe

    assert run(3, body, 7, threads=True) == [0, 1, 2]
    assert data == {pe: [(pe - 1) % 3 + 7] * 10 for pe in range(3)}


def test_an_abort_ends_other_threads_waits(world):
    flag, errors = world.signals(), []

    def wait():
        try:
            flag.wait_until("==", 1)
        except rushmem.Error as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    with pytest.raises(rushmem.Busy, match="another thread is inside"):
        world.finalize()
    world.abort("enough")
    thread.join(10)
    assert not thread.is_alive() and len(errors) == 1 and isinstance(errors[0], (rushmem.Interrupted, rushmem.PeerDead)), errors
    with pytest.raises(rushmem.BadHandle, match="aborted: enough"):
        world.barrier_all()


def fails(world):
    if world.my_pe == 1:
        raise ValueError("PE 1 gives up")
    world.barrier_all()


def dies(world):
    if world.my_pe == 0:
        os._exit(7)
    world.barrier_all()


def sleeps(world):
    if world.my_pe == 1:
        time.sleep(60)


def test_run_says_which_pe_was_first():
    with pytest.raises(Failed, match="PE 1 failed:") as failed:
        run(3, fails)
    assert failed.value.first == 1 and "PE 1 gives up" in failed.value.errors[0]
    with pytest.raises(Failed, match="exit code 7"):
        run(2, dies)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="of 2 did not end within 1"):
        run(2, sleeps, timeout=1)
    assert time.monotonic() - begin < 10


def both(world, others):
    """A second world beside the first."""
    with rushmem.init(uid=others, rank=world.my_pe, n_pes=world.n_pes) as second:
        a, b = world.empty(1, "int64"), second.empty(1, "int64")
        a.p(1, 0)
        b.p(2, 0)
        second.barrier_all()
        world.barrier_all()
        return a.g(0), b.g(0)


def test_a_process_has_several_worlds():
    assert run(2, both, rushmem.uid()) == [(1, 2)] * 2
