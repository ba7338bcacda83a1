//! Collective calls of kernels, by the phase of their slot set: all members make the same one in a phase. The
//! first member that comes leaves what it was asked for, and each other one compares.

use super::actor::Spot;
use super::clock::Strand;
use super::segment::Segment;

/// Words that have calls and no clocks: no PE's memory.
const CALLS: u32 = (1 << 14) - 2;
/// Phases of a slot set that are kept: members are at most four apart.
const PHASES: u64 = 8;

/// What a member was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) collective: u32,
    /// Bytes, as the collective counts them.
    pub(crate) size: u64,
    /// The root, the operator and the element's size: as the collective has them.
    pub(crate) more: u64,
    /// Of all three.
    pub(crate) tag: u32,
}

/// A member's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) asked: Asked,
    pub(crate) strand: Strand,
    pub(crate) site: u32,
}

/// The slot set at that offset, of a team whose first member is that PE, is in that phase; a call of another
/// member that was made otherwise.
pub(crate) fn meet(segment: &Segment, slots: u64, first: i32, phase: u64, call: Call) -> Option<Call> {
    let word = segment.word(key(slots, first, phase))?;
    let _held = word.hold();
    let known = segment.entries(word);
    if let [(there, collective), (size, site), (more, tag), (strand, _)] = *known {
        if there == phase {
            let asked = Asked { collective, size, more, tag };
            let other = Call { asked, strand: Strand::from_bits(strand), site };
            return (asked != call.asked).then_some(other);
        }
        if there > phase {
            return None;
        }
    }
    let Asked { collective, size, more, tag } = call.asked;
    let entries = [(phase, collective), (size, call.site), (more, tag), (call.strand.bits(), 0)];
    segment.set_entries(word, entries.into_iter());
    None
}

/// What is kept of the slot set is of a team that is gone: another one begins there.
pub(crate) fn forget(segment: &Segment, slots: u64, first: i32) {
    for phase in 0..PHASES {
        if let Some(word) = segment.word_if_any(key(slots, first, phase)) {
            let _held = word.hold();
            segment.set_entries(word, std::iter::empty());
        }
    }
}

fn key(slots: u64, first: i32, phase: u64) -> u64 {
    let at = (slots >> 6) << 20 | (first as u64 & 0x1_ffff) << 3 | (phase % PHASES);
    Spot { space: CALLS, at: at as usize }.word_key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_phase_are_compared() {
        let segment = Segment::create().unwrap();
        let call = |size, site| Call {
            asked: Asked { collective: 2, size, more: 0, tag: 9 },
            strand: Strand::thread(3, 0, 5),
            site,
        };
        let meet = |slots, first, phase, call| meet(&segment, slots, first, phase, call);
        assert_eq!(meet(4096, 0, 1, call(8, 1)), None);
        assert_eq!(meet(4096, 0, 1, call(8, 2)), None);
        assert_eq!(meet(4096, 0, 1, call(9, 3)), Some(call(8, 1)));
        assert_eq!(meet(4096, 2, 1, call(9, 3)), None, "another team has the same slots elsewhere");
        assert_eq!(meet(8192, 0, 1, call(9, 3)), None);
        assert_eq!(meet(4096, 0, 9, call(16, 4)), None, "a later phase in the same place");
        assert_eq!(meet(4096, 0, 1, call(9, 3)), None, "too late to be compared");
        forget(&segment, 4096, 0);
        assert_eq!(meet(4096, 0, 1, call(24, 5)), None, "the first call of another team in that place");
        assert_eq!(meet(4096, 0, 1, call(32, 6)), Some(call(24, 5)));
        assert_eq!(meet(4096, 2, 1, call(8, 7)), Some(call(9, 3)), "the team elsewhere is still there");
    }
}
