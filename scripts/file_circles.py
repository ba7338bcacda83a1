"""Which files of a crate use one another in a circle, for scripts/check-tree.

A module and those inside it are one concept with an interface: a child may use its parent (`super::`), and
the parent its child. All other files of a crate, in whatever folders, form no circle. As in
module_arrows.py, a path counts wherever it stands, and what is compiled for tests only does not count; here
names that a module re-exports or takes in by `use` are followed to the file that defines them.
"""

import re
import tempfile
from pathlib import Path

from module_arrows import after_item, closing, leaves, only_in_tests, tokens

# crate root -> why a circle is still there.
KNOWN = {
    "python/src/lib.rs": "a world (`core`) holds what arrays, streams and non-blocking calls lend it, and these hold the world",
}


class Files:
    """The files of a crate, and who uses whom."""

    def __init__(self, root):
        self.files, self.names = {}, {}  # module path -> its file; module path -> what `use` brings in
        self.found = []
        self.file(Path(root), (), is_root=True)
        self.modules = {}  # file -> its module path
        for module, file in self.files.items():
            self.modules.setdefault(file, module)
        self.uses = {}  # (file, file) -> a path that was seen
        for file, module, path in self.found:
            where = self.resolve(module, path)
            if where is not None and not self.are_kin(file, self.files[where]):
                self.uses.setdefault((file, self.files[where]), "::".join(path))

    def file(self, path, module, is_root=False):
        inside = path.parent if is_root or path.name == "mod.rs" else path.parent / path.stem
        self.code(tokens(path.read_text()), path, module, inside)

    def code(self, code, file, module, inside):
        self.files[module] = file
        self.names[module] = {}
        at, test, where = 0, False, None
        while at < len(code):
            word = code[at]
            if word == "#" and code[at + 1 : at + 2] == ["["]:
                end = closing(code, at + 1)
                attribute = code[at + 2 : end]
                test = test or only_in_tests(attribute)
                if attribute[:2] == ["path", "="]:
                    where = file.parent / attribute[2].strip('"')
                at = after_item(code, end + 1) if test else end + 1
                test = False
                continue
            if word == "mod" and code[at + 2 : at + 3] == ["{"]:
                end = closing(code, at + 2)
                self.code(code[at + 3 : end], file, module + (code[at + 1],), inside / code[at + 1])
                at = end + 1
            elif word == "mod" and code[at + 2 : at + 3] == [";"]:
                name = code[at + 1]
                for place in [where] if where else [inside / f"{name}.rs", inside / name / "mod.rs"]:
                    if place.is_file():
                        self.file(place, module + (name,))
                at, where = at + 3, None
            elif word == "pub" and code[at + 1 : at + 2] == ["("]:
                at = closing(code, at + 1) + 1
            elif word == "use":
                found, at = leaves(code, at + 1)
                for path, name in found:
                    path = path[:-1] if path[-1] == "self" and len(path) > 1 else path
                    self.found.append((file, module, path))
                    self.names[module][path[-1] if name == "self" else name] = path
            elif re.match(r"[A-Za-z_]", word) and code[at + 1 : at + 2] == ["::"] and code[at - 1] not in ("::", "."):
                path = [word]
                while code[at + 1 : at + 2] == ["::"] and re.match(r"\w", (code[at + 2 : at + 3] or [""])[0]):
                    path, at = path + [code[at + 2]], at + 2
                self.found.append((file, module, path))
                at += 1
            else:
                at += 1

    def are_kin(self, one, other):
        """Whether they are one file, or one is inside the other's module."""
        one, other = self.modules[one], self.modules[other]
        length = min(len(one), len(other))
        return one[:length] == other[:length]

    def resolve(self, module, path, depth=0):
        """The module that defines the path; none where it is not this crate's."""
        place, rest = tuple(module), list(path)
        if rest[0] == "crate":
            place, rest = (), rest[1:]
        elif rest[0] == "self":
            rest = rest[1:]
        elif rest[0] == "super":
            while rest and rest[0] == "super":
                place, rest = place[:-1], rest[1:]
        elif place + (rest[0],) not in self.files:
            return self.by_name(place, rest, depth)
        while rest:
            if place + (rest[0],) in self.files:
                place, rest = place + (rest[0],), rest[1:]
                continue
            named = self.by_name(place, rest, depth)
            return place if named is None else named
        return place

    def by_name(self, place, rest, depth):
        """What a name stands for that a `use` of this module brings in."""
        path = self.names.get(place, {}).get(rest[0])
        if path is None or path[0] == rest[0] or depth > 9:
            return None
        return self.resolve(place, path + rest[1:], depth + 1)

    def circles(self):
        """Sets of files each of which reaches the others."""
        reached = {}
        for file in self.modules:
            seen, todo = set(), [file]
            while todo:
                one = todo.pop()
                for user, used in self.uses:
                    if user == one and used not in seen:
                        seen.add(used)
                        todo.append(used)
            reached[file] = seen
        sets = {frozenset(b for b in reached[a] if a in reached[b]) for a in reached if a in reached[a]}
        return sorted(sets, key=sorted)


def breaches(root, base):
    """What is wrong, and notes: circles of the crate at this root, a path in `base`."""
    crate, texts = Files(Path(base, root)), []
    for circle in crate.circles():
        within = [f"{a.stem} uses {b.stem} ({path})" for (a, b), path in sorted(crate.uses.items()) if {a, b} <= circle]
        files = ", ".join(str(file.relative_to(base)) for file in sorted(circle))
        texts.append(f"{len(circle)} files form a circle: {files}: {'; '.join(within[:6])}")
    if root not in KNOWN:
        return texts, []
    known = [f"{text.split(':')[0]}, a known breach: {KNOWN[root]}" for text in texts]
    return [], [f"{root}: {text}" for text in known] or [f"{root}: no circle any more: take it off the known ones"]


SAMPLE = {
    "lib.rs": "mod a; mod b; mod c; pub use c::Deep;",
    "a.rs": "mod child; use crate::b::B; pub struct A; fn f() { child::g() }",
    "a/child.rs": "use super::A; #[cfg(test)] mod tests { use crate::c::Deep; }",
    "b.rs": "mod inner; pub use self::inner::B;",
    "b/inner.rs": "pub struct B; fn f() { crate::Deep::new() }",
    "c.rs": "use crate::a::A as Other; pub struct Deep; fn f() { Other::new(); /* crate::b::B */ }",
}


def self_test():
    """What is wrong with this reader itself."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in SAMPLE.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        whole = [sorted(str(file.relative_to(folder)) for file in circle) for circle in Files(Path(folder, "lib.rs")).circles()]
        Path(folder, "c.rs").write_text("pub struct Deep; // use crate::a::A;")
        none = Files(Path(folder, "lib.rs")).circles()
    if whole != [["a.rs", "b/inner.rs", "c.rs"]] or none:
        return [f"the reader of circles between files finds {whole} and {none}"]
    return []
