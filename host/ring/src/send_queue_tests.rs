//! Threads of a kernel and a card at one send queue, with fewer slots than threads: loom tries every
//! interleaving of a few requests, threads of the operating system post many. What is to hold: the card finds
//! each request whole, in its order, and with what its thread wrote before; no slot is written before its
//! last request is complete (loom tells of two that access one cell); nobody takes a request for complete
//! that is not, though the card's counter goes round; each request is rung for, and every thread comes to its
//! end (loom tells where none can, or where the threads could go on for ever). Each ordering of the protocol
//! was weakened once, and loom failed, but for `rung`'s, by which a thread learns that it may leave, and for
//! the fence before the record, which is for cards that read it before they hear the doorbell.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use crate::model::Tickets;
use crate::send_queue::{Card, SendQueue};
use crate::sync::AtomicU64;

#[cfg(loom)]
use loom::thread::{self, yield_now};
#[cfg(not(loom))]
use std::thread::{self, yield_now};

/// Requests of each thread, slots, the number of the first request, and how far the card's counter goes.
type Size = (&'static [u64], usize, u64, u64);

/// The card is a thread of its own, or the last thread's while that waits. How many doorbells it heard.
fn scenario((posts, slots, first, lap): Size, tickets: Tickets, apart: bool, waits: bool) -> u64 {
    let requests: u64 = posts.iter().sum();
    let queue = Arc::new(SendQueue::new(requests, slots, tickets, first, lap));
    let ended = Arc::new(AtomicU64::new(0));
    let others = if apart { posts.len() } else { posts.len() - 1 };
    let threads: Vec<_> = posts[..others]
        .iter()
        .map(|&posts| {
            let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            thread::spawn(move || {
                for _ in 0..posts {
                    queue.post(waits, yield_now);
                }
                ended.fetch_add(1, Release);
            })
        })
        .collect();
    let mut card = Card::new(&queue);
    for _ in 0..posts[others..].iter().sum() {
        queue.post(waits, || {
            if !card.step(&queue) {
                yield_now();
            }
        });
    }
    while ended.load(Acquire) < others as u64 {
        if !card.step(&queue) {
            yield_now();
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Each thread has seen that its requests are rung for, so that the card hears of all.
    card.step(&queue);
    assert_eq!((queue.tail.load(Relaxed), card.done), (first + requests, first + requests));
    card.bells
}

fn explore(preemptions: usize, small: &[Size], apart: bool, waits: bool) {
    for tickets in [Tickets::Add, Tickets::Swap] {
        #[cfg(loom)]
        for &size in small {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(preemptions);
            model.max_branches = 100_000;
            let tried = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let count = Arc::clone(&tried);
            model.check(move || {
                count.fetch_add(1, Relaxed);
                scenario(size, tickets, apart, waits);
            });
            println!("{size:?} {tickets:?}: {} interleavings", tried.load(Relaxed));
        }
        #[cfg(not(loom))]
        for (slots, lap) in [(1, 4), (2, 8), (8, 32), (64, 1 << 16)] {
            let _ = (small, preemptions);
            let posts: &[u64] = if cfg!(miri) { &[20, 20, 20] } else { &[2000, 1000, 3000] };
            let heard = scenario((posts, slots, lap - 3, lap), tickets, apart, waits);
            assert!(heard <= posts.iter().sum());
        }
    }
}

#[test]
fn requests_arrive_whole_in_as_few_slots_as_there_are() {
    explore(
        2,
        &[(&[1, 1], 1, 0, 4), (&[1, 1], 2, 7, 8), (&[2, 1], 1, 3, 4), (&[2, 1], 2, 6, 8)],
        false,
        false,
    );
}

#[test]
fn a_card_beside_the_threads() {
    explore(2, &[(&[3], 1, 2, 4), (&[3], 2, 7, 8)], true, false);
}

#[test]
fn who_waits_sees_what_the_card_did() {
    explore(2, &[(&[1, 1], 1, 0, 4), (&[1, 1], 2, 7, 8), (&[2, 1], 1, 3, 4)], false, true);
}

/// A thread that sees an old count of the card's, and how many requests are complete now, may not take the
/// one for a lap ahead of the other.
#[test]
fn an_old_look_completes_nothing() {
    explore(1, &[(&[1, 5], 1, 0, 4)], false, false);
}
