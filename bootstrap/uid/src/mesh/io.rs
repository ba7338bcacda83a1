//! The I/O thread of a rank: reads every socket as soon as there is something, so that deaths are noticed and
//! passed on while the rank computes, and writes what the sockets did not take at once. It never waits for
//! anything but its sockets.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use socket2::Socket;

use super::frame::{parse, HEADER};
use super::silence::{is_silence, PeerClock, Silence};
use super::state::{Ending, State};
use super::Shared;
use crate::conn::poll;
use crate::threads;

/// Bytes read from a socket at a time.
const READ: usize = 64 * 1024;
/// Reads of one socket before the others have their turn.
const TURNS: usize = 8;
/// How often changes of a roll call are gathered before they are passed on.
const ROLL_TICK: Duration = Duration::from_millis(10);
/// How long a rank that leaves waits for its neighbours to take its last words and to leave as well.
const FAREWELL: Duration = Duration::from_secs(2);

/// One socket's incoming bytes.
struct Reader {
    stream: Arc<Socket>,
    bytes: Vec<u8>,
    /// For the silence of another host.
    clock: Option<PeerClock>,
    ended: bool,
}

impl Reader {
    /// Hands every whole frame to the state.
    fn parse(&mut self, at: usize, n_ranks: u32, state: &mut State) -> Result<(), String> {
        let mut start = 0;
        while let Some(header) = self.bytes[start..].first_chunk::<HEADER>() {
            let frame = parse(header, n_ranks).and_then(|(kind, len)| {
                let Some(payload) = self.bytes.get(start + HEADER..start + HEADER + len) else {
                    return Ok(0);
                };
                #[cfg(any(test, feature = "fuzzing"))]
                crate::seeds::record(2, header[4], &[&header[..], payload].concat());
                state.take_frame(at, kind, payload)?;
                Ok(HEADER + len)
            });
            match frame {
                Ok(0) => break,
                Ok(n) => start += n,
                Err(e) => return Err(format!("it sent what is not rushmem's protocol ({})", e.0)),
            }
        }
        self.bytes.drain(..start);
        Ok(())
    }
}

/// The thread's body.
pub(super) fn run(shared: Arc<Shared>, streams: Vec<Arc<Socket>>, silence: Option<Silence>) {
    threads::block_signals();
    let is_remote: Vec<bool> = shared.lock().links.iter().map(|link| link.remote_host.is_some()).collect();
    let reader = |(stream, is_remote): (_, bool)| Reader {
        stream,
        bytes: Vec::new(),
        clock: is_remote.then(PeerClock::default),
        ended: false,
    };
    let mut readers: Vec<Reader> = streams.into_iter().zip(is_remote).map(reader).collect();
    let mut scratch = vec![0; READ];
    let mut farewell: Option<Instant> = None;
    let mut silenced = false;
    let mut roll_tick: Option<Instant> = None;
    let mut look = silence.map(|_| Instant::now());
    loop {
        if let (Some(silence), Some(at)) = (silence, look.filter(|at| *at <= Instant::now())) {
            check_silence(&shared, &mut readers, silence);
            look = Some(at.max(Instant::now()) + silence.pause());
        }
        let mut wake = farewell.into_iter().chain(look).min();
        let mut wanted = Vec::with_capacity(readers.len());
        {
            let mut state = shared.lock();
            if state.rolls.values().any(|r| r.changed) {
                let tick = *roll_tick.get_or_insert_with(|| Instant::now() + ROLL_TICK);
                wake = Some(wake.map_or(tick, |w| w.min(tick)));
            }
            if state.leaving {
                let end = *farewell.get_or_insert_with(|| Instant::now() + shared.farewell(&state, FAREWELL));
                wake = Some(wake.map_or(end, |w| w.min(end)));
                state.links.iter_mut().for_each(|l| l.flush());
                if !silenced && !state.links.iter().any(|l| l.has_output()) {
                    silenced = true;
                    for reader in readers.iter().filter(|r| !r.ended) {
                        let _ = reader.stream.shutdown(Shutdown::Write);
                    }
                    shared.said_goodbye();
                }
                if Instant::now() >= end || (silenced && readers.iter().all(|r| r.ended)) {
                    shared.said_goodbye();
                    return;
                }
            }
            wanted.extend(state.links.iter().map(|l| l.has_output()));
        }
        let mut fds = vec![PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN)];
        let mut whose = Vec::with_capacity(readers.len());
        for (at, reader) in readers.iter().enumerate().filter(|(_, r)| !r.ended) {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, wanted[at]);
            fds.push(PollFd::new(reader.stream.as_fd(), flags));
            whose.push(at);
        }
        if let Err(e) = poll(&mut fds, wake) {
            // Only a broken invariant (a bad descriptor, no memory) comes here; do not spin on it.
            log::error!("rushmem uid: the I/O thread of rank {} cannot wait: {e}", shared.me);
            std::thread::sleep(Duration::from_millis(100));
        }
        let ready: Vec<PollFlags> = fds.iter().map(|f| f.revents().unwrap_or(PollFlags::empty())).collect();
        drop(fds);
        if !ready[0].is_empty() {
            let _ = shared.wake.read(); // only resets it
        }
        for (flags, at) in ready[1..].iter().zip(whose) {
            if flags.contains(PollFlags::POLLOUT) {
                shared.lock().links[at].flush();
            }
            if flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                serve(&shared, at, &mut readers[at], &mut scratch);
            }
        }
        if roll_tick.is_some_and(|tick| tick <= Instant::now()) {
            roll_tick = None;
            shared.lock().spread_rolls();
        }
    }
}

/// Reads what is there and hands it on.
fn serve(shared: &Shared, at: usize, reader: &mut Reader, scratch: &mut [u8]) {
    let mut end: Option<Ending> = None;
    for _ in 0..TURNS {
        match (&*reader.stream).read(scratch) {
            Ok(0) => end = Some(Ending::Died("its connection closed without a goodbye".into())),
            Ok(n) => reader.bytes.extend(&scratch[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if is_silence(&e) => end = Some(Ending::Silent(format!("it does not answer ({e})"))),
            Err(e) => end = Some(Ending::Died(format!("its connection broke ({e})"))),
        }
        let mut state = shared.lock();
        if let Err(why) = reader.parse(at, shared.n_ranks, &mut state) {
            end = Some(Ending::Died(why));
        }
        if let Some(why) = &end {
            reader.ended = true;
            state.link_ended(at, why);
        }
        shared.publish(&state);
        if reader.ended {
            let _ = reader.stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Ends the links with hosts that have been silent for too long.
fn check_silence(shared: &Shared, readers: &mut [Reader], silence: Silence) {
    for (at, reader) in readers.iter_mut().enumerate().filter(|(_, r)| !r.ended) {
        let Some(clock) = &mut reader.clock else { continue };
        // A socket that cannot be asked ends where it is read.
        if clock.silent_for(&reader.stream).map_or(true, |time| time < silence.allowed()) {
            continue;
        }
        reader.ended = true;
        let mut state = shared.lock();
        state.link_ended(at, &Ending::Silent(silence.verdict()));
        shared.publish(&state);
        let _ = reader.stream.shutdown(Shutdown::Both);
    }
}
