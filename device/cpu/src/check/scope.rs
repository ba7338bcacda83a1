//! Scopes: among which threads a fence or an atomic operation counts, as in PTX's memory model. What is
//! released is taken up only where the releasing thread's scope has the acquiring one in it and the other way
//! round; of a fence and the relaxed access beside it, the narrower scope counts. What has been taken up is
//! handed on in any scope: causality is transitive.
//!
//! So a word carries a clock for each of the scopes in which it was released, with who did. Releases of
//! several blocks, or of several PEs, to one word are kept as one, which then counts as each reader's own:
//! too much is taken up, and a race may be missed.

use super::clock::{Clock, Strand};
use super::segment::{Segment, Word};

/// Threads among which an operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Those of a block.
    Block = 0,
    /// Those of a PE, with what its host and its streams do.
    Device = 1,
    /// All.
    System = 2,
}

impl Scope {
    pub(crate) const ALL: [Scope; 3] = [Scope::Block, Scope::Device, Scope::System];

    /// As `cuda::thread_scope` numbers them.
    pub(crate) fn of(number: u32) -> Scope {
        match number {
            0 => Scope::System,
            1 => Scope::Device,
            _ => Scope::Block,
        }
    }

    /// Whether two strands are in one such scope.
    pub(crate) fn has_both(self, segment: &Segment, one: Strand, other: Strand) -> bool {
        match self {
            Scope::System => true,
            Scope::Device => {
                let [one, other] = [one, other].map(Strand::chain_number);
                one == other || segment.pe_of(one) == segment.pe_of(other)
            }
            Scope::Block => one.same_block(other),
        }
    }
}

/// Who has released to a word, in one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Releaser {
    Block(Strand),
    /// Several blocks of that PE.
    Pe(i32),
    Several,
}

impl Releaser {
    fn pe(self, segment: &Segment) -> Option<i32> {
        match self {
            Releaser::Block(strand) => Some(segment.pe_of(strand.chain_number())),
            Releaser::Pe(pe) => Some(pe),
            Releaser::Several => None,
        }
    }

    fn with(self, segment: &Segment, other: Releaser) -> Releaser {
        match (self.pe(segment), other.pe(segment)) {
            _ if self == other => self,
            (Some(one), Some(two)) if one == two => Releaser::Pe(one),
            _ => Releaser::Several,
        }
    }
}

/// What was released to a word in one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    scope: Scope,
    by: Releaser,
    pub(crate) clock: Clock,
}

impl Release {
    pub(crate) fn new(scope: Scope, by: Strand, clock: Clock) -> Release {
        Release { scope, by: Releaser::Block(by.block()), clock }
    }

    /// The narrowest scope in which this strand may take it up; `None` where it may in none.
    pub(crate) fn narrowest(&self, segment: &Segment, reader: Strand) -> Option<Scope> {
        let is_same_pe = |pe| pe == segment.pe_of(reader.chain_number());
        match self.by {
            Releaser::Several => Some(Scope::Block),
            Releaser::Pe(pe) if is_same_pe(pe) => Some(Scope::Block),
            Releaser::Block(by) if by.same_block(reader) => Some(Scope::Block),
            Releaser::Block(by) if is_same_pe(segment.pe_of(by.chain_number())) => {
                (self.scope >= Scope::Device).then_some(Scope::Device)
            }
            _ => (self.scope == Scope::System).then_some(Scope::System),
        }
    }

    /// Whether the two are kept as one.
    fn belongs_to(&self, segment: &Segment, other: &Release) -> bool {
        self.scope == other.scope
            && match self.scope {
                Scope::System => true,
                Scope::Device => self.by.pe(segment) == other.by.pe(segment),
                Scope::Block => self.by == other.by,
            }
    }
}

/// More releases than this of one word are kept as one.
const MOST: usize = 8;

/// All that a word carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried(pub(crate) Vec<Release>);

impl Carried {
    /// Adds what was released; whether there was anything new.
    pub(crate) fn join(&mut self, segment: &Segment, release: &Release) -> bool {
        if let Some(known) = self.0.iter_mut().find(|known| known.belongs_to(segment, release)) {
            let by = known.by.with(segment, release.by);
            let is_new = known.clock.join(release.clock.entries()) || by != known.by;
            known.by = by;
            return is_new;
        }
        self.0.push(release.clone());
        if self.0.len() > MOST {
            let mut all = Release { scope: Scope::System, by: Releaser::Several, clock: Clock::default() };
            for release in self.0.drain(..) {
                all.clock.join(release.clock.entries());
            }
            self.0.push(all);
        }
        true
    }

    /// What a word carries; under its lock.
    pub(crate) fn read(segment: &Segment, word: &Word) -> Carried {
        let entries = segment.entries(word);
        let mut releases = Vec::new();
        let mut rest = &entries[..];
        while let Some((&(head, count), behind)) = rest.split_first() {
            let (mine, others) = behind.split_at(behind.len().min(count as usize));
            let clock = mine.iter().map(|&(strand, clock)| (Strand::from_bits(strand), clock)).collect();
            let scope = Scope::ALL[(head >> SCOPE_SHIFT) as usize % 3];
            let by = match head >> KIND_SHIFT & 3 {
                0 => Releaser::Block(Strand::from_bits(head & WHO_MASK)),
                1 => Releaser::Pe(head as u32 as i32),
                _ => Releaser::Several,
            };
            releases.push(Release { scope, by, clock: Clock::of_sorted(clock) });
            rest = others;
        }
        Carried(releases)
    }

    /// Gives a word what it carries from now on; under its lock.
    pub(crate) fn write(&self, segment: &Segment, word: &Word) {
        let mut entries = Vec::with_capacity(self.0.iter().map(|one| 1 + one.clock.entries().len()).sum());
        for Release { scope, by, clock } in &self.0 {
            let (kind, who) = match by {
                Releaser::Block(strand) => (0, strand.bits()),
                Releaser::Pe(pe) => (1, u64::from(*pe as u32)),
                Releaser::Several => (2, 0),
            };
            let head = (*scope as u64) << SCOPE_SHIFT | kind << KIND_SHIFT | who;
            entries.push((head, clock.entries().len() as u32));
            entries.extend(clock.entries().iter().map(|&(strand, clock)| (strand.bits(), clock)));
        }
        segment.set_entries(word, entries.into_iter());
    }
}

const KIND_SHIFT: u32 = 52;
const SCOPE_SHIFT: u32 = 54;
const WHO_MASK: u64 = (1 << KIND_SHIFT) - 1;
const _: () = assert!(super::clock::STRAND_BITS <= KIND_SHIFT);

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of PE 0, one of PE 1, and PE 0's host.
    fn strands(segment: &Segment) -> [Strand; 4] {
        let [zero, one, host] = [0, 1, 0].map(|pe| segment.new_chain(pe, "stream"));
        [
            Strand::thread(zero, 0, 3),
            Strand::thread(zero, 1, 0),
            Strand::thread(one, 0, 0),
            Strand::chain(host),
        ]
    }

    fn known(strand: Strand, at: u32) -> Clock {
        let mut clock = Clock::default();
        clock.raise(strand, at);
        clock
    }

    #[test]
    fn each_side_is_in_the_others_scope() {
        use Scope::{Block, Device, System};
        let segment = Segment::create().unwrap();
        let [here, near, far, host] = strands(&segment);
        let narrowest = |scope, reader| Release::new(scope, here, known(here, 1)).narrowest(&segment, reader);
        let beside = Strand::thread(here.chain_number(), 0, 60);
        for (scope, wanted) in [
            (Block, [Some(Block), None, None, None]),
            (Device, [Some(Block), Some(Device), None, Some(Device)]),
            (System, [Some(Block), Some(Device), Some(System), Some(Device)]),
        ] {
            assert_eq!([beside, near, far, host].map(|reader| narrowest(scope, reader)), wanted, "{scope:?}");
        }
        assert!(Block.has_both(&segment, here, beside) && !Block.has_both(&segment, here, near));
        assert!(Device.has_both(&segment, here, near) && !Device.has_both(&segment, here, far));
        assert!(Device.has_both(&segment, host, near) && System.has_both(&segment, here, far));
    }

    #[test]
    fn words_keep_releases_by_scope() {
        let segment = Segment::create().unwrap();
        let [here, near, far, _] = strands(&segment);
        let word = segment.word(640).unwrap();
        let _held = word.hold();
        let mut carried = Carried::default();
        for (scope, by) in [(Scope::System, here), (Scope::Block, here), (Scope::Device, near)] {
            assert!(carried.join(&segment, &Release::new(scope, by, known(by, 5))));
            assert!(!carried.join(&segment, &Release::new(scope, by, known(by, 4))), "known already");
        }
        carried.write(&segment, word);
        assert_eq!(Carried::read(&segment, word), carried);
        assert_eq!(carried.0.len(), 3);
        assert!(carried.join(&segment, &Release::new(Scope::System, far, known(far, 5))));
        assert_eq!(carried.0.len(), 3, "one for all of the system's scope");
        assert_eq!(carried.0[0].narrowest(&segment, near), Some(Scope::Block), "each reader's own");
        for block in 10..30 {
            let by = Strand::thread(here.chain_number(), block, 0);
            carried.join(&segment, &Release::new(Scope::Block, by, known(by, 9)));
        }
        assert!(carried.0.len() <= MOST);
        let seen = |strand| carried.0.iter().any(|one| one.clock.covers(strand, 5));
        assert!([here, near, far].into_iter().all(seen), "nothing is lost");
    }
}
