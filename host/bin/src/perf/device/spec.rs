//! One figure to be made: which operation, by whom, of what size, in what shape of launch. A plan is a list of these; it
//! travels to the PEs as JSON.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::kernels::Family;
use crate::report::Limit;

/// How names of probes begin.
pub(super) const PROBE: &str = "probe_";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    PutLatency,
    GetLatency,
    PLatency,
    GLatency,
    SignalLatency,
    AtomicLatency,
    SignalPingpong,
    PutSignalPingpong,
    PutPingpong,
    PPingpong,
    AtomicPingpong,
    PackedPingpong,
    PutBw,
    GetBw,
    PBw,
    GBw,
    Rate,
    AtomicBw,
    Sync,
    Barrier,
    Wait,
    // Initiated by the host.
    HostPut,
    HostGet,
    HostP,
    HostPutSignal,
    HostSignalPingpong,
    HostPutBw,
    HostGetBw,
    HostBarrier,
}

/// Which PEs run the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// PE 0; PE 1 has the memory.
    First,
    /// PE 0 and PE 1.
    Pair,
    /// All.
    All,
}

/// What becomes of the time of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// Bytes of it in a nanosecond.
    Bandwidth,
    /// Millions of messages of 8 bytes in a second.
    Rate,
}

impl What {
    /// The kernel's name, without scope or operation.
    fn word(self) -> &'static str {
        match self {
            What::PutLatency => "put_latency",
            What::GetLatency => "get_latency",
            What::PLatency => "p_latency",
            What::GLatency => "g_latency",
            What::SignalLatency => "signal_latency",
            What::AtomicLatency => "atomic_latency",
            What::SignalPingpong => "signal_pingpong",
            What::PutSignalPingpong => "put_signal_pingpong",
            What::PutPingpong => "put_pingpong",
            What::PPingpong => "p_pingpong",
            What::AtomicPingpong => "atomic_pingpong",
            What::PackedPingpong => "packed_pingpong",
            What::PutBw | What::Rate => "put_bw",
            What::GetBw => "get_bw",
            What::PBw => "p_bw",
            What::GBw => "g_bw",
            What::AtomicBw => "atomic_bw",
            What::Sync => "sync",
            What::Barrier => "barrier",
            What::Wait => "local",
            What::HostPut => "host_put",
            What::HostGet => "host_get",
            What::HostP => "host_p",
            What::HostPutSignal => "host_put_signal",
            What::HostSignalPingpong => "host_signal_pingpong",
            What::HostPutBw => "host_put_bw",
            What::HostGetBw => "host_get_bw",
            What::HostBarrier => "host_barrier",
        }
    }

    /// For people.
    fn label(self) -> &'static str {
        match self {
            What::PutLatency | What::HostPut => "put + quiet",
            What::GetLatency => "get",
            What::HostGet => "get + quiet",
            What::PLatency | What::HostP => "p + quiet",
            What::HostPutSignal => "put_signal",
            What::GLatency => "g",
            What::SignalLatency => "signal + quiet",
            What::AtomicLatency => "",
            What::SignalPingpong | What::HostSignalPingpong => "signal ping-pong",
            What::PutSignalPingpong => "put_signal ping-pong",
            What::PutPingpong => "put + quiet ping-pong",
            What::PPingpong => "p + quiet ping-pong",
            What::AtomicPingpong => "atomic inc ping-pong",
            What::PackedPingpong => "packed ping-pong",
            What::PutBw | What::HostPutBw => "put bandwidth",
            What::GetBw | What::HostGetBw => "get bandwidth",
            What::PBw => "p bandwidth",
            What::GBw => "g bandwidth",
            What::Rate => "put rate",
            What::AtomicBw => "bandwidth",
            What::Sync => "sync_all",
            What::Barrier | What::HostBarrier => "barrier_all",
            What::Wait => "",
        }
    }

    /// Where its kernels are.
    pub(super) fn family(self) -> Family {
        match self {
            What::PutLatency | What::GetLatency | What::PLatency | What::GLatency | What::SignalLatency => {
                Family::Latency
            }
            What::SignalPingpong
            | What::PutSignalPingpong
            | What::PutPingpong
            | What::PPingpong
            | What::AtomicPingpong
            | What::PackedPingpong => Family::Pingpong,
            What::PutBw | What::GetBw | What::PBw | What::GBw | What::Rate => Family::Bandwidth,
            What::AtomicBw | What::AtomicLatency => Family::Atomic,
            What::Sync | What::Barrier => Family::Sync,
            What::Wait
            | What::HostPut
            | What::HostGet
            | What::HostP
            | What::HostPutSignal
            | What::HostSignalPingpong
            | What::HostPutBw
            | What::HostGetBw
            | What::HostBarrier => Family::Local,
        }
    }

    /// Who runs its kernel.
    pub(super) fn part(self, both: bool) -> Part {
        match self.family() {
            _ if self == What::HostSignalPingpong => Part::Pair,
            _ if self == What::HostBarrier => Part::All,
            Family::Pingpong => Part::Pair,
            Family::Sync => Part::All,
            Family::Bandwidth | Family::Atomic if both => Part::Pair,
            _ => Part::First,
        }
    }

    /// What is shown of it.
    pub(super) fn figure(self) -> Figure {
        match self {
            What::Rate => Figure::Rate,
            What::PutBw | What::GetBw | What::PBw | What::GBw | What::AtomicBw => Figure::Bandwidth,
            What::HostPutBw | What::HostGetBw => Figure::Bandwidth,
            What::Wait => Figure::Ns,
            _ => Figure::Us,
        }
    }

    /// Whether its size is a choice.
    pub(super) fn has_sizes(self) -> bool {
        use What::{AtomicLatency, AtomicPingpong, Barrier, Rate, SignalLatency, SignalPingpong, Sync, Wait};
        !matches!(self, SignalPingpong | AtomicPingpong | Rate | Sync | Barrier | Wait)
            && !matches!(self, SignalLatency | AtomicLatency)
            && !matches!(self, What::HostP | What::HostSignalPingpong | What::HostBarrier)
    }

    /// Whether blocks and threads are a choice, and whether both PEs may do it at once.
    pub(super) fn has_grid(self) -> bool {
        matches!(self.family(), Family::Bandwidth | Family::Atomic) && self != What::AtomicLatency
    }

    /// Whether the host calls for it, and no kernel of ours does the work.
    pub(super) fn is_from_host(self) -> bool {
        use What::{
            HostBarrier, HostGet, HostGetBw, HostP, HostPut, HostPutBw, HostPutSignal, HostSignalPingpong,
        };
        matches!(
            self,
            HostPut
                | HostGet
                | HostP
                | HostPutSignal
                | HostSignalPingpong
                | HostPutBw
                | HostGetBw
                | HostBarrier
        )
    }

    /// Whether all PEs take part.
    pub(super) fn is_collective(self) -> bool {
        matches!(self, What::Sync | What::Barrier | What::HostBarrier)
    }

    /// Whether it can move so many bytes.
    pub(super) fn takes(self, bytes: u64) -> bool {
        !self.takes_words() || bytes % 8 == 0
    }

    /// Whether it moves whole words of 8 bytes.
    fn takes_words(self) -> bool {
        matches!(
            self,
            What::PLatency | What::GLatency | What::PPingpong | What::PBw | What::GBw | What::AtomicBw
        )
    }

    /// Whether the destination may be off.
    pub(super) fn has_shift(self) -> bool {
        use What::{GetBw, GetLatency, PutBw, PutLatency, PutPingpong, PutSignalPingpong};
        matches!(self, PutLatency | GetLatency | PutSignalPingpong | PutPingpong | PutBw | GetBw)
    }

    /// Whether it may go through shared memory.
    pub(super) fn has_stage(self) -> bool {
        matches!(self, What::PutLatency | What::GetLatency | What::PutBw | What::GetBw)
    }

    /// The scopes that it has.
    pub(super) fn scopes(self) -> &'static [Scope] {
        use Scope::{Block, Graph, Host, Stream, Thread, Warp};
        match self {
            What::PutLatency
            | What::GetLatency
            | What::PutSignalPingpong
            | What::PutPingpong
            | What::PackedPingpong
            | What::Sync
            | What::Barrier => &[Thread, Warp, Block],
            What::PLatency | What::GLatency | What::PPingpong => &[Thread, Warp, Block],
            What::PutBw | What::GetBw | What::PBw | What::GBw => &[Block, Warp, Thread],
            What::AtomicBw => &[Block],
            What::SignalPingpong
            | What::AtomicPingpong
            | What::SignalLatency
            | What::AtomicLatency
            | What::Rate
            | What::Wait => &[Thread],
            What::HostSignalPingpong | What::HostBarrier => &[Stream, Host],
            _ => &[Stream, Graph, Host],
        }
    }

    /// The operations that it has several of; none where it is one itself.
    pub(super) fn operations(self) -> &'static [&'static str] {
        match self {
            What::AtomicBw | What::AtomicLatency => &[
                "inc",
                "fetch_inc",
                "add",
                "fetch_add",
                "and",
                "fetch_and",
                "or",
                "fetch_or",
                "xor",
                "fetch_xor",
                "set",
                "fetch",
                "swap",
                "compare_swap",
            ],
            What::Wait => &["wait", "test_true", "test_false", "signal_fetch", "signal_wait"],
            _ => &[],
        }
    }

    /// Whether the bare instructions have a kernel of their own.
    fn has_probe(self) -> bool {
        matches!(
            self,
            What::PutLatency
                | What::SignalPingpong
                | What::PutSignalPingpong
                | What::PPingpong
                | What::AtomicPingpong
                | What::PackedPingpong
                | What::PutBw
                | What::GetBw
                | What::PBw
                | What::Sync
                | What::Barrier
        )
    }
}

/// Whether an atomic operation gives the old value.
fn fetches(operation: &str) -> bool {
    operation.starts_with("fetch") || operation.ends_with("swap")
}

/// Who takes part in one operation.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// One thread.
    Thread,
    /// A warp.
    Warp,
    /// A block.
    Block,
    /// None: the host puts it on a stream.
    #[value(skip)]
    Stream,
    /// None: a CUDA graph of such operations is launched.
    #[value(skip)]
    Graph,
    /// None: the host does it itself.
    #[value(skip)]
    Host,
}

impl Scope {
    /// As the kernels' names and other tools' files say it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Block => "block",
            Scope::Stream => "stream",
            Scope::Graph => "graph",
            Scope::Host => "host",
        }
    }
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
    /// What arrives is made wrong before it is looked at: for the test that this is an error.
    #[serde(default)]
    pub(crate) corrupt: bool,
    /// What must be reached.
    pub(crate) limit: Option<Limit>,
    /// What the peer needs for it, where no file says.
    pub(crate) peer: Option<f64>,
}

impl Spec {
    /// 8 bytes by one thread, with a probe where there is one.
    pub(crate) fn new(what: What) -> Spec {
        Spec {
            what,
            scope: what.scopes()[0],
            operation: None,
            blocks: 1,
            threads: 1,
            bytes: 8,
            both: false,
            shift: 0,
            stage: 0,
            probe: true,
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
            Some(operation) => format!("{operation} {}", self.what.label()).trim_end().to_owned(),
            None => self.what.label().to_owned(),
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
        let word = self.what.word();
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

    /// The kernel that does the same with bare instructions, or a name for the driver's own call.
    pub(super) fn probe(&self) -> Option<String> {
        let one_word = matches!(self.what, What::PutSignalPingpong | What::PPingpong | What::PackedPingpong);
        let there = self.probe
            && self.what.has_probe()
            && self.in_words()
            && self.stage == 0
            && (!one_word || (self.bytes == 8 && self.scope == Scope::Thread))
            // As its threads share the words out in a block; in narrower scopes that is another access altogether.
            && (self.what != What::PBw || self.scope == Scope::Block);
        let copy = self.probe
            && matches!(self.what, What::HostPut | What::HostGet | What::HostPutBw | What::HostGetBw)
            && matches!(self.scope, Scope::Stream | Scope::Graph);
        (there || copy).then(|| format!("{PROBE}{}", self.kernel()))
    }

    /// Whether its size is shown.
    pub(super) fn shows_bytes(&self) -> bool {
        self.what.has_sizes() || self.what == What::Rate
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
}
