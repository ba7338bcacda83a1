//! What the examples share, so that each shows only what it is about: the way out, one verdict of all PEs,
//! and units for people.
#![allow(dead_code, reason = "each example is a program of its own and uses a part")]

use std::process::ExitCode;

use rushmem::World;

/// How an example ends. Any error will do: it is printed for a person, and the program exits with 1.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Prints what went wrong, if anything did, and makes it the program's exit code.
pub(crate) fn exit(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What kernels of this world run on.
pub(crate) fn device(world: &World) -> String {
    match world.device() {
        rushmem::Device::Cpu => "CPU".into(),
        _ => world.device_name(),
    }
}

/// One verdict of all PEs: an error on each of them if any found something `wrong`, so that no PE reports
/// success while another has found an error. Collective.
pub(crate) fn all_agree(world: &World, wrong: Option<String>) -> Outcome {
    let reports = world.alloc::<u32>(world.n_pes() as usize)?;
    for pe in world.pes() {
        reports.p(world.my_pe().index(), u32::from(wrong.is_some()), pe)?;
    }
    world.barrier_all()?;
    let against = reports.to_vec()?.iter().position(|report| *report != 0);
    reports.free()?;
    match (wrong, against) {
        (Some(wrong), _) => Err(format!("{}: {wrong}", world.my_pe()).into()),
        (None, Some(pe)) => Err(format!("{}: PE {pe} found a wrong result", world.my_pe()).into()),
        (None, None) => Ok(()),
    }
}

/// Bytes from `4096`, `13`, `64K`, `1M`, `2G`: a whole number, with K, M and G for powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
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
pub(crate) fn size(bytes: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes % unit == 0 {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

/// A time in nanoseconds for people: `850 ns`, `12.3 us`, `4.56 ms`.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// The distribution of times in nanoseconds, for people.
pub(crate) fn distribution(mut ns: Vec<u64>) -> String {
    ns.sort_unstable();
    let at = |quantile: f64| {
        ns.get(((ns.len() as f64 - 1.0) * quantile).round() as usize).map_or(0.0, |v| *v as f64)
    };
    format!("min {}, median {}, 99% {}, max {}", time(at(0.0)), time(at(0.5)), time(at(0.99)), time(at(1.0)))
}

/// The median of times in nanoseconds.
pub(crate) fn median(ns: &[u64]) -> f64 {
    let mut ns = ns.to_vec();
    ns.sort_unstable();
    ns.get(ns.len() / 2).map_or(0.0, |v| *v as f64)
}

/// The next of a sequence of random numbers (SplitMix64), the same wherever it starts from the same state.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e3779b97f4a7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}
