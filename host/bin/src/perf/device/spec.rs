//! One figure to be made: which operation, by whom, of what size, in what shape of launch. A plan is a list
//! of these; it travels to the PEs as JSON.

use serde::{Deserialize, Serialize};

use super::kernels::Family;
use super::measure::{Probe, What};
use super::scope::Scope;
use crate::report::Limit;

/// How names of probes begin.
pub(super) const PROBE: &str = "probe_";
/// How the names of bare kernels begin that are collectives inside kernels.
pub(super) const INSIDE: &str = "bare_";

/// Whether an atomic operation gives the old value.
fn fetches(operation: &str) -> bool {
    operation.starts_with("fetch") || operation.ends_with("swap")
}

/// One figure to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) what: What,
    pub(crate) scope: Scope,
    /// Of those that `what` has several of.
    pub(crate) operation: Option<String>,
    pub(crate) blocks: u32,
    /// Of a block.
    pub(crate) threads: u32,
    /// That one operation moves; of all blocks together.
    pub(crate) bytes: u64,
    /// In both directions at once.
    pub(crate) both: bool,
    /// Bytes by which the destination is off the source's alignment.
    pub(crate) shift: u32,
    /// Bytes of each block's shared memory that it goes through; 0: it does not.
    pub(crate) stage: u32,
    /// Measures the bare instructions beside it, where there is a probe.
    pub(crate) probe: bool,
    /// Of a collective of two PEs: bare kernels are measured beside it; on a stream not an empty one.
    #[serde(default)]
    pub(crate) bare: bool,
    /// What arrives is made wrong before it is looked at: for the test that this is an error.
    #[serde(default)]
    pub(crate) corrupt: bool,
    /// What must be reached.
    pub(crate) limit: Option<Limit>,
    /// What the peer needs for it, where no file says.
    pub(crate) peer: Option<f64>,
}

impl Spec {
    /// Of a collective of a team that the host puts on a stream: as in the functions' names.
    pub(crate) fn stream_collective(&self) -> Option<&'static str> {
        Some(match self.what {
            What::StreamReduce => "reduce",
            What::StreamReducescatter => "reducescatter",
            What::StreamBroadcast => "broadcast",
            What::StreamFcollect => "fcollect",
            What::StreamAlltoall => "alltoall",
            What::StreamTeamBarrier => "barrier",
            _ => return None,
        })
    }

    /// Bytes between the places to which rounds put, or from which they get, and how many there are besides
    /// the first: a power of two less one. What completes before the next round is put to one place.
    pub(crate) fn places(&self) -> (u64, u32) {
        // Between two places lies a line that nothing may touch.
        let step = self.bytes.next_multiple_of(128) + 128;
        let moves = self.what.row().gets && !self.what.is_from_host();
        if !moves && !matches!(self.what, What::PutBw | What::PBw) {
            return (step, 0);
        }
        // More than the caches of the blocks that have a word hold back, and no more: a cache has whole
        // lines, and what rounds walk through should be in the memory's cache, whatever was measured before.
        let blocks = u64::from(self.blocks).min(self.bytes.div_ceil(8)).max(1);
        let (room, lines) = ((blocks << 19).max(1 << 20), step.max(blocks * 128));
        (step, room.div_ceil(lines).next_power_of_two() as u32 - 1)
    }

    /// Where a round's bytes begin in the memory that it reads, and in that which it writes.
    pub(crate) fn places_of(&self, round: u64) -> (u64, u64) {
        let (step, more) = self.places();
        let place = (round & u64::from(more)) * step;
        if self.what.row().gets {
            (place, 0)
        } else {
            (0, place)
        }
    }

    /// Bytes of memory that rounds read, from the first place's beginning to the last one's end.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.places_of(u64::MAX).0 + self.bytes
    }

    /// The same that they write.
    pub(crate) fn target_bytes(&self) -> u64 {
        self.places_of(u64::MAX).1 + self.bytes
    }

    /// 8 bytes by one thread, with a probe where there is one.
    pub(crate) fn new(what: What) -> Spec {
        Spec {
            what,
            scope: what.row().scopes[0],
            operation: None,
            blocks: 1,
            threads: 1,
            bytes: 8,
            both: false,
            shift: 0,
            stage: 0,
            probe: true,
            bare: false,
            corrupt: false,
            limit: None,
            peer: None,
        }
    }

    /// For people: the operation, without size and shape.
    pub(crate) fn measure(&self) -> String {
        let mut text = match &self.operation {
            Some(operation) if self.what == What::AtomicLatency => match fetches(operation) {
                true => operation.clone(),
                // What fetches is complete when the value is there.
                false => format!("{operation} + quiet"),
            },
            Some(operation) => format!("{operation} {}", self.what.row().label).trim_end().to_owned(),
            None => self.what.row().label.to_owned(),
        };
        if self.both {
            text.push_str(", both ways");
        }
        if self.stage != 0 {
            text.push_str(", staged");
        }
        if self.shift != 0 {
            text.push_str(&format!(", {} B off", self.shift));
        }
        text
    }

    /// Whether elements of 8 bytes fit. Others go as bytes, as a program would have to say it.
    fn in_words(&self) -> bool {
        self.bytes % 8 == 0 && self.shift % 8 == 0
    }

    /// The kernel that measures it.
    pub(super) fn kernel(&self) -> String {
        let word = self.what.row().kernel;
        if self.what.row().family.is_collective() && self.scope == Scope::Block && self.threads > 512 {
            return format!("{word}_large_block");
        }
        match (&self.operation, self.what) {
            // Words of C++ are no names.
            (Some(operation), What::AtomicBw | What::AtomicLatency)
                if ["and", "or", "xor"].contains(&operation.as_str()) =>
            {
                format!("{word}_{operation}_")
            }
            (Some(operation), _) => format!("{word}_{operation}"),
            (None, _) => {
                let elements = match (self.stage, self.in_words()) {
                    (0, true) => "",
                    (0, false) => "_bytes",
                    _ => "_staged",
                };
                format!("{word}_{}{elements}", self.scope.word())
            }
        }
    }

    /// Where the bare kernels are that are measured beside a collective.
    pub(super) fn bare_family(&self) -> Family {
        if self.what.is_from_host() {
            Family::Bare
        } else {
            Family::BareInside
        }
    }

    /// Where a kernel is that measures it, or one beside it.
    pub(super) fn family_of(&self, kernel: &str) -> Family {
        if kernel.starts_with(INSIDE) {
            Family::BareInside
        } else {
            self.what.row().family
        }
    }

    /// The kernel that does the same with bare instructions, or a name for the driver's own call.
    pub(super) fn probe(&self) -> Option<String> {
        let bare = self.in_words() && self.stage == 0;
        let there = match self.what.row().probe {
            Probe::None => false,
            Probe::Kernel => bare,
            Probe::OneWord => bare && self.bytes == 8 && self.scope == Scope::Thread,
            Probe::OfBlocks => bare && self.scope == Scope::Block,
            Probe::Copy | Probe::Empty => matches!(self.scope, Scope::Stream | Scope::Graph),
        };
        (self.probe && there).then(|| format!("{PROBE}{}", self.kernel()))
    }

    /// Whether its size is shown.
    pub(super) fn shows_bytes(&self) -> bool {
        self.what.row().sizes.is_some() || self.what == What::Rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_measured() {
        let spec = Spec { scope: Scope::Warp, bytes: 12, ..Spec::new(What::PutBw) };
        assert_eq!((spec.kernel().as_str(), spec.probe()), ("put_bw_warp_bytes", None));
        let spec = Spec { shift: 1, both: true, ..Spec::new(What::PutBw) };
        assert_eq!(spec.measure(), "put bandwidth, both ways, 1 B off");
        let spec = Spec { operation: Some("xor".into()), ..Spec::new(What::AtomicBw) };
        assert_eq!((spec.kernel().as_str(), spec.measure().as_str()), ("atomic_bw_xor_", "xor bandwidth"));
        let spec = Spec::new(What::PPingpong);
        assert_eq!(spec.probe().as_deref(), Some("probe_p_pingpong_thread"));
        assert_eq!(Spec { bytes: 16, ..spec }.probe(), None);
    }

    /// A line of each block's own cache a round, so that few words of many blocks do not walk through more
    /// than the memory's cache has room for.
    #[test]
    fn rounds_of_few_words_go_to_4096_places() {
        for (blocks, bytes) in [(1, 8), (32, 1024), (33, 8), (33, 264), (132, 8), (132, 1056), (132, 4096)] {
            let get = Spec { bytes, blocks, ..Spec::new(What::GBw) };
            let (step, more) = get.places();
            assert!((4096..8192).contains(&(more + 1)), "{bytes} B by {blocks}: {more}");
            assert!(step * u64::from(more) < 36 << 20, "{bytes} B by {blocks}: {step}");
        }
        let get = Spec { bytes: 1 << 20, blocks: 132, ..Spec::new(What::GBw) };
        assert_eq!(get.places().1, 127);
    }

    #[test]
    fn rounds_read_or_write_sixteen_places_of_64_kib() {
        let (bytes, step) = (1 << 16, (1 << 16) + 128);
        let get = Spec { bytes, ..Spec::new(What::GetBw) };
        let all = 15 * step + bytes;
        assert_eq!((get.places_of(17), get.source_bytes(), get.target_bytes()), ((step, 0), all, bytes));
        let put = Spec { what: What::PutBw, ..get };
        assert_eq!((put.places_of(17), put.source_bytes(), put.target_bytes()), ((0, step), bytes, all));
    }
}
