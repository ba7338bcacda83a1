"""The code of docs/python.md: all of it is Python, and what needs neither torch nor Triton runs, as it stands
there, between what the page takes for granted and a look at what came of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rushmem
from conftest import ON_GPU

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
RUN = Path(rushmem.__file__).parent / "bin" / "rushmem-run"
PES = 2
# By heading: what is there before the block, and after it.
KERNEL = (
    """
import numpy, rushmem
world = rushmem.init()
left = (world.my_pe - 1) % world.n_pes
dst, src, arrived = world.empty(1000), world.empty(1000), world.signals()
numpy.asarray(src)[:] = numpy.arange(1000) + 7 * world.my_pe
world.barrier_all()
""",
    """
arrived.signal_wait_until("==", 1)
assert (numpy.asarray(dst) == numpy.arange(1000) + 7 * left).all()
world.finalize()
print("good")
""",
)
EXPERTS = (
    """
import numpy, rushmem
world = rushmem.init()
rng = numpy.random.default_rng()
x = rng.integers(0x3F00, 0x4000, (4, 256)).astype("uint16")  # bfloat16 between 0.5 and 2
experts = numpy.array([rng.permutation(16)[:8] for _ in range(4)])
weights = numpy.full((4, 8), 0.25, "float32")
def run_experts(here):
    return numpy.full((exchange.local_experts, exchange.capacity, 256), 0x3F80, "uint16")  # ones
""",
    """
came = numpy.array([here.counts.sum()])
world.team.reduce(came)
assert came[0] == world.n_pes * 4 * 8, came
assert out.shape == (4, 256) and (out == 0x4000).all(), out  # two: eight quarters of one
world.finalize()
print("good")
""",
)
TESTS = ("", "\nif __name__ == '__main__':\n    test_ring()\n    print('good')\n")
RUNS = {"A ring": ("", ""), "A kernel": KERNEL, "A mixture-of-experts layer": EXPERTS, "Tests": TESTS}
# Sizes of a model become ones of a test.
SMALL = {"max_tokens=128, hidden=7168, experts=256": "max_tokens=4, hidden=256, experts=16"}


def blocks():
    """The page's blocks of Python: heading, first line, text."""
    heading, found = "", []
    lines = PAGE.read_text().split("\n") if PAGE.exists() else []
    at = 0
    while at < len(lines):
        if lines[at].startswith("## "):
            heading = lines[at][3:]
        if lines[at] == "```python":
            end = lines.index("```", at)
            found.append((heading, at + 2, "\n".join(lines[at + 1 : end]) + "\n"))
            at = end
        at += 1
    return found


def needs(text):
    """What a block needs that CI has not."""
    return re.search(r"\b(torch|triton|rt)\b", text)


def test_every_block_is_python_and_runs_or_needs_torch():
    if not PAGE.exists():
        pytest.skip("no docs/python.md beside the tests")
    found = blocks()
    for heading, line, text in found:
        compile("\n" * (line - 1) + text, str(PAGE), "exec")
        assert needs(text) or heading in RUNS, f"{PAGE.name}:{line}: this block is not run: {heading}"
    assert {heading for heading, _, text in found if not needs(text)} == set(RUNS)


@pytest.mark.skipif(ON_GPU, reason="the blocks look at arrays by numpy")
@pytest.mark.parametrize("heading", RUNS)
def test_block(heading, tmp_path):
    if not PAGE.exists() or not RUN.exists():
        pytest.skip("no docs/python.md beside the tests, or no rushmem-run in this package")
    before, after = RUNS[heading]
    [text] = [text for of, _, text in blocks() if of == heading and not needs(text)]
    if heading == "A mixture-of-experts layer":
        for large, small in SMALL.items():
            assert large in text
            text = text.replace(large, small)
    program = tmp_path / "program.py"
    program.write_text(before + text + after)
    launcher = [] if heading == "Tests" else [RUN, "-n", str(PES), "--tag-output", "--"]
    done = subprocess.run(
        [*launcher, sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout
    if heading == "A ring":
        expected = sorted(f"{pe} heard from {(pe - 1) % PES}" for pe in range(PES))
        # `print` writes a line in pieces where PYTHONUNBUFFERED is set; tagged lines are whole.
        lines = [line.split("] ", 1)[-1] for line in done.stdout.splitlines()]
        assert sorted(line for line in lines if " heard" in line) == expected
    else:
        assert done.stdout.count("good") == (1 if heading == "Tests" else PES), done.stdout
