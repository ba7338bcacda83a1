"""deny.toml's rules for dependencies, from what cargo says of them: bans, licences, sources.

cargo-deny checks the same and more, but takes minutes of two cores to be built. scripts/deny uses it where it
is installed, or asked for. A key of deny.toml that is not known here is an
error, so that no rule is dropped in silence.

    python3 scripts/deny_rules.py               checks
    python3 scripts/deny_rules.py --selftest    each rule finds what is planted, and nothing else
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES_IO = ("registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/")
# Keys, and the values that are meant here; None: any.
KNOWN = {
    "graph": {"targets": None, "all-features": True},
    "licenses": {"allow": None, "unused-allowed-license": "allow", "private": {"ignore": True}},
    "bans": {"multiple-versions": "allow", "wildcards": "deny", "allow-wildcard-paths": True, "deny": None},
    "sources": {"unknown-registry": "deny", "unknown-git": "deny"},
    "advisories": {"ignore": None},
}


def unknown(rules: dict) -> list[str]:
    """Rules that mean something which is not checked here."""
    found = []
    for section, keys in rules.items():
        for key, value in keys.items():
            meant = KNOWN.get(section, {}).get(key, "no such key")
            if meant is not None and meant != value:
                found.append(f"deny.toml [{section}] {key} = {value!r}: deny_rules.py does not know that")
    for ban in rules.get("bans", {}).get("deny", []):
        if set(ban) - {"crate", "wrappers"}:
            found.append(f"deny.toml [bans] deny {ban}: deny_rules.py knows crate and wrappers")
    return found


def allowed(expression: str, allow: list[str]) -> bool:
    """Whether an SPDX expression can be met by allowed licences: OR binds weaker than AND."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def one() -> bool:
        word = words.pop(0)
        if word == "(":
            value = either()
            if words.pop(0) != ")":
                raise ValueError(expression)
            return value
        if words and words[0] == "WITH":
            word = f"{word} {words.pop(0)} {words.pop(0)}"
        return word in allow

    def both() -> bool:
        value = one()
        while words and words[0] == "AND":
            words.pop(0)
            value = one() and value
        return value

    def either() -> bool:
        value = both()
        while words and words[0] == "OR":
            words.pop(0)
            value = both() or value
        return value

    value = either()
    if words:
        raise ValueError(expression)
    return value


def licence(package: dict, allow: list[str]) -> str | None:
    """What is wrong with a package's licence."""
    said = package["license"]
    try:
        if said and allowed(said, allow):
            return None
    except (ValueError, IndexError):
        return f"licence {said!r} is no SPDX expression"
    return f"licence {said!r} is not allowed" if said else "has no licence by name"


def carried(graph: dict) -> set[str]:
    """What is built into what we ship, or builds it: all but what only tests use. cargo-deny, too, looks at
    the licences of these alone."""
    edges = {
        node["id"]: [to["pkg"] for to in node["deps"] if any(kind["kind"] != "dev" for kind in to["dep_kinds"])]
        for node in graph["resolve"]["nodes"]
    }
    seen, left = set(), list(graph["workspace_members"])
    while left:
        if (one := left.pop()) not in seen:
            seen.add(one)
            left += edges[one]
    return seen


def wrong(rules: dict, graph: dict, root: Path) -> list[str]:
    """All that a graph of `cargo metadata` has against the rules."""
    packages = {package["id"]: package for package in graph["packages"]}
    found, users, shipped = [], {}, carried(graph)
    for node in graph["resolve"]["nodes"]:
        for dependency in node["deps"]:
            users.setdefault(packages[dependency["pkg"]]["name"], set()).add(packages[node["id"]]["name"])
    for node in graph["resolve"]["nodes"]:
        package = packages[node["id"]]
        name, source = f"{package['name']} {package['version']}", package["source"]
        private = source is None and package["publish"] == []
        if node["id"] in shipped and not private and (why := licence(package, rules["licenses"]["allow"])):
            found.append(f"{name}: {why}")
        if source is None:
            if not Path(package["manifest_path"]).is_relative_to(root):
                found.append(f"{name}: comes from {package['manifest_path']}, outside this tree")
        elif source not in CRATES_IO:
            found.append(f"{name}: comes from {source}, not from crates.io")
        for dependency in package["dependencies"]:
            # A path alone is fine where the package stays at home, or leaves the dependency at home.
            path = dependency.get("path") and (private or dependency["kind"] == "dev")
            if source is None and dependency["req"] == "*" and not path:
                found.append(f"{name}: takes any version of {dependency['name']}")
    for ban in rules["bans"].get("deny", []):
        for user in sorted(users.get(ban["crate"], set()) - set(ban.get("wrappers", []))):
            found.append(f"{user}: may not depend on {ban['crate']}")
    return found


def metadata(target: str) -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=300).stdout)


def selftest() -> None:
    allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
    for text, good in {
        "MIT": True, "GPL-3.0": False, "MIT OR GPL-3.0": True, "MIT AND GPL-3.0": False, "GPL-3.0/MIT": True,
        "(MIT OR GPL-3.0) AND Apache-2.0": True, "GPL-3.0 OR MIT AND GPL-2.0": False, "GPL-3.0 AND MIT OR MIT": True,
        "Apache-2.0 WITH LLVM-exception": True, "MIT WITH LLVM-exception": False,
    }.items():
        assert allowed(text, allow) is good, text

    def package(name: str, **more: object) -> dict:
        plain = {"id": name, "name": name, "version": "1.0.0", "source": CRATES_IO[0], "license": "MIT",
                 "publish": None, "dependencies": [], "manifest_path": f"/tree/{name}/Cargo.toml"}
        return plain | more

    any_version = [{"name": "good", "req": "*", "kind": None}]
    packages = [
        package("good"), package("mine", source=None, license=None, publish=[]), package("user"), package("wrapper"),
        package("banned"), package("copyleft", license="GPL-3.0"), package("unnamed", license=None),
        package("odd", license="MIT OR"), package("fork", source="git+https://example.org/fork#1"),
        package("mirror", source="registry+https://example.org/index"),
        package("away", source=None, manifest_path="/elsewhere/Cargo.toml"),
        package("loose", source=None, dependencies=any_version),
    ]
    packages.append(package("of-tests", license="GPL-3.0"))
    edges = {"user": ["good", "banned"], "wrapper": ["banned"], "mine": [p["id"] for p in packages if p["id"] != "mine"]}
    kind = lambda name: [{"kind": "dev" if name == "of-tests" else None}]
    nodes = [
        {"id": p["id"], "deps": [{"pkg": to, "dep_kinds": kind(to)} for to in edges.get(p["id"], []) if to != p["id"]]}
        for p in packages
    ]
    rules = {"licenses": {"allow": allow}, "bans": {"deny": [{"crate": "banned", "wrappers": ["wrapper", "mine"]}]}}
    graph = {"packages": packages, "resolve": {"nodes": nodes}, "workspace_members": ["mine"]}
    found = wrong(rules, graph, Path("/tree"))
    about = sorted(line.split(":")[0].split()[0] for line in found)
    assert about == ["away", "copyleft", "fork", "loose", "mirror", "odd", "unnamed", "user"], found
    assert unknown({"bans": {"skip": []}}) and unknown({"sources": {"unknown-git": "warn"}}) and unknown({"new": {"a": 1}})
    assert not unknown({"bans": {"wildcards": "deny"}})


def main() -> int:
    if sys.argv[1:] == ["--selftest"]:
        selftest()
        return 0
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    found, names = unknown(rules), set()
    for target in rules["graph"]["targets"]:
        graph = metadata(target)
        names |= {package["id"] for package in graph["packages"]}
        found += wrong(rules, graph, ROOT)
    for line in sorted(set(found)):
        print(f"deny: {line}", file=sys.stderr)
    print(f"deny: bans, licences and sources of {len(names)} packages, {len(set(found))} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
