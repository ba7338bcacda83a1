//! Write and signal between two PEs: the initiator's kernel writes data and then signals, the target's kernel
//! waits for the signal and checks every byte, fresh in each iteration; both time the round trip.
//!
//! Two processes, started one by one in either order:
//! `write_signal --mode target --address 127.0.0.1:18515` and the same with `--mode initiator`.
//! Or both PEs in one process, each on a thread: `write_signal --mode both`.

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/units.rs"]
mod units;
#[path = "common/verdict.rs"]
mod verdict;

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use common::Outcome;
use rushmem::{Launch, Source, Uid, World, WorldBuilder};

/// Write and signal between two PEs, every byte verified.
#[derive(Parser, Clone)]
struct Args {
    /// What this process is; `both` runs the two PEs on threads.
    #[arg(long, value_enum)]
    mode: Mode,
    /// Where the two processes meet; the initiator listens there.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18515", value_parser = parse_address)]
    address: String,
    /// Bytes of one write; K, M and G are powers of 1024.
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    size: usize,
    /// Measured iterations.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iters: u64,
    /// Iterations before those: verified, but not measured.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    warmup: u64,
    /// Who writes and signals.
    #[arg(long, value_enum, default_value_t = Scope::Block)]
    scope: Scope,
    /// Threads of each kernel's block; they fill and check the data together at any scope.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// What the data is derived from, besides the iteration: the initiator's, by default a random one.
    #[arg(long)]
    seed: Option<u64>,
    /// Spoils the byte at this offset in the last iteration, to show that the check sees it.
    #[arg(long, hide = true, value_name = "OFFSET")]
    corrupt: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Initiator,
    Target,
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scope {
    Thread,
    Warp,
    Block,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Block => "block",
        }
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => {
            Ok(text.to_owned())
        }
        _ => Err("an address is HOST:PORT, with a port from 1 to 65535".into()),
    }
}

const INITIATOR: u32 = 0;
const TARGET: u32 = 1;

fn main() -> ExitCode {
    let args = Args::parse();
    common::exit("write_signal", start(&args))
}

fn start(args: &Args) -> Outcome {
    if let Some(offset) = args.corrupt.filter(|offset| *offset >= args.size as u64) {
        return Err(format!("--corrupt {offset}: a write of {} bytes has no such byte", args.size).into());
    }
    let at = |pe| World::builder().address(&args.address, pe, 2);
    match args.mode {
        Mode::Initiator => run(args, at(INITIATOR)),
        Mode::Target => run(args, at(TARGET)),
        Mode::Both => {
            let uid = Uid::create()?;
            std::thread::scope(|scope| {
                let target = scope.spawn(|| run(args, World::builder().uid(&uid, TARGET, 2)));
                let initiator = run(args, World::builder().uid(&uid, INITIATOR, 2));
                // The target's is the better account of what is wrong.
                target.join().map_err(|_| "the target's thread panicked")?.and(initiator)
            })
        }
    }
}

fn run(args: &Args, builder: WorldBuilder) -> Outcome {
    let world = builder.init()?;
    let seed = agree(&world, args)?;
    let (bytes, iterations) = (args.size as u64, args.warmup + args.iters);

    // A word more than is written shows whether a write goes too far.
    let data = world.alloc::<u64>(args.size / 8 + 1)?;
    let signals = world.alloc::<u64>(4)?;
    let times = world.alloc::<u64>(iterations as usize)?;
    let report = world.alloc::<u64>(4)?;
    report.write(&[u64::MAX, 0, 0, 0])?;

    let module = world.load(Source::text(include_str!("write_signal.cu")).name("write_signal.cu"))?;
    let kernel = module.kernel(&format!("write_signal_{}", args.scope.name()))?;
    let corrupt = args.corrupt.unwrap_or(u64::MAX);
    world.barrier_all()?;
    // SAFETY: the kernel stays within these four allocations, which outlive it; nobody else touches them
    // until synchronize, and between the two kernels the signals say whose turn it is.
    unsafe {
        kernel.launch(
            Launch::new(1, args.threads),
            (&data, bytes, &signals, &times, iterations, seed, corrupt, &report),
        )
    }?;
    world.synchronize()?;
    world.barrier_all()?;

    print(&world, args, seed, &times.to_vec()?[args.warmup as usize..])?;
    let mut counted = [0; 4];
    report.get(&mut counted, world.pe(TARGET)?)?;
    let mut wrong = verdict(args, seed, counted);
    if wrong.is_none() && world.my_pe().number() == TARGET {
        wrong = second_look(&data.to_vec()?, args, seed);
    }
    if wrong.is_none() {
        println!(
            "{}: verified on the target: {iterations} writes, {} bytes, none wrong",
            role(&world),
            counted[2]
        );
    }
    verdict::all_agree(&world, wrong)?;
    world.finalize()?;
    Ok(())
}

fn role(world: &World) -> &'static str {
    if world.my_pe().number() == INITIATOR {
        "initiator"
    } else {
        "target"
    }
}

/// Makes sure that both were started with the same arguments, and hands the initiator's seed to both.
fn agree(world: &World, args: &Args) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let names = ["--size", "--iters", "--warmup", "--threads"];
    let mine = [args.size as u64, args.iters, args.warmup, u64::from(args.threads), args.scope as u64, seed];

    let settings = world.alloc::<u64>(mine.len())?;
    settings.write(&mine)?;
    world.barrier_all()?;
    let mut initiators = [0; 6];
    settings.get(&mut initiators, world.pe(INITIATOR)?)?;
    let mut targets = [0; 6];
    settings.get(&mut targets, world.pe(TARGET)?)?;
    settings.free()?;

    for (name, (initiators, targets)) in names.iter().zip(initiators.iter().zip(&targets)) {
        if initiators != targets {
            return Err(format!(
                "the initiator was started with {name} {initiators}, the target with {targets}"
            )
            .into());
        }
    }
    if initiators[4] != targets[4] {
        return Err("the initiator and the target were started with different --scope".into());
    }
    Ok(initiators[5])
}

fn print(world: &World, args: &Args, seed: u64, times: &[u64]) -> Outcome {
    let (role, other) = (role(world), world.peer(world.right())?);
    println!(
        "{role}: {} on device: {}; {} on {} (pid {}) by {} ({})",
        world.my_pe(),
        device::name(world),
        other.pe,
        other.host,
        other.pid,
        other.transport,
        other.reason,
    );
    println!(
        "{role}: {} x {} written and signalled by a {} (blocks of {}), {} before to warm up, seed {seed}",
        args.iters,
        size(args.size),
        args.scope.name(),
        args.threads,
        args.warmup,
    );
    let way = if world.my_pe().number() == INITIATOR {
        "write, signal, and the target's signal back"
    } else {
        "signal, and the initiator's write and signal back"
    };
    println!("{role}: latency, as a round trip ({way}): {}", distribution(times.to_vec()));
    let median = median(times);
    if args.size > 0 && median > 0.0 {
        println!("{role}: bandwidth (size by median round trip): {:.3} GB/s", args.size as f64 / median);
    }
    Ok(())
}

/// What the target's kernel found wrong, if anything: its report is the first wrong position, the number of
/// wrong bytes, the number of bytes compared, and the first wrong byte.
fn verdict(args: &Args, seed: u64, [first, wrong, checked, got]: [u64; 4]) -> Option<String> {
    let stride = (args.size as u64 / 8 + 1) * 8;
    let every = args.size as u64 * (args.warmup + args.iters);
    if first != u64::MAX {
        let (iteration, offset) = (first / stride + 1, first % stride);
        let expected = if offset < args.size as u64 { byte(seed, iteration, offset) } else { 0 };
        return Some(format!(
            "wrong bytes: {wrong}, the first at offset {offset} of iteration {iteration}: {got:#04x}, not {expected:#04x}"
        ));
    }
    (checked != every).then(|| format!("the target compared {checked} bytes, not {every}"))
}

/// The last iteration's bytes, checked by the host: what the kernel says is not taken on trust.
fn second_look(data: &[u64], args: &Args, seed: u64) -> Option<String> {
    let iteration = args.warmup + args.iters;
    let bytes = data.iter().flat_map(|word| word.to_le_bytes());
    let expected =
        (0..args.size as u64).map(|offset| byte(seed, iteration, offset)).chain(std::iter::repeat(0));
    bytes.zip(expected).position(|(seen, expected)| seen != expected).map(|offset| {
        format!("the byte at offset {offset} of the last iteration is wrong, which the target's kernel did not see")
    })
}

/// One byte of an iteration's data. write_signal.cu says the same in CUDA C++.
fn byte(seed: u64, iteration: u64, offset: u64) -> u8 {
    let word = seed
        .wrapping_add(iteration.wrapping_mul(0x9e3779b97f4a7c15))
        .wrapping_add((offset / 8).wrapping_mul(0xd1342543de82ef95));
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d049bb133111eb);
    (word ^ (word >> 31)).to_le_bytes()[(offset % 8) as usize]
}

/// Bytes from `4096`, `13`, `64K`, `1M`, `2G`: a whole number, with K, M and G for powers of 1024.
fn parse_size(text: &str) -> Result<usize, String> {
    let number = text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']);
    let unit = match &text[number.len()..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return Err("a size has one suffix at most: K, M or G".into()),
    };
    let number: usize =
        number.parse().map_err(|_| "a size is a whole number, such as 4096, 64K or 1M".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "this size does not fit an address".to_owned())
}

/// Bytes for people: `1 MiB`, `13 B`; exact, so an odd number stays in bytes.
fn size(bytes: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes % unit == 0 {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

/// The distribution of times in nanoseconds, for people.
fn distribution(mut ns: Vec<u64>) -> String {
    ns.sort_unstable();
    let at = |quantile: f64| {
        ns.get(((ns.len() as f64 - 1.0) * quantile).round() as usize).map_or(0.0, |v| *v as f64)
    };
    format!(
        "min {}, median {}, 99% {}, max {}",
        units::time(at(0.0)),
        units::time(at(0.5)),
        units::time(at(0.99)),
        units::time(at(1.0))
    )
}

/// The median of times in nanoseconds.
fn median(ns: &[u64]) -> f64 {
    let mut ns = ns.to_vec();
    ns.sort_unstable();
    ns.get(ns.len() / 2).map_or(0.0, |v| *v as f64)
}
