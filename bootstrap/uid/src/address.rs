//! Joining without a unique ID: at an address that all ranks know from the start. Rank 0 opens the rendezvous
//! there, the others try until it is up.
//!
//! Where all ranks are on this host, they meet over a local socket (`local`), which needs no port and lets no
//! other user in. Elsewhere, if only a launcher's variables are known, the address is a host and a list of
//! ports computed from the job's name; rank 0 takes the first that is free, and the others find it
//! (`search`). The list has every port of its range, so holding some of them stops nobody. The handshake
//! tells their own job from others that computed overlapping lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Once;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use socket2::Socket;

use crate::auth::{digest, job_name, Key, Token};
use crate::bootstrap::{check, join_place, UidBootstrap};
use crate::config::{self, UidConfig};
use crate::endpoint::{self, Address};
use crate::local::{self, LocalName, TAG_BYTES};
use crate::meeting_address::{MeetingAddress, Where};
use crate::names::Names;
use crate::net;
use crate::rendezvous::{open, RendezvousHandle};
use crate::stretch::stretch;

/// The ports that a job known by its variables may meet at: registered ports below what Linux hands out to
/// clients (32768 and up).
const FIRST_PORT: u16 = 20000;
const LAST_PORT: u16 = 32767;
/// How long rank 0 looks for its host's address among its own before it takes the first interface's.
const OWN_ADDRESS: Duration = Duration::from_secs(1);

/// A job known by what its launcher said: everything that all its ranks see alike and no other job does.
#[derive(Clone, PartialEq, Eq)]
pub struct MeetingPoint {
    /// The host of rank 0: a name or an address.
    pub host: String,
    /// The variable that says so.
    pub host_from: &'static str,
    /// What names the job; nothing in it is secret. Ports are computed from it.
    pub identity: Vec<String>,
    /// What only this job's processes know, and where it is from.
    pub secret: Option<(String, &'static str)>,
    /// A port of the host that is taken already.
    pub taken: Option<u16>,
    /// What says that all ranks are on one host, if it is so.
    pub one_host: Option<String>,
}

impl std::fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, identity, secret) = (&self.host, &self.identity, self.secret.as_ref().map(|s| s.1));
        write!(f, "MeetingPoint({host}, {identity:?}, secret from {secret:?}, {:?})", self.one_host)
    }
}

impl MeetingPoint {
    fn parts(&self) -> Vec<&[u8]> {
        [&self.host].into_iter().chain(&self.identity).map(|p| p.as_bytes()).collect()
    }

    fn key(&self) -> Result<Key> {
        key(&self.parts(), self.secret.as_ref().map(|s| s.0.as_bytes()))
    }

    /// How the names of its local sockets begin, in hexadecimal digits: the other half of each is random.
    pub fn tag(&self) -> String {
        job_name(&self.parts())[..TAG_BYTES].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The ports to meet at, in order: the same on every rank.
    pub fn ports(&self) -> Vec<u16> {
        let seed = digest(&[&[&b"rushmem-uid ports of a launched job"[..]], &self.parts()[..]].concat());
        let number = |at: usize| u32::from_le_bytes([seed[at], seed[at + 1], seed[at + 2], seed[at + 3]]);
        let span = u32::from(LAST_PORT - FIRST_PORT) + 1;
        // Steps of a length that has no factor in common with the range go through all of it.
        let (start, mut step) = (number(0) % span, number(4) % span);
        while gcd(step, span) != 1 {
            step = (step + 1) % span;
        }
        let port = |i: u32| {
            let at = (u64::from(start) + u64::from(i) * u64::from(step)) % u64::from(span);
            FIRST_PORT + at as u16
        };
        (0..span).map(port).filter(|p| Some(*p) != self.taken).collect()
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// The key of the job that `parts` name. Without a secret anyone who knows these can join.
fn key(parts: &[&[u8]], secret: Option<&[u8]>) -> Result<Key> {
    let token = match secret.filter(|s| !s.is_empty()) {
        Some(secret) => stretch(secret, &digest(parts))?,
        None => Token(digest(&[&[&b"rushmem-uid token without a secret"[..]], parts].concat())),
    };
    Ok(Key { job: job_name(parts), token })
}

/// Joins at `address` (`host:port`, `[v6]:port`). Rank 0 listens there (on all interfaces of its host), and
/// the others try until it does; where the host is loopback, and no interface is asked for, over a socket of
/// this user instead. `secret` is what keeps others out; it may be of any length, and must be the same on all
/// ranks.
///
/// # Errors
/// `InvalidArgument` for an address that is none; `Io` when rank 0 cannot listen there within its limit;
/// `Environment` when its name does not resolve; else as [`crate::join_uid`].
pub fn join_address(address: &str, secret: &[u8], cfg: UidConfig) -> Result<UidBootstrap> {
    let (host, port) = split_address(address)?;
    check(&cfg)?;
    let key = key(&[b"an address", address.as_bytes()], Some(secret))?;
    let place = MeetingAddress::named(&host, "the address to meet at", vec![port]);
    let one_host = place.loopback.then(|| format!("{host} is loopback"));
    join_named(place, one_host, &key, !secret.is_empty(), cfg)
}

/// Joins where a launcher's variables lead.
///
/// # Errors
/// As [`join_address`].
pub fn join_meeting(point: &MeetingPoint, cfg: UidConfig) -> Result<UidBootstrap> {
    check(&cfg)?;
    let place = MeetingAddress::named(&point.host, point.host_from, point.ports());
    join_named(place, point.one_host.clone(), &point.key()?, point.secret.is_some(), cfg)
}

/// Over a local socket where `one_host` says that it is enough, and nobody asks for an interface; else at
/// `place`.
fn join_named(
    place: MeetingAddress,
    one_host: Option<String>,
    key: &Key,
    secret: bool,
    cfg: UidConfig,
) -> Result<UidBootstrap> {
    match one_host.filter(|_| cfg.ifname.is_none() && endpoint::local_names_are_listed()) {
        Some(why) => {
            let tag = *key.job.first_chunk().expect("a job's name is longer than a tag");
            join_local(MeetingAddress { at: Where::Local { tag, why }, loopback: true }, tag, key, cfg)
        }
        None => {
            if !secret && cfg.rank == 0 && cfg.n_ranks > 1 {
                warn_of_no_secret(&place);
            }
            join_ports(place, key, cfg)
        }
    }
}

/// Once a process, and by rank 0 alone.
fn warn_of_no_secret(place: &MeetingAddress) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::warn!(
            "rushmem uid: the ranks meet over the network at {place} and no secret is set, so anyone who reaches \
             this host and knows the launcher's variables can join as one of them: set {0} to the same secret \
             on all ranks (for example by export {0}=$(openssl rand -hex 32) before srun, or on every node \
             before torchrun), or start with rushmem-run",
            crate::config::SECRET_VARIABLE
        );
    });
}

fn join_local(
    place: MeetingAddress,
    tag: [u8; TAG_BYTES],
    key: &Key,
    cfg: UidConfig,
) -> Result<UidBootstrap> {
    if cfg.rank != 0 {
        return join_place(&place, key, cfg);
    }
    let start = Instant::now();
    wait_for_turn(tag, &place, &cfg)?;
    let name = LocalName::tagged(tag)?;
    let (listener, at) =
        Address::Local(name).listen().map_err(|e| cannot_host(&place, &cfg, &e.to_string()))?;
    host(listener, at, MeetingAddress::at(at), key, start, cfg)
}

/// Two processes of this user that host one and the same job would share its ranks out between them: an
/// earlier one may be about to leave.
fn wait_for_turn(tag: [u8; TAG_BYTES], place: &MeetingAddress, cfg: &UidConfig) -> Result<()> {
    let deadline = config::deadline(cfg.init_timeout);
    loop {
        let names = local::listening(tag).map_err(|e| cannot_host(place, cfg, &e.to_string()))?;
        let other = names.into_iter().find_map(|name| {
            let socket = Address::Local(name).dial().ok()?;
            local::peer_of_this_user(&socket).ok()
        });
        let Some(pid) = other else { return Ok(()) };
        if Instant::now() >= deadline {
            let why = format!(
                "process {pid} of this user hosts a job of the same name; is it left from an earlier run?"
            );
            return Err(cannot_host(place, cfg, &why));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cannot_host(place: &MeetingAddress, cfg: &UidConfig, last: &str) -> BootError {
    let text = format!(
        "rank 0 cannot open the rendezvous at {place} within {:.1} s (last: {last}): check that it runs on that \
         host and that nothing else listens there",
        cfg.init_timeout.as_secs_f64()
    );
    BootError::new(BootErrorKind::Io, text)
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

fn join_ports(place: MeetingAddress, key: &Key, cfg: UidConfig) -> Result<UidBootstrap> {
    if cfg.rank != 0 {
        return join_place(&place, key, cfg);
    }
    let start = Instant::now();
    let (listener, at) = host_at(&place, &cfg, config::deadline(cfg.init_timeout))?;
    let own = MeetingAddress { at: Where::At(own_address(&place, at)), loopback: place.loopback };
    host(listener, at, own, key, start, cfg)
}

/// Opens the rendezvous in this process, which is rank 0, and joins it at `own`.
fn host(
    listener: Socket,
    at: Address,
    own: MeetingAddress,
    key: &Key,
    start: Instant,
    cfg: UidConfig,
) -> Result<UidBootstrap> {
    let rendezvous: RendezvousHandle = open(listener, at, key.clone(), false)?;
    let left = cfg.init_timeout.saturating_sub(start.elapsed());
    let result = join_place(&own, key, UidConfig { init_timeout: left, ..cfg });
    if result.is_ok() {
        rendezvous.detach(); // it ends as soon as the last words to the others are out
    }
    result
}

/// How rank 0 reaches what it listens at: over the address of this host that the others know it by, since
/// that is where it then listens for its neighbours; over loopback if that is not to be found.
fn own_address(place: &MeetingAddress, at: Address) -> Address {
    let Address::Net(at) = at else { return at };
    if !at.ip().is_unspecified() {
        return Address::Net(at);
    }
    let loopback: IpAddr = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let Where::Named { host, from, .. } = &place.at else { return Address::Net(at) };
    let mine = net::interfaces().unwrap_or_default();
    let mut names = Names::new(host, from);
    let known = names.wait(OWN_ADDRESS).unwrap_or_default();
    let own = known.iter().find(|ip| {
        !ip.is_loopback() && (ip.is_ipv4() || at.is_ipv6()) && mine.iter().any(|i| i.addr.ip() == **ip)
    });
    Address::Net(SocketAddr::new(*own.unwrap_or(&loopback), at.port()))
}

/// Listens at the first free port, trying again until `deadline`: an earlier job may be about to leave.
fn host_at(place: &MeetingAddress, cfg: &UidConfig, deadline: Instant) -> Result<(Socket, Address)> {
    let mut pause = Duration::from_millis(5);
    loop {
        let mut last = String::from("no address to listen at");
        for addr in listening_addresses(place)? {
            match Address::Net(addr).listen() {
                Ok(listening) => return Ok(listening),
                Err(e) => last = format!("{addr}: {e}"),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(cannot_host(place, cfg, &last));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// All interfaces for every port, both families where there is IPv6; loopback addresses where loopback is
/// meant.
fn listening_addresses(place: &MeetingAddress) -> Result<Vec<SocketAddr>> {
    let Where::Named { host, from, ports } = &place.at else { return Ok(Vec::new()) };
    let ips = if place.loopback {
        Names::new(host, from).addresses()?.to_vec() // which needs no resolver
    } else {
        // Without IPv6 the first of each pair fails at once. With it the second fails whenever the first
        // does.
        vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
    };
    Ok(ports.iter().flat_map(|p| ips.iter().map(|ip| SocketAddr::new(*ip, *p))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(taken: Option<u16>) -> MeetingPoint {
        let identity = vec!["a".into(), "b".into()];
        let (host, host_from) = ("127.0.0.1".into(), "A_VARIABLE");
        MeetingPoint { host, host_from, identity, secret: None, taken, one_host: None }
    }

    #[test]
    fn ports_are_deterministic_and_all_of_the_range() {
        let ports = point(None).ports();
        assert_eq!(ports, point(None).ports());
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(FIRST_PORT..=LAST_PORT));
        assert!(!point(Some(ports[3])).ports().contains(&ports[3]));
        let other = MeetingPoint { identity: vec!["ab".into()], ..point(None) };
        assert_ne!(other.ports(), ports);
        assert_ne!(other.key(), point(None).key());
    }

    /// A secret changes the token, and nothing that others see: what follows from it could be used to guess
    /// it.
    #[test]
    fn a_secret_shows_nowhere() {
        let plain = point(None);
        let secret = MeetingPoint { secret: Some(("s3cret".into(), "X")), ..plain.clone() };
        let (open, closed) = (plain.key().expect("a key"), secret.key().expect("a key"));
        assert_eq!((open.job, plain.ports()), (closed.job, secret.ports()));
        assert_ne!(open.token, closed.token);
        assert!(!format!("{secret:?}").contains("s3cret"));
    }

    /// Two jobs whose lists of ports are the same come up at the same time, though a stranger that never
    /// answers holds the first port.
    #[test]
    fn jobs_with_colliding_ports_both_come_up() {
        use rushmem_bootstrap_abi::Bootstrap;
        let name = u64::from_le_bytes(crate::auth::random().expect("random")).to_string();
        let ports = MeetingPoint { identity: vec![name], ..point(None) }.ports();
        let silent = ports.iter().find_map(|p| std::net::TcpListener::bind(("127.0.0.1", *p)).ok());
        let silent = silent.expect("a free port");
        let taken = silent.local_addr().expect("an address").port();
        let ports: Vec<u16> = ports.into_iter().skip_while(|p| *p != taken).collect();
        let ranks: Vec<_> = (0..8u32)
            .map(|i| {
                let (job, rank, ports) = (i % 2, 3 - i / 2, ports.clone());
                std::thread::spawn(move || {
                    let key = key(&[&[job as u8; 32]], None)?;
                    let cfg = UidConfig { init_timeout: Duration::from_secs(30), ..UidConfig::new(rank, 4) };
                    let b = join_ports(MeetingAddress::named("127.0.0.1", "a test", ports), &key, cfg)?;
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
