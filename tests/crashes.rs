//! A kernel that faults on one PE: its text says where and what, its process ends by the signal, and every
//! other PE ends soon with an error that names it.

// PEs end themselves here, at once and whatever is on their stack.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use rushmem::testing::{self, Exit};
use rushmem::{ErrorCode, Launch, Pe, Source, SymSlice, World};

/// As the other deaths: the text is made before the process ends.
const LIMIT: Duration = Duration::from_secs(10);

const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>

extern "C" __global__ void sends(int *to, int *from, long beyond, int pe) {
  if (blockIdx.x == 1 && threadIdx.x == 2) {
    rushmem::put(to + beyond, from, 8, pe);  // put
  }
}

extern "C" __global__ void stores(int *to, long beyond, int *out) {
  if (threadIdx.x == 9) to[beyond] = *out;  // store
}

extern "C" __global__ void deep(int *out) {
  volatile char memory[200 << 10];
  for (unsigned i = 0; i < sizeof memory; i += 1024) memory[i] = i;
  *out = memory[1024];
}
"#;

fn line(mark: &str) -> String {
    let found = SOURCE.lines().position(|line| line.ends_with(mark)).expect("the mark is in the source");
    format!(" at folder/faults.cu:{}", found + 1)
}

/// PE 1 launches a kernel that faults; what it said.
fn fault(
    pes: u32,
    words: usize,
    launch: impl Fn(&rushmem::Module<'_>, &SymSlice<'_, i32>) -> rushmem::Result<()>,
) -> String {
    let mut said = String::new();
    let job = testing::pes(pes).timeout(Duration::from_secs(100)).env("RUSHMEM_DEVICE", "cpu");
    let job = job.env("RUSHMEM_TRANSPORT", "auto").env("RUSHMEM_CPU_STACK", "").env("RUSHMEM_LOG", "");
    job.supervise(
        |pe| -> rushmem::Result<()> {
            let world = World::init()?;
            let module = world.load(Source::text(SOURCE).name("folder/faults.cu"))?;
            let memory = world.alloc::<i32>(words)?;
            if pe.number() == 1 {
                println!("LAUNCHING");
                launch(&module, &memory)?;
                world.synchronize()?;
                println!("IT GOES ON");
            }
            let error = world.barrier_all().expect_err("PE 1 is dead");
            println!("ENDED with {:?}: {error}", error.code());
            std::process::exit(7)
        },
        |job| {
            job.wait_for_line(Pe::new(1), "LAUNCHING", Duration::from_secs(90));
            let launched = Instant::now();
            for outcome in job.outcomes() {
                let text =
                    format!("{}: {}\n{}\n{}", outcome.pe, outcome.exit, outcome.stdout, outcome.stderr);
                assert!(outcome.ended < launched + LIMIT, "{text}");
                if outcome.pe == Pe::new(1) {
                    assert_eq!(outcome.exit, Exit::Signal(libc::SIGSEGV), "{text}");
                    said = outcome.stderr.clone();
                    continue;
                }
                assert_eq!(outcome.exit, Exit::Code(7), "{text}");
                let dead = format!("ENDED with {:?}", ErrorCode::PeerDead);
                let named =
                    outcome.stdout.lines().any(|line| line.starts_with(&dead) && line.contains("PE 1"));
                assert!(named, "{text}");
            }
        },
    );
    println!("{said}");
    assert_eq!(said.matches("rushmem [error] PE 1 (").count(), 1, "{said}");
    said
}

#[test]
fn a_put_outside_the_heap() {
    // The heap's limit is far behind what is mapped of it.
    let beyond = 200i64 << 20;
    let said = fault(3, 100, |module, to| {
        // SAFETY: none: it puts where nothing is.
        unsafe { module.kernel("sends")?.launch(Launch::new(2, 4), (to, to, beyond, 2i32)) }
    });
    for part in [
        ", block (1,0,0), thread (2,0,0)",
        &format!("{} in rushmem::put()", line("// put")),
        "kernel `sends` (folder/faults.cu)",
        "SIGSEGV: it writes address 0x",
        "PE 2's heap, at offset 0x",
        "the allocation of 400 bytes at offset 0x",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_store_behind_an_allocation() {
    let said = fault(2, 33, |module, to| {
        // SAFETY: none: it writes where nothing is.
        unsafe { module.kernel("stores")?.launch(Launch::new(1, 16), (to, 64i64 << 20, to)) }
    });
    let behind = (64 << 22) - 33 * 4;
    for part in [
        ", block (0,0,0), thread (9,0,0)",
        &line("// store"),
        &format!(": {behind} bytes behind the end of the allocation of 132 bytes at offset 0x"),
        "PE 1's heap",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_full_stack() {
    let said = fault(2, 1, |module, out| {
        // SAFETY: it overruns its stack.
        unsafe { module.kernel("deep")?.launch(Launch::new(1, 1), (out,)) }
    });
    let part = "the stack of the CUDA thread is full: it has 128 KiB; RUSHMEM_CPU_STACK=256K gives it more";
    assert!(said.contains(part), "{said}");
}
