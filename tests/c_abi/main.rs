//! The C ABI from C and C++: programs compiled by the system's compiler against an *installed* rushmem, found
//! through pkg-config, run on 4 PEs. Warnings are errors, in C11 and in C++17.

mod job;
mod one_runtime;
mod stage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use stage::Stage;

const PES: u32 = 4;
const LIMIT: Duration = Duration::from_secs(60);

/// A program of tests/c, compiled beside what is installed.
fn program(stage: &Stage, source: &str) -> PathBuf {
    let program = stage.dir().with_file_name(source).with_extension("");
    stage.compile(&stage::sources().join("tests/c").join(source), &[], &program);
    program
}

fn runs_on_4_pes(source: &str) {
    runs_on_4_pes_with(source, &[]);
}

fn runs_on_4_pes_with(source: &str, settings: &[(&str, &str)]) {
    let Some(stage) = Stage::new(source) else { return };
    let program = program(&stage, source);
    let job = job::run(&stage, &program, PES, LIMIT, settings);
    for pe in 0..PES {
        let line = format!("PE {pe} of {PES}: all well");
        assert!(job.contains(&line), "{source}: no \"{line}\" in:\n{job}");
    }
}

#[test]
fn remote_memory_access() {
    runs_on_4_pes("rma.c");
}

/// Near PEs that are two numbers apart, and near PEs in a table.
#[test]
fn remote_memory_access_to_pes_of_any_numbering() {
    if let Err(why) = rushmem::doctor::network().unwrap() {
        return eprintln!("SKIP remote_memory_access_to_pes_of_any_numbering: {why}");
    }
    for nodes in ["0,1", "0,0,1,0"] {
        let settings =
            [("RUSHMEM_TRANSPORT", "auto"), ("RUSHMEM_PES_PER_NODE", ""), ("RUSHMEM_NODES", nodes)];
        runs_on_4_pes_with("rma.c", &settings);
    }
}

#[test]
fn atomics() {
    runs_on_4_pes("atomics.c");
}

#[test]
fn signals_and_waits() {
    runs_on_4_pes("waits.c");
}

#[test]
fn mistakes() {
    runs_on_4_pes("errors.c");
}

#[test]
fn teams() {
    runs_on_4_pes("teams.c");
}

#[test]
fn collectives() {
    if std::env::var("RUSHMEM_DEVICE").is_ok_and(|device| device.trim().starts_with("cuda")) {
        return eprintln!("SKIP collectives: from the host they take host memory");
    }
    runs_on_4_pes_with("collectives.c", &[("RUSHMEM_DEVICE", "cpu")]);
}

#[test]
fn children_of_fork() {
    runs_on_4_pes("fork.c");
}

#[test]
fn kernels() {
    runs_on_4_pes("kernel.c");
}

#[test]
fn the_end_of_a_process_leaves_the_job() {
    runs_on_4_pes("leave.c");
}

#[test]
fn cxx() {
    runs_on_4_pes("cxx.cpp");
}

#[test]
fn one_pe_without_a_launcher() {
    let Some(stage) = Stage::new("one_pe_without_a_launcher") else { return };
    let program = program(&stage, "rma.c");
    let out = job::alone(Command::new(program), LIMIT);
    assert!(out.contains("PE 0 of 1: all well"), "{out}");
}

/// On host memory: what a host may touch of a GPU's is the driver's matter.
#[test]
fn faults_have_a_text() {
    let Some(stage) = Stage::new("faults_have_a_text") else { return };
    let mut command = Command::new(program(&stage, "crash.c"));
    // The default of each: tests/gpu/run asks for a text of every fault.
    command.env("RUSHMEM_DEVICE", "cpu").env_remove("RUSHMEM_LOG").env_remove("RUSHMEM_CRASH_REPORT");
    let out = job::alone(command, LIMIT);
    assert!(out.contains("all faults have their text"), "{out}");
}

#[test]
fn both_headers_in_either_order_and_language() {
    let Some(stage) = Stage::new("both_headers_in_either_order_and_language") else { return };
    for (i, text) in [
        "#include <rushmem.h>\n#include <rushmem/abi.h>\n",
        "#include <rushmem/abi.h>\n#include <rushmem.h>\n",
        "#include <rushmem_typed.h>\n",
    ]
    .into_iter()
    .enumerate()
    {
        for ending in ["c", "cpp"] {
            let source = stage.dir().join(format!("headers{i}.{ending}"));
            let body = "int main(void) { return RUSHMEM_CMP_EQ + RUSHMEM_SIGNAL_SET + RUSHMEM_OK; }\n";
            std::fs::write(&source, format!("{text}{body}")).expect("the temporary folder can be written");
            stage.compile(&source, &["-c"], &stage.dir().join("headers.o"));
        }
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let Some(stage) = Stage::new("the_library_exports_what_the_header_declares_and_nothing_else") else {
        return;
    };
    let library = stage.dir().join("lib/librushmem_host.so");
    let nm = match Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() {
        Ok(nm) => nm,
        Err(e) => return eprintln!("SKIP exports: nm does not run: {e}"),
    };
    assert!(nm.status.success(), "nm: {}", String::from_utf8_lossy(&nm.stderr));
    let exported: BTreeSet<String> = String::from_utf8_lossy(&nm.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(String::from))
        .collect();
    let header = std::fs::read_to_string(stage.dir().join("include/rushmem.h")).expect("it is installed");
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/', '}']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(').and_then(|(before, _)| before.split([' ', '*']).next_back()))
        .map(String::from)
        .collect();
    assert!(declared.len() > 40 && declared.contains("rushmem_put"), "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_library_knows_its_own_name_and_where_it_lies() {
    let Some(stage) = Stage::new("the_library_knows_its_own_name_and_where_it_lies") else { return };
    let library = stage.dir().join("lib/librushmem_host.so");
    match Command::new("readelf").arg("-d").arg(&library).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.contains("Library soname: [librushmem_host.so]"), "{text}");
        }
        Err(e) => eprintln!("SKIP soname: readelf does not run: {e}"),
    }
    // The pkg-config file finds the tree where it is now, so a moved one works, too.
    let moved = stage.dir().with_extension("moved");
    std::fs::rename(stage.dir(), &moved).expect("a folder can be renamed");
    let flags = stage::pkg_config(&moved, &["--cflags", "--libs"]).expect("it worked before");
    std::fs::rename(&moved, stage.dir()).expect("and back");
    let moved = moved.to_string_lossy();
    assert!(flags.iter().filter(|f| f.contains(&*moved)).count() >= 2, "{flags:?}");
}
