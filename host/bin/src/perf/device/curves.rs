//! The direct path at every size: `rushmem-perf device curves`. Point-to-point operations of two PEs over the
//! sizes from 8 bytes to 256 MiB, at every scope and by 1, 4, 32 and 132 blocks, each beside the peer's
//! figure (`--compare`) and the same operations by bare instructions. A row is over where it is more than 1 %
//! behind the peer, or further from the bare instructions than `APART`, in both of two runs: what one run
//! shows alone is noise. The second run is of the rows that are over in the first.

use super::measure::{What, MOST_ATOMIC};
use super::plan::Machine;
use super::scope::Scope;
use super::spec::Spec;
use crate::report::{Limit, Row};

/// How many times as long, or as slow, as bare instructions an operation of the library may be.
const APART: f64 = 1.1;
/// The same in a CUDA graph, where the host's share is gone.
const APART_IN_GRAPH: f64 = 1.03;
/// How many times as fast as bare instructions a peer's get must be to have come out of a cache.
const CACHED: f64 = 1.1;
/// Rows that are shown as the worst.
const WORST: usize = 10;

/// The figures, in their order.
pub(super) fn specs(machine: Machine) -> Vec<Spec> {
    let mut specs = latencies();
    specs.extend(atomics());
    specs.extend(bandwidths());
    specs.extend(on_streams());
    // Bare copies are of whole vectors, one for each block at least.
    specs.retain(|spec| spec.bytes >= 16 * u64::from(spec.blocks) || spec.blocks == 1);
    if machine.share(2) > 1 {
        specs.iter_mut().for_each(|spec| spec.limit = None);
    }
    if !machine.is_gpu() {
        specs.retain(|spec| spec.scope != Scope::Graph && spec.bytes <= 1 << 16 && spec.blocks <= 4);
        specs.iter_mut().for_each(small);
        let mut seen: Vec<Spec> = Vec::new();
        specs.retain(|spec| {
            let new = !seen.contains(spec);
            if new {
                seen.push(spec.clone());
            }
            new
        });
    }
    specs
}

/// One operation after the other, of every size that takes a few milliseconds at most.
fn latencies() -> Vec<Spec> {
    use Scope::{Block, Thread, Warp};
    let mut specs = Vec::new();
    for what in [What::PutLatency, What::GetLatency, What::PLatency, What::GLatency, What::PutSignalPingpong]
    {
        // A word takes as long as a vector.
        let less = if matches!(what, What::PLatency | What::GLatency) { 4 } else { 0 };
        for (scope, threads, last) in [(Thread, 1, 20), (Warp, 32, 24), (Block, 1024, 28)] {
            specs.extend(powers(3, last - less, 1).map(|bytes| Spec {
                scope,
                threads,
                bytes,
                ..limited(what, APART)
            }));
        }
    }
    specs
}

/// Signals and every atomic operation, by one thread; and words by blocks, one way and both: each operation
/// of 64 KiB by four blocks, and those two that stand for the others at every size.
fn atomics() -> Vec<Spec> {
    let mut specs = Vec::new();
    for what in [What::SignalLatency, What::SignalPingpong, What::AtomicPingpong] {
        specs.push(limited(what, APART));
    }
    let operations = What::AtomicBw.row().operations;
    let of = |what, operation: &str| Spec { operation: Some(operation.to_owned()), ..limited(what, APART) };
    specs.extend(operations.iter().map(|operation| of(What::AtomicLatency, operation)));
    for both in [false, true] {
        for operation in operations {
            let every = ["add", "fetch_add"].contains(operation);
            for blocks in if every { &[1, 4, 32, 132][..] } else { &[4] } {
                let first = if every { 3 } else { MOST_ATOMIC.ilog2() };
                specs.extend(powers(first, MOST_ATOMIC.ilog2(), 1).map(|bytes| Spec {
                    scope: Scope::Block,
                    blocks: *blocks,
                    threads: 1024,
                    bytes,
                    both,
                    ..of(What::AtomicBw, operation)
                }));
            }
        }
    }
    specs
}

/// By blocks at every size, by each block's warps and threads at every 64th.
fn bandwidths() -> Vec<Spec> {
    use Scope::{Block, Thread, Warp};
    let mut specs = Vec::new();
    for both in [false, true] {
        for what in [What::PutBw, What::GetBw, What::PBw, What::GBw] {
            let words = matches!(what, What::PBw | What::GBw);
            for (scope, step) in [(Block, 1), (Warp, 6), (Thread, 6)] {
                if words && scope != Block {
                    continue;
                }
                for blocks in [1, 4, 32, 132] {
                    specs.extend(powers(10, 28, step).map(|bytes| Spec {
                        scope,
                        blocks,
                        threads: 1024,
                        bytes,
                        both,
                        ..limited(what, APART)
                    }));
                }
            }
        }
    }
    // Each thread has a vector at least.
    specs.retain(|spec| spec.scope == Block || spec.bytes >= u64::from(16 * spec.blocks * spec.threads));
    specs
}

fn on_streams() -> Vec<Spec> {
    use Scope::{Graph, Stream};
    let mut specs = Vec::new();
    for (what, scope) in
        [What::HostPut, What::HostGet].into_iter().flat_map(|what| [(what, Stream), (what, Graph)])
    {
        let apart = if scope == Graph { APART_IN_GRAPH } else { APART };
        specs.extend(powers(3, 28, 1).map(|bytes| Spec { scope, bytes, ..limited(what, apart) }));
    }
    specs
}

/// For the CPU device: a shape for a laptop, a size in four, and nothing promised.
fn small(spec: &mut Spec) {
    spec.blocks = spec.blocks.min(2);
    spec.threads = spec.threads.min(64);
    spec.bytes = 1 << (spec.bytes.ilog2() / 4 * 4).max(3);
    spec.limit = None;
}

fn powers(first: u32, last: u32, step: usize) -> impl Iterator<Item = u64> {
    (first..=last).step_by(step).map(|power| 1 << power)
}

fn limited(what: What, apart: f64) -> Spec {
    Spec { limit: Some(Limit::Beside(apart)), ..Spec::new(what) }
}

/// Takes out the peer's figures of gets that no link can have brought: where loads that go to the other GPU
/// each time take longer, the peer's came out of a cache.
pub(super) fn without_caches(rows: &mut [Row]) {
    for row in rows.iter_mut().filter(|row| {
        let get = row.measure.split([' ', ',']).next();
        get == Some("get") || get == Some("g")
    }) {
        let Some(bare) = row.reference.as_ref().map(|bare| bare.summary.median) else { continue };
        let more = row.more_is_better();
        row.peer.take_if(|peer| if more { peer.value > bare * CACHED } else { peer.value * CACHED < bare });
    }
}

/// Of figures that were made once, those to be made again: the ones that are over.
pub(super) fn again(specs: &[Spec], rows: &[Row]) -> Vec<Spec> {
    let over = |(spec, row): (&Spec, &Row)| (row.kept() == Some(false)).then(|| spec.clone());
    specs.iter().zip(rows).filter_map(over).collect()
}

/// Of two runs the better of each row: what is over in it is over in both. The second run has only the rows
/// that are over in the first.
pub(super) fn better(first: Vec<Row>, second: Vec<Row>) -> Vec<Row> {
    let mut second = second.into_iter();
    let better = |first: Row| {
        if first.kept() != Some(false) {
            return first;
        }
        let Some(second) = second.next() else { return first };
        debug_assert_eq!((&first.measure, first.bytes), (&second.measure, second.bytes));
        if second.excess() < first.excess() {
            second
        } else {
            first
        }
    };
    first.into_iter().map(better).collect()
}

/// The rows that are furthest over what they may be, or nearest to it, the worst first; empty where nothing
/// is promised.
pub(super) fn worst(rows: &[Row]) -> String {
    let mut by_excess: Vec<(f64, &Row)> = rows.iter().filter_map(|row| Some((row.excess()?, row))).collect();
    by_excess.sort_by(|a, b| b.0.total_cmp(&a.0));
    if by_excess.is_empty() {
        return String::new();
    }
    let mut text = String::from("the worst rows, by what is allowed:\n");
    for (excess, row) in by_excess.iter().take(WORST) {
        let shape = row.shape.as_ref().map_or_else(String::new, |shape| {
            format!("{}, {} x {}", shape.scope, shape.blocks, shape.threads)
        });
        let of = |what: &str, ratio: Option<f64>| {
            ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} of {what}"))
        };
        text.push_str(&format!(
            "  {:.2}  {} ({shape}): {:.4} {}{}{}\n",
            excess,
            row.operation(),
            row.ours.median,
            row.unit,
            of("bare", row.ratio),
            of("the peer", row.peer_ratio())
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Beside;
    use crate::stats::Summary;

    #[test]
    fn every_size_is_there_on_gpus_and_nothing_is_promised_elsewhere() {
        let specs = specs(Machine { gpus: 2 });
        let sizes = |what, blocks| {
            let same = |spec: &&Spec| spec.what == what && spec.blocks == blocks && !spec.both;
            specs.iter().filter(same).map(|spec| spec.bytes).collect::<Vec<_>>()
        };
        for what in [What::PutBw, What::GBw] {
            let found = sizes(what, 132);
            assert_eq!(found[..17], (12..=28).map(|power| 1 << power).collect::<Vec<u64>>(), "{what:?}");
        }
        assert!(specs.iter().all(|spec| matches!(spec.limit, Some(Limit::Beside(_)))));
        let laptop = super::specs(Machine { gpus: 0 });
        assert!(super::specs(Machine { gpus: 1 }).iter().all(|spec| spec.limit.is_none()), "they share it");
        assert!(laptop.len() > 30 && laptop.iter().all(|spec| spec.limit.is_none() && spec.threads <= 64));
    }

    #[test]
    fn a_peer_that_reads_its_cache_is_none() {
        let row = |measure: &str, unit: &str, peer| {
            let mut row = Row::new(measure, Some(8), 2, unit, Summary::single(1.0))
                .against("bare instructions", Summary::single(1.0));
            row.peer = Some(Beside { name: "peer".into(), value: peer });
            row
        };
        let mut rows = [
            row("get", "us", 0.3),
            row("get", "us", 0.95),
            row("g bandwidth, both ways", "GB/s", 3.0),
            row("put + quiet", "us", 0.3),
        ];
        without_caches(&mut rows);
        assert_eq!(rows.map(|row| row.peer.is_some()), [false, true, false, true]);
    }

    #[test]
    fn a_row_is_over_where_both_runs_are() {
        let row = |ours: f64, peer: Option<f64>| {
            let mut row = Row::new("put + quiet", Some(8), 2, "us", Summary::single(ours))
                .against("bare instructions", Summary::single(1.0))
                .limit(Limit::Beside(APART));
            row.peer = peer.map(|value| Beside { name: "peer".into(), value });
            row
        };
        let kept = |a: Row, b: Row| {
            let again = again(&[Spec::new(What::PutLatency)], std::slice::from_ref(&a)).len();
            better(vec![a], vec![b].into_iter().take(again).collect())[0].kept()
        };
        assert_eq!(kept(row(1.2, None), row(1.05, None)), Some(true));
        assert_eq!(kept(row(1.2, None), row(1.15, None)), Some(false));
        // Behind the peer, though near the bare instructions.
        assert_eq!(kept(row(1.05, Some(1.0)), row(1.04, Some(1.0))), Some(false));
        assert_eq!(kept(row(1.05, Some(1.0)), row(1.0, Some(1.0))), Some(true));
        assert_eq!(kept(row(1.05, Some(1.1)), row(1.04, Some(1.1))), Some(true));
        // Level with it, and no longer.
        assert_eq!(kept(row(1.009, Some(1.0)), row(1.008, Some(1.0))), Some(true));
        assert_eq!(kept(row(1.012, Some(1.0)), row(1.011, Some(1.0))), Some(false));
        let specs = [1, 2, 3].map(|bytes| Spec { bytes, ..Spec::new(What::PutLatency) });
        let rows = [row(1.2, None), row(1.0, None), row(1.3, None)];
        assert_eq!(again(&specs, &rows).iter().map(|spec| spec.bytes).collect::<Vec<_>>(), [1, 3]);
        let both = better(rows.to_vec(), vec![row(1.05, None), row(1.25, None)]);
        assert_eq!(both.iter().map(|row| row.ours.median).collect::<Vec<_>>(), [1.05, 1.0, 1.25]);
        // Nothing beside it: nothing is known, which is no success.
        let alone = Row::new("put", Some(8), 2, "us", Summary::single(1.0)).limit(Limit::Beside(APART));
        assert_eq!(alone.kept(), Some(false));
        let text = worst(&[row(1.05, None), row(2.2, Some(4.0))]);
        assert_eq!(worst(&[]), "");
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("2.00  put + quiet 8 B")), "{text}");
    }
}
