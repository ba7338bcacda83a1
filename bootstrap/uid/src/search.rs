//! How a rank finds the rendezvous: it tries every place where it may be, side by side and again and again,
//! until one of them proves to be its job's. Nothing that does not (a port that something else holds, a
//! listener that never answers) holds up the others.
//!
//! Of a long list of ports rank 0 takes the first that is free. Ranks look at the first `GLANCE` ports that
//! nothing holds, and past every port that something does hold; so a stranger that holds ports moves the
//! meeting, but does not stop it. Ports can be taken without showing it (bound, and not listening; listening
//! on another interface): with every half second that goes by twice as many are looked at, at the same rate
//! of attempts, as long as all ranks together do not look at more than `MOST_LOOKS`.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{random, Key, Purpose};
use crate::config::{UidConfig, LOOK};
use crate::conn::{poll, Broken, Conn};
use crate::endpoint::Address;
use crate::local;
use crate::meeting_address::{longest_pause, MeetingAddress, Where};
use crate::names::Names;
use crate::net;
use crate::outgoing::Outgoing;

/// Ports that nothing seems to hold, looked at from the first.
const GLANCE: usize = 32;
const GROWTH: Duration = Duration::from_millis(500);
/// Ports times ranks: what the host of rank 0 has to refuse while rank 0 is late.
const MOST_LOOKS: usize = 2_000_000;
/// Connections under way at a time.
const WINDOW: usize = 256;
/// How long a connection may take to prove itself; and how long while others wait for their turn.
const PATIENCE: Duration = Duration::from_secs(5);
const CROWDED_PATIENCE: Duration = Duration::from_millis(300);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Before a port that something else holds is tried again.
const HELD_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_HELD_PAUSE: Duration = Duration::from_secs(8);
/// How often it is asked whether a name has resolved.
const NAME_TICK: Duration = Duration::from_millis(5);

enum State {
    /// To be tried at this time.
    Pause(Instant),
    Live(Box<Outgoing>, Instant),
    /// Another user's: never.
    Foreign,
}

struct Target {
    addr: Address,
    state: State,
    pause: Duration,
    /// Something took the last connection and was not the job's.
    held: bool,
}

/// See the top of the file. It goes on where it was when a rendezvous that was found turns out to be of no
/// use.
pub(crate) struct Search<'a> {
    place: &'a MeetingAddress,
    key: &'a Key,
    cfg: &'a UidConfig,
    deadline: Instant,
    began: Instant,
    targets: Vec<Target>,
    names: Option<Names>,
    ips: Vec<IpAddr>,
    scan: (Instant, Duration),
    /// Whose turn it is where not all can have one.
    turn: usize,
    attempts: u64,
    last: String,
    /// What something said that is no rendezvous of this job.
    telling: Option<String>,
    warned: bool,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        place: &'a MeetingAddress,
        key: &'a Key,
        cfg: &'a UidConfig,
        deadline: Instant,
    ) -> Search<'a> {
        let names = match &place.at {
            Where::Named { host, from, .. } => Some(Names::new(host, from)),
            _ => None,
        };
        let began = Instant::now();
        Search {
            place,
            key,
            cfg,
            deadline,
            began,
            targets: Vec::new(),
            names,
            ips: Vec::new(),
            scan: (began, FIRST_PAUSE),
            turn: 0,
            attempts: 0,
            last: "no attempt was made".into(),
            telling: None,
            warned: false,
        }
    }

    /// A connection with the job's rendezvous, which both sides have proved.
    pub(crate) fn next(&mut self) -> Result<(Conn, Address)> {
        loop {
            let now = Instant::now();
            if now >= self.deadline {
                return Err(self.too_late());
            }
            self.cfg.watch.look()?;
            let supplied = self.supply(now)?;
            let wake = self.start(now)?.min(supplied).min(now + LOOK).min(self.deadline);
            self.wait(wake)?;
            if let Some(found) = self.advance()? {
                return Ok(found);
            }
        }
    }

    /// What came of the connection that was found last.
    pub(crate) fn was_no_use(&mut self, e: &Broken) {
        self.last = e.to_string();
    }

    /// Brings the list of places up to date; when to do so again.
    fn supply(&mut self, now: Instant) -> Result<Instant> {
        match &self.place.at {
            Where::At(addr) => {
                if self.targets.is_empty() {
                    self.targets.push(Target::new(*addr, now));
                }
                Ok(self.deadline)
            }
            Where::Local { tag, .. } => {
                if now >= self.scan.0 {
                    match local::listening(*tag) {
                        Ok(names) => self.listed(&names, now),
                        Err(e) => {
                            self.last = format!("the kernel's list of local sockets cannot be read: {e}")
                        }
                    }
                    self.scan.1 = (self.scan.1 * 2).min(longest_pause(self.cfg.n_ranks));
                    self.scan.0 = now + self.scan.1;
                }
                Ok(self.scan.0)
            }
            Where::Named { ports, .. } => {
                let names = self.names.as_mut().expect("a named place has a name");
                let ips = names.addresses()?;
                if *ips != *self.ips {
                    self.ips = ips.to_vec();
                    self.targets.clear();
                }
                let next = now + if names.is_waiting() { NAME_TICK } else { GROWTH };
                let doubled = now.duration_since(self.began).as_millis() / GROWTH.as_millis();
                let most = (MOST_LOOKS / self.cfg.n_ranks as usize).max(16 * GLANCE);
                let glance = (GLANCE << doubled.min(20)).min(most) * self.ips.len();
                let all = ports.len() * self.ips.len();
                let mut free = self.targets.iter().filter(|t| !t.held).count();
                while free < glance && self.targets.len() < all {
                    let at = self.targets.len();
                    let addr = SocketAddr::new(self.ips[at % self.ips.len()], ports[at / self.ips.len()]);
                    self.targets.push(Target::new(Address::Net(addr), now));
                    free += 1;
                }
                Ok(next)
            }
        }
    }

    /// The local names that are there now.
    fn listed(&mut self, names: &[local::LocalName], now: Instant) {
        let there: std::collections::HashSet<Address> = names.iter().map(|n| Address::Local(*n)).collect();
        self.targets.retain(|t| there.contains(&t.addr) || matches!(t.state, State::Live(..)));
        let known: std::collections::HashSet<Address> = self.targets.iter().map(|t| t.addr).collect();
        self.targets.extend(there.difference(&known).map(|addr| Target::new(*addr, now)));
        if there.is_empty() {
            self.last = "no process of this host hosts it".into();
        }
    }

    /// Starts the connections that are due; returns when the next one will be.
    fn start(&mut self, now: Instant) -> Result<Instant> {
        let (mut next, mut live) = (self.deadline, 0);
        let mut oldest: Option<(Instant, usize)> = None;
        for (at, target) in self.targets.iter().enumerate() {
            if let State::Live(_, since) = target.state {
                live += 1;
                next = next.min(since + PATIENCE);
                oldest = oldest.min(Some((since, at))).or(Some((since, at)));
            }
        }
        // From where the last turn ended, so that those behind many others have theirs, too.
        let (all, from) = (self.targets.len(), self.turn);
        for at in (0..all).map(|i| (from + i) % all) {
            let State::Pause(due) = self.targets[at].state else { continue };
            if due > now {
                next = next.min(due);
            } else if live < WINDOW {
                self.attempts += 1;
                match Outgoing::start(self.targets[at].addr, Purpose::Rendezvous, Vec::new()) {
                    Ok(outgoing) => {
                        self.targets[at].state = State::Live(Box::new(outgoing), now);
                        live += 1;
                    }
                    // Connections under way take what they hold with them.
                    Err(Broken::Io(e)) if live == 0 && net::is_short_of_files(&e) => {
                        return Err(net::short_of_files(self.cfg.rank));
                    }
                    Err(e) => self.failed(at, e, false)?,
                }
            } else if let Some((since, slow)) = oldest {
                self.turn = at;
                // Others wait for the place of one that is slow.
                if since + CROWDED_PATIENCE <= now {
                    self.give_up(slow)?;
                }
                return Ok(next.min((since + CROWDED_PATIENCE).max(now)));
            }
        }
        Ok(next)
    }

    fn give_up(&mut self, at: usize) -> Result<()> {
        let State::Live(outgoing, _) = &self.targets[at].state else { return Ok(()) };
        let connected = outgoing.connected;
        self.failed(at, Broken::Io(std::io::ErrorKind::TimedOut.into()), connected)
    }

    fn failed(&mut self, at: usize, e: Broken, connected: bool) -> Result<()> {
        let target = &mut self.targets[at];
        self.last = format!("{}: {e}", target.addr);
        target.held = connected;
        if matches!(&e, Broken::Version(_) | Broken::Malformed(_) | Broken::Refused(_)) {
            self.telling = Some(self.last.clone());
        }
        if let (Broken::Version(_), false) = (&e, self.warned) {
            self.warned = true;
            log::warn!("rushmem uid: rank {} knocked at {}: {e}", self.cfg.rank, target.addr);
        }
        if matches!(&e, Broken::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied) {
            target.state = State::Foreign;
            return Ok(());
        }
        // Rank 0 does not come to a port that something else holds, or not soon.
        if connected && self.place.is_list() {
            target.pause = target.pause.max(HELD_PAUSE);
        }
        // Jitter, so that many ranks that wait for one listener do not knock in step.
        let jitter = f64::from(random::<1>()?[0]) / 255.0 + 0.5;
        target.state = State::Pause(Instant::now() + target.pause.mul_f64(jitter));
        let crowd = (self.targets.len() / GLANCE).max(1) as u32;
        let cap = longest_pause(self.cfg.n_ranks) * crowd;
        let held = if connected { LONGEST_HELD_PAUSE } else { Duration::ZERO };
        self.targets[at].pause = (self.targets[at].pause * 2).min(cap.max(held));
        Ok(())
    }

    fn wait(&self, wake: Instant) -> Result<()> {
        let live = self.targets.iter().filter_map(|t| match &t.state {
            State::Live(outgoing, _) => outgoing.poll(),
            _ => None,
        });
        let mut fds: Vec<PollFd<'_>> = live.map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        poll(&mut fds, Some(wake)).map_err(|e| {
            let text = format!("rank {} cannot wait for its sockets: {e}", self.cfg.rank);
            BootError::new(BootErrorKind::Io, text)
        })
    }

    /// Goes on with every connection under way; the first that both sides have proved.
    fn advance(&mut self) -> Result<Option<(Conn, Address)>> {
        let now = Instant::now();
        for at in 0..self.targets.len() {
            let State::Live(outgoing, since) = &mut self.targets[at].state else { continue };
            let since = *since;
            match outgoing.advance(self.key) {
                Ok(Some(conn)) => {
                    let (addr, pause) = (self.targets[at].addr, self.targets[at].pause);
                    self.targets[at].state = State::Pause(now + pause);
                    return Ok(Some((conn, addr)));
                }
                Ok(None) if since + PATIENCE <= now => self.give_up(at)?,
                Ok(None) => {}
                Err(e) => {
                    let connected = outgoing.connected;
                    self.failed(at, e, connected)?;
                }
            }
        }
        Ok(None)
    }

    fn too_late(&self) -> BootError {
        let held = self.targets.iter().filter(|t| t.held).count();
        let foreign = self.targets.iter().filter(|t| matches!(t.state, State::Foreign)).count();
        let mut last = self.last.clone();
        if let Some(telling) = self.telling.as_ref().filter(|t| **t != last) {
            last = format!("{last}; {telling}");
        }
        if self.targets.len() > 1 && held > 0 {
            last = format!("{last}; {held} of {} places are held by something else", self.targets.len());
        }
        if foreign > 0 {
            last = format!("{last}; {foreign} sockets of other users were left alone");
        }
        let text = format!(
            "rank {} of {} found no rendezvous at {} within {:.1} s ({} attempts; last: {last}): {}",
            self.cfg.rank,
            self.cfg.n_ranks,
            self.place,
            self.cfg.init_timeout.as_secs_f64(),
            self.attempts,
            self.place.advice()
        );
        BootError::new(BootErrorKind::Timeout, text)
    }
}

impl Target {
    fn new(addr: Address, now: Instant) -> Target {
        Target { addr, state: State::Pause(now), pause: FIRST_PAUSE, held: false }
    }
}
