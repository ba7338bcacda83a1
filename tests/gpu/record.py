"""The record of a run: its totals, its file, several made one, and what of them is kept in git.

A record has every test with its verdict and seconds, and of failures the end of the output. A *summary* has a
line for each group: the latest result on that kind of machine, what did not pass, and then also the latest
run that was whole: nothing failed, nothing was left over.
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
    """One record of several runs of one build on the same machines; a group's later run counts."""
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


def summarise(paths, into):
    """Puts these records into a summary, group by group; groups that they did not run stay as they are."""
    records = sorted((json.loads(pathlib.Path(path).read_text()) for path in paths), key=lambda r: r["date"])
    into = pathlib.Path(into)
    known = json.loads(into.read_text()) if into.exists() else {"groups": {}}
    groups = known["groups"]
    for record in records:
        host, gpus = record["host"], record["host"]["gpus"]
        names = [gpu["name"] for gpu in gpus]
        machine = f"{len(gpus)} x {names[0]}, driver {gpus[0]['driver']}, {host['system']}" if gpus else host["system"]
        if known.setdefault("machine", machine).split(", driver")[0] != machine.split(", driver")[0]:
            raise SystemExit(f"run: {into.name} is of {known['machine']}, not of {machine}")
        known["machine"] = machine
        for name, group in record["groups"].items():
            if "skipped" in group or not group["results"]:
                continue
            if name in groups and groups[name]["date"] > record["date"]:
                continue
            verdicts = {test: verdict for test, (verdict, _) in group["results"].items()}
            bad = [f"{test}: {v}" for test, v in verdicts.items() if v not in ("ok", "skip", "not run")]
            left = list(verdicts.values()).count("not run")
            before = groups.get(name, {})
            groups[name] = one = {
                "commit": record["commit"][:12] + ("+changes" if "+" in record["commit"] else ""),
                "date": record["date"], "seconds": round(group["seconds"]), "passed": group["passed"],
                "skipped": group["tests_skipped"], "bad": bad, "not run": left,
            }  # fmt: skip
            last = whole(before) if before else None
            if last and not whole(one):
                one["whole"] = {key: last[key] for key in ("commit", "date", "passed")}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(group)}" for name, group in sorted(groups.items()))
    text = f'{{\n "machine": {json.dumps(known["machine"])},\n "groups": {{\n{lines}\n }}\n}}\n'
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(text)
    say(f"{into}: {len(groups)} groups on {known['machine']}")


def whole(group):
    """The latest whole run that a summary's line tells of, or None."""
    if group["passed"] and not group["bad"] and not group["not run"]:
        return group
    return group.get("whole")


def state(paths, names):
    """Says of each group when it was last run whole on GPUs, on which, and what has not passed since. Groups
    that are no longer among `names` come last."""
    summaries = {pathlib.Path(path).stem: json.loads(pathlib.Path(path).read_text())["groups"] for path in paths}
    gone = sorted({name for groups in summaries.values() for name in groups} - set(names))
    for title, some in (("", names), ("\nno longer groups, or parts of one", gone)):
        if title and some:
            say(title)
        for name in some:
            runs = [(machine, groups[name]) for machine, groups in summaries.items() if name in groups]
            best = max(
                ((run["date"], run, machine) for machine, group in runs if (run := whole(group))),
                key=lambda it: it[0], default=None,
            )  # fmt: skip
            line = "never whole"
            if best:
                date, run, machine = best
                line = f"{date[:10]} {run['commit'][:8]} {machine}: {run['passed']} passed"
            later = [
                f"{group['date'][:10]} {group['commit'][:8]} {machine}: {group['passed']} passed, "
                f"{len(group['bad'])} bad, {group['not run']} not run"
                for machine, group in sorted(runs, key=lambda it: it[1]["date"])
                if not (group["passed"] and not group["bad"] and not group["not run"])
                and (not best or group["date"] > best[0])
            ]  # fmt: skip
            say(f"{name:26} {line}" if runs else f"{name:26} never run")
            for other in later:
                say(f"{'':26}   {other}")


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
