//! The device library, tested by the kernels in tests/kernels: one source for every kind of device. Most kernels check
//! themselves and leave a report (tests/kernels/check.h), which [`Bench`] reads; what a kernel leaves behind in
//! symmetric memory is checked here. Each test runs at several PE counts, as processes and as threads of one.
//! Under a sanitizer they run in brief (api_common/place.rs).

#[path = "../api_common/mod.rs"]
mod api_common;

mod atomics;
mod faults;
mod order;
mod rma;
mod waits;

use api_common::place::{is_brief, on_gpus, rounds};
use api_common::{both, Rng};
use rushmem::{Kernel, KernelArgs, Launch, Module, Source, SymSlice, World};

/// `SCOPE_*` of check.h.
const THREAD: i32 = 0;
const WARP: i32 = 1;
const BLOCK: i32 = 2;
const SCOPES: [i32; 3] = [THREAD, WARP, BLOCK];

/// Threads of a block worth trying: one alone, whole warps, and a last warp that is not full.
const BLOCK_SIZES: [u32; 3] = [1, 64, 70];

/// A file of kernels, with what it includes from beside it put before it: the source stands alone, wherever the
/// tests run.
macro_rules! kernels {
    ($name:literal) => {
        concat!(
            include_str!("../kernels/check.h"),
            "\n#line 1 \"",
            $name,
            "\"\n",
            include_str!(concat!("../kernels/", $name))
        )
    };
}
pub(crate) use kernels;

/// A loaded file of kernels and the report that they write.
struct Bench<'w> {
    world: &'w World,
    module: Module<'w>,
    report: SymSlice<'w, u64>,
}

impl<'w> Bench<'w> {
    fn new(world: &'w World, source: &str) -> Self {
        let module = world.load(Source::text(source)).unwrap();
        Bench { world, module, report: world.alloc(8).unwrap() }
    }

    fn kernel(&self, name: &str) -> Kernel<'_> {
        self.module.kernel(name).unwrap()
    }

    /// Launches on every PE, waits, and panics if a kernel of this PE found something wrong.
    ///
    /// Callers pass memory of the sizes that the kernel's comment asks for, which only it touches meanwhile.
    #[track_caller]
    fn run(&self, name: &str, launch: Launch, args: impl KernelArgs) {
        self.report.fill(0).unwrap();
        // Nobody's kernel starts while another PE still prepares or inspects its memory.
        self.world.barrier_all().unwrap();
        // SAFETY: the callers' promise above; kernels of several PEs meet only through the library's operations.
        unsafe { self.kernel(name).launch(launch, args) }.unwrap();
        self.world.synchronize().unwrap();
        self.world.barrier_all().unwrap();
        let [errors, line, got, wanted, info, thread, block, _] = self.report.to_vec().unwrap()[..] else {
            unreachable!()
        };
        assert!(
            errors == 0,
            "{name} {launch:?} on {}: {errors} errors, the first at line {line} of the kernel: got {got:#x}, wanted \
             {wanted:#x}, about {info:#x}, thread {thread} of block {block}",
            self.world.my_pe()
        );
    }
}

/// PE counts at which costly tests run; the cheap ones take [`api_common::at_all_counts`].
fn at_few_counts(f: impl Fn(&World, &mut Rng) + Sync) {
    for n in [1, 2, 3] {
        both(n, &f);
    }
}
