//! Vector clocks over a tree of strands, as short as a kernel's structure allows.
//!
//! A *strand* is what runs in program order: a CUDA thread of a block of a chain. A *chain* is a stream's
//! launches one after the other, or a PE's host. Clocks of one chain are one scale: a barrier of a block sets
//! all its threads to one more than the largest of them, a launch begins one above all before it. So one
//! number covers a whole block ("all of it up to 17"), and one a whole chain; what a thread knows beyond that
//! are single entries. (Lamport 1978; Flanagan and Freund, FastTrack, 2009, for epochs.)
//!
//! Each strand has tracks. [`Track::Now`] holds what is done in program order, [`Track::Nbi`] what an nbi
//! operation does between its issue and the next quiet, [`Track::Far`] what a put to a far PE writes between
//! its issue and the next fence or quiet.

/// Who did something: chain, track, block and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Strand(u64);

/// In which order with its own thread an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Track {
    /// Program order.
    Now = 0,
    /// At any time until a fence or quiet.
    Far = 1,
    /// At any time until a quiet.
    Nbi = 2,
    /// A host's put to memory that is mapped: there when the call returns, but what announces it needs a
    /// fence.
    Put = 3,
}

const THREAD_BITS: u32 = 11;
const BLOCK_BITS: u32 = 22;
const TRACK_SHIFT: u32 = THREAD_BITS + BLOCK_BITS;
const CHAIN_SHIFT: u32 = TRACK_SHIFT + 2;
const THREAD_MASK: u64 = (1 << THREAD_BITS) - 1;
const BLOCK_MASK: u64 = (1 << TRACK_SHIFT) - 1;
const CHAIN_BITS: u32 = 15;

/// More chains than this are not told apart.
pub(crate) const MAX_CHAINS: u32 = (1 << CHAIN_BITS) - 1;

/// Bits of [`Strand::bits`].
pub(crate) const STRAND_BITS: u32 = CHAIN_SHIFT + CHAIN_BITS;

impl Strand {
    /// A CUDA thread.
    pub(crate) fn thread(chain: u32, block: u64, thread: u32) -> Strand {
        let block = (block + 1).min((1 << BLOCK_BITS) - 1);
        Strand(u64::from(chain) << CHAIN_SHIFT | block << THREAD_BITS | u64::from(thread + 1))
    }

    /// A block.
    pub(crate) fn block_of(self) -> Strand {
        Strand(self.0 & !THREAD_MASK)
    }

    /// The block, in program order.
    pub(crate) fn block(self) -> Strand {
        self.on(Track::Now).block_of()
    }

    /// Whether two threads are of one block.
    pub(crate) fn same_block(self, other: Strand) -> bool {
        self.block() == other.block()
    }

    /// The chain itself: its host, or its stream's operations.
    pub(crate) fn chain(chain: u32) -> Strand {
        Strand(u64::from(chain) << CHAIN_SHIFT)
    }

    fn chain_of(self) -> Strand {
        Strand(self.0 & !BLOCK_MASK)
    }

    /// The same on another track.
    pub(crate) fn on(self, track: Track) -> Strand {
        Strand(self.0 & !(3 << TRACK_SHIFT) | (track as u64) << TRACK_SHIFT)
    }

    pub(crate) fn track(self) -> Track {
        match self.0 >> TRACK_SHIFT & 3 {
            0 => Track::Now,
            1 => Track::Far,
            2 => Track::Nbi,
            _ => Track::Put,
        }
    }

    pub(crate) fn chain_number(self) -> u32 {
        (self.0 >> CHAIN_SHIFT) as u32
    }

    /// Block and thread by their linear numbers, of a CUDA thread.
    pub(crate) fn place(self) -> Option<(u64, u32)> {
        let (block, thread) = ((self.0 & BLOCK_MASK) >> THREAD_BITS, self.0 & THREAD_MASK);
        (block > 0 && thread > 0).then(|| (block - 1, thread as u32 - 1))
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Strand {
        Strand(bits)
    }
}

/// Up to which clock each strand's past is known. Sorted; an entry of a chain or a block stands for all in
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<(Strand, u32)>);

impl Clock {
    pub(crate) fn entries(&self) -> &[(Strand, u32)] {
        &self.0
    }

    /// Of entries that [`Clock::entries`] gave.
    pub(crate) fn of_sorted(entries: Vec<(Strand, u32)>) -> Clock {
        Clock(entries)
    }

    fn at(&self, strand: Strand) -> u32 {
        self.0.binary_search_by_key(&strand, |entry| entry.0).map_or(0, |at| self.0[at].1)
    }

    /// Whether what `strand` did at `clock` is known.
    pub(crate) fn covers(&self, strand: Strand, clock: u32) -> bool {
        self.at(strand.block_of()) >= clock || self.at(strand) >= clock || self.at(strand.chain_of()) >= clock
    }

    /// Takes up what is known of `strand` up to `clock`.
    pub(crate) fn raise(&mut self, strand: Strand, clock: u32) {
        if !self.covers(strand, clock) {
            match self.0.binary_search_by_key(&strand, |entry| entry.0) {
                Ok(at) => self.0[at].1 = clock,
                Err(at) => self.0.insert(at, (strand, clock)),
            }
            if strand.block_of() == strand {
                self.prune();
            }
        }
    }

    /// Takes up all that `other` knows; whether there was anything new.
    pub(crate) fn join(&mut self, other: &[(Strand, u32)]) -> bool {
        if other.iter().all(|&(strand, clock)| self.covers(strand, clock)) {
            return false;
        }
        let own = std::mem::take(&mut self.0);
        self.0.reserve(own.len() + other.len());
        let (mut a, mut b) = (own.into_iter().peekable(), other.iter().copied().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => a.next(),
                (None, Some(_)) => b.next(),
                (Some(x), Some(y)) => match x.0.cmp(&y.0) {
                    std::cmp::Ordering::Less => a.next(),
                    std::cmp::Ordering::Greater => b.next(),
                    std::cmp::Ordering::Equal => {
                        let both = (x.0, x.1.max(y.1));
                        a.next();
                        b.next();
                        Some(both)
                    }
                },
            };
            self.0.extend(next);
        }
        self.prune();
        true
    }

    /// Drops what an entry of the block or the chain says already.
    fn prune(&mut self) {
        let (mut chain, mut block) = ((Strand(u64::MAX), 0), (Strand(u64::MAX), 0));
        self.0.retain(|&(strand, clock)| {
            let base = |of: (Strand, u32), key: Strand| if of.0 == key { of.1 } else { 0 };
            let known = base(chain, strand.chain_of()).max(base(block, strand.block_of()));
            if strand.chain_of() == strand {
                chain = (strand, clock);
            } else if strand.block_of() == strand {
                block = (strand, clock);
            }
            clock > known
        });
    }

    /// Completes what chains that `own` says are this PE's have issued and this clock knows of: what is known
    /// in program order is known on `track`, too.
    pub(crate) fn complete(&mut self, track: Track, own: impl Fn(u32) -> bool) {
        let entries: Vec<(Strand, u32)> = self
            .0
            .iter()
            .filter(|(strand, _)| strand.track() == Track::Now && own(strand.chain_number()))
            .map(|&(strand, clock)| (strand.on(track), clock))
            .collect();
        self.join(&entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(entries: &[(Strand, u32)]) -> Clock {
        let mut clock = Clock::default();
        entries.iter().for_each(|&(strand, at)| clock.raise(strand, at));
        clock
    }

    #[test]
    fn blocks_and_chains_stand_for_what_is_in_them() {
        let (a, b) = (Strand::thread(3, 5, 7), Strand::thread(3, 5, 8));
        let mut known = clock(&[(a, 4), (b, 9)]);
        assert!(known.covers(a, 4) && !known.covers(a, 5) && known.covers(b, 9) && !known.covers(b, 10));
        known.raise(a.block_of(), 6);
        assert_eq!(known.entries(), &[(a.block_of(), 6), (b, 9)], "what the block says is dropped");
        assert!(known.covers(a, 6) && known.covers(b, 9) && !known.covers(Strand::thread(3, 6, 7), 1));
        known.raise(Strand::chain(3), 20);
        assert_eq!(known.entries(), &[(Strand::chain(3), 20)]);
        assert!(known.covers(Strand::thread(3, 100, 1000), 20) && !known.covers(Strand::chain(4), 1));
        assert!(!known.covers(a.on(Track::Nbi), 1), "another track");
        assert_eq!((a.place(), a.on(Track::Far).track()), (Some((5, 7)), Track::Far));
    }

    /// Compared with a table of all strands, on random joins.
    #[test]
    fn joins_know_what_either_knew() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |end: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 20) % end
        };
        let all: Vec<Strand> = (0..3)
            .flat_map(|c| (0..3).flat_map(move |b| (0..4).map(move |t| Strand::thread(c, b, t))))
            .flat_map(|strand| [strand, strand.on(Track::Nbi)])
            .collect();
        for _ in 0..2000 {
            let mut one = || {
                let mut clock = Clock::default();
                for _ in 0..random(12) {
                    let strand = all[random(all.len() as u64) as usize];
                    let strand = [strand, strand, strand.block_of(), strand.chain_of()][random(4) as usize];
                    clock.raise(strand, random(9) as u32 + 1);
                }
                clock
            };
            let (a, b) = (one(), one());
            let mut both = a.clone();
            both.join(b.entries());
            assert!(both.0.is_sorted_by_key(|entry| entry.0));
            for &strand in &all {
                for at in 1..12 {
                    let either = a.covers(strand, at) || b.covers(strand, at);
                    assert_eq!(both.covers(strand, at), either, "{strand:?} {at}: {a:?} {b:?}");
                }
            }
        }
    }
}
