//! Makes the C source of the library's symbols from the table: each function under its profiling name
//! (`pshmem_put`), and `shmem_put` as a weak name of the same.

use std::fmt::Write;

use crate::header::prototype;
use crate::table::{argument_names, Function, Table};

/// The text of `symbols.c`.
pub fn symbols(table: &Table) -> String {
    let mut out = String::from(
        "/* Generated from operations.table. */\n#include \"inline.h\"\n#include \"pshmem.h\"\n",
    );
    for f in table.all() {
        let names = argument_names(&f.arguments);
        let context = match (names.contains(&"ctx"), names.contains(&"pe")) {
            (true, true) if may_outlast(&f) => "  IN_CONTEXT(true);\n",
            (true, true) => "  IN_CONTEXT(false);\n",
            (true, _) => "",
            (false, _) => "  WITHOUT_CONTEXT;\n",
        };
        let result = match f.result.as_str() {
            result if result.ends_with("void") => "",
            _ => "return ",
        };
        write!(
            out,
            "\nPUBLIC {}\n{{\n  CALL(\"{}\"{});\n{context}  {result}{};\n}}\nWEAK({});\n",
            prototype(&f, "p"),
            f.name,
            pointers(&f.arguments),
            f.body,
            f.name
        )
        .expect("a string takes it");
    }
    out
}

/// The arguments that are pointers, each behind a comma.
fn pointers(arguments: &str) -> String {
    let pointers = arguments.split(", ").filter(|argument| argument.contains('*'));
    pointers.flat_map(argument_names).map(|name| format!(", {name}")).collect()
}

/// Whether an operation may be under way when its call returns: those that fetch are not, unless they are
/// nbi.
fn may_outlast(f: &Function) -> bool {
    f.name.ends_with("_nbi") || (f.result == "void" && !f.name.contains("get"))
}
