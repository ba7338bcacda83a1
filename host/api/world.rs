//! The world: one PE's membership of one job, as a value.
//!
//! A process may hold several worlds (several PEs as threads, or jobs one after another), so nothing here is
//! global. Everything that lives in a world (slices, signals, kernels) borrows it, so that `finalize` cannot
//! leave any of them dangling.

use std::ffi::CString;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rushmem_abi::c::*;

use crate::forked::{self, Member};
use crate::near::Near;
use crate::runtime::{copy_text, Runtime};
use crate::{Device, Error, ErrorCode, NearPes, NearShape, Pe, Result};

/// One PE's membership of one job.
///
/// A world is left by [`World::finalize`], which all PEs call together. Dropping it without that *leaves* the
/// job, at once and alone, because nothing can tell the end of a program from an error that `?` returns
/// early: the other PEs' calls, waits and kernels end with [`ErrorCode::PeerDead`] and a text that names this
/// PE, unless they leave likewise within a moment; kernels that still run here are ended. While the thread
/// panics the others get that error at once, with the place of the panic. [`run`](crate::run) carries the
/// error itself to every PE. In a job of one PE a drop finalises.
///
/// What a process has not left when it exits, it leaves then, in the same way.
///
/// A world belongs to the process that joined. In a child of fork every call is an error
/// ([`ErrorCode::Forked`]), and dropping the world there does nothing: start workers with
/// [`std::process::Command`], which execs.
///
/// A world may be shared between threads. Collective calls (those whose documentation says so) must be made
/// in the same order on every PE, so by one thread at a time.
pub struct World {
    raw: *mut rushmem_world_t,
    view: rushmem_view_t,
    near: Near,
    runtime: &'static Runtime,
    member: ManuallyDrop<Member>,
}

// SAFETY: the C ABI takes a world from any thread and guards its own state.
unsafe impl Send for World {}
// SAFETY: the C ABI takes a world from several threads at once; `view` is constant for the world's life.
unsafe impl Sync for World {}

impl World {
    pub(crate) fn start(attr: &rushmem_init_attr_t) -> Result<World> {
        let runtime = Runtime::get()?;
        let member = ManuallyDrop::new(Member::new());
        let mut raw = std::ptr::null_mut();
        // SAFETY: `attr` and what it points at outlive the call; `raw` is a place for the handle.
        runtime.check(unsafe { (runtime.init)(attr, &mut raw) })?;
        let mut view = MaybeUninit::uninit();
        // SAFETY: a live handle and a place for the view.
        runtime.check(unsafe { (runtime.view)(raw, view.as_mut_ptr()) })?;
        // SAFETY: filled by the successful call.
        let view = unsafe { view.assume_init() };
        Ok(World { raw, view, near: Near::new(&view), runtime, member })
    }

    /// Leaves the job in good order. Collective: returns once every PE has called it. Launched kernels are
    /// waited for first.
    ///
    /// # Errors
    /// The first failure of a kernel still in flight, or what kept the job from ending (a PE died). The world
    /// is gone either way.
    pub fn finalize(self) -> Result<()> {
        let mut world = ManuallyDrop::new(self);
        let left = world.leave();
        // SAFETY: nobody uses the world any more, and it is not dropped.
        unsafe { ManuallyDrop::drop(&mut world.member) };
        left
    }

    fn leave(&mut self) -> Result<()> {
        let kernels = self.synchronize();
        // SAFETY: the handle is live, nothing borrows the world any more, and nobody uses it after this.
        let left = self.check(unsafe { (self.runtime.finalize)(self.raw) });
        if let Err(error) = &left {
            self.abandon(&error.to_string());
        }
        kernels.and(left)
    }

    /// Leaves without the others, and says so here, too, unless a PE that went before has been reported
    /// already.
    fn leave_unfinished(&self) {
        const WHY: &std::ffi::CStr =
            c"its World was dropped without finalize(), perhaps because main returned an error, which it prints";
        if self.check_job().is_ok() {
            eprintln!(
                "rushmem: {} leaves the job: its World is dropped without finalize(). Run the program in \
                 rushmem::run, and the other PEs name its error",
                self.my_pe()
            );
        }
        // SAFETY: the handle is live or refused; the text is constant; nobody uses the world after this.
        unsafe { (self.runtime.leave)(self.raw, WHY.as_ptr()) };
    }

    /// Tells the others that this PE leaves; a handle that finalize has already freed is refused, harmlessly.
    pub(crate) fn abandon(&self, why: &str) {
        let why = CString::new(why.replace('\0', " ")).expect("no NUL is left");
        // SAFETY: the handle is live or refused; the text outlives the call; nobody uses the world after
        // this.
        unsafe { (self.runtime.abort)(self.raw, why.as_ptr()) };
    }

    /// `Ok` as long as all PEs of the job are there.
    ///
    /// # Errors
    /// [`ErrorCode::PeerDead`] names the PE that died or left first, and its reason.
    pub fn check_job(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime.check)(self.raw) })
    }

    /// This PE.
    #[inline]
    pub fn my_pe(&self) -> Pe {
        Pe::new(self.view.my_pe as u32)
    }

    /// Number of PEs.
    #[inline]
    pub fn n_pes(&self) -> u32 {
        self.view.n_pes as u32
    }

    /// Every PE, in order.
    pub fn pes(&self) -> impl DoubleEndedIterator<Item = Pe> + ExactSizeIterator + Clone + use<> {
        (0..self.n_pes()).map(Pe::new)
    }

    /// The PE of this number, checked.
    ///
    /// # Errors
    /// [`ErrorCode::BadPe`] outside `0..n_pes`.
    pub fn pe(&self, number: u32) -> Result<Pe> {
        if number < self.n_pes() {
            Ok(Pe::new(number))
        } else {
            Err(Error::new(
                ErrorCode::BadPe,
                format!("PE {number} is not in this world of {} PEs", self.n_pes()),
            ))
        }
    }

    /// The next PE on a ring of all: `(my_pe + 1) % n_pes`.
    pub fn right(&self) -> Pe {
        Pe::new((self.my_pe().number() + 1) % self.n_pes())
    }

    /// The PE before this one on a ring of all.
    pub fn left(&self) -> Pe {
        Pe::new((self.my_pe().number() + self.n_pes() - 1) % self.n_pes())
    }

    /// The near PEs: those whose memory is mapped for this PE's device, itself included. All of its host's,
    /// as a rule, however a launcher numbers them.
    pub fn near_pes(&self) -> Result<NearPes> {
        let near = near_pes(self.runtime, self.raw)?;
        let all = 0..self.view.n_pes;
        Ok(match near.shape {
            RUSHMEM_NEAR_TABLE => {
                // SAFETY: a distance for each PE of the job, constant, alive as long as the world.
                let table = unsafe { std::slice::from_raw_parts(near.distances, all.len()) };
                let is_near = |pe: &i32| table[*pe as usize] != RUSHMEM_NEAR_NOT;
                NearPes {
                    pes: all.filter(is_near).map(|pe| Pe::new(pe as u32)).collect(),
                    shape: NearShape::Table,
                }
            }
            shape => {
                let pe = |i| Pe::new((near.first + i * near.step) as u32);
                let shape = match shape {
                    RUSHMEM_NEAR_RUN => NearShape::Run,
                    _ => NearShape::Steps(near.step as u32),
                };
                NearPes { pes: (0..near.count).map(pe).collect(), shape }
            }
        })
    }

    /// Where a PE runs and how it is reached.
    pub fn peer(&self, pe: Pe) -> Result<Peer> {
        let mut peer = MaybeUninit::<rushmem_peer_t>::uninit();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe { (self.runtime.peer)(self.raw, pe.raw(), peer.as_mut_ptr()) })?;
        // SAFETY: filled by the successful call; its strings live as long as the world and are copied here.
        unsafe {
            let peer = peer.assume_init();
            Ok(Peer {
                pe,
                pid: peer.pid as u32,
                host: copy_text(peer.host),
                transport: copy_text(peer.transport),
                reason: copy_text(peer.reason),
            })
        }
    }

    /// What this PE has asked `pe` for so far. All but [`Counters::retries`] is counted under
    /// `RUSHMEM_COUNTERS=1` and in traced runs alone (`RUSHMEM_TRACE`).
    pub fn counters(&self, pe: Pe) -> Result<Counters> {
        let mut raw = rushmem_counters_t::default();
        // SAFETY: a live handle and a place for the answer.
        self.check(unsafe { (self.runtime.counters)(self.raw, pe.raw(), &mut raw) })?;
        let asked = |operations, bytes, ns, stalls| Asked {
            operations,
            bytes,
            time: Duration::from_nanos(ns),
            stalls,
        };
        Ok(Counters {
            host: asked(raw.operations, raw.bytes, raw.ns, raw.stalls),
            kernels: asked(raw.kernel_operations, raw.kernel_bytes, raw.kernel_ns, raw.kernel_stalls),
            retries: raw.retries,
        })
    }

    /// The kind of this PE's device, in whose memory its heap is.
    #[inline]
    pub fn device(&self) -> Device {
        match self.view.device {
            RUSHMEM_DEVICE_CUDA => Device::Cuda(Some(self.view.gpu as u32)),
            _ => Device::Cpu,
        }
    }

    /// The device for people: `the CPU`, or `GPU 0 (NVIDIA H200, 0000:1b:00.0)`.
    pub fn device_name(&self) -> String {
        let mut name = std::ptr::null();
        // SAFETY: a live handle and a place for the pointer, whose text lives as long as the world and is
        // copied here.
        unsafe {
            match (self.runtime.device_name)(self.raw, &mut name) {
                RUSHMEM_OK => copy_text(name),
                _ => self.device().to_string(),
            }
        }
    }

    /// The C handle, to hand to a C library that takes a `rushmem_world_t *`. It is this world's: the library
    /// may use it while the world lives, and must not finalise it.
    pub fn as_raw(&self) -> *mut rushmem_world_t {
        self.raw
    }

    #[inline(always)]
    pub(crate) fn runtime(&self) -> &'static Runtime {
        self.runtime
    }

    #[inline(always)]
    pub(crate) fn check(&self, code: i32) -> Result<()> {
        self.runtime.check(code)
    }

    /// Whether this code may load and store this PE's own heap: it is in host memory, and no run is checked.
    #[inline(always)]
    pub(crate) fn is_host_heap(&self) -> bool {
        self.view.near_count != 0
    }

    #[inline(always)]
    pub(crate) fn near(&self) -> Near {
        self.near
    }

    /// Whether a PE has died, or this is a child of fork. For whatever may be called in a loop until
    /// something changes: the loop then goes to the runtime and ends with its error. One load of a word that
    /// is always in the cache.
    #[inline(always)]
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: the view's word lives as long as the world, and is only ever accessed atomically.
        let broken = unsafe { AtomicU32::from_ptr(self.view.broken.cast_mut()) }.load(Ordering::Relaxed) != 0;
        broken || forked::is_child()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if forked::is_child() {
            // The world is the parent's to leave. Not a word either: another thread may have held stderr's
            // lock.
            return;
        }
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            return self.abandon(&format!("{} panicked in its thread {name}", self.my_pe()));
        }
        if self.n_pes() > 1 {
            return self.leave_unfinished();
        }
        if let Err(error) = self.leave() {
            eprintln!("rushmem: {}: finalising a dropped world failed: {error}", self.my_pe());
        }
        // SAFETY: dropped once: `finalize` keeps this from running.
        unsafe { ManuallyDrop::drop(&mut self.member) };
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} of {})", self.my_pe(), self.n_pes())
    }
}

/// What the runtime says of the near PEs.
fn near_pes(runtime: &Runtime, world: *mut rushmem_world_t) -> Result<rushmem_near_t> {
    let mut near = MaybeUninit::uninit();
    // SAFETY: a live handle and a place for the answer.
    runtime.check(unsafe { (runtime.near)(world, near.as_mut_ptr()) })?;
    // SAFETY: filled by the successful call.
    Ok(unsafe { near.assume_init() })
}

/// Where a PE runs and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The PE.
    pub pe: Pe,
    /// Its process.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
    /// `direct`: mapped, by loads and stores; `ucx` or `fake`: over that network;
    /// `queue`: kernels by the queues of a network card; `queue-emulated`: of a software card; `none`: no way
    /// leads there.
    pub transport: String,
    /// Why that transport.
    pub reason: String,
}

/// What a PE has asked another one for: [`World::counters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// By its host, streams of the CPU device included.
    pub host: Asked,
    /// By its kernels, on the CPU device.
    pub kernels: Asked,
    /// Operations of the host that found too much under way on the network, and were tried again until there
    /// was room.
    pub retries: u64,
}

/// One half of [`Counters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// Operations.
    pub operations: u64,
    /// What they move.
    pub bytes: u64,
    /// How long they took, all in all.
    pub time: Duration,
    /// Those that took as long as `RUSHMEM_STALL_REPORT`.
    pub stalls: u64,
}
