//! Collectives of two PEs by bare instructions, on streams (`kernels/bare.cu`) and inside kernels
//! (`kernels/bare_inside.cu`): what the machine allows of them, beside which `device targets` sets the
//! library's.

use rushmem::{ByValue, Kernel, Launch, Stream};

use super::bench::{Bench, Rounds, Shape};
use super::collectives::{self, Arrays};
use super::kernels::{Family, Job};
use super::measure::{Part, What};
use super::scope::Scope;
use super::spec::{Spec, INSIDE};
use crate::job::{Failure, Result};

/// The most bytes of a PE's larger array that go by packets, and by rows.
const MOST_BY_PACKETS: u64 = 64 << 10;
const MOST_BY_ROWS: u64 = 1 << 20;
/// Threads of a block that sends packets, a word each.
const THREADS: u32 = 128;
/// The most bytes from a PE to the other that a block sends in packets, where its threads have several.
const MOST_OF_BLOCK: u64 = 64 << 10;

/// The kernel's name and its launch; none where there is no such kernel. Elements of 8 bytes, as the kernels
/// move words.
fn form(spec: &Spec) -> Option<(String, Shape)> {
    let name = spec.stream_collective()?;
    if spec.what == What::StreamTeamBarrier {
        return None;
    }
    let each = match spec.what {
        What::StreamReduce | What::StreamBroadcast => spec.bytes,
        _ => spec.bytes / 2,
    };
    if each % 16 != 0 && each != 8 {
        return None;
    }
    if spec.bytes <= MOST_BY_PACKETS {
        let words = (each / 8) as u32;
        let threads = words.next_multiple_of(32).min(THREADS);
        return Some((format!("bare_{name}_packets"), Shape { blocks: words.div_ceil(threads), threads }));
    }
    if spec.bytes <= MOST_BY_ROWS {
        return Some((format!("bare_{name}_rows"), Shape { blocks: 128, threads: 256 }));
    }
    Some((format!("bare_{name}_meetings"), collectives::shape(spec, true).ok()??))
}

/// Whether there is one for it, of two PEs with a GPU each.
pub(super) fn is_there(spec: &Spec) -> bool {
    spec.bare && form(spec).is_some()
}

/// The forms that a collective inside a kernel has in such a launch, the best of which is what the machine
/// allows; none where there are no bare kernels for it.
pub(super) fn inside(spec: &Spec, shape: Shape) -> Vec<&'static str> {
    let whole = matches!(spec.what, What::Reduce | What::Broadcast);
    let each = if whole { spec.bytes } else { spec.bytes / 2 };
    let threads = u64::from(shape.blocks) * u64::from(shape.threads);
    let a_word_each = each % 8 == 0 && each.div_ceil(8) <= threads;
    let forms: &[&str] = match (spec.what, spec.scope) {
        _ if !spec.bare || !spec.what.row().family.is_collective() => &[],
        (What::Reduce, Scope::Thread | Scope::Warp) if a_word_each => &["packet"],
        (What::Reduce, Scope::Block | Scope::GridParts) | (_, Scope::Block) => match each {
            4 if !whole => &["element"],
            _ if a_word_each && each < MOST_BY_PACKETS => &["packet"],
            _ if a_word_each => &["packet", "rows"],
            _ if each % 16 != 0 => &[],
            _ if each > MOST_BY_ROWS => &["loads", "stores", "halves"],
            _ if each / u64::from(shape.blocks) > MOST_OF_BLOCK => &["rows", "loads", "stores", "halves"],
            _ => &["packets", "rows", "loads", "stores", "halves"],
        },
        _ => &[],
    };
    // Shares of sums are loaded, and two PEs have halves of whole ones alone.
    let has = |form: &str| match form {
        "stores" => spec.what != What::Reducescatter,
        "halves" => spec.what == What::Reduce && each % 32 == 0,
        _ => true,
    };
    forms.iter().copied().filter(|form| has(form)).collect()
}

/// The kernel of such a form.
pub(super) fn kernel_inside(spec: &Spec, form: &str) -> String {
    format!("{INSIDE}{}_{}_{form}", spec.what.row().kernel, spec.scope.word())
}

/// A call that can be put on a stream.
pub(super) struct BareCall<'b> {
    kernel: Kernel<'b>,
    launch: Launch,
    job: Job,
}

impl<'b> BareCall<'b> {
    pub(super) fn new(bench: &'b Bench<'_>, spec: &Spec, arrays: &Arrays<'_>) -> Result<BareCall<'b>> {
        let (name, shape) =
            form(spec).ok_or_else(|| Failure::new(format!("{}: no bare kernel", spec.measure())))?;
        let kernel = bench.kernel(Family::Bare, &name)?;
        let none = Rounds { iterations: 0, batches: 0, warm_up: 0 };
        let job = bench.job(spec, none, Part::Pair);
        let job = Job { to: arrays.to(), from: arrays.from(), ..job };
        Ok(BareCall { kernel, launch: Launch::new(shape.blocks, shape.threads).early(), job })
    }

    /// `round` says which PE is a broadcast's root.
    pub(super) fn queue(&self, round: u64, stream: &Stream<'_>) -> Result<()> {
        let job = Job { op: (round % 2) as u32, ..self.job };
        // SAFETY: the kernel stays within the arrays and the room, which live as long as the bench; its PEs
        // make the same calls, and touch what is the other's between the meetings that it says.
        Ok(unsafe { self.kernel.launch_on(self.launch, (ByValue(job),), stream) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_form_of_each_size_of_whole_words() {
        let of = |what, bytes| form(&Spec { scope: Scope::Graph, bytes, ..Spec::new(what) });
        let named = |what, bytes| of(what, bytes).map(|(name, shape)| (name, shape.blocks, shape.threads));
        let is = |name: &str, blocks, threads| Some((name.to_owned(), blocks, threads));
        assert_eq!(named(What::StreamReduce, 8), is("bare_reduce_packets", 1, 32));
        assert_eq!(named(What::StreamReduce, 64 << 10), is("bare_reduce_packets", 64, 128));
        assert_eq!(named(What::StreamAlltoall, 64 << 10), is("bare_alltoall_packets", 32, 128));
        assert_eq!(named(What::StreamFcollect, 1 << 20), is("bare_fcollect_rows", 128, 256));
        assert_eq!(named(What::StreamAlltoall, 8), None);
        assert_eq!(named(What::StreamTeamBarrier, 8), None);
        assert_eq!(named(What::Reduce, 8), None);
    }

    #[test]
    fn forms_inside_kernels_are_those_of_their_size() {
        let of = |what, scope, blocks, bytes| {
            let spec = Spec { scope, blocks, threads: 512, bytes, bare: true, ..Spec::new(what) };
            inside(&spec, Shape { blocks, threads: if scope == Scope::Thread { 1 } else { 512 } })
        };
        let block = |what, bytes| of(what, Scope::Block, 1, bytes);
        assert_eq!(block(What::Reduce, 8), ["packet"]);
        assert_eq!(block(What::Alltoall, 8), ["element"]);
        assert_eq!(block(What::Alltoall, 1 << 10), ["packet"]);
        assert_eq!(block(What::Reduce, 64 << 10), ["packets", "rows", "loads", "stores", "halves"]);
        assert_eq!(block(What::Broadcast, 1 << 20), ["rows", "loads", "stores"]);
        assert_eq!(block(What::Reducescatter, 1 << 20), ["rows", "loads"]);
        assert_eq!(of(What::Reduce, Scope::Thread, 1, 8), ["packet"]);
        assert_eq!(of(What::Reduce, Scope::GridParts, 128, 64 << 10), ["packet", "rows"]);
        assert_eq!(of(What::Reduce, Scope::GridParts, 128, 16 << 20), ["loads", "stores", "halves"]);
        let none: [&str; 0] = [];
        assert_eq!(of(What::Alltoall, Scope::Thread, 1, 16), none);
        assert_eq!(of(What::Reduce, Scope::Grid, 128, 64 << 10), none);
        assert_eq!(block(What::Sync, 8), none);
        let spec = Spec { scope: Scope::Block, ..Spec::new(What::Fcollect) };
        assert_eq!(kernel_inside(&spec, "rows"), "bare_fcollect_block_rows");
    }
}
