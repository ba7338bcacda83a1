//! A world: one PE's membership of one job. Worlds are values; a process may hold several.

mod collectives;
mod front;
mod home;
mod meetings;
mod start;
mod teams;
mod timeline;

use std::ffi::{c_void, CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;
use rushmem_device_cpu::check;

use crate::boot::between;
use crate::collective::{Entered, Rounds};
use crate::config::Config;
use crate::crash::CrashTexts;
use crate::device::Device;
use crate::error::{err, Result};
use crate::exec::context::Contexts;
use crate::exec::gpu::GpuEngine;
use crate::exec::order;
use crate::fork::Member;
use crate::health::Health;
use crate::kernel::Kernels;
use crate::memory::symmetric::Symmetric;
use crate::memory::window::Window;
use crate::net::Far;
use crate::node::control::Call;
use crate::node::links::Links;
use crate::node::notice::left_text;
use crate::op::Reached;
use crate::team::books::TeamBooks;
use crate::team::Team;
use crate::topology::card::Card;
use crate::topology::near::{Near, NearForm};
use crate::topology::nodes::Nodes;
use crate::trace::Trace;
use rushmem_abi::c::{
    rushmem_heap_info_t, rushmem_near_t, rushmem_view_t, RUSHMEM_DEVICE_CPU, RUSHMEM_DEVICE_CUDA,
    RUSHMEM_NEAR_RUN, RUSHMEM_NEAR_STEPS, RUSHMEM_NEAR_TABLE,
};
use start::first_cause;
pub(crate) use teams::TeamSplit;

/// How a PE is reached, for people.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) host: CString,
    pub(crate) transport: CString,
    pub(crate) reason: CString,
}

/// One PE's membership of one job.
pub(crate) struct World {
    /// Goes first: addresses that are given back are none of ours.
    _crash_texts: CrashTexts,
    // Fields drop in this order: first whatever runs threads that look at the rest.
    kernels: Kernels,
    links: Links,
    engine: Option<GpuEngine>,
    /// How the host reaches the memory that is mapped.
    reached: Reached,
    /// Of a run that is traced.
    trace: Option<Arc<Trace>>,
    /// Of a run that is checked.
    check: Option<Arc<check::World>>,
    /// The host cannot touch the heap.
    apart: bool,
    /// Streams for launches of the host's collectives, of which none uses these at the moment.
    call_streams: Mutex<Vec<usize>>,
    far: Option<Arc<Far>>,
    contexts: Contexts,
    rounds: Rounds,
    /// All PEs.
    team: Team,
    books: Mutex<TeamBooks>,
    /// The last ticket of a team that was made without a parent.
    meetings: Mutex<u64>,
    /// Where the memory of teams begins in the heap.
    team_memory: usize,
    nodes: Nodes,
    symmetric: Symmetric,
    health: Arc<Health>,
    boot: Arc<dyn Bootstrap>,
    cards: Arc<Vec<Card>>,
    peers: Vec<Peer>,
    config: Config,
    device: Device,
    device_name: CString,
    me: i32,
    n: i32,
    /// The PEs whose memory is mapped here.
    near: Arc<Near>,
    /// What a warp of a PE stores at once is seen whole by all PEs of its node, on each node.
    wide_packets: bool,
    /// A launch has failed whose threads may hold something of the way to far PEs.
    abandoned: AtomicBool,
    /// As long as any of the above lives, a child of fork is refused.
    _member: Member,
}

impl World {
    /// Joins the job that `boot` describes. Collective over all its ranks.
    pub(crate) fn start(boot: Box<dyn Bootstrap>, config: Config) -> Result<World> {
        let boot: Arc<dyn Bootstrap> = Arc::from(boot);
        let world = World::try_start(&boot, config).map_err(|e| first_cause(e, &*boot));
        world.inspect_err(|e| boot.abort(&e.message))
    }

    /// This PE's number.
    #[inline]
    pub(crate) fn my_pe(&self) -> i32 {
        self.me
    }

    /// Number of PEs.
    #[inline]
    pub(crate) fn n_pes(&self) -> i32 {
        self.n
    }

    /// The settings in force.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the job is whole.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Its kernels.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Its device, for people.
    pub(crate) fn device_name(&self) -> &CStr {
        &self.device_name
    }

    /// Waits for all work on this world's streams; the first failure since the last call.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let outcome = self.kernels.synchronize();
        self.settle(&outcome);
        let posted = self.check_posts();
        self.kernels.forget_launched();
        outcome.and(posted)
    }

    /// What kernels asked of far PEs and could not be done.
    fn check_posts(&self) -> Result<()> {
        let posted = self.far.as_ref().map_or(Ok(()), |far| far.check_posts());
        posted.map_err(|e| e.context(self.kernels.launched()))
    }

    /// The same for the work on one stream.
    ///
    /// # Safety
    /// As for [`Kernels::synchronize_stream`].
    pub(crate) unsafe fn synchronize_stream(&self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller gives null or a stream that lives.
        let outcome = unsafe { self.kernels.synchronize_stream(stream) };
        self.settle(&outcome);
        // Kernels of other streams may go on: the call that waits for the last of them reports their posts.
        outcome.and(self.check_posts())
    }

    /// A launch that fails on the CPU device abandons its threads wherever they are. Their slots of the
    /// device ring are free again once no kernel runs on any stream: now, or in a later call that
    /// synchronises. On a GPU a kernel that gives up takes the context with it, and no other follows.
    fn settle(&self, outcome: &Result<()>) {
        let Some(far) = &self.far else { return };
        if outcome.is_err() {
            self.abandoned.store(true, Ordering::Relaxed);
        }
        if !self.abandoned.load(Ordering::Relaxed) {
            return;
        }
        let report = || "for answers to threads of a kernel that has failed".to_owned();
        let settled = self.health.wait(None, &report, &mut || {
            let mut free = false;
            // The flag falls while nothing can fail.
            let idle = self.kernels.while_idle(|| {
                free = far.reclaim();
                self.abandoned.store(!free, Ordering::Relaxed);
            });
            free || !idle
        });
        // What the caller does next reports a broken job.
        drop(settled);
    }

    /// What carries out operations on GPU memory, where the heap is some.
    pub(crate) fn engine(&self) -> Option<&GpuEngine> {
        self.engine.as_ref()
    }

    /// What the fast path of a client needs: nobody is near to a host that cannot touch the memory, nor to
    /// one whose accesses are checked.
    pub(crate) fn view(&self) -> rushmem_view_t {
        let is_direct = self.reached == Reached::Host;
        let (near_first, near_count) = if is_direct { self.near.run() } else { (self.me, 0) };
        rushmem_view_t {
            my_pe: self.me,
            n_pes: self.n,
            near_first,
            near_count,
            heap_base: self.symmetric.base() as u64,
            stride: self.symmetric.stride() as u64,
            broken: self.health.broken_word().as_ptr(),
            device: if self.device.gpu().is_some() { RUSHMEM_DEVICE_CUDA } else { RUSHMEM_DEVICE_CPU },
            gpu: self.device.gpu().map_or(-1, |cuda| cuda.facts().ordinal as i32),
        }
    }

    /// The near PEs, as clients see them.
    pub(crate) fn near_pes(&self) -> rushmem_near_t {
        let (first, count) = self.near.run();
        let run = rushmem_near_t {
            shape: RUSHMEM_NEAR_RUN,
            count,
            first,
            step: 1,
            inverse: 1,
            shift: 0,
            apart: self.near.apart(),
            distances: std::ptr::null(),
        };
        let (count, first) = (self.near.count() as i32, self.near.first());
        match self.near.shape() {
            NearForm::Run => run,
            NearForm::Steps(s) => rushmem_near_t {
                shape: RUSHMEM_NEAR_STEPS,
                count,
                first,
                step: s.step as i32,
                inverse: s.inverse,
                shift: s.shift,
                ..run
            },
            NearForm::Table(table) => rushmem_near_t {
                shape: RUSHMEM_NEAR_TABLE,
                count,
                first,
                step: 0,
                distances: table.as_ptr(),
                ..run
            },
        }
    }

    /// `Ok` where `pe` is one.
    #[inline]
    pub(crate) fn check_pe(&self, pe: i32) -> Result<()> {
        if (pe as u32) < self.n as u32 {
            return Ok(());
        }
        Err(err!(BAD_PE, "PE {pe} does not exist: this job has PEs 0 to {}", self.n - 1))
    }

    /// How `pe` is reached.
    pub(crate) fn peer(&self, pe: i32) -> Result<&Peer> {
        self.check_pe(pe)?;
        Ok(&self.peers[pe as usize])
    }

    /// Where this PE itself has `[ptr, ptr + bytes)`, which must lie in one live allocation (or registered
    /// region) of its. Zero bytes may be anywhere.
    #[inline]
    pub(crate) fn check_local(&self, ptr: usize, bytes: usize) -> Result<usize> {
        if bytes == 0 {
            return Ok(ptr);
        }
        self.symmetric.find(ptr, bytes)
    }

    /// [`World::check_local`] of any memory: `None` where it is not symmetric.
    #[inline]
    pub(crate) fn find_local(&self, ptr: usize, bytes: usize) -> Option<usize> {
        self.symmetric.find_any(ptr, bytes).ok().flatten()
    }

    /// Where PE `pe`'s copy of `[ptr, ptr + bytes)` is, and how it is reached: by that address, or by that
    /// offset in its stride. Checks the PE, the range, and that the job is whole.
    #[inline(always)]
    pub(crate) fn route(&self, ptr: usize, bytes: usize, pe: i32) -> Result<(usize, Reached)> {
        let Some(distance) = self.near.distance(pe) else { return self.far_route(ptr, bytes, pe) };
        self.health.check()?;
        let own = self.check_local(ptr, bytes)?;
        let at = own.wrapping_add(distance as usize);
        Ok(match self.reached {
            Reached::Gpu => {
                let slot = self.near.slot(pe);
                let elsewhere = slot.and_then(|slot| self.symmetric.elsewhere(own, slot));
                (elsewhere.unwrap_or(at), Reached::Gpu)
            }
            reached => (at, reached),
        })
    }

    /// The PEs whose memory is mapped here.
    pub(crate) fn near(&self) -> &Arc<Near> {
        &self.near
    }

    /// The same for a PE whose memory is not.
    #[cold]
    fn far_route(&self, ptr: usize, bytes: usize, pe: i32) -> Result<(usize, Reached)> {
        self.check_pe(pe)?;
        self.health.check()?;
        let own = self.check_local(ptr, bytes)?;
        if self.far.is_none() {
            return Err(err!(INTERNAL, "no network, but PE {pe} is not mapped"));
        }
        Ok((self.symmetric.far_offset(own) as usize, Reached::Net))
    }

    /// The way to PEs whose memory is not mapped, where there are any.
    pub(crate) fn far(&self) -> Option<&Arc<Far>> {
        self.far.as_ref()
    }

    /// The offset of `ptr` in this PE's heap (or its alias', for registered memory), for texts.
    pub(crate) fn offset_of(&self, ptr: usize) -> Option<usize> {
        self.symmetric.offset_of(ptr)
    }

    fn enter(&self) -> Result<Entered<'_>> {
        self.health.check()?;
        self.team.rounds().enter(&self.rounds)
    }

    /// Collective: every PE has entered. `call` is `BarrierAll` or `SyncAll`, so that mixing them is seen.
    #[inline]
    pub(crate) fn sync_all(&self, call: Call) -> Result<()> {
        self.enter()?.round(call, [0; 4])
    }

    /// Collective: zeroed symmetric memory; `None` for zero bytes. A barrier, as `free` is: what was put
    /// before either has arrived, so that it cannot meet the memory's next owner.
    pub(crate) fn alloc(&self, bytes: usize, align: usize) -> Result<Option<usize>> {
        order::quiet(self)?;
        let at = self.symmetric.alloc(bytes, align, &mut self.enter()?, &self.links)?;
        if let (Some(check), Some(at)) = (&self.check, at) {
            check.allocated("alloc", at - self.symmetric.base(), bytes);
        }
        Ok(at)
    }

    /// Collective: gives an allocation back.
    pub(crate) fn free(&self, at: Option<usize>) -> Result<()> {
        order::quiet(self)?;
        self.symmetric.free(at, &mut self.enter()?)?;
        if let (Some(check), Some(at)) = (&self.check, at) {
            check.freed("free", at - self.symmetric.base());
        }
        Ok(())
    }

    /// Collective: user memory becomes symmetric; its alias.
    ///
    /// # Safety
    /// Nobody else touches the range during the call.
    pub(crate) unsafe fn register(&self, addr: usize, bytes: usize) -> Result<usize> {
        let mut round = self.enter()?;
        // SAFETY: the caller lets nobody touch the range during the call.
        let alias = unsafe { self.symmetric.register(addr, bytes, &mut round, &self.links, &self.cards) }?;
        drop(round);
        if let Some(check) = &self.check {
            check.allocated("register", alias - self.symmetric.base(), bytes);
        }
        Ok(alias)
    }

    /// Collective: the opposite of [`World::register`].
    pub(crate) fn unregister(&self, addr: usize) -> Result<()> {
        // What is in flight must not meet addresses where nothing is mapped any more.
        let done = order::quiet(self);
        let offset = self.check.as_ref().and_then(|_| self.offset_of(addr));
        self.symmetric.unregister(addr, done, &mut self.enter()?)?;
        if let (Some(check), Some(offset)) = (&self.check, offset) {
            check.freed("unregister", offset);
        }
        Ok(())
    }

    /// What keeps the memory mapped that is mapped here, past the world's end.
    pub(crate) fn keep_memory(&self) -> Arc<Window> {
        Arc::clone(self.symmetric.window())
    }

    /// The heap in numbers.
    pub(crate) fn heap_info(&self) -> rushmem_heap_info_t {
        self.symmetric.info()
    }

    /// Collective: leaves in good order. On an error the world is as before.
    pub(crate) fn finalize(&self) -> Result<()> {
        self.kernels.check_idle()?;
        // What was not waited for ends well before the heap goes.
        order::quiet(self)?;
        self.tell_teams();
        let mut call = self.enter()?;
        call.round(Call::Finalize, [0; 4])?;
        self.symmetric.let_go(&mut call)?;
        drop(call);
        // From here on every PE leaves; one that is faster than this PE is not dead.
        self.health.leave();
        // No PE goes before each knows that all came; the network's threads go on meanwhile.
        let heard = self.far.as_ref().map_or(Ok(()), |_| self.boot.barrier());
        let left = heard.and(self.boot.finalize());
        self.links.goodbye();
        between::remember(&self.config, self.links.mates());
        if let Err(e) = left {
            log::warn!("{}: leaving the bootstrap: {e}", self.health.who());
        }
        Ok(())
    }

    /// The end of a world that has been finalised or aborted.
    pub(crate) fn end(self: Box<Self>) {
        if !self.kernels.close() {
            log::error!("{}: its memory stays until the process ends", self.health.who());
            Box::leak(self);
        }
    }

    /// Local, for the end of the process: no thread of the world's calls the network's library or the GPU's
    /// driver any more, whose exit handlers may be next. Nothing is given back.
    pub(crate) fn halt(&self) {
        self.links.halt();
        if let Some(far) = &self.far {
            far.halt();
        }
        self.flush_trace();
    }

    /// Local: tells the others that this PE leaves because of `why`; its own waits and kernels end.
    pub(crate) fn abort(&self, why: &str) {
        self.health.abandon(why);
        self.boot.abort(&format!("{} left the job: {why}", self.health.who()));
        self.links.abort(why);
        self.flush_trace();
    }

    /// Local: this PE leaves because of `why`, and the others may be about to leave, too. The network first
    /// sends what it holds; then the others learn that this PE leaves. A PE that still needs the job gets an
    /// error that says so.
    pub(crate) fn leave(&self, why: &str) {
        /// What is not sent when this PE is gone is lost; but its exit must not take long.
        const LEAST: Duration = Duration::from_millis(100);
        const MOST: Duration = Duration::from_secs(1);
        if let (Some(far), true) = (&self.far, self.health.check_all_here().is_ok()) {
            far.linger(LEAST, MOST);
        }
        self.health.abandon(why);
        self.boot.abort(&left_text(self.health.who(), why));
        self.links.leave(why);
        self.flush_trace();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tell_retries();
        if let Some(check) = &self.check {
            check.end();
        }
        if let Some(timeline) = self.trace.as_ref().and_then(|trace| trace.timeline()) {
            timeline.close();
        }
    }
}
