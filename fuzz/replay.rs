// Replays a fuzz target's seeds and some thousand mutations of them in an ordinary test, without cargo-fuzz:
// what a change breaks roughly shows at once. Included by the tests of each crate that has a target.
// `RUSHMEM_TEST_ROUNDS` multiplies the mutations; `SEED` repeats a run.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;

const MUTATIONS: u64 = 3000;
const LONGEST: usize = 4096;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 11) % end.max(1) as u64) as usize
    }
}

/// Numbers that parsers stumble over.
const ODD: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 | 3 => {
            let width = 1 << random.below(4);
            let odd = ODD[random.below(ODD.len())].to_le_bytes();
            for (to, from) in input.iter_mut().skip(at).zip(&odd[..width]) {
                *to = *from;
            }
        }
        4 => input.truncate(at),
        5 => {
            let from = random.below(other.len());
            input.splice(at..at, other[from..].iter().copied());
        }
        _ => {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
            input.splice(at..at, bytes);
        }
    }
    input.truncate(LONGEST);
}

/// Runs the target on its seeds, and on what can be made of them.
pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpora").join(target);
    let Ok(files) = std::fs::read_dir(&dir) else {
        eprintln!("SKIP fuzzing::{target}: no {} here", dir.display());
        return;
    };
    let mut seeds: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.expect("readable").path()).expect("readable")).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "no seeds in {}", dir.display());
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64 | 1
    });
    println!("SEED={seed}");
    let mut random = Random(seed | 1);
    let check = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("fuzz target {target} fails on {hex}");
            resume_unwind(panic);
        }
    };
    seeds.iter().for_each(|input| check(input));
    for _ in 0..MUTATIONS * number("RUSHMEM_TEST_ROUNDS").unwrap_or(1) {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            let other = &seeds[random.below(seeds.len())];
            mutate(&mut input, other, &mut random);
        }
        check(&input);
    }
}
