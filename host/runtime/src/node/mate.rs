//! Whether the process at the other end of a node's socket lives, by its pidfd.
//!
//! A socket ends when the last process that has it closes it. A child of a PE has its sockets unless it came
//! by `fork` (which closes them: `rushmem_bootstrap_abi::fork`) or has called exec; what came by plain
//! `clone` keeps them, so that its dead parent seems to live. A pidfd shows the end of the process itself.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::message::Socket;
use crate::topology::card::Card;

/// `SO_PEERPIDFD`, which `libc` does not have yet: Linux 6.5.
const PEER_PIDFD: libc::c_int = 77;

/// A process that was at the other end of a socket, to be looked for without one.
#[derive(Debug, Clone)]
pub(crate) struct Mate {
    pub(crate) pe: u32,
    /// `PE 2 (host gpu01, pid 4711)`.
    pub(crate) who: String,
    /// Its pid here, and when it began: the kernel uses pids again.
    pid: libc::pid_t,
    born: String,
}

impl Mate {
    /// The process of `card` at `socket`'s other end, if it is another one than this and can be seen from
    /// here.
    pub(super) fn of(socket: &Socket, card: &Card) -> Option<Mate> {
        let pid = pid_of(socket)?;
        let (_, born) = state_and_birth(pid)?;
        Some(Mate { pe: card.pe, who: card.who(), pid, born })
    }

    /// Whether it has ended.
    pub(crate) fn is_gone(&self) -> bool {
        state_and_birth(self.pid)
            .is_none_or(|(state, born)| born != self.born || state == "Z" || state == "X")
    }
}

/// Of a process: its state and when it began, in the kernel's ticks (proc(5)).
fn state_and_birth(pid: libc::pid_t) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name is in brackets, and may hold anything.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.to_owned()))
}

/// The process at the other end, as this pid namespace calls it; none where it does not see it, or it is this
/// one.
fn pid_of(socket: &Socket) -> Option<libc::pid_t> {
    // SAFETY: a plain old struct.
    let mut peer: libc::ucred = unsafe { zeroed() };
    // SAFETY: SO_PEERCRED answers with this struct.
    unsafe { option(socket, libc::SO_PEERCRED, &mut peer) }?;
    // A pid that this namespace does not know shows as 0.
    (peer.pid > 0 && peer.pid as u32 != std::process::id()).then_some(peer.pid)
}

/// A descriptor that becomes readable when the process that made or listened for `socket`'s other end has
/// ended. None where that is this process, or cannot be known: a kernel before 5.3, a process of a pid
/// namespace that this one does not see, or no descriptor left. The end of the socket is all there is then.
pub(crate) fn pidfd_of(socket: &Socket) -> Option<OwnedFd> {
    let pid = pid_of(socket)?;
    let mut fd: RawFd = -1;
    // SAFETY: the answer is a descriptor; a process that has ended meanwhile is an error or a descriptor that
    // says so.
    let asked = unsafe { option(socket, PEER_PIDFD, &mut fd) };
    if asked.is_none() {
        // Older kernels: by its number, which cannot be another process' as long as this one's socket is open
        // at both ends.
        // SAFETY: plain values; the answer is a new descriptor or an error.
        fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
    }
    // SAFETY: a new descriptor (the kernel sets close-on-exec on it) that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `T` is what the socket's option `name` gives.
unsafe fn option<T>(socket: &Socket, name: libc::c_int, to: &mut T) -> Option<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: a place of that length, of the type that the caller vouches for.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, std::ptr::from_mut(to).cast(), &mut len)
    };
    (rc == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_end_of_a_process_is_seen_though_a_child_of_it_has_its_socket() {
        let name = crate::topology::card::random().expect("random bytes");
        let listener = Socket::listen(&name).expect("a listener");
        // SAFETY: the child and its child make system calls on plain values only, and leave by one. Plain
        // system calls instead of fork: no handler closes the sockets.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
            if child == 0 {
                let Ok(_held) = Socket::connect(&name) else { libc::_exit(1) };
                if libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                    libc::pause();
                }
                libc::pause();
                libc::_exit(0);
            }
            child
        };
        let socket = listener.accept().expect("it dials").expect("this user's own");
        // SAFETY: plain values; the answer is a new descriptor, which is closed, or an error.
        let has_pidfds = unsafe {
            let own = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd;
            own >= 0 && libc::close(own) == 0
        };
        if !has_pidfds {
            println!("SKIP the_end_of_a_process_is_seen: the kernel has no pidfds (before 5.3)");
            // SAFETY: our own child and its child.
            unsafe {
                libc::kill(grandchild_of(child), libc::SIGKILL);
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            return;
        }
        let pidfd = pidfd_of(&socket).expect("the kernel has pidfds");
        let readable = |fd: RawFd, limit: Duration| {
            let mut p = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd.
            unsafe { libc::poll(&mut p, 1, limit.as_millis() as i32) == 1 }
        };
        assert!(!readable(pidfd.as_raw_fd(), Duration::from_millis(30)), "it lives");
        let grandchild = grandchild_of(child);
        // SAFETY: our own child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let seen = readable(pidfd.as_raw_fd(), Duration::from_secs(20));
        let silent = !readable(socket.as_raw_fd(), Duration::ZERO);
        // SAFETY: our own child and its child.
        unsafe {
            libc::kill(grandchild, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(seen, "its pidfd says nothing");
        assert!(silent, "the socket ended, so this test shows nothing");
    }

    /// The child of `pid`, once there is one.
    fn grandchild_of(pid: libc::pid_t) -> libc::pid_t {
        let begin = std::time::Instant::now();
        loop {
            for entry in std::fs::read_dir("/proc").expect("/proc is there").flatten() {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let mut after = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
                if after.nth(1).and_then(|p| p.parse().ok()) == Some(pid) {
                    return entry.file_name().to_string_lossy().parse().expect("a pid");
                }
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "it never made a child");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_thread_of_this_process_needs_none() {
        let name = crate::topology::card::random().expect("random bytes");
        let listener = Socket::listen(&name).expect("a listener");
        let dialled = Socket::connect(&name).expect("it listens");
        let accepted = listener.accept().expect("it was dialled").expect("this user's own");
        assert!(pidfd_of(&dialled).is_none() && pidfd_of(&accepted).is_none());
    }
}
