//! Connecting with the neighbours: the lower rank of a pair dials, the higher accepts, both prove. One loop
//! without threads serves all of it, so that nothing a stranger does to the listener holds the others up.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use socket2::Socket;

use crate::auth::{Key, Purpose};
use crate::config::UidConfig;
use crate::conn::{poll, Broken, Conn};
use crate::endpoint;
use crate::handshake::Acceptor;
use crate::mesh::silence::Silence;
use crate::messages::{who, Neighbour};
use crate::net;
use crate::outgoing::Outgoing;
use crate::pending::{self, Pending};
use crate::wire::{Reader, Writer};

/// How long a connection may take to prove itself.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Connections at a time, where descriptors allow: each of them is polled.
const MAX_PENDING: usize = 512;
/// Connections taken before those that are here have their turn.
const ACCEPTS: usize = 256;
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Warnings about strangers; further ones go to the debug level.
const MAX_WARNINGS: u32 = 20;

/// A neighbour and the socket to it.
pub(crate) struct Connected {
    pub(crate) rank: u32,
    /// `rank 3 (host h, pid 12)`.
    pub(crate) name: String,
    /// Its host, where that is another one.
    pub(crate) remote_host: Option<Host>,
    pub(crate) stream: Socket,
}

/// A host that is not this rank's.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// What tells it from others.
    pub(crate) home: u64,
    /// All its ranks, as `ranks 2, 4-7`.
    pub(crate) ranks: String,
}

enum Dialling {
    /// To begin at this time.
    Pause(Instant),
    Live(Box<Outgoing>),
    Done,
}

struct Dial {
    to: Neighbour,
    state: Dialling,
    pause: Duration,
    last: String,
}

struct Connection {
    conn: Conn,
    acceptor: Acceptor,
}

/// The state of it all. Call [`Work::step`] until [`Work::is_done`].
pub(crate) struct Work<'a> {
    listener: &'a Socket,
    cfg: &'a UidConfig,
    key: &'a Key,
    neighbours: Vec<Neighbour>,
    dials: Vec<Dial>,
    connections: HashMap<u64, Connection>,
    pending: Pending,
    /// The number of the next connection.
    next: u64,
    warnings: u32,
    up: BTreeMap<u32, Conn>,
    /// This process can have no more files open, and strangers are not the reason.
    is_short_of_files: bool,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        listener: &'a Socket,
        cfg: &'a UidConfig,
        key: &'a Key,
        neighbours: Vec<Neighbour>,
    ) -> Result<Work<'a>> {
        let now = Instant::now();
        let dial = |to: &Neighbour| Dial {
            to: to.clone(),
            state: Dialling::Pause(now),
            pause: Duration::from_millis(5),
            last: "no attempt was made".into(),
        };
        let dials = neighbours.iter().filter(|n| n.rank > cfg.rank).map(dial).collect();
        let pending = Pending::new(pending::room().min(MAX_PENDING));
        Ok(Work {
            listener,
            cfg,
            key,
            neighbours,
            dials,
            connections: HashMap::new(),
            pending,
            next: 0,
            warnings: 0,
            up: BTreeMap::new(),
            is_short_of_files: false,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.up.len() == self.neighbours.len()
    }

    /// Does what can be done now; else waits until a socket (`also` is one more) is ready or a time comes.
    pub(crate) fn step(&mut self, also: &Conn, deadline: Instant) -> Result<()> {
        let now = Instant::now();
        if self.is_short_of_files {
            return Err(net::short_of_files(self.cfg.rank));
        }
        if now >= deadline {
            return Err(self.too_late());
        }
        let mut next = deadline;
        for dial in &mut self.dials {
            if let Dialling::Pause(at) = dial.state {
                if at <= now {
                    let body = Writer::default().u32(self.cfg.rank).u32(dial.to.rank).0;
                    dial.state = match Outgoing::start(dial.to.addr, Purpose::Mesh, body) {
                        Ok(outgoing) => Dialling::Live(Box::new(outgoing)),
                        Err(e) => {
                            // Connections may be strangers, and take what they hold with them.
                            let is_short = matches!(&e, Broken::Io(e) if net::is_short_of_files(e));
                            self.is_short_of_files |= is_short && self.connections.is_empty();
                            dial.again(e)
                        }
                    };
                }
            }
            if let Dialling::Pause(at) = dial.state {
                next = next.min(at);
            }
        }
        while let Some(id) = self.pending.overdue(now, HANDSHAKE_LIMIT) {
            self.refuse(id, &format!("it did not prove itself within {HANDSHAKE_LIMIT:?}"));
        }
        next = next.min(self.pending.next(HANDSHAKE_LIMIT).unwrap_or(deadline));
        let ready = self.wait(also, next).map_err(|e| {
            BootError::new(
                BootErrorKind::Io,
                format!("rank {} cannot wait for its sockets: {e}", self.cfg.rank),
            )
        })?;
        self.accept();
        ready.into_iter().for_each(|id| self.greet(id));
        // Few: trying each is as cheap as asking which was ready.
        for dial in &mut self.dials {
            if let Some(conn) = dial.advance(self.key) {
                self.up.insert(dial.to.rank, conn);
            }
        }
        Ok(())
    }

    /// Waits until there is something to do; the connections that have something to say.
    fn wait(&self, also: &Conn, until: Instant) -> std::io::Result<Vec<u64>> {
        let mut fds = vec![
            PollFd::new(also.as_fd(), also.interest()),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        let connections: Vec<u64> = self.connections.keys().copied().collect();
        let first = fds.len();
        fds.extend(connections.iter().map(|id| {
            let conn = &self.connections[id].conn;
            PollFd::new(conn.as_fd(), conn.interest())
        }));
        for dial in &self.dials {
            if let Dialling::Live(outgoing) = &dial.state {
                fds.extend(outgoing.poll().map(|(fd, flags)| PollFd::new(fd, flags)));
            }
        }
        poll(&mut fds, Some(until))?;
        let ready = connections.iter().zip(&fds[first..]).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(ready.map(|(id, _)| *id).collect())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match endpoint::accept(self.listener).and_then(|(s, source)| Ok((Conn::new(s)?, source))) {
                Ok((conn, source)) => {
                    if self.pending.is_full() {
                        self.make_room();
                    }
                    let id = self.next;
                    self.next += 1;
                    self.connections.insert(id, Connection { conn, acceptor: Acceptor::new(Purpose::Mesh) });
                    self.pending.enter(id, source, Instant::now());
                    // A neighbour has said hello by now; so it is not among the silent ones, which go first.
                    self.greet(id);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                    self.warn(|| format!("refused a connection from {e}; the job goes on"));
                }
                Err(e) => {
                    self.is_short_of_files |= net::is_short_of_files(&e) && self.connections.is_empty();
                    log::debug!("rushmem uid: rank {} could not accept a connection: {e}", self.cfg.rank);
                    if !self.make_room() {
                        return;
                    }
                }
            }
        }
    }

    /// Drops one connection for another; whether there was one.
    fn make_room(&mut self) -> bool {
        let dropped = self.pending.next_to_drop();
        if let Some(id) = dropped {
            self.refuse(id, "it has not proved to belong to the job, and others come");
        }
        dropped.is_some()
    }

    fn warn(&mut self, text: impl FnOnce() -> String) {
        self.warnings = self.warnings.saturating_add(1);
        if self.warnings <= MAX_WARNINGS {
            log::warn!("rushmem uid: {}", text());
        } else {
            log::debug!("rushmem uid: {}", text());
        }
    }

    fn refuse(&mut self, id: u64, why: &str) {
        self.pending.leave(id);
        if let Some(connection) = self.connections.remove(&id) {
            self.warn(|| {
                format!("refused a connection from {}: {why}; the job goes on", connection.conn.peer())
            });
        }
    }

    fn greet(&mut self, id: u64) {
        match self.receive(id) {
            Ok(None) => {}
            Ok(Some(rank)) => {
                self.pending.leave(id);
                // A neighbour that lost its first connection before it learned that it stands comes again.
                if let Some(connection) = self.connections.remove(&id) {
                    self.up.insert(rank, connection.conn);
                }
            }
            Err(e) => self.refuse(id, &e.to_string()),
        }
    }

    /// The rank of a connection that has proved to be a neighbour.
    fn receive(&mut self, id: u64) -> std::result::Result<Option<u32>, Broken> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(None) };
        connection.conn.flush()?;
        while let Some(frame) = connection.conn.receive()? {
            let Some(body) = connection.acceptor.take(&mut connection.conn, self.key, frame)? else {
                self.pending.greeted(id);
                continue;
            };
            let mut r = Reader(&body);
            let (from, to) = (r.u32()?, r.u32()?);
            r.end()?;
            let known = self.neighbours.iter().any(|n| n.rank == from && from < self.cfg.rank);
            if !known || to != self.cfg.rank {
                return Err(Broken::Malformed(format!(
                    "rank {from} connected to rank {}, but looks for rank {to}",
                    self.cfg.rank
                )));
            }
            return Ok(Some(from));
        }
        Ok(None)
    }

    /// Takes the connections out; all that was queued on them is sent first. Those that lead away from this
    /// process's [`net::home`] are probed from now on.
    pub(crate) fn finish(mut self, home: u64, deadline: Instant) -> Result<Vec<Connected>> {
        let mut links = Vec::new();
        let silence = self.cfg.host_silence.map(Silence::new);
        for n in &self.neighbours {
            let mut conn = self.up.remove(&n.rank).expect("finish comes after is_done");
            let name = who(n.rank, &n.host, n.pid);
            let host = Host { name: n.host.clone(), home: n.home, ranks: n.mates.clone() };
            let remote_host = (n.home != home).then_some(host);
            let sent = conn.wait_sent(deadline).map_err(|e| e.to_string()).and_then(|sent| {
                if let (Some(silence), Some(_)) = (silence, &remote_host) {
                    silence.probe(conn.stream()).map_err(|e| e.to_string())?;
                }
                if sent {
                    Ok(())
                } else {
                    Err("it takes no data".into())
                }
            });
            sent.map_err(|e| {
                let text = format!("rank {} lost its connection with {name}: {e}", self.cfg.rank);
                BootError::new(BootErrorKind::Io, text).with_rank(n.rank)
            })?;
            // Nobody sends anything between the handshake and the root's go, so nothing is lost here.
            links.push(Connected { rank: n.rank, name, remote_host, stream: conn.into_stream() });
        }
        Ok(links)
    }

    fn too_late(&self) -> BootError {
        let missing = self.neighbours.iter().filter(|n| !self.up.contains_key(&n.rank));
        let mut texts = Vec::new();
        let mut first = None;
        for n in missing {
            first.get_or_insert(n.rank);
            let name = who(n.rank, &n.host, n.pid);
            match self.dials.iter().find(|d| d.to.rank == n.rank) {
                Some(d) => texts.push(format!("{name} cannot be reached at {}: {}", n.addr, d.last)),
                None => texts.push(format!("{name} did not connect to {}", self.listening())),
            }
        }
        let text = format!(
            "rank {} is not connected with its neighbours within {:.1} s: {}. Check that the hosts reach each other on these addresses, or choose the interface with {}",
            self.cfg.rank,
            self.cfg.init_timeout.as_secs_f64(),
            texts.join("; "),
            net::IFNAME_VARIABLE
        );
        BootError { rank: first, ..BootError::new(BootErrorKind::Timeout, text) }
    }

    fn listening(&self) -> String {
        match self.listener.local_addr().map(|a| a.as_socket()) {
            Ok(Some(addr)) => addr.to_string(),
            _ => "its socket on this host".into(),
        }
    }
}

impl Dial {
    /// Another attempt after a pause.
    fn again(&mut self, e: Broken) -> Dialling {
        self.last = e.to_string();
        let at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Dialling::Pause(at)
    }

    /// Goes as far as it can without waiting; the connection once it stands.
    fn advance(&mut self, key: &Key) -> Option<Conn> {
        let Dialling::Live(outgoing) = &mut self.state else { return None };
        match outgoing.advance(key) {
            Ok(Some(conn)) => {
                self.state = Dialling::Done;
                return Some(conn);
            }
            Ok(None) => {}
            Err(e) => self.state = self.again(e),
        }
        None
    }
}
