//! `rushmem-perf device` as a user sees it, on the CPU device: the same kernels and the same way from them to
//! figures as on GPUs. Whether the figures are good, a busy CI machine cannot say.

use crate::common::{self, perf, run, text, Row};

#[test]
fn every_measure_makes_figures_that_were_verified() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, csv) = (folder.path().join("new/device.json"), folder.path().join("device.csv"));
    let mut command =
        perf("device all --samples 3 --iterations 5 --budget 10 --sizes 4,8,4104 --threads 32 --pes 2,3");
    command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json).arg("--csv").arg(&csv);
    let output = run(&mut command, folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));

    let report = common::report(&json);
    assert_eq!(report.value["parameters"]["jobs"][1]["pes"], 3, "{table}");
    let find = |measure: &str, bytes: Option<u64>, scope: &str, pes: u64| -> &Row {
        let row = report.rows.iter().find(|row| {
            (row.measure.as_str(), row.bytes, row.scope.as_str(), row.pes) == (measure, bytes, scope, pes)
        });
        row.unwrap_or_else(|| panic!("no row {measure} {bytes:?} {scope} of {pes} PEs:\n{table}"))
    };
    for scope in ["thread", "warp", "block"] {
        for measure in
            ["put + quiet", "get", "put_signal ping-pong", "put + quiet ping-pong", "packed ping-pong"]
        {
            for bytes in [4, 8, 4104] {
                find(measure, Some(bytes), scope, 2);
            }
        }
        for (measure, pes) in [("sync_all", 2), ("sync_all", 3), ("barrier_all", 2), ("barrier_all", 3)] {
            find(measure, None, scope, pes);
        }
    }
    for (measure, bytes, scope) in [
        ("p + quiet", Some(8), "thread"),
        ("p + quiet ping-pong", Some(4104), "block"),
        ("g", Some(4104), "block"),
        ("signal ping-pong", None, "thread"),
        ("atomic inc ping-pong", None, "thread"),
        ("put bandwidth", Some(4), "block"),
        ("get bandwidth", Some(4104), "block"),
        ("p bandwidth", Some(4104), "block"),
        ("g bandwidth", Some(8), "block"),
        ("fetch_xor bandwidth", Some(4104), "block"),
        ("compare_swap bandwidth", Some(8), "block"),
        ("put rate", Some(2 * 32 * 8), "thread"),
        ("signal_fetch", None, "thread"),
    ] {
        find(measure, bytes, scope, 2);
    }
    for row in &report.rows {
        assert!(0.0 < row.min && row.min <= row.median && row.median <= row.p99, "{row:?}");
        assert_eq!(row.samples, 3, "{row:?}");
    }
    let csv = std::fs::read_to_string(&csv).expect("the file that was asked for");
    assert_eq!(common::csv_lines(&csv), report.rows.len() + 1, "{csv}");
}

#[test]
fn launches_are_as_the_options_say() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("device.json");
    let mut command =
        perf("device put-bw get-bw --scope warp,thread --blocks 1,2 --threads 64 --sizes 4096 --samples 2");
    command
        .args(["--both", "--shift", "1", "--budget", "5"])
        .env("RUSHMEM_DEVICE", "cpu")
        .arg("--json")
        .arg(&json);
    let output = run(&mut command, folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = common::report(&json).rows;
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(row.measure.ends_with("bandwidth, both ways, 1 B off"), "{row:?}");
        assert!(row.blocks <= 2 && row.threads == 64 && row.unit == "GB/s", "{row:?}");
    }
}

#[test]
fn the_host_initiates_on_streams_and_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("stream.json");
    let mut command = perf("stream --samples 3 --iterations 5 --budget 5 --sizes 8,4100 --pes 2,3");
    let output = run(command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json), folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));
    let rows = common::report(&json).rows;
    for scope in ["stream", "host"] {
        let count =
            |measure: &str| rows.iter().filter(|row| row.measure == measure && row.scope == scope).count();
        for measure in
            ["put + quiet", "get + quiet", "put_signal", "put bandwidth", "get bandwidth", "barrier_all"]
        {
            assert_eq!(count(measure), 2, "{measure} {scope}:\n{table}");
        }
        assert_eq!((count("p + quiet"), count("signal ping-pong")), (1, 1), "{table}");
    }
    let graphs = run(perf("stream put --by graph").env("RUSHMEM_DEVICE", "cpu"), folder.path());
    assert_eq!(graphs.status.code(), Some(1), "{}", text(&graphs.stdout));
    assert!(text(&graphs.stderr).contains("graphs are CUDA's"), "{}", text(&graphs.stderr));
}

#[test]
fn every_promise_has_its_row_beside_peers_and_limits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name);
    // Figures that no machine has: the row must show just these.
    let peer = "test,series,n_pes,type_op,scope,launch,bytes,unit,value\n\
        device-pt-to-pt-shmem_signal_ping_pong_latency,shmem_sig_ping_lat,2,,,,8,us,123456\n\
        device-pt-to-pt-shmem_put_latency,shmem_put_latency,2,,warp,,65536,us,0.000001\n";
    let limits = "probe,value,unit\ncopy engine write peer,987654,GB/s\n";
    std::fs::create_dir(place("baseline")).expect("a folder of ours");
    std::fs::write(place("baseline/peer.csv"), peer).expect("a file of ours");
    std::fs::write(place("baseline/other.csv"), "something,else\n1,2\n").expect("a file of ours");
    std::fs::write(place("limits.csv"), limits).expect("a file of ours");
    let mut command = perf("device targets --samples 2 --iterations 5 --budget 5 --check");
    command.env("RUSHMEM_DEVICE", "cpu").arg("--compare").arg(place("baseline")).arg("--compare");
    let output = run(command.arg(place("limits.csv")).arg("--json").arg(place("t.json")), folder.path());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}\n{table}", text(&output.stderr));
    let rows = common::report(&place("t.json")).rows;
    let find = |measure: &str, scope: &str| {
        let row = rows.iter().find(|row| row.measure == measure && row.scope == scope);
        &row.unwrap_or_else(|| panic!("no row {measure} {scope}:\n{table}")).value
    };
    assert!(
        text(&output.stderr).contains("other.csv is no file that --compare knows"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(find("signal ping-pong", "thread")["peer"]["value"], 123456.0);
    assert_eq!(find("put + quiet", "warp")["peer"]["value"], 0.000001);
    assert_eq!(find("put bandwidth", "stream")["machine"]["value"], 987654.0);
    for (measure, scope) in [
        ("put_signal ping-pong", "thread"),
        ("packed ping-pong", "thread"),
        ("put + quiet, staged", "warp"),
        ("put bandwidth, staged", "warp"),
        ("p + quiet ping-pong", "thread"),
        ("atomic inc ping-pong", "thread"),
        ("put + quiet", "block"),
        ("put bandwidth", "block"),
        ("put bandwidth", "warp"),
        ("get bandwidth", "block"),
        ("p bandwidth", "block"),
        ("put bandwidth, 1 B off", "block"),
        ("sync_all", "warp"),
        ("barrier_all", "block"),
        ("put + quiet", "stream"),
    ] {
        assert!(find(measure, scope)["limit"].is_null(), "nothing is promised of the CPU device:\n{table}");
    }
    // Collectives inside kernels stand beside bare ones, which were verified as they are; those of a grid
    // that meets do not.
    let collectives = ["reduce", "reducescatter", "broadcast", "fcollect", "alltoall"];
    let inside: Vec<_> = rows.iter().filter(|row| collectives.contains(&row.measure.as_str())).collect();
    assert_eq!(inside.len(), 2 + 2 * 4 + 5 * 4, "{table}");
    for row in inside {
        let name = row.value["reference"]["name"].as_str();
        assert_eq!(name, (row.scope != "grid").then_some("bare instructions"), "{row:?}");
    }
    let missing =
        run(perf("device targets --compare nowhere.csv").env("RUSHMEM_DEVICE", "cpu"), folder.path());
    assert!(!missing.status.success() && text(&missing.stderr).contains("nowhere.csv"));
}

#[test]
fn curves_are_drawn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (svg, json) = (folder.path().join("new/curves.svg"), folder.path().join("curves.json"));
    let mut command = perf("device put-latency put-bw --scope block --sizes 64,4096 --samples 2 --budget 5");
    let output = run(
        command.env("RUSHMEM_DEVICE", "cpu").arg("--plot").arg(&svg).arg("--json").arg(&json),
        folder.path(),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(&svg).expect("the file that was asked for");
    assert!(svg.contains("put + quiet, block") && svg.contains("put bandwidth, block"), "{svg}");
    // Where and when, as a record of the same run says it, and what the marks are.
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("a record")).expect("JSON");
    for key in ["cpu", "date"] {
        assert!(svg.contains(record["environment"][key].as_str().expect("a text")), "{key}: {svg}");
    }
    assert!(svg.contains("rushmem, median"), "{svg}");
    let none = run(
        perf("device sync --samples 2 --budget 5 --plot x.svg")
            .env("RUSHMEM_DEVICE", "cpu")
            .current_dir(folder.path()),
        folder.path(),
    );
    assert!(
        !none.status.success() && text(&none.stderr).contains("nothing to draw"),
        "{}",
        text(&none.stderr)
    );
}

#[test]
fn shared_memory_is_a_stage_where_words_are_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("device.json");
    let mut command =
        perf("device put-bw get-bw put-latency get-latency --stage 8192 --sizes 12,8192 --samples 2");
    command.args(["--scope", "thread,warp,block", "--budget", "5"]).env("RUSHMEM_DEVICE", "cpu");
    let output = run(command.arg("--json").arg(&json), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = common::report(&json).rows;
    assert_eq!(rows.len(), 4 * 3 * 2);
    for row in rows {
        assert_eq!(row.measure.ends_with(", staged"), row.bytes == Some(8192), "{row:?}");
    }
}

#[test]
fn a_job_of_a_launcher_measures_with_its_own_pes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let job = |pes: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args([
            "-n",
            pes,
            "--timeout",
            "60",
            "--",
            env!("CARGO_BIN_EXE_rushmem-perf"),
            "device",
            "sync",
        ]);
        run(command.args(["--samples", "2", "--budget", "5"]).env("RUSHMEM_DEVICE", "cpu"), folder.path())
    };
    let three = job("3");
    let table = text(&three.stdout);
    assert!(three.status.success(), "{}", text(&three.stderr));
    assert_eq!(table.matches("sync_all").count(), 3, "PE 0 alone reports: {table}");
    let one = job("1");
    assert!(!one.status.success() && text(&one.stderr).contains("this job has one"), "{}", text(&one.stderr));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in
        ["device everything", "device put-bw --threads 2048", "device --pes 1", "device --shift 16"]
    {
        let output = run(&mut perf(arguments), folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stderr));
    }
}

/// One byte is made wrong after the timed batches of the figure before the last: the one before stays, the
/// one that is wrong and those after it have no figure, and the run is an error.
#[test]
fn a_wrong_byte_is_an_error_and_no_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("device.json");
    for (line, said) in [
        ("device put-latency --scope warp --sizes 8,4104,16", "is wrong"),
        ("device g-latency --scope block --sizes 8,64,16", "is wrong"),
        ("device signal-latency signal-latency signal-latency", "is wrong"),
        ("device put-bw --both --sizes 4,4096,8", "is wrong"),
        ("device p-bw --scope warp --sizes 8,4096,16", "is wrong"),
        ("device packed-pingpong --scope thread --sizes 8,64,16", "is wrong"),
        ("device signal-pingpong atomic-pingpong signal-pingpong", "rounds were counted"),
        ("device sync --scope thread,warp,block", "wrong values"),
        ("device wait", "wrong values"),
        ("stream put --by stream --sizes 8,4100,16", "is wrong"),
        ("stream put-signal --by host --sizes 8,64,16", "is wrong"),
        ("stream get-bw p signal-pingpong --by stream --sizes 4096", "arrived, not"),
        ("stream put barrier --by host --sizes 4096", "does not see behind it"),
        ("stream put barrier --by stream --sizes 4096", "does not see behind it"),
        ("stream p signal-pingpong --by host", "arrived, not"),
    ] {
        let mut command = perf(line);
        command.args(["--samples", "2", "--iterations", "5", "--budget", "5", "--corrupt", "1"]);
        let output = run(command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json), folder.path());
        let (table, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}\n{table}");
        assert!(errors.contains(said) && errors.contains("mean nothing"), "{line}: {errors}");
        let report = common::report(&json);
        assert_eq!(report.rows.len(), 1, "{line}: {table}");
        let failures = report.value["parameters"]["failures"].as_array().expect("a list");
        assert_eq!(failures.len(), 1, "{line}: {report}", report = report.value);
        std::fs::remove_file(&json).expect("a file of ours");
    }
}

#[test]
fn atomics_that_fetch_are_checked_and_so_is_what_they_leave() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("device.json");
    let mut command = perf("device atomic-bw atomic-latency --both --samples 2 --iterations 70 --budget 5");
    let output = run(command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json), folder.path());
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}\n{table}");
    assert!(errors.contains("--both as given does nothing for atomic-latency"), "{errors}");
    let rows = common::report(&json).rows;
    for measure in ["fetch_xor bandwidth, both ways", "compare_swap", "add + quiet", "fetch", "set + quiet"] {
        assert!(rows.iter().any(|row| row.measure == measure), "{measure}: {table}");
    }
}

#[test]
fn options_that_do_nothing_are_refused_or_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (line, option) in [
        ("device p-latency --both", "--both"),
        ("device atomic-bw --scope warp", "--scope"),
        ("stream put --pes 3", "--pes"),
    ] {
        let output = run(perf(line).env("RUSHMEM_DEVICE", "cpu"), folder.path());
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(text(&output.stderr).contains(option), "{line}: {}", text(&output.stderr));
    }
    let json = folder.path().join("device.json");
    let mut command =
        perf("device p-bw g-bw p-latency --scope warp,thread --both --sizes 4096 --samples 2 --budget 5");
    let output = run(command.env("RUSHMEM_DEVICE", "cpu").arg("--json").arg(&json), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = common::report(&json).rows;
    let has =
        |measure: &str, scope: &str| rows.iter().any(|row| row.measure == measure && row.scope == scope);
    for scope in ["warp", "thread"] {
        for measure in ["p bandwidth, both ways", "g bandwidth, both ways", "p + quiet"] {
            assert!(has(measure, scope), "{measure} {scope}: {}", text(&output.stdout));
        }
    }
    assert_eq!(rows.len(), 6);
}
