//! Every example, run as a user would: under `rushmem-run` on several numbers of PEs, the write-and-signal
//! pair as two processes that are started one after the other, in either order. What they say is compared
//! with what they must do, and they must fail where that is right: when a byte is wrong, when their arguments
//! are, when the other one never comes.

use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::{Duration, Instant};

use rushmem_test_support::api_common::card::stand_in;
use rushmem_test_support::api_common::way::way_to;
use rushmem_test_support::programs::{command, device, example, free_port, run, rushmem_run, start, Ended};

/// Enough for any of them on a loaded machine; those that take longer are stuck.
const LIMIT: Duration = Duration::from_secs(60);
const COUNTS: [u32; 5] = [1, 2, 3, 4, 8];

/// Runs an example under `rushmem-run`.
#[track_caller]
fn job(n: u32, name: &str, args: &[&str]) -> Ended {
    run(rushmem_run(n, example(name)).args(args), LIMIT)
}

#[test]
fn hello_says_who_is_there() {
    for n in COUNTS {
        let job = job(n, "hello", &[]).ok();
        assert_eq!(job.stdout.lines().count(), n as usize, "{job}");
        for pe in 0..n {
            let (left, right) = ((pe + n - 1) % n, (pe + 1) % n);
            let lines = job.lines_with(&format!("hello from PE {pe} of {n} on "));
            assert_eq!(lines.len(), 1, "{job}");
            let left = format!("left PE {left} by {} (", way_to(pe, left));
            let right = format!("right PE {right} by {} (", way_to(pe, right));
            for part in [device(), &left, &right] {
                assert!(lines[0].contains(part), "{part:?} is missing in {:?}", lines[0]);
            }
        }
    }
}

#[test]
fn put_gets_there_and_back() {
    for n in COUNTS {
        job(n, "put", &[]).ok().says(&[&format!("put: {n} PEs put"), device()]);
    }
}

#[test]
fn a_kernel_drives_the_card() {
    for (bytes, rounds) in [("1", "3"), ("29", "3"), ("300000", "4")] {
        let mut program = rushmem_run(2, example("rdma_write"));
        program.args(["--bytes", bytes, "--rounds", rounds]);
        // Its own choice, whatever way the other tests take.
        program
            .env("RUSHMEM_TRANSPORT", "queue-emulated")
            .env("RUSHMEM_PES_PER_NODE", "1")
            .env_remove("RUSHMEM_NODES");
        if let Err(why) = rushmem::doctor::network().unwrap() {
            return eprintln!("SKIP a_kernel_drives_the_card: {why}");
        }
        let said = format!("rdma_write: {rounds} writes of {bytes} bytes in ");
        let ended = run(&mut program, LIMIT).ok();
        let ended = ended.says(&[&said, "every byte verified by PE 1", "queue-emulated (", device()]);
        assert!(!ended.stdout.contains(" in 0 requests"), "{ended}");
    }
    // By itself it takes the software card where no other is listed, and one that is: a stand-in for it here.
    let by_itself = |card: &str, verbs: &str| {
        let mut program = rushmem_run(2, example("rdma_write"));
        program.args(["--bytes", "5000", "--rounds", "2", "--card", card]).env("RUSHMEM_VERBS", verbs);
        program.env_remove("RUSHMEM_TRANSPORT").env_remove("RUSHMEM_NODES").env("RUSHMEM_PES_PER_NODE", "1");
        run(&mut program, LIMIT)
    };
    let verified = "every byte verified by PE 1";
    by_itself("auto", "/nonexistent").ok().says(&[verified, "queue-emulated ("]);
    match stand_in() {
        Ok(_) if device() != "device: CPU" => {
            eprintln!("SKIP a_kernel_drives_the_card: a GPU's memory of another process")
        }
        Ok(folder) => {
            by_itself("auto", &folder).ok().says(&[verified, "rdma_write: queue (", "mlx5_1"]);
            by_itself("software", &folder).ok().says(&[verified, "queue-emulated ("]);
        }
        Err(why) => eprintln!("SKIP a_kernel_drives_the_card: {why}"),
    }
    let listed = run(command(example("rdma_write")).arg("--list"), LIMIT).ok();
    listed.says(&["a software card, for PEs of one host"]);
}

#[test]
fn the_ring_goes_round() {
    for n in COUNTS {
        for (laps, threads) in [(1, 1), (7, 33), (50, 256)] {
            let args = ["--laps", &laps.to_string(), "--threads", &threads.to_string()];
            let hops = format!("ring: {n} PEs x {laps} laps = {} hops of {} bytes", n * laps, threads * 8);
            job(n, "ring", &args).ok().says(&[&hops, "every word counted on every PE", device()]);
        }
    }
}

#[test]
fn the_ring_of_64_goes_round() {
    job(64, "ring", &["--laps", "5"]).ok().says(&["ring: 64 PEs x 5 laps = 320 hops of 256 bytes"]);
}

#[test]
fn the_mixture_of_experts_is_what_one_thread_computes() {
    for n in COUNTS {
        for (tokens, width, threads) in [("1", "1", "1"), ("17", "33", "32"), ("64", "256", "64")] {
            let args = ["--tokens", tokens, "--width", width, "--threads", threads];
            job(n, "alltoall", &args).ok().says(&[&format!("alltoall: {n} PEs x {tokens} tokens"), device()]);
        }
    }
}

/// Numbers of PEs at which sizes that do not divide are tried, each with sizes of its own.
const UNEVEN: [u32; 5] = [1, 2, 3, 4, 5];

#[test]
fn jacobi_is_what_one_thread_computes() {
    for n in UNEVEN {
        // From a row for each band, and steps of either parity, up to bands of several rows and odd blocks.
        for (rows, cols, steps, blocks, threads) in [(n * 2, 3, 1, 2, 1), (61 + n, 37, 20 + n, 3, 33)] {
            let args =
                format!("--rows {rows} --cols {cols} --steps {steps} --blocks {blocks} --threads {threads}");
            let args: Vec<_> = args.split(' ').collect();
            let said =
                format!("jacobi: {rows} rows x {cols} columns, {steps} steps on {n} PEs x {blocks} blocks");
            job(n, "jacobi", &args).ok().says(&[&said, "every bit as in a serial run", device()]);
        }
    }
}

#[test]
fn a_tensor_parallel_product_is_what_one_thread_computes() {
    for n in UNEVEN {
        // Fewer columns than PEs, and stripes, blocks and rows that do not divide.
        for (rows, cols, depth, stripe, blocks) in [(1, 1, 1, 1, 1), (29 + n, 23, 50 + n, 3, 4)] {
            let args = format!(
                "--rows {rows} --cols {cols} --depth {depth} --stripe {stripe} --blocks {blocks} --threads 33"
            );
            let args: Vec<_> = args.split(' ').collect();
            let said = format!("{rows} x {depth} by {depth} x {cols} on {n} PEs x {blocks} blocks");
            let job = job(n, "tensor_parallel", &args).ok();
            job.says(&[&said, "every element as in a serial product", device()]);
        }
    }
}

#[test]
fn bfs_finds_what_a_serial_search_finds() {
    for n in UNEVEN {
        let (vertices, seed) = ((1000 + n * 7).to_string(), rand_seed().to_string());
        let args = ["--vertices", &vertices, "--degree", "3", "--threads", "33", "--seed", &seed];
        let said = format!(" of {vertices} vertices reached in ");
        job(n, "bfs", &args).ok().says(&[&said, "as in a serial search", device()]);
    }
    // Many edges to few vertices: each is claimed by one of those that find it at once.
    let seed = rand_seed().to_string();
    let crowd = ["--vertices", "3011", "--degree", "16", "--threads", "64", "--seed", &seed];
    job(4, "bfs", &crowd).ok().says(&["as in a serial search"]);
    job(3, "bfs", &["--vertices", "1", "--degree", "0"]).ok().says(&["bfs: 1 of 1 vertices reached"]);
}

#[test]
fn stolen_work_is_done_once() {
    for n in UNEVEN {
        let (tasks, seed) = ((200 + n).to_string(), rand_seed().to_string());
        let args = ["--tasks", &tasks, "--grain", &n.to_string(), "--work", "2000", "--seed", &seed];
        let said = format!("stealing: {tasks} tasks on {n} PEs");
        job(n, "stealing", &args).ok().says(&[&said, "each done once, as in a serial run", device()]);
    }
}

#[test]
fn the_pipeline_of_three_streams_returns_what_a_serial_run_computes() {
    for n in UNEVEN {
        // Fewer pieces than places, as many, and many more; the last piece is a short one.
        for (len, piece, depth) in [(5, 2, 4), (9001 + n, 1000, n)] {
            let args = format!("--len {len} --piece {piece} --depth {depth} --threads 33");
            let args: Vec<_> = args.split(' ').collect();
            let said =
                format!("pipeline: {len} numbers in pieces of {piece} to the right and back on {n} PEs");
            job(n, "pipeline", &args).ok().says(&[&said, "as a serial run computes them", device()]);
        }
    }
}

#[test]
fn a_crowd_steals_each_task_once() {
    let args = ["--tasks", "3000", "--grain", "1", "--work", "1"];
    job(4, "stealing", &args).ok().says(&["stealing: 3000 tasks on 4 PEs", "each done once"]);
}

/// A fresh one, which the example's arguments show where it fails.
fn rand_seed() -> u64 {
    RandomState::new().hash_one(0)
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for (name, args, word) in [
        ("jacobi", "--rows 5 --blocks 6", "--rows"),
        ("jacobi", "--cols 2", "--cols"),
        ("tensor_parallel", "--depth 0", "--depth"),
        ("tensor_parallel", "--blocks 65", "--blocks"),
        ("bfs", "--vertices 0", "--vertices"),
        ("stealing", "--grain 0", "--grain"),
        ("pipeline", "--depth 0", "--depth"),
        ("ring", "--laps 0", "--laps"),
        ("ring", "--laps many", "--laps"),
        ("ring", "--threads 1025", "--threads"),
        ("ring", "--sideways", "--sideways"),
        ("alltoall", "--tokens 0", "--tokens"),
        ("write_signal", "", "--mode"),
        ("write_signal", "--mode sideways", "initiator, target, both"),
        ("write_signal", "--mode both --size 1X", "--size"),
        ("write_signal", "--mode both --size=-1", "--size"),
        ("write_signal", "--mode both --size 99999999999999999999", "--size"),
        ("write_signal", "--mode both --size 17179869184G", "--size"),
        ("write_signal", "--mode both --iters 0", "--iters"),
        ("write_signal", "--mode both --scope grid", "thread, warp, block"),
        ("write_signal", "--mode both --threads 0", "--threads"),
        ("write_signal", "--mode target --address here", "HOST:PORT"),
        ("write_signal", "--mode target --address 127.0.0.1:0", "HOST:PORT"),
        ("write_signal", "--mode target --address 127.0.0.1:65536", "HOST:PORT"),
        ("write_signal", "--mode both --size 4 --corrupt 4", "--corrupt"),
    ] {
        let ended = run(command(example(name)).args(args.split_whitespace()), LIMIT).failed();
        assert!(ended.stderr.contains(word), "{word:?} is missing: {ended}");
    }
}

/// The pair, started in this order with a pause between, with the same arguments.
struct Pair {
    port: u16,
    initiator_first: bool,
}

impl Pair {
    fn new(initiator_first: bool) -> Pair {
        Pair { port: free_port(), initiator_first }
    }

    fn command(&self, mode: &str, args: &[&str]) -> Command {
        let mut command = command(example("write_signal"));
        command.args(["--mode", mode, "--address", &format!("127.0.0.1:{}", self.port)]).args(args);
        command
    }

    /// Runs both to their ends: the initiator's, then the target's.
    #[track_caller]
    fn run(&self, args: &[&str]) -> (Ended, Ended) {
        self.run_each(args, args)
    }

    #[track_caller]
    fn run_each(&self, initiators: &[&str], targets: &[&str]) -> (Ended, Ended) {
        let (mut initiator, mut target) =
            (self.command("initiator", initiators), self.command("target", targets));
        let pause = || std::thread::sleep(Duration::from_millis(150));
        let (initiator, target) = if self.initiator_first {
            let initiator = start(&mut initiator);
            pause();
            (initiator, start(&mut target))
        } else {
            let target = start(&mut target);
            pause();
            (start(&mut initiator), target)
        };
        (initiator.wait(LIMIT), target.wait(LIMIT))
    }
}

/// What both sides must say about writes of `size` bytes that went well.
#[track_caller]
fn expect_verified(ended: Ended, role: &str, size: usize, iterations: usize) {
    let total = format!(
        "{role}: verified on the target: {iterations} writes, {} bytes, none wrong",
        size * iterations
    );
    let ended = ended.ok().says(&[&total, &format!("{role}: latency, as a round trip ("), device()]);
    assert_eq!(ended.lines_with("GB/s").iter().any(|line| line.contains(role)), size > 0, "{ended}");
}

/// Boundaries: nothing, one byte, odd, a page, the default, and one byte more than that.
const SIZES: [usize; 6] = [0, 1, 13, 4096, 1 << 20, (1 << 20) + 1];

#[track_caller]
fn pairs_at(scope: &str) {
    for (i, size) in SIZES.into_iter().enumerate() {
        let pair = Pair::new(i % 2 == 0);
        let args = ["--size", &size.to_string(), "--scope", scope, "--iters", "6", "--warmup", "2"];
        let (initiator, target) = pair.run(&args);
        expect_verified(initiator, "initiator", size, 8);
        expect_verified(target, "target", size, 8);
    }
}

#[test]
fn write_and_signal_by_a_thread() {
    pairs_at("thread");
}

#[test]
fn write_and_signal_by_a_warp() {
    pairs_at("warp");
}

#[test]
fn write_and_signal_by_a_block() {
    pairs_at("block");
}

#[test]
fn write_and_signal_starts_in_either_order() {
    for initiator_first in [true, false] {
        for threads in ["1", "31", "200"] {
            let args = ["--size", "3K", "--threads", threads, "--iters", "5", "--warmup", "0"];
            let (initiator, target) = Pair::new(initiator_first).run(&args);
            expect_verified(initiator, "initiator", 3072, 5);
            expect_verified(target, "target", 3072, 5);
        }
    }
}

#[test]
fn write_and_signal_in_one_process() {
    for (scope, size) in [("thread", 13), ("warp", 4096), ("block", 0), ("block", 1 << 20)] {
        let mut both = command(example("write_signal"));
        let args = [
            "--mode",
            "both",
            "--iters",
            "6",
            "--warmup",
            "2",
            "--scope",
            scope,
            "--size",
            &size.to_string(),
        ];
        let ended = run(both.args(args), LIMIT);
        let total = format!("verified on the target: 8 writes, {} bytes, none wrong", size * 8);
        ended.ok().says(&[format!("initiator: {total}"), format!("target: {total}")]);
    }
}

#[test]
fn a_wrong_byte_is_found_wherever_it_is() {
    // The first and the last byte, those beside a word's end, and one past a MiB.
    for (scope, size, offset) in [
        ("thread", 1, 0),
        ("thread", 13, 12),
        ("warp", 4096, 7),
        ("warp", 4096, 8),
        ("block", (1 << 20) + 1, 1 << 20),
    ] {
        let (size, corrupt) = (size.to_string(), offset.to_string());
        let args =
            ["--iters", "3", "--warmup", "1", "--scope", scope, "--size", &size, "--corrupt", &corrupt];
        let first = format!("wrong bytes: 1, the first at offset {offset} of iteration 4");
        let (initiator, target) = Pair::new(offset % 2 == 0).run(&args);
        for ended in [initiator, target] {
            let ended = ended.failed().says(&[&first]);
            assert!(ended.lines_with("none wrong").is_empty(), "{ended}");
        }
        let both = run(command(example("write_signal")).args(["--mode", "both"]).args(args), LIMIT);
        both.failed().says(&[&first]);
    }
}

#[test]
fn a_pair_that_disagrees_is_told() {
    for (option, initiators, targets) in
        [("--size", "64", "65"), ("--iters", "3", "4"), ("--scope", "warp", "block")]
    {
        let (initiator, target) = Pair::new(true).run_each(&[option, initiators], &[option, targets]);
        initiator.failed().says(&[option, "the initiator"]);
        target.failed().says(&[option, "the initiator"]);
    }
}

#[test]
fn one_of_the_pair_that_never_comes_is_an_error() {
    for mode in ["initiator", "target"] {
        let mut alone = Pair::new(true).command(mode, &[]);
        let started = Instant::now();
        let ended = run(alone.env("RUSHMEM_INIT_TIMEOUT", "1"), LIMIT).failed();
        assert!(started.elapsed() < Duration::from_secs(10), "{ended}");
        assert!(ended.stderr.contains("RUSHMEM_ERR_"), "{ended}");
    }
}

#[test]
fn one_of_the_pair_that_is_killed_ends_the_other() {
    for (victim, name) in [("initiator", "PE 0"), ("target", "PE 1")] {
        let pair = Pair::new(true);
        let args = ["--size", "4K", "--iters", "1000000"];
        let mut sides = ["initiator", "target"].map(|mode| Some(start(&mut pair.command(mode, &args))));
        std::thread::sleep(Duration::from_millis(1500));
        let index = usize::from(victim == "target");
        let killed = sides[index].take().expect("started above");
        let survivor = sides[1 - index].take().expect("started above");
        killed.signal(libc::SIGKILL);
        let at = Instant::now();
        let ended = survivor.wait(LIMIT).failed().says(&[name]);
        assert!(at.elapsed() < Duration::from_secs(5), "it took {:?}: {ended}", at.elapsed());
    }
}
