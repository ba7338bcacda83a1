//! A Rust program and a C library in one process and one world.

use std::path::Path;
use std::process::Command;

use rushmem_nvshmem::PREFIX;

use crate::common::{here, ready, Program};

#[test]
fn a_rust_program_and_a_c_library_see_one_world() {
    let test = "a_rust_program_and_a_c_library_see_one_world";
    if !ready(test) {
        return;
    }
    let program = Path::new(PREFIX).with_file_name("examples").join("mixed");
    if !program.exists() {
        return eprintln!("SKIP {test}: cargo has not built {}", program.display());
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let library = dir.path().join("library.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
    cc.arg(here().join("tests/mixed/library.c")).arg("-o").arg(&library);
    cc.args([&format!("-I{PREFIX}/include"), &format!("-L{PREFIX}/lib"), "-lnvshmem_host"]);
    let out = cc.arg(format!("-Wl,-rpath,{PREFIX}/lib")).output().expect("cc runs");
    assert!(out.status.success(), "{cc:?}\n{}", String::from_utf8_lossy(&out.stderr));
    let program = Program::at(dir, program);
    let library = library.to_str().expect("a path of ours is UTF-8");
    for pes in [1, 3] {
        program.all_well(pes, &[], &[library]);
    }
    program.all_well_far(2, &[library]);
}
