//! What the build scripts of `compat` share: a C library that is a client of the runtime's C ABI, made of the
//! crate's `c` and of generated symbols, and files of a prefix, `target/<profile>/<name>`.
//!
//! The library is linked by the C compiler itself: what links a Rust cdylib hides every symbol that Rust does
//! not export. It needs `librushmem_host.so` by that name, which cargo may not have linked yet, so it is
//! linked against an empty library of that name; the loader finds the true one beside it.

use std::os::unix;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A crate that is built.
pub(crate) struct Client {
    /// The crate's folder.
    pub(crate) here: PathBuf,
    /// What it is installed from.
    pub(crate) prefix: PathBuf,
    out: PathBuf,
    runtime: PathBuf,
}

impl Client {
    /// The crate of the running build script, which is run again when one of `watched` has changed.
    pub(crate) fn new(name: &str, watched: &[&str]) -> Client {
        let variable =
            |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("no {name}"));
        let (out, runtime) = (variable("OUT_DIR"), variable("DEP_RUSHMEM_HOST_INCLUDE"));
        for path in ["build.rs", "operations.table", "src", "c", "../common"].iter().chain(watched) {
            println!("cargo:rerun-if-changed={path}");
        }
        println!("cargo:rerun-if-changed={}", runtime.display());
        // target/<profile>/build/<crate>/out
        let prefix = out.ancestors().nth(3).expect("cargo's layout").join(name);
        Client { here: variable("CARGO_MANIFEST_DIR"), prefix, out, runtime }
    }

    /// A file of the build's own.
    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// The C compiler.
    pub(crate) fn compiler() -> Command {
        cc::Build::new().opt_level(2).warnings(false).cargo_metadata(false).get_compiler().to_command()
    }

    /// Makes `lib/<soname>` of the prefix from the files of `c` and the text of `symbols`.
    pub(crate) fn library(&self, soname: &str, symbols: &str, options: &[String]) {
        let (symbols_c, stub) = (self.out("symbols.c"), self.out("stub"));
        write(&symbols_c, symbols);
        write(&stub.join("stub.c"), "");
        let mut link = Client::compiler();
        link.args(["-shared", "-nostdlib", "-Wl,-soname,librushmem_host.so", "-o"]);
        run(link.arg(stub.join("librushmem_host.so")).arg(stub.join("stub.c")));

        let mut sources = files(&self.here.join("c"));
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
        let (new, library) = (self.out("library.so"), self.prefix.join("lib").join(soname));
        let mut cc = Client::compiler();
        cc.args(["-std=gnu11", "-O2", "-g", "-fPIC", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fno-plt"]);
        cc.args(["-pthread", "-shared", "-Wall", "-Wextra", "-Wno-format-extra-args", "-Wno-unused-value"]);
        for folder in [&self.here.join("c"), &self.here.join("../common"), &self.prefix.join("include")] {
            cc.arg("-I").arg(folder);
        }
        cc.arg("-I").arg(&self.runtime).args(options).arg(format!("-Wl,-soname,{soname}"));
        cc.args(["-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN"]);
        cc.args(&sources).arg(&symbols_c).arg("-o").arg(&new).arg("-L").arg(&stub);
        run(cc.args(["-lrushmem_host", "-ldl", "-lm"]));
        replace(&new, &library);
        // The runtime lies beside the library in an installation, and in `deps` in cargo's folder.
        symlink("../../deps/librushmem_host.so", &library.with_file_name("librushmem_host.so"));
    }
}

/// The files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}

/// A file that is the same stays as it is: compilers' caches look at its age.
pub(crate) fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("target can be written to");
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// A new file in the place of the old one: a running program keeps what it has mapped.
pub(crate) fn replace(from: &Path, to: &Path) {
    let beside = to.with_extension("new");
    fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("target can be written to");
    fs::copy(from, &beside)
        .and_then(|_| fs::rename(&beside, to))
        .unwrap_or_else(|e| panic!("{}: {e}", to.display()));
}

/// A symbolic link at `at`.
pub(crate) fn symlink(to: &str, at: &Path) {
    let _ = fs::remove_file(at);
    unix::fs::symlink(to, at).unwrap_or_else(|e| panic!("{}: {e}", at.display()));
}

/// Runs a command that has to succeed; what it says are warnings.
pub(crate) fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{command:?}\n{said}");
    said.lines().for_each(|line| println!("cargo:warning={line}"));
}
