//! What the project promises, row by row: the operation, the launch, what the peer needs for it (NVSHMEM
//! 3.8.0 on the same two and eight H200s) and what must be reached. Where the bare instructions do no better,
//! 95% of what they do will do.
//!
//! The figures are those of H200s with a GPU for each PE. Elsewhere the same rows are measured, smaller on
//! the CPU device, and nothing is promised.

use super::job::Outcome;
use super::measure::What;
use super::plan::Machine;
use super::scope::Scope;
use super::spec::Spec;
use crate::report::{Limit, Row};
use crate::startup;

const MIB: u64 = 1 << 20;
/// Bytes of shared memory through which staged puts go.
const STAGE: u32 = 128 << 10;

/// The plans: two PEs, and eight where there are as many GPUs.
pub(super) fn plans(machine: Machine) -> Vec<(u32, Vec<Spec>)> {
    let mut plans = vec![(2, pair())];
    if machine.is_gpu() {
        // There are no graphs elsewhere.
        plans[0].1.extend(in_graphs());
    }
    if machine.gpus >= 8 {
        plans.push((8, synchronisation([(3.47, 4.74), (4.33, 5.67), (2.18, 3.51)], (1.8, 2.8))));
    }
    for (pes, specs) in &mut plans {
        let promised = machine.is_gpu() && machine.share(*pes) == 1;
        for spec in specs {
            if !promised {
                (spec.limit, spec.peer) = (None, None);
            }
            if !machine.is_gpu() {
                small(spec);
            }
        }
    }
    plans
}

/// For the CPU device: the same operation, in a shape for a laptop.
fn small(spec: &mut Spec) {
    spec.blocks = spec.blocks.min(2);
    spec.threads = spec.threads.min(64);
    spec.bytes = spec.bytes.min(MIB);
    spec.stage = spec.stage.min(16 << 10);
}

fn target(what: What, peer: Option<f64>, wanted: f64) -> Spec {
    Spec { peer, limit: Some(Limit::Reach(wanted)), ..Spec::new(what) }
}

fn pair() -> Vec<Spec> {
    use Scope::{Block, Thread, Warp};
    let mut specs = vec![
        target(What::SignalPingpong, Some(2.50), 1.8),
        target(What::PutSignalPingpong, Some(5.2), 3.2),
        target(What::PPingpong, Some(4.96), 3.2),
        target(What::AtomicPingpong, Some(2.40), 1.8),
        target(What::PackedPingpong, None, 1.5),
        latency(Thread, 1, 368.8, 80.0),
        latency(Warp, 32, 23.9, 8.0),
        latency(Block, 1024, 2.97, 2.6),
        Spec { stage: STAGE, ..latency(Thread, 1, 368.8, 4.0) },
        Spec { stage: STAGE, ..latency(Warp, 32, 23.9, 4.0) },
        bandwidth(What::PutBw, Block, (1, 1024), 32 * MIB, Some(44.3), 45.5),
        bandwidth(What::PutBw, Block, (4, 1024), 32 * MIB, Some(172.7), 182.0),
        bandwidth(What::PutBw, Block, (32, 1024), 256 * MIB, Some(354.2), 354.0),
        bandwidth(What::PutBw, Block, (132, 1024), 256 * MIB, None, 368.0),
        bandwidth(What::PutBw, Warp, (4, 32), 8 * MIB, Some(12.0), 40.0),
        Spec { stage: STAGE, ..bandwidth(What::PutBw, Warp, (4, 32), 32 * MIB, Some(12.0), 180.0) },
        bandwidth(What::GetBw, Block, (4, 1024), 32 * MIB, Some(70.9), 190.0),
        bandwidth(What::GetBw, Block, (32, 1024), 256 * MIB, Some(361.8), 370.0),
        bandwidth(What::PBw, Block, (4, 1024), 16 * MIB, Some(71.5), 125.0),
        // Its limit is half of what the aligned one above reaches: `relate`.
        Spec { shift: 1, ..bandwidth(What::PutBw, Block, (4, 1024), 32 * MIB, None, f64::MAX) },
        target(What::HostPut, Some(2.2), 2.0),
        Spec { bytes: 256 * MIB, ..target(What::HostPutBw, Some(394.8), 390.0) },
    ];
    specs.extend(synchronisation([(1.66, 2.82), (1.99, 3.21), (2.11, 3.37)], (1.5, 2.4)));
    specs.extend(collectives());
    specs
}

/// Collectives of two PEs by a block, the smallest sum in narrower scopes, and sums by a grid: what the peer
/// needs and what is wanted. By a block at 8 bytes, 1 KiB, 64 KiB and 1 MiB.
fn collectives() -> Vec<Spec> {
    const SIZES: [u64; 4] = [8, 1 << 10, 64 << 10, MIB];
    let table: [(What, [f64; 4], [f64; 4]); 5] = [
        (What::Reduce, [4.95, 6.9, 22.0, 198.0], [1.0, 1.1, 4.0, 30.0]),
        (What::Reducescatter, [6.1, 6.2, 14.7, 142.0], [1.0, 1.1, 3.2, 17.0]),
        (What::Broadcast, [3.6, 3.7, 10.7, 54.0], [1.0, 1.1, 3.2, 25.0]),
        (What::Fcollect, [3.2, 3.5, 8.2, 31.0], [1.0, 1.1, 2.8, 15.0]),
        (What::Alltoall, [5.2, 5.3, 7.9, 29.8], [1.0, 1.1, 2.8, 15.0]),
    ];
    let row = |scope, threads, bytes, (what, peer, wanted): (What, f64, f64)| Spec {
        scope,
        threads,
        bytes,
        bare: true,
        ..target(what, Some(peer), wanted)
    };
    let mut specs = vec![
        row(Scope::Thread, 1, 8, (What::Reduce, 5.3, 1.0)),
        row(Scope::Warp, 32, 8, (What::Reduce, 5.5, 1.0)),
    ];
    // By parts, as in a kernel that does nothing else; and with the barriers of all blocks.
    for (bytes, wanted) in [(64 << 10, 1.0), (MIB, 4.8), (16 * MIB, 43.0), (64 * MIB, 187.0)] {
        let grid = Spec { blocks: 128, threads: 512, bytes, ..target(What::Reduce, None, wanted) };
        specs.push(Spec { scope: Scope::Grid, limit: None, ..grid.clone() });
        specs.push(Spec { scope: Scope::GridParts, bare: true, ..grid });
    }
    for (what, peer, wanted) in table {
        for (bytes, (peer, wanted)) in SIZES.into_iter().zip(peer.into_iter().zip(wanted)) {
            specs.push(row(Scope::Block, 512, bytes, (what, peer, wanted)));
        }
    }
    specs
}

/// Collectives of two PEs in a CUDA graph: what the best of the peers needs and what is wanted, at 8 bytes,
/// 64 KiB, 1 MiB, 16 MiB and 64 MiB.
fn in_graphs() -> Vec<Spec> {
    const SIZES: [u64; 5] = [8, 64 << 10, MIB, 16 * MIB, 64 * MIB];
    let table: [(What, [f64; 5], [f64; 5]); 5] = [
        (What::StreamReduce, [5.7, 6.7, 10.1, 58.0, 256.0], [2.0, 2.8, 6.5, 48.0, 192.0]),
        (What::StreamAlltoall, [5.9, 7.7, 12.3, 35.5, 144.0], [2.0, 2.5, 4.5, 26.0, 97.0]),
        (What::StreamFcollect, [5.0, 6.2, 10.3, 42.9, 163.0], [2.0, 2.5, 4.5, 26.0, 97.0]),
        (What::StreamReducescatter, [5.0, 5.9, 9.5, 50.0, 165.0], [2.0, 2.6, 4.6, 27.0, 98.0]),
        (What::StreamBroadcast, [4.5, 5.8, 11.2, 61.0, 205.0], [2.0, 2.6, 5.5, 48.0, 192.0]),
    ];
    let row = |what, bytes, peer, wanted| Spec {
        scope: Scope::Graph,
        bytes,
        bare: true,
        ..target(what, Some(peer), wanted)
    };
    let mut specs = vec![row(What::StreamTeamBarrier, 8, 3.0, 1.9)];
    for (what, peer, wanted) in table {
        let sizes = SIZES.into_iter().zip(peer.into_iter().zip(wanted));
        specs.extend(sizes.map(|(bytes, (peer, wanted))| row(what, bytes, peer, wanted)));
    }
    specs
}

/// put and quiet of 64 KiB.
fn latency(scope: Scope, threads: u32, peer: f64, wanted: f64) -> Spec {
    Spec { scope, threads, bytes: 64 << 10, ..target(What::PutLatency, Some(peer), wanted) }
}

fn bandwidth(
    what: What,
    scope: Scope,
    (blocks, threads): (u32, u32),
    bytes: u64,
    peer: Option<f64>,
    wanted: f64,
) -> Spec {
    Spec { scope, blocks, threads, bytes, ..target(what, peer, wanted) }
}

/// sync_all and barrier_all at each scope: what the peer needs for each, and what both must reach at every
/// scope.
fn synchronisation(peer: [(f64, f64); 3], (sync, barrier): (f64, f64)) -> Vec<Spec> {
    let shapes = [(Scope::Thread, 1), (Scope::Warp, 32), (Scope::Block, 1024)].into_iter().zip(peer);
    let of =
        |what, wanted, (scope, threads), peer| Spec { scope, threads, ..target(what, Some(peer), wanted) };
    let syncs = shapes.clone().map(|(shape, (peer, _))| of(What::Sync, sync, shape, peer));
    syncs.chain(shapes.map(|(shape, (_, peer))| of(What::Barrier, barrier, shape, peer))).collect()
}

/// Limits that depend on another row: misaligned data moves at half of the speed of aligned data at least.
pub(super) fn relate(rows: &mut [Row]) {
    let aligned = rows.iter().find(|row| {
        let four = row.shape.as_ref().is_some_and(|shape| shape.blocks == 4 && shape.scope == "block");
        row.measure == "put bandwidth" && four
    });
    let half = aligned.map(|row| row.ours.median / 2.0);
    for row in rows.iter_mut().filter(|row| row.measure.ends_with(" B off") && row.limit.is_some()) {
        row.limit = half.map(Limit::AtLeast);
    }
}

/// Starting 8 PEs.
pub(super) fn start_up(outcome: &mut Outcome) {
    match startup::measured(8, 5) {
        Ok(rows) => outcome.rows.extend(rows.into_iter().filter_map(|row| match row.measure.as_str() {
            "exec to ready" => Some(row.limit(Limit::Median(1500.0))),
            "GPU memory per PE beyond context" => Some(row),
            _ => None,
        })),
        Err(failure) => outcome.failures.push(format!("start-up: {failure}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    #[test]
    fn promises_are_made_for_a_gpu_each() {
        let limits = |gpus| {
            let plans = plans(Machine { gpus });
            let specs = plans.iter().flat_map(|(_, specs)| specs);
            (plans.len(), specs.filter(|spec| spec.limit.is_some()).count())
        };
        let two = limits(2);
        assert_eq!((limits(0), limits(1)), ((1, 0), (1, 0)));
        assert!(two.0 == 1 && two.1 > 20 && limits(8) == (2, two.1 + 6));
        assert!(plans(Machine { gpus: 0 })[0].1.iter().all(|spec| spec.blocks <= 2 && spec.bytes <= MIB));
    }

    #[test]
    fn misaligned_data_is_measured_by_aligned() {
        let shape =
            crate::report::Shape { scope: "block".into(), blocks: 4, threads: 1024, ..Default::default() };
        let row = |measure: &str, gb_s| {
            let mut row = Row::new(measure, None, 2, "GB/s", Summary::single(gb_s));
            row.shape = Some(shape.clone());
            row.limit(Limit::Reach(f64::MAX))
        };
        let mut rows = [row("put bandwidth", 180.0), row("put bandwidth, 1 B off", 91.0)];
        relate(&mut rows);
        assert_eq!((rows[1].limit, rows[1].kept()), (Some(Limit::AtLeast(90.0)), Some(true)));
        // Without the aligned one nothing can be said.
        let mut alone = [row("put bandwidth, 1 B off", 91.0)];
        relate(&mut alone);
        assert_eq!(alone[0].kept(), None);
    }
}
