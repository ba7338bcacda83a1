//! Sockets that a child of fork must not keep.
//!
//! The end of a connection is how PEs learn of a death, and a socket is open as long as any process has it: a
//! data loader's worker that outlives its PE would keep the PE alive in the eyes of the others. So every
//! socket of a bootstrap and of a node is noted here, and `fork` itself closes the child's copies before it
//! returns there (`pthread_atfork`).
//!
//! The handler runs in a process whose other threads are gone in the middle of whatever they did, so it takes
//! no lock and allocates nothing: it reads a table of atomics and makes system calls (POSIX, `fork`:
//! async-signal-safe functions only). A note is a descriptor's number and the inode of its socket, so none
//! has to be taken back: when the number means something else by then, it is left alone.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Once;

/// Descriptors from this one on are not noted: a child keeps them until it ends or execs.
const NOTED: usize = 1 << 16;

/// By descriptor: the socket's inode; 0 for none. Untouched pages of it cost no memory.
static INODES: [AtomicU64; NOTED] = [const { AtomicU64::new(0) }; NOTED];
/// One past the highest descriptor ever noted.
static END: AtomicUsize = AtomicUsize::new(0);

/// Lets every child of this process close its copy of `socket` as soon as `fork` has made it. The socket
/// itself stays the caller's, to use and to close as before.
pub fn close_in_children(socket: &impl AsRawFd) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function of a library that is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
    });
    let fd = socket.as_raw_fd();
    if let (Some(note), Some(inode)) = (INODES.get(fd as usize), socket_inode(fd)) {
        note.store(inode, Ordering::Relaxed);
        END.fetch_max(fd as usize + 1, Ordering::Relaxed);
    }
}

/// Runs in the child, before `fork` returns there.
extern "C" fn close_all() {
    // SAFETY: the calling thread's own errno, which the program may look at behind fork.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the calling thread's own errno lives as long as the thread.
    let before = unsafe { *errno };
    for (fd, note) in INODES[..END.load(Ordering::Relaxed).min(NOTED)].iter().enumerate() {
        let inode = note.swap(0, Ordering::Relaxed);
        if inode != 0 && socket_inode(fd as RawFd) == Some(inode) {
            // SAFETY: the child's own copy of a socket that only its owner's threads use, none of which is in
            // the child.
            unsafe { libc::close(fd as RawFd) };
        }
    }
    // SAFETY: the calling thread's own errno lives as long as the thread.
    unsafe { *errno = before };
}

/// The inode of `fd` where that is a socket.
fn socket_inode(fd: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the answer; a descriptor that is not open is an error.
    let stat = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::time::Duration;

    #[test]
    fn a_child_keeps_no_noted_socket_and_every_other_descriptor() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let noted = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("a connection");
        let (mut other_end, _) = listener.accept().expect("it was dialled");
        close_in_children(&noted);
        // A number that was noted and means something else now.
        let (_gone, reused) = {
            let stale = TcpListener::bind("127.0.0.1:0").expect("a listener");
            close_in_children(&stale);
            let fd = stale.as_raw_fd();
            let file = std::fs::File::open("/dev/null").expect("it is always there");
            // SAFETY: `stale` owns `fd`, which is another file from here on, and is forgotten.
            let reused = unsafe {
                libc::dup2(file.as_raw_fd(), fd);
                std::mem::forget(stale);
                OwnedFd::from_raw_fd(fd)
            };
            (file, reused)
        };
        let mut hold = [0; 2];
        // SAFETY: a place for two descriptors.
        assert_eq!(unsafe { libc::pipe(hold.as_mut_ptr()) }, 0);
        // SAFETY: the child makes system calls only, and leaves by one.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: system calls on plain values; the read ends when the parent has closed its end of the
            // pipe.
            unsafe {
                let open = |fd| libc::fcntl(fd, libc::F_GETFD) != -1;
                let ok = !open(noted.as_raw_fd()) && open(other_end.as_raw_fd()) && open(reused.as_raw_fd());
                libc::close(hold[1]);
                libc::read(hold[0], (&raw mut hold).cast(), 1);
                libc::_exit(if ok { 0 } else { 1 });
            }
        }
        assert!(child > 0);
        // The child lives, and the connection ends all the same.
        drop(noted);
        other_end.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        assert_eq!(other_end.read(&mut [0]).expect("an end of file, not a time limit"), 0);
        let mut status = 0;
        // SAFETY: our own descriptors and child.
        unsafe {
            libc::close(hold[1]);
            libc::waitpid(child, &mut status, 0);
            libc::close(hold[0]);
        }
        assert_eq!(status, 0, "the child had a noted socket, or not the others");
    }
}
