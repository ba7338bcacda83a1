//! From options to a plan: which figures, in which order, and how long each may take.

use serde::{Deserialize, Serialize};

use super::args::{Common, DeviceArgs, StreamArgs};
use super::kernels::Family;
use super::measure::{What, MOST_ATOMIC, MOST_ATOMIC_ON_CPU};
use super::scope::Scope;
use super::spec::Spec;
use crate::job;

/// What the PEs of a job do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The figures.
    pub(super) specs: Vec<Spec>,
    /// Timed batches of each.
    pub(super) samples: u32,
    /// Operations of a batch, at most.
    pub(super) iterations: u32,
    /// Operations before them.
    pub(super) warm_up: u32,
    /// Milliseconds for the batches of a figure.
    pub(super) budget_ms: u32,
    /// PEs that share a GPU.
    pub(super) share: u32,
    /// Of the data.
    pub(super) seed: u64,
}

/// What options that were not given depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// GPUs, where PEs get one; 0 on the CPU device.
    pub(crate) gpus: u32,
}

impl Machine {
    pub(super) fn is_gpu(self) -> bool {
        self.gpus > 0
    }

    /// PEs on a GPU.
    pub(crate) fn share(self, pes: u32) -> u32 {
        if self.is_gpu() {
            pes.div_ceil(self.gpus)
        } else {
            1
        }
    }
}

impl Plan {
    /// The same frame for all jobs of a run.
    pub(super) fn new(common: &Common, machine: Machine, pes: u32, mut specs: Vec<Spec>) -> Plan {
        if let Some(spec) = common.corrupt.and_then(|at| specs.get_mut(at)) {
            spec.corrupt = true;
        }
        let share = machine.share(pes);
        let by_device =
            |given: Option<u32>, gpu, cpu| given.unwrap_or(if machine.is_gpu() { gpu } else { cpu });
        let (samples, iterations) = (by_device(common.samples, 20, 7), by_device(common.iterations, 200, 50));
        let budget_ms = by_device(common.budget, 400, 60);
        Plan { specs, samples, iterations, warm_up: common.warm_up, budget_ms, share, seed: job::salt() }
    }

    /// As short as processes that share a GPU need it: they take turns of milliseconds, and a round trip is
    /// as long.
    pub(super) fn by_turns(mut self) -> Plan {
        if self.share > 1 {
            self.samples = self.samples.min(5);
            self.iterations = self.iterations.min(10);
        }
        self
    }
}

/// The plans that the options ask for: for each number of PEs its figures, pairs first.
pub(super) fn from_options(args: &DeviceArgs, chosen: &[What], machine: Machine) -> Vec<(u32, Vec<Spec>)> {
    by_pes(pes(&args.pes, machine), chosen, |measures| expand(args, machine, measures))
}

/// The plans of `rushmem-perf stream`.
pub(super) fn from_host(args: &StreamArgs, chosen: &[What], machine: Machine) -> Vec<(u32, Vec<Spec>)> {
    let by: Vec<Scope> = args.by.iter().map(|by| by.scope()).collect();
    let wanted =
        |scope: Scope| by.is_empty() && (machine.is_gpu() || scope != Scope::Graph) || by.contains(&scope);
    by_pes(pes(&args.pes, machine), chosen, |measures| {
        let mut specs = Vec::new();
        for &what in measures {
            for scope in what.row().scopes.iter().copied().filter(|&scope| wanted(scope)) {
                let sizes = sizes(&args.common, machine, (what, scope));
                specs.extend(sizes.iter().map(|&bytes| Spec { scope, bytes, ..Spec::new(what) }));
            }
        }
        specs
    })
}

/// Collectives with every number of PEs, the rest with two.
fn by_pes(pes: Vec<u32>, chosen: &[What], expand: impl Fn(&[What]) -> Vec<Spec>) -> Vec<(u32, Vec<Spec>)> {
    let (collective, pair): (Vec<What>, Vec<What>) = chosen.iter().partition(|what| what.is_collective());
    let mut plans = vec![(2, expand(&pair))];
    for pes in pes {
        let specs = expand(&collective);
        match plans.iter_mut().find(|(n, _)| *n == pes) {
            Some((_, there)) => there.extend(specs),
            None => plans.push((pes, specs)),
        }
    }
    plans.retain(|(_, specs)| !specs.is_empty());
    plans
}

fn pes(given: &[u32], machine: Machine) -> Vec<u32> {
    if !given.is_empty() {
        return given.to_vec();
    }
    if machine.gpus >= 8 {
        vec![2, 8]
    } else {
        vec![2]
    }
}

/// The figures of these measures, in their order.
pub(super) fn expand(args: &DeviceArgs, machine: Machine, measures: &[What]) -> Vec<Spec> {
    let threads = args.threads.unwrap_or(if machine.is_gpu() { 1024 } else { 64 });
    let mut specs = Vec::new();
    for &what in measures {
        let has_grid = what.row().grid;
        for scope in what.row().scopes.iter().copied().filter(|&scope| wanted(args, what, scope)) {
            let threads = match scope {
                Scope::Thread if !has_grid => 1,
                Scope::Warp if !has_grid => 32,
                _ => threads,
            };
            let blocks = if !what.takes_blocks(scope) {
                vec![1]
            } else if args.blocks.is_empty() {
                vec![match (machine.is_gpu(), what) {
                    (true, _) if scope.is_grid() => 128,
                    (true, What::GBw) => 8,
                    (true, _) => 4,
                    (false, _) => 2,
                }]
            } else {
                args.blocks.clone()
            };
            for &blocks in &blocks {
                for bytes in sizes(&args.common, machine, (what, scope)) {
                    let bytes =
                        if what == What::Rate { u64::from(blocks) * u64::from(threads) * 8 } else { bytes };
                    let both = args.both && has_grid;
                    let shift = if what.row().shift { args.shift } else { 0 };
                    let whole = bytes % 8 == 0 && shift % 8 == 0;
                    let stage = if what.row().stage && whole { args.stage } else { 0 };
                    let probe = !args.no_probes;
                    let spec =
                        Spec { scope, blocks, threads, bytes, both, shift, stage, probe, ..Spec::new(what) };
                    match what.row().operations {
                        [] => specs.push(spec),
                        operations => specs.extend(
                            operations
                                .iter()
                                .filter(|op| !args.common.sizes.is_empty() || usual(machine, &spec, op))
                                .map(|op| Spec { operation: Some((*op).to_owned()), ..spec.clone() }),
                        ),
                    }
                }
            }
        }
    }
    specs
}

/// Without a choice: all scopes of latencies, but bandwidth and words as blocks move them, as the peer's
/// tests do.
fn wanted(args: &DeviceArgs, what: What, scope: Scope) -> bool {
    if !args.scope.is_empty() {
        return args.scope.contains(&scope) || what.row().scopes.len() == 1;
    }
    what.row().family != Family::Bandwidth || scope == what.row().scopes[0]
}

/// Without a choice of sizes: of atomic operations the peer's test has one at all of them, and so have we;
/// the others at the last.
fn usual(machine: Machine, spec: &Spec, operation: &str) -> bool {
    let last = if machine.is_gpu() { MOST_ATOMIC } else { MOST_ATOMIC_ON_CPU };
    spec.what != What::AtomicBw || ["add", "fetch_add"].contains(&operation) || spec.bytes == last
}

/// Those that were chosen, else the measure's own.
fn sizes(common: &Common, machine: Machine, (what, scope): (What, Scope)) -> Vec<u64> {
    let Some(own) = what.row().sizes else { return vec![8] };
    if !common.sizes.is_empty() {
        return common.sizes.iter().copied().filter(|&bytes| what.takes(bytes)).collect();
    }
    let (first, last, step) = match own.gpu_scope {
        _ if !machine.is_gpu() => own.cpu,
        Some((one, there)) if one == scope => there,
        _ => own.gpu,
    };
    (first..=last).step_by(step).map(|power| 1 << power).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fit;
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn plans(line: &str, gpus: u32) -> Vec<(u32, Vec<Spec>)> {
        let words = ["rushmem-perf", "device"].into_iter().chain(line.split_whitespace());
        match Cli::parse_from(words).command {
            Command::Device(args) => {
                let chosen = fit::device(&args).expect("options that fit");
                from_options(&args, &chosen, Machine { gpus })
            }
            _ => unreachable!("it says device"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_peers_tests() {
        let plans = plans("put-bw put-latency", 2);
        let [(2, specs)] = plans.as_slice() else { panic!("one job of two: {plans:?}") };
        let bw: Vec<&Spec> = specs.iter().filter(|spec| spec.what == What::PutBw).collect();
        assert!(bw.iter().all(|spec| (spec.blocks, spec.threads, spec.scope) == (4, 1024, Scope::Block)));
        assert_eq!((bw[0].bytes, bw[bw.len() - 1].bytes), (1024, 32 << 20));
        let threads =
            |scope| specs.iter().find(|s| s.what == What::PutLatency && s.scope == scope).map(|s| s.threads);
        assert_eq!([Scope::Thread, Scope::Warp, Scope::Block].map(threads), [Some(1), Some(32), Some(1024)]);
    }

    #[test]
    fn collectives_run_with_every_number_of_pes_and_the_rest_with_two() {
        let plans = plans("all", 8);
        assert_eq!(plans.iter().map(|(pes, _)| *pes).collect::<Vec<_>>(), [2, 8]);
        assert!(plans[1].1.iter().all(|spec| spec.what.is_collective()));
        assert!(plans[0].1.iter().any(|spec| spec.what == What::Sync));
        let of = |operation: &str| {
            let same =
                |spec: &&Spec| spec.what == What::AtomicBw && spec.operation.as_deref() == Some(operation);
            plans[0].1.iter().filter(same).map(|spec| spec.bytes).collect::<Vec<u64>>()
        };
        assert_eq!((of("add").first(), of("add").len(), of("fetch_xor")), (Some(&8), 14, vec![64 << 10]));
        let latencies = plans[0].1.iter().filter(|spec| spec.what == What::AtomicLatency).count();
        assert_eq!(latencies, What::AtomicLatency.row().operations.len());
        let most = |what, scope| {
            let same = |spec: &&Spec| (spec.what, spec.scope) == (what, scope);
            plans[0].1.iter().filter(same).map(|spec| spec.bytes).max()
        };
        assert_eq!(most(What::PLatency, Scope::Block), Some(4 << 20));
        assert_eq!(most(What::PLatency, Scope::Thread), Some(64 << 10));
        assert_eq!((most(What::PBw, Scope::Block), most(What::PBw, Scope::Warp)), (Some(32 << 20), None));
        assert_eq!(super::pes(&[], Machine { gpus: 0 }), [2]);
    }

    #[test]
    fn graphs_are_where_cuda_is() {
        let words = ["rushmem-perf", "stream", "put", "barrier", "--sizes", "8"];
        let Command::Stream(args) = Cli::parse_from(words).command else { unreachable!("it says stream") };
        let scopes = |gpus| {
            let chosen = fit::stream(&args).expect("options that fit");
            let plans = from_host(&args, &chosen, Machine { gpus });
            plans.into_iter().flat_map(|(_, specs)| specs).map(|spec| spec.scope).collect::<Vec<_>>()
        };
        use Scope::{Graph, Host, Stream};
        assert_eq!(scopes(0), [Stream, Host, Stream, Host]);
        assert_eq!(scopes(2), [Stream, Graph, Host, Stream, Host]);
    }

    #[test]
    fn options_shape_the_launch() {
        let plans =
            plans("put-bw p-bw --blocks 1,32 --threads 32 --scope warp --sizes 12,64 --both --shift 1", 2);
        let put: Vec<&Spec> = plans[0].1.iter().filter(|spec| spec.what == What::PutBw).collect();
        assert_eq!(
            put.iter().map(|s| (s.blocks, s.bytes)).collect::<Vec<_>>(),
            [(1, 12), (1, 64), (32, 12), (32, 64)]
        );
        assert!(put.iter().all(|s| s.scope == Scope::Warp && s.threads == 32 && s.both && s.shift == 1));
        // Words are whole and aligned.
        let p: Vec<&Spec> = plans[0].1.iter().filter(|spec| spec.what == What::PBw).collect();
        assert!(p.len() == 2 && p.iter().all(|s| s.bytes == 64 && s.shift == 0 && s.both));
        assert!(p.iter().all(|s| s.scope == Scope::Warp && s.threads == 32));
    }
}
