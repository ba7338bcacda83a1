"""Which module of a crate uses which, and whether two types have one name: reads Rust as far as that takes,
for scripts/check-tree.

A path counts wherever it stands, in a `use` or in code: `crate::a::b`, `super::super::a`, `self::a`,
`$crate::a`, and names that the crate's root re-exports (`crate::Error`). What is compiled for tests only does
not count, nor do comments, texts, and the places that a visibility names (`pub(in crate::a)`).
"""

import re
import tempfile
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
      | (?P<block>/\*)
      | (?P<raw>b?r(?P<hashes>\#*)".*?"(?P=hashes))
      | (?P<text>[bc]?"(?:\\.|[^"\\])*")
      | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^\\'])')
      | (?P<life>'\w+)
      | (?P<word>(?:r\#)?[A-Za-z_]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<colons>::)
      | (?P<other>.)""",
    re.X | re.S,
)
UNKNOWN = "is none of the crate's modules, nor re-exported by its root"
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


def tokens(text):
    """Words, `::`, texts (with their quotes) and single signs."""
    out, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        at = match.end()
        kind = match.lastgroup if match.lastgroup != "hashes" else "raw"
        if kind == "block":
            depth = 1
            while depth:
                end = re.compile(r"/\*|\*/").search(text, at)
                if not end:
                    return out
                depth += 1 if end.group() == "/*" else -1
                at = end.end()
        elif kind in ("word", "colons", "other", "text", "number"):
            out.append(match.group().removeprefix("r#") if kind == "word" else match.group())
    return out


def closing(code, at):
    """The place of the sign that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += code[i] in OPEN
        depth -= code[i] in CLOSE
        if depth == 0:
            return i
    raise ValueError("a bracket is open")


def only_in_tests(code):
    """Whether an attribute, `cfg ( ... )`, is true in tests only."""
    if code[:2] != ["cfg", "("]:
        return False

    def split(inside):
        parts, depth = [[]], 0
        for word in inside:
            depth += (word in OPEN) - (word in CLOSE)
            if word == "," and depth == 0:
                parts.append([])
            else:
                parts[-1].append(word)
        return [part for part in parts if part]

    def holds(predicate):
        if predicate == ["test"]:
            return True
        if predicate[:2] == ["all", "("]:
            return any(holds(part) for part in split(predicate[2:-1]))
        if predicate[:2] == ["any", "("]:
            return all(holds(part) for part in split(predicate[2:-1]))
        return False

    return holds(code[2:-1])


def after_item(code, at):
    """The place behind the item, field, arm or statement at `at`, its further attributes included."""
    while code[at : at + 2] == ["#", "["]:
        at = closing(code, at + 1) + 1
    head = []
    for word in code[at:]:
        if word in OPEN and word != "(" or word in (";", "=", ","):
            break
        head.append(word)
    to_semicolon = "use" in head or ({"static", "const", "type"} & set(head) and "fn" not in head)
    is_item = bool({"fn", "impl", "struct", "enum", "union", "trait", "mod", "macro_rules"} & set(head))
    while at < len(code):
        word = code[at]
        if word in CLOSE:
            return at
        if word in OPEN:
            at = closing(code, at)
            if word == "{" and not to_semicolon:
                return at + 1
        elif word == ";" or word == "," and not (is_item or to_semicolon):
            return at + 1
        at += 1
    return at


def leaves(code, at):
    """The paths of the `use` tree at `at`, each with the name that it gets, and the place after it; `*`
    is a name."""
    path = []
    while at < len(code):
        word = code[at]
        if word == "{":
            end, found, at = closing(code, at), [], at + 1
            while at < end:
                more, at = leaves(code, at)
                found += [(path + leaf, name) for leaf, name in more]
                at += code[at] == ","
            return found, end + 1
        if word == "as":
            return [(path, code[at + 1])], at + 2
        if word == "::":
            at += 1
        elif word == "*" or re.match(r"\w", word):
            path, at = path + [word], at + 1
        else:
            break
    return [(path, path[-1])] if path else [], at


class Crate:
    """The modules of a crate, and who uses whom."""

    def __init__(self, root):
        self.uses = {}  # (module, module) -> where it was seen first
        self.exports = {}  # a name in the root -> the module that it is from
        self.modules, self.unknown = set(), []
        self.found = []  # (file, module path, path)
        self.types = {}  # a type's or trait's name -> the files that define one
        self.file(Path(root), [], is_root=True)
        for file, module, path in self.found:
            self.resolve(file, module, path)

    def file(self, path, module, is_root=False):
        inside = path.parent if is_root or path.name == "mod.rs" else path.parent / path.stem
        self.code(tokens(path.read_text()), path, module, inside)

    def code(self, code, file, module, inside):
        at, test, where = 0, False, None
        while at < len(code):
            word = code[at]
            if word == "#" and code[at + 1 : at + 2] == ["["]:
                end = closing(code, at + 1)
                attribute = code[at + 2 : end]
                test = test or only_in_tests(attribute)
                if attribute[:2] == ["path", "="]:
                    where = file.parent / attribute[2].strip('"')
                if test:
                    at = after_item(code, end + 1)
                    test = False
                else:
                    at = end + 1
                continue
            if word == "mod" and code[at + 2 : at + 3] == ["{"]:
                end = closing(code, at + 2)
                self.declare(module, code[at + 1])
                self.code(code[at + 3 : end], file, module + [code[at + 1]], inside / code[at + 1])
                at = end + 1
            elif word == "mod" and code[at + 2 : at + 3] == [";"]:
                name = code[at + 1]
                self.declare(module, name)
                places = [where] if where else [inside / f"{name}.rs", inside / name / "mod.rs"]
                there = [place for place in places if place.is_file()]
                if not there:
                    self.unknown.append(f"{file}: mod {name} has no file")
                for place in there:
                    self.file(place, module + [name])
                at += 3
            elif word in ("struct", "enum", "union", "trait") and re.match(r"[A-Z]", (code[at + 1 : at + 2] or [""])[0]):
                self.types.setdefault(code[at + 1], []).append(str(file))
                at += 2
            elif word == "pub" and code[at + 1 : at + 2] == ["("]:
                at = closing(code, at + 1) + 1
            elif word == "use":
                found, at = leaves(code, at + 1)
                self.found += [(file, module, path) for path, _ in found]
                if not module:
                    for path, name in found:
                        self.export(path, name)
            elif self.is_path(code, at):
                path = [word]
                while code[at + 1 : at + 2] == ["::"] and re.match(r"\w", (code[at + 2 : at + 3] or [""])[0]):
                    path, at = path + [code[at + 2]], at + 2
                self.found.append((file, module, path))
                at += 1
            else:
                if word not in ("pub", "(", ")", "crate", "in"):
                    where = None if word in ("{", "}", ";") else where
                at += 1
                continue
            where = None

    @staticmethod
    def is_path(code, at):
        begins = at == 0 or code[at - 1] not in ("::", ".")
        return code[at] in ("crate", "super", "self") and begins and code[at + 1 : at + 2] == ["::"]

    def declare(self, module, name):
        if not module:
            self.modules.add(name)

    def export(self, path, name):
        path = path[1:] if path[0] in ("self", "crate") else path
        if len(path) > 1:
            self.exports[name] = path[0]

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


def breaches(name, root, table, known, base):
    """What is wrong, and notes: arrows of the crate at `root` against the table, in which each module comes
    after those that it may use. `known`: arrows that are wrong and known, each with its reason."""
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
        if other in table.get(module, set()):
            continue
        if (module, other) in known:
            notes.append(f"{name}: {module} uses {other}, a known breach: {known[module, other]}")
        else:
            wrong.append(f"{name}: {module} must not use {other} ({shown(where)})")
    for module, other in sorted(set(known) - set(crate.uses)):
        notes.append(f"{name}: {module} no longer uses {other}: take it off the known breaches")
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
        circle, _ = breaches("sample", Path(folder, "lib.rs"), table, {("c", "d"): "known"}, folder)
    wrong = []
    if set(crate.uses) != FOUND:
        wrong.append(f"the reader of modules finds {sorted(set(crate.uses) ^ FOUND)} too little or too much")
    if crate.modules != {"a", "b", "c", "d", "inline"}:
        wrong.append(f"the reader of modules finds the modules {sorted(crate.modules)}")
    if [text.split(": ")[-1] for text in crate.unknown] != [f"crate::nowhere::f {UNKNOWN}"]:
        wrong.append(f"the reader of modules does not know {crate.unknown}")
    if not all(any(what in text for text in circle) for what in ("a circle", "b must not use a")):
        wrong.append("the reader of modules lets a circle pass")
    if any("c must not use d" in text for text in circle):
        wrong.append("a known breach is wrong")
    if not any("2 types are called S:" in text for text in circle):
        wrong.append("the reader of modules lets two types of one name pass")
    return wrong
