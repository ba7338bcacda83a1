//! Threads that a launch which failed has abandoned while they waited for answers of far PEs: what they had
//! claimed comes back, and never while a kernel of another stream has claims of its own. The network is the
//! fake one, so that answers are late.

use std::ffi::c_void;

use super::tests::{arg, run, shape, word};
use crate::error::code;
use crate::node::control::Call;
use crate::world::World;

const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>

// Every thread asks for a word of its own, again and again; the last one breaks off the launch, if it is to.
extern "C" __global__ void ask(const uint64_t *words, uint64_t rounds, int fails, uint64_t *wrong) {
  int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  uint64_t at = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, last = uint64_t(gridDim.x) * blockDim.x - 1;
  for (uint64_t i = 0; i < rounds; ++i) {
    if (fails && at == last && i == 2) rushmem::g(words, rushmem::n_pes());
    if (rushmem::g(words + at, right) != uint64_t(right) * 1000000 + at) *wrong = 1;
  }
}
"#;

/// Words of each PE: one for each thread of the largest launch.
const WORDS: usize = 1024;

fn ask(
    world: &World,
    stream: *mut c_void,
    grid: u32,
    block: u32,
    rounds: u64,
    fails: bool,
    at: [*mut u64; 2],
) {
    let module = world.kernels().load("abandoned.cu", SOURCE, vec![]).unwrap().get().unwrap();
    let kernel = module.kernel("ask").unwrap().get().unwrap();
    let shape = rushmem_abi::c::rushmem_launch_t { stream, ..shape(grid, block) };
    let fails = i32::from(fails);
    let args = [arg(&at[0]), arg(&rounds), arg(&fails), arg(&at[1])];
    // SAFETY: what the kernel takes; a word for each thread.
    unsafe { kernel.launch(&shape, &args, None) }.unwrap();
}

#[test]
fn what_a_failed_launch_claimed_comes_back_and_no_other_streams_claims_do() {
    // There are 512 places for answers.
    let env = [("RUSHMEM_TRANSPORT", "fake"), ("RUSHMEM_PES_PER_NODE", "1"), ("RUSHMEM_WAIT_TIMEOUT", "90")];
    let beside = run(2, &env, |w| {
        let words = w.alloc(8 * WORDS, 8).unwrap().unwrap() as *mut u64;
        let wrong = word(w);
        for at in 0..WORDS {
            // SAFETY: this PE's own words, which nobody reads before the barrier.
            unsafe { words.add(at).write_volatile(w.my_pe() as u64 * 1_000_000 + at as u64) };
        }
        w.sync_all(Call::SyncAll).unwrap();
        let [one, other] = [(); 2].map(|()| w.kernels().create_stream().unwrap());
        let mut beside = 0;
        // Four rounds, and more where the other stream's kernel has always ended first: it lasts longer then.
        for round in 0..16 {
            if round >= 4 && beside > 0 {
                break;
            }
            ask(w, other, 2, 400, 40 * (round / 4 + 1), false, [words, wrong]);
            ask(w, one, 2, 100, 1000, true, [words, wrong]);
            // SAFETY: a stream of this world.
            let outcome = unsafe { w.synchronize_stream(one) };
            assert_eq!(outcome.unwrap_err().code, code::BAD_PE, "round {round}");
            beside += usize::from(w.kernels().check_idle().is_err());
            w.synchronize().unwrap_or_else(|e| panic!("round {round}, the other stream: {e}"));
            ask(w, one, 2, 300, 2, false, [words, wrong]);
            w.synchronize().unwrap_or_else(|e| panic!("round {round}, afterwards: {e}"));
            // SAFETY: this PE's word; its kernels have ended.
            assert_eq!(unsafe { wrong.read_volatile() }, 0, "round {round}: an answer that was another's");
        }
        w.sync_all(Call::SyncAll).unwrap();
        w.finalize().unwrap();
        beside
    });
    // Else nothing was proved.
    assert!(beside.iter().sum::<usize>() > 0, "the other stream's kernel always ended first");
}
