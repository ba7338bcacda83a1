//! No room, no right to write, and compilers that are killed: the kernel runs all the same, or the message
//! says what is wrong with the machine, never that the source does not compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_device_cpu::Error;
use rushmem_device_cpu_test_support::parts::{self, answer, finished, is_part, root, PART, SOURCE};
use rushmem_device_cpu_test_support::{compiler, Bench};

/// A compiler that does this first.
fn wrapped(bench: &Bench, first: &str) -> PathBuf {
    let script = bench.dir.path().join("wrapped-c++");
    let version = "case \"$*\" in *--version*) exec c++ \"$@\" ;; esac";
    parts::script(&script, &format!("#!/bin/sh\n{version}\n{first}\nexec c++ \"$@\"\n"));
    script
}

#[test]
fn a_compiler_that_is_killed_runs_again() {
    let mut bench = Bench::new();
    let marker = bench.dir.path().join("killed");
    let once = format!("test -e {0} || {{ touch {0}; kill -9 $$; }}", marker.display());
    bench.compiler.cxx = Some(wrapped(&bench, &once));
    assert_eq!(answer(&bench.compiler, SOURCE), Ok(123));
    assert!(marker.exists());
    // Always: it is not the source's fault.
    bench.compiler.cxx = Some(wrapped(&bench, "kill -9 $$"));
    let error = answer(&bench.compiler, "__global__ void k(int *p) { *p = 4; }").expect_err("no compiler");
    assert!(matches!(&error, Error::Interrupted { text } if text.contains("signal: 9")), "{error:?}");
    // As the driver says it of the compiler proper.
    let says = "echo 'c++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1";
    bench.compiler.cxx = Some(wrapped(&bench, says));
    let error = answer(&bench.compiler, SOURCE.replace("123", "5").as_str()).expect_err("no compiler");
    assert!(matches!(&error, Error::Interrupted { text } if text.contains("memory")), "{error:?}");
}

#[test]
fn a_compiler_without_room_says_disk() {
    let mut bench = Bench::new();
    bench.compiler.cxx = Some(wrapped(&bench, "ulimit -f 8"));
    let error = answer(&bench.compiler, SOURCE).expect_err("no room");
    assert!(matches!(&error, Error::Io { text } if text.contains("disk")), "{error:?}");
    // A source that speaks of it is wrong all the same.
    bench.compiler.cxx = None;
    let error = answer(&bench.compiler, "#error No space left on device\n").expect_err("wrong");
    assert!(matches!(&error, Error::Compile { .. }), "{error:?}");
}

/// Runs a part of a test with mounts of its own; `None`, and a word on it, where this machine allows none.
fn with_mounts(test: &str, name: &str, mounts: &str, env: &[(&str, &Path)]) -> Option<String> {
    let unshare = |command: &mut Command| {
        command.args(if root() { &["-m"][..] } else { &["-U", "--map-current-user", "--keep-caps", "-m"] });
    };
    let mut probe = Command::new("unshare");
    unshare(&mut probe);
    let probe = probe.args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP {test}: no mounts of one's own here ({probe:?})");
        return None;
    }
    let mut command = Command::new("unshare");
    unshare(&mut command);
    // A mount may hide the program.
    let script = format!("exec 9< \"$1\"\nshift\n{mounts}\nexec /proc/self/fd/9 \"$@\"");
    command.args(["sh", "-ec", &script, "sh"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, name);
    for (name, value) in env {
        command.env(name, value);
    }
    Some(finished(&mut command))
}

#[test]
fn a_full_disk_is_gone_round_or_named() {
    let test = "a_full_disk_is_gone_round_or_named";
    let cache = || PathBuf::from(std::env::var_os("CACHE").expect("the cache"));
    if is_part("round") {
        assert_eq!(answer(&compiler(&cache()), SOURCE), Ok(123));
        return;
    }
    if is_part("named") {
        let error = answer(&compiler(&cache()), SOURCE).expect_err("no room anywhere");
        assert!(matches!(&error, Error::Io { text } if text.contains("disk")), "{error:?}");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path().join("full");
    fs::create_dir(&dir).expect("making");
    let env = [("CACHE", &*dir), ("TMPDIR", &*dir)];
    // From nothing at all to enough for all but the object.
    for kib in [4, 64, 256, 700] {
        let mount = format!("mount -t tmpfs -o size={kib}k,mode=700 none \"$CACHE\"");
        if with_mounts(test, "round", &mount, &env).is_none() {
            return;
        }
    }
    let tiny = "mount -t tmpfs -o size=64k,mode=1777 none";
    let all = format!("for dir in \"$CACHE\" /var/tmp /dev/shm /tmp; do {tiny} \"$dir\"; done");
    // The last hides the first, where that is in it: then the cache's folder is made anew, and is as full.
    with_mounts(test, "named", &format!("unset XDG_RUNTIME_DIR; {all}"), &env);
}

#[test]
fn a_read_only_cache_serves_what_it_has() {
    let test = "a_read_only_cache_serves_what_it_has";
    if is_part("read only") {
        let dir = PathBuf::from(std::env::var_os("CACHE").expect("the cache"));
        let mut kept = compiler(&dir);
        // Whatever would be compiled would fail.
        let good = kept.cxx.replace(dir.join("slow-c++"));
        assert_eq!(answer(&kept, SOURCE), Ok(123));
        kept.cxx = good;
        assert_eq!(answer(&kept, SOURCE.replace("123", "7").as_str()), Ok(7));
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path().join("cache");
    fs::create_dir(&dir).expect("making");
    let script = dir.join("slow-c++");
    parts::script(&script, "#!/bin/sh\ncase \"$*\" in *--version*) exec c++ \"$@\" ;; esac\ntest -e $0.used && exit 9\nexec c++ \"$@\"\n");
    let mut kept = compiler(&dir);
    kept.cxx = Some(script);
    assert_eq!(answer(&kept, SOURCE), Ok(123));
    fs::write(dir.join("slow-c++.used"), "").expect("writing");
    with_mounts(
        test,
        "read only",
        "mount --bind \"$CACHE\" \"$CACHE\" && mount -o remount,bind,ro \"$CACHE\"",
        &[("CACHE", &dir)],
    );
}
