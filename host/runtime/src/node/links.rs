//! The sockets between the PEs of a node, as a star around the node's leader (its lowest PE, slot 0).
//!
//! They carry two things: descriptors of memory to map, and reports of deaths. An end of file without a
//! goodbye is a death, seen within milliseconds, as is the end of a process whose child keeps its socket
//! ([`mate`](super::mate)); the leader reports it to the others, and all of them see the leader's own end. A
//! star costs `n - 1` sockets for a node of `n` PEs where a mesh costs `n * (n - 1) / 2`, and one message
//! moves up to 253 descriptors. A monitor thread of each PE reads the sockets, and does the periodic duties
//! of the world.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Bootstrap;

use super::inbox::NodeInbox;
use super::mate::{pidfd_of, Mate};
#[cfg(any(test, feature = "fuzzing"))]
use super::meet::parse_hello;
use super::meet::{dial, gather};
use super::message::{Socket, MAX_FDS};
use super::notice::{
    death_message, fds_message, in_pes, left_text, tell_all, text_message, word, BYE, DEATH, FAILED, FDS,
    LEFT, LEFT_TEXT, TICK,
};
use crate::error::{err, Error, Result};
use crate::health::Health;
use crate::topology::card::Card;

/// A periodic duty of the monitor thread.
pub(crate) type Duty = Box<dyn FnMut() + Send>;

struct LinksState {
    me: usize,
    cards: Arc<Vec<Card>>,
    /// The leader's: one for each other slot. A follower's: the leader's at 0.
    sockets: Vec<Option<Socket>>,
    /// Of the process at each socket's other end, where it can be had.
    pidfds: Vec<Option<OwnedFd>>,
    mates: Vec<Mate>,
    health: Arc<Health>,
    boot: Arc<dyn Bootstrap>,
    inbox: NodeInbox,
    /// Whether this PE's leader has said anything, as it does before a world is complete.
    leader_spoke: AtomicBool,
    stop: AtomicBool,
    wake: OwnedFd,
    duties: Mutex<Vec<Duty>>,
}

/// How much later the bootstrap may report a death than the end of a process that learned of it.
const GRACE: Duration = Duration::from_millis(200);

/// The star as one PE sees it.
pub(crate) struct Links {
    shared: Arc<LinksState>,
    monitor: Option<JoinHandle<()>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// Connects slot `me` of a node whose PEs have `cards`; `listener` was made under this PE's own card
    /// before the cards were exchanged, so nobody dials too early.
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
        let pidfds = sockets.iter().map(|s| s.as_ref().and_then(pidfd_of)).collect();
        let mates =
            sockets.iter().zip(cards.iter()).filter_map(|(s, card)| Mate::of(s.as_ref()?, card)).collect();
        log::debug!(
            "{}: connected with {} of the {} PEs of this node, by sockets",
            health.who(),
            sockets.iter().flatten().count(),
            n - 1
        );
        let shared = Arc::new(LinksState {
            me,
            cards,
            sockets,
            pidfds,
            mates,
            health,
            boot,
            inbox: NodeInbox::default(),
            leader_spoke: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake,
            duties: Mutex::default(),
        });
        let watched = Arc::clone(&shared);
        let monitor = std::thread::Builder::new()
            .name("rushmem-monitor".into())
            .spawn(move || watched.monitor())
            .map_err(|e| Error::thread("the monitor thread", &e))?;
        Ok(Links { shared, monitor: Some(monitor) })
    }

    /// Runs `duty` on the monitor thread several times a second.
    pub(crate) fn every_tick(&self, duty: Duty) {
        lock(&self.shared.duties).push(duty);
    }

    /// Collective on the node: everybody gets everybody's descriptor, by slot. `id` tells exchanges apart,
    /// and grows. An error on some PEs leaves the others theirs, so callers agree on how it went.
    pub(crate) fn exchange(&self, id: u64, mine: BorrowedFd<'_>, limit: Duration) -> Result<Vec<OwnedFd>> {
        let s = &*self.shared;
        s.inbox.forget_before(id);
        if s.me > 0 {
            s.leader().send(&fds_message(id, s.me), &[mine.as_raw_fd()]).map_err(|e| s.lost_leader(&e))?;
            return (0..s.cards.len()).map(|slot| s.take(id, slot, limit)).collect();
        }
        let own = mine.try_clone_to_owned().map_err(|e| Error::io("duplicating a descriptor", &e));
        let others = (1..s.cards.len()).map(|slot| s.take(id, slot, limit));
        let all = std::iter::once(own).chain(others).collect::<Result<Vec<_>>>();
        // Nobody waits for what cannot come.
        let all = all.inspect_err(|e| tell_all(&s.sockets, &text_message(FAILED, id, &e.message)))?;
        for socket in s.sockets.iter().flatten() {
            for (first, part) in all.chunks(MAX_FDS).enumerate() {
                let raw: Vec<RawFd> = part.iter().map(|f| f.as_raw_fd()).collect();
                // A peer that is gone shows as a death, not as this call's failure.
                let _ = socket.send(&fds_message(id, first * MAX_FDS), &raw);
            }
        }
        Ok(all)
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
        mine.try_clone_to_owned().map_err(|e| Error::io("duplicating a descriptor", &e))
    }

    /// The processes at the other ends of the sockets, where a later process with the same pid can be
    /// recognised as another.
    pub(crate) fn mates(&self) -> Vec<Mate> {
        self.shared.mates.clone()
    }

    /// Tells the node that this PE leaves in good order.
    pub(crate) fn goodbye(&self) {
        tell_all(&self.shared.sockets, &[BYE]);
    }

    /// Tells the node that this PE leaves because of `why`.
    pub(crate) fn abort(&self, why: &str) {
        let s = &*self.shared;
        tell_all(&s.sockets, &death_message(None, &format!("{} left the job: {why}", s.cards[s.me].who())));
        self.goodbye();
    }

    /// Tells the node that this PE leaves without finalising, as the others may be about to do themselves.
    pub(crate) fn leave(&self, why: &str) {
        let s = &*self.shared;
        let mut message = death_message(None, &left_text(&s.cards[s.me].who(), why));
        message[0] = LEFT;
        tell_all(&s.sockets, &message);
        self.goodbye();
    }
}

impl Links {
    /// The process ends: the monitor and its duties, too, which look at memory of the GPU driver's. A duty
    /// that takes long is not waited for.
    pub(crate) fn halt(&self) {
        self.stop();
        let until = Instant::now() + TICK;
        while self.monitor.as_ref().is_some_and(|monitor| !monitor.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to an open eventfd.
        unsafe { libc::write(self.shared.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.stop();
        if let Some(monitor) = self.monitor.take() {
            let _ = monitor.join();
        }
    }
}

impl LinksState {
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
        self.inbox.take(id, slot, &self.cards, &self.health, limit)
    }

    fn monitor(&self) {
        let mut open: Vec<usize> = (0..self.sockets.len()).filter(|i| self.sockets[*i].is_some()).collect();
        let mut next_tick = Instant::now();
        let mut seen = false;
        while !self.stop.load(Ordering::Acquire) {
            let mut polls: Vec<libc::pollfd> = open
                .iter()
                .map(|i| self.sockets[*i].as_ref().expect("only open ones").as_raw_fd())
                // poll passes over negative ones.
                .chain(open.iter().map(|i| self.pidfds[*i].as_ref().map_or(-1, AsRawFd::as_raw_fd)))
                .chain([self.wake.as_fd().as_raw_fd()])
                .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
                .collect();
            // SAFETY: an array of pollfd with its length.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, TICK.as_millis() as i32) };
            let is_ready = |at: usize| polls[at].revents != 0;
            let left: Vec<usize> = (0..open.len())
                .filter(|at| {
                    let has_left = is_ready(*at) && !self.read(open[*at]);
                    has_left || (is_ready(open.len() + *at) && self.is_over(open[*at]))
                })
                .map(|at| open[at])
                .collect();
            open.retain(|i| !left.contains(i));
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                // At the second look: what dies with its host is to be named with it.
                match self.boot.death() {
                    Some(death) if death.what.contains(LEFT_TEXT) => self.has_left(in_pes(death), None),
                    Some(death) if seen => self.report_death(in_pes(death), None, None),
                    death => seen = death.is_some(),
                }
                if let Some(why) = self.health.left_for_good() {
                    self.report_death(why, None, None);
                }
                lock(&self.duties).iter_mut().for_each(|duty| duty());
            }
        }
        self.inbox.clear();
    }

    /// Reads one message of socket `i`; false once that peer has left.
    fn read(&self, i: usize) -> bool {
        let socket = self.sockets[i].as_ref().expect("only open ones");
        // A connection that broke otherwise is an end as well.
        let message = socket.receive_message().unwrap_or_default();
        let bytes = &message.bytes;
        if !bytes.is_empty() {
            self.leader_spoke.store(true, Ordering::Relaxed);
        }
        match bytes.first() {
            Some(&FDS) if bytes.len() == 17 => {
                let first = u64::from_le_bytes(bytes[9..17].try_into().expect("eight bytes")) as usize;
                if first.checked_add(message.fds.len()).is_none_or(|end| end > self.cards.len()) {
                    log::warn!(
                        "{} sends descriptors of PEs that are not there; dropped",
                        self.cards[i].who()
                    );
                    return true;
                }
                self.inbox.put(word(bytes), first, message);
                true
            }
            Some(&DEATH) if bytes.len() >= 9 => {
                let dead = u32::try_from(word(bytes)).ok().filter(|pe| *pe < self.boot.n_ranks());
                self.report_death(String::from_utf8_lossy(&bytes[9..]).into_owned(), Some(i), dead);
                true
            }
            Some(&FAILED) if bytes.len() >= 9 => {
                self.inbox.fail(word(bytes), String::from_utf8_lossy(&bytes[9..]).into_owned());
                true
            }
            Some(&LEFT) if bytes.len() >= 9 => {
                self.has_left(String::from_utf8_lossy(&bytes[9..]).into_owned(), Some(i));
                true
            }
            Some(&BYE) => false,
            _ => {
                self.is_gone(i);
                false
            }
        }
    }

    /// The process at the other end of socket `i` has ended, though another process may hold the socket open:
    /// what it said before counts. Always true: nothing more comes from there.
    fn is_over(&self, i: usize) -> bool {
        let socket = self.sockets[i].as_ref().expect("only open ones");
        while matches!(socket.readable(Duration::ZERO), Ok(true)) {
            if !self.read(i) {
                return true;
            }
        }
        self.is_gone(i);
        true
    }

    fn is_gone(&self, i: usize) {
        // A leader may have ended because of another PE before it had links to say so: the bootstrap knows.
        if self.me > 0 && !self.leader_spoke.load(Ordering::Relaxed) {
            let until = Instant::now() + GRACE;
            let mut death = self.boot.death();
            while death.is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
                death = self.boot.death();
            }
            if let Some(death) = death.filter(|death| death.rank != self.cards[i].pe) {
                return self.report_death(in_pes(death), None, None);
            }
        }
        let what = format!(
            "{} is gone: its process ended without leaving the job (killed, crashed or exited early)",
            self.cards[i].who()
        );
        self.report_death(what, Some(i), Some(self.cards[i].pe));
    }

    /// A PE has left without finalising; the node's other PEs learn of it from their leader.
    fn has_left(&self, what: String, from: Option<usize>) {
        if self.me == 0 && !self.health.is_leaving() && self.health.check_all_here().is_ok() {
            let mut message = death_message(None, &what);
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

    /// Passes the first report of a death on, also to the bootstrap where that does not know of `dead` yet,
    /// before this PE acts on it: it may exit at once because of it, and a PE that sees *that* exit must know
    /// the cause before.
    fn report_death(&self, what: String, from: Option<usize>, dead: Option<u32>) {
        if !self.health.is_leaving() && self.health.check().is_ok() {
            self.pass_on(&death_message(dead, &what), from);
            if let Some(pe) = dead {
                self.boot.report_death(pe, &what);
            }
            self.health.break_job(what);
        }
        self.inbox.wake();
    }
}

/// The messages of a leader, as a follower reads them: the first byte of each says how many descriptors go
/// with it.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz(bytes: &[u8]) {
    let name = crate::topology::card::random().expect("random bytes");
    let listener = Socket::listen(&name).expect("a free name");
    let leader = Socket::connect(&name).expect("it listens");
    let follower = listener.accept().expect("it has connected").expect("this user's own");
    let card = |pe: u32| Card { pe, ..Card::decode(&[0; crate::topology::card::CARD_BYTES]) };
    let shared = LinksState {
        me: 1,
        cards: Arc::new((0..3).map(card).collect()),
        sockets: vec![Some(follower)],
        health: Arc::new(Health::new("PE 1".into(), false, None)),
        boot: Arc::new(rushmem_bootstrap_uid::Single),
        pidfds: vec![None],
        mates: Vec::new(),
        inbox: NodeInbox::default(),
        leader_spoke: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        // Any descriptor: nobody waits.
        wake: listener.as_fd().try_clone_to_owned().expect("a descriptor"),
        duties: Mutex::default(),
    };
    for part in crate::seeds::parts(bytes) {
        let Some((count, message)) = part.split_first() else { continue };
        let message = &message[..message.len().min(super::message::MAX_BYTES)];
        let fds = vec![listener.as_raw_fd(); usize::from(*count) % 5];
        assert_ne!(parse_hello(message, &[7; 16]), Some(usize::MAX), "a hello of nobody");
        if !message.is_empty() {
            leader.send(message, &fds).expect("it reads");
            if !shared.read(0) {
                break;
            }
        }
    }
    assert!(shared.inbox.slots().into_iter().all(|slot| slot < 3), "kept for a PE that does not exist");
}
