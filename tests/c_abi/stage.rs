//! An installed rushmem in a temporary folder, made by `scripts/install` from what cargo has built beside
//! this test, and the system's compiler against it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The installed tree; goes away with it.
pub(crate) struct Stage {
    _root: tempfile::TempDir,
    prefix: PathBuf,
}

impl Stage {
    /// Installs. `None`, said aloud, where this machine lacks a compiler or pkg-config.
    pub(crate) fn new(test: &str) -> Option<Stage> {
        for tool in ["cc", "c++", "pkg-config"] {
            if Command::new(compiler(tool)).arg("--version").output().is_err() {
                eprintln!("SKIP {test}: no {tool} on this machine");
                return None;
            }
        }
        let root = tempfile::tempdir().expect("a temporary folder");
        let prefix = root.path().join("prefix");
        let source = sources();
        let out = Command::new("bash")
            .arg(source.join("scripts/install"))
            .args(["--profile", "dev", "--from"])
            .arg(built())
            .arg(&prefix)
            .output()
            .expect("bash runs");
        assert!(out.status.success(), "scripts/install: {}", String::from_utf8_lossy(&out.stderr));
        Some(Stage { _root: root, prefix })
    }

    /// Where it is installed, in a folder of its own.
    pub(crate) fn dir(&self) -> &Path {
        &self.prefix
    }

    /// The launcher, where cargo has built one.
    pub(crate) fn launcher(&self) -> Option<PathBuf> {
        Some(self.prefix.join("bin/rushmem-run")).filter(|path| path.exists())
    }

    /// Runs the compiler that fits the file's ending, with warnings as errors and pkg-config's flags.
    pub(crate) fn compile(&self, source: &Path, options: &[&str], output: &Path) {
        let (name, standard) = match source.extension().and_then(|e| e.to_str()) {
            Some("cpp") => ("c++", "-std=c++17"),
            _ => ("cc", "-std=c11"),
        };
        let mut cc = Command::new(compiler(name));
        cc.args([
            standard,
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wconversion",
            "-Wshadow",
            "-Werror",
        ]);
        // Tests convert freely; only the headers' own conversions are of interest, and those are checked
        // without it.
        if source.starts_with(sources()) {
            cc.arg("-Wno-conversion");
        }
        cc.args(options).arg("-o").arg(output).arg(source);
        cc.args(pkg_config(&self.prefix, &["--cflags", "--libs"]).expect("the tree is installed"));
        let out = cc.output().expect("the compiler runs");
        assert!(out.status.success(), "{cc:?}\n{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Cargo and nextest name their folders in `LD_LIBRARY_PATH`. The loader looks there before where the program
/// says that its library is, and would take a copy that cargo may have left behind.
pub(crate) fn use_the_installed_library(command: &mut Command) {
    let Some(path) = std::env::var_os("LD_LIBRARY_PATH") else { return };
    let others = std::env::split_paths(&path).filter(|folder| !folder.join("librushmem_host.so").exists());
    command.env("LD_LIBRARY_PATH", std::env::join_paths(others).expect("parts of such a list"));
}

/// What pkg-config says of the rushmem below `prefix`.
pub(crate) fn pkg_config(prefix: &Path, what: &[&str]) -> Option<Vec<String>> {
    let out = Command::new("pkg-config")
        .args(what)
        .arg("rushmem")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .ok()?;
    assert!(out.status.success(), "pkg-config: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).split_whitespace().map(String::from).collect())
}

/// `CC` and `CXX` say otherwise.
fn compiler(name: &str) -> String {
    let variable = if name == "cc" { "CC" } else { "CXX" };
    std::env::var(variable)
        .ok()
        .filter(|v| name != "pkg-config" && !v.is_empty())
        .unwrap_or_else(|| name.into())
}

/// The source tree, or what of it came along with an archive of the tests: both runners say at run time.
pub(crate) fn sources() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// The folder with cargo's products: this test lies in its `deps`.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    test.ancestors().nth(2).expect("target/<profile>/deps/test").to_path_buf()
}
