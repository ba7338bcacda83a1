//! The thread that turns the engine when no other does: it answers other PEs and carries out what kernels
//! have posted, while the host computes.
//!
//! It naps while other threads turn the engine, goes on while there is work, and after a while without work
//! sleeps on the network's descriptor. A thread that has waited for long naps, too, and turns the engine only
//! now and then: the proxy thread does not count on that one.

pub(in crate::net) mod doorbell;
pub(in crate::net) mod posts;
pub(crate) mod ring;
pub(in crate::net) mod submissions;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::net::Shared;

/// How long it goes on looking after the last work.
const LOOK: Duration = Duration::from_micros(50);
/// While others drive: each time it wakes it takes a core from them, where cores are few. It is late by as
/// much when they stop.
const DRIVEN: Duration = Duration::from_micros(150);
/// Between looks for what rings no bell.
const NAP: Duration = Duration::from_micros(100);
/// Turns in the time of a nap that a thread which naps itself may make; one that drives makes a hundred.
const NOW_AND_THEN: u64 = 24;
/// The longest sleep: a missed wake-up costs no more.
const SLEEP: Duration = Duration::from_millis(20);

/// The thread's life.
pub(in crate::net) fn run(shared: &Shared) {
    // The system lengthens naps by 50 us otherwise; a refusal costs no more than that.
    // SAFETY: changes this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
    let turns = || shared.driven.load(Ordering::Relaxed);
    // The turns of others are counted from here on.
    let mut window = (Instant::now(), turns());
    let mut last_work = Instant::now();
    while !shared.stop.load(Ordering::Acquire) {
        let now = turns();
        if now.wrapping_sub(window.1) > NOW_AND_THEN {
            window = (Instant::now(), now);
            std::thread::sleep(DRIVEN);
            continue;
        }
        if window.0.elapsed() > NAP {
            window = (Instant::now(), now);
        }
        let (worked, posts) = {
            let mut engine = shared.lock();
            // The thread that sets this may have had the lock until now.
            if shared.stop.load(Ordering::Acquire) {
                return;
            }
            (shared.turn(&mut engine), engine.expects_posts())
        };
        if worked {
            last_work = Instant::now();
            continue;
        }
        let idle = last_work.elapsed();
        if idle < LOOK {
            std::thread::yield_now();
            continue;
        }
        // Kernels post without a bell; and a network without a descriptor rings none.
        let most =
            if posts || !shared.doorbell.hears_network() { NAP.max(idle / 64).min(NAP * 5) } else { SLEEP };
        let mut engine = shared.lock();
        let sleeps = !shared.stop.load(Ordering::Acquire) && engine.transport().arm();
        drop(engine);
        if sleeps {
            shared.doorbell.sleep(most);
            window = (Instant::now(), turns());
        }
    }
}
