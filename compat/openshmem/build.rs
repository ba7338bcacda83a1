//! Makes header and library from the table, and lays them out as a prefix, `target/<profile>/openshmem`.
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
#[allow(unreachable_pub)]
mod source;
#[path = "src/table.rs"]
#[allow(unreachable_pub)]
mod table;

fn main() {
    for path in ["build.rs", "operations.table", "src", "c", "mpi", "bin"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("no {name}"));
    let out = variable("OUT_DIR");
    let runtime = variable("DEP_RUSHMEM_HOST_INCLUDE");
    let here = variable("CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed={}", runtime.display());
    // target/<profile>/build/<crate>/out
    let prefix = out.ancestors().nth(3).expect("cargo's layout").join("openshmem");
    println!("cargo:rustc-env=SHMEM_BUILD_PREFIX={}", prefix.display());

    let table = table::Table::read(table::TEXT);
    let include = prefix.join("include");
    write(&include.join("shmem.h"), &header::shmem_h(&table, include_str!("c/shmem.h.in")));
    write(&include.join("pshmem.h"), &header::pshmem_h(&table));
    // Deprecated, and wanted by programs of fifteen years.
    write(&include.join("mpp/shmem.h"), "#include <shmem.h>\n");
    let symbols = out.join("symbols.c");
    write(&symbols, &source::symbols(&table));

    let stub = out.join("stub");
    write(&stub.join("stub.c"), "");
    let compiler = || cc::Build::new().opt_level(2).warnings(false).cargo_metadata(false).get_compiler();
    let mut link = compiler().to_command();
    link.args(["-shared", "-nostdlib", "-Wl,-soname,librushmem_host.so", "-o"]);
    run(link.arg(stub.join("librushmem_host.so")).arg(stub.join("stub.c")));

    let mut sources: Vec<PathBuf> = fs::read_dir(here.join("c"))
        .expect("the C files are beside this one")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    sources.push(symbols);
    // A new file in the place of the old one: a running program keeps what it has mapped.
    let (library, new) = (prefix.join("lib/libshmem.so"), out.join("libshmem.so"));
    let mut cc = compiler().to_command();
    cc.args([
        "-std=gnu11",
        "-O2",
        "-g",
        "-fPIC",
        "-D_GNU_SOURCE",
        "-fvisibility=hidden",
        "-fno-plt",
        "-pthread",
        "-shared",
    ]);
    cc.args(["-Wall", "-Wextra", "-Wno-format-extra-args", "-Wno-unused-value"]);
    cc.arg("-I").arg(here.join("c")).arg("-I").arg(&include).arg("-I").arg(&runtime);
    cc.args(["-Wl,-soname,libshmem.so", "-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--enable-new-dtags"]);
    cc.arg("-Wl,-rpath,$ORIGIN");
    cc.args(&sources).arg("-o").arg(&new).arg("-L").arg(&stub).args(["-lrushmem_host", "-ldl", "-lm"]);
    run(&mut cc);
    fs::create_dir_all(library.parent().expect("it is in a folder")).expect("target can be written to");
    replace(&new, &library);
    // For programs that are on MPI, too: oshcc links with it, and what is in it is taken by those alone.
    let (object, archive) = (out.join("both.o"), out.join("libshmem_mpi.a"));
    let mut cc = compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-c"]).arg(here.join("mpi/both.c"));
    run(cc.arg("-o").arg(&object));
    let _ = fs::remove_file(&archive);
    let archiver = env::var_os("AR").unwrap_or_else(|| "ar".into());
    run(Command::new(archiver).arg("rcs").arg(&archive).arg(&object));
    replace(&archive, &library.with_file_name("libshmem_mpi.a"));
    // The runtime lies beside the library in an installation, and in `deps` in cargo's folder.
    let beside = library.with_file_name("librushmem_host.so");
    let _ = fs::remove_file(&beside);
    symlink("../../deps/librushmem_host.so", &beside).expect("target can be written to");
    for tool in ["oshcc", "oshc++", "oshrun", "shmemrun"] {
        let to = prefix.join("bin").join(tool);
        fs::create_dir_all(prefix.join("bin")).expect("target can be written to");
        replace(&here.join("bin").join(tool), &to);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("target can be written to");
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn replace(from: &Path, to: &Path) {
    let beside = to.with_extension("new");
    fs::copy(from, &beside)
        .and_then(|_| fs::rename(&beside, to))
        .unwrap_or_else(|e| panic!("{}: {e}", to.display()));
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{command:?}\n{said}");
    said.lines().for_each(|line| println!("cargo:warning={line}"));
}
