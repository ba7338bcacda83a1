//! The direct path at every size: `rushmem-perf device curves`. Point-to-point operations of two PEs over the
//! sizes from 8 bytes to 256 MiB, at every scope and by 1, 4, 32 and 132 blocks, each beside the peer's
//! figure (`--compare`) and the same operations by bare instructions. A row is over where it is more than 1 %
//! behind the peer, or further from the bare instructions than `APART`, in both of two runs: what one run
//! shows alone is noise.

use super::measure::What;
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
    use Scope::{Block, Graph, Stream, Thread, Warp};
    let mut specs = Vec::new();
    for what in [What::PutLatency, What::GetLatency, What::PLatency, What::GLatency, What::PutSignalPingpong]
    {
        for (scope, threads, last) in [(Thread, 1, 13), (Warp, 32, 18), (Block, 1024, 20)] {
            specs.extend(powers(3, last, 1).map(|bytes| Spec {
                scope,
                threads,
                bytes,
                ..limited(what, APART)
            }));
        }
    }
    for what in [What::SignalPingpong, What::AtomicPingpong] {
        specs.push(limited(what, APART));
    }
    for both in [false, true] {
        for what in [What::PutBw, What::GetBw, What::PBw, What::GBw] {
            for blocks in [1, 4, 32, 132] {
                // Words take as long as bytes do; a peer of them ends at 32 MiB.
                let last = if matches!(what, What::PBw | What::GBw) { 24 } else { 28 };
                specs.extend(powers(10, last, if both { 3 } else { 1 }).map(|bytes| Spec {
                    scope: Block,
                    blocks,
                    threads: 1024,
                    bytes,
                    both,
                    ..limited(what, APART)
                }));
            }
        }
    }
    for (what, scope) in
        [What::HostPut, What::HostGet].into_iter().flat_map(|what| [(what, Stream), (what, Graph)])
    {
        let apart = if scope == Graph { APART_IN_GRAPH } else { APART };
        specs.extend(powers(3, 20, 1).map(|bytes| Spec { scope, bytes, ..limited(what, apart) }));
    }
    // Bare copies are of whole vectors, one for each block at least.
    specs.retain(|spec| spec.bytes >= 16 * u64::from(spec.blocks) || spec.blocks == 1);
    if machine.share(2) > 1 {
        specs.iter_mut().for_each(|spec| spec.limit = None);
    }
    if !machine.is_gpu() {
        specs.retain(|spec| spec.scope != Graph && spec.bytes <= 1 << 16 && spec.blocks <= 4);
        specs.iter_mut().for_each(small);
        specs.dedup();
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

/// Of two runs of the same figures the better of each: what is over in it is over in both.
pub(super) fn better(first: Vec<Row>, second: Vec<Row>) -> Vec<Row> {
    let better = |(first, second): (Row, Row)| {
        debug_assert_eq!((&first.measure, first.bytes), (&second.measure, second.bytes));
        if second.excess() < first.excess() {
            second
        } else {
            first
        }
    };
    first.into_iter().zip(second).map(better).collect()
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
        assert_eq!(sizes(What::PutBw, 132), (12..=28).map(|power| 1 << power).collect::<Vec<u64>>());
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
        let kept = |a: Row, b: Row| better(vec![a], vec![b])[0].kept();
        assert_eq!(kept(row(1.2, None), row(1.05, None)), Some(true));
        assert_eq!(kept(row(1.2, None), row(1.15, None)), Some(false));
        // Behind the peer, though near the bare instructions.
        assert_eq!(kept(row(1.05, Some(1.0)), row(1.04, Some(1.0))), Some(false));
        assert_eq!(kept(row(1.05, Some(1.1)), row(1.04, Some(1.1))), Some(true));
        // Level with it, and no longer.
        assert_eq!(kept(row(1.009, Some(1.0)), row(1.008, Some(1.0))), Some(true));
        assert_eq!(kept(row(1.012, Some(1.0)), row(1.011, Some(1.0))), Some(false));
        let text = worst(&[row(1.05, None), row(2.2, Some(4.0))]);
        assert_eq!(worst(&[]), "");
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("2.00  put + quiet 8 B")), "{text}");
    }
}
