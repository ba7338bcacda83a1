//! Kernels of real worlds, PEs as threads: operations between them, and every way to go wrong.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use super::*;
use crate::capi::kernel::*;
use crate::error::code;
use crate::fake::worlds_with;
use crate::world::World;
use rushmem_abi::c::*;

const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>
#include <stdexcept>

extern "C" __global__ void ring(uint64_t *token, uint64_t *arrived, uint64_t laps) {
  int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  for (uint64_t lap = 1; lap <= laps; ++lap) {
    if (threadIdx.x == 0 && (rushmem::my_pe() != 0 || lap > 1))
      rushmem::signal_wait_until(arrived, rushmem::cmp::ge, rushmem::my_pe() == 0 ? lap - 1 : lap);
    __syncthreads();
    if (threadIdx.x == 0) token[0] += 1;
    __syncthreads();
    rushmem::put_signal<rushmem::block>(token, token, 1, arrived, lap, rushmem::signal::set, right);
  }
  if (rushmem::my_pe() == 0 && threadIdx.x == 0) rushmem::signal_wait_until(arrived, rushmem::cmp::ge, laps);
}
extern "C" __global__ void wait_for(uint64_t *word, uint64_t value) {
  if (threadIdx.x == 1) rushmem::wait_until(word, rushmem::cmp::eq, value);
  __syncthreads();
}
extern "C" __global__ void syncs(int rounds) { for (int i = 0; i < rounds; ++i) rushmem::sync_all<rushmem::block>(); }
extern "C" __global__ void set(uint32_t *word, uint32_t value) { *word = value; }
extern "C" __global__ void bad_pe(uint64_t *word) { if (threadIdx.x == 2) rushmem::p(word, uint64_t(1), rushmem::n_pes()); }
extern "C" __global__ void throws() { throw std::runtime_error("out of cheese"); }
extern "C" __global__ void mixed(float *x, double d, unsigned char b, const int *i, void *any) {}
template <class T> __global__ void scale(T *x, T by) { x[threadIdx.x] *= by; }
namespace a { __global__ void twin() {} }
namespace b { __global__ void twin() {} }
"#;

/// One cache for this test process, gone with it as far as possible.
fn cache() -> String {
    static DIR: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let dir = DIR.get_or_init(|| tempfile::tempdir().unwrap());
    dir.path().to_str().unwrap().to_owned()
}

pub(super) fn run<T: Send>(n: u32, env: &[(&str, &str)], f: impl Fn(&World) -> T + Sync) -> Vec<T> {
    let (cache, cxx) = (cache(), std::env::var("RUSHMEM_CXX").unwrap_or_default());
    let all = [("RUSHMEM_CACHE_DIR", cache.as_str()), ("RUSHMEM_CXX", cxx.as_str())];
    let env: Vec<_> = env.iter().copied().chain(all).collect();
    worlds_with(n, &env, f)
}

pub(super) fn shape(grid: u32, block: u32) -> rushmem_launch_t {
    rushmem_launch_t {
        size: size_of::<rushmem_launch_t>() as u32,
        flags: 0,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared_bytes: 0,
        stream: std::ptr::null_mut(),
        cluster: [0; 3],
        reserved: 0,
    }
}

fn load(world: &World) -> Arc<LoadedModule> {
    world.kernels().load("test.cu", SOURCE, vec![]).unwrap().get().unwrap()
}

fn launch(world: &World, kernel: &str, threads: u32, args: &[*const c_void]) -> Result<()> {
    let kernel = load(world).kernel(kernel)?.get()?;
    // SAFETY: the tests pass what their kernels take.
    unsafe { kernel.launch(&shape(1, threads), args, None) }
}

pub(super) fn arg<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

pub(super) fn word(world: &World) -> *mut u64 {
    world.alloc(8, 8).unwrap().unwrap() as *mut u64
}

#[test]
fn a_ring_of_kernels() {
    for n in [1u32, 2, 5] {
        run(n, &[], |w| {
            let (token, arrived, laps) = (word(w), word(w), 20u64);
            launch(w, "ring", 33, &[arg(&token), arg(&arrived), arg(&laps)]).unwrap();
            w.kernels().synchronize().unwrap();
            // SAFETY: this PE's word; the last write to it has been waited for.
            let hops = unsafe { token.read_volatile() };
            let last =
                u64::from(n) * laps - if w.my_pe() == 0 { 0 } else { (n as i32 - w.my_pe() - 1) as u64 };
            assert_eq!(hops, last, "PE {} of {n}", w.my_pe());
            w.finalize().unwrap();
        });
    }
}

#[test]
fn device_syncs_of_all_pes() {
    run(4, &[], |w| {
        let rounds = 200i32;
        launch(w, "syncs", 70, &[arg(&rounds)]).unwrap();
        launch(w, "syncs", 1, &[arg(&rounds)]).unwrap();
        w.kernels().synchronize().unwrap();
        w.finalize().unwrap();
    });
}

#[test]
fn launches_are_asynchronous_in_order_and_copy_their_arguments() {
    run(1, &[], |w| {
        let (gate, target) = (word(w), word(w));
        launch(w, "wait_for", 2, &[arg(&gate), arg(&7u64)]).unwrap();
        for i in 0..50u32 {
            let value = Box::new(i);
            launch(w, "set", 1, &[arg(&target), arg(&*value)]).unwrap();
        }
        // SAFETY: words of this PE's heap.
        unsafe {
            assert_eq!(target.cast::<u32>().read_volatile(), 0);
            let busy = w.finalize().unwrap_err();
            assert_eq!(busy.code, code::BUSY);
            assert!(busy.message.contains("`wait_for` and 50 more"), "{busy}");
            gate.write_volatile(7);
            w.kernels().synchronize().unwrap();
            assert_eq!(target.cast::<u32>().read_volatile(), 49);
        }
        w.finalize().unwrap();
    });
}

#[test]
fn what_a_launch_refuses() {
    run(1, &[], |w| {
        let module = load(w);
        let kernel = module.kernel("mixed").unwrap().get().unwrap();
        let (x, d, b) = (std::ptr::null::<f32>(), 1.0f64, 2u8);
        let values = [arg(&x), arg(&d), arg(&b), arg(&x), arg(&x)];
        let params = kernel.params().to_vec();
        let expect = |result: Result<()>, expected: &str| {
            let e = result.unwrap_err();
            assert_eq!(e.code, code::LAUNCH, "{e}");
            assert!(e.message.contains(expected), "{e}");
        };
        // SAFETY: values of the right types, or refused before they are used.
        unsafe {
            kernel.launch(&shape(1, 1), &values, Some(&params)).unwrap();
            kernel.launch(&shape(1, 1), &values, None).unwrap();
            expect(kernel.launch(&shape(1, 1), &values[1..], None), "`mixed` takes 5 arguments, got 4");
            let mut types = params.clone();
            types[1].size = 4;
            expect(
                kernel.launch(&shape(1, 1), &values, Some(&types)),
                "argument 1 of `mixed`: the kernel takes double (8 bytes), got float (4 bytes)",
            );
            let huge = rushmem_launch_t { grid: [1 << 20, 1, 1], ..shape(1, 64) };
            let most = kernel.max_blocks([64, 1, 1], 0).unwrap();
            let text = format!(
                "1048576 blocks of 64 threads cannot all be resident: the largest grid is {most} blocks"
            );
            expect(kernel.launch(&huge, &values, None), &text);
            let shared = rushmem_launch_t { shared_bytes: u64::MAX, ..shape(1, 1) };
            expect(kernel.launch(&shared, &values, None), "dynamic shared memory");
            expect(kernel.launch(&shape(1, 0), &values, None), "no threads");
        }
        for (name, expected) in [
            (
                "nothing",
                "test.cu has no kernel `nothing`, or several that end in it: it has `ring`, `wait_for`",
            ),
            ("twin", "`a::twin`, `b::twin`"),
            ("scale", "is a template"),
        ] {
            let e = module.kernel(name).err().unwrap();
            assert_eq!(e.code, code::LAUNCH);
            assert!(e.message.contains(expected), "{e}");
        }
        w.kernels().synchronize().unwrap();
        let e = w.kernels().load("bad.cu", "\n__global__ void k() { oops; }", vec![]).err().unwrap();
        assert_eq!(e.code, code::COMPILE);
        assert!(e.message.contains("bad.cu:2:23: error: "), "{e}");
        let e = w.kernels().load("bad.cu", SOURCE, vec!["--no-such-option".into()]).err().unwrap();
        assert_eq!(e.code, code::COMPILE);
        w.finalize().unwrap();
    });
}

#[test]
fn instances_of_templates_and_defines() {
    run(1, &[], |w| {
        let options = vec!["--kernel=scale<float>".into(), "-DUNUSED=1".into()];
        let module = w.kernels().load("test.cu", SOURCE, options).unwrap().get().unwrap();
        let kernel = module.kernel("scale<float>").unwrap().get().unwrap();
        let (mut x, by) = ([1.0f32, 2.0, 3.0], 0.5f32);
        let pointer = x.as_mut_ptr();
        // SAFETY: three threads, three floats.
        unsafe { kernel.launch(&shape(1, 3), &[arg(&pointer), arg(&by)], None) }.unwrap();
        w.kernels().synchronize().unwrap();
        assert_eq!(x, [0.5, 1.0, 1.5]);
        w.finalize().unwrap();
    });
}

#[test]
fn failures_are_told_at_the_next_synchronize() {
    run(2, &[("RUSHMEM_WAIT_TIMEOUT", "0.2"), ("RUSHMEM_STALL_REPORT", "0.1")], |w| {
        let target = word(w);
        let fails = |code: i32, parts: &[&str]| {
            let e = w.kernels().synchronize().unwrap_err();
            assert_eq!(e.code, code, "{e}");
            let who = format!("PE {}", w.my_pe());
            for part in parts.iter().chain([&who.as_str()]) {
                assert!(e.message.contains(part), "{part:?} in {e}");
            }
            w.kernels().synchronize().unwrap();
        };
        launch(w, "bad_pe", 4, &[arg(&target)]).unwrap();
        fails(code::BAD_PE, &["kernel `bad_pe` (test.cu)", "block (0,0,0), thread (2,0,0)"]);
        launch(w, "throws", 1, &[]).unwrap();
        // Not run: what it works on may never have been made.
        launch(w, "set", 1, &[arg(&target), arg(&1u32)]).unwrap();
        fails(code::LAUNCH, &["`throws`", "out of cheese", "1 launches behind it did not run"]);
        // SAFETY: a word of this PE's heap.
        assert_eq!(unsafe { target.read_volatile() }, 0);
        launch(w, "wait_for", 2, &[arg(&target), arg(&42u64)]).unwrap();
        fails(code::TIMEOUT, &["`wait_for`", "thread (1,0,0)", "RUSHMEM_WAIT_TIMEOUT"]);
        launch(w, "set", 1, &[arg(&target), arg(&9u32)]).unwrap();
        w.kernels().synchronize().unwrap();
        // SAFETY: a word of this PE's heap.
        assert_eq!(unsafe { target.read_volatile() }, 9);
        w.finalize().unwrap();
    });
}

#[test]
fn a_broken_job_ends_kernels_and_leaving_with_one_in_flight_does_not_hang() {
    run(2, &[], |w| {
        let gate = word(w);
        launch(w, "wait_for", 64, &[arg(&gate), arg(&1u64)]).unwrap();
        w.sync_all(crate::node::control::Call::BarrierAll).unwrap();
        if w.my_pe() == 1 {
            w.abort("on purpose");
            let start = Instant::now();
            // Dropping the world ends the kernel.
            return start;
        }
        let start = Instant::now();
        let e = w.kernels().synchronize().unwrap_err();
        assert_eq!(e.code, code::PEER_DEAD);
        assert!(e.message.contains("`wait_for`") && e.message.contains("PE 1"), "{e}");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(w.kernels().load("test.cu", SOURCE, vec![]).err().unwrap().code, code::PEER_DEAD);
        start
    });
}

#[test]
fn handles_go_stale() {
    let kept = run(1, &[], |w| {
        let gate = word(w);
        let module = w.kernels().load("test.cu", SOURCE, vec![]).unwrap();
        let kernel = module.get().unwrap().kernel("wait_for").unwrap();
        assert!(std::ptr::eq(kernel, module.get().unwrap().kernel("wait_for").unwrap()));
        // SAFETY: handles, and values of the kernel's types.
        unsafe {
            let value = 1u64;
            let args = [arg(&gate), arg(&value)];
            assert_eq!(
                rushmem_launch(kernel.as_raw(), &shape(1, 2), args.as_ptr(), std::ptr::null(), 2),
                RUSHMEM_OK
            );
            assert_eq!(rushmem_module_unload(module.as_raw()), RUSHMEM_ERR_BUSY);
            gate.write_volatile(1);
            w.kernels().synchronize().unwrap();
            assert_eq!(rushmem_module_unload(module.as_raw()), RUSHMEM_OK);
            assert_eq!(rushmem_module_unload(module.as_raw()), RUSHMEM_ERR_BAD_HANDLE);
            let code = rushmem_launch(kernel.as_raw(), &shape(1, 2), args.as_ptr(), std::ptr::null(), 2);
            assert_eq!(code, RUSHMEM_ERR_BAD_HANDLE);
            // One kind of handle for another.
            let other = w.kernels().load("test.cu", SOURCE, vec![]).unwrap();
            assert_eq!(rushmem_module_unload(kernel.as_raw()), RUSHMEM_ERR_BAD_HANDLE);
            assert_eq!(rushmem_module_unload(std::ptr::null_mut()), RUSHMEM_ERR_BAD_HANDLE);
            let mut n = 0;
            let code = rushmem_kernel_params(other.as_raw(), std::ptr::null_mut(), 0, &mut n);
            assert_eq!(code, RUSHMEM_ERR_BAD_HANDLE);
            w.finalize().unwrap();
            (
                other.as_raw::<rushmem_module_t>() as usize,
                other.get().unwrap().kernel("set").unwrap().as_raw::<u8>() as usize,
            )
        }
    });
    // The world has ended, and its modules with it.
    let (module, kernel) = kept[0];
    // SAFETY: stale handles.
    unsafe {
        let mut name = std::ptr::null();
        assert_eq!(rushmem_module_kernel_names(module as *mut _, 0, &mut name), RUSHMEM_ERR_BAD_HANDLE);
        let mut most = 0;
        let code = rushmem_kernel_max_blocks(kernel as *mut _, [1, 1, 1].as_ptr(), 0, &mut most);
        assert_eq!(code, RUSHMEM_ERR_BAD_HANDLE);
    }
}

#[test]
fn the_c_functions_check_what_they_are_given() {
    run(1, &[], |w| {
        let module = w.kernels().load("test.cu", SOURCE, vec![]).unwrap().as_raw::<rushmem_module_t>();
        // SAFETY: valid handles, nulls where that is the point.
        unsafe {
            let mut name = std::ptr::null();
            assert_eq!(rushmem_module_kernel_names(module, 0, &mut name), RUSHMEM_OK);
            assert_eq!(std::ffi::CStr::from_ptr(name).to_str(), Ok("ring"));
            assert_eq!(rushmem_module_kernel_names(module, 99, &mut name), RUSHMEM_ERR_INVALID_ARGUMENT);
            assert_eq!(
                rushmem_module_kernel_names(module, 0, std::ptr::null_mut()),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
            let mut kernel = std::ptr::null_mut();
            assert_eq!(
                rushmem_module_kernel(module, std::ptr::null(), &mut kernel),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
            assert_eq!(rushmem_module_kernel(module, c"syncs".as_ptr(), &mut kernel), RUSHMEM_OK);
            let (mut n, mut types) =
                (0, [rushmem_arg_type_t { kind: 9, size: 9, pointee_kind: 9, pointee_size: 9 }; 2]);
            assert_eq!(rushmem_kernel_params(kernel, types.as_mut_ptr(), 2, &mut n), RUSHMEM_OK);
            assert_eq!((n, types[0].kind, types[0].size, types[1].kind), (1, RUSHMEM_ARG_INT, 4, 9));
            let mut most = 0;
            assert_eq!(rushmem_kernel_max_blocks(kernel, [1, 1, 1].as_ptr(), 0, &mut most), RUSHMEM_OK);
            assert!(most > 0);
            assert_eq!(rushmem_kernel_max_blocks(kernel, [0, 1, 1].as_ptr(), 0, &mut most), RUSHMEM_OK);
            assert_eq!(most, 0);
            assert_eq!(
                rushmem_kernel_max_blocks(kernel, std::ptr::null(), 0, &mut most),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
            let (rounds, null) = (0i32, std::ptr::null());
            let args = [arg(&rounds)];
            let go = |config: &rushmem_launch_t| rushmem_launch(kernel, config, args.as_ptr(), null, 1);
            assert_eq!(go(&shape(1, 1)), RUSHMEM_OK);
            assert_eq!(go(&rushmem_launch_t { size: 4, ..shape(1, 1) }), RUSHMEM_ERR_INVALID_ARGUMENT);
            assert_eq!(go(&rushmem_launch_t { flags: 4, ..shape(1, 1) }), RUSHMEM_ERR_INVALID_ARGUMENT);
            let stream = 8 as *mut c_void;
            assert_eq!(go(&rushmem_launch_t { stream, ..shape(1, 1) }), RUSHMEM_ERR_BAD_HANDLE);
            assert_eq!(
                rushmem_launch(kernel, null.cast(), args.as_ptr(), null, 1),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
            assert_eq!(
                rushmem_launch(kernel, &shape(1, 1), null.cast(), null, 1),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
            assert_eq!(
                rushmem_launch(kernel, &shape(1, 1), [null.cast()].as_ptr(), null, 1),
                RUSHMEM_ERR_INVALID_ARGUMENT
            );
        }
        w.kernels().synchronize().unwrap();
        w.finalize().unwrap();
    });
}
