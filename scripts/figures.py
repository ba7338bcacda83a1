"""Figures of documents against the records that they are from, for scripts/check-docs.

A record that a document names is in the tree. Above a paragraph or a table stands where its figures are from,
where all of them are as the record has them:

    <!-- figures: h200-x2-targets.csv -->

Each time and rate with a unit, and where numbers share one (`75, 4.6, 2.9 us`) each of them, is then the
rounding of one of that record. `<!-- figures: FILE us -->` takes the cells of a table
that are bare numbers, too, as so many us; `except` and words leave out what has them in its line.
"""

import csv
import re
from pathlib import Path

RECORD = re.compile(r"(?<![\w.-])((?:h[12]00|cpu|host|shmem)[\w-]*\.csv|h[12]00-[\w-]*\.json)\b")
MARK = re.compile(r"<!-- figures: ([^>]*?) -->\n(.+?)(?:\n\n|\Z)", re.S)
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "GB/s": 1.0, "M/s": 1.0}
NUMBER = r"\d+(?:\.\d+)?"
FIGURES = re.compile(rf"((?:{NUMBER}(?:, | to | and |/))*{NUMBER}) (GB/s|M/s|[num]?s)\b")


def kind(unit):
    return unit if unit in ("GB/s", "M/s") else "time"


def values(path):
    """The numbers of a record: of each kind of unit, in us where it is a time."""
    found = {}
    rows = csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("#"))
    for row in rows:
        unit = row.get("unit") or "us"
        if unit not in UNITS:
            continue
        for name in ("median", "reference_median", "peer_value", "us", "us_median"):
            try:
                value = float(row.get(name) or "")
            except ValueError:
                continue
            found.setdefault(kind(unit), []).append(value * UNITS[unit])
    return found


def is_rounded(text, unit, known):
    half = 0.5 * 10.0 ** -len(text.partition(".")[2]) * 1.001
    return any(abs(value / UNITS[unit] - float(text)) <= half for value in known.get(kind(unit), []))


def wrong_in(text, records):
    """What a document says that the records do not; `records`: a name -> its path."""
    wrong = [f"names the record {name}, which is not in the tree" for name in set(RECORD.findall(text)) - set(records)]
    for said, block in MARK.findall(text):
        said, _, without = said.partition(" except ")
        names = RECORD.findall(said)
        cells = next((word for word in said.replace(",", " ").split() if word in UNITS), None)
        known = {}
        for name in names:
            for unit, of_unit in (values(records[name]) if name in records else {}).items():
                known.setdefault(unit, []).extend(of_unit)
        if not names:
            wrong.append(f"figures of no record: {said}")
        for line in block.splitlines():
            if any(word in line for word in without.split()):
                continue
            found = [(one, unit) for many, unit in FIGURES.findall(line) for one in re.findall(NUMBER, many)]
            if cells:
                found += [(cell, cells) for cell in re.findall(rf"\| ({NUMBER}) (?=\|)", line)]
            wrong += [
                f"{one} {unit} is in none of {', '.join(names)}: {line.strip()[:60]}" for one, unit in found
                if not is_rounded(one, unit, known)
            ]
    return wrong


def self_test(folder):
    """What is wrong with this reader itself."""
    record = Path(folder, "host.csv")
    record.write_text("# a line\noperation,unit,median,reference_median\nput,ns,1545,\nget,GB/s,182.2,46\n")
    good = "<!-- figures: host.csv us -->\n| 1.5 us, 46, 182 GB/s | 1.55 |\n| 9 us | words\n"
    found = wrong_in(good, {"host.csv": record}) + wrong_in("`h200-x9.csv`\n", {})
    expected = ["9 us is in none", "the record h200-x9.csv"]
    if len(found) != 2 or not all(text in one for text, one in zip(expected, found)):
        return [f"the reader of figures finds {found}"]
    return []
