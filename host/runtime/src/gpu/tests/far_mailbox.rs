//! The mailbox on a GPU: atomics that far PEs ask for, while the GPU is full of waiting threads, busy with
//! atomics of its own, or idle. The host does here what a world's engine does.

use std::time::Instant;

use super::kernels::{arg, load, shape};
use super::pes::Pes;
use super::*;
use crate::config::Config;
use crate::gpu::launch::Shape;
use crate::gpu::module::Module;
use crate::gpu::pinned::PinnedBox;
use crate::kernel::service::Service;
use crate::net::gpu::mailbox::{AtomicRequest, Mailbox, WordKind, SLOTS};
use crate::testing::atomics::updated;
use rushmem_abi::device::RawState;

/// What anything that needs no free SM may take. Most of it takes microseconds.
const SOON: Duration = Duration::from_secs(1);

pub(in crate::gpu) const SOURCE: &str = r#"
#include <rushmem/rushmem.cuh>
using namespace rushmem;
// All threads of the grid wait; `arrived` counts them.
extern "C" __global__ void full(uint64_t *arrived, uint64_t *sig, uint64_t until) {
  atomic_add(arrived, 1, 0);
  signal_wait_until(sig, cmp::ge, until);
}
// One thread of each block waits, the others for it.
extern "C" __global__ void leaders(uint64_t *arrived, uint64_t *sig, uint64_t until) {
  if (threadIdx.x == 0) {
    atomic_add(arrived, 1, 0);
    signal_wait_until(sig, cmp::ge, until);
  }
  __syncthreads();
}
// Adds like the requests do, then waits, so that those that are left are served.
extern "C" __global__ void racing(uint64_t *wide, uint32_t *narrow, float *real, uint64_t rounds, uint64_t *sig) {
  for (uint64_t i = 0; i < rounds; ++i) {
    atomic_fetch_add(wide, 1, 0);
    atomic_add(narrow, 3, 0);
    if (threadIdx.x == 0) atomic_add(real, 1.0f, 0);
  }
  signal_wait_until(sig, cmp::ge, 1);
}
// Signal number i says that all words are i: counts those that are not.
extern "C" __global__ void announced(const uint64_t *data, uint64_t words, uint64_t *sig, uint64_t rounds, uint64_t *ack,
                                     uint64_t *wrong) {
  for (uint64_t i = 1; i <= rounds; ++i) {
    if (threadIdx.x == 0) signal_wait_until(sig, cmp::ge, i);
    __syncthreads();
    for (uint64_t at = threadIdx.x; at < words; at += blockDim.x) {
      if (data[at] != i) atomic_add(wrong, 1, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      fence();
      atomic_add(ack, 1, 0);
    }
  }
}
"#;

/// One PE with a mailbox.
struct Scene<'t> {
    t: &'t Turn,
    pes: Pes,
    mailbox: Mailbox,
    service: Service,
    module: Arc<Module>,
    /// Of the kernels.
    stream: Stream,
    /// Results by number of the request.
    results: Vec<u64>,
}

impl<'t> Scene<'t> {
    /// `None` after saying why there is none.
    fn new(test: &str, t: &'t Turn) -> Option<Scene<'t>> {
        if !t.cuda.facts().stream_words {
            eprintln!("SKIP {test}: {} has no stream words", t.cuda);
            return None;
        }
        let module = load(test, t, SOURCE, &[])?;
        let (pes, mailbox) = (Pes::new(t, 1), Mailbox::new(&t.cuda).unwrap());
        let state = RawState { mailbox: mailbox.device_address() as *mut _, ..pes.state(0) };
        module.upload(&state, &t.stream).unwrap();
        let service = Service::load(&t.cuda, &Config::from_env().unwrap(), &state).unwrap();
        if !service.works() {
            eprintln!("SKIP {test}: no service kernels: built without nvcc, and no NVRTC");
            return None;
        }
        let stream = Stream::new(&t.cuda, Priority::Normal).unwrap();
        Some(Scene { t, pes, mailbox, service, module, stream, results: Vec::new() })
    }

    /// The address of one of the words that tests may use, 64 bytes apart.
    fn word(&self, i: usize) -> usize {
        self.pes.free(0) + 64 * i
    }

    fn launch(&self, name: &str, shape: &Shape, args: &[u64]) {
        let args: Vec<_> = args.iter().map(arg).collect();
        // SAFETY: every parameter is a word; the addresses are mapped; waited for by `end`.
        unsafe { self.module.kernel(name).unwrap().launch(shape, &args, &self.stream) }.unwrap();
    }

    fn post(&mut self, request: AtomicRequest) -> u64 {
        // SAFETY: words of the PE's heap, which outlives the mailbox's work.
        unsafe { self.mailbox.post(&request) }
    }

    /// One look at what is done.
    fn look(&mut self) {
        let results = &mut self.results;
        let tell = &mut |number, result| {
            assert_eq!(number, results.len() as u64, "in order, each once");
            results.push(result);
        };
        self.mailbox.completed(&self.service, tell).unwrap();
    }

    /// Rings, and waits until all that was posted is done; how long that took.
    fn drain(&mut self) -> Duration {
        let start = Instant::now();
        self.mailbox.ring(&self.service).unwrap();
        while self.mailbox.in_flight() > 0 {
            self.look();
            assert!(start.elapsed() < LIMIT, "{} requests are not done", self.mailbox.in_flight());
        }
        start.elapsed()
    }

    /// Waits for the kernel; how long that took.
    fn end(&self) -> Duration {
        let start = Instant::now();
        finish(&self.stream);
        start.elapsed()
    }

    fn load(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.t.read(at, 8).try_into().unwrap())
    }

    fn wait_for(&self, at: usize, value: u64) {
        let start = Instant::now();
        while self.load(at) < value {
            assert!(start.elapsed() < LIMIT, "{} of {value} came", self.load(at));
        }
    }
}

fn fetch_add(at: usize, value: u64) -> AtomicRequest {
    AtomicRequest { op: 5, kind: WordKind::Bits, bytes: 8, at, value, compare: 0 }
}

/// Every thread that the GPU can hold waits for a signal that a far PE adds to; or one of each block.
#[test]
fn a_full_gpu_hears_signals_that_add() {
    let name = "a_full_gpu_hears_signals_that_add";
    let Some(t) = turn(name) else { return };
    for (kernel, per_block) in [("full", 1024u64), ("leaders", 1)] {
        let Some(mut scene) = Scene::new(name, &t) else { return };
        let most = scene.module.kernel(kernel).unwrap().max_blocks([1024, 1, 1], 0, None).unwrap();
        let full = Shape { cooperative: true, ..shape(most as u32, 1024) };
        let (arrived, sig, rings) = (scene.word(0), scene.word(1), 200u64);
        scene.launch(kernel, &full, &[arrived as u64, sig as u64, rings]);
        scene.wait_for(arrived, most * per_block);
        let mut times: Vec<_> = (0..rings)
            .map(|_| {
                scene.post(fetch_add(sig, 1));
                let took = scene.drain();
                assert!(took < SOON, "a request took {took:?} on a GPU full of waiting threads");
                took
            })
            .collect();
        let ended = scene.end();
        assert!(ended < SOON, "the kernel ended {ended:?} after its signal");
        assert_eq!(scene.results, (0..rings).collect::<Vec<_>>());
        assert_eq!(scene.load(sig), rings);
        times.sort();
        println!(
            "FAR_GPU {most} blocks of {kernel} on {}: a request is done after {:?} (median of {rings}; {:?} to {:?})",
            t.cuda,
            times[times.len() / 2],
            times[0],
            times[times.len() - 1]
        );
    }
}

/// More requests than there are slots at once, on a full GPU and then on an idle one.
#[test]
fn more_requests_than_slots() {
    let name = "more_requests_than_slots";
    let Some(t) = turn(name) else { return };
    let Some(mut scene) = Scene::new(name, &t) else { return };
    let count = 20 * SLOTS as u64 + 7;
    let (arrived, sig) = (scene.word(0), scene.word(1));
    let most = scene.module.kernel("leaders").unwrap().max_blocks([1024, 1, 1], 0, None).unwrap();
    for full in [true, false] {
        scene.results.clear();
        let before = scene.mailbox.in_flight();
        assert_eq!(before, 0);
        if full {
            let shape = Shape { cooperative: true, ..shape(most as u32, 1024) };
            scene.launch("leaders", &shape, &[arrived as u64, sig as u64, count]);
            scene.wait_for(arrived, most);
        }
        let start = Instant::now();
        let mut answers = Vec::new();
        for _ in 0..count {
            scene.post(fetch_add(sig, 1));
        }
        scene.mailbox.ring(&scene.service).unwrap();
        while scene.mailbox.in_flight() > 0 {
            let tell = &mut |_, result| answers.push(result);
            scene.mailbox.completed(&scene.service, tell).unwrap();
            assert!(start.elapsed() < LIMIT, "{} of {count} done", answers.len());
        }
        let took = start.elapsed();
        scene.end();
        let first = if full { 0 } else { count };
        assert_eq!(answers, (first..first + count).collect::<Vec<_>>());
        println!("FAR_GPU {count} requests, GPU full: {full}: {:?} each", took / count as u32);
    }
}

#[test]
fn requests_race_with_the_gpus_own_atomics() {
    let name = "requests_race_with_the_gpus_own_atomics";
    let Some(t) = turn(name) else { return };
    let Some(mut scene) = Scene::new(name, &t) else { return };
    let (blocks, threads, rounds, requests) = (64u64, 256u64, 500u64, 2000u64);
    let words: Vec<usize> = (0..4).map(|i| scene.word(i)).collect();
    let args = [words[0] as u64, words[1] as u64, words[2] as u64, rounds, words[3] as u64];
    scene.launch("racing", &shape(blocks as u32, threads as u32), &args);
    for _ in 0..requests {
        scene.post(fetch_add(words[0], 1));
        scene.post(AtomicRequest { bytes: 4, ..fetch_add(words[1], 5) });
        scene.post(AtomicRequest {
            op: 4,
            kind: WordKind::Float,
            bytes: 4,
            ..fetch_add(words[2], u64::from(2f32.to_bits()))
        });
        scene.mailbox.ring(&scene.service).unwrap();
        scene.look();
    }
    scene.post(fetch_add(words[3], 1));
    scene.drain();
    scene.end();
    let own = blocks * threads * rounds;
    assert_eq!(scene.load(words[0]), own + requests);
    assert_eq!(scene.load(words[1]) & 0xffff_ffff, (3 * own + 5 * requests) & 0xffff_ffff);
    // Far below 2^24, where floats are no longer exact.
    let real = f32::from_bits(scene.load(words[2]) as u32);
    assert_eq!(real, (blocks * rounds + 2 * requests) as f32);
    let seen: Vec<u64> = scene.results.iter().step_by(3).take(requests as usize).copied().collect();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "what the requests saw grows");
}

/// Every operation on words of both widths, beside neighbours that must stay; served by a waiting thread, or
/// by the service kernel alone.
#[test]
fn every_operation_of_the_mailbox() {
    let name = "every_operation_of_the_mailbox";
    let Some(mut t) = turn(name) else { return };
    for waiting in [true, false] {
        let mut random = Random::seeded(t.random.next());
        let Some(mut scene) = Scene::new(name, &t) else { return };
        let (arrived, sig, words) = (scene.word(0), scene.word(1), scene.word(2));
        if waiting {
            scene.launch("full", &shape(2, 64), &[arrived as u64, sig as u64, 1]);
            scene.wait_for(arrived, 128);
        }
        let mut memory = random.bytes(256);
        t.write(words, &memory);
        let mut expected = Vec::new();
        for round in 0..3000 {
            let (op, bytes) = (random.below(12) as i32, 4 + 4 * random.below(2));
            let at = bytes * random.below(256 / bytes);
            let old = memory[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            let value = random.next();
            let compare = if random.below(2) == 0 { old } else { random.next() };
            let new = updated(op, bytes, old, value, compare);
            memory[at..at + bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
            expected.push(old);
            scene.post(AtomicRequest { op, kind: WordKind::Bits, bytes, at: words + at, value, compare });
            if round % 50 == 0 {
                scene.drain();
            }
        }
        scene.drain();
        assert!(scene.results == expected, "waiting: {waiting}");
        assert!(t.read(words, 256) == memory, "waiting: {waiting}");
        // Floats: of each width, beside a neighbour of the same.
        let one_and_a_half: [(WordKind, usize, u64, u64); 4] = [
            (WordKind::Float, 8, 1.5f64.to_bits(), 3.0f64.to_bits()),
            (WordKind::Float, 4, 1.5f32.to_bits().into(), 3.0f32.to_bits().into()),
            (WordKind::Float, 2, 0x3e00, 0x4200),
            (WordKind::BFloat16, 2, 0x3fc0, 0x4040),
        ];
        for (kind, bytes, bits, twice) in one_and_a_half {
            let neighbours = random.bytes(2 * bytes);
            t.write(words, &neighbours);
            t.write(words + bytes, &bits.to_le_bytes()[..bytes]);
            let add = AtomicRequest { op: 5, kind, bytes, at: words + bytes, value: bits, compare: 0 };
            scene.results.clear();
            // SAFETY: a word of the heap.
            unsafe { scene.mailbox.post(&add) };
            let mut answers = Vec::new();
            scene.mailbox.ring(&scene.service).unwrap();
            let start = Instant::now();
            while scene.mailbox.in_flight() > 0 {
                scene.mailbox.completed(&scene.service, &mut |_, result| answers.push(result)).unwrap();
                assert!(start.elapsed() < LIMIT);
            }
            assert_eq!(answers, [bits], "{kind:?} of {bytes} bytes");
            let seen = t.read(words, 2 * bytes);
            assert_eq!(seen[..bytes], neighbours[..bytes]);
            assert_eq!(seen[bytes..], twice.to_le_bytes()[..bytes], "{kind:?} of {bytes} bytes");
        }
        scene.post(fetch_add(sig, 1));
        let start = Instant::now();
        while scene.mailbox.in_flight() > 0 {
            scene.mailbox.completed(&scene.service, &mut |_, _| ()).unwrap();
            assert!(start.elapsed() < LIMIT);
        }
        assert!(scene.end() < SOON);
    }
}

/// Nobody waits: the service kernel serves.
#[test]
fn an_idle_gpu_serves() {
    let name = "an_idle_gpu_serves";
    let Some(t) = turn(name) else { return };
    let Some(mut scene) = Scene::new(name, &t) else { return };
    let (word, rounds) = (scene.word(0), 500);
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            scene.post(fetch_add(word, 1));
            let took = scene.drain();
            assert!(took < SOON, "{took:?} on an idle GPU");
            took
        })
        .collect();
    assert_eq!(scene.results, (0..rounds).collect::<Vec<_>>());
    times.sort();
    println!("FAR_GPU idle: a request is done after {:?} (median of {rounds})", times[times.len() / 2]);
}

/// A reader that sees a request's effect sees the copies that were done before the request was posted.
#[test]
fn a_signal_announces_what_was_copied_before() {
    let name = "a_signal_announces_what_was_copied_before";
    let Some(t) = turn(name) else { return };
    let Some(mut scene) = Scene::new(name, &t) else { return };
    let (words, rounds) = (8192usize, 200u64);
    let (sig, ack, wrong, data) = (scene.word(0), scene.word(1), scene.word(2), scene.word(3));
    let copies = Stream::new(&t.cuda, Priority::High).unwrap();
    let mut from = PinnedBox::<[u64]>::filled(&t.cuda, words, 0).unwrap();
    scene.launch(
        "announced",
        &shape(1, 512),
        &[data as u64, words as u64, sig as u64, rounds, ack as u64, wrong as u64],
    );
    for round in 1..=rounds {
        from.as_mut_slice().fill(round);
        // SAFETY: mapped and pinned; waited for.
        unsafe { copies.copy(data, from.device_address(), 8 * words) }.unwrap();
        while !copies.query().unwrap() {}
        scene.post(fetch_add(sig, 1));
        scene.drain();
        scene.wait_for(ack, round);
    }
    scene.end();
    assert_eq!(scene.load(wrong), 0, "words were old when their signal had come");
}
