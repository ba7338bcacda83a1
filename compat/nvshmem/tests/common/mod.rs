//! Programs of tests/c and tests/kernels, compiled against the prefix as users' are, and started by our
//! launcher.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rushmem_nvshmem::PREFIX;

#[path = "../../../../tests/support/attack.rs"]
pub(crate) mod attack;
pub(crate) mod nvcc;

/// A compiled program, in a folder that goes with it.
pub(crate) struct Program {
    dir: tempfile::TempDir,
    path: PathBuf,
}

pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn launcher() -> PathBuf {
    Path::new(PREFIX).with_file_name("rushmem-run")
}

/// Whether programs can be compiled and run; said aloud where not.
pub(crate) fn ready(test: &str) -> bool {
    let why = if Command::new("cc").arg("--version").output().is_err() {
        "no cc on this machine"
    } else if !launcher().exists() {
        "cargo has not built rushmem-run"
    } else {
        return true;
    };
    eprintln!("SKIP {test}: {why}");
    false
}

/// Whether this machine has a network library; said aloud where not.
pub(crate) fn has_network(test: &str) -> bool {
    let info = Command::new(launcher().with_file_name("rushmem-info")).output();
    let found = info.is_ok_and(|out| said(&out).contains("libucp"));
    if !found {
        eprintln!("SKIP {test}: no UCX on this machine");
    }
    found
}

/// Open MPI's launcher for `pes` processes of a host, where this machine has it and our plug-in for it; said
/// aloud where not.
pub(crate) fn mpirun(test: &str, pes: u32) -> Option<Command> {
    let plugin = Path::new(PREFIX).with_file_name("librushmem_bootstrap_openmpi.so");
    let why = if Command::new("mpicc.openmpi").arg("--version").output().is_err() {
        "no mpicc.openmpi"
    } else if !plugin.exists() {
        "no plug-in for Open MPI (make mpi-plugins)"
    } else {
        ""
    };
    if !why.is_empty() {
        eprintln!("SKIP {test}: {why}");
        return None;
    }
    let mut run = Command::new("timeout");
    let pes = pes.to_string();
    run.args(["100", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", &pes]);
    let vader =
        ["OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_plm"].into_iter().zip(["self,vader", "ob1", "isolated"]);
    run.envs(vader).env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_MPI_PLUGIN", &plugin).stdin(Stdio::null());
    Some(run)
}

impl Program {
    /// Compiles `source` of tests/c with warnings as errors.
    pub(crate) fn new(source: &str) -> Program {
        Program::by("cc", source)
    }

    /// The same by another compiler.
    pub(crate) fn by(compiler: &str, source: &str) -> Program {
        Program::with(compiler, source, &[])
    }

    /// The same with these files beside it: names and texts.
    pub(crate) fn with(compiler: &str, source: &str, files: &[(&str, &str)]) -> Program {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("the folder is there");
        }
        let path = dir.path().join("program");
        let lib = format!("{PREFIX}/lib");
        let mut cc = Command::new(compiler);
        cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic"]);
        cc.arg(here().join("tests/c").join(source)).arg("-o").arg(&path);
        cc.arg("-I").arg(format!("{PREFIX}/tests")).arg("-I").arg(format!("{PREFIX}/include"));
        cc.arg("-I").arg(here().join("../../host/runtime/include"));
        cc.arg("-I").arg(dir.path()).arg("-I").arg(here().join("../../tests/support"));
        cc.args(["-L", &lib, "-lnvshmem_host", "-lrushmem_host", &format!("-Wl,-rpath,{lib}")]);
        let out = cc.output().expect("cc runs");
        assert!(out.status.success(), "{cc:?}\n{}", String::from_utf8_lossy(&out.stderr));
        Program { dir, path }
    }

    /// One that a test has compiled, in that folder.
    pub(crate) fn at(dir: tempfile::TempDir, path: PathBuf) -> Program {
        Program { dir, path }
    }

    /// The program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the program.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs it on `pes` PEs with `settings`, and its arguments.
    pub(crate) fn run(&self, pes: u32, settings: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut run = Command::new(launcher());
        for name in ["PE", "NPES", "UID", "LOCAL_PE", "LOCAL_NPES"] {
            run.env_remove(format!("RUSHMEM_{name}"));
        }
        if std::env::var_os("RUSHMEM_DEVICE").is_none() {
            run.env("RUSHMEM_DEVICE", "cpu");
        }
        run.envs(settings.iter().copied()).stdin(Stdio::null());
        run.args(["-n", &pes.to_string(), "--timeout", "100"]).arg(&self.path).args(arguments);
        run.output().expect("rushmem-run runs")
    }

    /// Runs one process of it by itself.
    pub(crate) fn alone(&self, arguments: &[&str]) -> Command {
        let mut run = Command::new("timeout");
        run.arg("60").arg(&self.path).args(arguments).env("RUSHMEM_DEVICE", "cpu").stdin(Stdio::null());
        run
    }

    /// The same with PEs that are far from each other, where this machine has a network library.
    pub(crate) fn all_well_far(&self, pes: u32, arguments: &[&str]) {
        if has_network("far PEs") {
            self.all_well(pes, &[("RUSHMEM_PES_PER_NODE", "1")], arguments);
        }
    }

    /// Every PE is to say that all is well.
    pub(crate) fn all_well(&self, pes: u32, settings: &[(&str, &str)], arguments: &[&str]) {
        each_is_well(&self.run(pes, settings, arguments), pes, settings);
    }
}

/// Whether each PE of a run has said that all is well.
pub(crate) fn each_is_well(out: &Output, pes: u32, settings: &[(&str, &str)]) {
    let text = said(out);
    assert!(out.status.success(), "{pes} PEs, {settings:?}: {}\n{text}", out.status);
    for pe in 0..pes {
        assert!(text.contains(&format!("PE {pe} of {pes}: all well")), "PE {pe} of {pes}:\n{text}");
    }
}

/// All that it printed.
pub(crate) fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
