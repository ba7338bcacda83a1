"""Which files of a crate use one another in a circle, for scripts/check-tree.

A module and those inside it are one concept with an interface: a child may use its parent (`super::`), and
the parent its child. All other files of a crate, in whatever folders, form no circle. A path counts
wherever it stands (rust_modules.py reads them), and names that a module re-exports or takes in by `use` are
followed to the file that defines them.
"""

import tempfile
from pathlib import Path

from rust_modules import Modules


class Files(Modules):
    """The files of a crate, and who uses whom."""

    def __init__(self, root):
        super().__init__(root)
        self.modules = {}  # file -> its module
        for module, file in self.files.items():
            self.modules.setdefault(file, module)
        self.uses = {}  # (file, file) -> a path that was seen
        for file, module, path in self.found:
            where = self.resolve(module, path)
            if where is not None and not self.are_kin(file, self.files[where]):
                self.uses.setdefault((file, self.files[where]), "::".join(path))

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
    """What is wrong: circles of the crate at this root, a path in `base`."""
    crate, texts = Files(Path(base, root)), []
    for circle in crate.circles():
        within = [f"{a.stem} uses {b.stem} ({path})" for (a, b), path in sorted(crate.uses.items()) if {a, b} <= circle]
        files = ", ".join(str(file.relative_to(base)) for file in sorted(circle))
        texts.append(f"{len(circle)} files form a circle: {files}: {'; '.join(within[:6])}")
    return texts


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
