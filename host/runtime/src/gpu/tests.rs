//! Tests on a GPU; each skips aloud where there is none. Within a process they take turns, as they share its
//! context: what one of them waits for another would wait for too.

mod children;
mod far_direct;
mod far_gate;
pub(super) mod far_mailbox;
mod far_staging;
pub(super) mod graphs;
pub(super) mod kernels;
mod memory;
pub(super) mod pes;
pub(super) mod service;
mod streams;
mod user_memory;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::driver::cu;
use super::stream::{Priority, Stream};
use super::vmm::{AddressRange, Allocation, Mapping};
use super::watch::DriverWatch;
use super::Cuda;
use crate::error::code;
use crate::health::Health;
use crate::testing::random::Random;

/// What a wait in a test may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A test's turn on the first GPU.
struct Turn {
    cuda: Arc<Cuda>,
    stream: Stream,
    random: Random,
    _turn: MutexGuard<'static, ()>,
}

/// The GPU for the test of that name, or `None` after saying that there is none.
fn turn(test: &str) -> Option<Turn> {
    static TURN: Mutex<()> = Mutex::new(());
    let count = Cuda::count().expect("a driver that works, or none");
    if count == 0 {
        eprintln!("SKIP {test}: no CUDA driver, or no GPU");
        return None;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cuda = Cuda::open(0).unwrap();
    let stream = Stream::new(&cuda, Priority::Normal).unwrap();
    Some(Turn { cuda, stream, random: Random::new(test), _turn })
}

impl Turn {
    /// `bytes` of GPU memory, rounded up, at an address.
    fn memory(&self, bytes: usize) -> Mapping {
        let bytes = bytes.next_multiple_of(Allocation::granularity(&self.cuda).unwrap());
        let allocation = Arc::new(Allocation::create(&self.cuda, bytes).unwrap());
        let range = AddressRange::reserve(&self.cuda, bytes, 0).unwrap();
        range.map(0, &allocation, &[&self.cuda]).unwrap()
    }

    /// Waits for the stream.
    fn finish(&self) {
        finish(&self.stream);
    }

    /// Writes to the GPU and waits.
    fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: the tests' addresses are mapped; waited for below.
        unsafe { self.stream.copy(at, bytes.as_ptr() as usize, bytes.len()) }.unwrap();
        self.finish();
    }

    /// Waits for the stream, then reads from the GPU.
    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xa5; len];
        // SAFETY: the tests' addresses are mapped, and the buffer is as long; waited for below.
        unsafe { self.stream.copy(bytes.as_mut_ptr() as usize, at, len) }.unwrap();
        self.finish();
        bytes
    }
}

fn finish(stream: &Stream) {
    stream.synchronize(&healthy(), Some(LIMIT), &|| "for a test's work".into()).unwrap();
}

fn healthy() -> Health {
    Health::new("PE 0 (test)".into(), false, None)
}

#[test]
fn a_context_for_life_is_no_call_that_lasts() {
    let Some(t) = turn("a_context_for_life_is_no_call_that_lasts") else { return };
    let mut watch = DriverWatch::new(Duration::ZERO);
    let life = t.cuda.current_for_life().unwrap();
    assert_eq!(watch.overdue(t.cuda.calls()), None);
    let call = t.cuda.current().unwrap();
    assert!(watch.overdue(t.cuda.calls()).is_some());
    drop(call);
    assert_eq!(watch.overdue(t.cuda.calls()), None);
    drop(life);
}

#[test]
fn a_gpu_that_does_not_exist() {
    let count = Cuda::count().unwrap();
    let e = Cuda::open(count).unwrap_err();
    if count == 0 {
        assert_eq!(e.code, code::UNSUPPORTED);
        assert!(e.message.contains("driver"), "{e}");
        assert_eq!(Cuda::find(&[0; 16]).unwrap(), None);
    } else {
        assert_eq!(e.code, code::INVALID_ARGUMENT);
        assert!(e.message.contains("CUDA_VISIBLE_DEVICES"), "{e}");
    }
}

#[test]
fn a_context_outlives_who_opened_the_gpu() {
    let Some(turn) = turn("a_context_outlives_who_opened_the_gpu") else { return };
    let (device, context) = (turn.cuda.device(), turn.cuda.context() as usize);
    drop(turn);
    let (mut flags, mut active) = (0, 0);
    // SAFETY: a device of the driver's; writes two numbers.
    unsafe { cu!(cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }.unwrap();
    assert_eq!(active, 1, "the context is gone with its user");
    assert_eq!(Cuda::open(0).unwrap().context() as usize, context);
}

#[test]
fn what_gpus_are() {
    let Some(turn) = turn("what_gpus_are") else { return };
    for ordinal in 0..Cuda::count().unwrap() {
        let gpu = Cuda::open(ordinal).unwrap();
        let facts = gpu.facts();
        eprintln!("{gpu}: {facts:?}");
        assert_eq!(facts.ordinal, ordinal);
        assert!(facts.sms > 0 && facts.memory > 1 << 30 && facts.capability >= (5, 0));
        assert!(facts.shared_most >= facts.shared_default && facts.shared_default >= 48 << 10);
        assert_eq!(facts.pci_bus_id.matches(':').count(), 2, "{}", facts.pci_bus_id);
        assert_eq!(Cuda::find(&facts.uuid).unwrap(), Some(ordinal));
        assert!(gpu.can_access_peer(&gpu).unwrap());
        eprintln!("{gpu} reaches {}: {}", turn.cuda, gpu.can_access_peer(&turn.cuda).unwrap());
        let (free, total) = gpu.memory().unwrap();
        assert!(free <= total && total <= facts.memory + (1 << 30));
        gpu.check().unwrap();
        gpu.synchronize().unwrap();
    }
}

#[test]
fn contexts_nest_and_come_back() {
    let Some(turn) = turn("contexts_nest_and_come_back") else { return };
    let now = || {
        let mut now = std::ptr::null_mut();
        // SAFETY: writes the context or null.
        assert_eq!(unsafe { cudarc::driver::sys::cuCtxGetCurrent(&mut now) } as u32, 0);
        now as usize
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(now(), 0);
            let outer = turn.cuda.current().unwrap();
            let context = now();
            assert_ne!(context, 0);
            // Another handle of the same GPU is the same context.
            let again = Cuda::open(0).unwrap();
            let inner = again.current().unwrap();
            assert_eq!(now(), context);
            drop(inner);
            drop(again);
            assert_eq!(now(), context);
            drop(outer);
            assert_eq!(now(), 0);
        });
    });
}
