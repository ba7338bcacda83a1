"""Runs the groups of groups.toml: tests, by nextest, or commands. What comes back goes into the record.
"""

import json
import os
import platform
import re
import string
import subprocess
import time
import xml.etree.ElementTree

from machine import gpus, lacking, run_limited

MPIRUN = "--allow-run-as-root --oversubscribe --mca plm_rsh_agent sh --mca btl self,vader --mca pml ob1"
# What launchers (and cargo) leave: the tests are jobs of their own.
LAUNCHERS = (
    *("RUSHMEM_", "OMPI_", "PMI", "PMIX_", "SLURM_", "HYD", "TORCHELASTIC_", "MASTER_", "LOCAL_", "RANK", "WORLD_SIZE"),
    *("NEXTEST", "CARGO"),
)


class Bundle:
    """The bundle in `folder`, run in `work`; what commands want to keep goes to `results`."""

    def __init__(self, folder, work, results, extra):
        self.folder, self.work = folder, work
        self.tests = folder / "tests"
        path = [str(folder / "bin"), str(folder / "ucx"), os.environ.get("PATH", "/usr/bin:/bin")]
        path += [place for place in ("/usr/local/cuda/bin", "/usr/sbin", "/sbin") if os.path.isdir(place)]
        env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        env.update(
            PATH=":".join(path),
            RUST_BACKTRACE="1",
            RUSHMEM_CACHE_DIR=str(work / "cache"),
            NEXTEST_USER_CONFIG_FILE="none",
            RESULTS=str(results),
            MPIRUN=f"mpirun {MPIRUN}",
            BASELINE=f"--compare {folder / 'baseline'}" if (folder / "baseline").is_dir() else "",
        )
        env.update(extra)
        env.setdefault("HOME", str(work))
        # A driver's or a compiler's thread that dies says where.
        env.setdefault("RUSHMEM_CRASH_REPORT", "all")
        self.env = env

    def nextest(self, verb, *options):
        """A command line of nextest's about the bundle's tests, which lie as cargo has built them."""
        target = self.tests / "target"
        return [
            *(self.tests / "cargo-nextest", "nextest", verb),
            *("--cargo-metadata", target / "nextest/cargo-metadata.json"),
            *("--binaries-metadata", target / "nextest/binaries-metadata.json"),
            *("--target-dir-remap", target, "--workspace-remap", self.tests / "tree"),
            *options,
        ]

    def environment(self, group):
        """The environment of a group: $BUNDLE is the bundle's folder, other names what this process has."""
        env = dict(self.env)
        known = {**self.env, "BUNDLE": str(self.folder)}
        for name, value in group.get("env", {}).items():
            places = re.findall(r"\$BUNDLE/([^:$]*)", value)
            # What a bundle may lack; then the machine's own has to do.
            if all((self.folder / place).exists() for place in places):
                env[name] = string.Template(value).safe_substitute(known, **{name: self.env.get(name, "")}).rstrip(":")
        return env

    def wrapped(self, name, program, env):
        """A runner for nextest that puts a program before a test, but not before the listing of tests."""
        runner = self.work / f"wrap-{name}"
        listing = 'case " $* " in *" --list "*) exec "$@" ;; esac'
        runner.write_text(f'#!/usr/bin/env bash\n{listing}\nexec {program} "$@"\n')
        runner.chmod(0o755)
        return {**env, f"CARGO_TARGET_{platform.machine().upper()}_UNKNOWN_LINUX_GNU_RUNNER": str(runner)}

    def run(self, name, group, limit, log):
        env = self.environment(group)
        found = {"what": group["what"], "env": group.get("env", {})}
        why = lacking(group.get("needs", []), env)
        if why:
            return {**found, "skipped": why}
        if "tests" in group:
            program = group.get("wrap")
            if program:
                env = self.wrapped(name, program, env)
                found["wrap"] = program
            found["tests_filter"] = group["tests"]
            found.update(self.run_tests(name, group, env, limit, log))
        else:
            found.update(self.run_commands(group, env, limit, log))
        found["gpu_memory_used_after_mib"] = [int(used) for used in gpus("memory.used") if used.isdigit()]
        return found

    def run_commands(self, group, env, limit, log):
        results, failures, code, left, started = {}, {}, 0, [], time.monotonic()
        for command in group["commands"]:
            rest = limit - (time.monotonic() - started)
            if rest < 1:
                results[command], code = ["not run", 0], 124
                continue
            begin = log.tell()
            one, seconds, behind = run_limited(command, env, self.folder, log, min(rest, group.get("each", 60)))
            left += behind
            results[command] = ["ok" if one == 0 else "timeout" if one == 124 else "failed", seconds]
            if one:
                code = one
                with open(log.name, "rb") as text:
                    text.seek(begin)
                    failures[command] = text.read().decode(errors="replace")
        return {
            "exit_code": code, "seconds": round(time.monotonic() - started, 1), "left_behind": left, "skips": [],
            "results": results, "failures": failures,
        }  # fmt: skip

    def options(self, name, group):
        """Nextest's options for a group."""
        config = self.work / f"{name}.toml"
        patience = f"period = '{group.get('each', 60)}s', terminate-after = 1, grace-period = '5s'"
        config.write_text(
            # By default the store lies in the source tree, which may be read-only.
            f"[store]\ndir = '{self.work / 'store'}'\n"
            f"[profile.default]\nretries = 0\nfail-fast = false\nleak-timeout = '2s'\nslow-timeout = {{ {patience} }}\n"
            f"[profile.default.junit]\npath = '{name}.xml'\nstore-success-output = true\n"
        )
        return ["--config-file", config, "-E", group["tests"]]

    def listed(self, options):
        """The tests of a group, or why nextest sees none."""
        command = self.nextest("list", *options, "--message-format", "json")
        done = subprocess.run(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        suites = json.loads(done.stdout)["rust-suites"] if done.returncode == 0 else {}
        tests = [
            f"{suite} {test}"
            for suite, found in suites.items()
            for test, about in found.get("testcases", {}).items()
            if about["filter-match"]["status"] == "matches"
        ]
        return tests, "" if tests else done.stderr or "its filter matches no test"

    def run_tests(self, name, group, env, limit, log):
        started = time.monotonic()
        options = self.options(name, group)
        expected, wrong = self.listed(options)
        if not expected:
            return {**nothing("no tests"), "failures": {group["tests"]: wrong}}
        junit = self.work / f"store/default/{name}.xml"
        command = self.nextest("run", *options, "-j", str(group.get("threads", 1)), "--no-input-handler")
        command += ["--color", "never", "--status-level", "all"]
        command += ["--success-output", "never", "--failure-output", "immediate"]
        begin = log.tell()
        rest = limit - (time.monotonic() - started)
        code, seconds, left = run_limited(command, env, self.folder, log, rest)
        results, failures, skips, complaints = self.read_junit(junit)
        if not results:  # it could not even write its report: its output says what had ended
            with open(log.name, "rb") as text:
                text.seek(begin)
                results = from_output(text.read().decode(errors="replace"))
        for test in expected:
            results.setdefault(test, ["not run", 0])
        return {
            "exit_code": code, "seconds": seconds, "left_behind": left, "skips": skips,
            "results": results, "failures": failures,
            **({"sanitizer_errors": complaints} if group.get("wrap") else {}),
        }  # fmt: skip

    def read_junit(self, path):
        """What nextest's report says: verdicts, output of failures, skips, a sanitizer's error count."""
        results, failures, skips, complaints = {}, {}, [], 0
        try:
            cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
        except (OSError, xml.etree.ElementTree.ParseError):
            cases = []
        for case in cases:
            name = f"{case.get('classname')} {case.get('name')}"
            wrong = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            text = "\n".join(part.text or "" for part in case.iter() if part.tag in ("system-out", "system-err"))
            found = sum(map(int, re.findall(r"ERROR SUMMARY: (\d+) error", text)))
            complaints += found
            verdict = "ok"
            if wrong is not None:
                kind = wrong.get("type", "failed")
                verdict = "timeout" if "timeout" in kind else "failed"
                failures[name] = f"{digest(text)}\n{kind}: {wrong.get('message', '')}"
            elif found:
                verdict = "failed"
                failures[name] = digest(text)
            results[name] = [verdict, round(float(case.get("time", 0)), 2)]
            said = [line.strip()[:200] for line in text.splitlines() if line.strip().startswith("SKIP ")]
            skips += said
            # A test says its own name when it did nothing at all, another when it left out a part.
            if verdict == "ok" and any(line.startswith(f"SKIP {name.rpartition('::')[2]}:") for line in said):
                results[name][0] = "skip"
        return results, failures, sorted(set(skips)), complaints


def nothing(why):
    """A group that should have run and did not."""
    return {"exit_code": 124, "seconds": 0, "left_behind": [], "skips": [why], "results": {}, "failures": {}}


def digest(text):
    """A failure's output without what every PE says; a sanitizer's complaints come last, to be kept."""
    seed = re.compile(r"\[pes?( \d+)?\] RUSHMEM_TEST_SEED")
    lines = [line for line in text.splitlines() if line.strip() and not seed.match(line)]
    complaints = [line for line in lines if "=========" in line]
    return "\n".join([line for line in lines if "=========" not in line] + complaints[:40])


def from_output(text):
    """Verdicts from nextest's lines, for when it was killed before it wrote its report."""
    verdicts = {"PASS": "ok", "LEAK": "ok", "FAIL": "failed", "TIMEOUT": "timeout", "TERMINATING": "timeout"}
    found = {}
    line = re.compile(r"^ *([A-Z]+) \[ *>? *([\d.]+)s\] (?:\( *\d+/\d+\) )?(\S+ \S+)$", re.M)
    for verdict, seconds, test in line.findall(text):
        if verdict in verdicts:
            found[test] = [verdicts[verdict], float(seconds)]
    return found
