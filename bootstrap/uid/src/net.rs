//! Interfaces, names and limits of this host.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Once, OnceLock};

use nix::net::if_::InterfaceFlags;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::digest;

/// The variable that chooses the network interface; see [`interface_from_env`].
pub const IFNAME_VARIABLE: &str = "RUSHMEM_UID_IFNAME";

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

/// What tells hosts apart, as far as a network is concerned: equal where processes share a kernel and a
/// network namespace, so that what silences one silences all.
///
/// # Errors
/// Those of reading a file, such as a process has that is short of file descriptors: what it answered then
/// would be another host's. Where there is no such file, the host's name serves.
pub fn home() -> io::Result<u64> {
    static BOOT: OnceLock<Vec<u8>> = OnceLock::new();
    let boot = match BOOT.get() {
        Some(boot) => boot,
        None => {
            let boot = match std::fs::read("/proc/sys/kernel/random/boot_id") {
                Ok(boot) => boot,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                    host_name().into_bytes()
                }
                Err(e) => return Err(e),
            };
            BOOT.get_or_init(|| boot)
        }
    };
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
    let digest = digest(&[boot, namespace.as_os_str().as_encoded_bytes()]);
    Ok(u64::from_le_bytes(*digest.first_chunk().expect("a digest has 32 bytes")))
}

/// This host's name, for messages.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "unknown-host".into())
}

/// Raises this process's soft limit on open files to the hard one, once: a rank holds up to 2 log2(n)
/// sockets, the rendezvous n, and many ranks may be threads of one process.
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

/// Whether an error says that this process can have no more files open. Trying again does not help against
/// that.
pub(crate) fn is_short_of_files(e: &io::Error) -> bool {
    e.raw_os_error() == Some(nix::libc::EMFILE)
}

/// The error of rank `rank` that is short of them.
pub(crate) fn short_of_files(rank: u32) -> BootError {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or_else(|_| "not known".into(), |l| l.0.to_string());
    let text = format!(
        "rank {rank} ({}, pid {}) has no file descriptor left for its connections: raise the limit of open files where this \
         rank is started (ulimit -n; it is {limit} now)",
        host_name(),
        std::process::id()
    );
    BootError::new(BootErrorKind::Io, text).with_rank(rank)
}

/// The error of a thread that cannot be started, with what it was for.
pub(crate) fn no_thread(what: impl std::fmt::Display, e: &io::Error) -> BootError {
    let advice = match e.raw_os_error() {
        Some(nix::libc::EAGAIN) => {
            ": this user or this container may start no more threads: raise the limit (ulimit -u, pids.max)"
        }
        _ => "",
    };
    BootError::new(BootErrorKind::Io, format!("{what}: {e}{advice}"))
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
