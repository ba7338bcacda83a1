"""The machine under a GPU bundle: what it has, and how programs run on it so that none stays behind.

nvidia-smi is asked rather than the driver: opening the driver in this process would leave a context's traces
in it.
"""

import ctypes
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import time

GRACE = 12  # seconds from asking a program to end to killing it; nextest gives its tests 10 of them


def output(*command):
    """What a program prints; nothing if there is no such program or it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def gpus(fields="name"):
    """One line for each GPU."""
    table = output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return [line.strip() for line in table.splitlines()]


def first(pattern, text):
    found = re.search(pattern, text, re.M)
    return found[1].strip() if found else None


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def host():
    """What a reader of the record wants to know of the machine."""
    names = ("name", "driver", "memory_mib", "compute")
    query = gpus("name,driver_version,memory.total,compute_cap")
    memory = first(r"^MemTotal:\s+(\d+)", read("/proc/meminfo"))
    topology = [line.split() for line in output("nvidia-smi", "topo", "-m").splitlines() if line.startswith("GPU")]
    return {
        "gpus": [dict(zip(names, line.split(", "))) for line in query],
        "links": {row[0]: row[1 : 1 + len(query)] for row in topology} if len(query) > 1 else {},
        "cuda": {
            "driver": first(r"CUDA Version: ([\d.]+)", output("nvidia-smi")),
            "toolkit": first(r"release ([\d.]+)", output("nvcc", "--version")),
        },
        "mpi": first(r"(.+)", output("mpirun", "--version")),
        "system": first(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release")),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "processor": first(r"^model name\s*: (.*)", read("/proc/cpuinfo")) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": int(memory) >> 20 if memory else None,
    }


def lacking(needs, env):
    """Why a group cannot run here, if it cannot."""
    for need in needs:
        kind, _, number = need.partition(":")
        if kind in ("gpu", "gpus"):
            found, wanted = len(gpus()), int(number or 1)
            if found < wanted:
                return f"{found} GPUs here, {wanted} needed" if found else "nvidia-smi finds no GPU"
        elif not shutil.which(need, path=env["PATH"]):
            return f"no {need} in PATH"
    return None


def adopt_orphans():
    """Adopts orphans of our processes (PR_SET_CHILD_SUBREAPER): none escapes by a session of its own."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def descendants():
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        fields = read(stat).rpartition(")")[2].split()
        if len(fields) > 1 and fields[0] not in "ZX":
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, new = [], [os.getpid()]
    while new:
        children = parents.get(new.pop(), [])
        found += children
        new += children
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_everything():
    """Kills what is left of our processes; returns their command lines."""
    left = {}
    for patience in range(50):
        reap()
        alive = descendants()
        if not alive:
            break
        if patience >= 10:  # those that are ending anyway have had a second
            for pid in alive:
                left.setdefault(pid, read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:120])
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.1)
    return sorted({line for line in left.values() if line})[:10]


def run_limited(command, env, cwd, log, limit):
    """Runs `command`, output to `log`. Returns exit code (124: over its limit), seconds, processes left."""
    started = time.monotonic()
    log.write(f"\n$ {command if isinstance(command, str) else ' '.join(map(str, command))}\n".encode())
    log.flush()
    line = ["bash", "-euo", "pipefail", "-c", command] if isinstance(command, str) else command
    child = subprocess.Popen(
        line, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        code = child.wait(timeout=max(limit, 1))
        left = end_everything()
    except subprocess.TimeoutExpired:
        code = 124
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        end_everything()
        left = []
    except BaseException:
        child.kill()
        child.wait()
        end_everything()
        raise
    return code, round(time.monotonic() - started, 2), left
