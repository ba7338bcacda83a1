//! The runtime's own kernels (`device/src/service.cu`) against what the host computes, built by nvcc and by
//! NVRTC; and the atomic additions that the CPU device has no types for.

use std::path::PathBuf;

use super::kernels::{arg, load, shape};
use super::pes::Pes;
use super::*;
use crate::gpu::embedded;
use crate::gpu::launch::Shape;
use crate::gpu::module::Module;
use crate::gpu::pinned::PinnedBox;

/// The module as the runtime carries it, and as NVRTC makes it.
fn modules(test: &str, t: &Turn) -> Vec<Arc<Module>> {
    let carried = (!embedded::SERVICE.is_empty())
        .then(|| Module::load(&t.cuda, None, "service.fatbin", embedded::SERVICE, &[]).unwrap());
    if carried.is_none() {
        eprintln!("SKIP {test}, by nvcc: the runtime was built without it");
    }
    carried.into_iter().chain(load(test, t, embedded::SERVICE_SOURCE, &[])).collect()
}

/// Launches `rushmem_service_{name}` and waits.
fn run(t: &Turn, module: &Arc<Module>, name: &str, shape: &Shape, values: &[u64]) {
    let kernel = module.kernel(&format!("rushmem_service_{name}")).expect(name);
    let args: Vec<_> = values.iter().map(arg).collect();
    // SAFETY: as many words as parameters, each at least as long; the addresses are mapped; waited for.
    unsafe { kernel.launch(shape, &args, &t.stream) }.unwrap();
    t.finish();
}

/// A pinned word, and its address on the GPU.
fn word(t: &Turn) -> (PinnedBox<std::sync::atomic::AtomicU64>, u64) {
    let word = PinnedBox::new(&t.cuda, std::sync::atomic::AtomicU64::new(0)).unwrap();
    let at = word.device_address() as u64;
    (word, at)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[test]
fn service_words() {
    use std::sync::atomic::Ordering::Acquire;
    let name = "service_words";
    let Some(mut t) = turn(name) else { return };
    let memory = t.memory(64);
    let at = memory.base() + 16;
    let (result, result_at) = word(&t);
    let (done, done_at) = word(&t);
    for module in modules(name, &t) {
        for (op, bytes) in (0..12u64).flat_map(|op| [(op, 4usize), (op, 8)]).cycle().take(72) {
            let mask = u64::MAX >> (64 - 8 * bytes);
            let (old, value, ticket) = (t.random.next(), t.random.next(), t.random.next() | 1);
            let compare = if t.random.next() % 2 == 0 { old } else { value };
            t.write(memory.base(), &[0xa5; 64]);
            t.write(at, &old.to_le_bytes()[..bytes]);
            let (old, given) = (old & mask, value & mask);
            let new = match op {
                0 => old,
                1 | 2 => given,
                3 if old == compare & mask => given,
                3 => old,
                4 | 5 => old.wrapping_add(given) & mask,
                6 | 7 => old & given,
                8 | 9 => old | given,
                _ => old ^ given,
            };
            let values = [op, bytes as u64, at as u64, value, compare, result_at, ticket, done_at];
            run(&t, &module, "atomic", &shape(1, 1), &values);
            assert_eq!((result.load(Acquire), done.load(Acquire)), (old, ticket), "{op}, {bytes} bytes");
            let seen = t.read(memory.base(), 64);
            assert_eq!(number(&seen[16..16 + bytes]), new, "{op}, {bytes} bytes");
            assert!(seen[..16].iter().chain(&seen[16 + bytes..]).all(|b| *b == 0xa5), "{op}, {bytes} bytes");
        }
        for bytes in [1usize, 2, 4, 8] {
            let (value, ticket) = (t.random.next(), t.random.next() | 1);
            t.write(memory.base(), &[0xa5; 64]);
            run(&t, &module, "store", &shape(1, 1), &[at as u64, bytes as u64, value]);
            let seen = t.read(memory.base(), 64);
            assert_eq!(seen[16..16 + bytes], value.to_le_bytes()[..bytes]);
            assert!(seen[..16].iter().chain(&seen[16 + bytes..]).all(|b| *b == 0xa5), "{bytes} bytes");
            run(&t, &module, "load", &shape(1, 1), &[at as u64, bytes as u64, result_at, ticket, done_at]);
            assert_eq!(result.load(Acquire), number(&seen[16..16 + bytes]));
            assert_eq!(done.load(Acquire), ticket);
        }
        t.write(at, &5u64.to_le_bytes());
        run(&t, &module, "signal", &shape(1, 1), &[at as u64, 7, 1]);
        assert_eq!(number(&t.read(at, 8)), 12);
        run(&t, &module, "signal", &shape(1, 1), &[at as u64, 7, 0]);
        assert_eq!(number(&t.read(at, 8)), 7);
    }
}

#[test]
fn service_copies() {
    let name = "service_copies";
    let Some(mut t) = turn(name) else { return };
    let (memory, room) = (t.memory(1 << 20), 1usize << 19);
    let (from, to) = (memory.base(), memory.base() + room);
    for module in modules(name, &t) {
        for bytes in [0usize, 1, 15, 16, 31, 32, 33, 1000, 4096, 65_537] {
            let (a, b, source) = (t.random.below(16), t.random.below(16), t.random.bytes(room));
            t.write(from, &source);
            t.write(to, &vec![0; room]);
            let (sig, threads) = (to + room - 64, [1, 32, 100, 1024][t.random.below(4)]);
            let values = [(to + b) as u64, (from + a) as u64, bytes as u64, sig as u64, 9, 0];
            run(&t, &module, "put_signal", &shape(1, threads), &values);
            let mut expected = vec![0; room];
            expected[b..b + bytes].copy_from_slice(&source[a..a + bytes]);
            expected[room - 64] = 9;
            assert!(t.read(to, room) == expected, "{bytes} bytes, {a} to {b}, {threads} threads");
        }
        for round in 0..40 {
            let elem = [1usize, 2, 4, 8, 16, 3, 12, 24, 40, 64][round % 10];
            let (n, steps) = (t.random.below(300), [1 + t.random.below(4), 1 + t.random.below(4)]);
            // Aligned for the elements, and not more than some: 16 bytes are loaded at once where everything
            // allows it.
            let unit = 1 << elem.trailing_zeros().min(4);
            let offset = unit * t.random.below(4);
            let source = t.random.bytes(room);
            t.write(from, &source);
            t.write(to, &vec![0; room]);
            let (src, dst) = (from + offset, to + 2 * offset);
            let words = [dst as u64, src as u64, steps[0] as u64, steps[1] as u64, elem as u64, n as u64];
            run(&t, &module, "copy_strided", &shape(1 + round as u32 % 5, 128), &words);
            let mut expected = vec![0; room];
            for i in 0..n {
                let (d, s) = (2 * offset + i * steps[0] * elem, offset + i * steps[1] * elem);
                expected[d..d + elem].copy_from_slice(&source[s..s + elem]);
            }
            assert!(t.read(to, room) == expected, "{n} elements of {elem} bytes, {steps:?} apart, +{offset}");
        }
    }
}

#[test]
fn service_waits_and_syncs() {
    let name = "service_waits_and_syncs";
    let Some(t) = turn(name) else { return };
    let pes = Pes::new(&t, 1);
    let at = pes.free(0);
    for module in modules(name, &t) {
        module.upload(&pes.state(0), &t.stream).unwrap();
        // -1 is less than 1 with a sign, and more without; each comparison is satisfied.
        let minus = u64::MAX;
        for (bytes, signed, cmp, seen, value) in [
            (4, 1, 4, minus, 1u64),
            (8, 1, 4, minus, 1),
            (4, 0, 2, minus, 1),
            (8, 0, 2, minus, 1),
            (4, 0, 0, 7, 7),
            (8, 0, 1, 7, 8),
            (8, 1, 3, 7, 7),
            (4, 1, 5, 7, 7),
        ] {
            t.write(at, &u64::to_le_bytes(seen));
            run(&t, &module, "wait", &shape(1, 1), &[at as u64, bytes, signed, cmp, value]);
        }
        run(&t, &module, "sync", &shape(1, 32), &[]);
        run(&t, &module, "sync", &shape(1, 1024), &[]);
    }
}

/// Additions to 16-bit floats; needs CUDA's own headers.
pub(in crate::gpu) const HALVES: &str = r#"
#include <rushmem/rushmem.cuh>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void add(__half *a, __nv_bfloat16 *b, unsigned int *most) {
  rushmem::atomic_add(a, __float2half(1.0f), 0);
  __half seen = rushmem::atomic_fetch_add(a, __float2half(1.0f), 0);
  atomicMax(most, (unsigned int)__half2float(seen));
  if (threadIdx.x % 4 == 0) rushmem::atomic_add(b, __float2bfloat16(0.25f), 0);
}
"#;

#[test]
fn additions_of_16_bits() {
    let name = "additions_of_16_bits";
    let Some(t) = turn(name) else { return };
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let dirs = toolkits.into_iter().flatten().chain([PathBuf::from("/usr/local/cuda")]);
    let Some(include) = dirs.map(|dir| dir.join("include")).find(|dir| dir.join("cuda_fp16.h").is_file())
    else {
        eprintln!("SKIP {name}: no cuda_fp16.h");
        return;
    };
    let options = [format!("-I{}", include.display()), format!("-I{}", include.join("cccl").display())];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some(module) = load(name, &t, HALVES, &options) else { return };
    let pes = Pes::new(&t, 1);
    module.upload(&pes.state(0), &t.stream).unwrap();
    let at = pes.free(0);
    // Both words have neighbours on either side in their 4 bytes, which no addition may touch, whatever they
    // look like.
    for odd in [0usize, 2] {
        t.write(at, &[0xff; 16]);
        t.write(at + odd, &[0, 0]);
        t.write(at + 8 + odd, &[0, 0]);
        t.write(at + 16, &[0; 4]);
        let values = [(at + odd) as u64, (at + 8 + odd) as u64, (at + 16) as u64];
        let args: Vec<_> = values.iter().map(arg).collect();
        // SAFETY: arguments of the parameters' types, mapped; waited for.
        unsafe { module.kernel("add").unwrap().launch(&shape(4, 128), &args, &t.stream) }.unwrap();
        let seen = t.read(at, 20);
        let mut expected = [0xff; 16];
        // 512 threads: 1024 as half, 2^10, and 32 as bfloat16, 2^5. All sums on the way are exact.
        expected[odd..odd + 2].copy_from_slice(&(25u16 << 10).to_le_bytes());
        expected[8 + odd..10 + odd].copy_from_slice(&((127u16 + 5) << 7).to_le_bytes());
        assert_eq!(seen[..16], expected, "+{odd}");
        assert!((512..1024).contains(&number(&seen[16..20])));
    }
}
