//! The examples in C and C++, as a user has them: compiled by the system's compiler against an installed
//! rushmem, with warnings as errors, and run under its `rushmem-run` on 1 to 5 PEs with sizes that do not
//! divide.

#[path = "c_abi/stage.rs"]
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use rushmem_test_support::programs::{
    command, copied, device, example, run, rushmem_info, rushmem_run, Ended,
};
use stage::{sources, use_the_installed_library, Stage};

/// Enough for any of them on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// An installed rushmem and one example that was compiled against it.
struct Example {
    stage: Stage,
    program: PathBuf,
}

impl Example {
    /// `None`, said aloud, where this machine lacks a compiler, pkg-config or the launcher.
    fn new(source: &str) -> Option<Example> {
        let stage = Stage::new(source)?;
        if stage.launcher().is_none() {
            eprintln!("SKIP {source}: cargo has built no rushmem-run");
            return None;
        }
        let program = stage.dir().join("example");
        stage.compile(&sources().join("examples").join(source), &[], &program);
        Some(Example { stage, program })
    }

    #[track_caller]
    fn run(&self, n: u32, args: &[&str]) -> Ended {
        let launcher = self.stage.launcher().expect("looked for above");
        let n = n.to_string();
        let mut job = command(launcher);
        use_the_installed_library(&mut job);
        run(job.args(["-n", &n, "--"]).arg(&self.program).args(args), LIMIT)
    }
}

#[test]
fn the_ring_allreduce_in_c_sums_as_a_serial_run() {
    let Some(example) = Example::new("allreduce.c") else { return };
    let kernel = sources().join("examples/allreduce.cu");
    let kernel = kernel.to_str().expect("the tree has a plain name");
    for n in 1..=5 {
        // Fewer numbers than chunks, and a length that neither blocks nor PEs divide.
        for (len, blocks, threads) in [("2", "2", "1"), ("1003", "3", "33")] {
            let said = format!("allreduce: {len} numbers on {n} PEs x {blocks} blocks, 3 rounds");
            let ended = example.run(n, &[kernel, len, blocks, threads]).ok();
            ended.says(&[&said, "every sum as in a serial run", device()]);
        }
    }
    // What is wrong is said, and no PE is left behind waiting.
    example.run(2, &["/nowhere/allreduce.cu"]).failed().says(&["/nowhere/allreduce.cu: cannot be read"]);
    example.run(2, &[kernel, "many"]).failed().says(&["many: is no number"]);
}

#[test]
fn the_histogram_in_cxx_counts_as_a_serial_run() {
    let Some(example) = Example::new("histogram.cpp") else { return };
    for n in 1..=5 {
        for (values, bins) in [("3", "2"), ("10007", "97")] {
            let said = format!("histogram: {values} values in {bins} bins on {n} PEs x 3 blocks");
            let ended = example.run(n, &[values, bins, "3", "33"]).ok();
            ended.says(&[&said, "every bin as in a serial run", device()]);
        }
    }
    example.run(2, &["1", "0"]).failed().says(&["0 makes no sense here"]);
    // An error of rushmem's reaches the user as its text.
    example.run(2, &["9", "50000", "1", "1025"]).failed().says(&["1025 makes no sense here"]);
}

/// In an installation with programs beside it, as the Containerfile makes it; from cargo's folder it is what
/// `make demo` does.
#[test]
fn the_demo_of_an_image_runs_every_example_that_verifies_itself() {
    // All that it needs is built, also where this test is run alone.
    drop((rushmem_run(1, "true"), rushmem_info()));
    let Some(stage) = Stage::new("the_demo_of_an_image_runs_every_example_that_verifies_itself") else {
        return;
    };
    let (programs, demo) = (stage.dir().join("examples"), stage.dir().join("demo"));
    std::fs::create_dir(&programs).expect("a folder");
    let rust = [
        "hello",
        "put",
        "ring",
        "write_signal",
        "alltoall",
        "jacobi",
        "tensor_parallel",
        "bfs",
        "stealing",
        "pipeline",
    ];
    for name in rust {
        copied(example(name), programs.join(name));
    }
    std::fs::copy(sources().join("scripts/demo"), &demo).expect("a script can be copied");
    let ended = run(command("bash").arg(&demo).arg(stage.dir()), Duration::from_secs(240)).ok();
    for name in rust.into_iter().chain(["allreduce", "histogram"]) {
        let name = name.replace("write_signal", "write and signal");
        assert!(!ended.lines_with(&format!("  ok      {name}")).is_empty(), "no verdict on {name}: {ended}");
    }
    assert!(ended.lines_with("FAILED").is_empty(), "{ended}");
}
