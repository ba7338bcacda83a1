//! The two halves against each other. Each scenario is written once: loom tries every interleaving of a small
//! one, up to a number of preemptions that gets through in seconds; threads of the operating system run
//! larger ones, many times round the ring. Each ordering of the protocol but `fenced`'s was weakened once,
//! and loom failed.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use crate::memory::{Reply, Slot, View, WORDS};
use crate::model::{Counters, Producer, Tickets};
use crate::sync::{AtomicU64, Cell};
use crate::Consumer;
use rushmem_abi::device::ReplyTo;

#[cfg(loom)]
use loom::thread::{self, yield_now};
#[cfg(not(loom))]
use std::thread::{self, yield_now};

const POST: u64 = 1;
const FENCE: u64 = 2;
const QUIET: u64 = 3;

struct Ring {
    slots: Vec<Slot>,
    replies: Vec<Reply>,
    consumed: AtomicU64,
    counters: Counters,
    /// One for each post: what a put reads, or a get or a quiet's operation writes.
    memory: Vec<Cell>,
    /// Producers that have ended.
    ended: AtomicU64,
    tickets: Tickets,
    posts: u64,
}

/// How large a scenario is: producers, posts of each, slots, reply slots.
type Size = (u64, u64, usize, usize);

impl Ring {
    fn new((producers, posts, slots, replies): Size, tickets: Tickets) -> Arc<Ring> {
        Arc::new(Ring {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            replies: (0..replies).map(|_| Reply::default()).collect(),
            consumed: AtomicU64::new(0),
            counters: Counters::new(replies),
            memory: (0..producers * posts).map(|_| Cell::new(0)).collect(),
            ended: AtomicU64::new(0),
            tickets,
            posts,
        })
    }

    fn view(&self) -> View<'_> {
        View { slots: &self.slots, replies: &self.replies, consumed: &self.consumed }
    }

    fn producer(&self) -> Producer<'_> {
        Producer { ring: self.view(), counters: &self.counters, tickets: self.tickets }
    }
}

/// Runs `produce` for each producer, and `take` on all descriptors. The consumer is a thread of its own, or
/// the last producer's while that waits: loom gets through three threads that wait for each other only where
/// none polls much.
fn run(
    ring: &Arc<Ring>,
    producers: u64,
    apart: bool,
    produce: impl Fn(&Ring, u64, &mut dyn FnMut()) + Copy + Send + 'static,
    mut take: impl FnMut(&Ring, [u64; WORDS], u64),
) {
    run_with_idle(ring, producers, apart, produce, |ring, taken| {
        if let Some((words, ticket)) = taken {
            take(ring, words, ticket);
        }
    });
}

/// The same for a consumer that does something, too, when there is nothing to take.
fn run_with_idle(
    ring: &Arc<Ring>,
    producers: u64,
    apart: bool,
    produce: impl Fn(&Ring, u64, &mut dyn FnMut()) + Copy + Send + 'static,
    mut take: impl FnMut(&Ring, Option<([u64; WORDS], u64)>),
) {
    let others = if apart { producers } else { producers - 1 };
    let threads: Vec<_> = (0..others)
        .map(|me| {
            let ring = Arc::clone(ring);
            thread::spawn(move || {
                produce(&ring, me, &mut || yield_now());
                ring.ended.fetch_add(1, Release);
            })
        })
        .collect();
    let mut consumer = Consumer::new();
    let mut step = || {
        let taken = consumer.take(&ring.view(), 3, |words, ticket| take(ring, Some((words, ticket))));
        if taken == 0 {
            take(ring, None);
            yield_now();
        }
        taken
    };
    if !apart {
        produce(ring, others, &mut || {
            step();
        });
    }
    while ring.ended.load(Acquire) < others {
        step();
    }
    while step() > 0 {}
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(consumer.taken(), ring.counters.tail.load(Relaxed));
    assert!(ring.counters.busy.iter().all(|busy| busy.load(Relaxed) == 0));
}

/// Under loom every interleaving of the sizes given with at most so many preemptions, else sizes of which
/// none repeats.
fn explore(
    preemptions: usize,
    small: &[Size],
    scenario: impl Fn(Size, Tickets) + Send + Sync + Copy + 'static,
) {
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
                scenario(size, tickets);
            });
            println!("{size:?} {tickets:?}: {} interleavings", tried.load(Relaxed));
        }
        #[cfg(not(loom))]
        for slots in [1, 2, 8, 64] {
            let _ = (small, preemptions);
            scenario((3, if cfg!(miri) { 20 } else { 2000 }, slots, slots.div_ceil(4)), tickets);
        }
    }
}

/// Each descriptor comes once, whole, those of a thread in its order, and with what the thread wrote before.
#[test]
fn posts_arrive_whole_and_in_order() {
    explore(3, &[(1, 3, 1, 1), (1, 3, 2, 1), (2, 1, 1, 1), (2, 1, 2, 1)], |size, tickets| {
        let ring = Ring::new(size, tickets);
        let (mut next, mut tickets) = (vec![0; size.0 as usize], 0);
        run(
            &ring,
            size.0,
            true,
            |ring, me, wait| {
                for i in me * ring.posts..(me + 1) * ring.posts {
                    // SAFETY: a put's source: this thread's until it is posted.
                    unsafe { ring.memory[i as usize].write(i + 1) };
                    ring.producer().post([POST, i, !i, 3, 4, 5, 6], false, &mut *wait);
                }
            },
            |ring, words, ticket| {
                let at = words[1];
                assert_eq!(words, [POST, at, !at, 3, 4, 5, 6]);
                // SAFETY: posted.
                assert_eq!(unsafe { ring.memory[at as usize].read() }, at + 1);
                let (who, i) = ((at / ring.posts) as usize, at % ring.posts);
                assert_eq!((i, ticket), (next[who], tickets));
                (next[who], tickets) = (i + 1, tickets + 1);
            },
        );
    });
}

/// Everyone gets the answer to its own descriptor, with what the answerer wrote before, though reply slots
/// are fewer than threads and used again at once.
#[test]
fn answers_find_their_askers() {
    explore(3, &[(2, 1, 1, 1), (2, 1, 2, 2), (2, 1, 2, 1), (1, 2, 1, 1)], |size, tickets| {
        let ring = Ring::new(size, tickets);
        run(
            &ring,
            size.0,
            size.0 == 1,
            |ring, me, wait| {
                for i in me * ring.posts..(me + 1) * ring.posts {
                    let (_, answer) = ring.producer().post([POST, i, 0, 0, 0, 0, 0], true, &mut *wait);
                    assert_eq!(answer, Some(i ^ 0xabcd));
                    // SAFETY: a get's destination: this thread's again when it is answered.
                    assert_eq!(unsafe { ring.memory[i as usize].read() }, i + 1);
                }
            },
            |ring, words, ticket| {
                // SAFETY: the answerer's until it answers.
                unsafe { ring.memory[words[1] as usize].write(words[1] + 1) };
                ring.view().reply(ReplyTo { slot: words[6] as u32, ticket }, words[1] ^ 0xabcd);
            },
        );
    });
}

/// A quiet that posts nothing, because another thread's covers it, is as good as one that does.
#[test]
fn after_quiet_everything_before_is_complete() {
    explore(2, &[(2, 1, 4, 2), (2, 1, 1, 1), (1, 2, 1, 1)], |size, tickets| {
        let ring = Ring::new(size, tickets);
        let mut open = Vec::new();
        run(
            &ring,
            size.0,
            size.0 == 1,
            |ring, me, wait| {
                for i in me * ring.posts..(me + 1) * ring.posts {
                    let producer = ring.producer();
                    producer.post([POST, i, 0, 0, 0, 0, 0], false, &mut *wait);
                    producer.quiet([QUIET, 0, 0, 0, 0, 0, 0], &mut *wait);
                    // SAFETY: complete, so nobody works on it.
                    assert_eq!(unsafe { ring.memory[i as usize].read() }, 1);
                }
            },
            |ring, words, ticket| {
                if words[0] == POST {
                    open.push(words[1]);
                    return;
                }
                for at in open.drain(..) {
                    // SAFETY: the operation's thread waits for this.
                    unsafe { ring.memory[at as usize].write(1) };
                }
                ring.view().reply(ReplyTo { slot: words[6] as u32, ticket }, 0);
            },
        );
    });
}

/// Between two posts of a thread with a fence between them there is a fence in the ring, its own or another
/// thread's; a thread that is alone posts none without need.
#[test]
fn fences_stand_between() {
    explore(1, &[(2, 2, 4, 1), (1, 3, 1, 1)], |size, tickets| {
        let ring = Ring::new(size, tickets);
        let (mut seen, mut fences) = (vec![None; size.0 as usize], 0);
        let alone = size.0 == 1;
        run(
            &ring,
            size.0,
            alone,
            move |ring, me, wait| {
                let producer = ring.producer();
                for i in 0..ring.posts {
                    if i != 0 {
                        let mut fence = || producer.fence([FENCE, 0, 0, 0, 0, 0, 0], &mut *wait).is_some();
                        let posted = [fence(), fence()];
                        assert!(!alone || posted == [true, false]);
                    }
                    producer.post([POST, me, i, 0, 0, 0, 0], false, &mut *wait);
                }
            },
            |_, words, _| {
                if words[0] == FENCE {
                    fences += 1;
                } else if let Some(before) = seen[words[1] as usize].replace(fences) {
                    assert!(before < fences, "thread {} at {}", words[1], words[2]);
                }
            },
        );
    });
}

/// The same while another thread's quiets are under way: these stand for a fence once they have ended, not
/// before.
#[test]
fn a_quiet_under_way_is_no_fence() {
    explore(2, &[(2, 2, 4, 1)], |size, tickets| {
        let ring = Ring::new(size, tickets);
        // For each thread the number of fences and of completed posts at its last post, and posts that are
        // not complete.
        let (mut last, mut fences, mut open) = (vec![None; size.0 as usize], 0, Vec::new());
        let mut quiets = Vec::new();
        run_with_idle(
            &ring,
            size.0,
            false,
            |ring, me, wait| {
                let producer = ring.producer();
                for i in 0..ring.posts {
                    producer.post([POST, me, i, 0, 0, 0, 0], false, &mut *wait);
                    if me == 0 {
                        producer.quiet([QUIET, 0, 0, 0, 0, 0, 0], &mut *wait);
                    } else {
                        producer.fence([FENCE, 0, 0, 0, 0, 0, 0], &mut *wait);
                    }
                }
            },
            |ring, taken| match taken {
                Some((words, ticket)) if words[0] == QUIET => {
                    quiets.push(ReplyTo { slot: words[6] as u32, ticket });
                }
                Some((words, _)) if words[0] == FENCE => fences += 1,
                Some((words, _)) => {
                    let who = words[1];
                    if let Some((before, at)) = last[who as usize].replace((fences, (who, words[2]))) {
                        assert!(who == 0 || before < fences || !open.contains(&at), "{at:?} is overtaken");
                    }
                    open.push((who, words[2]));
                }
                // Only now are they complete.
                None => {
                    open.clear();
                    quiets.drain(..).for_each(|to| ring.view().reply(to, 0));
                }
            },
        );
    });
}

/// The layouts that kernels see.
#[cfg(not(loom))]
#[test]
fn layouts() {
    assert_eq!((std::mem::offset_of!(Slot, words), std::mem::offset_of!(Slot, ticket)), (0, 56));
    assert_eq!((std::mem::offset_of!(Reply, value), std::mem::offset_of!(Reply, state)), (0, 8));
}
