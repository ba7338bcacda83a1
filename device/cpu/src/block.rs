//! Runs one block on the calling OS thread: each CUDA thread is a coroutine, resumed in turn until it asks
//! for something. A barrier or a warp collective takes it out of the queue until the others have come; a spin
//! puts it at the end. When everything in the queue has only spun, the OS thread gives its core away; when
//! the queue is empty and threads are left, they wait for each other and the launch fails.

mod looks;
mod scopes;
mod still;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;

use corosensei::{Coroutine, CoroutineResult};

use crate::check::{self, CheckedBlock};
use crate::context::{self, BlockContext, ThreadContext};
use crate::hooks::{Fiber, Yielder};
use crate::idle::Idle;
use crate::launch::Launch;
use crate::os_thread::{self, OsThread};
use crate::outcome::Cause;
use crate::stack::{Slab, Slot};
use crate::waiting;
use crate::warp::Warp;
use still::Still;

/// Alignment of dynamic shared memory.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct SharedLine([u8; 128]);

struct Running {
    coroutine: Coroutine<(), (), (), Slot>,
    slot: usize,
}

/// What a block needs, kept by its OS thread from launch to launch.
#[derive(Default)]
struct Workspace {
    stacks: Option<Slab>,
    shared: Vec<SharedLine>,
    threads: Vec<ThreadContext>,
    running: Vec<Option<Running>>,
    fibers: Vec<Fiber>,
    warps: Vec<Warp>,
    queue: VecDeque<u32>,
    waiting: Vec<u32>,
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// Runs block number `index` (x fastest) of `launch`. False: the launch was over before all threads had
/// exited.
pub(crate) fn run(launch: &Launch, index: u64) -> bool {
    WORKSPACE.with_borrow_mut(|workspace| {
        let context = workspace.prepare(launch, index);
        let mut block = Block {
            launch,
            space: workspace,
            context: &context,
            live: 0,
            voted: 0,
            spun: 0,
            waits: true,
            os_thread: os_thread::of_this_thread(),
            still: Still::new(launch.reports()),
            check: None,
        };
        block.start(index);
        let finished = block.turn().is_some();
        if let Some(check) = &mut block.check {
            check.end();
        }
        if let Some(os_thread) = block.os_thread {
            os_thread.end();
        }
        if !finished {
            block.abandon();
        }
        match workspace.stacks.take() {
            Some(stacks) if finished => stacks.give_back(),
            Some(stacks) => stacks.keep_away(),
            None => {}
        }
        // SAFETY: the slot is this OS thread's own variable in the loaded module.
        unsafe { *(launch.code.slot)() = ptr::null_mut() };
        finished
    })
}

impl Workspace {
    fn prepare(&mut self, launch: &Launch, index: u64) -> BlockContext {
        // Beside the memory of a launch that is checked nobody has anything.
        let guard = if launch.check.is_some() { check::GUARD } else { 0 };
        let lines = (launch.shared + 2 * guard).div_ceil(size_of::<SharedLine>());
        if self.shared.len() < lines {
            self.shared.resize(lines, SharedLine([0; 128]));
        }
        let [x, y, _] = launch.grid.map(u64::from);
        BlockContext {
            grid_dim: launch.grid,
            block_dim: launch.block,
            block_idx: [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32],
            shared_bytes: launch.shared as u32,
            shared: self.shared[guard / size_of::<SharedLine>()..].as_mut_ptr().cast(),
            state: launch.state,
            grid_barrier: launch.grid_barrier(),
        }
    }
}

struct Block<'a> {
    launch: &'a Launch,
    space: &'a mut Workspace,
    context: &'a BlockContext,
    live: usize,
    /// Threads at the barrier whose predicate holds.
    voted: u32,
    /// Threads in a row that only spun.
    spun: usize,
    /// All of these were in a wait, not in an atomic or a fence that may be part of one.
    waits: bool,
    /// How handlers and the watch see this OS thread.
    os_thread: Option<&'static OsThread>,
    still: Still,
    /// Of a launch that is checked.
    check: Option<Box<CheckedBlock>>,
}

impl Block<'_> {
    fn start(&mut self, index: u64) {
        let count = self.launch.threads;
        let [width, height, _] = self.launch.block;
        let space = &mut *self.space;
        space.fibers.clear();
        space.fibers.extend((0..count).map(|_| Fiber {
            yielder: Cell::new(ptr::null()),
            launch: ptr::from_ref(self.launch),
            probe: Cell::new(ptr::null_mut()),
        }));
        let fibers = &space.fibers;
        space.threads.clear();
        space.threads.extend((0..count as u32).map(|linear| ThreadContext {
            block: ptr::from_ref(self.context),
            thread_idx: [linear % width, linear / width % height, linear / width / height],
            linear,
            ticks: 0,
            request: context::SPIN,
            mask: 0,
            woke: 0,
            result: 0,
            value: 0,
            values: ptr::null(),
            what: ptr::null(),
            file: ptr::null(),
            line: 0,
            vote: 0,
            seen_at: ptr::null(),
            seen: 0,
            scheduler: ptr::from_ref(&fibers[linear as usize]).cast(),
            check: ptr::null_mut(),
        }));
        if let Some(launch) = &self.launch.check {
            // SAFETY: a function of the loaded module; its answer is this OS thread's variable.
            unsafe { (self.launch.code.slot)() };
            let shared = self.context.shared as usize;
            let shared = shared..shared + self.launch.shared;
            let grid_barrier = self.context.grid_barrier;
            let grid_barrier = (!grid_barrier.is_null()).then_some(grid_barrier as usize);
            let check = self.check.insert(CheckedBlock::begin(launch, index, count, shared, grid_barrier));
            for (i, thread) in space.threads.iter_mut().enumerate() {
                thread.check = check.thread(i).cast();
            }
        }
        space.running.clear();
        space.running.resize_with(count, || None);
        let warps = count.div_ceil(32);
        space.warps.truncate(warps);
        space.warps.resize_with(warps, Warp::default);
        for (i, warp) in space.warps.iter_mut().enumerate() {
            warp.reset((count - 32 * i).min(32) as u32);
        }
        space.queue.clear();
        space.queue.extend(0..count as u32);
        space.waiting.clear();
        self.live = count;
    }

    /// Runs to the end. `None`: the launch is over before the block is.
    fn turn(&mut self) -> Option<()> {
        match Slab::for_block(self.launch.threads, self.launch.limits.stack) {
            Ok(slab) => self.space.stacks = Some(slab),
            Err(error) => return self.fail(no_stack(&error)),
        }
        // SAFETY: a function of the loaded module; the answer is this OS thread's own variable.
        let current = unsafe { (self.launch.code.slot)() };
        let contexts = self.space.threads.as_mut_ptr();
        if let (Some(os_thread), Some(stacks)) = (self.os_thread, &self.space.stacks) {
            os_thread.begin(self.launch, self.context, current, stacks.span());
        }
        let mut idle = Idle::default();
        while self.live > 0 {
            let Some(thread) = self.space.queue.pop_front() else {
                let text = self.deadlock(contexts);
                return self.fail(text);
            };
            if self.launch.is_over() {
                return None;
            }
            // SAFETY: `contexts` is the block's thread table, which nobody resizes before the block's end;
            // the scheduler and the one running coroutine take turns at it, both through this pointer.
            let context = unsafe { contexts.add(thread as usize) };
            // SAFETY: `current` is this OS thread's slot, and `context` one of the block's thread table.
            unsafe { *current = context };
            if let Some(os_thread) = self.os_thread {
                os_thread.turn();
            }
            let result = self.resume(thread, contexts)?;
            if let Some(check) = &mut self.check {
                check.settle();
            }
            match result {
                CoroutineResult::Return(()) => {
                    self.exited(thread, contexts);
                    self.spun = 0;
                    idle.progress();
                }
                CoroutineResult::Yield(()) => self.serve(thread, contexts, &mut idle)?,
            }
        }
        Some(())
    }

    /// Lets `thread` run to its next request, on a stack of its own from its first turn on.
    fn resume(&mut self, thread: u32, contexts: *mut ThreadContext) -> Option<CoroutineResult<(), ()>> {
        let space = &mut *self.space;
        let stacks = space.stacks.as_mut().expect("made before the first turn");
        let running = &mut space.running[thread as usize];
        if running.is_none() {
            let slot = match stacks.take() {
                Ok(slot) => slot,
                Err(error) => return self.fail(no_stack(&error)),
            };
            let (code, args) = (self.launch.code.run, self.launch.args);
            // SAFETY: the table's entry of one of the block's threads, which does not run.
            let fiber = ptr::from_ref(unsafe { Fiber::of(contexts.add(thread as usize)) });
            let index = slot.index();
            let coroutine = Coroutine::with_stack(slot, move |yielder: &Yielder, ()| {
                // SAFETY: the fiber outlives the block's coroutines, and the arguments the launch; their
                // number and types are those of the kernel, as the launch's caller vouched.
                unsafe {
                    (*fiber).yielder.set(yielder);
                    code(args);
                }
            });
            *running = Some(Running { coroutine, slot: index });
        }
        let fiber = running.as_mut().expect("made above");
        let result = fiber.coroutine.resume(());
        if matches!(result, CoroutineResult::Return(())) {
            let slot = fiber.slot;
            *running = None;
            stacks.give(slot);
        }
        Some(result)
    }

    /// Acts on what a suspended thread asked for.
    fn serve(&mut self, thread: u32, contexts: *mut ThreadContext, idle: &mut Idle) -> Option<()> {
        // SAFETY: the table's entry of one of the block's threads, which is suspended.
        let context = unsafe { &mut *contexts.add(thread as usize) };
        let woke = std::mem::take(&mut context.woke);
        match context.request {
            context::SPIN | context::TICK | context::PREEMPT => {
                self.space.queue.push_back(thread);
                let moved = context.request == context::PREEMPT && self.interrupted(thread);
                if moved || woke & context::WOKE != 0 {
                    (self.spun, self.waits) = (0, true);
                    idle.progress();
                }
                self.spun += 1;
                self.waits &= context.request == context::SPIN;
                let mut is_round = self.spun >= self.space.queue.len();
                if is_round {
                    idle.step(self.waits);
                    (self.spun, self.waits) = (0, true);
                }
                is_round &= idle.still().0 != 0;
                return if is_round || woke & context::STALLED != 0 {
                    self.look_still(idle, woke, contexts)
                } else {
                    Some(())
                };
            }
            context::BARRIER => {
                self.space.warps[thread as usize / 32].has_read(thread % 32);
                self.voted += u32::from(context.value != 0);
                self.space.waiting.push(thread);
                self.pass_barrier(contexts);
            }
            context::WARP => {
                let warp = &mut self.space.warps[thread as usize / 32];
                warp.has_read(thread % 32);
                match warp.arrive(thread % 32, context.mask, context.value, context.what) {
                    Ok(None) => {}
                    Ok(Some(released)) => {
                        let first = thread / 32 * 32;
                        if let Some(check) = &mut self.check {
                            check.warp(first as usize, released.lanes);
                        }
                        release(&mut self.space.queue, contexts, first, released.lanes, released.values);
                        self.met_in_warp(first, released.lanes, released.mask, contexts);
                    }
                    Err(text) => {
                        let place = Some((self.context.block_idx, context.thread_idx));
                        self.launch.fail(Cause::Text(text), place);
                        return None;
                    }
                }
            }
            // EXIT: the launch is over already.
            _ => return None,
        }
        (self.spun, self.waits) = (0, true);
        idle.progress();
        Some(())
    }

    fn exited(&mut self, thread: u32, contexts: *mut ThreadContext) {
        self.live -= 1;
        let first = thread / 32 * 32;
        let Workspace { warps, queue, .. } = &mut *self.space;
        let warp = &mut warps[thread as usize / 32];
        warp.has_read(thread % 32);
        let (check, mut met) = (&mut self.check, Vec::new());
        warp.exit(thread % 32, |released| {
            if let Some(check) = check {
                check.warp(first as usize, released.lanes);
                met.push((released.lanes, released.mask));
            }
            release(queue, contexts, first, released.lanes, released.values);
        });
        met.into_iter().for_each(|(lanes, mask)| self.met_in_warp(first, lanes, mask, contexts));
        self.pass_barrier(contexts);
    }

    /// Opens the barrier when every live thread is there (CUDA: exited threads count as arrived).
    fn pass_barrier(&mut self, contexts: *mut ThreadContext) {
        let arrived = self.space.waiting.len();
        if arrived == 0 || arrived < self.live {
            return;
        }
        if let Some(check) = &mut self.check {
            check.barrier();
            let threads = self.space.waiting.clone();
            self.met(&threads, contexts);
        }
        let voted = std::mem::take(&mut self.voted);
        let Workspace { waiting, queue, .. } = &mut *self.space;
        for thread in waiting.drain(..) {
            // SAFETY: the table's entry of one of the block's threads, which is suspended.
            let context = unsafe { &mut *contexts.add(thread as usize) };
            context.result = match context.vote {
                0 => voted,
                1 => u32::from(voted as usize == arrived),
                _ => u32::from(voted > 0),
            };
            queue.push_back(thread);
        }
    }

    fn deadlock(&self, contexts: *mut ThreadContext) -> String {
        let space = &*self.space;
        let waiting: Vec<ThreadContext> = (0..self.launch.threads)
            .filter(|&thread| space.running[thread].is_some())
            // SAFETY: entries of the block's thread table, whose threads are all suspended.
            .map(|thread| unsafe { *contexts.add(thread) })
            .collect();
        waiting::deadlock(&waiting, &space.warps, self.launch.threads)
    }

    /// Ends the launch for a reason that is the block's and not a thread's.
    fn fail<T>(&self, text: String) -> Option<T> {
        self.launch.fail(Cause::Text(text), Some((self.context.block_idx, [0; 3])));
        None
    }

    /// Drops every thread where it stands, as a GPU's trap does: no destructor of the kernel's runs.
    fn abandon(&mut self) {
        for running in &mut self.space.running {
            if let Some(mut running) = running.take() {
                // SAFETY: nothing of the kernel's frames is used again, and the closure on the stack owns
                // nothing.
                unsafe { running.coroutine.force_reset() };
            }
        }
    }
}

fn release(
    queue: &mut VecDeque<u32>,
    contexts: *mut ThreadContext,
    first: u32,
    lanes: u32,
    values: *const u64,
) {
    for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
        // SAFETY: the table's entry of one of the block's threads, which is suspended.
        let context = unsafe { &mut *contexts.add((first + lane) as usize) };
        context.result = lanes;
        context.values = values;
        queue.push_back(first + lane);
    }
}

fn no_stack(error: &std::io::Error) -> String {
    format!(
        "no memory for the stack of a CUDA thread ({error}): the process is at its limit of memory mappings \
         (vm.max_map_count) or memory; launch fewer threads or set a smaller RUSHMEM_CPU_STACK"
    )
}
