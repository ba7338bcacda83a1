//! libnvshmem_device.bc: all functions of kernels by their names in C, and kernels that link with it as
//! Triton's do. With RUSHMEM_TEST_ROUNDS=all, as it takes a minute.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use rushmem_nvshmem::table::{Caller, Table, TEXT};
use rushmem_nvshmem::PREFIX;

use crate::{here, nvcc};

fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The names behind `define` or `declare` in assembly of LLVM's.
fn named(assembly: &str, what: &str) -> BTreeSet<String> {
    let lines = assembly.lines().filter(|line| line.starts_with(what) && !line.contains(" internal "));
    let name = |line: &str| Some(line.split_once('@')?.1.split_once('(')?.0.to_owned());
    lines.filter_map(name).collect()
}

#[test]
fn bitcode_has_every_function_and_links() {
    let test = "bitcode_has_every_function_and_links";
    if !nvcc::whole() {
        return eprintln!("SKIP {test}: RUSHMEM_TEST_ROUNDS=all runs it");
    }
    let compiler = Command::new(here().join("../../device/bitcode")).arg("--compiler").output();
    let compiler = compiler.expect("a script of ours runs");
    if !compiler.status.success() {
        return eprintln!("SKIP {test}: {}", String::from_utf8_lossy(&compiler.stderr).trim());
    }
    let clang = String::from_utf8_lossy(&compiler.stdout).trim().to_owned();
    let dir = tempfile::tempdir().expect("a temporary folder");
    output(Command::new(here().join("device/bitcode")).arg(PREFIX).arg(dir.path()));
    let mut wanted: BTreeSet<String> =
        Table::read(TEXT).all().into_iter().filter(|f| f.caller != Caller::Host).map(|f| f.name).collect();
    wanted.insert("nvshmem_sync".into());
    assert!(wanted.len() > 2700, "{} functions", wanted.len());
    for (file, arch) in [("libnvshmem_device.bc", "sm_80"), ("libnvshmem_device.sm_90.bc", "sm_90")] {
        let code = dir.path().join(file);
        let mut read = Command::new(&clang);
        read.args(["--target=nvptx64-nvidia-cuda", "-x", "ir", "-S", "-emit-llvm"]);
        // Else it inlines all of it.
        let text = output(read.args(["-Xclang", "-disable-llvm-passes", "-o", "-"]).arg(&code));
        assert_eq!(named(&text, "define"), wanted, "{file}");
        // A linker of kernels has nothing else to link with.
        let missing: Vec<String> =
            named(&text, "declare").into_iter().filter(|name| !name.starts_with("llvm.")).collect();
        assert!(missing.is_empty(), "{file} lacks {missing:?}");
        for name in ["rushmem_state", "nvshmemi_device_lib_version_d"] {
            assert!(text.contains(&format!("@{name} = ")), "{file}: no {name}");
        }
        links(&clang, &code, arch, dir.path());
    }
}

/// A function that links with bitcode as compilers do that have LLVM's library, Triton among them.
fn links(clang: &str, code: &Path, arch: &str, dir: &Path) {
    let (source, ptx) = (dir.join("user.c"), dir.join("user.ptx"));
    std::fs::write(&source, USER).expect("the folder is there");
    let mut link = Command::new(clang);
    link.args(["--target=nvptx64-nvidia-cuda", "-S", "-O2", &format!("-march={arch}")]);
    link.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(code);
    output(link.arg(&source).arg("-o").arg(&ptx));
    let text = std::fs::read_to_string(&ptx).expect("clang has written it");
    assert!(text.contains("rushmem_state") && text.contains(".visible .func user"), "{text}");
    assert!(!text.contains(".extern .func"), "unresolved:\n{text}");
    let Some(nvcc) = nvcc::nvcc("machine code of bitcode") else { return };
    // The oldest clang knows no version in which words of 128 bits are; the compilers of kernels do.
    let version = text.lines().find(|line| line.starts_with(".version")).expect("PTX says its version");
    std::fs::write(&ptx, text.replacen(version, ".version 8.7", 1)).expect("the folder is there");
    let object = dir.join("user.cubin");
    let mut assemble = Command::new(nvcc.with_file_name("ptxas"));
    assemble.args(["-c", &format!("-arch={arch}")]).arg(&ptx).arg("-o").arg(&object);
    output(&mut assemble);
    let bytes = std::fs::read(&object).expect("ptxas has written it");
    assert!(bytes.windows(13).any(|at| at == b"rushmem_state"), "no device state in machine code");
}

/// Functions as NVSHMEM's documentation has them.
const USER: &str = "\
typedef unsigned long long word;
int nvshmem_my_pe(void), nvshmem_n_pes(void);
void nvshmem_int_p(int *, int, int);
void *nvshmem_ptr(const void *, int);
void nvshmemx_putmem_signal_block(void *, const void *, unsigned long, word *, word, int, int);
void nvshmemx_getmem_nbi_warp(void *, const void *, unsigned long, int);
word nvshmem_signal_wait_until(word *, int, word);
void nvshmemx_signal_op(word *, word, int, int);
int nvshmemx_float_sum_reduce_block(int, float *, const float *, unsigned long);
int nvshmemx_half_fcollect_warp(int, void *, const void *, unsigned long);
void nvshmem_quiet(void), nvshmemx_barrier_all_block(void);

void user(float *a, float *b, word *s)
{
  const int n = nvshmem_n_pes(), right = (nvshmem_my_pe() + 1) % n;
  nvshmem_int_p((int *) a, n, right);
  *(int *) nvshmem_ptr(a, right) = n;
  nvshmemx_putmem_signal_block(a, b, 64, s, 1, 9, right);
  nvshmemx_signal_op(s, nvshmem_signal_wait_until(s, 0, 1), 10, right);
  nvshmemx_getmem_nbi_warp(b, a, 16, right);
  nvshmem_quiet();
  nvshmemx_float_sum_reduce_block(0, a, b, 8);
  nvshmemx_half_fcollect_warp(0, a, b, 8);
  nvshmemx_barrier_all_block();
}
";
