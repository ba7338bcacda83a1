"""The record of a run: its totals, its file, several made one.

A record is kept in git, so it is small: every test with its verdict and seconds, and of failures the end of the output.
"""

import json
import pathlib
import re

TAILS = 40_000  # characters of failures' output in one record


def say(text=""):
    print(text, flush=True)


def settle(group):
    """Counts, and whether the group went well."""
    if "skipped" in group:
        return group
    verdicts = [verdict for verdict, _ in group["results"].values()]
    group["passed"], group["tests_skipped"] = verdicts.count("ok"), verdicts.count("skip")
    group["not_passed"] = len(verdicts) - group["passed"] - group["tests_skipped"]
    group["ok"] = group["exit_code"] == 0 and not group["not_passed"]
    return group


def totals(record):
    groups = record["groups"].values()
    ran = [group for group in groups if "skipped" not in group]
    record["passed"] = sum(group["passed"] for group in ran)
    record["tests_skipped"] = sum(group["tests_skipped"] for group in ran)
    record["not_passed"] = sum(group["not_passed"] for group in ran)
    skipped = {name: group["skipped"] for name, group in record["groups"].items() if "skipped" in group}
    record["groups_skipped"] = skipped
    record["ok"] = all(group["ok"] for group in ran)
    return record


def write(record, path):
    """Writes the file, with no more of the failures' output than belongs into it."""
    failed = sum(len(group.get("failures", {})) for group in record["groups"].values())
    room = min(3000, TAILS // max(failed, 1))
    for group in record["groups"].values():
        for test, text in group.get("failures", {}).items():
            group["failures"][test] = text.strip()[-room:]
    text = json.dumps(record, indent=1)
    # A test with its verdict and its seconds is one line.
    text = re.sub(r"\[\s+(\"[a-z ]+\"),\s+([\d.]+)\s+\]", r"[\1, \2]", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def portable(line):
    """A command line whose paths are names alone: where a run's files lay is nobody's business."""
    return " ".join(pathlib.PurePath(word).name if word.startswith("/") else word for word in line.split(" "))


def merge(paths, into):
    """One record of several runs of the same build on the same machines; where two ran a group, the later counts."""
    records = [json.loads(pathlib.Path(path).read_text()) for path in paths]
    same = {json.dumps([r["commit"], r["tree"], r["host"]["gpus"]]) for r in records}
    if len(same) > 1:
        raise SystemExit("run: these records are of different builds or machines:\n" + "\n".join(sorted(same)))
    whole = records[-1]
    groups = {}
    for record in records:
        for name, group in record["groups"].items():
            if name not in groups or "skipped" in groups[name] or "skipped" not in group:
                groups[name] = group
    whole["groups"] = groups
    whole["commands"] = [portable(line) for record in records for line in record["commands"]]
    write(totals(whole), pathlib.Path(into))
    summary(whole)


def summary(record):
    say(f"\ncommit {record['commit']}")
    for name, group in record["groups"].items():
        if "skipped" in group:
            say(f"  SKIP {name}: {group['skipped']}")
        else:
            mark = "ok    " if group["ok"] else "FAILED"
            say(f"  {mark} {name}: {counts(group)}, {group['seconds']} s")
    say(f"{counts(record)}; {len(record['groups_skipped'])} groups skipped")


def counts(of):
    return f"{of['passed']} passed, {of['tests_skipped']} skipped, {of['not_passed']} failed or not run"


def show(name, group):
    """A group that has just ended."""
    if "skipped" in group:
        return say(f"SKIP {name}: {group['skipped']}")
    verdict = "ok" if group["ok"] else "FAILED"
    say(f"{verdict} {name}: {counts(group)}, {group['seconds']} s")
    for line in group["skips"]:
        say(f"  {line}")
    for line in group["left_behind"]:
        say(f"  left behind and killed: {line}")
    for test, (verdict, seconds) in group["results"].items():
        if verdict not in ("ok", "skip"):
            say(f"  {verdict} after {seconds} s: {test}")
    # The ends of the first few: the reader may have nothing but this output.
    for test, text in list(group["failures"].items())[:3]:
        say(f"  --- {test}\n" + "\n".join(f"  | {line}" for line in text.strip()[-1000:].splitlines()))
