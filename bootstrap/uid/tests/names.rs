//! Names that do not resolve, from the start of a job: loopback's and this host's own need no resolver,
//! others are an error in seconds. Ranks are processes, in a root whose resolver knows nothing.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::{environment, join_address, UidConfig, IFNAME_VARIABLE};

const ROLE: &str = "RUSHMEM_TEST_NAMES";
const N: u32 = 3;

fn config(rank: u32) -> UidConfig {
    let limit = Duration::from_secs(45);
    let ifname = std::env::var(IFNAME_VARIABLE).ok();
    UidConfig { init_timeout: limit, timeout: limit, ifname, ..UidConfig::new(rank, N) }
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let joined = match words[..] {
        ["address", address, rank] => join_address(address, b"s", config(rank.parse().expect("a rank"))),
        _ => environment::detect_here().and_then(|launch| launch.join(config(0))),
    };
    let result = joined.and_then(|b| {
        b.barrier()?;
        b.finalize()
    });
    println!("@{}", result.map_or_else(|e| format!("{:?} {e}", e.kind), |()| "fine".into()));
}

/// This process shall see files of names and resolvers that are empty. Between fork and exec.
fn forget_names() -> std::io::Result<()> {
    let check = |rc: i32| if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: plain system calls with texts that end in zero bytes.
    unsafe {
        let (uid, gid) = (libc::geteuid(), libc::getegid());
        if uid != 0 {
            check(libc::unshare(libc::CLONE_NEWUSER))?;
            map(c"/proc/self/setgroups", "deny")?;
            map(c"/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
            map(c"/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
        }
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let none = std::ptr::null();
        check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
        for file in [c"/etc/hosts", c"/etc/resolv.conf", c"/etc/nsswitch.conf"] {
            if libc::access(file.as_ptr(), libc::F_OK) == 0 {
                let null = c"/dev/null".as_ptr();
                check(libc::mount(null, file.as_ptr(), none, libc::MS_BIND, none.cast()))?;
            }
        }
    }
    Ok(())
}

fn map(file: &std::ffi::CStr, text: &str) -> std::io::Result<()> {
    std::fs::write(std::ffi::OsStr::new(file.to_str().expect("ASCII")), text)
}

struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // it may be gone
            let _ = child.wait();
        }
    }
}

/// What the ranks say in the end, each started with its variables; `None` where this user may have no
/// namespaces, or has a root directory that is no mount (chroot), which cannot be made private.
fn run(vars: &[Vec<(&str, String)>]) -> Option<(Vec<String>, Duration)> {
    let start = Instant::now();
    let mut ranks = Ranks(Vec::new());
    for vars in vars {
        let mut command = Command::new(std::env::current_exe().expect("this test's path"));
        command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
        for name in ["RUSHMEM_PE", "RUSHMEM_NPES", "RUSHMEM_UID", "RANK", "WORLD_SIZE", IFNAME_VARIABLE] {
            command.env_remove(name);
        }
        command.envs(vars.iter().map(|(k, v)| (*k, v))).stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: one thread, and nothing that its end could leave locked: the child is new.
        unsafe { command.pre_exec(forget_names) };
        match command.spawn() {
            Ok(child) => ranks.0.push(child),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EINVAL)) => {
                return None
            }
            Err(e) => panic!("a rank does not start: {e}"),
        }
    }
    let mut said = Vec::new();
    for mut child in std::mem::take(&mut ranks.0) {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut child.stdout.take().expect("piped"), &mut text).expect("text");
        let _ = child.wait();
        said.push(text.lines().find_map(|l| l.split_once('@')).map_or(text.clone(), |l| l.1.to_owned()));
    }
    Some((said, start.elapsed()))
}

#[test]
fn loopback_and_this_host_need_no_resolver() {
    let own = nix::unistd::gethostname().expect("a name").into_string().expect("text");
    let port = 12000 + std::process::id() % 8000;
    // Over TCP where an interface is named, else over a local socket.
    for (host, ifname) in [("localhost", "lo"), ("localhost", ""), (own.as_str(), "lo"), (own.as_str(), "")] {
        let rank = |rank: u32| {
            vec![(ROLE, format!("address {host}:{port} {rank}")), (IFNAME_VARIABLE, ifname.to_owned())]
        };
        let Some((said, took)) = run(&[rank(0), rank(1), rank(2)]) else {
            return eprintln!("SKIP loopback_and_this_host_need_no_resolver: no namespaces for this user");
        };
        assert!(said.iter().all(|s| s == "fine"), "{host} {ifname}: {said:?}");
        assert!(took < Duration::from_secs(20), "{host} {ifname}: {took:?}");
        println!("{host} {ifname}: {took:?}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_an_error_that_names_it_and_its_variable() {
    let torch = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "no-such-host"),
        ("MASTER_PORT", "29500"),
    ];
    let slurm = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "no-such-host[1-4]"),
    ];
    let vars = |set: &[(&'static str, &str)]| {
        let set = set.iter().map(|(k, v)| (*k, v.to_string()));
        [(ROLE, "environment".to_owned())].into_iter().chain(set).collect::<Vec<_>>()
    };
    let Some((said, took)) = run(&[vars(&torch), vars(&slurm)]) else {
        return eprintln!("SKIP a_name_that_does_not_resolve_…: no namespaces for this user");
    };
    for (said, name, variable) in [
        (&said[0], "\"no-such-host\"", "MASTER_ADDR"),
        (&said[1], "\"no-such-host1\"", "SLURM_STEP_NODELIST"),
    ] {
        assert!(said.starts_with("Environment ") && said.contains(name) && said.contains(variable), "{said}");
    }
    // Five seconds from the first time it was asked for.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
