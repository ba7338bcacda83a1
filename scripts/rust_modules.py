"""Reads the Rust of a crate as far as its modules take: which file each module is in, the paths that its code
names, what `use` brings in, and the types that it defines. For module_arrows.py and file_circles.py.

What is compiled for tests only does not count, nor do comments, texts, and the places that a visibility names
(`pub(in crate::a)`).
"""

import re
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


class Modules:
    """The modules of the crate whose root this file is. A module is the tuple of its names from the root."""

    def __init__(self, root):
        self.files = {}  # module -> its file
        self.names = {}  # module -> what `use` brings in: a name -> its path
        self.types = {}  # a type's or trait's name -> the files that define one
        self.found = []  # (file, module, path), wherever a path stands
        self.missing = []  # texts: modules without a file
        self.file(Path(root), (), is_root=True)

    def file(self, path, module, is_root=False):
        inside = path.parent if is_root or path.name == "mod.rs" else path.parent / path.stem
        self.code(tokens(path.read_text()), path, module, inside)

    def code(self, code, file, module, inside):
        self.files[module] = file
        self.names.setdefault(module, {})
        at, test, where = 0, False, None
        while at < len(code):
            word, following = code[at], (code[at + 1 : at + 2] or [""])[0]
            if word == "#" and following == "[":
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
                self.code(code[at + 3 : end], file, module + (following,), inside / following)
                at = end + 1
            elif word == "mod" and code[at + 2 : at + 3] == [";"]:
                places = [where] if where else [inside / f"{following}.rs", inside / following / "mod.rs"]
                there = [place for place in places if place.is_file()]
                if not there:
                    self.missing.append(f"{file}: mod {following} has no file")
                for place in there:
                    self.file(place, module + (following,))
                at += 3
            elif word in ("struct", "enum", "union", "trait") and re.match(r"[A-Z]", following):
                self.types.setdefault(following, []).append(str(file))
                at += 2
            elif word == "pub" and following == "(":
                at = closing(code, at + 1) + 1
                continue
            elif word == "use":
                found, at = leaves(code, at + 1)
                for path, name in found:
                    path = path[:-1] if path[-1] == "self" and len(path) > 1 else path
                    self.found.append((file, module, path))
                    self.names[module][path[-1] if name == "self" else name] = path
            elif re.match(r"[A-Za-z_]", word) and following == "::" and (at == 0 or code[at - 1] not in ("::", ".")):
                path = [word]
                while code[at + 1 : at + 2] == ["::"] and re.match(r"\w", (code[at + 2 : at + 3] or [""])[0]):
                    path, at = path + [code[at + 2]], at + 2
                self.found.append((file, module, path))
                at += 1
            else:
                at += 1
                if word not in ("{", "}", ";"):
                    continue
            where = None
