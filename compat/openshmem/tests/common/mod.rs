//! Programs of tests/c, compiled by oshcc and started by oshrun as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rushmem_openshmem::table::{Table, TEXT};

#[path = "../../../../tests/support/attack.rs"]
pub(crate) mod attack;

/// A compiled program, in a folder that goes with it.
pub(crate) struct Program {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn tool(name: &str) -> PathBuf {
    Path::new(rushmem_openshmem::PREFIX).join("bin").join(name)
}

/// Whether programs can be compiled and run; said aloud where not.
pub(crate) fn ready(test: &str) -> bool {
    let launcher = Path::new(rushmem_openshmem::PREFIX).with_file_name("rushmem-run");
    let why = if Command::new("cc").arg("--version").output().is_err() {
        "no cc on this machine"
    } else if !launcher.exists() {
        "cargo has not built rushmem-run"
    } else {
        return true;
    };
    eprintln!("SKIP {test}: {why}");
    false
}

/// The sets of types as lists that C programs repeat over: `#define FOR_RMA(X) X(long double, longdouble) …`.
fn sets() -> &'static str {
    static SETS: OnceLock<String> = OnceLock::new();
    SETS.get_or_init(|| {
        let table = Table::read(TEXT);
        let mut text = String::new();
        for row in table.chapters.iter().flat_map(|chapter| &chapter.operations) {
            let Some(set) = &row.over else { continue };
            let name = format!("#define FOR_{}(X)", set.to_uppercase());
            if !text.contains(&name) {
                let all: Vec<String> =
                    table.members(row).iter().map(|of| format!("X({}, {})", of.c, of.name)).collect();
                text.push_str(&format!("{name} {}\n", all.join(" ")));
            }
        }
        text
    })
}

impl Program {
    /// Compiles `source` of tests/c with warnings as errors.
    pub(crate) fn new(source: &str, options: &[&str]) -> Program {
        Program::by("", source, options)
    }

    /// The same by another C compiler, unless that is "".
    pub(crate) fn by(cc_of_it: &str, source: &str, options: &[&str]) -> Program {
        Program::made(cc_of_it, source, options, &[])
    }

    /// With more files to include.
    pub(crate) fn with(source: &str, options: &[&str], files: &[(&str, &str)]) -> Program {
        Program::made("", source, options, files)
    }

    fn made(cc_of_it: &str, source: &str, options: &[&str], files: &[(&str, &str)]) -> Program {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files.iter().chain(&[("sets.h", sets())]) {
            std::fs::write(dir.path().join(name), text).expect("the folder is there");
        }
        let path = dir.path().join("program");
        let (compiler, standard) =
            if source.ends_with("cpp") { ("oshc++", "-std=c++17") } else { ("oshcc", "-std=c11") };
        let mut cc = Command::new(tool(compiler));
        if !cc_of_it.is_empty() {
            cc.env("OSHCC_CC", cc_of_it);
        }
        cc.args([
            standard,
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-pthread",
        ]);
        let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support");
        cc.args(options).arg("-I").arg(dir.path()).arg("-I").arg(shared).arg("-o").arg(&path);
        cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source));
        let out = cc.output().expect("oshcc runs");
        assert!(out.status.success(), "{cc:?}\n{}", String::from_utf8_lossy(&out.stderr));
        Program { _dir: dir, path }
    }

    /// Runs it on `pes` PEs with `settings`, and its arguments.
    pub(crate) fn run(&self, pes: u32, settings: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut run = Command::new(tool("oshrun"));
        for name in ["PE", "NPES", "UID", "LOCAL_PE", "LOCAL_NPES"] {
            run.env_remove(format!("RUSHMEM_{name}"));
        }
        run.env("RUSHMEM_DEVICE", "cpu").envs(settings.iter().copied()).stdin(Stdio::null());
        run.args(["-np", &pes.to_string(), "--timeout", "100"]).arg(&self.path).args(arguments);
        run.output().expect("oshrun runs")
    }

    /// Runs it on PE 0, and `other` on PE 1.
    pub(crate) fn run_beside(&self, other: &Program, settings: &[(&str, &str)]) -> Output {
        let choose = "if [ \"$RUSHMEM_PE\" = 0 ]; then exec \"$0\"; else exec \"$1\"; fi";
        let mut run = Command::new(tool("oshrun"));
        run.env("RUSHMEM_DEVICE", "cpu").envs(settings.iter().copied()).stdin(Stdio::null());
        run.args(["-np", "2", "--timeout", "100", "sh", "-c", choose]).args([&self.path, &other.path]);
        run.output().expect("oshrun runs")
    }

    /// Runs it by another launcher, which takes `-n`.
    pub(crate) fn run_by(&self, launcher: &str, options: &[&str], pes: u32, argument: &str) -> Output {
        let mut run = Command::new("timeout");
        run.arg("100")
            .arg(launcher)
            .args(options)
            .args(["-n", &pes.to_string()])
            .arg(&self.path)
            .arg(argument);
        run.env("RUSHMEM_DEVICE", "cpu").stdin(Stdio::null());
        run.output().expect("coreutils are here")
    }

    /// The same with PEs that are far from each other, where this machine has a network library.
    pub(crate) fn all_well_far(&self, pes: u32) {
        static UCX: OnceLock<bool> = OnceLock::new();
        let far = [("RUSHMEM_PES_PER_NODE", "1")];
        let there = UCX.get_or_init(|| {
            let info = Path::new(rushmem_openshmem::PREFIX).with_file_name("rushmem-run");
            let out = Command::new(info.with_file_name("rushmem-info")).output();
            out.is_ok_and(|out| said(&out).contains("libucp"))
        });
        if *there {
            self.all_well(pes, &far);
        } else {
            eprintln!("SKIP far PEs: no UCX on this machine");
        }
    }

    /// Every PE is to say that all is well.
    pub(crate) fn all_well(&self, pes: u32, settings: &[(&str, &str)]) {
        let seed = attack::seed();
        let out = self.run(pes, &[settings, &[("RUSHMEM_TEST_SEED", &seed)]].concat(), &[]);
        let text = said(&out);
        assert!(out.status.success(), "{pes} PEs, {settings:?}, seed {seed}: {}\n{text}", out.status);
        for pe in 0..pes {
            assert!(
                text.contains(&format!("PE {pe} of {pes}: all well")),
                "PE {pe} of {pes}, seed {seed}:\n{text}"
            );
        }
    }
}

/// All that it printed.
pub(crate) fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
