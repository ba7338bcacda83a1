//! `rushmem-run` as a user sees it: exit codes, output, signals, and that nothing is left behind. The
//! programs are shell scripts.

mod run_common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use run_common::{
    collect, marked, shell, sorted, start, stops_when_its_reader_goes, unique, wait_until, Ended, Running,
};

fn run(options: &[&str], script: &str) -> Ended {
    let mut command = shell(options, script);
    command.stdin(Stdio::null());
    start(command).end()
}

#[test]
fn each_pe_knows_its_place_and_gets_the_variables() {
    let script = "echo $RUSHMEM_PE $RUSHMEM_NPES $RUSHMEM_LOCAL_PE $RUSHMEM_LOCAL_NPES ${#RUSHMEM_UID} $A-$B";
    let ended = run(&["-n", "3", "--env", "A=x y", "--env", "B="], script);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let want: Vec<String> = (0..3).map(|pe| format!("{pe} 3 {pe} 3 256 x y-")).collect();
    assert_eq!(sorted(&ended.out), want);
    assert_eq!(ended.err, "");
}

#[test]
fn the_code_is_that_of_the_first_that_failed() {
    let ended = run(&["-n", "3"], "[ $RUSHMEM_PE = 1 ] && exit 7; exit 0");
    assert_eq!(ended.code, Some(7));
    assert!(ended.err.contains("PE 1 (pid ") && ended.err.contains("exited with code 7"), "{}", ended.err);

    let ended = run(&["-n", "2"], "[ $RUSHMEM_PE = 1 ] && exit 0; kill -SEGV $$");
    assert_eq!(ended.code, Some(128 + 11));
    assert!(ended.err.contains("PE 0") && ended.err.contains("SIGSEGV"), "{}", ended.err);

    // The second failure, two seconds later and within the grace, changes nothing and is not announced.
    let ended = run(&["-n", "2", "--grace", "20"], "sleep $RUSHMEM_PE; exit $((RUSHMEM_PE + 3))");
    assert_eq!((ended.code, ended.err.lines().count()), (Some(3), 1), "{}", ended.err);
}

#[test]
fn the_first_death_counts_and_not_the_first_child() {
    // All have ended before the launcher looks. PE 2 was killed, and PE 0, which came into the world first,
    // exits because of that.
    let dir = tempfile::tempdir().expect("a directory");
    let there = dir.path().display();
    let script = format!(
        "echo $$ >{there}/$RUSHMEM_PE.tmp; mv {there}/$RUSHMEM_PE.tmp {there}/$RUSHMEM_PE
         until [ -e {there}/go ]; do sleep 0.02; done
         [ $RUSHMEM_PE = 2 ] && kill -KILL $$
         until [ -e {there}/gone ]; do sleep 0.02; done
         exit 7"
    );
    let mut command = shell(&["-n", "3"], &script);
    command.stdin(Stdio::null());
    let running = start(command);
    let pid = |pe: u32| std::fs::read_to_string(dir.path().join(pe.to_string())).ok();
    wait_until("all run", || (0..3).all(|pe| pid(pe).is_some()));
    running.signal(Signal::SIGSTOP);
    let ended = |pe: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid(pe).expect("written").trim()));
        stat.expect("it is not reaped").contains(") Z ")
    };
    std::fs::write(dir.path().join("go"), "").expect("written");
    wait_until("PE 2 is dead", || ended(2));
    std::fs::write(dir.path().join("gone"), "").expect("written");
    wait_until("the others have ended", || ended(0) && ended(1));
    running.signal(Signal::SIGCONT);
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + 9), "{}", ended.err);
    assert!(ended.err.contains("PE 2 (pid ") && ended.err.contains("SIGKILL"), "{}", ended.err);
}

#[test]
fn a_program_that_cannot_be_run_is_said_to_be_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("written");
    let there = plain.to_str().expect("UTF-8");
    let cases = [
        ("no-such-program-anywhere", 127, "in PATH"),
        ("/no/such/program", 127, "/no/such/program"),
        (there, 126, "chmod"),
        (dir.path().to_str().expect("UTF-8"), 126, "may not execute"),
    ];
    for (program, code, part) in cases {
        for tag in [&[][..], &["--tag-output"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
            command.args(["-n", "4"]).args(tag).arg(program);
            let ended = start(command).end();
            assert_eq!(ended.code, Some(code), "{program}: {}", ended.err);
            assert!(ended.err.contains(part), "{}", ended.err);
        }
    }
    for bad in [&["-n", "0", "true"][..], &["-n", "2"], &["-n", "2", "--env", "x", "true"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args(bad);
        assert_eq!(start(command).end().code, Some(2), "{bad:?}");
    }
}

#[test]
fn tagged_lines_are_whole_and_streams_apart() {
    // Long lines in two writes each, from 4 PEs at once, and an unfinished one at the end.
    let script = r#"
        long=$(head -c 5000 /dev/zero | tr '\0' x)
        i=0
        while [ $i -lt 50 ]; do
            printf 'out %s' "$i"; printf ' %s\n' "$long"
            printf 'err %s\n' "$i" >&2
            i=$((i + 1))
        done
        printf 'rest'; printf 'last' >&2"#;
    let ended = run(&["-n", "4", "--tag-output"], script);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let long = "x".repeat(5000);
    for pe in 0..4 {
        let tag = format!("[{pe}] ");
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter_map(|l| l.strip_prefix(&tag)).map(str::to_owned).collect()
        };
        let mut want: Vec<String> = (0..50).map(|i| format!("out {i} {long}")).collect();
        want.push("rest".into());
        assert!(lines(&ended.out) == want, "stdout of PE {pe}");
        let mut want: Vec<String> = (0..50).map(|i| format!("err {i}")).collect();
        want.push("last".into());
        assert_eq!(lines(&ended.err), want, "stderr of PE {pe}");
    }
    assert_eq!((ended.out.lines().count(), ended.err.lines().count()), (4 * 51, 4 * 51));
    assert!(ended.out.ends_with('\n') && ended.err.ends_with('\n'));
}

#[test]
fn without_tags_the_output_is_the_programs_own() {
    let ended = run(&["-n", "1"], "printf 'no line feed'; printf err >&2");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("no line feed", "err"));
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let mut command = shell(&["-n", "2", "--tag-output"], "exec yes");
    stops_when_its_reader_goes(&mut command);
}

#[test]
fn input_goes_to_pe_0_only() {
    let mut command = shell(&["-n", "3", "--tag-output"], "cat; echo .");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("rushmem-run starts");
    child.stdin.take().expect("piped").write_all(b"one\ntwo\n").expect("written");
    let (out, err) =
        (collect(child.stdout.take().expect("piped")), collect(child.stderr.take().expect("piped")));
    let ended = Running { child, begin: Instant::now(), out, err }.end();
    assert_eq!(sorted(&ended.out), ["[0] .", "[0] one", "[0] two", "[1] .", "[2] ."]);
}

#[test]
fn signals_are_forwarded_to_every_pe() {
    let names = [
        ("INT", Signal::SIGINT),
        ("TERM", Signal::SIGTERM),
        ("HUP", Signal::SIGHUP),
        ("QUIT", Signal::SIGQUIT),
        ("USR1", Signal::SIGUSR1),
        ("USR2", Signal::SIGUSR2),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    for (name, signal) in names {
        let ready = dir.path().join(name);
        std::fs::create_dir(&ready).expect("made");
        let script = format!(
            "trap 'echo got {name}; exit 0' {name}; : >{}/$RUSHMEM_PE; while :; do sleep 0.05; done",
            ready.display()
        );
        let mut command = shell(&["-n", "3", "--tag-output"], &script);
        command.stdin(Stdio::null());
        let running = start(command);
        wait_until("all trap", || std::fs::read_dir(&ready).expect("readable").count() == 3);
        running.signal(signal);
        let ended = running.end();
        let want: Vec<String> = (0..3).map(|pe| format!("[{pe}] got {name}")).collect();
        assert_eq!((ended.code, sorted(&ended.out)), (Some(0), want.iter().map(String::as_str).collect()));
    }
}

#[test]
fn a_signal_that_kills_the_pes_gives_its_code() {
    let mark = unique();
    let mut command = shell(&["-n", "2"], &format!("exec sleep {mark}"));
    command.stdin(Stdio::null());
    let running = start(command);
    wait_until("both sleep", || marked(&mark).len() == 2);
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + 15), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

#[test]
fn a_second_interrupt_ends_those_that_ignore_the_first() {
    let mark = unique();
    let mut command = shell(&["-n", "2"], &format!("trap '' INT TERM; sleep {mark} & wait; wait"));
    command.stdin(Stdio::null());
    let running = start(command);
    wait_until("both sleep", || marked(&mark).len() == 2);
    running.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(marked(&mark).len(), 2, "the first is the program's to handle");
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + 2), "{}", ended.err);
    assert_eq!(marked(&mark), []);
}

#[test]
fn one_failure_ends_all() {
    let mark = unique();
    let script = format!("[ $RUSHMEM_PE = 2 ] && exit 9; exec sleep {mark}");
    let ended = run(&["-n", "4", "--grace", "0.3"], &script);
    assert_eq!(ended.code, Some(9), "{}", ended.err);
    assert!(ended.err.contains("PE 2 (pid ") && ended.err.contains("PEs 0, 1, 3"), "{}", ended.err);
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    assert_eq!(marked(&mark), []);
}

#[test]
fn the_others_have_time_to_say_what_they_noticed() {
    let script =
        "[ $RUSHMEM_PE = 0 ] && exit 9; trap 'echo asked; exit 1' TERM; sleep 0.7; echo noticed; exit 1";
    let ended = run(&["-n", "3", "--tag-output", "--grace", "90"], script);
    assert_eq!((ended.code, sorted(&ended.out)), (Some(9), vec!["[1] noticed", "[2] noticed"]));
    assert!(ended.took < Duration::from_secs(50), "nobody waits for the grace to pass: {:?}", ended.took);
}

#[test]
fn those_that_will_not_end_are_killed() {
    let mark = unique();
    // PE 0 ends once the others ignore the signal.
    let ready = tempfile::tempdir().expect("a folder");
    let script = format!(
        "trap '' TERM; cd {}; if [ $RUSHMEM_PE = 0 ]; then until [ -e 1 ] && [ -e 2 ]; do sleep 0.02; done; exit 9; fi; \
         touch $RUSHMEM_PE; sleep {mark}; sleep {mark}",
        ready.path().display()
    );
    let ended = run(&["-n", "3", "--grace", "0"], &script);
    assert_eq!(ended.code, Some(9), "{}", ended.err);
    assert!(ended.took >= Duration::from_secs(2), "{:?}", ended.took);
    assert_eq!(marked(&mark), []);
}

#[test]
fn a_stopped_pe_does_not_stop_the_ending() {
    let script = "[ $RUSHMEM_PE = 1 ] && kill -STOP $$; sleep 0.2; exit 4";
    let ended = run(&["-n", "2", "--grace", "0.1"], script);
    assert_eq!(ended.code, Some(4), "{}", ended.err);
}

#[test]
fn the_time_limit_ends_all() {
    let mark = unique();
    let ended = run(&["-n", "3", "--timeout", "0.5"], &format!("sleep {mark}"));
    assert_eq!(ended.code, Some(124));
    assert!(ended.err.contains("500ms") && ended.err.contains("PEs 0, 1, 2"), "{}", ended.err);
    assert!(
        ended.took >= Duration::from_millis(500) && ended.took < Duration::from_secs(10),
        "{:?}",
        ended.took
    );
    assert_eq!(marked(&mark), []);
    // In time, it says nothing.
    let ended = run(&["-n", "2", "--timeout", "50"], "exit 0");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn nothing_is_left_behind() {
    let ends =
        [("exit 0", 0, "50"), ("exit 3", 3, "50"), ("kill -KILL $$", 137, "50"), ("sleep 60", 124, "0.7")];
    for (end, code, timeout) in ends {
        let mark = unique();
        // A background child, one whose parent is gone, and one in a session of its own.
        let script = format!(
            "sleep {mark} & (sleep {mark} &) ; setsid sh -c 'sleep {mark} & sleep {mark}' & sleep 0.3; {end}"
        );
        for tag in [&[][..], &["--tag-output"]] {
            let mut options = vec!["-n", "2", "--grace", "0", "--timeout", timeout];
            options.extend(tag);
            let ended = run(&options, &script);
            assert_eq!(ended.code, Some(code), "{end}: {}", ended.err);
            assert_eq!(marked(&mark), [], "after {end}");
        }
    }
}

#[test]
fn killing_the_launcher_kills_the_pes() {
    for tag in [&[][..], &["--tag-output"]] {
        let mark = unique();
        let mut options = vec!["-n", "3"];
        options.extend(tag);
        let mut command = shell(&options, &format!("exec sleep {mark}"));
        command.stdin(Stdio::null());
        let running = start(command);
        wait_until("all sleep", || marked(&mark).len() == 3);
        running.signal(Signal::SIGKILL);
        let ended = running.end();
        assert_eq!(ended.code, None);
        wait_until("all are gone", || marked(&mark).is_empty());
    }
}

#[test]
fn many_pes_start_fast() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
    command.args(["-n", "64", "--", "true"]);
    let ended = start(command).end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    eprintln!("64 PEs of true: {:?}", ended.took);
    // Far above what it takes (some 100 ms), far below what anything quadratic or sleeping would.
    assert!(ended.took < Duration::from_secs(5), "{:?}", ended.took);
}
