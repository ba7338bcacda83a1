//! The library exports what the table says and what programs' own parts call, and nothing else; the headers
//! take C, C++ and, by nvcc, CUDA C++, whose programs link both ways.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_nvshmem::table::{Caller, Table, TEXT};
use rushmem_nvshmem::PREFIX;

mod bitcode;
mod forms;
#[path = "common/nvcc.rs"]
mod nvcc;
mod users;

use nvcc::{nvcc, whole};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_library_exports_the_table() {
    let library = format!("{PREFIX}/lib/libnvshmem_host.so");
    let out = match Command::new("nm").args(["-D", "--defined-only", &library]).output() {
        Ok(out) => out,
        Err(e) => return eprintln!("SKIP the_library_exports_the_table: nm: {e}"),
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(String::from).collect();
    let table = Table::read(TEXT).all();
    let host = table.iter().filter(|f| f.caller == Caller::Host).map(|f| f.name.clone());
    let own = rushmem_nvshmem::source::OWN.map(String::from);
    let wanted: BTreeSet<String> = host.chain(own).collect();
    assert_eq!(exported, wanted);
    assert!(wanted.len() > 1700, "{} functions", wanted.len());
}

#[test]
fn no_function_stands_twice() {
    let mut seen = BTreeSet::new();
    for f in Table::read(TEXT).all() {
        let side = if f.caller == Caller::Host { "host" } else { "kernels" };
        assert!(seen.insert((side, f.name.clone())), "{} stands twice for {side}", f.name);
    }
}

/// With CUDA's headers on the path, as where a machine has CUDA, and without.
#[test]
fn headers_take_c_and_cpp() {
    let test = "headers_take_c_and_cpp";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let include = format!("-I{PREFIX}/include");
    let cuda = nvcc(test).and_then(|nvcc| Some(nvcc.parent()?.parent()?.join("include")));
    let cuda = cuda.filter(|include| include.join("cuda_runtime.h").exists());
    if cuda.is_none() {
        eprintln!("SKIP {test} beside CUDA's headers: there are none");
    }
    let cuda = cuda.map(|include| format!("-isystem{}", include.display()));
    for (name, compiler, standard) in [("a.c", "cc", "-std=c11"), ("a.cpp", "c++", "-std=c++11")] {
        let source = dir.path().join(name);
        std::fs::write(&source, NAMES).expect("the folder is there");
        for beside in [None, cuda.as_deref()] {
            let mut cc = Command::new(compiler);
            cc.args([standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", &include]).args(beside);
            match cc.arg(&source).output() {
                Ok(out) => assert!(out.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&out.stderr)),
                Err(e) => eprintln!("SKIP {test}: {compiler}: {e}"),
            }
        }
    }
}

/// Names that are no functions.
const NAMES: &str = "\
#include <nvshmemx.h>
#include <host/nvshmem_api.h>
#include <nvshmem_host.h>
#if NVSHMEM_VENDOR_VERSION != 30800
#error \"the version as a number\"
#endif
int main(void)
{
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER, before = NVSHMEMX_INIT_ATTR_V1_INITIALIZER;
  nvshmemx_init_args_t args = NVSHMEMX_INIT_ARGS_INITIALIZER, later = NVSHMEMX_INIT_ARGS_V2_INITIALIZER;
  nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER;
  nvshmemx_cmp_type_t cmp = NVSHMEM_CMP_EQ;
  nvshmemx_signal_op_t op = NVSHMEM_SIGNAL_SET;
  nvshmem_team_id_t team = NVSHMEM_TEAM_WORLD;
  nvshmemx_init_status_t status = NVSHMEM_STATUS_NOT_INITIALIZED;
  nvshmemx_thread_support_t threads = NVSHMEM_THREAD_SINGLE;
  __half half;
#ifdef RUSHMEM_NVSHMEM_CUDA
  dim3 one = {1, 1, 1};
  nvshmemx_collective_launch_attr_t launch;
  launch.cuda_config.numAttrs = 0;
  nvshmemx_collective_launch(NULL, one, one, NULL, 0, NULL);
  nvshmemx_collective_launch_attr(&launch, NULL, NULL);
#endif
  (void) half, (void) before, (void) args, (void) later, (void) op;
  nvshmem_long_wait_until((long *) 0, cmp, 0);
  return attr.args.uid_args.nranks + config.version - 2 + (int) team + (int) status + (int) threads;
}
";

/// In C++17, unless the arguments say another. Gives what the compiler and nvlink say.
fn compile(nvcc: &Path, source: &Path, arguments: &[&str]) -> String {
    let mut run = Command::new("timeout");
    let standard = arguments.iter().all(|argument| !argument.starts_with("-std=")).then_some("-std=c++17");
    run.arg("1500").arg(nvcc).args(standard).args(["-Werror", "all-warnings"]).arg(source);
    run.arg("-I").arg(format!("{PREFIX}/include")).arg("-I").arg(here().join("../../device/include"));
    run.arg("-I").arg(source.parent().expect("a file is in a folder")).args(arguments);
    let out = run.output().expect("timeout runs");
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(out.status.success(), "{run:?}\n{said}");
    said
}

/// `nvcc -rdc=true … -lnvshmem_host -lnvshmem_device`, the same with `-dlto` and by `-lnvshmem`, and a whole
/// program.
#[test]
fn programs_of_nvcc_link_both_ways() {
    let Some(nvcc) = nvcc("programs_of_nvcc_link_both_ways") else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let lib = dir.path().to_str().expect("a path of ours is UTF-8").to_owned();
    let mut device = Command::new(here().join("device/library"));
    device.arg(PREFIX).arg(&lib).env("NVCC", &nvcc);
    if !whole() {
        device.env("RUSHMEM_ARCHS", "90");
    }
    let out = device.output().expect("a script of ours runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Not quickly: a compiler in a hurry forgets a kernel's bounds in the functions that it calls.
    let mut sources = vec![here().join("tests/kernels/ring.cu")];
    if whole() {
        let all = std::fs::read_dir(here().join("examples")).expect("a folder of ours");
        let all = all.map(|entry| entry.expect("a folder of ours").path());
        // That of MPI is linked where there is one: by tests/examples.
        let cuda =
            |path: &PathBuf| path.extension().is_some_and(|e| e == "cu") && !path.ends_with("by_mpi.cu");
        sources.extend(all.filter(cuda));
    }
    let cudart = nvcc.parent().and_then(Path::parent).map(|root| format!("-L{}", root.join("lib").display()));
    let cudart = cudart.unwrap_or_default();
    let prefix = format!("-L{PREFIX}/lib");
    let ways = [
        ("rdc", vec!["-rdc=true", "-L", lib.as_str(), "-lnvshmem_host", "-lnvshmem_device"]),
        ("lto", vec!["-rdc=true", "-dlto", "-L", lib.as_str(), "-lnvshmem_host", "-lnvshmem_device"]),
        ("one", vec!["-rdc=true", "-L", lib.as_str(), "-lnvshmem"]),
        ("whole", vec!["-lnvshmem_host"]),
    ];
    for (source, (name, ways)) in sources.iter().flat_map(|source| ways.iter().map(move |way| (source, way)))
    {
        let program = format!("{lib}/{name}");
        let mut arguments = vec!["-arch=sm_90", "-o", &program, &prefix, &cudart];
        arguments.extend(ways);
        arguments.extend(["-Xlinker", "--unresolved-symbols=ignore-in-shared-libs"]);
        let said = compile(&nvcc, source, &arguments);
        assert!(!said.contains("maxrregcount"), "{name}: the library bounds a program's kernels:\n{said}");
        let symbols = Command::new("nm").args(["-D", &program]).output().expect("nm runs");
        let text = String::from_utf8_lossy(&symbols.stdout).into_owned();
        // In an archive it is the program's own.
        let known = *name == "one" || text.contains("rushmem_nvshmem_attach");
        assert!(known, "{name}: its kernels are not made known:\n{text}");
        let elf = Command::new(nvcc.with_file_name("cuobjdump")).args(["-elf", &program]).output();
        if let Ok(elf) = elf {
            let text = String::from_utf8_lossy(&elf.stdout);
            // nvlink leaves out of LTO-IR what no kernel uses. Loaders are given no programs.
            assert!(
                *name == "lto" || text.contains("nvshmemi_device_lib_version_d"),
                "{name}: what loaders look for is not there"
            );
        }
    }
    // Of the archive's functions of the host: a program that knows no library by name.
    let (source, program) = (dir.path().join("put.c"), dir.path().join("put"));
    std::fs::write(&source, PUT).expect("the folder is there");
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(format!("{PREFIX}/include")).arg(&source).arg("-o").arg(&program).arg("-L").arg(&lib);
    let out = cc.arg("-lnvshmem").output().expect("nvcc needs a C compiler, too");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut run = Command::new("timeout");
    run.arg("60").arg(Path::new(PREFIX).with_file_name("rushmem-run")).args(["-n", "2"]).arg(&program);
    let out = run.env("RUSHMEM_DEVICE", "cpu").env("NVSHMEM_HOME", PREFIX).output().expect("timeout runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Of the host's library alone: kernels of the program's own know nothing of NVSHMEM.
    let (source, program) = (dir.path().join("host.cu"), format!("{lib}/host"));
    let kernel = "__global__ void own(int *at) { *at = 1; }\n";
    std::fs::write(&source, PUT.replace("= nvshmem_malloc(", "= (double *) nvshmem_malloc(") + kernel)
        .expect("the folder is there");
    let host = ["-DNVSHMEM_HOSTLIB_ONLY", "-arch=sm_90", "-o", &program, &prefix, &cudart, "-lnvshmem_host"];
    compile(
        &nvcc,
        &source,
        &[&host[..], &["-Xlinker", "--unresolved-symbols=ignore-in-shared-libs"]].concat(),
    );
    let symbols = Command::new("nm").args(["-D", &program]).output().expect("nm runs");
    let text = String::from_utf8_lossy(&symbols.stdout);
    assert!(text.contains("nvshmem_init") && !text.contains("rushmem_nvshmem_attach"), "{text}");
    let mut run = Command::new("timeout");
    run.arg("60").arg(Path::new(PREFIX).with_file_name("rushmem-run")).args(["-n", "2"]).arg(&program);
    let out = run.env("RUSHMEM_DEVICE", "cpu").env("LD_LIBRARY_PATH", format!("{PREFIX}/lib")).output();
    let out = out.expect("timeout runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

const PUT: &str = "#include <nvshmem.h>
int main(void) {
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  double *at = nvshmem_malloc(sizeof *at);
  nvshmem_double_p(at, me + 0.5, (me + 1) % n);
  nvshmem_barrier_all();
  const double got = nvshmem_double_g(at, me);
  nvshmem_finalize();
  return got != (me + n - 1) % n + 0.5;
}
";

/// What shows machine code; said aloud where it is not.
fn disassembler(nvcc: &Path, test: &str) -> Option<PathBuf> {
    let found = nvcc.with_file_name("cuobjdump");
    let there = Command::new(&found).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP {test}: no cuobjdump beside nvcc");
    }
    there.then_some(found)
}

/// A kernel of nvshmem.h's is the same machine code as one of rushmem's own functions.
#[test]
fn functions_are_rushmems_own() {
    let test = "functions_are_rushmems_own";
    let Some(nvcc) = nvcc(test) else { return };
    let Some(disassembler) = disassembler(&nvcc, test) else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let code = |name: &str, body: [&str; 5]| {
        let source = dir.path().join(format!("{name}.cu"));
        let mut text = String::from("#include <nvshmem.h>\n");
        for (i, body) in body.iter().enumerate() {
            text.push_str(&format!(
                "extern \"C\" __global__ void k{i}(long *a, const long *b, uint64_t *s, int pe) {{ {body}; }}\n"
            ));
        }
        std::fs::write(&source, text).expect("the folder is there");
        let cubin = dir.path().join(format!("{name}.cubin"));
        let cubin = cubin.to_str().expect("a path of ours is UTF-8");
        compile(&nvcc, &source, &["-arch=sm_90", "-cubin", "-o", cubin]);
        let out = Command::new(&disassembler).args(["-sass", cubin]).output().expect("it is there");
        String::from_utf8_lossy(&out.stdout).lines().filter(|line| line.contains("/*0")).collect::<String>()
    };
    let ours = code(
        "ours",
        [
            "rushmem::p(a, 3L, pe)",
            "rushmem::put<rushmem::block>(a, b, 64, pe)",
            "rushmem::put_signal<rushmem::warp>(a, b, 8, s, 1, rushmem::signal::set, pe)",
            "rushmem::barrier_all<rushmem::block>()",
            "rushmem::reduce<rushmem::block>(rushmem::world(), a, b, 64, rushmem::sum{})",
        ],
    );
    let theirs = code(
        "theirs",
        [
            "nvshmem_long_p(a, 3L, pe)",
            "nvshmemx_long_put_block(a, b, 64, pe)",
            "nvshmemx_long_put_signal_warp(a, b, 8, s, 1, NVSHMEM_SIGNAL_SET, pe)",
            "nvshmemx_barrier_all_block()",
            "nvshmemx_long_sum_reduce_block(NVSHMEM_TEAM_WORLD, a, b, 64)",
        ],
    );
    assert!(ours.len() > 10_000 && ours == theirs, "{} and {} bytes", ours.len(), theirs.len());
}

/// The kernels of bench/ and those of rushmem-perf, which it sets beside them, are the same instructions:
/// what differs between two figures is the measurement.
#[test]
fn the_benchs_loops_are_rushmem_perfs() {
    let test = "the_benchs_loops_are_rushmem_perfs";
    if !whole() {
        return eprintln!("SKIP {test}: RUSHMEM_TEST_ROUNDS=all compiles them");
    }
    let Some(nvcc) = nvcc(test) else { return };
    let Some(disassembler) = disassembler(&nvcc, test) else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let cubin = dir.path().join("bench.cubin");
    let cubin = cubin.to_str().expect("a path of ours is UTF-8");
    let source = here().join("bench/bench.cu");
    compile(&nvcc, &source, &["-arch=sm_90", "-O3", "-rdc=true", "-cubin", "-o", cubin]);
    let out = Command::new(&disassembler).args(["-sass", cubin]).output().expect("it is there");
    let kernels = opcodes(&String::from_utf8_lossy(&out.stdout));
    let mut pairs = 0;
    for (symbol, own) in &kernels {
        let Some(name) = symbol.strip_prefix("_ZN3own").and_then(|rest| source_name(rest)) else { continue };
        let ours = match name {
            _ if name.starts_with("sync_") => name.replace("sync_", "sync_all_"),
            _ if name.starts_with("barrier_") => name.replace("barrier_", "barrier_all_"),
            _ => name.to_owned(),
        };
        let found = kernels.iter().find(|(symbol, _)| {
            symbol.strip_prefix("_Z").and_then(|rest| source_name(rest)) == Some(ours.as_str())
        });
        let (_, code) = found.unwrap_or_else(|| panic!("{ours} is not in {cubin}"));
        assert!(code.len() > 50, "{ours}: {} instructions", code.len());
        let first = code.iter().zip(own).position(|(a, b)| a != b);
        assert!(code == own, "{ours} and {symbol}: {} and {}, {first:?}", code.len(), own.len());
        pairs += 1;
    }
    // Of three scopes, of one thread, of a block, and atomic operations one after the other and by blocks.
    assert_eq!(pairs, 14 * 3 + 3 + 2 + 2 * 14);
}

/// After a length: that many characters.
fn source_name(mangled: &str) -> Option<&str> {
    let digits = mangled.bytes().take_while(u8::is_ascii_digit).count();
    mangled.get(digits..digits + mangled[..digits].parse::<usize>().ok()?)
}

/// Instructions of each function, without operands and the padding at the end.
fn opcodes(text: &str) -> Vec<(String, Vec<String>)> {
    let mut functions: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Function : ") {
            functions.push((name.to_owned(), Vec::new()));
        }
        let Some((_, instruction)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) else {
            continue;
        };
        let mut words = instruction.split_whitespace().filter(|word| !word.starts_with('@'));
        let opcode = words.next().unwrap_or("").trim_end_matches(';');
        let is_code = opcode.starts_with(|c: char| c.is_ascii_uppercase()) && opcode != "NOP";
        if let (true, Some((_, code))) = (is_code, functions.last_mut()) {
            code.push(opcode.to_owned());
        }
    }
    functions
}

/// `make install-nvshmem`, and a program that CMake's find_package(NVSHMEM) builds against it.
#[test]
fn an_installation_is_found_by_cmake() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return eprintln!("SKIP an_installation_is_found_by_cmake: no cmake");
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let prefix = dir.path().join("prefix");
    let built = Path::new(PREFIX).parent().expect("cargo's layout");
    let mut install = Command::new(here().join("../../scripts/install-nvshmem"));
    install.arg("--from").arg(built).arg(&prefix).env("NVCC", "none").env("CLANG", "none");
    let out = install.output().expect("a script of ours runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let project = "cmake_minimum_required(VERSION 3.18)\nproject(user C)\nfind_package(NVSHMEM 3 REQUIRED)\n\
                   add_executable(user user.c)\ntarget_link_libraries(user nvshmem::nvshmem_host)\n";
    let program = "#include <nvshmemx.h>\nint main(void) { nvshmem_init(); int n = nvshmem_n_pes();\n\
                   nvshmem_finalize(); return n != 1; }\n";
    std::fs::write(dir.path().join("CMakeLists.txt"), project).expect("the folder is there");
    std::fs::write(dir.path().join("user.c"), program).expect("the folder is there");
    let build = dir.path().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(dir.path()).arg("-B").arg(&build);
    configure.arg(format!("-DNVSHMEM_DIR={}", prefix.join("lib/cmake/nvshmem").display()));
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&build);
    let mut run = Command::new("timeout");
    run.arg("60").arg(build.join("user")).env("RUSHMEM_DEVICE", "cpu");
    for step in [&mut configure, &mut make, &mut run] {
        let out = step.output().expect("the program is there");
        let (said, failed) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{step:?}\n{said}{failed}");
    }
}
