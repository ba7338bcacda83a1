//! Messages between the PEs of a node: `SOCK_SEQPACKET` on abstract Unix sockets, so that each message
//! arrives whole, descriptors travel along (`SCM_RIGHTS`), a dead process is an end of file, and no name is
//! left behind.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rushmem_bootstrap_abi::fork::close_in_children;

/// Most descriptors in one message (the kernel's `SCM_MAX_FD`).
pub(crate) const MAX_FDS: usize = 253;
/// Most bytes in one message.
pub(crate) const MAX_BYTES: usize = 1024;

/// What arrived.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Descriptors are lost: this process has no room for more of them.
    pub(crate) is_cut: bool,
}

/// A connected or listening socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn address(name: &[u8; 16]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: sockaddr_un is plain data for which all zeroes is a value.
    let mut a: libc::sockaddr_un = unsafe { zeroed() };
    a.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name: a zero byte, then the name; it vanishes with its socket.
    let text = b"rushmem-".iter().copied().chain(name.iter().flat_map(|b| {
        let hex = b"0123456789abcdef";
        [hex[usize::from(b >> 4)], hex[usize::from(b & 15)]]
    }));
    let mut len = 1;
    for byte in text {
        a.sun_path[len] = byte as libc::c_char;
        len += 1;
    }
    (a, (std::mem::offset_of!(libc::sockaddr_un, sun_path) + len) as libc::socklen_t)
}

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// # Safety
    /// `fd` is a socket that nobody else owns.
    unsafe fn own(fd: RawFd) -> Socket {
        // SAFETY: the caller gives a socket that nobody else owns.
        let s = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
        close_in_children(&s);
        s
    }

    fn new() -> io::Result<Socket> {
        // SAFETY: a plain system call; the new descriptor is owned by nobody else.
        unsafe {
            let fd = check(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0))?;
            Ok(Socket::own(fd))
        }
    }

    /// Listens under the abstract name made of `name`.
    pub(crate) fn listen(name: &[u8; 16]) -> io::Result<Socket> {
        let s = Socket::new()?;
        let (a, len) = address(name);
        // SAFETY: `a` is a valid address of `len` bytes for the length of the call.
        unsafe {
            check(libc::bind(s.as_raw_fd(), (&raw const a).cast(), len))?;
            check(libc::listen(s.as_raw_fd(), 4096))?;
        }
        Ok(s)
    }

    /// Connects to the listener under `name`.
    pub(crate) fn connect(name: &[u8; 16]) -> io::Result<Socket> {
        let s = Socket::new()?;
        let (a, len) = address(name);
        // SAFETY: `a` is a valid address of `len` bytes for the length of the call.
        unsafe { check(libc::connect(s.as_raw_fd(), (&raw const a).cast(), len))? };
        Ok(s)
    }

    /// Accepts a connection; only of this user's processes (others are refused silently: `None`).
    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        // SAFETY: a plain system call on an open socket; the new descriptor is owned by nobody else.
        let s = unsafe {
            Socket::own(check(libc::accept4(
                self.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            ))?)
        };
        Ok(s.peer_is_this_user()?.then_some(s))
    }

    /// Waits until there is something to read (or the end of file); false when `limit` passed.
    pub(crate) fn readable(&self, limit: Duration) -> io::Result<bool> {
        let mut p = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, valid for the call.
        match check(unsafe { libc::poll(&mut p, 1, limit.as_millis().min(i32::MAX as u128) as i32) }) {
            Ok(n) => Ok(n > 0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether the process at the other end, when it connected or listened, was this user's.
    pub(crate) fn peer_is_this_user(&self) -> io::Result<bool> {
        // SAFETY: a plain system call on an open socket; `cred` has the size that is passed.
        unsafe {
            let mut cred: libc::ucred = zeroed();
            let mut len = size_of::<libc::ucred>() as libc::socklen_t;
            check(libc::getsockopt(
                self.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut cred).cast(),
                &mut len,
            ))?;
            Ok(rushmem_bootstrap_uid::is_this_user(cred.uid))
        }
    }

    /// Sends one message with descriptors; blocks while the peer's queue is full.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
        assert!(bytes.len() <= MAX_BYTES && fds.len() <= MAX_FDS && !bytes.is_empty());
        let mut control = [0u64; 8 + MAX_FDS / 2];
        let mut iov = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
        // SAFETY: msghdr is plain data; every pointer in it outlives the call; `control` is aligned for
        // cmsghdr and holds CMSG_SPACE(4 * MAX_FDS) bytes.
        unsafe {
            let mut m: libc::msghdr = zeroed();
            m.msg_iov = &mut iov;
            m.msg_iovlen = 1;
            if !fds.is_empty() {
                let data = std::mem::size_of_val(fds) as u32;
                m.msg_control = control.as_mut_ptr().cast();
                m.msg_controllen = libc::CMSG_SPACE(data) as _;
                let c = libc::CMSG_FIRSTHDR(&m);
                (*c).cmsg_level = libc::SOL_SOCKET;
                (*c).cmsg_type = libc::SCM_RIGHTS;
                (*c).cmsg_len = libc::CMSG_LEN(data) as _;
                std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(c), data as usize);
            }
            loop {
                match check(libc::sendmsg(self.as_raw_fd(), &m, libc::MSG_NOSIGNAL) as libc::c_int) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => return other.map(|_| ()),
                }
            }
        }
    }

    /// Receives one message with its descriptors; an empty one is the end of file.
    pub(crate) fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.receive_message().map(|m| (m.bytes, m.fds))
    }

    /// The same, which also says whether all of its descriptors arrived.
    ///
    /// A process that ends with messages unread resets the connection, and the kernel reports that before
    /// what it sent (unix(7), `ECONNRESET`): once, so the next call reads the messages, then the end of file.
    pub(crate) fn receive_message(&self) -> io::Result<Received> {
        let mut bytes = vec![0u8; MAX_BYTES];
        let mut control = [0u64; 8 + MAX_FDS / 2];
        let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut fds = Vec::new();
        let is_cut;
        // SAFETY: the buffers outlive the call and are as long as the header says; descriptors that arrive
        // belong to nobody else yet.
        unsafe {
            let mut m: libc::msghdr = zeroed();
            m.msg_iov = &mut iov;
            m.msg_iovlen = 1;
            m.msg_control = control.as_mut_ptr().cast();
            m.msg_controllen = std::mem::size_of_val(&control) as _;
            let n = loop {
                match check(libc::recvmsg(self.as_raw_fd(), &mut m, libc::MSG_CMSG_CLOEXEC) as libc::c_int) {
                    Err(e)
                        if matches!(
                            e.kind(),
                            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset
                        ) => {}
                    other => break other?,
                }
            };
            let mut c = libc::CMSG_FIRSTHDR(&m);
            while !c.is_null() {
                if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                    let data = libc::CMSG_DATA(c).cast::<RawFd>();
                    let count = ((*c).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                    fds.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
                }
                c = libc::CMSG_NXTHDR(&m, c);
            }
            bytes.truncate(n as usize);
            // There is room for as many as a message can have: what was cut found no free number in this
            // process.
            is_cut = m.msg_flags & libc::MSG_CTRUNC != 0;
        }
        #[cfg(any(test, feature = "fuzzing"))]
        crate::seeds::record(
            "node_messages",
            bytes.first().copied().unwrap_or(0).into(),
            &[&[fds.len() as u8], &bytes[..]].concat(),
        );
        Ok(Received { bytes, fds, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn descriptors_travel_in_order_and_death_is_an_end_of_file() {
        let name: [u8; 16] = crate::topology::card::random().unwrap();
        let listener = Socket::listen(&name).unwrap();
        let a = Socket::connect(&name).unwrap();
        let b = listener.accept().unwrap().expect("this user's own");
        for count in [0usize, 1, 2, MAX_FDS] {
            let files: Vec<_> = (0..count)
                .map(|i| {
                    let mut f = tempfile::tempfile().unwrap();
                    write!(f, "file {i}").unwrap();
                    f
                })
                .collect();
            a.send(b"here", &files.iter().map(|f| f.as_raw_fd()).collect::<Vec<_>>()).unwrap();
            let (bytes, fds) = b.receive().unwrap();
            assert_eq!((bytes.as_slice(), fds.len()), (&b"here"[..], count));
            for (i, fd) in fds.into_iter().enumerate() {
                let mut f = std::fs::File::from(fd);
                let mut text = String::new();
                f.rewind().unwrap();
                f.read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("file {i}"));
            }
        }
        drop(a);
        assert!(b.receive().unwrap().0.is_empty());
    }

    /// The end of a process with messages unread must not hide what it said: a goodbye would become a death.
    #[test]
    fn what_was_sent_is_read_though_the_sender_left_messages_unread() {
        let name: [u8; 16] = crate::topology::card::random().unwrap();
        let listener = Socket::listen(&name).unwrap();
        let a = Socket::connect(&name).unwrap();
        let b = listener.accept().unwrap().expect("this user's own");
        b.send(b"unread", &[]).unwrap();
        a.send(b"I leave", &[]).unwrap();
        a.send(b"goodbye", &[]).unwrap();
        drop(a);
        assert_eq!(b.receive().unwrap().0, b"I leave");
        assert_eq!(b.receive().unwrap().0, b"goodbye");
        assert!(b.receive().unwrap().0.is_empty());
    }
}
