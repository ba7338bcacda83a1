//! How the PEs of a node come to be connected: the leader accepts, each follower dials it.
//!
//! Any process in this network namespace may connect to an abstract socket. Both ends therefore ask the
//! kernel for the other's user, and a follower sends the secret from the leader's card. Connections are
//! served side by side, and always taken: of those that have said nothing yet, the oldest goes when there are
//! many, so no follower waits for a stranger.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Bootstrap;

use super::message::Socket;
use super::notice::{death_message, in_pes, tell_all, word, HELLO, TICK};
use crate::error::{err, Error, Result};
use crate::topology::card::Card;

/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(2);
/// The same where others wait for its descriptor. A follower says hello at once, but for a busy machine.
const SHORT_SILENCE: Duration = Duration::from_millis(250);
/// Connections that have said nothing yet, at a time.
const MAX_SILENT: usize = 128;

/// The leader's side: accepts every other slot of the node; strangers are turned away.
pub(super) fn gather(
    listener: &Socket,
    cards: &[Card],
    boot: &dyn Bootstrap,
    limit: Duration,
) -> Result<Vec<Option<Socket>>> {
    let mut sockets: Vec<Option<Socket>> = cards.iter().map(|_| None).collect();
    let all = accept_all(&mut sockets, listener, cards, boot, limit);
    // Those that came must not take this PE's end for the cause.
    all.inspect_err(|e| tell_all(&sockets, &death_message(None, &e.message)))?;
    Ok(sockets)
}

fn accept_all(
    sockets: &mut [Option<Socket>],
    listener: &Socket,
    cards: &[Card],
    boot: &dyn Bootstrap,
    limit: Duration,
) -> Result<()> {
    let start = Instant::now();
    let mut silent: VecDeque<(Instant, Socket)> = VecDeque::new();
    let mut strangers = Strangers::default();
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
        let (dialled, spoken) = wait(listener, &silent)?;
        // From behind, so that the numbers of the others stay.
        for at in spoken.into_iter().rev() {
            let Some((_, socket)) = silent.remove(at) else { continue };
            // One that breaks now is a stranger's, or a follower's that has died, which the bootstrap
            // reports.
            let hello = socket.receive().map(|(bytes, _)| bytes).unwrap_or_default();
            match parse_hello(&hello, &cards[0].secret) {
                Some(slot) if slot < cards.len() && slot > 0 && sockets[slot].is_none() => {
                    sockets[slot] = Some(socket)
                }
                _ => strangers.refused("did not know this job"),
            }
        }
        while silent.front().is_some_and(|(since, _)| since.elapsed() > SILENCE) {
            silent.pop_front();
            strangers.refused("said nothing");
        }
        if !dialled {
            continue;
        }
        match listener.accept() {
            Ok(Some(socket)) => {
                if silent.len() == MAX_SILENT {
                    silent.pop_front();
                    strangers.refused("said nothing while others came");
                }
                silent.push_back((Instant::now(), socket));
            }
            Ok(None) => strangers.refused("belongs to another user"),
            // It has gone again.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
            // No descriptors: there are some once a stranger goes.
            Err(e) => match silent.front() {
                None => return Err(Error::io("accepting the node's PEs", &e)),
                Some((since, _)) if since.elapsed() > SHORT_SILENCE => {
                    silent.pop_front();
                    strangers.refused("took the last descriptors");
                }
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
            },
        }
    }
    Ok(())
}

/// Waits for a tick at most. Returns whether a connection is to be accepted, and which of the silent have
/// spoken.
fn wait(listener: &Socket, silent: &VecDeque<(Instant, Socket)>) -> Result<(bool, Vec<usize>)> {
    let fds = [listener].into_iter().chain(silent.iter().map(|(_, s)| s)).map(AsRawFd::as_raw_fd);
    let mut polls: Vec<libc::pollfd> =
        fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: an array of pollfd with its length.
    let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, TICK.as_millis() as i32) };
    let e = std::io::Error::last_os_error();
    if n < 0 && e.kind() != std::io::ErrorKind::Interrupted {
        return Err(err!(IO, "waiting for the node's PEs: {e}"));
    }
    if n <= 0 {
        return Ok((false, Vec::new()));
    }
    let spoken = polls[1..].iter().enumerate().filter(|(_, p)| p.revents != 0).map(|(at, _)| at);
    Ok((polls[0].revents != 0, spoken.collect()))
}

/// Counts those that were turned away, and warns of the first few.
#[derive(Default)]
struct Strangers {
    seen: u32,
}

impl Strangers {
    fn refused(&mut self, why: &str) {
        self.seen = self.seen.saturating_add(1);
        let level = if self.seen <= 10 { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "a stranger connected to the node's socket and {why}; refused");
    }
}

/// A follower's side.
pub(super) fn dial(me: usize, leader: &Card) -> Result<Socket> {
    let lost = |e: std::io::Error| match e.raw_os_error() {
        // This process' own trouble.
        Some(libc::EMFILE | libc::ENFILE) => Error::io(format_args!("connecting to {}", leader.who()), &e),
        _ => err!(PEER_DEAD, "connecting to {}: {e}; has it died?", leader.who()),
    };
    let socket = Socket::connect(&leader.link).map_err(lost)?;
    if !socket.peer_is_this_user().map_err(lost)? {
        return Err(err!(
            PEER_DEAD,
            "the socket of {} belongs to another user: it has died and a stranger listens in its place, or \
             the PEs of this host were started as different users",
            leader.who()
        ));
    }
    let mut hello = vec![HELLO];
    hello.extend_from_slice(&(me as u64).to_le_bytes());
    hello.extend_from_slice(&leader.secret);
    socket.send(&hello, &[]).map_err(lost)?;
    Ok(socket)
}

pub(super) fn parse_hello(m: &[u8], secret: &[u8; 16]) -> Option<usize> {
    (m.len() == 25 && m[0] == HELLO && &m[9..] == secret).then(|| word(m) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::device::DeviceKind;
    use rushmem_bootstrap_uid::Single;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn cards(n: u32) -> Vec<Card> {
        let config = Config::from_lookup(&|_| None).expect("the defaults");
        (0..n).map(|pe| Card::mine(&config, pe, DeviceKind::Cpu).expect("a card")).collect()
    }

    /// Each took two seconds once, one after the other: ten of them were more than a start may take.
    #[test]
    fn strangers_that_say_nothing_or_nonsense_cost_followers_no_time() {
        let cards = cards(3);
        let listener = Socket::listen(&cards[0].link).expect("a free name");
        let mut held: Vec<Socket> = Vec::new();
        for i in 0..3 * MAX_SILENT {
            let stranger = Socket::connect(&cards[0].link).expect("the leader listens");
            match i % 3 {
                0 => held.push(stranger),
                1 => stranger.send(&[HELLO; 25], &[0, 1]).expect("nonsense, with descriptors"),
                _ => drop(stranger),
            }
        }
        let start = Instant::now();
        std::thread::scope(|s| {
            let leader = s.spawn(|| gather(&listener, &cards, &Single, Duration::from_secs(60)));
            for me in [2, 1] {
                let socket = dial(me, &cards[0]).expect("the leader is there");
                held.push(socket);
            }
            let sockets = leader.join().expect("no panic").expect("both come");
            assert!(sockets[0].is_none() && sockets[1..].iter().all(Option::is_some));
        });
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?} with {} strangers", 3 * MAX_SILENT);
    }

    /// As many as come while it lasts, all silent, all coming back at once.
    #[test]
    fn a_flood_at_the_node_s_socket_does_not_stop_a_follower() {
        let cards = cards(2);
        let listener = Socket::listen(&cards[0].link).expect("a free name");
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut held = VecDeque::new();
                while !done.load(Ordering::Relaxed) {
                    held.extend(Socket::connect(&cards[0].link).ok());
                    if held.len() > 300 {
                        held.pop_front();
                    }
                }
            });
            // The listener ends with the leader's part: who still waits for room in its queue is refused.
            let gathered = |listener: Socket| gather(&listener, &cards, &Single, Duration::from_secs(60));
            let leader = s.spawn(move || gathered(listener));
            std::thread::sleep(Duration::from_millis(300));
            let start = Instant::now();
            let _socket = dial(1, &cards[0]);
            let sockets = leader.join();
            done.store(true, Ordering::Relaxed);
            assert!(sockets.expect("no panic").is_ok_and(|s| s[1].is_some()));
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        });
    }

    /// Once a leader has died, another user may listen under its name and would be handed the secret. The
    /// kernel notes the user who calls `listen`; a thread of root's may be another one for that call.
    #[test]
    fn a_leader_of_another_user_is_refused() {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("SKIP a_leader_of_another_user_is_refused: only root can be two users");
        }
        let cards = cards(2);
        let stranger = std::thread::spawn({
            let name = cards[0].link;
            move || {
                // SAFETY: the system call itself, unlike libc's function, concerns this thread alone, which
                // ends with the closure.
                let rc = unsafe {
                    libc::syscall(libc::SYS_setresuid, -1 as libc::c_long, NOBODY, -1 as libc::c_long)
                };
                assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
                Socket::listen(&name).expect("a free name")
            }
        });
        let stranger = stranger.join().expect("no panic");
        // SAFETY: no preconditions. A change of user has made the process one that nobody may look into.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
        let error = dial(1, &cards[0]).expect_err("another user's socket");
        for word in ["PE 0", "belongs to another user"] {
            assert!(error.message.contains(word), "{word:?} is missing: {error}");
        }
        assert!(stranger.accept().is_ok(), "it came, and said nothing");
    }
}
