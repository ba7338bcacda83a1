//! `rushmem-info` as a user sees it: what it shows, and that it ends with exit code 1, and a line that helps,
//! where something needed is missing.
//!
//! No GPU is needed: where the driver matters, a stand-in for libcuda has the answers. On a machine with GPUs
//! they are compared with what nvidia-smi says.

mod fakes;
use rushmem_test_support::programs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fakes::Fakes;
use serde_json::{json, Value};

const LIMIT: Duration = Duration::from_secs(60);

/// `rushmem-info` with these arguments, in an environment without settings.
fn info(arguments: &str) -> Command {
    clean(programs::rushmem_info(), arguments)
}

/// The same under rushmem-run.
fn job(n: u32, arguments: &str) -> Command {
    clean(programs::rushmem_run(n, info("").get_program()), arguments)
}

fn clean(mut command: Command, arguments: &str) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUSHMEM_") || name == "CUDA_VISIBLE_DEVICES" {
            command.env_remove(name);
        }
    }
    command.args(arguments.split_whitespace());
    command
}

/// Runs it; the exit code must be `code`. What it wrote to both streams.
#[track_caller]
fn ends(command: &mut Command, code: i32) -> (String, String) {
    let ended = programs::run(command, LIMIT);
    assert_eq!(ended.status.code(), Some(code), "{ended}");
    (ended.stdout, ended.stderr)
}

/// The same with `--json` among the arguments: exactly one object on standard output.
#[track_caller]
fn report(command: &mut Command, code: i32) -> Value {
    let (out, _) = ends(command, code);
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    assert_eq!(value["ok"], json!(code == 0), "{out}");
    assert_eq!(value["missing"].as_array().expect("a list").is_empty(), code == 0, "{out}");
    value
}

/// The one thing that is missing contains all of `words`.
#[track_caller]
fn expect_missing(report: &Value, words: &[&str]) {
    let missing = report["missing"].as_array().expect("a list");
    let text = missing.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    assert!(missing.len() == 1 && words.iter().all(|word| text.contains(word)), "expected {words:?}: {text}");
}

#[test]
fn alone_it_shows_a_job_of_one() {
    let (out, _) = ends(info("").env("RUSHMEM_DEVICE", "cpu"), 0);
    let section = |name: &str| {
        let found = out.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name}: {out}")).trim().to_owned()
    };
    assert!(section("rushmem ").contains("librushmem_host.so"), "{out}");
    assert!(section("rushmem ").starts_with(env!("CARGO_PKG_VERSION")), "{out}");
    assert!(section("launcher").starts_with("none"), "{out}");
    assert!(section("bootstrap").starts_with("single"), "{out}");
    assert_eq!(section("device"), "cpu: RUSHMEM_DEVICE=cpu");
    assert!(Path::new(section("compiler").rsplit(", ").next().expect("its path")).is_file(), "{out}");
    assert_eq!(section("job"), "1 PE");
    assert!(section("    to PE 0:").starts_with("direct ("), "{out}");
    assert_eq!(section("missing"), "nothing that is needed");
}

#[test]
fn json_has_the_same_facts() {
    let report = report(info("--json").env("RUSHMEM_DEVICE", "cpu"), 0);
    let library = PathBuf::from(report["rushmem"]["path"].as_str().expect("a path"));
    assert!(library.is_file() && library.ends_with("librushmem_host.so"), "{report}");
    assert_eq!(report["launch"]["bootstrap"], "single");
    assert_eq!(report["launch"]["launcher"], "none");
    assert_eq!(report["launch"]["device"], "cpu");
    assert_eq!(report["settings"], json!({ "RUSHMEM_DEVICE": "cpu" }));
    assert_eq!(report["job"]["n_pes"], 1);
    assert_eq!(report["job"]["pes"][0]["peers"][0]["transport"], "direct");
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    assert_eq!(report["host"]["name"], hostname.trim());
}

#[test]
fn under_a_launcher_pe_0_shows_every_way() {
    const N: usize = 3;
    let report = report(job(N as u32, "--json").env("RUSHMEM_DEVICE", "cpu"), 0);
    assert_eq!(report["launch"]["launcher"], "rushmem-run");
    assert_eq!(report["launch"]["n_pes"], N);
    // The ID is as good as a password for the job.
    assert_eq!(report["settings"]["RUSHMEM_UID"], "(set)");
    let pes = report["job"]["pes"].as_array().expect("a list");
    assert_eq!(pes.len(), N, "{report}");
    let processes: BTreeSet<_> = pes.iter().filter_map(|row| row["pid"].as_u64()).collect();
    assert_eq!(processes.len(), N, "each its own process: {report}");
    for (pe, row) in pes.iter().enumerate() {
        assert_eq!((&row["pe"], &row["host"]), (&json!(pe), &report["host"]["name"]));
        let peers = row["peers"].as_array().expect("a list");
        assert_eq!(peers.len(), N);
        for (to, way) in peers.iter().enumerate() {
            assert_eq!((&way["pe"], &way["transport"]), (&json!(to), &json!("direct")), "{report}");
            assert!(way["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{report}");
        }
    }
    let (out, err) = ends(job(N as u32, "").env("RUSHMEM_DEVICE", "cpu"), 0);
    assert_eq!(out.matches("rushmem  ").count(), 1, "one report: {out}\n{err}");
    for pe in 0..N {
        assert_eq!(out.matches(&format!("\n  PE {pe}: host ")).count(), 1, "{out}");
    }
    assert!(out.contains("\njob         3 PEs\n"), "{out}");
}

#[test]
fn pes_of_another_host_are_shown_with_the_network_that_reaches_them() {
    let ucx = report(&mut info("--json --no-join"), 0)["ucx"].clone();
    if let Some(why) = ucx["error"].as_str() {
        eprintln!("SKIP pes_of_another_host_are_shown_with_the_network_that_reaches_them: {why}");
        return;
    }
    let hosts = |arguments| {
        let mut command = job(3, arguments);
        command.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_PES_PER_NODE", "2");
        command
    };
    let report = report(&mut hosts("--json"), 0);
    let pes = report["job"]["pes"].as_array().expect("a list");
    assert_eq!(pes.len(), 3, "{report}");
    let version = format!("UCX {} (", ucx["version"].as_str().expect("a version"));
    for (pe, row) in pes.iter().enumerate() {
        for to in 0..3 {
            let way = &row["peers"][to];
            let mate = pe / 2 == to / 2;
            assert_eq!(way["transport"], if mate { "direct" } else { "ucx" }, "{report}");
            assert!(mate || way["reason"].as_str().expect("a text").contains(&version), "{report}");
        }
    }
    let (out, _) = ends(&mut hosts(""), 0);
    assert!(out.contains("    near: PEs 0-1 (a run)") && out.contains("    near: PE 2 (a run)"), "{out}");
    // Dealt out in turn.
    let mut dealt = job(5, "");
    dealt.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_NODES", "0,1,0,1,1");
    let (out_of_turn, _) = ends(&mut dealt, 0);
    for near in ["    near: PEs 0, 2 (2 apart)", "    near: PEs 1, 3-4 (by a table)"] {
        assert!(out_of_turn.contains(near), "{out_of_turn}");
    }
    assert!(out.contains("    to PE 2: ucx (") && out.contains("    to PEs 0-1: ucx ("), "{out}");
    let file = ucx["path"].as_str().expect("its file");
    let row = out.lines().find(|line| line.starts_with("UCX ")).expect("a row about UCX");
    assert!(row.ends_with(file) && Path::new(file).is_file(), "{row}");
}

#[test]
fn a_ucx_that_is_missing_is_missed_where_a_pe_needs_it() {
    let (out, _) = ends(info("").env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_UCX_LIB", "/nonexistent"), 0);
    let rows: Vec<_> = out.lines().skip_while(|line| !line.starts_with("UCX ")).take(2).collect();
    assert!(rows[0].contains("needed for PEs on other hosts only"), "{out}");
    assert!(rows[1].contains("apt-get install libucx0") && rows[1].contains("RUSHMEM_UCX_LIB"), "{out}");
    let mut hosts = job(2, "--json");
    hosts
        .env("RUSHMEM_DEVICE", "cpu")
        .env("RUSHMEM_PES_PER_NODE", "1")
        .env("RUSHMEM_UCX_LIB", "/nonexistent");
    expect_missing(&report(&mut hosts, 1), &["joining the job", "/nonexistent", "apt-get install libucx0"]);
}

/// The choice is made in one place for joining and in another for showing: they must say the same.
#[test]
fn what_is_shown_is_what_joining_does() {
    for (mut command, n) in [(info("--json"), 1), (job(2, "--json"), 2)] {
        let command = command.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_LOG", "info");
        let (out, err) = ends(command, 0);
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        let launch = &report["launch"];
        let text = |name: &str| launch[name].as_str().expect("a text").to_owned();
        let line = format!("bootstrap {} for rank 0 of {n}: {}", text("bootstrap"), text("bootstrap_why"));
        assert!(err.contains(&line), "{line:?} is not in\n{err}");
    }
}

#[test]
fn a_launchers_variables_that_make_no_sense() {
    let report = report(info("--json").env("RUSHMEM_PE", "1"), 1);
    expect_missing(&report, &["RUSHMEM_NPES is not set", "rushmem-run"]);
    assert_eq!((&report["launch"], &report["job"]), (&Value::Null, &Value::Null));
    let (out, _) = ends(info("").envs([("RANK", "5"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_RUN_ID", "x")]), 1);
    assert!(out.contains("missing") && out.contains("  - ") && out.contains("RANK"), "{out}");
    // Asked for, but there is nowhere to meet.
    let (out, _) = ends(info("").env("RUSHMEM_BOOTSTRAP", "uid"), 1);
    assert!(out.contains("RUSHMEM_BOOTSTRAP=uid") && out.contains("rushmem-run"), "{out}");
}

#[test]
fn a_setting_that_makes_no_sense() {
    for (name, value) in
        [("RUSHMEM_HEAP_MAX", "lots"), ("RUSHMEM_DEVICE", "abacus"), ("RUSHMEM_BOOTSTRAP", "pigeon")]
    {
        let alone = report(info("--json").env(name, value), 1);
        expect_missing(&alone, &[name, value]);
        // Still one object only, and the others say it too.
        let in_job = report(job(2, "--json").env(name, value), 1);
        expect_missing(&in_job, &[name, value]);
        assert_eq!(in_job["launch"]["launcher"], "rushmem-run");
    }
}

#[test]
fn no_compiler_for_the_cpu_device() {
    let missing = |command: &mut Command| {
        report(command.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_CXX", "/no/such"), 1)
    };
    expect_missing(&missing(&mut info("--json")), &["RUSHMEM_CXX=/no/such"]);
    expect_missing(&missing(&mut info("--json --no-join")), &["RUSHMEM_CXX=/no/such"]);
    let report = missing(&mut job(2, "--json"));
    let texts: Vec<_> =
        report["missing"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(
        texts.len() == 2 && texts[0].starts_with("PE 0: ") && texts[1].starts_with("PE 1: "),
        "{texts:?}"
    );
}

#[test]
fn no_runtime() {
    let report = report(info("--json").env("RUSHMEM_HOST_LIB", "/no/such.so"), 1);
    expect_missing(&report, &["/no/such.so", "RUSHMEM_HOST_LIB"]);
    assert_eq!(report["rushmem"]["path"], Value::Null);
}

#[test]
fn a_gpu_is_wanted_and_there_is_none() {
    let fakes = Fakes::new();
    for arguments in ["--json", "--json --no-join"] {
        let mut command = fakes.with_driver(info(arguments), "13000");
        let report = report(command.env("FAKE_NO_GPU", "1").env("RUSHMEM_DEVICE", "cuda"), 1);
        expect_missing(&report, &["RUSHMEM_DEVICE", "driver", "RUSHMEM_DEVICE=cpu"]);
        assert_eq!(report["gpus"], json!([]));
    }
    // Where none is wanted, none is missed.
    let mut command = fakes.with_driver(info("--json"), "13000");
    assert_eq!(report(command.env("FAKE_NO_GPU", "1"), 0)["launch"]["device"], "cpu");
}

#[test]
fn gpus_and_who_reaches_whom() {
    let fakes = Fakes::new();
    let nvrtc = fakes.nvrtc();
    let look = |arguments| {
        let mut command = fakes.with_driver(info(arguments), "13000");
        command.env("RUSHMEM_NVRTC", &nvrtc).env_remove("CUDA_VISIBLE_DEVICES");
        command
    };
    let (out, _) = ends(&mut look("--no-join --json"), 0);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&report["cuda"]["driver"], &report["cuda"]["nvrtc"]["version"]),
        (&json!("13.0"), &json!("13.7"))
    );
    assert_eq!(report["launch"]["device"], "cuda");
    assert_eq!(report["peer_access"], json!([[true, true], [false, true]]));
    let second = json!({
        "index": 1, "name": "Fake B", "uuid": "GPU-11111111-1111-1111-1111-111111111111", "pci_bus_id": "0000:ab:00.0",
        "capability": "9.0", "sms": 101, "memory": 1u64 << 34, "vmm": true, "posix_fd": true, "cooperative": true,
        "clusters": false, "stream_words": false, "rdma": false,
    });
    assert_eq!(report["gpus"][1], second);
    let (out, _) = ends(&mut look("--no-join"), 0);
    for line in [
        "GPUs        2",
        "        0    1",
        "   0    -  yes",
        "   1   no    -",
        "   0  Fake A, 0000:0a:00.0, 9.0, 100 SMs, 8.0 GiB",
    ] {
        assert!(out.lines().any(|have| have == line), "{line:?} is not in\n{out}");
    }
}

#[test]
fn gpus_that_cannot_be_used() {
    let fakes = Fakes::new();
    let (good, bad) = (fakes.nvrtc(), PathBuf::from("/no/nvrtc.so"));
    let look = |version, nvrtc: &PathBuf| {
        let mut command = fakes.with_driver(info("--no-join --json"), version);
        command.env("RUSHMEM_NVRTC", nvrtc);
        command
    };
    let old = report(&mut look("11080", &good), 1);
    expect_missing(&old, &["CUDA 11.8", "12.4 or newer", "update the driver", "RUSHMEM_DEVICE=cpu"]);
    let no_vmm = report(look("13000", &good).env("FAKE_NO_VMM", "1"), 1);
    expect_missing(&no_vmm, &["no GPU here can hold a symmetric heap", "RUSHMEM_DEVICE=cpu"]);
    let no_nvrtc = report(&mut look("13000", &bad), 1);
    expect_missing(&no_nvrtc, &["NVRTC", "RUSHMEM_NVRTC"]);
    let absent = report(look("13000", &good).env("RUSHMEM_DEVICE", "cuda:2"), 1);
    expect_missing(&absent, &["RUSHMEM_DEVICE=cuda:2", "GPU 2 does not exist", "this process sees 2"]);
    // Nobody needs any of it on the CPU.
    report(look("11080", &bad).env("FAKE_NO_VMM", "1").env("RUSHMEM_DEVICE", "cpu"), 0);
}

#[test]
fn the_gpus_of_this_machine_are_those_that_nvidia_smi_lists() {
    let query = ["--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"];
    let listed = Command::new("nvidia-smi").args(query).output().ok().filter(|out| out.status.success());
    let Some(listed) = listed else {
        eprintln!("SKIP the_gpus_of_this_machine_are_those_that_nvidia_smi_lists: no nvidia-smi, or no GPU");
        return;
    };
    let (out, _) = ends(&mut info("--json --no-join"), 0);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let gpus = report["gpus"].as_array().expect("a list");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().count(), gpus.len(), "{listed}\n{report}");
    for line in listed.lines() {
        let words: Vec<_> = line.split(", ").collect();
        let gpu = gpus
            .iter()
            .find(|gpu| gpu["uuid"] == words[0])
            .unwrap_or_else(|| panic!("{line} is not in {report}"));
        assert_eq!(gpu["name"], words[1]);
        // nvidia-smi counts what the driver keeps for itself, too.
        let (all, usable): (f64, f64) =
            (words[2].parse().expect("MiB"), gpu["memory"].as_f64().expect("bytes"));
        assert!((0.9..=1.0).contains(&(usable / (all * 1048576.0))), "{line}: {usable}");
    }
    // Joined, the job has the device that was announced.
    let (out, _) = ends(&mut job(2, "--json"), 0);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["launch"]["device"], "cuda");
    assert_eq!(report["job"]["pes"].as_array().map(Vec::len), Some(2), "{report}");
}
