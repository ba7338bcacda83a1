//! The rendezvous' sockets: one thread, one epoll set. A client that has not proved to belong to the job may
//! hold its connection for `HANDSHAKE_LIMIT`, and send at most one small frame at a time. Then it is dropped
//! with a warning, and the job goes on. Connections are taken as fast as they come, also when there is no
//! room for more (`pending` says which one goes then), so that a member never waits behind strangers.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use rushmem_bootstrap_abi::{BootError, BootErrorKind};
use socket2::Socket;

use super::job::{Absent, Job, Stage};
use super::Absences;
use crate::auth::{Key, Purpose};
use crate::conn::{Broken, Conn};
use crate::endpoint::{self, Address};
use crate::handshake::Acceptor;
use crate::messages::{ToRank, ToRoot};
use crate::pending::{self, Pending};
use crate::{net, threads};

/// How long a stranger may take to prove that it is none.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Connections taken before those that are here have their turn.
const ACCEPTS: usize = 256;
/// How long the listener rests when descriptors have run out and nobody can be dropped.
const REST: Duration = Duration::from_millis(20);
/// How long the last words (all connected) may take to get out.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a failed rendezvous stays to tell ranks that come late.
const LATECOMERS: Duration = Duration::from_secs(30);
/// Warnings about strangers; further ones go to the debug level.
const MAX_WARNINGS: u32 = 20;

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const ABSENCES: u64 = u64::MAX - 2;

enum Phase {
    Stranger(Acceptor),
    /// It has proved to belong to the job; which rank it is comes next.
    Proved,
    Member(u32),
    /// All that it must know is sent; its end is awaited, so that closing first cannot lose the bytes.
    Leaving,
}

struct Client {
    conn: Conn,
    phase: Phase,
    writing: bool,
}

pub(super) struct Server {
    /// Begins again when all are connected, instead of ending.
    pub(super) standing: bool,
    addr: Address,
    listener: Option<Socket>,
    resting: Option<Instant>,
    key: Key,
    stop: Arc<EventFd>,
    absences: Arc<Absences>,
    absent: BTreeMap<u32, Absent>,
    epoll: Epoll,
    clients: HashMap<u64, Client>,
    pending: Pending,
    next: u64,
    warnings: u32,
    /// Mirrors the number of members for the handle.
    joined: Arc<AtomicU32>,
    job: Job,
    /// When the thread ends at the latest, once that is known.
    end: Option<Instant>,
}

fn new_job(addr: Address) -> Job {
    Job::new(addr, net::host_name(), std::process::id())
}

impl Server {
    pub(super) fn new(
        listener: Socket,
        addr: Address,
        key: Key,
        stop: Arc<EventFd>,
        absences: Arc<Absences>,
        joined: Arc<AtomicU32>,
    ) -> std::io::Result<Server> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        epoll.add(&absences.said, EpollEvent::new(EpollFlags::EPOLLIN, ABSENCES))?;
        Ok(Server {
            standing: false,
            addr,
            listener: Some(listener),
            resting: None,
            key,
            stop,
            absences,
            absent: BTreeMap::new(),
            epoll,
            clients: HashMap::new(),
            pending: Pending::new(pending::room()),
            next: 0,
            warnings: 0,
            joined,
            job: new_job(addr),
            end: None,
        })
    }

    pub(super) fn run(mut self) {
        threads::block_signals();
        let mut events = vec![EpollEvent::empty(); 256];
        loop {
            let timeout = self.timeout();
            let n = match self.epoll.wait(&mut events, timeout) {
                Ok(n) => n,
                Err(nix::errno::Errno::EINTR) => 0,
                Err(e) => {
                    let text = format!("the rendezvous cannot wait for its sockets: {e}");
                    return self.job.fail(BootError::new(BootErrorKind::Io, text));
                    // the ranks see the end
                }
            };
            for event in &events[..n] {
                match event.data() {
                    LISTENER => self.accept(),
                    STOP => self.stop(),
                    ABSENCES => self.take_absences(),
                    id => self.serve(id),
                }
                self.deliver();
            }
            let now = Instant::now();
            self.tick(now);
            self.deliver();
            if self.finished(now) {
                return;
            }
        }
    }

    fn timeout(&mut self) -> EpollTimeout {
        let stranger = self.pending.next(HANDSHAKE_LIMIT);
        let next = [stranger, self.resting, self.job.deadline(), self.end].into_iter().flatten().min();
        let Some(at) = next else { return EpollTimeout::NONE };
        let ms = at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        EpollTimeout::try_from(ms.min(1_000_000) as i32).unwrap_or(EpollTimeout::MAX)
    }

    fn stop(&mut self) {
        let _ = self.stop.read(); // only resets it
        let text = "the process that hosts the rendezvous gave up before all ranks were connected";
        self.job.fail(BootError::new(BootErrorKind::PeerDead, text)); // nothing if it is done
        let soon = Instant::now() + Duration::from_secs(1);
        self.end = Some(match (self.job.stage(), self.end) {
            (Stage::Done, Some(end)) => end,
            (Stage::Done, None) => Instant::now() + LAST_WORDS,
            _ => soon,
        });
        self.listener = None;
    }

    fn take_absences(&mut self) {
        let _ = self.absences.said.read(); // only resets it
        self.absent.extend(self.absences.take());
        self.job.check(&self.absent);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            let accepted = endpoint::accept(listener).and_then(|(stream, source)| {
                let conn = Conn::new(stream)?;
                self.epoll.add(conn.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, self.next))?;
                Ok((conn, source))
            });
            match accepted {
                Ok((conn, source)) => {
                    if self.pending.is_full() {
                        self.make_room();
                    }
                    let id = self.next;
                    self.next += 1;
                    let phase = Phase::Stranger(Acceptor::new(Purpose::Rendezvous));
                    self.clients.insert(id, Client { conn, phase, writing: false });
                    self.pending.enter(id, source, Instant::now());
                    // A member has said hello by now; so it is not among the silent ones, which go first.
                    self.serve(id);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    self.warn(|| format!("refused a connection from {e}; the job goes on"));
                }
                // No descriptors, no memory: one connection goes, or all wait a moment.
                Err(e) => {
                    self.warn(|| format!("the rendezvous cannot take a connection now: {e}"));
                    if !self.make_room() {
                        return self.rest();
                    }
                }
            }
        }
    }

    /// Drops one stranger for another; whether there was one.
    fn make_room(&mut self) -> bool {
        let dropped = self.pending.next_to_drop();
        if let Some(id) = dropped {
            self.refuse(id, "it has not proved to belong to the job, and others come");
        }
        dropped.is_some()
    }

    /// Stops listening for a moment instead of spinning on what cannot be accepted.
    fn rest(&mut self) {
        if let Some(listener) = &self.listener {
            let _ = self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::empty(), LISTENER));
            self.resting = Some(Instant::now() + REST);
        }
    }

    fn warn(&mut self, text: impl FnOnce() -> String) {
        self.warnings = self.warnings.saturating_add(1);
        match self.warnings {
            w if w < MAX_WARNINGS => log::warn!("rushmem uid: {}", text()),
            MAX_WARNINGS => log::warn!("rushmem uid: {} (further ones at the debug level)", text()),
            _ => log::debug!("rushmem uid: {}", text()),
        }
    }

    /// Drops a stranger.
    fn refuse(&mut self, id: u64, why: impl std::fmt::Display) {
        self.pending.leave(id);
        if let Some(client) = self.clients.remove(&id) {
            self.warn(|| format!("refused a connection from {}: {why}; the job goes on", client.conn.peer()));
        }
    }

    fn serve(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Err(e) = client.conn.flush() {
            return self.broken(id, e);
        }
        // One event may hold several frames; the client may change its phase or vanish between them.
        while let Some(client) = self.clients.get_mut(&id) {
            let frame = match client.conn.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(e) => return self.broken(id, e),
            };
            match &mut client.phase {
                Phase::Leaving => {}
                Phase::Stranger(acceptor) => match acceptor.take(&mut client.conn, &self.key, frame) {
                    Ok(None) => self.pending.greeted(id),
                    Ok(Some(_)) => {
                        client.phase = Phase::Proved;
                        self.pending.leave(id);
                    }
                    Err(e) => return self.broken(id, e),
                },
                Phase::Proved => match ToRoot::decode(&frame) {
                    Ok(ToRoot::Join(join)) => {
                        client.phase = Phase::Member(join.rank);
                        self.job.join(id, join, Instant::now());
                        self.job.check(&self.absent);
                        self.joined.store(self.job.n_joined(), Ordering::Relaxed);
                        self.deliver();
                    }
                    Ok(_) => return self.broken(id, Broken::Malformed("it has not joined yet".into())),
                    Err(e) => return self.broken(id, e),
                },
                Phase::Member(rank) => {
                    let rank = *rank;
                    match ToRoot::decode(&frame) {
                        Ok(ToRoot::Meshed) => self.job.meshed(id, rank),
                        Ok(ToRoot::Leave(error)) => {
                            client.phase = Phase::Leaving;
                            self.job.left(id, rank, error);
                        }
                        Ok(ToRoot::Join(_)) => {
                            return self.broken(id, Broken::Malformed("it joins twice".into()))
                        }
                        Err(e) => return self.broken(id, e),
                    }
                }
            }
        }
        self.watch(id);
    }

    /// The connection of `id` is of no more use.
    fn broken(&mut self, id: u64, e: Broken) {
        let Some(client) = self.clients.get(&id) else { return };
        match &client.phase {
            // Others' ports are tried by jobs that look for their own.
            Phase::Stranger(acceptor)
                if matches!(e, Broken::OtherJob) || (acceptor.greeted() && matches!(e, Broken::Closed)) =>
            {
                log::debug!("rushmem uid: a process looked for another job here");
                self.pending.leave(id);
                self.clients.remove(&id);
            }
            Phase::Stranger(_) => {
                if let Broken::Version(_) = e {
                    self.job.turned_away(&client.conn.peer(), &e.to_string());
                }
                self.refuse(id, e);
            }
            Phase::Member(rank) => {
                let rank = *rank;
                self.clients.remove(&id);
                self.job.lost(id, rank, &e.to_string());
            }
            Phase::Proved | Phase::Leaving => {
                self.clients.remove(&id);
            }
        }
    }

    /// Asks epoll for what the connection needs now.
    fn watch(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let writing = client.conn.has_output();
        if writing != client.writing {
            client.writing = writing;
            let flags =
                if writing { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let _ = self.epoll.modify(client.conn.as_fd(), &mut EpollEvent::new(flags, id));
        }
        if !writing && matches!(client.phase, Phase::Leaving) {
            let _ = client.conn.stream().shutdown(Shutdown::Write);
        }
    }

    /// Sends what the job has to say. Losing a member while doing so may make it say more.
    fn deliver(&mut self) {
        while !self.job.outbox.is_empty() {
            for (id, message) in std::mem::take(&mut self.job.outbox) {
                let Some(client) = self.clients.get_mut(&id) else { continue };
                if let Err(e) = message.send(&mut client.conn) {
                    self.broken(id, e);
                    continue;
                }
                if matches!(message, ToRank::Go | ToRank::Failed(_)) {
                    client.phase = Phase::Leaving;
                }
                self.watch(id);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        while let Some(id) = self.pending.overdue(now, HANDSHAKE_LIMIT) {
            self.refuse(id, format!("it did not prove to belong to the job within {HANDSHAKE_LIMIT:?}"));
        }
        if self.resting.is_some_and(|at| at <= now) {
            self.resting = None;
            if let Some(listener) = &self.listener {
                let _ = self.epoll.modify(listener, &mut EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
            }
        }
        self.job.expire(now);
        match self.job.stage() {
            Stage::Gathering => {}
            // Until it is stopped, which takes the listener away.
            Stage::Connecting | Stage::Done if self.standing && self.listener.is_some() => {
                // Ranks come again only after they learned that all are connected, so everything still open
                // belongs to the world that is done and needs no job any more.
                if *self.job.stage() == Stage::Done && self.job.outbox.is_empty() {
                    self.job = new_job(self.addr);
                    self.joined.store(0, Ordering::Relaxed);
                }
            }
            Stage::Connecting | Stage::Done => {
                // No rank is missing, so this is none of the job.
                if self.listener.take().is_some() {
                    self.clients.retain(|_, c| !matches!(c.phase, Phase::Stranger(_) | Phase::Proved));
                    self.pending = Pending::new(pending::room());
                }
                if *self.job.stage() == Stage::Done {
                    self.end.get_or_insert(now + LAST_WORDS);
                }
            }
            Stage::Failed(_) => {
                self.end.get_or_insert(now + LATECOMERS);
            }
        }
    }

    fn finished(&self, now: Instant) -> bool {
        if self.end.is_some_and(|end| end <= now) {
            return true;
        }
        // A failed rendezvous waits for latecomers as long as it listens.
        let over = matches!(self.job.stage(), Stage::Done | Stage::Failed(_));
        over && self.listener.is_none() && self.clients.is_empty()
    }
}
