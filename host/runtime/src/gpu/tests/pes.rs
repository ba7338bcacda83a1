//! The device library on a GPU, with the state that a world would give it: one PE, and two whose heaps are
//! two ranges of one GPU's memory, `stride` apart as in a world.

use std::sync::atomic::{AtomicU32, Ordering};

use super::kernels::{arg, load, shape};
use super::*;
use crate::gpu::module::Module;
use crate::gpu::pinned::PinnedBox;
use crate::testing::device::state;
use rushmem_abi::device::{RawState, StallRecord, RUSHMEM_NEAR_UNIT, RUSHMEM_STALL_RECORDS};

/// PEs on one GPU.
pub(super) struct Pes {
    pub(super) range: Arc<AddressRange>,
    pub(super) stride: usize,
    pub(super) n: usize,
    pub(super) broken: PinnedBox<AtomicU32>,
    pub(super) failure: PinnedBox<[AtomicU32; 4]>,
    stalls: PinnedBox<[StallRecord]>,
    _heaps: Vec<Mapping>,
}

/// Bytes at the front of each heap that are the library's.
const RESERVED: usize = 4096;

impl Pes {
    pub(super) fn new(t: &Turn, n: usize) -> Pes {
        let grain = Allocation::granularity(&t.cuda).unwrap();
        let stride = RUSHMEM_NEAR_UNIT as usize;
        let range = AddressRange::reserve(&t.cuda, n * stride, 0).unwrap();
        let heap = |pe: usize| {
            let memory = Arc::new(Allocation::create(&t.cuda, grain).unwrap());
            let heap = range.map(pe * stride, &memory, &[&t.cuda]).unwrap();
            // SAFETY: mapped; waited for below.
            unsafe { t.stream.fill(heap.base(), 0, heap.bytes()) }.unwrap();
            heap
        };
        let _heaps = (0..n).map(heap).collect();
        t.finish();
        Pes {
            stride,
            n,
            broken: PinnedBox::new(&t.cuda, AtomicU32::new(0)).unwrap(),
            failure: PinnedBox::new(&t.cuda, Default::default()).unwrap(),
            stalls: PinnedBox::<[StallRecord]>::filled(
                &t.cuda,
                RUSHMEM_STALL_RECORDS,
                StallRecord::default(),
            )
            .unwrap(),
            range,
            _heaps,
        }
    }

    pub(super) fn base(&self, pe: usize) -> usize {
        self.range.base() + pe * self.stride
    }

    /// First address that tests may use.
    pub(super) fn free(&self, pe: usize) -> usize {
        self.base(pe) + RESERVED
    }

    pub(super) fn state(&self, pe: usize) -> RawState {
        let base = self.base(pe);
        RawState {
            broken: self.broken.device_address() as *const u32,
            stalls: self.stalls.device_address() as *mut _,
            failure: self.failure.device_address() as *mut u32,
            wait_limit_ns: 20_000_000_000,
            ..state(pe, self.n, base, self.stride)
        }
    }
}

pub(in crate::gpu) const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>
__global__ void who(int *out) {
  out[0] = rushmem::my_pe();
  out[1] = rushmem::n_pes();
  rushmem::p(out + 2, 41, rushmem::my_pe());
  rushmem::atomic_add(out + 2, 1, rushmem::my_pe());
  out[3] = rushmem::g(out + 2, rushmem::my_pe());
}
__global__ void ring(uint64_t *sig, float *in, const float *from, size_t n, uint64_t round) {
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  rushmem::put_signal<rushmem::block>(in, from, n, sig, round, rushmem::signal::set, right);
  if (threadIdx.x == 0) rushmem::signal_wait_until(sig, rushmem::cmp::ge, round);
  __syncthreads();
}
__global__ void count(uint64_t *shared, uint64_t *seen, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) rushmem::atomic_add(shared, (uint64_t)(rushmem::my_pe() + 1), i % rushmem::n_pes());
    rushmem::barrier_all<rushmem::block>();
    if (threadIdx.x == 0) seen[i] = rushmem::g(shared, i % rushmem::n_pes());
    rushmem::barrier_all<rushmem::block>();
  }
}
__global__ void lost(uint64_t *sig) { rushmem::signal_wait_until(sig, rushmem::cmp::eq, 1); }
__global__ void nowhere(int *at) { rushmem::p(at, 1, 99); }
"#;

/// The source loaded once for each PE, on a stream of its own.
pub(super) fn start(test: &str, t: &Turn, pes: &Pes) -> Option<Vec<(Arc<Module>, Stream)>> {
    let mut started = Vec::new();
    for pe in 0..pes.n {
        let module = load(test, t, SOURCE, &[])?;
        assert!(module.has_state());
        let stream = Stream::new(&t.cuda, Priority::Normal).unwrap();
        module.upload(&pes.state(pe), &stream).unwrap();
        started.push((module, stream));
    }
    Some(started)
}

#[test]
fn one_pe() {
    let Some(t) = turn("one_pe") else { return };
    let pes = Pes::new(&t, 1);
    let Some(started) = start("one_pe", &t, &pes) else { return };
    let (module, stream) = &started[0];
    let at = pes.free(0) as u64;
    // SAFETY: the argument's type is the parameter's; waited for.
    unsafe { module.kernel("who").unwrap().launch(&shape(1, 1), &[arg(&at)], stream) }.unwrap();
    finish(stream);
    let expected: Vec<u8> = [0, 1, 42, 42i32].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(t.read(pes.free(0), 16), expected);
    assert_eq!(pes.failure[0].load(Ordering::Acquire), 0);
}

#[test]
fn two_pes_put_and_signal() {
    let Some(mut t) = turn("two_pes_put_and_signal") else { return };
    let pes = Pes::new(&t, 2);
    let Some(started) = start("two_pes_put_and_signal", &t, &pes) else { return };
    for (round, len) in [1usize, 2, 3, 31, 1024, 12_345, 100_000].into_iter().enumerate() {
        let round = round as u64 + 1;
        let off = t.random.below(4) * 4;
        let data = [t.random.bytes(4 * len), t.random.bytes(4 * len)];
        for (pe, data) in data.iter().enumerate() {
            t.write(pes.free(pe) + (1 << 20) + off, data);
        }
        for (pe, (module, stream)) in started.iter().enumerate() {
            let (sig, to) = (pes.free(pe) as u64, pes.free(pe) as u64 + 64 + off as u64);
            let (from, n) = ((pes.free(pe) + (1 << 20) + off) as u64, len as u64);
            let args = [arg(&sig), arg(&to), arg(&from), arg(&n), arg(&round)];
            // SAFETY: the arguments' types are the parameters'; waited for below.
            unsafe { module.kernel("ring").unwrap().launch(&shape(1, 256), &args, stream) }.unwrap();
        }
        started.iter().for_each(|(_, stream)| finish(stream));
        for pe in 0..2 {
            assert!(t.read(pes.free(pe) + 64 + off, 4 * len) == data[1 - pe], "PE {pe}, {len} floats");
        }
    }
    assert_eq!(pes.failure[0].load(Ordering::Acquire), 0);
}

#[test]
fn pes_of_one_gpu_count_together() {
    let Some(t) = turn("pes_of_one_gpu_count_together") else { return };
    for n in [2usize, 5, 8] {
        let pes = Pes::new(&t, n);
        let Some(started) = start("pes_of_one_gpu_count_together", &t, &pes) else { return };
        let rounds = 100i32;
        for (pe, (module, stream)) in started.iter().enumerate() {
            let (shared, seen) = (pes.free(pe) as u64, pes.free(pe) as u64 + 64);
            let args = [arg(&shared), arg(&seen), arg(&rounds)];
            // SAFETY: the arguments' types are the parameters'; waited for below.
            unsafe { module.kernel("count").unwrap().launch(&shape(1, 64), &args, stream) }.unwrap();
        }
        started.iter().for_each(|(_, stream)| finish(stream));
        let all = (1..=n as u64).sum::<u64>();
        let expected: Vec<u8> = (0..100u64).flat_map(|i| ((i / n as u64 + 1) * all).to_le_bytes()).collect();
        for pe in 0..n {
            assert!(t.read(pes.free(pe) + 64, 800) == expected, "PE {pe} of {n}");
        }
    }
}
