//! What the CPU device can do and where it ends, as a table of the guide: each row is found out here, by
//! kernels that use the thing and by launches at the limit and past it. The page must show what is found:
//! `UPDATE_GUIDE=1 cargo test --test cpu_limits` writes it.

use std::path::Path;
use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::{Device, ErrorCode, Launch, Pe, Source, World};

/// The page of the guide, and the lines between which the table stands.
const PAGE: &str = "docs/guide/cpu-device.md";
const BEGIN: &str = "<!-- table: UPDATE_GUIDE=1 cargo test --test cpu_limits -->\n";
const END: &str = "<!-- end of the table -->\n";

/// A row: what, on the CPU device, on a GPU of sm_90.
type Row = [String; 3];

fn row(what: &str, cpu: impl ToString, gpu: &str) -> Row {
    [what.into(), cpu.to_string(), gpu.into()]
}

/// A PE on the CPU device, whatever the tests run on, with the default limits.
fn pe() -> testing::Pes {
    let settings = ["RUSHMEM_CPU_BLOCKS", "RUSHMEM_CPU_THREADS", "RUSHMEM_CPU_STACK", "RUSHMEM_WAIT_TIMEOUT"];
    let limit = Duration::from_secs(170); // compilers run for most of it, on a loaded machine for long
    let pe = settings.iter().fold(testing::pes(1).timeout(limit), |pe, setting| pe.env(setting, ""));
    pe.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_TRANSPORT", "auto")
}

#[test]
fn the_table_of_limits_is_what_the_device_does() {
    pe().run(|world| {
        assert!(matches!(world.device(), Device::Cpu));
        let mut rows = Vec::new();
        shapes(world, &mut rows);
        words(world, &mut rows);
        what_is_missing(world, &mut rows);
        failures(world, &mut rows);
        // One that ends the process, and one that takes its time: the tests below.
        rows.push(row(
            "stack of a CUDA thread",
            "128 KiB (`RUSHMEM_CPU_STACK`); past it the process ends with SIGSEGV and a text",
            "512 KiB of local memory",
        ));
        rows.push(row(
            "polling with plain loads for a thread of the same block",
            "ends, but slowly: a rushmem wait, an atomic, a fence, `clock64()` or `__nanosleep` in the loop is fast",
            "ends",
        ));
        compare(&rows);
    });
}

/// The largest number that a launch takes, of those up to `most`: taken there, refused one past it.
fn largest(most: u64, takes: impl Fn(u64) -> bool) -> u64 {
    assert!(takes(1) && !takes(most), "the limit is not between 1 and {most}");
    let (mut good, mut bad) = (1, most);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if takes(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

/// Whether a launch is taken, and its work done.
fn runs(world: &World, kernel: &rushmem::Kernel<'_>, launch: Launch) -> bool {
    // SAFETY: kernels without parameters that touch no memory but their own.
    match unsafe { kernel.launch(launch, ()) } {
        Ok(()) => {
            world.synchronize().expect("a launch that was taken");
            true
        }
        Err(error) => {
            assert!(matches!(error.code(), ErrorCode::Launch | ErrorCode::Unsupported), "{error}");
            false
        }
    }
}

fn shapes(world: &World, rows: &mut Vec<Row>) {
    let module = world.load("extern \"C\" __global__ void nothing() {}").unwrap();
    let nothing = module.kernel("nothing").unwrap();
    let takes = |launch: Launch| runs(world, &nothing, launch);
    let threads = largest(5000, |n| takes(Launch::new(1, n as u32)));
    let [y, z] = [1, 2].map(|dim| {
        largest(5000, |n| {
            let mut block = [1; 3];
            block[dim] = n as u32;
            takes(Launch::new(1, block))
        })
    });
    rows.push(row(
        "threads of a block",
        format!("{threads}; in y {y}, in z {z}"),
        "1024; in y 1024, in z 64",
    ));
    let blocks = largest(5000, |n| takes(Launch::new(n as u32, 1)));
    let full = largest(100, |n| takes(Launch::new(n as u32, 1024)));
    rows.push(row(
        "blocks of a launch, which are all resident",
        format!(
            "{blocks} (`RUSHMEM_CPU_BLOCKS`), and {} threads in all (`RUSHMEM_CPU_THREADS`)",
            full * 1024
        ),
        "what is resident at once: `Kernel::max_blocks`",
    ));
    assert_eq!(nothing.max_blocks(1024, 0).unwrap(), full);
    let shared = largest(1 << 20, |n| takes(Launch::new(1, 1).shared_bytes(n as usize)));
    rows.push(row("dynamic shared memory of a block", format!("{} KiB", shared / 1024), "227 KiB"));
    assert_eq!(shared % 1024, 0);
    rows.push(row(
        "clusters of blocks",
        if takes(Launch::new(2, 1).cluster(2)) { "yes" } else { "no: the launch is refused" },
        "yes",
    ));
}

/// Kernels that are launched with one block of 64 threads and put what they find out into `found`.
fn words(world: &World, rows: &mut Vec<Row>) {
    let source = r#"
        #include <rushmem/rushmem.cuh>
        #include <cuda_runtime.h>
        __constant__ uint64_t constant = 3;
        __device__ uint64_t variable;
        extern "C" __global__ void active(uint64_t *found) {
          if (threadIdx.x == 5) found[0] = __popc(__activemask());
        }
        extern "C" __global__ void full(uint64_t *found) {
          unsigned all = __ballot_sync(~0u, 1);
          if (threadIdx.x == 0) found[0] = __popc(all);
        }
        extern "C" __global__ void large(uint64_t *found) {
          __shared__ unsigned char memory[1 << 20];
          memory[(1 << 20) - 1 - threadIdx.x] = threadIdx.x;
          __syncthreads();
          if (threadIdx.x == 0) found[0] = memory[(1 << 20) - 1 - 63] == 63;
        }
        extern "C" __global__ void dynamic(uint64_t *found) {
          extern __shared__ uint64_t mine[];
          mine[threadIdx.x] = threadIdx.x;
          __syncthreads();
          if (threadIdx.x == 0) found[0] = mine[63] == 63;
        }
        extern "C" __global__ void globals(uint64_t *found) {
          if (threadIdx.x == 0) { variable = constant + 1; found[0] = variable == 4; }
        }
        extern "C" __global__ void atomics(uint64_t *found) {
          __shared__ double sum;
          if (threadIdx.x == 0) sum = 0;
          __syncthreads();
          atomicAdd(&sum, 0.25);
          __syncthreads();
          if (threadIdx.x == 0) found[0] = sum == 16.0;
        }
        extern "C" __global__ void allocates(uint64_t *found) {
          if (threadIdx.x != 0) return;
          uint64_t *memory = static_cast<uint64_t *>(malloc(1 << 16));
          memory[8191] = 1;
          found[0] = memory[8191];
          free(memory);
        }
        extern "C" __global__ void prints(uint64_t *found) {
          if (threadIdx.x == 0) found[0] = printf(" ") == 1;
        }
        extern "C" __global__ void deep(uint64_t *found) {
          volatile unsigned char memory[100 << 10];
          memory[threadIdx.x] = 1;
          memory[sizeof memory - 1] = memory[threadIdx.x];
          if (threadIdx.x == 0) found[0] = memory[sizeof memory - 1];
        }
        extern "C" __global__ void defined(uint64_t *found) {
        #if defined(RUSHMEM_CPU) && !defined(__CUDA_ARCH__) && !defined(__CUDACC__)
          found[0] = 1;
        #else
          found[0] = 0;
        #endif
        }
        extern "C" __global__ void naps(uint64_t *found) {
          __shared__ volatile int flag;
          if (threadIdx.x == 0) flag = 0;
          __syncthreads();
          if (threadIdx.x == 0) while (!flag) __nanosleep(100);
          else flag = 1;
          if (threadIdx.x == 0) found[0] = 1;
        }
    "#;
    let module = world.load(Source::text(source).name("words.cu")).unwrap();
    let found = world.alloc::<u64>(1).unwrap();
    let finds = |kernel: &str| {
        found.fill(u64::MAX).unwrap();
        let kernel = module.kernel(kernel).unwrap();
        // SAFETY: each writes one word at most.
        unsafe { kernel.launch(Launch::new(1, 64).shared_bytes(512), (&found,)) }.unwrap();
        world.synchronize().unwrap();
        found.g(0, world.my_pe()).unwrap()
    };
    let holds = |kernel: &str| if finds(kernel) == 1 { "yes" } else { "no" };
    rows.push(row(
        "static shared memory of a block",
        format!("any amount (1 MiB tried: {})", holds("large")),
        "48 KiB",
    ));
    rows.push(row(
        "`extern __shared__ T x[]` in a kernel, as well as `RUSHMEM_DYNAMIC_SHARED(T, x)`",
        holds("dynamic"),
        "yes",
    ));
    rows.push(row("lanes of a warp", finds("full"), "32"));
    let active = finds("active");
    assert_eq!(active, 1);
    rows.push(row(
        "`__activemask()`",
        "the calling lane alone: lanes run by themselves",
        "the lanes that run together",
    ));
    rows.push(row("`__device__` and `__constant__` variables", holds("globals"), "yes"));
    rows.push(row("CUDA's atomics on integers, `float` and `double`", holds("atomics"), "yes"));
    rows.push(row(
        "`malloc`, `printf` in kernels",
        if finds("allocates") & finds("prints") == 1 { "yes" } else { "no" },
        "yes",
    ));
    assert_eq!(finds("deep"), 1, "100 KiB of 128 KiB of stack");
    assert_eq!(finds("naps"), 1);
    rows.push(row(
        "`RUSHMEM_CPU` is defined, `__CUDA_ARCH__` and `__CUDACC__` are not",
        holds("defined"),
        "the other way round",
    ));
}

/// What CUDA C++ has and the CPU device has not: it must be refused when the source is loaded, never run
/// wrongly.
fn what_is_missing(world: &World, rows: &mut Vec<Row>) {
    // Where CUDA's own headers are on the compiler's path, some of them do something even here; that is of
    // that machine.
    let found_anyway = |source: &str| {
        source.starts_with("#include") && {
            let header = source.trim_start_matches("#include ").trim();
            world.load(format!("#if !__has_include({header})\n#error\n#endif\n").as_str()).is_ok()
        }
    };
    let loads = |source: &str| match world.load(source) {
        _ if found_anyway(source) => {
            eprintln!(
                "SKIP a header that the CPU device lacks: this machine's compiler has {}",
                source.trim()
            );
            "no: does not compile, and says what to write"
        }
        Ok(_) => "yes",
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Compile, "{error}");
            let instead =
                ["note: ", "on the CPU device; for `"].iter().any(|part| error.message().contains(part));
            assert!(instead, "nothing to write instead: {error}");
            "no: does not compile, and says what to write"
        }
    };
    for (what, source) in [
        ("Thrust, and what CUB launches from the host", "#include <thrust/sort.h>\n"),
        (
            "launches from kernels (`<<<…>>>`)",
            "__global__ void a() {}\n__global__ void b() { a<<<1, 1>>>(); }\n",
        ),
        ("tensor cores' fragments (`mma.h`)", "#include <mma.h>\n"),
        ("cuRAND in kernels", "#include <curand_kernel.h>\n"),
        (
            "`__isGlobal` and its like, but `__isShared`",
            "__global__ void a(int *x) { *x = __isGlobal(x); }\n",
        ),
        ("PTX in `asm`", "__global__ void a(unsigned *x) { asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(*x)); }\n"),
        (
            "textures and surfaces",
            "__global__ void a(cudaTextureObject_t t, float *x) { *x = tex1Dfetch<float>(t, 0); }\n",
        ),
    ] {
        rows.push(row(what, loads(source), "yes"));
    }
    let error = world.load_module("a.cubin", b"\x7fELF").err().expect("a refusal");
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    rows.push(row("machine code of nvcc (`World::load_module`)", "no: `UNSUPPORTED`", "yes"));
}

/// What goes wrong in a kernel, and what `synchronize` says then.
fn failures(world: &World, rows: &mut Vec<Row>) {
    let source = "
        #include <rushmem/rushmem.cuh>
        extern \"C\" __global__ void asserts() { assert(threadIdx.x < 3); }
        extern \"C\" __global__ void throws() { throw 1; }
        extern \"C\" __global__ void traps() { __trap(); }
        extern \"C\" __global__ void stuck() {
          if (threadIdx.x < 3) __syncthreads();
          else for (;;) __syncwarp(1u << threadIdx.x | 1u);
        }
        extern \"C\" __global__ void nobody(int *x) { rushmem::p(x, 1, 7); }
        extern \"C\" __global__ void nothing() {}
    ";
    let module = world.load(Source::text(source).name("failures.cu")).unwrap();
    let fails = |kernel: &str| {
        // SAFETY: none of them writes anything.
        unsafe { module.kernel(kernel).unwrap().launch(Launch::new(1, 32), ()) }.unwrap();
        world.synchronize().unwrap_err()
    };
    for kernel in ["asserts", "throws", "traps", "stuck"] {
        let error = fails(kernel);
        assert_eq!(error.code(), ErrorCode::Launch, "{kernel}: {error}");
        assert!(error.message().contains(kernel) || error.message().contains("failures.cu"), "{error}");
    }
    let word = world.alloc::<i32>(1).unwrap();
    // SAFETY: the kernel is refused before it writes.
    unsafe { module.kernel("nobody").unwrap().launch(Launch::new(1, 1), (&word,)) }.unwrap();
    assert_eq!(world.synchronize().unwrap_err().code(), ErrorCode::BadPe);
    // And the device is as good as before.
    // SAFETY: it does nothing.
    unsafe { module.kernel("nothing").unwrap().launch(Launch::new(4, 32), ()) }.unwrap();
    world.synchronize().unwrap();
    rows.push(row(
        "after a failed `assert`, `__trap()`, an exception, a deadlock, a PE that does not exist",
        "`synchronize` says what and where; the next launch works",
        "`synchronize` says what and where; the process can use that GPU no more",
    ));
}

fn compare(rows: &[Row]) {
    let mut table = String::from("| | CPU device | GPU (sm_90) |\n|---|---|---|\n");
    for [what, cpu, gpu] in rows {
        table += &format!("| {what} | {cpu} | {gpu} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let Ok(page) = std::fs::read_to_string(&path) else {
        eprintln!("SKIP the table of limits: no {PAGE} here, which a bundle lacks");
        return;
    };
    let (before, rest) = page.split_once(BEGIN).expect("the page says where the table begins");
    let (shown, after) = rest.split_once(END).expect("the page says where the table ends");
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}"))
            .expect("the page can be written");
    } else {
        assert_eq!(
            shown.trim(),
            table.trim(),
            "{PAGE} is not what the device does: UPDATE_GUIDE=1 writes it"
        );
    }
}

#[test]
fn a_stack_that_is_too_small_ends_the_process() {
    let source = "extern \"C\" __global__ void deep(int *out) {
        volatile unsigned char memory[200 << 10];
        for (unsigned i = 0; i < sizeof memory; i += 1024) memory[i] = i;
        *out = memory[1024];
    }";
    // 200 KiB are too much for 128, and not for 256.
    for (stack, end) in [("", Exit::Signal(libc::SIGSEGV)), ("256K", Exit::Done)] {
        pe().env("RUSHMEM_CPU_STACK", stack).supervise(
            |_| {
                let world = World::init()?;
                let out = world.alloc::<i32>(1)?;
                let module = world.load(source)?;
                // SAFETY: it writes one word.
                unsafe { module.kernel("deep")?.launch(Launch::new(1, 1), (&out,)) }?;
                world.synchronize()?;
                drop((module, out));
                world.finalize()
            },
            |job| assert_eq!(job.outcome(Pe::new(0)).exit, end),
        );
    }
}

#[test]
fn plain_loads_that_wait_for_the_same_block_end() {
    let source = "extern \"C\" __global__ void poll() {
        __shared__ volatile int flag;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        if (threadIdx.x == 0) while (!flag) {} // nothing here lets thread 1 run
        else flag = 1;
    }";
    pe().run(|world| {
        let module = world.load(source).unwrap();
        // SAFETY: it touches its shared memory alone.
        unsafe { module.kernel("poll").unwrap().launch(Launch::new(1, 2), ()) }.unwrap();
        world.synchronize().unwrap();
    });
}
