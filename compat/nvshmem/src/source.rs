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
