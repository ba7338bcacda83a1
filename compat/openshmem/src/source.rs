//! Makes the C source of the library's symbols from the table: each function under its profiling name
//! (`pshmem_put`), and `shmem_put` as a weak name of the same.

use std::fmt::Write;

use crate::header::prototype;
use crate::table::{argument_names, Table};

/// The text of `symbols.c`.
pub fn symbols(table: &Table) -> String {
    let mut out = String::from(
        "/* Generated from operations.table. */\n#include \"inline.h\"\n#include \"pshmem.h\"\n",
    );
    for f in table.all() {
        let names = argument_names(&f.arguments);
        let context = if names.contains(&"ctx") { "" } else { "  WITHOUT_CONTEXT;\n" };
        let result = match f.result.as_str() {
            result if result.ends_with("void") => "",
            _ => "return ",
        };
        write!(
            out,
            "\nPUBLIC {}\n{{\n  CALL(\"{}\");\n{context}  {result}{};\n}}\nWEAK({});\n",
            prototype(&f, "p"),
            f.name,
            f.body,
            f.name
        )
        .expect("a string takes it");
    }
    out
}
