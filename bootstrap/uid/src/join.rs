//! A rank's way into a job: find the rendezvous (trying again until it is up), prove, wait for the table of
//! neighbours, connect with them, wait until all ranks are connected.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use socket2::Socket;

use crate::auth::Key;
use crate::config::{self, UidConfig, Watch, LOOK};
use crate::conn::{Broken, Conn};
use crate::connect::{self, Connected};
use crate::endpoint::Address;
use crate::local::LocalName;
use crate::meeting_address::MeetingAddress;
use crate::messages::{who, Join, Neighbour, ToRank, ToRoot};
use crate::net;
use crate::search::Search;

/// How long the rendezvous' own verdict (who is missing) is awaited past this rank's limit.
const VERDICT: Duration = Duration::from_secs(2);

/// A rank that is connected with all its neighbours, as all ranks are.
pub(crate) struct Joined {
    pub(crate) links: Vec<Connected>,
    /// Where this rank has listened for them.
    pub(crate) listening: Address,
}

/// Joins; see the top of the file.
pub(crate) fn join(place: &MeetingAddress, key: &Key, cfg: &UidConfig) -> Result<Joined> {
    net::raise_file_limit();
    let deadline = config::deadline(cfg.init_timeout);
    let mut entry = enter(place, key, cfg, deadline)?;
    let result = entry.connect(key, cfg, deadline);
    if let Err(error) = &result {
        // The ranks that wait for this one learn why it goes; no harm if the rendezvous is gone itself.
        let sent = ToRoot::Leave(error.clone()).send(&mut entry.conn);
        let _ = sent.and_then(|()| entry.conn.wait_sent(Instant::now() + Duration::from_millis(200)));
    }
    result
}

/// A rank that the rendezvous has let in.
struct Entry {
    conn: Conn,
    listener: Socket,
    listening: Address,
    /// [`net::home`], as the others know it.
    home: u64,
    root: Root,
    watch: Watch,
}

/// The process that hosts the rendezvous.
struct Root {
    addr: Address,
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

fn enter(place: &MeetingAddress, key: &Key, cfg: &UidConfig, deadline: Instant) -> Result<Entry> {
    let home = net::home().map_err(|e| {
        if net::is_short_of_files(&e) {
            return net::short_of_files(cfg.rank);
        }
        let text = format!("rank {} cannot tell its host from others (/proc): {e}", cfg.rank);
        BootError::new(BootErrorKind::Io, text)
    })?;
    let mut search = Search::new(place, key, cfg, deadline);
    loop {
        let (mut conn, addr) = search.next()?;
        let (listener, listening) = listen(place, &conn, addr, cfg)?;
        let join = Join {
            rank: cfg.rank,
            n_ranks: cfg.n_ranks,
            limit: deadline.saturating_duration_since(Instant::now()),
            addr: listening,
            host: host_field(),
            home,
            pid: std::process::id(),
        };
        let welcome = ToRoot::Join(join).send(&mut conn).and_then(|()| {
            let frame = conn.wait_frame(deadline)?;
            ToRank::decode(&frame.ok_or(Broken::Io(std::io::ErrorKind::TimedOut.into()))?)
        });
        match welcome {
            Ok(ToRank::Welcome { host, pid, rank }) => {
                let (root, watch) = (Root { addr, host, pid, rank }, cfg.watch.clone());
                return Ok(Entry { conn, listener, listening, home, root, watch });
            }
            Ok(ToRank::Failed(e)) => return Err(e),
            Ok(_) => search.was_no_use(&Broken::Malformed("no welcome".into())),
            Err(e) => search.was_no_use(&e),
        }
    }
}

/// Where this rank listens for its neighbours: on the chosen interface, else at the address from which it
/// reaches the rendezvous, for that is one which the others can reach too. Loopback only if the caller meant
/// it: a host may resolve its own name to a loopback address that other hosts cannot use.
fn listen(place: &MeetingAddress, conn: &Conn, root: Address, cfg: &UidConfig) -> Result<(Socket, Address)> {
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
    if let Address::Local(_) = root {
        return Address::Local(LocalName::random()?).listen().map_err(failed);
    }
    let local = conn.stream().local_addr().map_err(failed)?.as_socket();
    let mut local = local.ok_or_else(|| failed(std::io::ErrorKind::AddrNotAvailable.into()))?;
    if cfg.ifname.is_some() || (local.ip().is_loopback() && !place.loopback) {
        local = net::local_address(cfg.ifname.as_deref(), Some(local))?;
    }
    local.set_port(0);
    Address::Net(local).listen().map_err(failed)
}

/// The host's name, short enough for a stranger's frame.
fn host_field() -> String {
    net::host_name().chars().take(200).collect()
}

impl Entry {
    fn connect(&mut self, key: &Key, cfg: &UidConfig, deadline: Instant) -> Result<Joined> {
        let (session, mut neighbours) = loop {
            match self.receive(deadline + VERDICT)? {
                ToRank::Table { session, neighbours } => break (session, neighbours),
                ToRank::Go => return Err(self.nonsense("it said go before it said where")),
                _ => {}
            }
        };
        self.check(&mut neighbours, cfg)?;
        let key = key.for_session(&session);
        let listener = &self.listener;
        let mut work = connect::Work::new(listener, cfg, &key, neighbours)?;
        while !work.is_done() {
            // Whatever the rendezvous says meanwhile is a failure.
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
        let links = work.finish(self.home, deadline)?;
        ToRoot::Meshed.send(&mut self.conn).map_err(|e| self.root.lost(&e))?;
        loop {
            if self.receive(deadline + VERDICT)? == ToRank::Go {
                return Ok(Joined { links, listening: self.listening });
            }
        }
    }

    /// The next message of the rendezvous; its failures and its end are errors.
    fn receive(&mut self, until: Instant) -> Result<ToRank> {
        let received = loop {
            let look = until.min(Instant::now() + LOOK);
            match self.conn.wait_frame(look) {
                Ok(None) if look < until => self.watch.look()?,
                received => break received,
            }
        };
        let message = match received {
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
            if let (Address::Net(SocketAddr::V6(theirs)), Address::Net(SocketAddr::V6(mine))) =
                (&mut n.addr, self.listening)
            {
                if net::is_link_local(&IpAddr::V6(*theirs.ip())) && mine.scope_id() != 0 {
                    theirs.set_scope_id(mine.scope_id());
                }
            }
        }
        Ok(())
    }
}
