//! Makes the C source of the library's symbols.

use std::fmt::Write;

use crate::header::prototype;
use crate::table::{Caller, Table};

/// The text of `symbols.c`.
pub fn symbols(table: &Table) -> String {
    let mut out = String::from("/* Generated from operations.table. */\n#include \"inline.h\"\n");
    for f in table.all().iter().filter(|f| f.caller == Caller::Host) {
        let result = if f.result == "void" { "" } else { "return " };
        write!(out, "\nPUBLIC {}\n{{\n  CALL(\"{}\");\n  {result}{};\n}}\n", prototype(f), f.name, f.body)
            .expect("a string takes it");
    }
    out
}

/// What the library has besides the table: what programs' own parts call
/// (include/rushmem_nvshmem/program.h), and launches, which take CUDA's types (c/launch.c).
pub const OWN: [&str; 6] = [
    "rushmem_nvshmem_attach",
    "rushmem_nvshmem_detach",
    "rushmem_nvshmem_fill_all",
    "nvshmemx_collective_launch",
    "nvshmemx_collective_launch_attr",
    "nvshmemx_collective_launch_query_gridsize",
];

/// The text of `calls.c`: for libnvshmem.a, functions of the host that go on in libnvshmem_host, which is
/// loaded when the program starts. An archive cannot name a library, and nvcc's device linker takes no
/// script that could.
pub fn calls(table: &Table) -> String {
    let all = table.all();
    let host = all.iter().filter(|f| f.caller == Caller::Host).map(|f| f.name.as_str());
    let names: Vec<&str> = host.chain(OWN).collect();
    let mut out =
        String::from("/* Generated from operations.table. */\nstatic const char *const names[] = {\n");
    for name in &names {
        writeln!(out, "    \"{name}\",").expect("a string takes it");
    }
    out.push_str("};\n\n__asm__(\".text\\n\"\n");
    for (i, name) in names.iter().enumerate() {
        writeln!(out, "        CALL_OF(\"{name}\", \"{}\")", 8 * i).expect("a string takes it");
    }
    out.push_str("        );\n");
    out
}
