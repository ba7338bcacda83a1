//! The cache under attack, and without room: what another user put there never runs, and the kernel runs all
//! the same. What changes the process (its user, its limits, its environment, its namespaces) is done in a
//! child, this program with the name of a part in the environment.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rushmem_device_cpu_test_support::parts::{
    answer, chmod, copied, finished, is_part, part, root, tries, NOBODY, PART, SOURCE,
};
use rushmem_device_cpu_test_support::{cache, compiler};

/// A copy of a cache in which the kernel's object is another that is sound in itself.
fn poisoned(good: &Path, evil: &Path) {
    let payload = SOURCE.replace("123", "666");
    assert_eq!(answer(&compiler(good), SOURCE).expect("compiles"), 123);
    let key = fs::read_dir(cache(good)).expect("a cache").map(|entry| entry.expect("readable").file_name());
    let key =
        key.into_iter().find(|name| !name.to_string_lossy().starts_with("include-")).expect("one entry");
    assert_eq!(answer(&compiler(evil), &payload).expect("compiles"), 666);
    let other = fs::read_dir(cache(evil)).expect("a cache").map(|entry| entry.expect("readable").path());
    let other =
        other.into_iter().find(|path| !path.to_string_lossy().contains("include-")).expect("one entry");
    fs::rename(other, cache(evil).join(key)).expect("renaming");
    assert_eq!(
        answer(&compiler(evil), SOURCE).expect("compiles"),
        666,
        "where it is trusted, the payload runs"
    );
}

/// Gives a tree away, or takes it.
fn give(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).expect("chown");
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).expect("readable") {
            give(&entry.expect("readable").path(), uid);
        }
    }
}

/// Lets two names change places, at once.
fn swap(a: &Path, b: &Path) {
    use rustix::fs::{renameat_with, RenameFlags, CWD};
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).expect("exchanging");
}

/// A thread swaps the cache for a link to a poisoned one, as fast as it can.
#[test]
fn a_link_that_comes_and_goes_is_never_followed() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (good, evil) = (temp.path().join("good"), temp.path().join("evil"));
    poisoned(&good, &evil);
    let link = temp.path().join("link");
    symlink(&evil, &link).expect("linking");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let swaps = scope.spawn(|| {
            let mut swaps = 0u64;
            while !done.load(Ordering::Relaxed) {
                swap(&good, &link);
                swaps += 1;
            }
            swaps
        });
        for _ in 0..tries(1500) {
            let found = answer(&compiler(&good), SOURCE);
            if !matches!(found, Ok(123)) {
                done.store(true, Ordering::Relaxed);
                panic!("{found:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
        println!("{} swaps", swaps.join().expect("no panic"));
    });
}

/// Another user owns the directory of the cache, and swaps what is in it.
#[test]
fn the_owner_of_the_parent_runs_nothing() {
    if is_part("attack") {
        return attack();
    }
    if !root() {
        eprintln!("SKIP the_owner_of_the_parent_runs_nothing: only root can be two users");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    chmod(temp.path(), 0o755);
    let parent = temp.path().join("parent");
    let (good, evil) = (parent.join("cache"), parent.join("evil"));
    fs::create_dir(&parent).expect("making");
    poisoned(&good, &evil);
    // The good one stays ours; the attacker owns the directory around it, and the poisoned one.
    give(&evil, NOBODY);
    std::os::unix::fs::chown(&parent, Some(NOBODY), Some(NOBODY)).expect("chown");
    let exe = temp.path().join("attacker");
    copied(&std::env::current_exe().expect("this program"), &exe);
    let mut attacker = Command::new(&exe);
    attacker.args(["--exact", "the_owner_of_the_parent_runs_nothing", "--nocapture"]);
    attacker.env(PART, "attack").env("PARENT", &parent).uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut attacker = attacker.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("spawned");
    let mut wrong = None;
    let (mut seen, start) = (0, Instant::now());
    while seen < tries(1500) {
        match answer(&compiler(&good), SOURCE) {
            Ok(123) => seen += 1,
            other => {
                wrong = Some(other);
                break;
            }
        }
    }
    let took = start.elapsed();
    assert!(attacker.try_wait().expect("asked").is_none(), "the attack has ended too soon");
    attacker.kill().expect("killed");
    let output = attacker.wait_with_output().expect("waited for");
    assert!(String::from_utf8_lossy(&output.stdout).contains("SWAPPED"), "there was no attack");
    assert!(wrong.is_none(), "{wrong:?} after {seen}");
    println!("{seen} loads in {took:?}");
}

fn attack() {
    let parent = PathBuf::from(std::env::var_os("PARENT").expect("the parent"));
    for swaps in 0u64.. {
        swap(&parent.join("cache"), &parent.join("evil"));
        if swaps == 10 {
            println!("SWAPPED");
        }
    }
}

/// A directory of ours in one of another user's: its owner can put another one in its place at any moment.
#[test]
fn a_directory_of_another_user_on_the_way_is_not_used() {
    if !root() {
        eprintln!("SKIP a_directory_of_another_user_on_the_way_is_not_used: only root can be two users");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let parent = temp.path().join("parent");
    let cache = parent.join("cache");
    fs::create_dir_all(&cache).expect("making");
    give(&parent, NOBODY);
    std::os::unix::fs::chown(&cache, Some(0), Some(0)).expect("chown");
    assert_eq!(answer(&compiler(&cache), SOURCE).expect("compiles elsewhere"), 123);
    assert_eq!(fs::read_dir(&cache).expect("readable").count(), 0, "what is not trusted is left alone");
}

/// Two users, one `RUSHMEM_CACHE_DIR`.
#[test]
fn two_users_share_a_directory() {
    let test = "two_users_share_a_directory";
    if is_part("user") {
        let dir = PathBuf::from(std::env::var_os("SHARED").expect("the cache"));
        assert_eq!(answer(&compiler(&dir), SOURCE).expect("compiles"), 123);
        return;
    }
    if !root() {
        eprintln!("SKIP {test}: only root can be two users");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    chmod(temp.path(), 0o755);
    let shared = temp.path().join("shared");
    fs::create_dir(&shared).expect("making");
    chmod(&shared, 0o1777);
    let exe = temp.path().join("user");
    copied(&std::env::current_exe().expect("this program"), &exe);
    for uid in [NOBODY, 12345] {
        let mut user = Command::new(&exe);
        user.args(["--exact", test, "--nocapture"]).env(PART, "user").env("SHARED", &shared);
        user.env("TMPDIR", "/tmp").uid(uid).gid(uid).current_dir("/");
        finished(&mut user);
        let folder = shared.join(format!("uid-{uid}"));
        let meta = fs::metadata(&folder).expect("a folder of its own");
        assert_eq!(meta.permissions().mode() & 0o777, 0o700);
        assert_eq!(
            fs::read_dir(folder.join("cpu")).expect("the cache").count(),
            2,
            "an entry and the headers"
        );
    }
}

/// The folder of the process: nothing in the temporary directory is trusted, and nothing is left there.
#[test]
fn a_process_without_a_cache_has_its_own_folder() {
    let test = "a_process_without_a_cache_has_its_own_folder";
    if is_part("process") {
        let mut none = compiler(Path::new(""));
        none.cache_dir = std::env::var_os("REFUSED").map(PathBuf::from);
        assert_eq!(answer(&none, SOURCE).expect("compiles"), 123);
        let first = Instant::now();
        assert_eq!(answer(&none, SOURCE).expect("compiles"), 123);
        println!("again in {:?}", first.elapsed());
        let temporary = std::env::temp_dir();
        let own = fs::read_dir(&temporary).expect("readable").map(|entry| entry.expect("readable").path());
        let own: Vec<_> = own.filter(|path| path.to_string_lossy().contains("rushmem-kernels-")).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(fs::metadata(&own[0]).expect("stat").permissions().mode() & 0o777, 0o700);
        assert!(own[0].join("cpu").is_dir());
        if std::env::var_os("DIE").is_some() {
            // SAFETY: ends this process, which is what is asked.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let temporary = temp.path().join("tmp");
    fs::create_dir(&temporary).expect("making");
    let loose = temp.path().join("loose");
    fs::create_dir(&loose).expect("making");
    chmod(&loose, 0o777);
    let child = || {
        let mut child = part(test, "process");
        child
            .env("TMPDIR", &temporary)
            .env("REFUSED", &loose)
            .env_remove("HOME")
            .env_remove("XDG_CACHE_HOME");
        child
    };
    let left = || fs::read_dir(&temporary).expect("readable").count();
    finished(&mut child());
    assert_eq!(left(), 0);
    // One that is killed leaves it to the next.
    let killed = child().env("DIE", "1").output().expect("run");
    assert!(!killed.status.success());
    assert_eq!(left(), 1);
    finished(&mut child());
    assert_eq!(left(), 0);
    assert_eq!(fs::read_dir(&loose).expect("readable").count(), 0, "what is not trusted is left alone");
}

/// No home, or one that cannot be written to: the cache is this user's directory among the temporary ones.
#[test]
fn without_a_home_the_cache_is_a_temporary_one() {
    let test = "without_a_home_the_cache_is_a_temporary_one";
    if is_part("home") {
        let mut none = compiler(Path::new(""));
        none.cache_dir = None;
        assert_eq!(answer(&none, SOURCE).expect("compiles"), 123);
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (home, temporary) = (temp.path().join("home"), temp.path().join("tmp"));
    fs::create_dir(&home).expect("making");
    fs::create_dir(&temporary).expect("making");
    // SAFETY: no preconditions.
    let uid = unsafe { libc::geteuid() };
    let there = temporary.join(format!("rushmem-cache-{uid}/uid-{uid}/cpu"));
    let run = |home: &Path| {
        let mut child = part(test, "home");
        finished(child.env("TMPDIR", &temporary).env("HOME", home).env_remove("XDG_CACHE_HOME"));
    };
    run(&home);
    assert!(home.join(format!(".cache/rushmem/uid-{uid}/cpu")).is_dir() && !there.exists());
    // Not made by us, though it says so: not used, and no harm done.
    fs::create_dir(temporary.join(format!("rushmem-cache-{uid}"))).expect("making");
    chmod(&temporary.join(format!("rushmem-cache-{uid}")), 0o777);
    run(Path::new("/proc/no-home"));
    assert!(!there.exists());
    chmod(&temporary.join(format!("rushmem-cache-{uid}")), 0o700);
    run(Path::new("/proc/no-home"));
    assert!(there.is_dir());
    // One that is this user's and cannot be written to. Root can.
    if !root() {
        fs::remove_dir_all(&temporary).expect("removing");
        fs::create_dir(&temporary).expect("making");
        chmod(&home.join(".cache/rushmem").join(format!("uid-{uid}/cpu")), 0o500);
        run(&home);
        assert!(there.is_dir());
        chmod(&home.join(".cache/rushmem").join(format!("uid-{uid}/cpu")), 0o700);
    }
}
