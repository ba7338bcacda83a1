//! Makes headers and library from the table, and lays them out as a prefix, `target/<profile>/nvshmem`.
//!
//! The library is linked by the C compiler itself: what links a Rust cdylib hides every symbol that Rust does
//! not export. It needs `librushmem_host.so` by that name, which cargo may not have linked yet, so it is
//! linked against an empty library of that name; the loader finds the true one beside it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/header.rs"]
#[allow(unreachable_pub)]
mod header;
#[path = "src/source.rs"]
#[allow(unreachable_pub, dead_code)]
mod source;
#[path = "src/table.rs"]
#[allow(unreachable_pub, dead_code)]
mod table;

/// The library's name inside, as programs of NVSHMEM 3 ask for it.
const SONAME: &str = "libnvshmem_host.so.3";

fn main() {
    for path in ["build.rs", "operations.table", "src", "c", "include"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("no {name}"));
    let out = variable("OUT_DIR");
    let runtime = variable("DEP_RUSHMEM_HOST_INCLUDE");
    let here = variable("CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed={}", runtime.display());
    // target/<profile>/build/<crate>/out
    let prefix = out.ancestors().nth(3).expect("cargo's layout").join("nvshmem");
    println!("cargo:rustc-env=PREFIX_OF_NVSHMEM={}", prefix.display());

    let table = table::Table::read(table::TEXT);
    let include = prefix.join("include");
    copy_all(&here.join("include"), &include);
    write(&include.join("rushmem_nvshmem/host.h"), &header::host(&table));
    write(&include.join("rushmem_nvshmem/device.h"), &header::device(&table));
    write(&prefix.join("tests/sets.h"), &table.lists());
    write(&prefix.join("calls/names.h"), &source::calls(&table));
    let symbols = out.join("symbols.c");
    write(&symbols, &source::symbols(&table));

    let stub = out.join("stub");
    write(&stub.join("stub.c"), "");
    let compiler = || cc::Build::new().opt_level(2).warnings(false).cargo_metadata(false).get_compiler();
    let mut link = compiler().to_command();
    link.args(["-shared", "-nostdlib", "-Wl,-soname,librushmem_host.so", "-o"]);
    run(link.arg(stub.join("librushmem_host.so")).arg(stub.join("stub.c")));

    let mut sources = files(&here.join("c"));
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    sources.push(symbols);
    // A new file in the place of the old one: a running program keeps what it has mapped.
    let (library, new) = (prefix.join("lib").join(SONAME), out.join("libnvshmem_host.so"));
    let mut cc = compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-g", "-fPIC", "-D_GNU_SOURCE", "-DRUSHMEM_NVSHMEM_LIBRARY"]);
    cc.args(["-fvisibility=hidden", "-fno-plt", "-pthread", "-shared"]);
    cc.args(["-Wall", "-Wextra", "-Wno-format-extra-args", "-Wno-unused-value"]);
    cc.arg("-I").arg(here.join("c")).arg("-I").arg(&include).arg("-I").arg(&runtime);
    cc.arg("-I").arg(here.join("../../device/include"));
    cc.arg(format!("-Wl,-soname,{SONAME}"));
    cc.args(["-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN"]);
    cc.args(&sources).arg("-o").arg(&new).arg("-L").arg(&stub).args(["-lrushmem_host", "-ldl"]);
    run(&mut cc);
    fs::create_dir_all(prefix.join("lib")).expect("target can be written to");
    let beside = library.with_extension("new");
    fs::copy(&new, &beside)
        .and_then(|_| fs::rename(&beside, &library))
        .unwrap_or_else(|e| panic!("{}: {e}", library.display()));
    // The runtime lies beside the library in an installation, and in `deps` in cargo's folder.
    for (name, to) in
        [("libnvshmem_host.so", SONAME), ("librushmem_host.so", "../../deps/librushmem_host.so")]
    {
        let link = prefix.join("lib").join(name);
        let _ = fs::remove_file(&link);
        symlink(to, &link).expect("target can be written to");
    }
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}

fn copy_all(from: &Path, to: &Path) {
    for path in files(from) {
        let beside = to.join(path.file_name().expect("a file has a name"));
        if path.is_dir() {
            copy_all(&path, &beside);
        } else {
            write(&beside, &fs::read_to_string(&path).expect("a header is text"));
        }
    }
}

/// A file that is the same stays as it is: compilers' caches look at its age.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("target can be written to");
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{command:?}\n{said}");
    said.lines().for_each(|line| println!("cargo:warning={line}"));
}
