//! Where sockets listen and dial: at an address of the network, or under a name that only processes of one
//! user on one host (and network namespace) can use. Everything above handles both alike.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use rushmem_bootstrap_abi::fork::close_in_children;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::local::{self, LocalName};

/// Connections that the kernel holds for a listener before it is asked (the kernel caps it at `somaxconn`).
const BACKLOG: i32 = 4096;

/// A place that a socket listens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Net(SocketAddr),
    /// An abstract Unix socket whose two ends check each other's user.
    Local(LocalName),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Net(addr) => write!(f, "{addr}"),
            Address::Local(name) => write!(f, "{name}, a socket of this user on this host"),
        }
    }
}

/// Whom a connection comes from, as far as the kernel says: limits on strangers count by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A host of the network; of an IPv6 address the first 64 bits, since one host can have all the rest.
    Host(IpAddr),
    /// A process of this host.
    Process(i32),
}

impl Source {
    fn of(ip: IpAddr) -> Source {
        Source::Host(match ip.to_canonical() {
            IpAddr::V6(v6) => {
                let s = v6.segments();
                Ipv6Addr::new(s[0], s[1], s[2], s[3], 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }
}

impl Address {
    /// The network's address, if it is one.
    pub fn net(&self) -> Option<SocketAddr> {
        match self {
            Address::Net(addr) => Some(*addr),
            Address::Local(_) => None,
        }
    }

    /// A non-blocking listener, and where it really listens (port 0 is replaced by the one that was given).
    /// An unspecified IPv6 address listens for IPv4 as well.
    pub(crate) fn listen(self) -> io::Result<(Socket, Address)> {
        let (socket, at) = match self {
            Address::Net(addr) => {
                let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
                // An ended job's connections in TIME_WAIT must not keep the port.
                socket.set_reuse_address(true)?;
                if addr.is_ipv6() {
                    socket.set_only_v6(!addr.ip().is_unspecified())?;
                }
                (socket, addr.into())
            }
            Address::Local(name) => (Socket::new(Domain::UNIX, Type::STREAM, None)?, name.address()?),
        };
        close_in_children(&socket);
        socket.bind(&at)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let at = socket.local_addr()?.as_socket().map_or(self, Address::Net);
        Ok((socket, at))
    }

    /// Begins to connect without waiting; the socket polls writable when it is done.
    ///
    /// # Errors
    /// `PermissionDenied` where a local name is another user's.
    pub(crate) fn dial(self) -> io::Result<Socket> {
        let (socket, at): (Socket, SockAddr) = match self {
            Address::Net(addr) => (Socket::new(Domain::for_address(addr), Type::STREAM, None)?, addr.into()),
            Address::Local(name) => (Socket::new(Domain::UNIX, Type::STREAM, None)?, name.address()?),
        };
        close_in_children(&socket);
        socket.set_nonblocking(true)?;
        match socket.connect(&at) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        if let Address::Local(_) = self {
            local::peer_of_this_user(&socket)?;
        }
        Ok(socket)
    }
}

/// Whether this process can find local sockets: some sandboxes hide the kernel's list.
pub(crate) fn local_names_are_listed() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let look = || {
            let name = LocalName::random().ok()?;
            let _listener = Address::Local(name).listen().ok()?;
            let tag = *name.0.first_chunk()?;
            Some(local::listening(tag).ok()?.contains(&name))
        };
        look().unwrap_or(false)
    })
}

/// The next connection of a listener, and whom it comes from.
///
/// # Errors
/// `WouldBlock` when there is none, also where this process can have no more files open: the kernel says that
/// before it looks, and a caller that makes room for a connection that is not there loses one that is.
/// `PermissionDenied` for one of another user at a local name, which is gone then.
pub(crate) fn accept(listener: &Socket) -> io::Result<(Socket, Source)> {
    let (socket, from) = listener.accept().map_err(|e| {
        let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::ZERO) {
            Ok(0) => io::ErrorKind::WouldBlock.into(),
            _ => e,
        }
    })?;
    let source = match from.as_socket() {
        Some(addr) => Source::of(addr.ip()),
        None => Source::Process(local::peer_of_this_user(&socket)?),
    };
    Ok((socket, source))
}

/// How a connection that [`Address::dial`] began went; `NotConnected` while it is not there yet.
pub(crate) fn dialled(socket: &Socket) -> io::Result<()> {
    if let Some(e) = socket.take_error()? {
        return Err(e);
    }
    let peer = socket.peer_addr()?;
    // Dialling a free port of the ephemeral range on this host can connect a socket to itself.
    if peer.as_socket().is_some() && peer.as_socket() == socket.local_addr()?.as_socket() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Sends what the socket takes now. A peer that is gone is an error and never a signal: this runs in programs
/// that have not asked for SIGPIPE to be ignored.
pub(crate) fn send(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    socket.send_with_flags(bytes, nix::libc::MSG_NOSIGNAL)
}

/// The other side, for messages.
pub(crate) fn peer_name(socket: &Socket) -> String {
    match socket.peer_addr().ok().and_then(|a| a.as_socket()) {
        Some(addr) => addr.to_string(),
        None => local::peer_of_this_user(socket)
            .map_or_else(|_| "an unknown address".into(), |pid| format!("process {pid} of this user")),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{setrlimit, Resource};

    use super::*;

    #[test]
    fn a_source_is_a_host_and_not_an_address() {
        let of = |ip: &str| Source::of(ip.parse().expect("an address"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8:0:1::5"), of("2001:db8:0:1:ffff::6"));
        assert_ne!(of("2001:db8:0:1::5"), of("2001:db8:0:2::5"));
    }

    /// In a process of its own, which has one descriptor left: it takes the connection that waits, and then
    /// there is none, until the next one comes.
    #[test]
    fn without_descriptors_there_is_a_connection_only_where_one_waits() {
        const PART: &str = "RUSHMEM_TEST_LAST_DESCRIPTOR";
        if std::env::var_os(PART).is_none() {
            let test = "endpoint::tests::without_descriptors_there_is_a_connection_only_where_one_waits";
            let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
            let out =
                command.args(["--exact", test, "--nocapture"]).env(PART, "1").output().expect("it runs");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            return;
        }
        let (listener, at) = Address::Net(([127, 0, 0, 1], 0).into()).listen().expect("a free port");
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let (first, second, spare) = (socket(), socket(), socket());
        let to = at.net().expect("TCP").into();
        let most = std::os::fd::AsRawFd::as_raw_fd(&spare) as u64 + 1;
        setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a lower limit");
        let mut others = Vec::new();
        while let Ok(copy) = first.try_clone() {
            others.push(copy);
        }
        drop(spare);
        first.connect(&to).expect("it listens");
        let short = |result: io::Result<(Socket, Source)>| result.map(drop).expect_err("no descriptor");
        let taken = loop {
            match accept(&listener) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => break other.expect("one descriptor is left"),
            }
        };
        assert_eq!(short(accept(&listener)).kind(), io::ErrorKind::WouldBlock);
        second.connect(&to).expect("it listens");
        let waits = loop {
            match short(accept(&listener)) {
                e if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                e => break e,
            }
        };
        assert_eq!(waits.raw_os_error(), Some(nix::libc::EMFILE));
        drop(taken);
        assert!(accept(&listener).is_ok());
    }
}
