//! A rank's way into a job: find the rendezvous (trying again until it is up), prove, wait for the table of
//! neighbours, connect with them, wait until everybody is connected.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{random, Purpose, Token};
use crate::config::{self, UidConfig, Watch};
use crate::conn::{Broken, Conn};
use crate::connect::{self, Connected};
use crate::handshake::Initiator;
use crate::messages::{who, Join, Neighbour, ToRank, ToRoot};
use crate::net;

/// How long the answer to a name is used before it is asked for again.
const RESOLVED: Duration = Duration::from_secs(3);
/// How long the rendezvous' own verdict (who is missing) is awaited past this rank's limit.
const VERDICT: Duration = Duration::from_secs(2);
/// How often a rank that waits looks at its [`Watch`].
const LOOK: Duration = Duration::from_millis(200);

/// Where a job meets.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// At the address in a unique ID.
    At(SocketAddr),
    /// At one of these ports of a host given by name or address: another job may hold some of them. The rank
    /// that hosts it may also reach it at `own`, should the network not lead the host's address back to it.
    Named { host: String, ports: Vec<u16>, own: Option<SocketAddr> },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::At(addr) => write!(f, "{addr}"),
            Place::Named { host, ports, .. } => match ports[..] {
                [port] => write!(f, "{host}:{port}"),
                _ => write!(f, "{host} on one of the ports {ports:?}"),
            },
        }
    }
}

impl Place {
    /// Whether the caller asked for loopback by name, so that all ranks are on this host.
    pub(crate) fn means_loopback(&self) -> bool {
        match self {
            Place::At(addr) => addr.ip().is_loopback(),
            Place::Named { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// The addresses to try. A name may not resolve yet (its host comes up late), so failing is no verdict.
    pub(crate) fn addresses(&self, limit: Duration) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Place::At(addr) => Ok(vec![*addr]),
            Place::Named { host, ports, own } => {
                let mut ips: Vec<IpAddr> = resolve(host, limit)?.iter().map(SocketAddr::ip).collect();
                ips.dedup();
                let named = ports.iter().flat_map(|p| ips.iter().map(move |ip| SocketAddr::new(*ip, *p)));
                Ok(named.chain(*own).collect())
            }
        }
    }
}

/// The system's resolver knows no time limit; so a thread asks it, which ends by itself if we stop waiting.
fn resolve(host: &str, limit: Duration) -> std::io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, 0)]);
    }
    let (tx, rx) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("rushmem-resolve".into()).spawn(move || {
        crate::threads::block_signals();
        let _ = tx.send((name.as_str(), 0).to_socket_addrs().map(|a| a.collect()));
    })?;
    rx.recv_timeout(limit).map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
}

/// A rank that is connected with all its neighbours, as all ranks are.
pub(crate) struct Joined {
    pub(crate) links: Vec<Connected>,
    /// Where this rank has listened for them.
    pub(crate) listening: SocketAddr,
}

/// Joins; see the top of the file.
pub(crate) fn join(place: &Place, token: &Token, cfg: &UidConfig) -> Result<Joined> {
    net::raise_file_limit();
    let deadline = config::deadline(cfg.init_timeout);
    let mut entry = enter(place, token, cfg, deadline)?;
    let result = entry.connect(token, cfg, deadline);
    if let Err(error) = &result {
        // Whoever waits for this rank learns why it goes; no harm if the rendezvous is gone itself.
        let sent = ToRoot::Leave(error.clone()).send(&mut entry.conn);
        let _ = sent.and_then(|()| entry.conn.wait_sent(Instant::now() + Duration::from_millis(200)));
    }
    result
}

/// A rank that the rendezvous has let in.
struct Entry {
    conn: Conn,
    listener: TcpListener,
    listening: SocketAddr,
    root: Root,
    watch: Watch,
}

/// The process that hosts the rendezvous.
struct Root {
    addr: SocketAddr,
    host: String,
    pid: u32,
    rank: Option<u32>,
}

impl std::fmt::Display for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Root { addr, host, pid, .. } = self;
        match self.rank {
            Some(rank) => write!(f, "{}, which hosts the rendezvous at {addr},", who(rank, host, *pid)),
            None => write!(f, "the process that hosts the rendezvous at {addr} (host {host}, pid {pid})"),
        }
    }
}

impl Root {
    fn lost(&self, e: &Broken) -> BootError {
        self.error(BootErrorKind::PeerDead, &format!("died or left before all ranks were connected: {e}"))
    }

    fn error(&self, kind: BootErrorKind, what: &str) -> BootError {
        BootError { kind, rank: self.rank, message: format!("{self} {what}") }
    }
}

fn enter(place: &Place, token: &Token, cfg: &UidConfig, deadline: Instant) -> Result<Entry> {
    let cap = Duration::from_millis(50) + cfg.n_ranks * Duration::from_micros(100);
    let mut pause = Duration::from_millis(1);
    // With several candidates a silent stranger behind one of them must not eat the whole limit.
    let mut patience = Duration::from_millis(if matches!(place, Place::At(_)) { 5000 } else { 300 });
    let mut attempts = 0u64;
    let mut resolved = (Instant::now(), Vec::new());
    let mut last = String::from("no attempt was made");
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if resolved.0.elapsed() > RESOLVED || resolved.1.is_empty() {
            let addresses = place.addresses(left).unwrap_or_else(|e| {
                last = format!("its name does not resolve: {e}");
                Vec::new()
            });
            resolved = (Instant::now(), addresses);
        }
        for addr in resolved.1.iter().copied() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            attempts += 1;
            match attempt(place, addr, token, cfg, left, patience)? {
                Ok(entry) => return Ok(entry),
                Err(e) => last = format!("{addr}: {e}"),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(BootError::new(
                BootErrorKind::Timeout,
                format!(
                    "rank {} of {} found no rendezvous at {place} within {:.1} s ({attempts} attempts; last: {last}): check that the process that hosts it (the maker of the unique ID, or rank 0) runs and that this host reaches it",
                    cfg.rank,
                    cfg.n_ranks,
                    cfg.init_timeout.as_secs_f64()
                ),
            ));
        }
        cfg.watch.look()?;
        // Jitter, so that many ranks that wait for one listener do not knock in step.
        let jitter = f64::from(random::<1>()?[0]) / 255.0 + 0.5;
        std::thread::sleep(pause.mul_f64(jitter).min(left));
        pause = (pause * 2).min(cap);
        patience = (patience * 2).min(Duration::from_secs(5));
    }
}

/// One try at one address. The outer error is final, the inner one is worth another try.
fn attempt(
    place: &Place,
    addr: SocketAddr,
    token: &Token,
    cfg: &UidConfig,
    left: Duration,
    patience: Duration,
) -> Result<std::result::Result<Entry, Broken>> {
    let until = Instant::now() + left.min(patience);
    let (mut conn, initiator) = match greet(addr, token, until) {
        Ok(greeted) => greeted,
        Err(Broken::Io(e)) if net::is_short_of_files(&e) => return Err(net::short_of_files(cfg.rank)),
        Err(e) => return Ok(Err(e)),
    };
    let (listener, listening) = listen(place, &conn, cfg)?;
    let join = Join {
        rank: cfg.rank,
        n_ranks: cfg.n_ranks,
        limit: left,
        addr: listening,
        host: host_field(),
        home: net::home(),
        pid: std::process::id(),
    };
    let welcome = (|| {
        initiator.prove(&mut conn, token, &join.encode())?;
        let frame = conn.wait_frame(Instant::now() + left)?;
        ToRank::decode(&frame.ok_or(Broken::Io(std::io::ErrorKind::TimedOut.into()))?)
    })();
    match welcome {
        Ok(ToRank::Welcome { host, pid, rank }) => {
            let (root, watch) = (Root { addr, host, pid, rank }, cfg.watch.clone());
            Ok(Ok(Entry { conn, listener, listening, root, watch }))
        }
        Ok(ToRank::Failed(e)) => Err(e),
        Ok(_) => Ok(Err(Broken::Malformed("no welcome".into()))),
        Err(e) => Ok(Err(e)),
    }
}

fn greet(addr: SocketAddr, token: &Token, until: Instant) -> std::result::Result<(Conn, Initiator), Broken> {
    let left = until.saturating_duration_since(Instant::now());
    let mut conn = Conn::new(net::connect(addr, left)?)?;
    let mut initiator = Initiator::new(Purpose::Rendezvous).map_err(|e| std::io::Error::other(e.message))?;
    initiator.hello(&mut conn)?;
    match conn.wait_frame(until)? {
        Some(frame) => initiator.check(token, &frame)?,
        None => return Err(Broken::Io(std::io::ErrorKind::TimedOut.into())),
    }
    Ok((conn, initiator))
}

/// Where this rank listens for its neighbours: on the chosen interface, else at the address from which it reaches
/// the rendezvous, for that is one which the others can reach too. Loopback only if the caller meant it: a host
/// may resolve its own name to a loopback address that other hosts cannot use.
fn listen(place: &Place, conn: &Conn, cfg: &UidConfig) -> Result<(TcpListener, SocketAddr)> {
    let failed = |e: std::io::Error| {
        if net::is_short_of_files(&e) {
            return net::short_of_files(cfg.rank);
        }
        BootError::new(
            BootErrorKind::Io,
            format!(
                "rank {} cannot listen for its neighbours: {e}; choose an interface with {}",
                cfg.rank,
                net::IFNAME_VARIABLE
            ),
        )
    };
    let mut local = conn.stream().local_addr().map_err(failed)?;
    if cfg.ifname.is_some() || (local.ip().is_loopback() && !place.means_loopback()) {
        local = net::local_address(cfg.ifname.as_deref(), Some(local))?;
    }
    local.set_port(0);
    let listener = net::listen(local).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok((listener, addr))
}

/// The host's name, short enough for a stranger's frame.
fn host_field() -> String {
    net::host_name().chars().take(200).collect()
}

impl Entry {
    fn connect(&mut self, token: &Token, cfg: &UidConfig, deadline: Instant) -> Result<Joined> {
        let (session, mut neighbours) = loop {
            match self.hear(deadline + VERDICT)? {
                ToRank::Table { session, neighbours } => break (session, neighbours),
                ToRank::Go => return Err(self.nonsense("it said go before it said where")),
                _ => {}
            }
        };
        self.check(&mut neighbours, cfg)?;
        let token = token.for_session(&session);
        let listener = &self.listener;
        let mut work = connect::Work::new(listener, cfg, &token, neighbours)?;
        while !work.is_done() {
            // Whatever the rendezvous says meanwhile is bad news.
            while let Some(frame) = self.conn.receive().map_err(|e| self.root.lost(&e))? {
                match ToRank::decode(&frame) {
                    Ok(ToRank::Hosted(rank)) => self.root.rank = Some(rank),
                    Ok(ToRank::Failed(e)) => return Err(e),
                    Ok(_) => {}
                    Err(e) => return Err(self.root.lost(&e)),
                }
            }
            work.step(&self.conn, deadline)?;
        }
        let links = work.finish(deadline)?;
        ToRoot::Meshed.send(&mut self.conn).map_err(|e| self.root.lost(&e))?;
        loop {
            if self.hear(deadline + VERDICT)? == ToRank::Go {
                return Ok(Joined { links, listening: self.listening });
            }
        }
    }

    /// The next message of the rendezvous; its failures and its end are errors.
    fn hear(&mut self, until: Instant) -> Result<ToRank> {
        let heard = loop {
            let look = until.min(Instant::now() + LOOK);
            match self.conn.wait_frame(look) {
                Ok(None) if look < until => self.watch.look()?,
                heard => break heard,
            }
        };
        let message = match heard {
            Ok(Some(frame)) => ToRank::decode(&frame),
            Ok(None) => {
                return Err(self
                    .root
                    .error(BootErrorKind::Timeout, "no longer answers: it may be stopped or cut off"));
            }
            Err(e) => Err(e),
        };
        match message.map_err(|e| self.root.lost(&e))? {
            ToRank::Failed(e) => Err(e),
            ToRank::Welcome { .. } => Err(self.nonsense("it said welcome twice")),
            ToRank::Hosted(rank) => {
                self.root.rank = Some(rank);
                Ok(ToRank::Hosted(rank))
            }
            other => Ok(other),
        }
    }

    fn nonsense(&self, what: &str) -> BootError {
        self.root.error(BootErrorKind::Internal, &format!("breaks the protocol: {what}"))
    }

    /// The table must be the one that this rank expects; link-local addresses get this host's interface.
    fn check(&self, neighbours: &mut [Neighbour], cfg: &UidConfig) -> Result<()> {
        if !neighbours.iter().map(|n| n.rank).eq(crate::ranks::neighbours(cfg.rank, cfg.n_ranks)) {
            return Err(self.nonsense("its table names the wrong neighbours"));
        }
        for n in neighbours {
            if let (SocketAddr::V6(theirs), SocketAddr::V6(mine)) = (&mut n.addr, self.listening) {
                if net::is_link_local(&IpAddr::V6(*theirs.ip())) && mine.scope_id() != 0 {
                    theirs.set_scope_id(mine.scope_id());
                }
            }
        }
        Ok(())
    }
}
