//! Another user at the sockets between the PEs of a host: it is given no descriptor, and the job starts all
//! the same.

use std::io::{IoSliceMut, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rushmem::{testing, World};
use rushmem_test_support::programs::copied;

use super::rounds;

const STRANGER: &str = "RUSHMEM_TEST_STRANGER";
const NOBODY: u32 = 65534;

#[test]
fn another_user_gets_no_descriptor() {
    if std::env::var_os(STRANGER).is_some() {
        return stranger();
    }
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIP another_user_gets_no_descriptor: only root can be two users");
        return;
    }
    // A PE ends within the loop below, and would leave its folder behind.
    let in_job = std::env::var_os("RUSHMEM_TEST_CALL").is_some();
    let attack = |dir: &Path| {
        let exe = dir.join("stranger");
        copied(std::env::current_exe().expect("this program"), &exe);
        Command::new("chmod").arg("-R").arg("go+rx").arg(dir).status().expect("chmod runs");
        let mut command = Command::new(&exe);
        command.args(["--exact", "user::another_user_gets_no_descriptor", "--nocapture"]);
        command.env(STRANGER, "1").uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::piped()).spawn().expect("spawned")
    };
    let dir = (!in_job).then(|| tempfile::tempdir().expect("a temporary directory"));
    let mut stranger = dir.as_ref().map(|dir| attack(dir.path()));
    for _ in 0..rounds(6) {
        testing::pes(3).env("RUSHMEM_DEVICE", "cpu").supervise(
            |_| {
                let world = World::init().expect("strangers do no harm");
                world.barrier_all().expect("all are here");
            },
            |job| {
                for outcome in job.outcomes() {
                    assert_eq!(outcome.exit, testing::Exit::Done, "{}\n{}", outcome.stdout, outcome.stderr);
                }
            },
        );
    }
    let Some(mut stranger) = stranger.take() else { return };
    assert!(stranger.try_wait().expect("asked").is_none(), "the stranger has ended too soon");
    stranger.kill().expect("killed");
    let output = stranger.wait_with_output().expect("waited for");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tries = said.lines().filter(|line| line.starts_with("TRIED")).count();
    println!("{tries} tries");
    assert!(tries > 0, "the stranger found no socket:\n{said}");
    assert!(!said.contains("GIVEN"), "{said}");
}

/// Connects to every socket of ours that the kernel lists, says hello, and takes what comes.
fn stranger() {
    let end = Instant::now() + Duration::from_secs(600);
    while Instant::now() < end {
        let sockets = std::fs::read_to_string("/proc/net/unix").expect("readable");
        for name in
            sockets.lines().filter_map(|line| line.split('@').nth(1)).filter(|n| n.starts_with("rushmem-"))
        {
            visit(name);
        }
    }
}

fn visit(name: &str) {
    // SAFETY: plain system calls on a descriptor of this function; the structs are plain data of the sizes
    // that are passed.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        if libc::connect(fd, (&raw const address).cast(), length as libc::socklen_t) == 0 {
            let mut hello = [0u8; 25];
            (hello[0], hello[1]) = (1, 1);
            libc::send(fd, hello.as_ptr().cast(), hello.len(), libc::MSG_NOSIGNAL);
            let limit = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const limit).cast(),
                size_of_val(&limit) as libc::socklen_t,
            );
            let (mut bytes, mut control) = ([0u8; 1024], [0u64; 64]);
            let mut part = IoSliceMut::new(&mut bytes);
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = (&raw mut part).cast();
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let given = libc::recvmsg(fd, &mut message, 0) > 0 && message.msg_controllen > 0;
            println!("{} {name}", if given { "GIVEN" } else { "TRIED" });
            std::io::stdout().flush().expect("printed");
        }
        libc::close(fd);
    }
}
