//! Every function of the host, with arguments that make sense and arguments that do not, in random mixtures.
//! A call either returns or ends the job with a text that names it: the test program takes the place of the
//! process's end, and goes on with the next call. A crash is a failure.
//!
//! RUSHMEM_TEST_ROUNDS=all makes twenty times as many calls.

use crate::common::attack::{self, Calls};
use crate::common::{has_network, ready, Program};
use rushmem_nvshmem::table::{Caller, Function, Table, TEXT};

/// What this does to the test program is the end of it.
const NOT_CALLED: [&str; 1] = ["nvshmem_global_exit"];

/// A random argument: an expression of `arguments.c`.
fn argument(f: &Function, chapter: &str, ty: &str, name: &str) -> String {
    let is = |names: &[&str]| names.contains(&name);
    let get = f.name.contains("get") || f.name.contains("_g");
    let symmetric = match chapter {
        "Remote memory access" => name == if get { "source" } else { "dest" },
        "Signals" | "Atomic memory operations" => is(&["dest", "sig_addr", "target"]),
        "Point-to-point synchronisation" => is(&["ivar", "ivars"]),
        _ => is(&["ptr", "addr", "buf_ptr", "mmap_ptr", "preferred_addr"]),
    };
    let waits = f.name.contains("wait") || f.name.contains("test");
    match (ty, name) {
        ("nvshmem_team_t", _) => "team()".into(),
        ("nvshmem_team_t *", _) => "&made".into(),
        (_, _) if ty.contains("team_config_t") => "config()".into(),
        ("nvshmemx_init_attr_t *", _) => "&attributes".into(),
        (_, _) if ty.contains("team_uniqueid_t") => "&team_id".into(),
        (_, _) if ty.contains("uniqueid_t") => "&id".into(),
        ("nvshmemx_qp_handle_t **", _) => "&queues".into(),
        ("cudaStream_t", _) => "stream()".into(),
        ("CUmodule" | "CUlibrary", _) => format!("({ty}) local()"),
        _ if ty.ends_with('*') && matches!(chapter, "Collectives" | "Reductions") => {
            format!("({ty}) mapped()")
        }
        _ if ty.ends_with('*') && symmetric && waits => format!("({ty}) zero()"),
        _ if ty.ends_with('*') && symmetric => format!("({ty}) symmetric()"),
        _ if ty.ends_with('*') && name == "status" => format!("({ty}) status()"),
        _ if ty.ends_with('*') => format!("({ty}) local()"),
        (_, "cmp") => "comparison()".into(),
        // Of what is 0 these are true at once.
        (_, "cmp_value") => "0".into(),
        (_, "sig_op") => "some(NVSHMEM_SIGNAL_SET, NVSHMEM_SIGNAL_ADD, NVSHMEM_SIGNAL_SET, 0, -1, 7)".into(),
        ("int", "pe" | "src_pe" | "PE_root") => "pe()".into(),
        ("int" | "const int", _) => "some(0, 1, n, -1, 33, INT_MIN)".into(),
        ("unsigned int", _) => "(unsigned) some(0, 1, 2, 4, 8, -1)".into(),
        ("size_t", "alignment") => "(size_t) some(0, 3, 8, 4096, 1 << 20, -1)".into(),
        ("size_t", _) if chapter == "Memory management" => {
            "(size_t) some(0, 1, 64, 5000, -1, INT_MIN)".into()
        }
        ("size_t", _) => "count()".into(),
        ("ptrdiff_t", "dst") if get => "near_distance()".into(),
        ("ptrdiff_t", "sst") if !get => "near_distance()".into(),
        ("ptrdiff_t", _) => "distance()".into(),
        ("long", _) => "some(0, 1, 2, 0, -1, 1 << 20)".into(),
        _ => format!("({}) some(0, 1, 2, 3, 5, 100)", ty.trim_start_matches("const ")),
    }
}

/// A call of each function of the table that can be called so.
fn calls() -> String {
    let table = Table::read(TEXT);
    let mut calls = Calls::new();
    for chapter in &table.chapters {
        let one_sided = matches!(
            chapter.title.as_str(),
            "Remote memory access" | "Signals" | "Atomic memory operations" | "Ordering"
        );
        for f in chapter.operations.iter().flat_map(|row| table.functions(row)) {
            let half = f.of.as_ref().is_some_and(|of| of.is_half());
            // On streams each type and operator is a kernel that is compiled first.
            let compiles = chapter.title == "Reductions" && f.name.ends_with("_on_stream");
            if f.caller != Caller::Host || half || compiles || NOT_CALLED.contains(&f.name.as_str()) {
                continue;
            }
            calls.add(&f.name, &f.arguments, one_sided, |ty, name| argument(&f, &chapter.title, ty, name));
        }
    }
    calls.header()
}

fn attack(pes: u32, rounds: u32, settings: &[(&str, &str)]) {
    let program = Program::with("cc", "arguments.c", &[("calls.h", &calls())]);
    attack::attack(rounds, settings, |settings, rounds| program.run(pes, settings, &[rounds]));
}

#[test]
fn no_argument_is_a_crash() {
    if ready("no_argument_is_a_crash") {
        attack(1, 20, &[]);
    }
}

#[test]
fn no_argument_about_another_pe_is_a_crash() {
    if ready("no_argument_about_another_pe_is_a_crash") {
        attack(2, 10, &[]);
    }
    if has_network("no_argument_about_another_pe_is_a_crash, far") {
        attack(2, 2, &[("RUSHMEM_PES_PER_NODE", "1")]);
    }
}
