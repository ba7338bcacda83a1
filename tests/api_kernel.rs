//! Kernels from Rust: loading, arguments of every kind, launches in order, refusals, failures. What the
//! device library does inside a kernel is tested elsewhere.

use std::time::Duration;

use rushmem::testing::{self, Exit};
use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};
use rushmem::{ByValue, Cmp, Device, Dim3, ErrorCode, Launch, Pe, Source, World};
use rushmem_test_support::api_common::place::{on_gpus, processes, skip};
use rushmem_test_support::api_common::{at_all_counts, both};

const ARGUMENTS: &str = r#"
#include <rushmem/rushmem.cuh>
struct pair { int a; double b; };
extern "C" __global__ void everything(double *out, char c, short s, int i, long long l, unsigned char uc,
                                      unsigned short us, unsigned u, unsigned long long ul, float f, double d, bool b,
                                      pair p, const float *in, uint64_t *sig) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    double all[] = {double(c), double(s), double(i), double(l), double(uc), double(us), double(u), double(ul),
                    double(f), d, double(b), double(p.a), p.b, double(in[2])};
    for (int k = 0; k < 14; ++k) out[k] = all[k];
    *sig += 5;
  }
}
extern "C" __global__ void append(unsigned *list, unsigned value) { list[++list[0]] = value; }
extern "C" __global__ void shape(unsigned *out) {
  RUSHMEM_DYNAMIC_SHARED(unsigned, scratch);
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  scratch[thread] = thread;
  __syncthreads();
  atomicAdd(&out[block], scratch[threads - 1 - thread] + 1);
}
template <typename T> __global__ void scale(T *x, T by) { x[threadIdx.x] *= by; }
"#;

#[derive(Clone, Copy)]
#[repr(C)]
struct Pair {
    a: i32,
    b: f64,
}

#[test]
fn arguments_of_every_kind_arrive_as_they_are() {
    both(2, |world, _| {
        let module = world.load(Source::text(ARGUMENTS).name("arguments.cu")).unwrap();
        let (out, input) = (world.alloc::<f64>(14).unwrap(), world.alloc::<f32>(4).unwrap());
        let signal = world.signal().unwrap();
        input.write(&[0.0, 0.0, 2.25, 0.0]).unwrap();
        let kernel = module.kernel("everything").unwrap();
        let part = input.slice(..).unwrap();
        let (out_ptr, pair) = (out.as_ptr(), ByValue(Pair { a: -9, b: 0.125 }));
        let scalars = (-1i8, -2i16, -3i32, -4i64, 5u8, 6u16, 7u32);
        let (c, s, i, l, uc, us, u) = scalars;
        // SAFETY: the kernel writes 14 doubles to `out` and the signal, which nobody else touches meanwhile.
        unsafe {
            let args = (out_ptr, c, s, i, l, uc, us, u, 8u64, 9.5f32, -10.5f64, true, pair, &part, &signal);
            kernel.launch(Launch::new(1, 32), args).unwrap();
        }
        world.synchronize().unwrap();
        let expected = [-1.0, -2.0, -3.0, -4.0, 5.0, 6.0, 7.0, 8.0, 9.5, -10.5, 1.0, -9.0, 0.125, 2.25];
        assert_eq!(out.to_vec().unwrap(), expected);
        assert_eq!(signal.fetch().unwrap(), 5);
        assert_eq!(kernel.params().unwrap().len(), 15);
        let mut names = module.kernel_names();
        names.retain(|name| ["everything", "append", "shape"].contains(&name.as_str()));
        assert_eq!(names.len(), 3);
        module.unload().unwrap();
    });
}

#[test]
fn launches_run_in_order_and_copy_their_arguments() {
    at_all_counts(|world, _| {
        let module = world.load(Source::text(ARGUMENTS).name("arguments.cu")).unwrap();
        let append = module.kernel("append").unwrap();
        let list = world.alloc::<u32>(101).unwrap();
        for value in 0..100u32 {
            // SAFETY: only this PE's kernels, one after the other, touch `list` before synchronize.
            unsafe { append.launch(Launch::new(1, 1), (&list, value * 3)) }.unwrap();
        }
        world.synchronize().unwrap();
        let expected: Vec<u32> = std::iter::once(100).chain((0..100).map(|v| v * 3)).collect();
        assert_eq!(list.to_vec().unwrap(), expected);
    });
}

#[test]
fn grids_blocks_and_shared_memory_have_the_shape_that_was_asked_for() {
    both(2, |world, _| {
        let module = world.load(Source::text(ARGUMENTS).name("arguments.cu")).unwrap();
        let shape = module.kernel("shape").unwrap();
        let cases: [(Dim3, Dim3); 4] = [
            (1.into(), 1.into()),
            (3.into(), 64.into()),
            ((2, 1, 2).into(), (4, 3, 5).into()),
            ([1, 2, 1].into(), (7, 3).into()),
        ];
        for (grid, block) in cases {
            let (blocks, threads) = (grid.0.iter().product::<u32>(), block.0.iter().product::<u32>());
            let out = world.alloc::<u32>(blocks as usize).unwrap();
            // SAFETY: one word for each block, and shared memory of a word for each thread.
            unsafe { shape.launch(Launch::new(grid, block).shared_bytes(4 * threads as usize), (&out,)) }
                .unwrap();
            world.synchronize().unwrap();
            assert_eq!(
                out.to_vec().unwrap(),
                vec![threads * (threads + 1) / 2; blocks as usize],
                "{grid:?} {block:?}"
            );
            out.free().unwrap();
        }
    });
}

#[test]
fn templates_options_and_files_make_sources() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twice.cu");
    std::fs::write(folder.path().join("factor.h"), "#define FACTOR 2\n").unwrap();
    let text =
        "#include \"factor.h\"\nextern \"C\" __global__ void twice(int *x) { *x = *x * FACTOR + EXTRA; }";
    std::fs::write(&file, text).unwrap();

    let world = World::init().unwrap();
    let source = Source::text(ARGUMENTS).instance("scale<float>").instance("scale<long long>");
    let module = world.load(source).unwrap();
    let (floats, words) = (world.alloc::<f32>(8).unwrap(), world.alloc::<i64>(8).unwrap());
    floats.fill(1.5).unwrap();
    words.fill(-3).unwrap();
    let launch = Launch::new(1, 8);
    // SAFETY: eight threads, eight elements, no other users.
    unsafe {
        module.kernel("scale<float>").unwrap().launch(launch, (&floats, 4f32)).unwrap();
        module.kernel("scale<long long>").unwrap().launch(launch, (&words, 1i64 << 40)).unwrap();
    }
    world.synchronize().unwrap();
    assert_eq!((floats.to_vec().unwrap(), words.to_vec().unwrap()), (vec![6.0; 8], vec![-3 << 40; 8]));

    let module = world.load(Source::file(&file).unwrap().define("EXTRA", 1)).unwrap();
    let x = world.alloc::<i32>(1).unwrap();
    x.fill(20).unwrap();
    // SAFETY: one word, no other users.
    unsafe { module.kernel("twice").unwrap().launch(Launch::new(1, 1), (&x,)) }.unwrap();
    world.synchronize().unwrap();
    assert_eq!(x.to_vec().unwrap(), [41]);

    // Each compiler has its own options: these define a macro, and would redefine it if both were taken.
    let own = Source::file(&file).unwrap().cpu_option("-DEXTRA=2").gpu_option("-DEXTRA=3");
    let module = world.load(own).unwrap();
    x.fill(20).unwrap();
    // SAFETY: one word, no other users.
    unsafe { module.kernel("twice").unwrap().launch(Launch::new(1, 1), (&x,)) }.unwrap();
    world.synchronize().unwrap();
    assert_eq!(x.to_vec().unwrap(), [if on_gpus() { 43 } else { 42 }]);
    let error = Source::file(folder.path().join("missing.cu")).unwrap_err();
    assert!(error.code() == ErrorCode::Io && error.message().contains("missing.cu"), "{error}");
    world.finalize().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    both(2, |world, _| {
        let module = world.load(Source::text(ARGUMENTS).name("arguments.cu")).unwrap();
        let append = module.kernel("append").unwrap();
        let (list, wide) = (world.alloc::<u32>(9).unwrap(), world.alloc::<u64>(9).unwrap());
        let one = Launch::new(1, 1);
        // SAFETY: every one of these is refused, so nothing runs.
        let refused = unsafe {
            [
                append.launch(one, (&list,)),
                append.launch(one, (&list, 1u32, 2u32)),
                append.launch(one, (&list, 1u64)),
                append.launch(one, (&list, 1f32)),
                append.launch(one, (&wide, 1u32)),
                append.launch(one, (1u64, 1u32)),
                append.launch(Launch::new(1 << 20, 1), (&list, 1u32)),
                append.launch(Launch::new(0, 1), (&list, 1u32)),
            ]
        };
        for (i, result) in refused.into_iter().enumerate() {
            let error = result.expect_err("refused");
            assert!([ErrorCode::Launch, ErrorCode::InvalidArgument].contains(&error.code()), "{i}: {error}");
        }
        let most = append.max_blocks(1, 0).unwrap();
        assert!(most >= 1);
        // SAFETY: refused as well.
        let error = unsafe { append.launch(Launch::new(most as u32 + 1, 1), (&list, 1u32)) }.unwrap_err();
        assert!(error.message().contains(&most.to_string()), "{error}");
        let error = module.kernel("prepend").map(drop).unwrap_err();
        assert!(error.code() == ErrorCode::Launch && error.message().contains("append"), "{error}");

        world.synchronize().unwrap();
        assert_eq!(list.to_vec().unwrap(), [0; 9]);
        // SAFETY: this PE's own list, and nobody else's.
        unsafe { append.launch(one, (&*list, 7u32)) }.unwrap();
        world.synchronize().unwrap();
        assert_eq!(list.to_vec().unwrap()[..2], [1, 7]);
    });
}

#[test]
fn compiler_errors_come_with_the_sources_own_lines() {
    let world = World::init().unwrap();
    let text =
        "#include <rushmem/rushmem.cuh>\n__global__ void bad(int *x) {\n  x[0] = undeclared_name;\n}\n";
    let error = world.load(Source::text(text).name("broken.cu")).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Compile);
    // As GCC and Clang say it, or as NVRTC does.
    let line = ["broken.cu:3", "broken.cu(3)"].iter().any(|place| error.message().contains(place));
    assert!(line && error.message().contains("undeclared_name"), "{error}");
    world.finalize().unwrap();
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, PartialEq, Debug)]
#[repr(C)]
struct Particle {
    x: [f32; 3],
    id: u32,
}

#[test]
fn kernels_and_the_host_use_one_memory() {
    at_all_counts(|world, _| {
        // The kernel puts each particle to the right-hand PE and signals; the host of that PE waits.
        let module = world
            .load(
                r#"
                #include <rushmem/rushmem.cuh>
                struct particle { float x[3]; unsigned id; };
                extern "C" __global__ void send(particle *inbox, const particle *outbox, uint64_t *sig, int n, int pe) {
                  rushmem::put_signal<rushmem::block>(inbox, outbox, n, sig, 1, rushmem::signal::set, pe);
                }"#,
            )
            .unwrap();
        const N: usize = 100;
        let particles = |pe: Pe| -> Vec<Particle> {
            (0..N as u32).map(|i| Particle { x: [i as f32; 3], id: pe.number() << 16 | i }).collect()
        };
        let (inbox, outbox) = (world.alloc::<Particle>(N).unwrap(), world.alloc::<Particle>(N).unwrap());
        let signal = world.signal().unwrap();
        outbox.write(&particles(world.my_pe())).unwrap();
        let send = module.kernel("send").unwrap();
        let args = (&inbox, &outbox, &signal, N as i32, world.right().number() as i32);
        // SAFETY: each inbox has one writer, and is read after its signal.
        unsafe { send.launch(Launch::new(1, 64), args) }.unwrap();
        signal.wait_until(Cmp::Eq, 1).unwrap();
        assert_eq!(inbox.to_vec().unwrap(), particles(world.left()));
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_kernels_failure_is_told_by_synchronize() {
    // In a process of its own: a GPU can be used no more after that.
    testing::pes(1).supervise(
        |_| {
            let world = World::init().unwrap();
            let module = world
                .load("#include <rushmem/rushmem.cuh>\nextern \"C\" __global__ void stray(int *x) { rushmem::p(x, 1, 99); }")
                .unwrap();
            let x = world.alloc::<i32>(1).unwrap();
            let stray = module.kernel("stray").unwrap();
            // SAFETY: the kernel is stopped before it reaches outside.
            unsafe { stray.launch(Launch::new(1, 1), (&x,)) }.unwrap();
            let error = world.synchronize().unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadPe, "{error}");
            assert!(error.message().contains("`stray`") && error.message().contains("PE 0"), "{error}");
            if world.device() == Device::Cpu {
                world.synchronize().unwrap();
                assert_eq!(x.to_vec().unwrap(), [0]);
                world.finalize().unwrap();
                return;
            }
            // The process has lost the GPU, and every call that needs it says so.
            // SAFETY: the kernel is refused, as the GPU is lost.
            let launched = unsafe { stray.launch(Launch::new(1, 1), (&x,)) };
            for (what, later) in [
                ("launch", launched),
                ("synchronize", world.synchronize()),
                ("load", world.load(ARGUMENTS).map(drop)),
                ("write", x.write(&[1])),
                ("read", x.to_vec().map(drop)),
            ] {
                let error = later.err().unwrap_or_else(|| panic!("{what} works after the context is lost"));
                let text = error.to_string();
                assert!(text.contains("no more") || text.contains("lost"), "{what}: {text}");
            }
            println!("FINALIZED {:?}", world.finalize());
        },
        |job| {
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
        },
    );
}

const GRIDS: &str = r#"
#include <rushmem/rushmem.cuh>
extern "C" __global__ void add(unsigned long long *sum) {
  const unsigned long long block = blockIdx.x + (unsigned long long)gridDim.x * blockIdx.y;
  atomicAdd(sum, block * blockDim.x + threadIdx.x);
}
/* In each round every block reads what the one before it has written, and nobody is a round ahead. */
extern "C" __global__ void meet(unsigned *last, unsigned rounds, unsigned *wrong) {
  const unsigned blocks = gridDim.x * gridDim.y, block = blockIdx.x + gridDim.x * blockIdx.y;
  for (unsigned round = 1; round <= rounds; ++round) {
    if (threadIdx.x == blockDim.x - 1) last[block] = round;
    rushmem::sync_grid();
    if (threadIdx.x == 0 && last[(block + 1) % blocks] != round) atomicAdd(wrong, 1u);
    rushmem::sync_grid();
  }
}
extern "C" __global__ void only_some(unsigned some) {
  if (blockIdx.x < some) rushmem::sync_grid();
}
"#;

#[test]
fn a_grid_in_turns_may_have_any_size() {
    both(2, |world, _| {
        let module = world.load(Source::text(GRIDS).name("grids.cu")).unwrap();
        let add = module.kernel("add").unwrap();
        let sum = world.alloc::<u64>(1).unwrap();
        for (x, y, threads) in [(1, 1, 1), (100_000, 1, 4), (333, 77, 33)] {
            sum.write(&[0]).unwrap();
            let shape = Launch::new((x, y), threads);
            if u64::from(x * y) > add.max_blocks(threads, 0).unwrap() {
                // SAFETY: refused.
                let refused = unsafe { add.launch(shape, (&sum,)) }.unwrap_err();
                assert_eq!(refused.code(), ErrorCode::Launch, "{refused}");
            }
            // SAFETY: nobody else touches the sum before synchronize.
            unsafe { add.launch(shape.in_turns(), (&sum,)) }.unwrap();
            world.synchronize().unwrap();
            let n = u64::from(x) * u64::from(y) * u64::from(threads);
            assert_eq!(sum.to_vec().unwrap(), [n * (n - 1) / 2], "{x} x {y} blocks of {threads}");
        }
    });
}

#[test]
fn blocks_of_a_launch_meet_and_those_of_another_do_not_disturb_them() {
    both(2, |world, _| {
        let module = world.load(Source::text(GRIDS).name("grids.cu")).unwrap();
        let meet = module.kernel("meet").unwrap();
        let wrong = world.alloc::<u32>(1).unwrap();
        let streams = [world.stream().unwrap(), world.stream().unwrap()];
        for (x, y, threads) in [(1, 1, 1), (2, 1, 1), (3, 5, 33), (8, 4, 64)] {
            let each = [(); 2].map(|()| world.alloc::<u32>((x * y) as usize).unwrap());
            for (stream, last) in streams.iter().zip(&each) {
                let shape = Launch::new((x, y), threads);
                // SAFETY: each launch has an array of its own, and all add to one count.
                unsafe { meet.launch_on(shape, (last, 50_u32, &wrong), stream) }.unwrap();
            }
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            assert_eq!(wrong.to_vec().unwrap(), [0], "{x} x {y} blocks of {threads}");
        }
    });
}

/// Each of them takes a GPU's context with it, so PEs do one each.
#[test]
fn blocks_that_cannot_meet_are_told() {
    let mistakes = [
        ("meet", Launch::new(3, 2).in_turns(), ErrorCode::Launch, "in a launch whose blocks take turns"),
        (
            "only_some",
            Launch::new(3, 2),
            ErrorCode::Timeout,
            "for all 3 blocks of its launch to come to sync_grid(); 2 have",
        ),
    ];
    // A GPU's driver gives launches in turns a word, too, and three blocks meet by it.
    for (name, shape, code, wanted) in mistakes.into_iter().skip(usize::from(on_gpus())) {
        testing::pes(1).env("RUSHMEM_WAIT_TIMEOUT", "1").supervise(
            move |_| {
                let world = World::init().unwrap();
                let module = world.load(Source::text(GRIDS).name("grids.cu")).unwrap();
                let kernel = module.kernel(name).unwrap();
                let memory = world.alloc::<u32>(4).unwrap();
                let part = memory.slice(3..).unwrap();
                // SAFETY: three blocks' words and a count.
                let launched = unsafe {
                    match name {
                        "meet" => kernel.launch(shape, (&memory, 1_u32, &part)),
                        _ => kernel.launch(shape, (2_u32,)),
                    }
                };
                let error = launched.and_then(|()| world.synchronize()).unwrap_err();
                assert_eq!(error.code(), code, "{error}");
                assert!(error.to_string().contains(wanted), "{error}");
                println!("FINALIZED {:?}", world.finalize());
            },
            |job| {
                let outcome = job.outcome(Pe::new(0));
                assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
            },
        );
    }
}

/// PEs with a compiler that takes so many seconds for a kernel, and a cache that has nothing yet.
fn slow_compiler(n: u32, folder: &std::path::Path, seconds: u32) -> testing::Pes {
    use std::os::unix::fs::PermissionsExt;

    let (cxx, cache) = (folder.join("slow-c++"), folder.join("cache"));
    let real = std::env::var("RUSHMEM_CXX").unwrap_or_else(|_| "c++".into());
    let script = format!("#!/bin/sh\ncase \"$*\" in *-shared*) sleep {seconds};; esac\nexec {real} \"$@\"\n");
    std::fs::write(&cxx, script).unwrap();
    std::fs::set_permissions(&cxx, PermissionsExt::from_mode(0o755)).unwrap();
    let pes = testing::pes(n).env("RUSHMEM_CXX", cxx.to_str().unwrap());
    pes.env("RUSHMEM_CACHE_DIR", cache.to_str().unwrap())
}

/// Nothing polls while a compiler works: its caller's PE says what it is in, again and again.
#[test]
fn a_compiler_that_takes_long_is_reported() {
    let test = "a_compiler_that_takes_long_is_reported";
    if on_gpus() {
        return skip(test, "what compiles for GPUs is a library");
    }
    let folder = tempfile::tempdir().unwrap();
    slow_compiler(1, folder.path(), 1).env("RUSHMEM_STALL_REPORT", "0.3").supervise(
        |_| {
            let world = World::init().unwrap();
            let source = r#"extern "C" __global__ void nothing() {}"#;
            world.load(Source::text(source).name("slow.cu")).unwrap();
            world.finalize().unwrap();
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
                let said = outcome.stderr.matches("for slow.cu to be compiled").count();
                assert!(said >= 2 && outcome.stderr.contains(&outcome.pe.to_string()), "{}", outcome.stderr);
            }
        },
    );
}

/// A PE whose kernel is being compiled hears of a death. (What compiles for GPUs is a library, to which the
/// kernels of all collectives are work for a minute.)
#[test]
fn a_death_is_heard_while_a_compiler_works() {
    if !processes("a_death_is_heard_while_a_compiler_works") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    slow_compiler(2, folder.path(), 40).supervise(
        |pe| {
            let world = World::init().unwrap();
            world.barrier_all().unwrap();
            println!("READY");
            if pe.number() == 1 {
                std::thread::sleep(Duration::from_secs(60));
            }
            let source = concat!(include_str!("kernels/check.h"), include_str!("kernels/collectives.cu"));
            let error = world.load(Source::text(source).name("slow.cu")).err().unwrap();
            println!("FAILED {:?}: {error}", error.code());
        },
        |job| {
            let limit = Duration::from_secs(30);
            (0..2).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), "READY", limit)));
            std::thread::sleep(Duration::from_secs(2));
            let killed = job.kill(Pe::new(1));
            let said = job.wait_for_line(Pe::new(0), "FAILED", limit);
            assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
            for part in ["FAILED PeerDead", "PE 1", "while slow.cu was compiled"] {
                assert!(said.contains(part), "{part:?} is missing in {said}");
            }
            let outcome = job.outcome(Pe::new(0));
            assert_eq!(outcome.exit, Exit::Done, "{}{}", outcome.stdout, outcome.stderr);
        },
    );
}
