//! Breadth-first search of a random graph whose vertices are dealt out to the PEs. A kernel expands one
//! level: it claims vertices at their owners by compare_swap. Which parent a vertex gets is a matter of
//! luck, so what is checked against a serial search is that each one's parent is one level above it, and
//! that the same vertices are reached.
//!
//! `rushmem-run -n 4 -- bfs --vertices 10000 --degree 4`

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/random.rs"]
mod random;
#[path = "common/units.rs"]
mod units;
#[path = "common/verdict.rs"]
mod verdict;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use common::Outcome;
use rushmem::{Launch, Source, SymSlice, World};

/// Breadth-first search by compare_swap.
#[derive(Parser)]
struct Args {
    /// Vertices of the graph.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    vertices: u32,
    /// Edges of a vertex, on average.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=64))]
    degree: u32,
    /// Blocks of each PE.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: u32,
    /// Threads of a block.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// What the graph is derived from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a vertex's parent is as long as nobody has found it; as in bfs.cu.
const UNSEEN: u32 = u32::MAX;

fn main() -> ExitCode {
    common::exit("bfs", run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (n, me) = (world.n_pes(), world.my_pe().number());
    let most = args.vertices.div_ceil(n) as usize;
    let graph: Vec<Vec<u32>> = (0..args.vertices).map(|vertex| edges(args, vertex)).collect();

    // This PE's part of the graph, as its kernel reads it: where each vertex's edges begin, and the edges.
    let mine: Vec<u32> = (me..args.vertices).step_by(n as usize).collect();
    let mut begins = vec![0];
    for vertex in &mine {
        begins.push(begins[begins.len() - 1] + graph[*vertex as usize].len() as u32);
    }
    let edges_of = world.alloc::<u32>(most + 1)?;
    let edges = world.alloc::<u32>((most * 2 * args.degree as usize).max(1))?;
    let parent = world.alloc::<u32>(most)?;
    let frontiers = [world.alloc::<u32>(most)?, world.alloc::<u32>(most)?];
    let lengths = world.alloc::<u32>(2)?; // of the two frontiers
    let sizes = world.alloc::<u32>(n as usize)?; // of all PEs' next frontiers
    edges_of.slice(..begins.len())?.write(&begins)?;
    let flat: Vec<u32> = mine.iter().flat_map(|vertex| graph[*vertex as usize].iter().copied()).collect();
    edges.slice(..flat.len())?.write(&flat)?;
    parent.fill(UNSEEN)?;
    let mut in_frontier = 0;
    if me == 0 {
        parent.p(0, 0, world.my_pe())?; // the root is vertex 0, its own parent
        frontiers[0].p(0, 0, world.my_pe())?;
        in_frontier = 1;
    }
    let module = world.load(Source::text(include_str!("bfs.cu")).name("bfs.cu"))?;
    let expand = module.kernel("expand")?;
    world.barrier_all()?;

    let start = Instant::now();
    let (mut levels, mut claimed) = (0, 1); // the root is claimed already
    loop {
        let (now, next) = (levels % 2, (levels + 1) % 2);
        let in_next = lengths.slice(next..=next)?;
        // SAFETY: the kernel stays within these allocations, which outlive it; a place in a frontier is
        // given out once.
        unsafe {
            expand.launch(
                Launch::new(args.blocks, args.threads),
                (&edges_of, &edges, &parent, &frontiers[now], in_frontier, &frontiers[next], &in_next),
            )
        }?;
        world.synchronize()?;
        world.barrier_all()?; // the finds of all PEs are at their owners
        in_frontier = in_next.g(0, world.my_pe())?;
        lengths.p(now, 0, world.my_pe())?; // the frontier that is done is the next but one
        levels += 1;
        let found = everywhere(&world, &sizes, in_frontier)?;
        claimed += found;
        if found == 0 {
            break;
        }
    }
    let elapsed = start.elapsed();

    let level = serial(&graph);
    let found = parent.slice(..mine.len())?.to_vec()?;
    let wrong = mine.iter().zip(&found).find_map(|(vertex, parent)| {
        let of = |vertex: u32| level[vertex as usize];
        let right = match (*parent, of(*vertex)) {
            (UNSEEN, None) => true,
            (_, None) | (UNSEEN, _) => false,
            (parent, Some(0)) => parent == *vertex,
            (parent, Some(depth)) => graph[parent as usize].contains(vertex) && of(parent) == Some(depth - 1),
        };
        (!right).then(|| match of(*vertex) {
            Some(depth) => format!("vertex {vertex} of level {depth} has the parent {parent}"),
            None => format!("vertex {vertex} has the parent {parent}, and cannot be reached"),
        })
    });
    let reached = level.iter().flatten().count();
    let once = (claimed != reached as u64)
        .then(|| format!("{claimed} vertices were claimed, and {reached} can be: some of them twice"));
    verdict::all_agree(&world, wrong.or(once))?;
    if me == 0 {
        println!(
            "bfs: {reached} of {} vertices reached in {levels} levels by {n} PEs in {}, as in a serial \
             search",
            args.vertices,
            units::time(elapsed.as_nanos() as f64)
        );
        println!("bfs: device: {} ({} threads a block)", device::name(&world), args.threads);
    }
    world.finalize()?;
    Ok(())
}

/// The sum of one number of each PE; collective.
fn everywhere(world: &World, sizes: &SymSlice<'_, u32>, mine: u32) -> rushmem::Result<u64> {
    for pe in world.pes() {
        sizes.p(world.my_pe().index(), mine, pe)?;
    }
    world.barrier_all()?; // all numbers are here
    let sum = sizes.to_vec()?.into_iter().map(u64::from).sum();
    world.barrier_all()?; // and have been read: the next round may write them
    Ok(sum)
}

/// The vertices to which edges lead from this one: the same on every PE that asks.
fn edges(args: &Args, vertex: u32) -> Vec<u32> {
    let mut random = args.seed ^ (u64::from(vertex) << 20);
    let count = random::next(&mut random) % u64::from(2 * args.degree + 1);
    (0..count).map(|_| (random::next(&mut random) % u64::from(args.vertices)) as u32).collect()
}

/// The level of each vertex by one thread; none where there is no way from vertex 0.
fn serial(graph: &[Vec<u32>]) -> Vec<Option<u32>> {
    let mut level = vec![None; graph.len()];
    level[0] = Some(0);
    let (mut frontier, mut depth) = (vec![0u32], 0);
    while !frontier.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for found in frontier.iter().flat_map(|vertex| &graph[*vertex as usize]) {
            if level[*found as usize].is_none() {
                level[*found as usize] = Some(depth);
                next.push(*found);
            }
        }
        frontier = next;
    }
    level
}
