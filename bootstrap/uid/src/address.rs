//! Joining without a unique ID: at an address that all ranks know from the start. Rank 0 opens the rendezvous
//! there, the others try until it is up.
//!
//! Where only a launcher's variables are known, the address is a host and a list of ports computed from what
//! names the job; rank 0 takes the first that is free, the others go through the list, and the handshake tells
//! their own job from others that computed overlapping lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{digest, Token};
use crate::bootstrap::{check, join_place, UidBootstrap};
use crate::config::{self, UidConfig};
use crate::join::Place;
use crate::net;
use crate::rendezvous::{open, RendezvousHandle};

/// How many ports a job that is known by its variables may meet at.
const CANDIDATES: usize = 32;
/// Their range: registered ports below what Linux hands out to clients (32768 and up).
const FIRST_PORT: u16 = 20000;
const LAST_PORT: u16 = 32767;

/// A job known by what its launcher said: everything that all its ranks see alike and no other job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeetingPoint {
    /// The host of rank 0: a name or an address.
    pub host: String,
    /// What names the job: ports and token are computed from it. As good a secret as its parts are.
    pub identity: Vec<String>,
    /// A port of the host that is taken already.
    pub taken: Option<u16>,
}

impl MeetingPoint {
    fn digest(&self, what: &str) -> [u8; 32] {
        let mut parts = vec![what.as_bytes(), self.host.as_bytes()];
        parts.extend(self.identity.iter().map(|p| p.as_bytes()));
        digest(&parts)
    }

    fn token(&self) -> Token {
        Token(self.digest("rushmem-uid token of a launched job"))
    }

    /// The ports to meet at, in order: the same on every rank.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports = Vec::with_capacity(CANDIDATES);
        let seed = self.digest("rushmem-uid ports of a launched job");
        for i in 0u32.. {
            let bytes = digest(&[&seed, &i.to_le_bytes()]);
            let span = u32::from(LAST_PORT - FIRST_PORT) + 1;
            let port =
                FIRST_PORT + (u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) % span) as u16;
            if Some(port) != self.taken && !ports.contains(&port) {
                ports.push(port);
            }
            if ports.len() == CANDIDATES {
                break;
            }
        }
        ports
    }
}

/// Joins at `address` (`host:port`, `[v6]:port`). Rank 0 listens there (on all interfaces of its host, unless the
/// host is loopback), and the others try until it does. `secret` is what keeps others out; it may be of any
/// length, and must be the same on all ranks.
///
/// # Errors
/// `InvalidArgument` for an address that is none; `Io` when rank 0 cannot listen there within its limit; else as
/// [`crate::join_uid`].
pub fn join_address(address: &str, secret: &[u8], cfg: UidConfig) -> Result<UidBootstrap> {
    let (host, port) = split_address(address)?;
    let token = Token(digest(&[b"rushmem-uid token of an address", address.as_bytes(), secret]));
    join_ports(host, vec![port], &token, cfg)
}

/// Joins where a launcher's variables lead.
///
/// # Errors
/// As [`join_address`].
pub fn join_meeting(point: &MeetingPoint, cfg: UidConfig) -> Result<UidBootstrap> {
    join_ports(point.host.clone(), point.ports(), &point.token(), cfg)
}

fn split_address(address: &str) -> Result<(String, u16)> {
    let bad = |why: &str| {
        let text = format!("{address:?} is no address to meet at: {why}; say host:port or [IPv6]:port");
        BootError::new(BootErrorKind::InvalidArgument, text)
    };
    let (host, port) = address.trim().rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
    let port: u16 = port.parse().map_err(|_| bad("its port is not a number up to 65535"))?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return Err(bad("an IPv6 address goes in brackets"));
    }
    let host = bare.unwrap_or(host);
    if port == 0 || host.is_empty() {
        return Err(bad("host and port must be given, and the port must not be 0"));
    }
    Ok((host.to_owned(), port))
}

fn join_ports(host: String, ports: Vec<u16>, token: &Token, cfg: UidConfig) -> Result<UidBootstrap> {
    check(&cfg)?;
    if cfg.rank != 0 {
        return join_place(&Place::Named { host, ports, own: None }, token, cfg);
    }
    let start = Instant::now();
    let place = Place::Named { host: host.clone(), ports, own: None };
    let (listener, at) = host_at(&place, &cfg, config::deadline(cfg.init_timeout))?;
    let rendezvous: RendezvousHandle = open(listener, token.clone(), false)?;
    let port = at.port();
    let own = match at.ip() {
        ip if !ip.is_unspecified() => SocketAddr::new(ip, port),
        ip if ip.is_ipv4() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
        _ => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
    };
    let left = cfg.init_timeout.saturating_sub(start.elapsed());
    let cfg = UidConfig { init_timeout: left, ..cfg };
    let result = join_place(&Place::Named { host, ports: vec![port], own: Some(own) }, token, cfg);
    if result.is_ok() {
        rendezvous.detach(); // it ends as soon as the last words to the others are out
    }
    result
}

/// Listens at the first free port, trying again until `deadline`: an earlier job may be about to leave.
fn host_at(place: &Place, cfg: &UidConfig, deadline: Instant) -> Result<(TcpListener, SocketAddr)> {
    let mut pause = Duration::from_millis(5);
    loop {
        let mut last = String::from("no address to listen at");
        for addr in listening_addresses(place, deadline).unwrap_or_else(|e| {
            last = format!("the host's name does not resolve: {e}");
            Vec::new()
        }) {
            match net::listen(addr).and_then(|l| Ok((l.local_addr()?, l))) {
                Ok((at, listener)) => return Ok((listener, at)),
                Err(e) => last = format!("{addr}: {e}"),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(BootError::new(
                BootErrorKind::Io,
                format!(
                    "rank 0 cannot open the rendezvous at {place} within {:.1} s (last: {last}): check that it runs on that host and that nothing else listens there",
                    cfg.init_timeout.as_secs_f64()
                ),
            ));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// All interfaces for every port, both families where there is IPv6; loopback addresses where loopback is meant.
fn listening_addresses(place: &Place, deadline: Instant) -> std::io::Result<Vec<SocketAddr>> {
    let Place::Named { ports, .. } = place else { return Ok(Vec::new()) };
    if place.means_loopback() {
        return place.addresses(deadline.saturating_duration_since(Instant::now()));
    }
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    // Without IPv6 the first of each pair fails at once. With it the second fails whenever the first does.
    Ok(ports.iter().flat_map(|p| any.map(|ip| SocketAddr::new(ip, *p))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(taken: Option<u16>) -> MeetingPoint {
        MeetingPoint { host: "h".into(), identity: vec!["a".into(), "b".into()], taken }
    }

    #[test]
    fn ports_are_deterministic_distinct_and_in_range() {
        let ports = point(None).ports();
        assert_eq!(ports, point(None).ports());
        assert_eq!(ports.len(), CANDIDATES);
        assert!(ports.iter().all(|p| (FIRST_PORT..=LAST_PORT).contains(p)));
        assert_eq!(ports.iter().collect::<std::collections::HashSet<_>>().len(), CANDIDATES);
        assert!(!point(Some(ports[3])).ports().contains(&ports[3]));
        let other = MeetingPoint { identity: vec!["ab".into()], ..point(None) };
        assert_ne!(other.ports(), ports);
        assert_ne!(other.token(), point(None).token());
    }

    /// Two jobs whose lists of ports are the same come up at the same time, though a stranger that never
    /// answers holds the first port.
    #[test]
    fn jobs_with_colliding_ports_both_come_up() {
        use rushmem_bootstrap_abi::Bootstrap;
        let ports: Vec<u16> = point(Some(u16::from_le_bytes(crate::auth::random().expect("random")))).ports();
        let silent =
            ports.iter().find_map(|p| TcpListener::bind(("127.0.0.1", *p)).ok()).expect("a free port");
        let taken = silent.local_addr().expect("an address").port();
        let ports: Vec<u16> = ports.into_iter().skip_while(|p| *p != taken).take(8).collect();
        let ranks: Vec<_> = (0..8u32)
            .map(|i| {
                let (job, rank, ports) = (i % 2, 3 - i / 2, ports.clone());
                std::thread::spawn(move || {
                    let token = Token([job as u8; 32]);
                    let cfg = UidConfig { init_timeout: Duration::from_secs(30), ..UidConfig::new(rank, 4) };
                    let b = join_ports("127.0.0.1".into(), ports, &token, cfg)?;
                    let mut out = [9; 4];
                    b.allgather(&[job as u8], &mut out)?;
                    assert_eq!(out, [job as u8; 4]);
                    b.finalize()
                })
            })
            .collect();
        for rank in ranks {
            rank.join().expect("no panic").expect("the job comes up");
        }
    }

    #[test]
    fn addresses_are_split_or_refused() {
        for (text, host, port) in
            [("h:1", "h", 1), ("[::1]:65535", "::1", 65535), (" 10.0.0.1:80 ", "10.0.0.1", 80)]
        {
            assert_eq!(split_address(text), Ok((host.to_owned(), port)));
        }
        for text in ["", "h", "h:", "h:0", "h:65536", ":5", "::1:80", "h:x", "[]:7"] {
            assert_eq!(split_address(text).expect_err(text).kind, BootErrorKind::InvalidArgument);
        }
    }
}
