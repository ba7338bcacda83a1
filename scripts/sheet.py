"""The calls in the guide's cheat sheet as programs, for scripts/check-guide: each `code` in a column of Rust,
C or kernels becomes a statement in a function of its own, with the names that the sheet uses declared for it.
A call with a wrong argument, or of a function that is gone, does not compile then."""

import re

# In Rust, what a name stands for, where a call uses it; the first that fits counts.
RUST = [
    (r"src\.|put_from|stream\.", "src", "world.alloc::<T>(8)?"),
    (r"", "src", "[0 as T; 8]"),
    (r"&mut dst", "dst", "[0 as T; 8]"),
    (r"", "dst", "world.alloc::<T>(8)?"),
    (r"write\(", "v", "[1 as T; 8]"),
    (r"iput_signal", "v", "1u64"),
    (r"", "v", "1 as T"),
    (r"launch\(", "n", "4u32"),
    (r"", "n", "4usize"),
    (r"", "c", "0 as T"),
    (r"", "i", "1usize"),
    (r"", "ds", "2usize"),
    (r"", "ss", "1usize"),
    (r"", "pe", "world.right()"),
    (r"", "p", "std::ptr::null_mut::<T>()"),
    (r"", "x", "world.alloc::<T>(8)?"),
    (r"", "slice", "world.alloc::<T>(8)?"),
    (r"", "sig", "world.signal()?"),
    (r"", "stream", "world.stream()?"),
    (r"\bf\.", "loaded", 'world.load("")?'),
    (r"", "f", 'loaded.kernel("f")?'),
    (r"", "module", 'world.load("")?'),
    (r"", "team", "world.team()"),
    (r"", "root", "0u32"),
    (r"", "dst_at", "[0usize]"),
    (r"", "src_at", "[0usize]"),
    (r"", "counts", "[1usize]"),
    (r"", "blocks", "1u32"),
    (r"", "threads", "32u32"),
    (r"", "shared", "0usize"),
]
C = """#include <rushmem.h>
void sheet(rushmem_world_t *w, void *p, void *q, void *alias, void *dst, const void *src, size_t bytes, int pe,
           uint64_t *sig, int v, int c, int old, rushmem_peer_t peer, const char *text, rushmem_module_t *module,
           rushmem_kernel_t *kernel, rushmem_launch_t launch, const void **args, uint32_t n_args, rushmem_team_t *team, int root,
           size_t room, size_t n, long ds, long ss, const size_t *dst_at, const size_t *src_at, const size_t *counts,
           size_t *received, void *stream);
void sheet(rushmem_world_t *w, void *p, void *q, void *alias, void *dst, const void *src, size_t bytes, int pe,
           uint64_t *sig, int v, int c, int old, rushmem_peer_t peer, const char *text, rushmem_module_t *module,
           rushmem_kernel_t *kernel, rushmem_launch_t launch, const void **args, uint32_t n_args, rushmem_team_t *team, int root,
           size_t room, size_t n, long ds, long ss, const size_t *dst_at, const size_t *src_at, const size_t *counts,
           size_t *received, void *stream) {
"""
KERNEL = """#include <rushmem/rushmem.cuh>
using namespace rushmem;
using Scope = block;
extern "C" __global__ void sheet(rushmem::team team, int *dst, const int *src, int *at, uint64_t *sig, size_t n, int pe, int v,
                                 int c, int root, size_t dst_stride, size_t src_stride, const size_t *dst_at, const size_t *src_at,
                                 const size_t *counts, size_t *received) {
"""


def calls(text):
    """(column, code) of every piece of code in the tables; what has an ellipsis stands for a family."""
    columns = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not columns:
            columns = cells
        for column, cell in zip(columns, cells):
            for code in re.findall(r"`([^`]+)`", cell):
                if column in ("Rust", "C", "kernel") and "…" not in code:
                    yield column, code


def rust(codes):
    functions = []
    for number, code in enumerate(codes):
        lets, bare = {}, re.sub(r'"[^"]*"', '""', code)
        for condition, name, value in RUST:
            # A kernel borrows the module that it is from.
            used = name == "loaded" or re.search(rf"(?<![\w.]){name}\b(?!\()", bare)
            if used and (not condition or re.search(condition, bare)):
                lets.setdefault(name, value)
        body = "".join(f"    let mut {name} = {value};\n" for name, value in lets.items())
        head = f"pub fn call{number}(world: World) -> Result<(), Box<dyn std::error::Error>> {{\n"
        functions.append(f"{head}{body}    {code};\n    Ok(())\n}}\n")
    head = "#![allow(unused_variables, unused_mut, unused_must_use)]\nuse rushmem::{Cmp, Launch, Prepared, SignalOp, Source, Sum, World};\ntype T = i32;\n"
    return head + "".join(functions) + "fn main() {}\n"


def c(codes):
    return C + "".join(f"  (void)({code});\n" for code in codes) + "}\n"


def kernel(codes):
    lines = []
    for code in codes:
        # `p` is a function of kernels, too.
        call = re.sub(r"(?<![\w.])p\b(?!\()", "at", code)
        lines.append(f"  {{ {call}; }}\n" if "(" in code else f"  {{ using rushmem::{code}; }}\n")
    return KERNEL + "".join(lines) + "}\n"


def programs(text):
    """The sheet's programs, by the ending of their files."""
    by = {}
    for column, code in calls(text):
        by.setdefault(column, []).append(code)
    in_c = [code for code in by["C"] if code.startswith("rushmem_")]
    in_kernels = [code for code in by["kernel"] if not code.startswith("_")]
    in_rust = [code for code in by["Rust"] if "(" in code]
    return {"rs": rust(in_rust), "c": c(in_c), "cu": kernel(in_kernels)}, len(in_c) + len(in_kernels) + len(in_rust)
