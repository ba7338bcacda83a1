//! What tests of kernels share: sources of tests/kernels that stand alone, and the report that such kernels
//! leave.

use rushmem::{Kernel, KernelArgs, Launch, Module, Source, SymSlice, World};

/// `SCOPE_*` of check.h.
pub const THREAD: i32 = 0;
/// The threads of a warp act together.
pub const WARP: i32 = 1;
/// The threads of a block do.
pub const BLOCK: i32 = 2;
/// All of them.
pub const SCOPES: [i32; 3] = [THREAD, WARP, BLOCK];

/// A file of kernels, with what it includes from beside it put before it: the source stands alone, wherever
/// the tests run.
#[macro_export]
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
pub use crate::kernels;

/// A file with many instances of collectives, which compilers take minutes, on GPUs, to make fast.
pub fn made_quickly(source: &str) -> Source {
    Source::text(source).gpu_option("--Ofast-compile=max").cpu_option("-O0")
}

/// With queues, where there may be some: on GPUs kernels have them where they are compiled for them; on the
/// CPU device all have.
pub fn with_queues(source: Source) -> Source {
    let queues = std::env::var("RUSHMEM_TRANSPORT").is_ok_and(|way| way.contains("queue"));
    if queues {
        source.option("-DRUSHMEM_NET_QUEUE")
    } else {
        source
    }
}

/// A loaded file of kernels and the report that they write.
pub struct Bench<'w> {
    /// Whose PE runs the kernels.
    pub world: &'w World,
    /// What was loaded.
    pub module: Module<'w>,
    /// What a kernel found wrong: check.h says which word is what.
    pub report: SymSlice<'w, u64>,
}

impl<'w> Bench<'w> {
    /// Loads the source.
    pub fn new(world: &'w World, source: &str) -> Self {
        Bench::of(world, Source::text(source))
    }

    /// The same of [`made_quickly`].
    pub fn made_quickly(world: &'w World, source: &str) -> Self {
        Bench::of(world, made_quickly(source))
    }

    /// The same with options.
    pub fn of(world: &'w World, source: Source) -> Self {
        let module = world.load(with_queues(source)).unwrap();
        Bench { world, module, report: world.alloc(8).unwrap() }
    }

    /// The file's kernel of this name.
    pub fn kernel(&self, name: &str) -> Kernel<'_> {
        self.module.kernel(name).unwrap()
    }

    /// Launches on every PE, waits, and panics if a kernel of this PE found something wrong.
    ///
    /// Callers pass memory of the sizes that the kernel's comment asks for, which only it touches meanwhile.
    #[track_caller]
    pub fn run(&self, name: &str, launch: Launch, args: impl KernelArgs) {
        self.report.fill(0).unwrap();
        // Nobody's kernel starts while another PE still prepares or inspects its memory.
        self.world.barrier_all().unwrap();
        // SAFETY: callers pass memory of the sizes that the kernel's comment asks for, which only it touches
        // meanwhile; kernels of several PEs meet only through the library's operations.
        unsafe { self.kernel(name).launch(launch, args) }.unwrap();
        self.world.synchronize().unwrap();
        self.world.barrier_all().unwrap();
        self.check(&format!("{name} {launch:?}"));
    }

    /// Panics if a kernel of this PE has found something wrong since the report was empty.
    #[track_caller]
    pub fn check(&self, what: &str) {
        let [errors, line, got, wanted, info, thread, block, _] = self.report.to_vec().unwrap()[..] else {
            unreachable!()
        };
        assert!(
            errors == 0,
            "{what} on {}: {errors} errors, the first at line {line} of the kernel: got {got:#x}, wanted \
             {wanted:#x}, about {info:#x}, thread {thread} of block {block}",
            self.world.my_pe()
        );
    }
}
