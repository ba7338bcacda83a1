//! Interfaces, sockets and limits of the operating system.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::Once;
use std::time::Duration;

use nix::net::if_::InterfaceFlags;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::auth::digest;

/// The variable that chooses the network interface; see [`interface_from_env`].
pub const IFNAME_VARIABLE: &str = "RUSHMEM_UID_IFNAME";

/// Connections that the kernel holds for a listener before it is asked (the kernel caps it at `somaxconn`).
const BACKLOG: i32 = 4096;

/// The value of `RUSHMEM_UID_IFNAME`: a comma-separated list of interface names, prefixes of names or IP
/// addresses, tried in order; with a leading `^` instead the names that must not be used.
pub fn interface_from_env() -> Option<String> {
    std::env::var(IFNAME_VARIABLE).ok().filter(|v| !v.trim().is_empty())
}

/// An address of this host, with the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) loopback: bool,
}

/// The addresses of the interfaces that are up, in the order to prefer them: real networks before container
/// bridges before loopback; then IPv4, global IPv6, link-local IPv6.
pub(crate) fn interfaces() -> Result<Vec<Interface>> {
    let addrs = nix::ifaddrs::getifaddrs().map_err(|e| {
        BootError::new(BootErrorKind::Io, format!("the network interfaces cannot be listed: {e}"))
    })?;
    let mut found = Vec::new();
    for entry in addrs.filter(|e| e.flags.contains(InterfaceFlags::IFF_UP)) {
        let Some(address) = entry.address else { continue };
        let addr = if let Some(v4) = address.as_sockaddr_in() {
            SocketAddr::new(IpAddr::V4(v4.ip()), 0)
        } else if let Some(v6) = address.as_sockaddr_in6() {
            SocketAddr::V6(SocketAddrV6::new(v6.ip(), 0, 0, v6.scope_id()))
        } else {
            continue;
        };
        let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        found.push(Interface { name: entry.interface_name, addr, loopback });
    }
    found.sort_by_key(preference);
    Ok(found)
}

fn preference(interface: &Interface) -> (u8, u8) {
    const BRIDGES: [&str; 5] = ["docker", "veth", "virbr", "br-", "cni"];
    let network = match interface {
        i if i.loopback => 2,
        i if BRIDGES.iter().any(|b| i.name.starts_with(b)) => 1,
        _ => 0,
    };
    let family = match interface.addr {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(a) if is_link_local(&IpAddr::V6(*a.ip())) => 2,
        SocketAddr::V6(_) => 1,
    };
    (network, family)
}

/// Whether an address means nothing without an interface (fe80::/10).
pub(crate) fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

/// The local address to listen at (port 0), as `ifname` (see [`interface_from_env`]) says, of `family` where
/// that interface has one.
///
/// # Errors
/// `Environment` when `ifname` matches nothing, with what there is.
pub(crate) fn local_address(ifname: Option<&str>, family: Option<SocketAddr>) -> Result<SocketAddr> {
    choose(&interfaces()?, ifname, family)
}

/// The names of the interfaces that have that address: more than one where each leads to another host.
pub(crate) fn interfaces_with(ip: IpAddr) -> Vec<String> {
    let all = interfaces().unwrap_or_default();
    all.into_iter().filter(|i| i.addr.ip() == ip).map(|i| i.name).collect()
}

/// The names of the interfaces that `ifname` (see [`interface_from_env`]) means; none where none that is up
/// does.
pub fn interfaces_named(ifname: &str) -> Vec<String> {
    local_address(Some(ifname), None).map_or_else(|_| Vec::new(), |at| interfaces_with(at.ip()))
}

fn choose(all: &[Interface], ifname: Option<&str>, family: Option<SocketAddr>) -> Result<SocketAddr> {
    let fitting = |of: &[&Interface]| {
        let same = |i: &&&Interface| family.is_none_or(|f| f.is_ipv4() == i.addr.is_ipv4());
        of.iter().find(same).or(of.first()).map(|i| i.addr)
    };
    let entries: Vec<&str> =
        ifname.unwrap_or("").split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
    let excluded = entries.first().is_some_and(|e| e.starts_with('^'));
    if entries.is_empty() || excluded {
        let out = |i: &&Interface| {
            !excluded || !entries.iter().any(|e| i.name.starts_with(e.trim_start_matches('^')))
        };
        let left: Vec<&Interface> = all.iter().filter(out).collect();
        let best = left.first().map(|i| preference(i).0);
        let top: Vec<&Interface> = left.into_iter().filter(|i| Some(preference(i).0) == best).collect();
        return fitting(&top).ok_or_else(|| no_interface(all, ifname));
    }
    for entry in entries {
        if let Ok(ip) = entry.parse::<IpAddr>() {
            if let Some(i) = all.iter().find(|i| i.addr.ip() == ip) {
                return Ok(i.addr);
            }
        }
        let exact: Vec<&Interface> = all.iter().filter(|i| i.name == entry).collect();
        let prefix: Vec<&Interface> = all.iter().filter(|i| i.name.starts_with(entry)).collect();
        if let Some(addr) = fitting(&exact).or_else(|| fitting(&prefix)) {
            return Ok(addr);
        }
    }
    Err(no_interface(all, ifname))
}

fn no_interface(all: &[Interface], ifname: Option<&str>) -> BootError {
    let mut there: Vec<String> = all.iter().map(|i| format!("{} ({})", i.name, i.addr.ip())).collect();
    there.dedup();
    let there = if there.is_empty() { "none".into() } else { there.join(", ") };
    BootError::new(
        BootErrorKind::Environment,
        match ifname {
            Some(name) => format!(
                "{IFNAME_VARIABLE}={name} matches no interface that is up; there are {there}: name one of them"
            ),
            None => format!("no network interface is up (there are {there}); bring up at least loopback"),
        },
    )
}

/// What tells hosts apart, as far as a network is concerned: equal where processes share a kernel and a network
/// namespace, so that what silences one silences all.
pub fn home() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| host_name().into_bytes());
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
    let digest = digest(&[&boot, namespace.as_os_str().as_encoded_bytes()]);
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

/// This host's name, for messages.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "unknown-host".into())
}

/// Raises this process's soft limit on open files to the hard one, once: a rank holds up to 2 log2(n) sockets,
/// the rendezvous n, and many ranks may be threads of one process.
pub(crate) fn raise_file_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
                log::warn!("rushmem uid: the limit on open files stays at {soft} (ulimit -n)");
            }
        }
    });
}

/// A non-blocking listener. An unspecified IPv6 address listens for IPv4 as well.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?; // an ended job's connections in TIME_WAIT must not keep the port
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A connected stream, or the error, within `limit`.
pub(crate) fn connect(addr: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, limit.max(Duration::from_millis(1)))?;
    refuse_self(&stream)?;
    Ok(stream)
}

/// Begins to connect without waiting; the socket polls writable when it is done.
pub(crate) fn start_connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(addr)) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(e) => return Err(e),
    }
    Ok(socket.into())
}

/// How a connection begun by [`start_connect`] and now writable went.
pub(crate) fn finish_connect(stream: &TcpStream) -> io::Result<()> {
    match stream.take_error()? {
        Some(e) => Err(e),
        None => refuse_self(stream),
    }
}

/// Dialling a free port of the ephemeral range on this host can connect a socket to itself.
fn refuse_self(stream: &TcpStream) -> io::Result<()> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<Interface> {
        let i = |name: &str, addr: &str, loopback| Interface {
            name: name.into(),
            addr: addr.parse().expect("an address"),
            loopback,
        };
        let mut all = vec![
            i("lo", "127.0.0.1:0", true),
            i("lo", "[::1]:0", true),
            i("docker0", "172.17.0.1:0", false),
            i("eth0", "[fe80::1%2]:0", false),
            i("eth0", "[fd00::1]:0", false),
            i("eth0", "10.0.0.1:0", false),
            i("ib0", "10.1.0.1:0", false),
        ];
        all.sort_by_key(preference);
        all
    }

    #[test]
    fn interfaces_are_chosen() {
        let v6 = "[::]:0".parse().ok();
        for (ifname, family, want) in [
            (None, None, "10.0.0.1:0"),
            (None, v6, "[fd00::1]:0"),
            (Some(""), None, "10.0.0.1:0"),
            (Some("ib"), None, "10.1.0.1:0"),
            (Some("ib"), v6, "10.1.0.1:0"), // it has no other
            (Some("eth"), v6, "[fd00::1]:0"),
            (Some("wlan, lo"), None, "127.0.0.1:0"),
            (Some("lo"), v6, "[::1]:0"),
            (Some("::1"), None, "[::1]:0"),
            (Some("fe80::1"), None, "[fe80::1%2]:0"),
            (Some("^eth,ib"), None, "172.17.0.1:0"),
            (Some("^eth,ib,docker"), None, "127.0.0.1:0"),
        ] {
            let got = choose(&table(), ifname, family).map(|a| a.to_string());
            assert_eq!(got, Ok(want.to_string()), "{ifname:?} {family:?}");
        }
        let error = choose(&table(), Some("wlan"), None).expect_err("no wlan");
        assert_eq!(error.kind, BootErrorKind::Environment);
        assert!(
            error.message.contains("RUSHMEM_UID_IFNAME=wlan") && error.message.contains("ib0 (10.1.0.1)")
        );
    }

    #[test]
    fn this_host_has_loopback() {
        assert!(local_address(Some("lo"), None).is_ok_and(|a| a.ip().is_loopback()));
        assert!(!host_name().is_empty());
    }
}
