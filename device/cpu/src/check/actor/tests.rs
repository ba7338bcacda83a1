//! A word that is written in one piece, polled and read, by more strands than accesses that are kept.

use super::*;

const WORD: Spot = Spot { space: 1, at: 64 };

/// Strands that poll a word, read it plainly, write it, and learn from one another.
struct Rig {
    segment: Segment,
    pages: Pages,
    actors: Vec<Actor>,
}

impl Rig {
    fn new(strands: u64) -> Rig {
        let actor = |block| Actor::new(Strand::thread(1, block, 0), 1, Arc::default());
        let segment = Segment::create().expect("memory for a checker");
        Rig { segment, pages: Pages::default(), actors: (0..strands).map(actor).collect() }
    }

    /// Whether the access races with one before it.
    fn races(&mut self, strand: usize, at: Spot, write: bool, atomic: bool) -> bool {
        let atomic = atomic.then_some(Scope::System);
        let access =
            Access { bytes: 8, write, atomic, track: Track::Now, unordered: false, site: strand as u32 + 1 };
        let mut found = Vec::new();
        self.actors[strand].access(&self.segment, &mut self.pages, at, access, &mut found);
        self.actors[strand].clock += 1;
        !found.is_empty()
    }

    fn learn(&mut self, strand: usize, from: usize) {
        let known = self.actors[from].publish();
        self.actors[strand].learn(known.entries());
    }
}

#[test]
fn a_word_is_read_by_those_alone_that_know_it_was_waited_for() {
    let mut rig = Rig::new(4);
    assert!(
        !rig.races(1, WORD, false, true)
            && !rig.races(0, WORD, true, true)
            && !rig.races(1, WORD, false, true)
    );
    assert!(!rig.races(1, WORD, false, false), "it has waited");
    assert!(rig.races(2, WORD, false, false), "it knows of nobody that has");
    rig.learn(3, 1);
    assert!(!rig.races(3, WORD, false, false), "it knows one");
    assert!(rig.races(3, WORD, true, false), "but may not write");
}

/// More strands than accesses that are kept: nothing is reported that is in order. What each knows is
/// kept beside, as the set of writes that came before a read that it knows of.
#[test]
fn many_that_wait_for_a_word_are_not_taken_for_races() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |end: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ((seed >> 20) % end) as usize
    };
    let (mut in_order, mut found) = (0, 0);
    let mut rig = Rig::new(8);
    for round in 0..2000 {
        // Another word each time.
        let at = Spot { at: 64 + 8 * round, ..WORD };
        let (mut writes, mut seen) = (0_u64, [0_u64; 8]);
        for _ in 0..40 {
            let strand = random(8);
            match random(10) {
                0 if writes < u64::MAX >> 1 && strand < 2 => {
                    writes = writes << 1 | 1;
                    seen[strand] |= 1 << writes.count_ones() >> 1;
                    rig.races(strand, at, true, true);
                }
                1..=3 => {
                    seen[strand] |= writes;
                    rig.races(strand, at, false, true);
                }
                4..=6 => {
                    let from = random(8);
                    seen[strand] |= seen[from];
                    rig.learn(strand, from);
                }
                _ => {
                    let races = rig.races(strand, at, false, false);
                    if seen[strand] & writes == writes {
                        assert!(!races, "in order: {round}");
                        in_order += 1;
                    }
                    found += usize::from(races);
                }
            }
        }
    }
    assert!(in_order > 1000 && found > 1000, "{in_order} {found}");
}
