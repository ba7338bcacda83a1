//! `rushmem-run --hosts`: placement, environment, output, input, signals and ends, over commands that stand
//! for ssh. The hosts are this one under several names; tests/hosts has real ones, which are network
//! namespaces.

mod run_common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use run_common::{
    collect, marked, shell, sorted, start, stops_when_its_reader_goes, unique, wait_until, Ended, Running,
};

/// Stands for ssh: says which host it is, and prints what a host's shell may print.
const LAUNCH: &str =
    "enter() { echo welcome to $1; FAKE_HOST=$1; export FAKE_HOST; shift; exec \"$@\"; }; enter";

/// `rushmem-run --hosts hosts options -- sh -c script`
fn hosts(hosts: &str, options: &[&str], script: &str) -> Command {
    let mut all = vec!["--hosts", hosts, "--launch", LAUNCH];
    all.extend(options);
    let mut command = shell(&all, script);
    command.stdin(Stdio::null());
    command
}

fn run(list: &str, options: &[&str], script: &str) -> Ended {
    start(hosts(list, options, script)).end()
}

#[test]
fn pes_are_placed_and_know_it() {
    let script =
        "echo $FAKE_HOST $RUSHMEM_PE/$RUSHMEM_NPES $RUSHMEM_LOCAL_PE/$RUSHMEM_LOCAL_NPES ${#RUSHMEM_UID}";
    let ended = run("a:2,b:3", &[], script);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let want = ["a 0/5 0/2 256", "a 1/5 1/2 256", "b 2/5 0/3 256", "b 3/5 1/3 256", "b 4/5 2/3 256"];
    assert_eq!(sorted(&ended.out), want);
    // What the hosts' shells say is no output of the program.
    assert_eq!(sorted(ended.err.trim()), ["welcome to a", "welcome to b"]);

    let ended = run("a:2,b:3", &["--map-by", "node", "--tag-output"], "echo $FAKE_HOST $RUSHMEM_LOCAL_PE");
    assert_eq!(sorted(&ended.out), ["[0] a 0", "[1] b 0", "[2] a 1", "[3] b 1", "[4] b 2"], "{}", ended.err);
    let ended = run("a,b", &["-n", "3"], "echo $FAKE_HOST $RUSHMEM_PE");
    assert_eq!(sorted(&ended.out), ["a 0", "a 1", "b 2"], "{}", ended.err);
}

#[test]
fn a_file_names_hosts_and_a_command_where_the_host_goes() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "a:1 # the first\nb slots=2\n").expect("written");
    let path = file.path().to_str().expect("UTF-8");
    let launch = "env FAKE_HOST={host} 'QUOTED=x  y' ";
    let mut command =
        shell(&["--hostfile", path, "--launch", launch], "echo $RUSHMEM_PE $FAKE_HOST \"$QUOTED\"");
    command.stdin(Stdio::null());
    let ended = start(command).end();
    assert_eq!(
        (ended.code, sorted(&ended.out)),
        (Some(0), vec!["0 a x  y", "1 b x  y", "2 b x  y"]),
        "{}",
        ended.err
    );
    for (bad, word) in [("a:0", "a:0"), ("a:1,b", "-n 5"), ("-x", "-x")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args([&format!("--hosts={bad}"), "-n", "5", "true"]);
        let ended = start(command).end();
        assert!(ended.code == Some(2) && ended.err.contains(word), "{bad}: {:?} {}", ended.code, ended.err);
    }
}

/// Writes a script that can be run. What is run was written by another process: while this one had it open, a
/// child that another thread forks meanwhile would have it open, too, and it could not be run ("Text file
/// busy").
fn script(to: &Path, text: &str) {
    let mut sh = Command::new("sh");
    sh.args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(to).arg(text);
    assert!(sh.status().expect("there is a shell").success(), "{} cannot be written", to.display());
}

#[test]
fn ssh_is_asked_for_one_word_of_shell() {
    let dir = tempfile::tempdir().expect("a directory");
    // As ssh does: options, the host, and the rest as one text for the user's shell there.
    let ssh = "#!/bin/sh\nwhile [ \"$1\" = -o ]; do shift 2; done\nFAKE_HOST=$1; export FAKE_HOST; shift; exec sh -c \"$*\"\n";
    let (fake, odd) = (dir.path().join("ssh"), dir.path().join("it's a $HOME"));
    script(&fake, ssh);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rushmem-run"), &odd).expect("linked");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").expect("there is one"));
    let odd = odd.to_str().expect("UTF-8");
    for options in [&["--hosts", "a,b"][..], &["--hosts", "a,b", "--remote-path", odd]] {
        let mut command = shell(options, "echo $FAKE_HOST $RUSHMEM_PE");
        command.env("PATH", &path).stdin(Stdio::null());
        let ended = start(command).end();
        assert_eq!((ended.code, sorted(&ended.out)), (Some(0), vec!["a 0", "b 1"]), "{}", ended.err);
    }
}

#[test]
fn this_host_needs_no_ssh() {
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/bin/sh", dir.path().join("sh")).expect("linked");
    let own = nix::unistd::gethostname().expect("a name").into_string().expect("UTF-8");
    for list in ["localhost:2".to_owned(), format!("{own}:1,localhost:1")] {
        let mut command = shell(&["--hosts", &list], "echo $RUSHMEM_PE of $RUSHMEM_NPES");
        command.env("PATH", dir.path()).stdin(Stdio::null());
        let ended = start(command).end();
        assert_eq!((ended.code, sorted(&ended.out)), (Some(0), vec!["0 of 2", "1 of 2"]), "{}", ended.err);
    }
    // Any other does, and it is said what is missing.
    let mut command = shell(&["--hosts", "localhost:1,elsewhere:1"], "exec /bin/sleep 30");
    command.env("PATH", dir.path()).stdin(Stdio::null());
    let ended = start(command).end();
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    for part in ["ssh", "not found", "host elsewhere (PE 1): rushmem-run did not start there"] {
        assert!(ended.err.contains(part), "{part:?}: {}", ended.err);
    }
}

#[test]
fn pes_get_the_environment_and_the_folder_and_nobody_sees_the_secret() {
    let mark = unique();
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().canonicalize().expect("it is there");
    let script = format!(
        "echo $PWD $RUSHMEM_X $UCX_X $LD_LIBRARY_PATH $A ${{NOT_FORWARDED-none}} $RUSHMEM_UID; exec sleep {mark}"
    );
    // The command of this launcher keeps nothing of the environment but the search path.
    let launch = "env -i PATH=\"$PATH\" sh -c 'shift; exec \"$@\"' sh {host}";
    let mut command = shell(&["--hosts", "a:1,b:1", "--launch", launch, "--env", "A=b c"], &script);
    let secret = "a-secret-of-this-test";
    command.current_dir(&folder).stdin(Stdio::null());
    command.env("RUSHMEM_X", "x").env("UCX_X", "y").env("LD_LIBRARY_PATH", "/l").env("NOT_FORWARDED", "z");
    command.env("RUSHMEM_JOB_SECRET", secret).env("RUSHMEM_PE", "77");
    let running = start(command);
    wait_until("both sleep", || marked(&mark).len() == 2);
    let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let words: Vec<u8> =
        entries.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok()).flatten().collect();
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    let lines = sorted(&ended.out);
    assert_eq!(lines.len(), 2, "{} {}", ended.out, ended.err);
    for line in lines {
        let (seen, uid) = line.rsplit_once(' ').expect("several words");
        assert_eq!(seen, format!("{} x y /l b c none", folder.display()));
        assert_eq!(uid.len(), 256);
        for secret in [uid, secret] {
            let found = words.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "a secret is on a command line");
        }
    }
}

#[test]
fn output_is_brought_back_whole_and_apart() {
    let script = r#"
        long=$(head -c 5000 /dev/zero | tr '\0' x)
        i=0
        while [ $i -lt 50 ]; do
            printf 'out %s' "$i"; printf ' %s\n' "$long"
            printf 'err %s\n' "$i" >&2
            i=$((i + 1))
        done
        printf rest; head -c 3000000 /dev/zero | tr '\0' y"#;
    let ended = run("a:2,b:1", &["--tag-output"], script);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let (long, last) = ("x".repeat(5000), 3_000_000 + 4);
    for pe in 0..3 {
        let tag = format!("[{pe}] ");
        let mine = |text: &str| -> Vec<String> {
            text.lines().filter_map(|l| l.strip_prefix(&tag)).map(str::to_owned).collect()
        };
        let out = mine(&ended.out);
        assert!((0..50).all(|i| out[i] == format!("out {i} {long}")), "stdout of PE {pe}");
        assert_eq!(out[50..].iter().map(String::len).sum::<usize>(), last, "the last line of PE {pe}");
        assert_eq!(mine(&ended.err), (0..50).map(|i| format!("err {i}")).collect::<Vec<_>>());
    }
    // Without tags it is the program's own.
    let ended = run("a:1", &[], "printf 'no line feed'; printf err >&2");
    assert_eq!((ended.out.as_str(), ended.err.trim_end()), ("no line feed", "welcome to a\nerr"));
}

#[test]
fn input_goes_to_pe_0_as_it_reads() {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    for (script, want) in [
        ("cksum", true),
        // A PE that reads little, or nothing, stops no other.
        ("head -c 10 >/dev/null; echo done", false),
        ("echo done", false),
    ] {
        let mut command = hosts("a:1,b:1", &["--tag-output"], script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("rushmem-run starts");
        let mut to = child.stdin.take().expect("piped");
        let data = bytes.clone();
        // A program that ends without reading makes this fail, or not, as a pipe would.
        let writer = std::thread::spawn(move || to.write_all(&data));
        let (out, err) =
            (collect(child.stdout.take().expect("piped")), collect(child.stderr.take().expect("piped")));
        let ended = Running { child, begin: Instant::now(), out, err }.end();
        let _ = writer.join().expect("it does not panic");
        assert_eq!(ended.code, Some(0), "{script}: {}", ended.err);
        if want {
            let sum = |line: &str| line.trim_start_matches("[0] ").to_owned();
            let mine: Vec<String> = ended.out.lines().filter(|l| l.starts_with("[0]")).map(sum).collect();
            assert_eq!(mine, [cksum(&bytes)], "{}", ended.err);
            let empty = format!("[1] {}", cksum(b""));
            assert!(ended.out.contains(&empty), "{}", ended.out);
        } else {
            assert_eq!(sorted(&ended.out), ["[0] done", "[1] done"]);
        }
    }
}

/// What `cksum` says of these bytes.
fn cksum(bytes: &[u8]) -> String {
    let mut child =
        Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cksum starts");
    child.stdin.take().expect("piped").write_all(bytes).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

#[test]
fn one_failure_ends_all_hosts() {
    let mark = unique();
    for (end, code, how) in [("exit 9", 9, "exited with code 9"), ("kill -SEGV $$", 139, "SIGSEGV")] {
        let script = format!("sleep {mark} & [ $RUSHMEM_PE = 2 ] && {{ sleep 0.2; {end}; }}; wait");
        let ended = run("a:2,b:2", &["--grace", "0.3"], &script);
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        assert!(ended.err.contains("PE 2 (host b, pid ") && ended.err.contains(how), "{}", ended.err);
        assert!(ended.err.contains("PEs 0, 1, 3 did not end"), "{}", ended.err);
        assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
        assert_eq!(marked(&mark), []);
    }
}

#[test]
fn those_that_will_not_end_are_killed_and_the_time_is_kept() {
    let mark = unique();
    let ended = run("a:1,b:1", &["--timeout", "0.7"], &format!("trap '' TERM; sleep {mark}; sleep {mark}"));
    assert_eq!(ended.code, Some(124), "{}", ended.err);
    assert!(ended.took < Duration::from_secs(50), "{:?}", ended.took);
    assert_eq!(marked(&mark), []);
}

#[test]
fn a_lost_connection_ends_all_hosts() {
    let mark = unique();
    let mut command = hosts("a:2,b:2", &["--grace", "0.3"], &format!("exec sleep {mark}"));
    // The mark distinguishes this job's parts from those of other jobs.
    command.args([&mark]);
    let running = start(command);
    wait_until("all sleep", || marked(&mark).len() > 4);
    let of_b = agents_of(running.child.id(), "b");
    assert_eq!(of_b.len(), 1, "the part of host b");
    kill(Pid::from_raw(of_b[0]), Signal::SIGKILL).expect("it runs");
    let ended = running.end();
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert!(ended.err.contains("host b (PEs 2, 3): the connection is lost"), "{}", ended.err);
    wait_until("all are gone", || marked(&mark).is_empty());
}

/// The processes that this launcher has started for `host`, with their environment.
fn agents_of(launcher: u32, host: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let parent =
            String::from_utf8_lossy(&read("stat")).rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        let parent = parent.and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        let variable = format!("FAKE_HOST={host}");
        let in_host = read("environ").split(|b| *b == 0).any(|word| word == variable.as_bytes());
        parent == Some(launcher) && in_host
    })
    .collect()
}

#[test]
fn killing_the_launcher_ends_all_hosts() {
    let mark = unique();
    let running = start(hosts("a:2,b:1", &[], &format!("exec sleep {mark}")));
    wait_until("all sleep", || marked(&mark).len() == 3);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    wait_until("all are gone", || marked(&mark).is_empty());
}

/// Ends the processes with this mark, also when a test fails.
struct Marked<'a>(&'a str);

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        for pid in marked(self.0) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// As under sshd, a host's part is the child of a process that does not end with the launcher's: only its
/// input says that the connection is lost. A shell in between that stays (no `exec`) makes it so here.
#[test]
fn a_part_that_outlives_the_launcher_ends_when_its_input_does() {
    let mark = unique();
    let _ends = Marked(&mark);
    let launch = "enter() { shift; \"$@\"; true; }; enter";
    let mut command = shell(&["--hosts", "a:2,b:1", "--launch", launch], &format!("exec sleep {mark}"));
    command.stdin(Stdio::null());
    let running = start(command);
    wait_until("all sleep", || marked(&mark).len() == 3);
    running.signal(Signal::SIGKILL);
    // First these: what is left holds the launcher's standard error.
    wait_until("all are gone", || marked(&mark).is_empty());
    assert_eq!(running.end().code, None);
}

#[test]
fn signals_reach_every_host() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, signal) in [("INT", Signal::SIGINT), ("USR1", Signal::SIGUSR1), ("HUP", Signal::SIGHUP)] {
        let ready = dir.path().join(name);
        std::fs::create_dir(&ready).expect("made");
        let script = format!(
            "trap 'echo got {name}; exit 0' {name}; : >{}/$RUSHMEM_PE; while :; do sleep 0.05; done",
            ready.display()
        );
        let running = start(hosts("a:1,b:2", &["--tag-output"], &script));
        wait_until("all trap", || std::fs::read_dir(&ready).expect("readable").count() == 3);
        running.signal(signal);
        let ended = running.end();
        let want: Vec<String> = (0..3).map(|pe| format!("[{pe}] got {name}")).collect();
        assert_eq!((ended.code, sorted(&ended.out)), (Some(0), want.iter().map(String::as_str).collect()));
    }
    let mark = unique();
    let running = start(hosts("a:1,b:1", &[], &format!("trap '' INT TERM; sleep {mark} & wait; wait")));
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
fn a_host_that_cannot_run_it_is_named() {
    let launch = "f() { [ $1 = b ] && { echo no route >&2; exit 255; }; shift; exec \"$@\"; }; f";
    let mark = unique();
    let script = format!("exec sleep {mark}");
    let mut command = shell(&["--hosts", "a:1,b:1", "--launch", launch, "--grace", "0.2"], &script);
    command.stdin(Stdio::null());
    let ended = start(command).end();
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    for part in ["no route", "host b (PE 1): rushmem-run did not start there", "255"] {
        assert!(ended.err.contains(part), "{part:?}: {}", ended.err);
    }
    assert_eq!(marked(&mark), []);

    for (program, code, part) in [("no-such-program-anywhere", 127, "in PATH"), ("/etc/passwd", 126, "chmod")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-run"));
        command.args(["--hosts", "a:1,b:1", "--launch", LAUNCH, program]);
        let ended = start(command).end();
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        assert!(ended.err.contains("host ") && ended.err.contains(part), "{}", ended.err);
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let mut command = hosts("a:1,b:1", &["--tag-output", "--grace", "0.3"], "exec yes");
    stops_when_its_reader_goes(&mut command);
}
