//! Hosts for tests: network namespaces, each pair joined by a cable (a veth pair) of its own. A host has a
//! name, one address, loopback, and its own view of `/sys/class/net` and `/etc/hosts`.
//!
//! Nothing has a name in the file system: descriptors of the test's process hold the namespaces, and the
//! processes in them, so all of it vanishes with them, however the test ends. Root may do this, and everybody
//! else as root of a user namespace of their own, where the system allows those.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::netlink::{End, Interfaces, LOOPBACK};
use crate::programs;

/// Says that this process is the root of its user namespace already.
const INSIDE: &str = "HOSTS_TEST_INSIDE";
/// More than any test here takes.
const LONGEST: Duration = Duration::from_secs(170);

/// One host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ip: Ipv4Addr,
    net: File,
    mnt: File,
    uts: File,
    interfaces: Interfaces,
}

/// Hosts `h1`, `h2`, …, each of which reaches each other.
pub(crate) struct Hosts {
    hosts: Vec<Host>,
}

/// Runs `test` on `n` hosts, or says aloud why it cannot.
#[track_caller]
pub(crate) fn on_hosts(n: usize, test: impl FnOnce(&Hosts)) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    match Hosts::new(n) {
        Ok(hosts) => test(&hosts),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && std::env::var_os(INSIDE).is_none() => {
            again_as_root(&name)
        }
        Err(e) => eprintln!("SKIP {name}: no network namespaces can be made here: {e}"),
    }
}

/// The test once more, as root of a user namespace.
#[track_caller]
fn again_as_root(name: &str) {
    let mut test = Command::new(std::env::current_exe().expect("a test knows where it is"));
    test.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    // SAFETY: plain system calls.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("0 {uid} 1")),
        (c"/proc/self/gid_map", format!("0 {gid} 1")),
    ];
    let enter = move || {
        // SAFETY: plain system calls on texts that live as long as this; nothing that is unsafe after a fork.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWUSER))?;
            for (path, text) in &maps {
                let file = check(libc::open(path.as_ptr(), libc::O_WRONLY))?;
                check(libc::write(file, text.as_ptr().cast(), text.len()) as i32)?;
                libc::close(file);
            }
        }
        Ok(())
    };
    // SAFETY: `enter` makes system calls only.
    unsafe { test.pre_exec(enter) };
    // Trying it out first tells a system that has no user namespaces for us from a test that fails.
    let mut probe = Command::new("true");
    let may = move || check_unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET);
    // SAFETY: `may` makes a system call only.
    unsafe { probe.pre_exec(may) };
    match probe.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => eprint!("{}", programs::run(&mut test, LONGEST).ok()),
        other => eprintln!("SKIP {name}: not root, and no user namespaces for others: {other:?}"),
    }
}

fn check(code: i32) -> io::Result<i32> {
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(code)
}

fn check_unshare(flags: i32) -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

impl Hosts {
    fn new(n: usize) -> io::Result<Hosts> {
        let ip = |i: usize| Ipv4Addr::new(10, 77, 0, i as u8 + 1);
        let table: String = (0..n).map(|i| format!("{} h{}\n", ip(i), i + 1)).collect();
        let mut hosts = Vec::new();
        for i in 0..n {
            hosts.push(Host::new(format!("h{}", i + 1), ip(i), format!("127.0.0.1 localhost\n{table}"))?);
        }
        let hosts = Hosts { hosts };
        for i in 0..n {
            for j in i + 1..n {
                let there = hosts.hosts[j].net.as_raw_fd();
                hosts.hosts[i].interfaces.add_cable(&port(i, j), &port(j, i), there)?;
            }
        }
        for i in 0..n {
            for j in (0..n).filter(|j| *j != i) {
                hosts.hosts[i].interfaces.add_address(port(i, j).index, ip(i))?;
            }
            hosts.join(i)?;
        }
        Ok(hosts)
    }

    /// Plugs host `i` in.
    pub(crate) fn join(&self, i: usize) -> io::Result<()> {
        let me = &self.hosts[i];
        for (j, other) in self.hosts.iter().enumerate().filter(|(j, _)| *j != i) {
            me.interfaces.set_up(port(i, j).index, true)?;
            me.interfaces.add_route(other.ip, port(i, j).index, me.ip)?;
        }
        Ok(())
    }

    /// Cuts host `i` off from all others: nothing that it or they send arrives, and no host gets an error.
    pub(crate) fn cut(&self, i: usize) {
        for j in (0..self.hosts.len()).filter(|j| *j != i) {
            self.hosts[i].interfaces.set_up(port(i, j).index, false).expect("the interface is there");
        }
    }

    /// Takes its address away from host `i`, whose cables stay up: what others send is not for it any more.
    pub(crate) fn take_address(&self, i: usize) {
        for j in (0..self.hosts.len()).filter(|j| *j != i) {
            let me = &self.hosts[i];
            me.interfaces.remove_address(port(i, j).index, me.ip).expect("it has this address");
        }
    }

    /// Host number `i`, from 0.
    pub(crate) fn host(&self, i: usize) -> &Host {
        &self.hosts[i]
    }
}

/// A host takes its processes with it, those too that a launcher has set loose from their parents.
impl Drop for Hosts {
    fn drop(&mut self) {
        let ours: Vec<u64> = self.hosts.iter().filter_map(|h| Some(h.net.metadata().ok()?.ino())).collect();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let lives_here =
                std::fs::metadata(process.path().join("ns/net")).is_ok_and(|m| ours.contains(&m.ino()));
            let pid = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if let Some(pid) = pid.filter(|pid| lives_here && *pid != std::process::id() as i32) {
                // SAFETY: a plain system call, on a process in a namespace that this one has made.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

/// The end at host `i` of its cable to host `j`. `eth0` first: who reads the wrong `/sys` finds that there,
/// too.
fn port(i: usize, j: usize) -> End {
    End { index: 10 + j as u32, name: format!("eth{}", if j < i { j } else { j - 1 }) }
}

impl Host {
    fn new(name: String, ip: Ipv4Addr, table: String) -> io::Result<Host> {
        // A thread becomes part of the new host, and what it opens stays.
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            check_unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWUTS)?;
            // SAFETY: a name and its length.
            check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
            furnish(&table)?;
            let interfaces = Interfaces::here()?;
            interfaces.set_up(LOOPBACK, true)?;
            let open = |kind: &str| File::open(format!("/proc/thread-self/ns/{kind}"));
            Ok(Host { name, ip, net: open("net")?, mnt: open("mnt")?, uts: open("uts")?, interfaces })
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("making a host panicked")))
    }

    /// Lets `command` start on this host.
    pub(crate) fn enter(&self, command: &mut Command) {
        let namespaces: [RawFd; 3] = [&self.net, &self.uts, &self.mnt].map(|file| file.as_raw_fd());
        let folder = std::env::current_dir()
            .ok()
            .and_then(|d| CString::new(d.into_os_string().into_encoded_bytes()).ok());
        let enter = move || {
            for fd in namespaces {
                // SAFETY: a descriptor of a namespace, which the parent keeps open until the child has
                // started.
                check(unsafe { libc::setns(fd, 0) })?;
            }
            if let Some(folder) = &folder {
                // SAFETY: a path; entering a mount namespace has taken us to its root.
                check(unsafe { libc::chdir(folder.as_ptr()) })?;
            }
            Ok(())
        };
        // SAFETY: `enter` makes system calls only.
        unsafe { command.pre_exec(enter) };
    }

    /// The words by which `nsenter` starts a program on this host, as long as this process lives.
    pub(crate) fn nsenter(&self) -> String {
        let fd = |kind, file: &File| format!("--{kind}=/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        format!("nsenter {} {} {}", fd("net", &self.net), fd("uts", &self.uts), fd("mount", &self.mnt))
    }
}

/// What programs of this host read of it: its own interfaces in `/sys`, and who the others are in
/// `/etc/hosts`.
fn furnish(table: &str) -> io::Result<()> {
    let mount = |what: Option<&str>, at: &str, kind: Option<&str>, flags| -> io::Result<()> {
        let text = |t: &str| CString::new(t).expect("no text here has a NUL");
        let (what, at, kind) = (what.map(text), text(at), kind.map(text));
        let pointer = |t: &Option<CString>| t.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
        // SAFETY: texts that live until the call is over; null where mount(2) takes it.
        check(unsafe { libc::mount(pointer(&what), at.as_ptr(), pointer(&kind), flags, std::ptr::null()) })?;
        Ok(())
    };
    mount(None, "/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    if let Err(e) = mount(Some("sysfs"), "/sys", Some("sysfs"), 0) {
        eprintln!("note: this host has the other's /sys, which a container may not mount: {e}");
    }
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(table.as_bytes())?;
    let bound = mount(file.path().to_str(), "/etc/hosts", None, libc::MS_BIND);
    if let Err(e) = bound {
        eprintln!("note: hosts are not known by their names here: {e}");
    }
    Ok(())
}
