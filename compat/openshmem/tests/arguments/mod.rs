//! Every function of the table, with arguments that make sense and arguments that do not, in random mixtures.
//! A call either returns or ends the job with a text that names it: the test program takes the place of the
//! process's end, and goes on with the next call. A crash is a failure.
//!
//! RUSHMEM_TEST_ROUNDS=all makes twenty times as many calls.

use crate::common::attack::{self, Calls};
use crate::common::{ready, Program};
use rushmem_openshmem::table::{Function, Table, TEXT};

/// What these do to the test program is the end of it.
const NOT_CALLED: [&str; 1] = ["shmem_global_exit"];

/// A random argument: an expression of `arguments.c`.
fn argument(f: &Function, chapter: &str, ty: &str, name: &str) -> String {
    let is = |names: &[&str]| names.contains(&name);
    let get = f.name.contains("get") || f.name.ends_with("_g");
    let symmetric = match chapter {
        "Remote memory access" => name == if get { "source" } else { "dest" },
        "Signals" | "Atomic memory operations" => {
            is(&["dest", "sig_addr"]) || (name == "source" && is_fetch(f))
        }
        "Collectives" | "Reductions and scans" => is(&["dest", "source"]),
        "Point-to-point synchronization" => is(&["ivar", "ivars", "sig_addr"]),
        "Deprecated" => is(&["dest", "source", "ivar", "pSync", "pWrk", "ptr"]),
        _ => is(&["ptr", "dest", "addr", "lock"]),
    };
    let waits = f.name.contains("wait") || f.name.contains("test");
    match (ty, name) {
        ("shmem_ctx_t", _) => "context()".into(),
        ("shmem_team_t", _) => "team()".into(),
        ("shmem_team_t *", _) => "local(&made, sizeof made)".into(),
        ("shmem_ctx_t *", _) => "local(&context_made, sizeof context_made)".into(),
        _ if ty.ends_with('*') && symmetric && waits && name != "lock" => format!("({ty}) zero()"),
        _ if name == "lock" => "lock()".into(),
        _ if ty.ends_with('*') && symmetric => format!("({ty}) symmetric()"),
        _ if ty.ends_with('*') && is(&["status"]) => format!("({ty}) status()"),
        _ if ty.ends_with('*') => format!("({ty}) local(area, sizeof area)"),
        (_, "cmp") => "comparison()".into(),
        // Of what is 0 these are true at once.
        (_, "cmp_value") if f.arguments.contains("cmp,") => "0".into(),
        (_, "cmp_value") => "1".into(),
        (_, "sig_op") => "some(0, 1, 0, 1, -1, 7)".into(),
        (_, "requested") => "some(0, 1, 2, 2, -1, 9)".into(),
        ("int", "pe" | "src_pe" | "PE_root") => "pe()".into(),
        ("int", _) => "some(0, 1, shmem_n, -1, 33, INT_MIN)".into(),
        ("size_t", "alignment") => "(size_t) some(0, 3, 8, 4096, 1 << 20, -1)".into(),
        // Nothing that is there is larger than the arrays of this PE alone.
        ("size_t", _) if chapter == "Memory management" || name == "size" => {
            "(size_t) some(0, 1, 64, 5000, -1, INT_MIN)".into()
        }
        ("size_t", _) => "count()".into(),
        ("ptrdiff_t", _) => "distance()".into(),
        ("long", _) => "some(0, 1, 2, 0, -1, 1 << 20)".into(),
        _ => format!("({ty}) some(0, 1, 2, 3, 5, 100)"),
    }
}

fn is_fetch(f: &Function) -> bool {
    f.name.contains("fetch")
}

/// A call of each function of the table.
fn calls() -> String {
    let table = Table::read(TEXT);
    let mut calls = Calls::new();
    for chapter in &table.chapters {
        let one_sided = matches!(
            chapter.title.as_str(),
            "Remote memory access" | "Signals" | "Atomic memory operations" | "Memory ordering"
        );
        for f in chapter.operations.iter().flat_map(|row| table.functions(row)) {
            if !NOT_CALLED.contains(&f.name.as_str()) {
                let argument = |ty: &str, name: &str| argument(&f, &chapter.title, ty, name);
                calls.add(&f.name, &f.arguments, one_sided, argument);
            }
        }
    }
    calls.header()
}

fn attack(pes: u32, rounds: u32, settings: &[(&str, &str)]) {
    let program =
        Program::with("arguments.c", &["-O0", "-Wno-deprecated-declarations"], &[("calls.h", &calls())]);
    attack::attack(rounds, settings, |settings, rounds| program.run(pes, settings, &[rounds]));
}

#[test]
fn no_argument_is_a_crash() {
    if ready("no_argument_is_a_crash") {
        attack(1, 20, &[]);
    }
}

#[test]
fn no_argument_is_a_crash_when_calls_are_traced() {
    if ready("no_argument_is_a_crash_when_calls_are_traced") {
        attack(1, 2, &[("SHMEM_DEBUG", "1")]);
    }
}

#[test]
fn no_argument_about_another_pe_is_a_crash() {
    if ready("no_argument_about_another_pe_is_a_crash") {
        attack(2, 10, &[]);
        attack(2, 2, &[("RUSHMEM_PES_PER_NODE", "1")]);
    }
}
