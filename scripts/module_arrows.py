"""Which module of a crate uses which, and whether two types have one name, for scripts/check-tree.

A path counts wherever it stands, in a `use` or in code: `crate::a::b`, `super::super::a`, `self::a`,
`$crate::a`, and names that the crate's root re-exports (`crate::Error`). rust_modules.py reads them.
"""

import tempfile
from pathlib import Path

from rust_modules import Modules

UNKNOWN = "is none of the crate's modules, nor re-exported by its root"


class Crate(Modules):
    """The modules of a crate, and who uses whom."""

    def __init__(self, root):
        super().__init__(root)
        self.uses = {}  # (module, module) -> where it was seen first
        self.unknown = self.missing
        self.modules = {module[0] for module in self.files if module}
        self.exports = {}  # a name in the root -> the module that it is from
        for name, path in self.names[()].items():
            path = path[1:] if path[0] in ("self", "crate") else path
            if len(path) > 1:
                self.exports[name] = path[0]
        for file, module, path in self.found:
            self.resolve(file, module, path)

    def resolve(self, file, module, path):
        if not module or path[0] not in ("crate", "super", "self"):
            return  # The root may use all of its modules; another crate is another table's.
        place = [] if path[0] == "crate" else list(module)
        rest = path[1:]
        if path[0] == "super":
            place.pop()
            while rest and rest[0] == "super":
                rest = rest[1:]
                if not place:
                    self.unknown.append(f"{file}: {'::'.join(path)} leaves the crate")
                    return
                place.pop()
        whole = place + rest
        if not whole:
            return
        name = whole[0]
        if name not in self.modules:
            name = self.exports.get(name, name)
        if name in self.modules:
            if name != module[0]:
                self.uses.setdefault((module[0], name), f"{file}: {'::'.join(path)}")
        else:
            self.unknown.append(f"{file}: {'::'.join(path)} {UNKNOWN}")


def namesakes(name, crate):
    """Types with one name: one word, one meaning. What tests and fuzzing stand in with is left out, and the
    measures of a tool, which are programs side by side."""
    wrong = []
    if name.endswith("/perf"):
        return wrong
    for type_, files in sorted(crate.types.items()):
        files = [file for file in files if not file.endswith("stand_in.rs")]
        if len(files) > 1 and type_ != "Sealed":
            wrong.append(f"{name}: {len(files)} types are called {type_}: {', '.join(files)}")
    return wrong


def breaches(name, root, table, base):
    """What is wrong, and notes: arrows of the crate at `root` against the table, in which each module comes
    after those that it may use."""
    crate, wrong, notes = Crate(root), [], []
    below = set()
    for module, may in table.items():
        for other in sorted(may - below):
            wrong.append(f"{name}: the table lets {module} use {other}, which does not come before it: a circle")
        below.add(module)
    shown = lambda text: text.replace(f"{base}/", "")
    wrong += [shown(text) for text in crate.unknown]
    for module in sorted(crate.modules - below):
        wrong.append(f"{name}: module {module} has no place in the table of arrows")
    for module in sorted(below - crate.modules):
        wrong.append(f"{name}: the table of arrows has module {module}, which is not there")
    wrong += [shown(text) for text in namesakes(name, crate)]
    for (module, other), where in sorted(crate.uses.items()):
        if other not in table.get(module, set()):
            wrong.append(f"{name}: {module} must not use {other} ({shown(where)})")
    for module in table:
        for other in sorted(table[module] - {used for user, used in crate.uses if user == module}):
            notes.append(f"{name}: {module} may use {other} and does not: take it out of the table")
    return wrong, notes


# What the reader has to know of Rust: a file for each module, and the arrows that are in them.
SAMPLE = {
    "lib.rs": """
        pub mod a; mod b; mod c;
        #[cfg(any(test, feature = "x"))] mod d;
        #[cfg(test)] mod fake;
        #[cfg(all(test, unix))] #[path = "elsewhere.rs"] mod tests;
        mod inline { use super::a; mod deep { fn f() { super::super::b::g(); } } }
        pub use c::{Name, more::{Other as Renamed}};
    """,
    "a.rs": """
        use crate::{b::{self, X as _, y::{Z, *}}, Name};
        // use crate::d; /* use crate::d; */
        /* /* nested */ use crate::d; */
        const T: &str = "crate::d"; const R: &str = r#"crate::d " "#; const C: [char; 3] = ['"', '\\'', '{'];
        fn f<'a>(x: &'a str) {}
        pub(in crate::d) fn g() {}
        pub(super) struct S { #[cfg(test)] field: crate::d::F, #[cfg(test)] more: Vec<u8>, }
        #[cfg(test)] use crate::d::{one, two};
        #[cfg(test)] const N: [u8; 2] = { crate::d::M };
        #[cfg(test)] impl<A, B> crate::d::T<A, B> for S { fn f() {} }
        #[cfg(test)] #[rustfmt::skip] mod tests { use crate::d::*; use super::super::d; }
        fn h() { match 1 { #[cfg(test)] 2 => crate::d::m(), _ => {} } #[cfg(test)] crate::d::s(1, 2); }
    """,
    "b/mod.rs": """
        mod low;
        macro_rules! m { ($x:expr) => { $crate::c::call($x) }; }
        fn f() { self::low::g(); b::super_thing(); }
    """,
    "b/low.rs": """
        mod lower;
        use super::super::a::deep; use super::low;
    """,
    "b/low/lower.rs": "use super::super::super::inline::x; use super::super::low;",
    "c.rs": """
        #[cfg(not(test))] use crate::d::real;
        use crate::Renamed;
    """,
    "d.rs": "enum S {} #[cfg(test)] trait T {} fn f() -> super::a::S { crate::nowhere::f() }",
    "elsewhere.rs": "use crate::fake::x; struct T;",
    "fake.rs": "use crate::a::x;",
}
FOUND = {
    ("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("b", "inline"), ("c", "d"), ("d", "a"), ("inline", "a"),
    ("inline", "b"),
}


def self_test():
    """What is wrong with this reader itself."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in SAMPLE.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        crate = Crate(Path(folder, "lib.rs"))
        table = {module: set() for module in sorted(crate.modules)}
        table["a"] = {"b"}
        circle, _ = breaches("sample", Path(folder, "lib.rs"), table, folder)
    wrong = []
    if set(crate.uses) != FOUND:
        wrong.append(f"the reader of modules finds {sorted(set(crate.uses) ^ FOUND)} too little or too much")
    if crate.modules != {"a", "b", "c", "d", "inline"}:
        wrong.append(f"the reader of modules finds the modules {sorted(crate.modules)}")
    if [text.split(": ")[-1] for text in crate.unknown] != [f"crate::nowhere::f {UNKNOWN}"]:
        wrong.append(f"the reader of modules does not know {crate.unknown}")
    if not all(any(what in text for text in circle) for what in ("a circle", "b must not use a")):
        wrong.append("the reader of modules lets a circle pass")
    if not any("2 types are called S:" in text for text in circle):
        wrong.append("the reader of modules lets two types of one name pass")
    return wrong
