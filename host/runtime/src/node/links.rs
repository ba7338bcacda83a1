//! The sockets between the PEs of a node, as a star around the node's leader (its lowest PE, slot 0).
//!
//! They carry two things: descriptors of memory to map, and bad news. An end of file without a goodbye is a death,
//! seen within milliseconds; the leader tells the others, and everybody sees the leader's own. A star costs `n - 1`
//! sockets for a node of `n` PEs where a mesh costs `n * (n - 1) / 2`, and one message moves up to 253 descriptors.
//! A monitor thread of each PE reads the sockets, and does the periodic duties of the world.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{Bootstrap, Death};

use super::card::Card;
use super::message::{Socket, MAX_BYTES, MAX_FDS};
use crate::error::{err, Error, Result};
use crate::health::Health;

/// How often the monitor looks at what cannot wake it: the bootstrap, kernels' stall records.
const TICK: Duration = Duration::from_millis(100);

const HELLO: u8 = 1;
const FDS: u8 = 2;
const DEATH: u8 = 3;
const BYE: u8 = 4;
const LEFT: u8 = 5;

/// Between the PE and the reason, in the text by which the bootstrap tells of a PE that left without finalising.
const LEFT_TEXT: &str = " left the job without finalize: ";

/// The text that tells other PEs that `who` left without finalising.
pub(crate) fn left_text(who: &str, why: &str) -> String {
    format!("{who}{LEFT_TEXT}{why}")
}

/// A periodic duty of the monitor thread.
pub(crate) type Duty = Box<dyn FnMut() + Send>;

/// Descriptors that arrived and nobody took yet, by exchange number and slot.
#[derive(Debug, Default)]
struct Inbox {
    fds: HashMap<(u64, usize), OwnedFd>,
}

struct Shared {
    me: usize,
    cards: Arc<Vec<Card>>,
    /// The leader's: one for each other slot. A follower's: the leader's at 0.
    sockets: Vec<Option<Socket>>,
    health: Arc<Health>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    stop: AtomicBool,
    wake: OwnedFd,
    duties: Mutex<Vec<Duty>>,
}

/// The star as one PE sees it.
pub(crate) struct Links {
    shared: Arc<Shared>,
    monitor: Option<JoinHandle<()>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// Connects slot `me` of a node whose PEs have `cards`; `listener` was made under this PE's own card before the
    /// cards were exchanged, so nobody dials too early.
    pub(crate) fn connect(
        me: usize,
        cards: Arc<Vec<Card>>,
        listener: Socket,
        health: Arc<Health>,
        boot: Arc<dyn Bootstrap>,
        limit: Duration,
    ) -> Result<Links> {
        let n = cards.len();
        let sockets = if n == 1 {
            vec![None]
        } else if me == 0 {
            gather(&listener, &cards, &*boot, limit)?
        } else {
            vec![Some(dial(me, &cards[0])?)]
        };
        // SAFETY: a plain system call; the descriptor is new.
        let wake = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(Error::os("eventfd"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        log::debug!(
            "{}: connected with {} of the {} PEs of this node, by sockets",
            health.who(),
            sockets.iter().flatten().count(),
            n - 1
        );
        let shared = Arc::new(Shared {
            me,
            cards,
            sockets,
            health,
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            stop: AtomicBool::new(false),
            wake,
            duties: Mutex::default(),
        });
        let watched = Arc::clone(&shared);
        let monitor = std::thread::Builder::new()
            .name("rushmem-monitor".into())
            .spawn(move || watched.monitor(&*boot))
            .map_err(|e| err!(IO, "starting the monitor thread: {e}"))?;
        Ok(Links { shared, monitor: Some(monitor) })
    }

    /// Runs `duty` on the monitor thread several times a second.
    pub(crate) fn every_tick(&self, duty: Duty) {
        lock(&self.shared.duties).push(duty);
    }

    /// Collective on the node: everybody gets everybody's descriptor, by slot. `id` tells exchanges apart.
    pub(crate) fn exchange(&self, id: u64, mine: BorrowedFd<'_>, limit: Duration) -> Result<Vec<OwnedFd>> {
        let s = &*self.shared;
        let n = s.cards.len();
        let own = mine.try_clone_to_owned().map_err(|e| err!(IO, "duplicating a descriptor: {e}"))?;
        if s.me == 0 {
            let mut all = vec![own];
            for slot in 1..n {
                all.push(s.take(id, slot, limit)?);
            }
            for socket in s.sockets.iter().flatten() {
                for (first, part) in all.chunks(MAX_FDS).enumerate() {
                    let raw: Vec<RawFd> = part.iter().map(|f| f.as_raw_fd()).collect();
                    // A peer that is gone shows as a death, not as this call's failure.
                    let _ = socket.send(&fds_message(id, first * MAX_FDS), &raw);
                }
            }
            Ok(all)
        } else {
            s.leader().send(&fds_message(id, s.me), &[mine.as_raw_fd()]).map_err(|e| s.lost_leader(&e))?;
            (0..n).map(|slot| s.take(id, slot, limit)).collect()
        }
    }

    /// Collective on the node: everybody gets the leader's descriptor.
    pub(crate) fn receive_from_leader(
        &self,
        id: u64,
        mine: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> Result<OwnedFd> {
        let s = &*self.shared;
        let Some(mine) = mine else { return s.take(id, 0, limit) };
        for socket in s.sockets.iter().flatten() {
            let _ = socket.send(&fds_message(id, 0), &[mine.as_raw_fd()]);
        }
        mine.try_clone_to_owned().map_err(|e| err!(IO, "duplicating a descriptor: {e}"))
    }

    /// Tells the node that this PE leaves in good order.
    pub(crate) fn goodbye(&self) {
        tell_all(&self.shared.sockets, &[BYE]);
    }

    /// Tells the node that this PE leaves because of `why`.
    pub(crate) fn abort(&self, why: &str) {
        let s = &*self.shared;
        tell_all(&s.sockets, &death_message(s.me, &format!("{} left the job: {why}", s.cards[s.me].who())));
        self.goodbye();
    }

    /// Tells the node that this PE leaves without finalising, as the others may be about to do themselves.
    pub(crate) fn leave(&self, why: &str) {
        let s = &*self.shared;
        let mut message = death_message(s.me, &left_text(&s.cards[s.me].who(), why));
        message[0] = LEFT;
        tell_all(&s.sockets, &message);
        self.goodbye();
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to an open eventfd.
        unsafe { libc::write(self.shared.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if let Some(monitor) = self.monitor.take() {
            let _ = monitor.join();
        }
    }
}

/// The leader's side: accepts every other slot of the node; strangers are turned away.
fn gather(
    listener: &Socket,
    cards: &[Card],
    boot: &dyn Bootstrap,
    limit: Duration,
) -> Result<Vec<Option<Socket>>> {
    let mut sockets: Vec<Option<Socket>> = cards.iter().map(|_| None).collect();
    let all = accept_all(&mut sockets, listener, cards, boot, limit);
    // Those that came must not take this PE's end for the cause.
    all.inspect_err(|e| tell_all(&sockets, &death_message(0, &e.message)))?;
    Ok(sockets)
}

/// A death as the bootstrap tells it, which counts ranks: those are the PEs' numbers.
fn in_pes(death: Death) -> String {
    let pe = format!("PE {}", death.rank);
    match death.what.contains(&format!("{pe} ")) {
        true => death.what,
        false => format!("{pe} is gone: {}", death.what),
    }
}

fn accept_all(
    sockets: &mut [Option<Socket>],
    listener: &Socket,
    cards: &[Card],
    boot: &dyn Bootstrap,
    limit: Duration,
) -> Result<()> {
    let start = Instant::now();
    let io = |e: std::io::Error| err!(IO, "accepting the node's PEs: {e}");
    while sockets.iter().skip(1).any(Option::is_none) {
        if let Some(death) = boot.death() {
            return Err(err!(PEER_DEAD, "{}", in_pes(death)));
        }
        if start.elapsed() > limit {
            let missing = sockets.iter().enumerate().skip(1).filter(|(_, s)| s.is_none());
            let missing: Vec<String> = missing.map(|(slot, _)| cards[slot].who()).collect();
            return Err(err!(
                TIMEOUT,
                "never connected on this host within {limit:?}: {}",
                missing.join(", ")
            ));
        }
        if !listener.readable(TICK).map_err(io)? {
            continue;
        }
        let Some(socket) = listener.accept().map_err(io)? else { continue };
        if !socket.readable(Duration::from_secs(2)).map_err(io)? {
            log::warn!("a stranger connected to the node's socket and said nothing; refused");
            continue;
        }
        let (hello, _) = socket.receive().map_err(io)?;
        match parse_hello(&hello, &cards[0].secret) {
            Some(slot) if slot < cards.len() && slot > 0 && sockets[slot].is_none() => {
                sockets[slot] = Some(socket)
            }
            _ => log::warn!("a stranger connected to the node's socket; refused"),
        }
    }
    Ok(())
}

fn tell_all(sockets: &[Option<Socket>], message: &[u8]) {
    for socket in sockets.iter().flatten() {
        // A peer that is gone shows as a death elsewhere.
        let _ = socket.send(message, &[]);
    }
}

/// A follower's side.
fn dial(me: usize, leader: &Card) -> Result<Socket> {
    let lost = |e: std::io::Error| err!(PEER_DEAD, "connecting to {}: {e}; has it died?", leader.who());
    let socket = Socket::connect(&leader.link).map_err(lost)?;
    let mut hello = vec![HELLO];
    hello.extend_from_slice(&(me as u64).to_le_bytes());
    hello.extend_from_slice(&leader.secret);
    socket.send(&hello, &[]).map_err(lost)?;
    Ok(socket)
}

fn parse_hello(m: &[u8], secret: &[u8; 16]) -> Option<usize> {
    (m.len() == 25 && m[0] == HELLO && &m[9..] == secret).then(|| word(m) as usize)
}

fn word(m: &[u8]) -> u64 {
    u64::from_le_bytes(m[1..9].try_into().expect("eight bytes"))
}

fn fds_message(id: u64, first_slot: usize) -> Vec<u8> {
    let mut m = vec![FDS];
    m.extend_from_slice(&id.to_le_bytes());
    m.extend_from_slice(&(first_slot as u64).to_le_bytes());
    m
}

fn death_message(slot: usize, what: &str) -> Vec<u8> {
    let mut m = vec![DEATH];
    m.extend_from_slice(&(slot as u64).to_le_bytes());
    m.extend_from_slice(what.as_bytes());
    m.truncate(MAX_BYTES);
    m
}

impl Shared {
    fn leader(&self) -> &Socket {
        self.sockets[0].as_ref().expect("a follower has the leader's socket at 0")
    }

    /// The leader's socket broke: why, once the monitor has read what came before the end.
    fn lost_leader(&self, e: &std::io::Error) -> Error {
        for _ in 0..100 {
            if let Err(why) = self.health.check() {
                return why;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        err!(PEER_DEAD, "sending a descriptor to {}: {e}", self.cards[0].who())
    }

    /// Waits for a descriptor to arrive.
    fn take(&self, id: u64, slot: usize, limit: Duration) -> Result<OwnedFd> {
        let start = Instant::now();
        let mut inbox = lock(&self.inbox);
        loop {
            if let Some(fd) = inbox.fds.remove(&(id, slot)) {
                return Ok(fd);
            }
            self.health.check()?;
            if start.elapsed() > limit {
                let who = self.cards[slot].who();
                return Err(err!(TIMEOUT, "{} waited {limit:?} for the memory of {who}", self.health.who()));
            }
            inbox = self.arrived.wait_timeout(inbox, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn monitor(&self, boot: &dyn Bootstrap) {
        let mut open: Vec<usize> = (0..self.sockets.len()).filter(|i| self.sockets[*i].is_some()).collect();
        let mut next_tick = Instant::now();
        let mut heard = false;
        while !self.stop.load(Ordering::Acquire) {
            let mut polls: Vec<libc::pollfd> = open
                .iter()
                .map(|i| self.sockets[*i].as_ref().expect("only open ones").as_raw_fd())
                .chain([self.wake.as_fd().as_raw_fd()])
                .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
                .collect();
            // SAFETY: an array of pollfd with its length.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, TICK.as_millis() as i32) };
            let ready: Vec<usize> =
                open.iter().zip(&polls).filter(|(_, p)| p.revents != 0).map(|(i, _)| *i).collect();
            for i in ready {
                if !self.read(i) {
                    open.retain(|o| *o != i);
                }
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                // At the second look: what dies with its host is to be named with it.
                match boot.death() {
                    Some(death) if death.what.contains(LEFT_TEXT) => self.has_left(in_pes(death), None),
                    Some(death) if heard => self.bad_news(in_pes(death), None),
                    death => heard = death.is_some(),
                }
                if let Some(why) = self.health.left_for_good() {
                    self.bad_news(why, None);
                }
                lock(&self.duties).iter_mut().for_each(|duty| duty());
            }
        }
        // Whoever comes after reads no stale descriptors.
        lock(&self.inbox).fds.clear();
    }

    /// Reads one message of socket `i`; false once that peer has left.
    fn read(&self, i: usize) -> bool {
        let socket = self.sockets[i].as_ref().expect("only open ones");
        // A reset connection is a death as well.
        let (message, fds) = socket.receive().unwrap_or_default();
        match message.first() {
            Some(&FDS) if message.len() == 17 => {
                let first = u64::from_le_bytes(message[9..17].try_into().expect("eight bytes")) as usize;
                let mut inbox = lock(&self.inbox);
                for (k, fd) in fds.into_iter().enumerate() {
                    inbox.fds.insert((word(&message), first + k), fd);
                }
                drop(inbox);
                self.arrived.notify_all();
                true
            }
            Some(&DEATH) if message.len() >= 9 => {
                self.bad_news(String::from_utf8_lossy(&message[9..]).into_owned(), Some(i));
                true
            }
            Some(&LEFT) if message.len() >= 9 => {
                self.has_left(String::from_utf8_lossy(&message[9..]).into_owned(), Some(i));
                true
            }
            Some(&BYE) => false,
            _ => {
                let what = format!(
                    "{} is gone: its process ended without leaving the job (killed, crashed or exited early)",
                    self.cards[i].who()
                );
                self.bad_news(what, Some(i));
                false
            }
        }
    }

    /// A PE has left without finalising; the node's other PEs hear of it from their leader.
    fn has_left(&self, what: String, from: Option<usize>) {
        if self.me == 0 && !self.health.is_leaving() && self.health.check_all_here().is_ok() {
            let mut message = death_message(self.me, &what);
            message[0] = LEFT;
            self.pass_on(&message, from);
        }
        self.health.note_left(what);
    }

    fn pass_on(&self, message: &[u8], from: Option<usize>) {
        for (i, socket) in self.sockets.iter().enumerate() {
            if let Some(socket) = socket.as_ref().filter(|_| Some(i) != from) {
                let _ = socket.send(message, &[]);
            }
        }
    }

    /// Passes the first news of a death on before this PE itself acts on it: it may exit because of it at once, and
    /// whoever sees *that* must have been told the cause before.
    fn bad_news(&self, what: String, from: Option<usize>) {
        if !self.health.is_leaving() && self.health.check().is_ok() {
            self.pass_on(&death_message(self.me, &what), from);
            self.health.break_job(what);
        }
        self.arrived.notify_all();
    }
}
