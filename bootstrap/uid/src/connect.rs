//! Connecting with the neighbours: the lower rank of a pair dials, the higher accepts, both prove. One loop
//! without threads serves all of it, so that nothing a stranger does to the listener holds the others up.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{Purpose, Token};
use crate::config::UidConfig;
use crate::conn::{poll, Broken, Conn};
use crate::handshake::{Acceptor, Initiator};
use crate::mesh::silence::Silence;
use crate::messages::{who, Neighbour};
use crate::net;
use crate::wire::{Reader, Writer};

/// The acceptor's word that the connection stands.
const ACCEPTED: u8 = 48;
/// How long a guest may take to prove itself, and how many may try at a time.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const MAX_GUESTS: usize = 128;
/// How long a guest may take while the room is full.
const CROWDED_LIMIT: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A neighbour and the socket to it.
pub(crate) struct Connected {
    pub(crate) rank: u32,
    /// `rank 3 (host h, pid 12)`.
    pub(crate) name: String,
    /// Its host, where that is another one.
    pub(crate) abroad: Option<Host>,
    pub(crate) stream: TcpStream,
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
    Connecting(TcpStream),
    Greeting(Conn, Initiator),
    /// Proved; the acceptor's word is awaited.
    Waiting(Conn),
    Done,
}

struct Dial {
    to: Neighbour,
    state: Dialling,
    pause: Duration,
    last: String,
}

struct Guest {
    conn: Conn,
    acceptor: Acceptor,
    since: Instant,
}

/// The state of it all. Call [`Work::step`] until [`Work::is_done`].
pub(crate) struct Work<'a> {
    listener: &'a TcpListener,
    cfg: &'a UidConfig,
    token: &'a Token,
    neighbours: Vec<Neighbour>,
    dials: Vec<Dial>,
    guests: Vec<Guest>,
    up: BTreeMap<u32, Conn>,
    /// This process can have no more files open, and that is nobody else's doing.
    is_short_of_files: bool,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        listener: &'a TcpListener,
        cfg: &'a UidConfig,
        token: &'a Token,
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
        let (guests, up) = (Vec::new(), BTreeMap::new());
        Ok(Work { listener, cfg, token, neighbours, dials, guests, up, is_short_of_files: false })
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
                    dial.state = match net::start_connect(dial.to.addr) {
                        Ok(stream) => Dialling::Connecting(stream),
                        Err(e) => {
                            // Guests may be strangers, and take what they hold with them.
                            self.is_short_of_files |= net::is_short_of_files(&e) && self.guests.is_empty();
                            dial.again(e.into())
                        }
                    };
                }
            }
            if let Dialling::Pause(at) = dial.state {
                next = next.min(at);
            }
        }
        let limit = if self.guests.len() < MAX_GUESTS { HANDSHAKE_LIMIT } else { CROWDED_LIMIT };
        self.guests.retain(|g| {
            let ok = now < g.since + limit;
            if !ok {
                refused(&g.conn, &format!("it did not prove itself within {limit:?}"));
            }
            ok
        });
        if let Some(first) = self.guests.iter().map(|g| g.since + limit).min() {
            next = next.min(first);
        }
        let mut fds = vec![PollFd::new(also.as_fd(), also.interest())];
        if self.guests.len() < MAX_GUESTS {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        for dial in &self.dials {
            match &dial.state {
                Dialling::Connecting(s) => fds.push(PollFd::new(s.as_fd(), PollFlags::POLLOUT)),
                Dialling::Greeting(c, _) | Dialling::Waiting(c) => {
                    fds.push(PollFd::new(c.as_fd(), c.interest()))
                }
                Dialling::Pause(_) | Dialling::Done => {}
            }
        }
        fds.extend(self.guests.iter().map(|g| PollFd::new(g.conn.as_fd(), g.conn.interest())));
        poll(&mut fds, Some(next)).map_err(|e| {
            BootError::new(
                BootErrorKind::Io,
                format!("rank {} cannot wait for its sockets: {e}", self.cfg.rank),
            )
        })?;
        // Few descriptors: trying each is as cheap as asking which was ready.
        self.accept();
        self.greet_guests();
        for dial in &mut self.dials {
            if let Some(conn) = dial.advance(self.token, self.cfg.rank) {
                self.up.insert(dial.to.rank, conn);
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        while self.guests.len() < MAX_GUESTS {
            match self.listener.accept().and_then(|(stream, _)| Conn::new(stream)) {
                Ok(conn) => {
                    let acceptor = Acceptor::new(Purpose::Mesh);
                    self.guests.push(Guest { conn, acceptor, since: Instant::now() });
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    self.is_short_of_files |= net::is_short_of_files(&e) && self.guests.is_empty();
                    log::debug!("rushmem uid: rank {} could not accept a connection: {e}", self.cfg.rank);
                    return;
                }
            }
        }
    }

    fn greet_guests(&mut self) {
        for mut guest in std::mem::take(&mut self.guests) {
            match self.greet(&mut guest) {
                Ok(None) => self.guests.push(guest),
                // A neighbour that lost its first connection before it was told that it stands comes again.
                Ok(Some(rank)) => drop(self.up.insert(rank, guest.conn)),
                Err(e) => refused(&guest.conn, &e.to_string()),
            }
        }
    }

    fn greet(&self, guest: &mut Guest) -> std::result::Result<Option<u32>, Broken> {
        guest.conn.flush()?;
        while let Some(frame) = guest.conn.receive()? {
            if let Some(body) = guest.acceptor.take(&mut guest.conn, self.token, frame)? {
                let mut r = Reader(&body);
                let (from, to) = (r.u32()?, r.u32()?);
                r.end()?;
                let known = self.neighbours.iter().any(|n| n.rank == from && from < self.cfg.rank);
                if !known || to != self.cfg.rank {
                    return Err(Broken::Malformed(format!(
                        "rank {from} has no business with rank {} (it wants rank {to})",
                        self.cfg.rank
                    )));
                }
                guest.conn.send(ACCEPTED, &[])?;
                return Ok(Some(from));
            }
        }
        Ok(None)
    }

    /// Takes the connections out; all that was queued on them is sent first.
    pub(crate) fn finish(mut self, deadline: Instant) -> Result<Vec<Connected>> {
        let mut links = Vec::new();
        let home = net::home();
        let silence = self.cfg.host_silence.map(Silence::new);
        for n in &self.neighbours {
            let mut conn = self.up.remove(&n.rank).expect("finish comes after is_done");
            let name = who(n.rank, &n.host, n.pid);
            let host = Host { name: n.host.clone(), home: n.home, ranks: n.mates.clone() };
            let abroad = (n.home != home).then_some(host);
            let sent = conn.wait_sent(deadline).map_err(|e| e.to_string()).and_then(|sent| {
                if let (Some(silence), Some(_)) = (silence, &abroad) {
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
            links.push(Connected { rank: n.rank, name, abroad, stream: conn.into_stream() });
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
        self.listener.local_addr().map_or_else(|_| "its listener".into(), |a| a.to_string())
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
    fn advance(&mut self, token: &Token, me: u32) -> Option<Conn> {
        loop {
            let (state, go_on) = match std::mem::replace(&mut self.state, Dialling::Done) {
                Dialling::Waiting(mut conn) => match Self::accepted(&mut conn) {
                    Ok(true) => return Some(conn),
                    Ok(false) => (Dialling::Waiting(conn), false),
                    Err(e) => (self.again(e), false),
                },
                Dialling::Connecting(stream) => match Self::greet(stream) {
                    Ok(next) => next,
                    Err(e) => (self.again(e), false),
                },
                Dialling::Greeting(conn, initiator) => match self.prove(conn, initiator, token, me) {
                    Ok(next) => next,
                    Err(e) => (self.again(e), false),
                },
                resting => (resting, false),
            };
            self.state = state;
            if !go_on {
                return None;
            }
        }
    }

    fn greet(stream: TcpStream) -> std::result::Result<(Dialling, bool), Broken> {
        net::finish_connect(&stream).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotConnected => Ok(()), // not there yet
            _ => Err(e),
        })?;
        if stream.peer_addr().is_err() {
            return Ok((Dialling::Connecting(stream), false));
        }
        let mut conn = Conn::new(stream)?;
        let initiator = Initiator::new(Purpose::Mesh).map_err(|e| std::io::Error::other(e.message))?;
        initiator.hello(&mut conn)?;
        Ok((Dialling::Greeting(conn, initiator), true))
    }

    fn prove(
        &self,
        mut conn: Conn,
        mut initiator: Initiator,
        token: &Token,
        me: u32,
    ) -> std::result::Result<(Dialling, bool), Broken> {
        conn.flush()?;
        let Some(frame) = conn.receive()? else { return Ok((Dialling::Greeting(conn, initiator), false)) };
        initiator.check(token, &frame)?;
        initiator.prove(&mut conn, token, &Writer::default().u32(me).u32(self.to.rank).0)?;
        Ok((Dialling::Waiting(conn), true))
    }

    fn accepted(conn: &mut Conn) -> std::result::Result<bool, Broken> {
        conn.flush()?;
        match conn.receive()? {
            None => Ok(false),
            Some((ACCEPTED, _)) => Ok(true),
            Some((kind, _)) => {
                Err(Broken::Malformed(format!("a frame of kind {kind} where an acceptance should be")))
            }
        }
    }
}

fn refused(conn: &Conn, why: &str) {
    log::warn!("rushmem uid: refused a connection from {}: {why}; the job goes on", conn.peer());
}
