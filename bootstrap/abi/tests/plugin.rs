//! A bootstrap exported as a C vtable and taken back must act as the original did: same bytes, same errors,
//! no panic across, destroyed exactly once.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rushmem_bootstrap_abi::ffi::{BootstrapVtable, PluginArgs, PluginEntry, RawError, ERROR_TEXT_BYTES};
use rushmem_bootstrap_abi::plugin::{export, plugin_main, ForeignBootstrap, Limits};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Death, Result, ABI_VERSION};

/// Ranks are threads; every call publishes the rank's bytes, meets, reads, meets.
struct Shared {
    slots: Vec<Mutex<Vec<u8>>>,
    meet: Barrier,
    dropped: AtomicUsize,
    aborted: Mutex<Vec<String>>,
}

struct Fake {
    rank: usize,
    shared: Arc<Shared>,
}

impl Fake {
    fn world(n: usize) -> (Arc<Shared>, Vec<Fake>) {
        let shared = Arc::new(Shared {
            slots: (0..n).map(|_| Mutex::default()).collect(),
            meet: Barrier::new(n),
            dropped: AtomicUsize::new(0),
            aborted: Mutex::default(),
        });
        let fakes = (0..n).map(|rank| Fake { rank, shared: shared.clone() }).collect();
        (shared, fakes)
    }

    fn round(&self, give: &[u8], mut take: impl FnMut(usize, &[u8])) {
        *self.shared.slots[self.rank].lock().unwrap() = give.to_vec();
        self.shared.meet.wait();
        for (r, slot) in self.shared.slots.iter().enumerate() {
            take(r, &slot.lock().unwrap());
        }
        self.shared.meet.wait();
    }
}

impl Bootstrap for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn rank(&self) -> u32 {
        self.rank as u32
    }
    fn n_ranks(&self) -> u32 {
        self.shared.slots.len() as u32
    }
    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.round(input, |r, bytes| out[r * bytes.len()..][..bytes.len()].copy_from_slice(bytes));
        Ok(())
    }
    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let len = input.len() / self.shared.slots.len();
        self.round(input, |r, bytes| {
            out[r * len..][..len].copy_from_slice(&bytes[self.rank * len..][..len]);
        });
        Ok(())
    }
    fn barrier(&self) -> Result<()> {
        self.round(&[], |_, _| ());
        Ok(())
    }
    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()> {
        let give = buf.to_vec();
        self.round(&give, |r, bytes| {
            if r == root as usize {
                buf.copy_from_slice(bytes);
            }
        });
        Ok(())
    }
    fn death(&self) -> Option<Death> {
        (self.rank == 1).then(|| Death { rank: 7, what: "host h, pid 12: killed".into() })
    }
    fn abort(&self, why: &str) {
        self.shared.aborted.lock().unwrap().push(why.to_owned());
    }
    fn finalize(&self) -> Result<()> {
        Err(BootError::new(BootErrorKind::Timeout, "rank 3 never came").with_rank(3))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Numbers that differ from run to run; the caller prints the seed.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn bytes(seed: u64, rank: usize, len: usize) -> Vec<u8> {
    let mut x = seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

fn foreign(fake: Fake) -> ForeignBootstrap {
    // SAFETY: made by export just now, and used nowhere else.
    unsafe { ForeignBootstrap::new(export(Box::new(fake))) }.expect("this version, this size")
}

#[test]
fn collectives_go_through_unchanged() {
    let seed = fresh_seed();
    eprintln!("seed {seed:#x}");
    const N: usize = 3;
    let (shared, fakes) = Fake::world(N);
    std::thread::scope(|s| {
        for (rank, fake) in fakes.into_iter().enumerate() {
            s.spawn(move || {
                let b = foreign(fake);
                assert_eq!((b.name(), b.rank(), b.n_ranks()), ("fake", rank as u32, N as u32));
                for len in [0usize, 1, 7, 4097] {
                    let mine = bytes(seed, rank, len);
                    let mut out = vec![0; N * len];
                    b.allgather(&mine, &mut out).unwrap();
                    let want: Vec<u8> = (0..N).flat_map(|r| bytes(seed, r, len)).collect();
                    assert!(out == want, "allgather of {len}");

                    let mine = bytes(seed ^ 1, rank, N * len);
                    b.alltoall(&mine, &mut out).unwrap();
                    let want: Vec<u8> = (0..N)
                        .flat_map(|r| bytes(seed ^ 1, r, N * len)[rank * len..][..len].to_vec())
                        .collect();
                    assert!(out == want, "alltoall of {len}");

                    let mut buf = bytes(seed ^ 2, rank, len);
                    b.broadcast(&mut buf, 2).unwrap();
                    assert!(buf == bytes(seed ^ 2, 2, len), "broadcast of {len}");
                    b.barrier().unwrap();
                }
                let death = b.death();
                assert_eq!(death.is_some(), rank == 1);
                if let Some(death) = death {
                    assert_eq!(death, Death { rank: 7, what: "host h, pid 12: killed".into() });
                }
                b.abort("out of\0memory");
                let error = b.finalize().unwrap_err();
                assert_eq!(error, BootError::new(BootErrorKind::Timeout, "rank 3 never came").with_rank(3));
            });
        }
    });
    assert_eq!(shared.dropped.load(Ordering::Relaxed), N);
    assert_eq!(*shared.aborted.lock().unwrap(), vec!["out of memory".to_owned(); N]);
}

#[test]
fn wrong_sizes_are_refused_before_the_call() {
    let (_shared, mut fakes) = Fake::world(2);
    let b = foreign(fakes.remove(0));
    for error in [
        b.allgather(&[1, 2], &mut [0; 3]).unwrap_err(),
        b.alltoall(&[1, 2], &mut [0; 4]).unwrap_err(),
        b.alltoall(&[1, 2, 3], &mut [0; 3]).unwrap_err(),
    ] {
        assert_eq!(error.kind, BootErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn another_version_or_size_is_refused_with_both_numbers() {
    let (shared, fakes) = Fake::world(2);
    for (fake, spoil) in fakes.into_iter().zip([
        (|v: &mut BootstrapVtable| v.abi_version = 77) as fn(&mut BootstrapVtable),
        |v: &mut BootstrapVtable| v.struct_size = 77,
    ]) {
        let before = shared.dropped.load(Ordering::Relaxed);
        let good = export(Box::new(fake));
        let mut bad = good;
        spoil(&mut bad);
        // SAFETY: refused before anything else in it is read.
        let error = unsafe { ForeignBootstrap::new(bad) }.err().expect("must be refused");
        assert_eq!(error.kind, BootErrorKind::Mismatch);
        assert!(error.message.contains("77") && error.message.contains(&ABI_VERSION.to_string()), "{error}");
        assert_eq!(shared.dropped.load(Ordering::Relaxed), before, "left alone");
        // SAFETY: the unspoilt original, taken over once.
        drop(unsafe { ForeignBootstrap::new(good) }.unwrap());
    }
    assert_eq!(shared.dropped.load(Ordering::Relaxed), 2);

    let (_shared, mut fakes) = Fake::world(1);
    let good = export(Box::new(fakes.remove(0)));
    let missing = BootstrapVtable { broadcast: None, ..good };
    // SAFETY: refused before use.
    let error = unsafe { ForeignBootstrap::new(missing) }.err().expect("must be refused");
    assert!(error.message.contains("broadcast"), "{error}");
    // SAFETY: the unspoilt original, taken over once.
    drop(unsafe { ForeignBootstrap::new(good) }.unwrap());
}

struct Panics;

impl Bootstrap for Panics {
    fn name(&self) -> &str {
        "panics"
    }
    fn rank(&self) -> u32 {
        0
    }
    fn n_ranks(&self) -> u32 {
        1
    }
    fn allgather(&self, _: &[u8], _: &mut [u8]) -> Result<()> {
        panic!("plain text")
    }
    fn alltoall(&self, input: &[u8], _: &mut [u8]) -> Result<()> {
        panic!("{} bytes", input.len())
    }
    fn barrier(&self) -> Result<()> {
        std::panic::panic_any(7u8)
    }
    fn broadcast(&self, _: &mut [u8], root: u32) -> Result<()> {
        Err(BootError::new(BootErrorKind::Io, "ü".repeat(ERROR_TEXT_BYTES)).with_rank(root))
    }
    fn death(&self) -> Option<Death> {
        panic!("in death")
    }
    fn abort(&self, _: &str) {
        panic!("in abort")
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("in drop")
    }
}

#[test]
fn panics_become_errors_and_long_texts_are_cut() {
    // SAFETY: made by export just now, and used nowhere else.
    let b = unsafe { ForeignBootstrap::new(export(Box::new(Panics))) }.unwrap();
    let errors = [
        (b.allgather(&[1], &mut [0]).unwrap_err(), "plain text"),
        (b.alltoall(&[1, 2], &mut [0; 2]).unwrap_err(), "2 bytes"),
        (b.barrier().unwrap_err(), "no text"),
    ];
    for (error, text) in errors {
        assert_eq!(error.kind, BootErrorKind::Internal);
        assert!(error.message.contains(text), "{error}");
    }
    let error = b.broadcast(&mut [1], 5).unwrap_err();
    assert_eq!((error.kind, error.rank), (BootErrorKind::Io, Some(5)));
    assert_eq!(error.message, "ü".repeat((ERROR_TEXT_BYTES - 1) / 2));
    assert_eq!(b.death(), None);
    b.abort("why");
    drop(b);
}

/// # Safety
/// The arguments are what a plug-in's entry point is given.
unsafe extern "C" fn entry(args: *const PluginArgs, vtable: *mut BootstrapVtable) -> i32 {
    // SAFETY: what this entry point was given.
    unsafe {
        plugin_main(args, vtable, |comm, limits| {
            // What came in goes out as an error, so that the test can see it.
            if comm.is_null() {
                let text = format!("{:?} {:?}", limits.call, limits.init);
                return Err(BootError::new(BootErrorKind::Environment, text).with_rank(9));
            }
            let fake = (*comm.cast::<Mutex<Option<Fake>>>()).lock().unwrap().take();
            Ok(Box::new(fake.expect("one is there")))
        })
    }
}

#[test]
fn a_plugin_entry_gets_its_arguments_and_gives_its_error() {
    let open = |comm, limits| {
        // SAFETY: comm is what `entry` documents: null or a Mutex<Option<Fake>>.
        unsafe { ForeignBootstrap::open(entry as PluginEntry, comm, limits) }
    };
    let limits = Limits { call: Some(Duration::from_nanos(1)), init: None };
    let error = open(std::ptr::null(), limits).err().expect("no communicator");
    assert_eq!((error.kind, error.rank), (BootErrorKind::Environment, Some(9)));
    assert_eq!(error.message, "Some(1ms) None");

    let (_shared, mut fakes) = Fake::world(1);
    let slot = Mutex::new(fakes.pop());
    let comm: *const Mutex<Option<Fake>> = &slot;
    let b = open(comm.cast::<c_void>(), limits).unwrap();
    let mut out = [0; 2];
    b.allgather(&[4, 2], &mut out).unwrap();
    assert_eq!(out, [4, 2]);
}

#[test]
fn a_plugin_refuses_a_caller_of_another_version() {
    let mut error = RawError::empty();
    let good = PluginArgs {
        abi_version: ABI_VERSION,
        struct_size: size_of::<PluginArgs>() as u32,
        vtable_size: size_of::<BootstrapVtable>() as u32,
        reserved: 0,
        comm: std::ptr::null(),
        timeout_ms: 0,
        init_timeout_ms: 0,
        error: &mut error,
    };
    for bad in [
        PluginArgs { abi_version: 77, ..good },
        PluginArgs { struct_size: 8, ..good },
        PluginArgs { vtable_size: 77, ..good },
    ] {
        // SAFETY: the entry must refuse before it writes, so no vtable is needed.
        let code = unsafe { entry(&bad, std::ptr::null_mut()) };
        assert_eq!(code, BootErrorKind::Mismatch as i32);
    }
    assert!(error.message().contains("77"), "{}", error.message());
}
