//! PEs that share a host, however they are numbered: in turn, as `mpirun --map-by node` and Slurm's cyclic
//! distribution deal them out, irregularly, on hosts of different sizes. Those of a host map each other's
//! memory, in kernels, on streams and from the host; the others are reached over a network; and everything
//! that all PEs do together works across both.
//!
//! `RUSHMEM_NODES` makes the hosts, so that all of it runs on one machine. (On real network namespaces:
//! tests/hosts.)

// PEs end themselves here, at once and whatever is on their stack.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use rushmem::testing::Exit;
use rushmem::{Cmp, Launch, NearShape, Pe, SignalOp, Source, World};
use rushmem_test_support::api_common::place::{in_turns, nodes, on_gpus, pes, skip};
use rushmem_test_support::api_common::{seed, seeded, Rng};

/// Where PEs are, and the shape of the near set on PE 0's host.
const PLACEMENTS: [(&[u32], NearShape); 6] = [
    (&[0, 0, 1, 1], NearShape::Run),
    (&[0, 1, 0, 1], NearShape::Steps(2)),
    (&[0, 1, 1, 0, 2], NearShape::Steps(3)),
    (&[0, 0, 1, 0], NearShape::Table),
    (&[0, 1, 2, 1, 0, 0], NearShape::Table),
    (&[0, 1, 2, 3, 4, 5, 0, 1], NearShape::Steps(6)),
];

fn text(placement: &[u32]) -> String {
    placement.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Everything, from one PE's side.
fn play(world: &World, placement: &[u32], shape: NearShape) {
    ways(world, placement, shape);
    from_the_host(world);
    heap_and_regions(world);
    in_kernels(world, placement);
    on_streams(world);
    world.barrier_all().unwrap();
}

/// PEs of a host, and no others, are reached directly, and the numbers say how.
fn ways(world: &World, placement: &[u32], shape: NearShape) {
    let me = world.my_pe();
    let slice = world.alloc::<u64>(1).unwrap();
    let mates: Vec<Pe> = world.pes().filter(|pe| placement[pe.index()] == placement[me.index()]).collect();
    for pe in world.pes() {
        let peer = world.peer(pe).unwrap();
        let near = mates.contains(&pe);
        assert_eq!(peer.transport == "direct", near, "{me} to {pe} of {placement:?}: {peer:?}");
        assert!(near || peer.reason.contains("RUSHMEM_NODES"), "{peer:?}");
        assert_eq!(slice.ptr_at(pe).is_some(), near && !on_gpus(), "{me} to {pe} of {placement:?}");
    }
    let near = world.near_pes().unwrap();
    assert_eq!(near.pes, mates, "{me} of {placement:?}");
    if placement[me.index()] == placement[0] {
        assert_eq!(near.shape, shape, "{me} of {placement:?}");
    }
    slice.free().unwrap();
}

/// Puts, gets, single values, strides, atomics and signals from everybody to everybody.
fn from_the_host(world: &World) {
    let (me, n, rng) = (world.my_pe(), world.n_pes() as usize, Rng::new(seed()));
    let data = |from: Pe, to: Pe, words: usize| -> Vec<u64> {
        let mut rng = rng.fork(u64::from(from.number()) << 32 | u64::from(to.number()) << 8 | words as u64);
        (0..words).map(|_| rng.next()).collect()
    };
    for words in [1, 8, 1000] {
        let inbox = world.alloc::<u64>(words * n).unwrap();
        let row = |from: Pe| inbox.slice(from.index() * words..(from.index() + 1) * words).unwrap();
        for pe in world.pes() {
            row(me).put(&data(me, pe, words), pe).unwrap();
        }
        world.barrier_all().unwrap();
        for from in world.pes() {
            assert_eq!(row(from).to_vec().unwrap(), data(from, me, words), "{from} to {me}, {words} words");
            for at in world.pes() {
                let mut got = vec![0; words];
                row(from).get(&mut got, at).unwrap();
                assert_eq!(got, data(from, at, words), "{me} gets what {from} put to {at}");
                assert_eq!(row(from).g(words - 1, at).unwrap(), got[words - 1]);
                let (mut odd, half) = (vec![0; words], words.div_ceil(2));
                row(from).iget(&mut odd[..half], 1, 2, half, at).unwrap();
                assert!(odd[..half].iter().eq(got.iter().step_by(2)), "{me} from {at}");
            }
        }
        world.barrier_all().unwrap();
        inbox.free().unwrap();
    }
    let sums = world.alloc::<u64>(2).unwrap();
    let signal = world.signal().unwrap();
    for round in 1..=5u64 {
        for pe in world.pes() {
            sums.at(0, pe).add(1).unwrap();
            sums.at(1, pe).fetch_add(round).unwrap();
            signal.add(1, pe).unwrap();
        }
        signal.wait_until(Cmp::Ge, round * n as u64).unwrap();
        world.barrier_all().unwrap();
        let wanted = [round * n as u64, round * (round + 1) / 2 * n as u64];
        assert_eq!(sums.to_vec().unwrap(), wanted, "{me}, round {round}");
        world.sync_all().unwrap();
    }
    world.barrier_all().unwrap();
    sums.free().unwrap();
    signal.free().unwrap();
}

/// The heap grows, and a region is registered: both are there for near PEs and far ones.
fn heap_and_regions(world: &World) {
    let (me, n) = (world.my_pe(), world.n_pes() as usize);
    let large = world.alloc::<u64>((9 << 20) / 8).unwrap();
    for pe in world.pes() {
        large.p(large.len() - n + me.index(), 100 + u64::from(me.number()), pe).unwrap();
    }
    world.barrier_all().unwrap();
    let wanted: Vec<u64> = (0..n as u64).map(|pe| 100 + pe).collect();
    assert_eq!(large.slice(large.len() - n..).unwrap().to_vec().unwrap(), wanted, "{me}");
    world.barrier_all().unwrap();
    large.free().unwrap();
    if on_gpus() {
        return; // tests/gpu_regions.rs has a GPU's
    }
    const WORDS: usize = 4096;
    let layout = std::alloc::Layout::from_size_align(WORDS * 8, 1 << 16).unwrap();
    // SAFETY: a layout of some bytes.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<u64>();
    // SAFETY: this PE's own memory, used through the region alone until it is unregistered.
    let region = unsafe { world.register(memory, WORDS) }.unwrap();
    for pe in world.pes() {
        region
            .slice(me.index() * 8..me.index() * 8 + 8)
            .unwrap()
            .put(&[u64::from(me.number()) + 7; 8], pe)
            .unwrap();
    }
    world.barrier_all().unwrap();
    let seen = region.to_vec().unwrap();
    assert!((0..n * 8).all(|i| seen[i] == i as u64 / 8 + 7), "{me}: {:?}", &seen[..n * 8]);
    world.barrier_all().unwrap();
    region.unregister().unwrap();
    // SAFETY: allocated above with this layout; nobody else has it any more.
    unsafe { std::alloc::dealloc(memory.cast(), layout) };
}

const KERNEL: &str = r#"
#include <rushmem/rushmem.cuh>

__device__ void wrong(uint64_t *report, uint64_t line, uint64_t got) {
  if (report[0]++ == 0) { report[1] = line; report[2] = got; }
}

template <typename Scope>
__device__ void everyone(uint64_t *words, uint64_t *rows, uint64_t *src, uint64_t *sums, uint64_t *signals, uint64_t near,
                         uint64_t rounds, uint64_t *report) {
  using namespace rushmem;
  const int me = my_pe(), n = n_pes();
  const bool first = Scope::rank() == 0;
  for (int pe = 0; first && pe < n; ++pe) {
    if ((ptr(words, pe) != nullptr) != (near >> pe & 1)) wrong(report, 1, pe);
  }
  for (uint64_t round = 1; round <= rounds; ++round) {
    for (int i = static_cast<int>(Scope::rank()); i < 24; i += static_cast<int>(Scope::size())) src[i] = round << 16 | i;
    Scope::sync();
    for (int pe = 0; pe < n; ++pe) {
      if (first) {
        p(words + me, round << 32 | static_cast<uint64_t>(pe), pe);
        atomic_add(sums, uint64_t(1), pe);
        signal_op(signals, 1, signal::add, pe);
      }
      put<Scope>(rows + me * 24, src, 24, pe);
      put_signal<Scope>(rows + (n + me) * 24, src, 23, signals + 1, 1, signal::add, pe);
    }
    barrier_all<Scope>();
    if (first) {
      for (int pe = 0; pe < n; ++pe) {
        const uint64_t got = g(words + me, pe);
        if (got != (round << 32 | static_cast<uint64_t>(pe))) wrong(report, 2, got);
        const uint64_t mine = g(words + pe, me);
        if (mine != (round << 32 | static_cast<uint64_t>(me))) wrong(report, 3, mine);
        for (int i = 0; i < 24; ++i) {
          if (g(rows + pe * 24 + i, me) != (round << 16 | i)) wrong(report, 4, pe);
          if (i < 23 && g(rows + (n + me) * 24 + i, pe) != (round << 16 | i)) wrong(report, 5, pe);
        }
        const uint64_t sum = atomic_fetch(sums, pe);
        if (sum != round * static_cast<uint64_t>(n)) wrong(report, 6, sum);
      }
      if (signal_fetch(signals) != round * static_cast<uint64_t>(n)) wrong(report, 7, signal_fetch(signals));
      if (signal_fetch(signals + 1) != round * static_cast<uint64_t>(n)) wrong(report, 8, signal_fetch(signals + 1));
    }
    sync_all<Scope>();
  }
}

extern "C" __global__ void play(int scope, uint64_t *words, uint64_t *rows, uint64_t *src, uint64_t *sums, uint64_t *signals,
                                uint64_t near, uint64_t rounds, uint64_t *report) {
  if (scope == 0) { if (threadIdx.x == 0) everyone<rushmem::thread>(words, rows, src, sums, signals, near, rounds, report); }
  else if (scope == 1) everyone<rushmem::warp>(words, rows, src, sums, signals, near, rounds, report);
  else everyone<rushmem::block>(words, rows, src, sums, signals, near, rounds, report);
}
"#;

/// The same inside kernels, with their own sync and barrier, at each scope.
fn in_kernels(world: &World, placement: &[u32]) {
    let (me, n) = (world.my_pe(), world.n_pes() as usize);
    let module = world.load(Source::text(KERNEL)).unwrap();
    let kernel = module.kernel("play").unwrap();
    let near = |pe: &usize| placement[*pe] == placement[me.index()];
    let mask = (0..n).filter(near).fold(0u64, |mask, pe| mask | 1 << pe);
    for (scope, threads) in [(0i32, 1u32), (1, 32), (2, 40)] {
        let words = world.alloc::<u64>(n).unwrap();
        let rows = world.alloc::<u64>(2 * n * 24).unwrap();
        let (src, sums) = (world.alloc::<u64>(24).unwrap(), world.alloc::<u64>(1).unwrap());
        let (signals, report) = (world.alloc::<u64>(2).unwrap(), world.alloc::<u64>(3).unwrap());
        let args = (scope, &words, &rows, &src, &sums, &signals, mask, 6u64, &report);
        // SAFETY: memory of the sizes that the kernel uses, which only it touches until it has ended
        // everywhere.
        unsafe { kernel.launch(Launch::new(1, threads), args) }.unwrap();
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
        let [count, line, got] = report.to_vec().unwrap()[..] else { panic!("three words") };
        assert_eq!(count, 0, "{me} of {placement:?}, scope {scope}: check {line} saw {got:#x}");
        world.barrier_all().unwrap();
        for memory in [words, rows, src, sums, signals, report] {
            memory.free().unwrap();
        }
    }
}

/// The same on a stream, where syncs and barriers come between.
fn on_streams(world: &World) {
    let (me, n) = (world.my_pe(), world.n_pes() as usize);
    let stream = world.stream().unwrap();
    let (inbox, mine) = (world.alloc::<u64>(n * 16).unwrap(), world.alloc::<u64>(16).unwrap());
    let back = world.alloc::<u64>(n * 16).unwrap();
    let signal = world.signal().unwrap();
    for round in 1..=4u64 {
        mine.fill(round << 16 | u64::from(me.number())).unwrap();
        let row = |of: usize| inbox.slice(of * 16..(of + 1) * 16).unwrap();
        for pe in world.pes() {
            row(me.index()).put_from_on(&mine, pe, &stream).unwrap();
            signal.signal_op_on(SignalOp::Add, 1, pe, &stream).unwrap();
        }
        world.barrier_all_on(&stream).unwrap();
        for pe in world.pes() {
            // What this PE has put there.
            row(me.index())
                .get_into_on(&back.slice(pe.index() * 16..(pe.index() + 1) * 16).unwrap(), pe, &stream)
                .unwrap();
        }
        world.sync_all_on(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(
            back.to_vec().unwrap(),
            vec![round << 16 | u64::from(me.number()); n * 16],
            "{me}, round {round}"
        );
        let seen = inbox.to_vec().unwrap();
        assert!(
            (0..n * 16).all(|i| seen[i] == round << 16 | (i / 16) as u64),
            "{me}, round {round}: {seen:x?}"
        );
        assert_eq!(signal.fetch().unwrap(), round * n as u64);
        world.barrier_all().unwrap();
    }
    stream.destroy().unwrap();
}

#[test]
fn every_numbering_over_the_fake_network() {
    if on_gpus() {
        return skip("every_numbering_over_the_fake_network", "its PEs' heaps are in host memory");
    }
    for (placement, shape) in PLACEMENTS {
        let fake =
            pes(placement.len() as u32).env("RUSHMEM_TRANSPORT", "fake").env("RUSHMEM_FAKE_DELAY", "20");
        let fake = fake.env("RUSHMEM_PES_PER_NODE", "").env("RUSHMEM_NODES", text(placement));
        seeded(fake).threads(|world| play(world, placement, shape));
    }
}

#[test]
fn numberings_over_ucx() {
    for (placement, shape) in [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[3]] {
        let n = placement.len() as u32;
        let Some(pes) = nodes("numberings_over_ucx", n, &text(placement)) else { return };
        if in_turns(n) {
            seeded(pes).threads(|world| play(world, placement, shape));
        } else {
            seeded(pes).run(|world| play(world, placement, shape));
        }
    }
}

/// On whichever host: its own leader's, a follower's of a host whose PEs are dealt out.
#[test]
fn a_death_among_dealt_out_pes_is_named() {
    const LIMIT: Duration = Duration::from_secs(20);
    for victim in [0, 3] {
        let Some(pes) = nodes("a_death_among_dealt_out_pes_is_named", 4, "0,1") else { return };
        if in_turns(4) {
            return skip("a_death_among_dealt_out_pes_is_named", "its PEs would take turns on a GPU");
        }
        pes.supervise::<()>(
            |_| {
                let world = World::init().unwrap();
                println!("READY");
                let error = loop {
                    if let Err(error) = world.barrier_all() {
                        break error;
                    }
                };
                println!("ENDED with {:?}: {error}", error.code());
                std::process::exit(7);
            },
            |job| {
                (0..4).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", LIMIT)));
                std::thread::sleep(Duration::from_millis(50));
                let killed: Instant = job.kill(Pe::new(victim));
                for outcome in job.outcomes() {
                    if outcome.pe == Pe::new(victim) {
                        assert_eq!(outcome.exit, Exit::Signal(libc::SIGKILL));
                        continue;
                    }
                    let said =
                        format!("{} {:?}:\n{}\n{}", outcome.pe, outcome.exit, outcome.stdout, outcome.stderr);
                    assert_eq!(outcome.exit, Exit::Code(7), "{said}");
                    assert!(outcome.ended < killed + LIMIT, "{said}");
                    let names = [format!("PE {victim}"), format!("rank {victim}")];
                    let last =
                        outcome.stdout.lines().rfind(|line| line.starts_with("ENDED")).unwrap_or_default();
                    assert!(
                        last.contains("PeerDead") && names.iter().any(|name| last.contains(name)),
                        "{said}"
                    );
                }
            },
        );
    }
}
