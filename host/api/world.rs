//! The world: one PE's membership of one job, as a value.
//!
//! A process may hold several worlds (several PEs as threads, or jobs one after another), so nothing here is
//! global. Everything that lives in a world (slices, signals, kernels) borrows it, so that `finalize` cannot
//! leave any of them dangling.

use std::ffi::CString;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::atomic::{AtomicU32, Ordering};

use rushmem_host::capi::types::*;

use crate::near::Near;
use crate::runtime::{copy_text, Runtime};
use crate::{Device, Error, ErrorCode, Pe, Result, WorldBuilder};

/// One PE's membership of one job.
///
/// Dropping a world finalises it, and says so on standard error if that fails; dropping it while the thread
/// panics leaves the job instead, so that the other PEs end with an error that names this one rather than
/// wait for ever. Both are for when things go wrong: [`World::finalize`] hands the result to you.
///
/// A world may be shared between threads. Collective calls (those whose documentation says so) must be made
/// in the same order on every PE, so by one thread at a time.
pub struct World {
    raw: *mut rushmem_world_t,
    view: rushmem_view_t,
    near: Near,
    runtime: &'static Runtime,
}

// SAFETY: the C ABI takes a world from any thread and guards its own state.
unsafe impl Send for World {}
// SAFETY: as above; `view` is constant for the world's life.
unsafe impl Sync for World {}

impl World {
    /// Joins the job that the environment describes: `rushmem-run`, `torchrun`, Slurm or MPI variables, or,
    /// with none of them, a job of one PE. Collective. What was chosen is one log line.
    ///
    /// # Errors
    /// [`ErrorCode::Environment`] names the variable that is missing or contradicts; [`ErrorCode::Timeout`]
    /// names the PEs that never came; [`ErrorCode::LibraryNotFound`] lists the paths tried.
    pub fn init() -> Result<World> {
        World::builder().init()
    }

    /// A builder, to say what the environment does not.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    pub(crate) fn start(attr: &rushmem_init_attr_t) -> Result<World> {
        let runtime = Runtime::get()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `attr` and what it points at outlive the call; `raw` is a place for the handle.
        runtime.check(unsafe { (runtime.init)(attr, &mut raw) })?;
        let mut view = MaybeUninit::uninit();
        // SAFETY: a live handle and a place for the view.
        runtime.check(unsafe { (runtime.view)(raw, view.as_mut_ptr()) })?;
        // SAFETY: filled by the successful call.
        let view = unsafe { view.assume_init() };
        Ok(World { raw, view, near: Near::new(&view), runtime })
    }

    /// Leaves the job in good order. Collective: returns once every PE has called it. Launched kernels are
    /// waited for first.
    ///
    /// # Errors
    /// The first failure of a kernel still in flight, or what kept the job from ending (a PE died). The world
    /// is gone either way.
    pub fn finalize(self) -> Result<()> {
        ManuallyDrop::new(self).leave()
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

    /// Tells the others that this PE leaves; a handle that finalize has already freed is refused, harmlessly.
    pub(crate) fn abandon(&self, why: &str) {
        let why = CString::new(why.replace('\0', " ")).expect("no NUL is left");
        // SAFETY: the handle is live or refused; the text outlives the call; nobody uses the world after this.
        unsafe { (self.runtime.abort)(self.raw, why.as_ptr()) };
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
        // SAFETY: a live handle and a place for the pointer, whose text lives as long as the world and is copied here.
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

    /// Whether the host may load and store this PE's own heap.
    #[inline(always)]
    pub(crate) fn is_host_heap(&self) -> bool {
        self.view.device != RUSHMEM_DEVICE_CUDA
    }

    #[inline(always)]
    pub(crate) fn near(&self) -> Near {
        self.near
    }

    /// Whether a PE has died. For whatever may be called in a loop until something changes: the loop then goes
    /// to the runtime and ends with its error. One load of a word that is always in the cache.
    #[inline(always)]
    pub(crate) fn is_broken(&self) -> bool {
        // SAFETY: the view's word lives as long as the world, and is only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(self.view.broken.cast_mut()) }.load(Ordering::Relaxed) != 0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            self.abandon(&format!(
                "{} panicked in thread {:?}",
                self.my_pe(),
                thread.name().unwrap_or("unnamed")
            ));
        } else if let Err(error) = self.leave() {
            eprintln!("rushmem: {}: finalising a dropped world failed: {error}", self.my_pe());
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} of {})", self.my_pe(), self.n_pes())
    }
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
    /// `direct`: mapped, by loads and stores; `ucx` or `fake`: over that network; `none`: no way leads there.
    pub transport: String,
    /// Why that transport.
    pub reason: String,
}
