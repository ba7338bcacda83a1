//! Nonsense in every variable of README's table: an error that names the variable, or a world that works; no
//! crash, no hang.

use std::collections::BTreeSet;
use std::time::Duration;

use rushmem::{testing, Pe, World};

use super::{rounds, Random};

const README: &str = include_str!("../../README.md");

const NONSENSE: [&str; 20] = [
    " ",
    "0",
    "-1",
    "1",
    "1e400",
    "nan",
    "-0.0",
    "0x10",
    "999999999999999999999999",
    "18446744073709551616",
    "1.5G",
    "1T1",
    "plenty",
    "auto,auto",
    "/",
    "/dev/null",
    "\u{fffd}\u{1F980}",
    "%s%n",
    "cuda:-1",
    "a=b",
];

fn variables() -> Vec<&'static str> {
    let row = README.lines().filter(|line| line.starts_with("| `RUSHMEM_"));
    let cell = row.filter_map(|line| line[2..].split_once(" | "));
    let named = cell.flat_map(|(cell, _)| cell.split('`').filter(|name| name.starts_with("RUSHMEM_")));
    named.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Values and what they are for.
fn pairs() -> Vec<(&'static str, String)> {
    let long = "9".repeat(100_000);
    let values = || NONSENSE.iter().map(|text| (*text).to_owned()).chain([long.clone()]);
    variables().into_iter().flat_map(|name| values().map(move |value| (name, value))).collect()
}

#[test]
fn nonsense_is_named() {
    let all = pairs();
    assert!(variables().len() > 25, "{:?}", variables());
    // A child makes the same calls in the same order, so each must draw the same.
    const SEED: &str = super::SEED;
    let mut random = Random::new();
    let seed = random.0;
    let count = (rounds(25) as usize).min(all.len());
    for i in 0..count {
        let (name, value) = if count == all.len() { &all[i] } else { &all[random.below(all.len())] };
        testing::pes(1)
            .timeout(Duration::from_secs(60))
            .env(SEED, seed.to_string())
            .env("RUSHMEM_DEVICE", "cpu")
            .env(name, value)
            .supervise(
                |_| {
                    // Some variables name files to be made.
                    let folder = tempfile::tempdir().expect("a folder");
                    std::env::set_current_dir(folder.path()).expect("it is there");
                    match World::init() {
                        Ok(world) => {
                            let words = world.alloc::<u64>(8).expect("room for a few words");
                            world.barrier_all().expect("one PE");
                            drop(words);
                            println!("WORKS");
                        }
                        Err(error) => println!("REFUSED {error}"),
                    }
                },
                |job| {
                    let outcome = job.outcome(Pe::new(0));
                    let said = format!("{name}={value:.60}: {}\n{}", outcome.stdout, outcome.stderr);
                    assert_eq!(outcome.exit, testing::Exit::Done, "{said}");
                    let refused = outcome.stdout.lines().find_map(|line| line.strip_prefix("REFUSED "));
                    assert!(refused.is_none_or(|why| why.contains(name)), "{said}");
                },
            );
    }
}
