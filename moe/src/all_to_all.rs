//! The exchange: made once for a team, then dispatch and combine on streams, round after round.

use std::ffi::c_void;

use rushmem::{ByValue, Device, Kernel, KernelArgs, Launch, Max, Module, Source, Stream, SymSlice, Team};

use crate::buffers::{Received, Tokens};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::plan::{Call, Plan, Turns, ALIGN, SOURCE};

/// An exchange of tokens between the ranks of a team, which are its members in their order.
///
/// Each round is a [`dispatch`](AllToAll::dispatch) and, where results are wanted, the
/// [`combine`](AllToAll::combine) that answers it. All ranks make the same calls in the same order, on one
/// stream each, also those that have no tokens. Exchanges are independent of each other: those that are to be
/// under way at once are several values, each with memory of its own.
///
/// Calls only put launches on the stream. They neither wait nor allocate, so that CUDA graphs can hold them;
/// a graph may be launched any number of times. What goes wrong on the device is reported by the stream's
/// `synchronize`, and by [`check`](AllToAll::check).
///
/// The order of operations, and why a slow peer loses nothing, is argued in `kernels/exchange.h`.
#[must_use = "the exchange keeps its memory until free() or the end of the world"]
pub struct AllToAll<'t, 'w> {
    team: &'t Team<'w>,
    plan: Plan,
    memory: SymSlice<'w, u64>,
    module: Module<'w>,
    launch: Launch,
    turns: Turns,
}

impl<'t, 'w> AllToAll<'t, 'w> {
    /// An exchange of a team. Collective over *all PEs of the world*, because symmetric memory is: where
    /// there are several teams, each PE makes that of its own, of as many ranks and of one configuration.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that cannot be, before anything is done; what
    /// [`alloc`](rushmem::World::alloc) and [`load`](rushmem::World::load) report.
    pub fn new(team: &'t Team<'w>, config: Config) -> Result<AllToAll<'t, 'w>> {
        let (world, ranks) = (team.world(), team.n_pes());
        config.check(ranks)?;
        let near = world.near_pes()?.pes;
        let mut far = [u32::from(team.members().any(|pe| !near.contains(&pe)))];
        team.reduce_in_place(&mut far, Max)?;
        let mut plan = Plan::new(config, ranks, far[0] != 0, world.device() != Device::Cpu)?;
        let memory = world.alloc_aligned::<u64>(plan.bytes().div_ceil(8), ALIGN)?;
        plan.place(memory.as_ptr().addr());
        let (module, room) = loop {
            let source = Source::text(SOURCE).name("moe.cu");
            let module = world.load(plan.options().into_iter().fold(source, Source::option))?;
            let mut room = u64::MAX;
            for call in Call::ALL {
                let kernel = module.kernel(call.name())?;
                room = room.min(kernel.max_blocks(plan.threads(), plan.most_shared_bytes())?);
            }
            if room > 0 || !plan.less_shared() {
                break (module, room);
            }
            module.unload()?;
        };
        let launch = Launch::new(plan.blocks(room)?, plan.threads()).early();
        Ok(AllToAll { team, plan, memory, module, launch, turns: Turns::default() })
    }

    /// The team.
    pub fn team(&self) -> &'t Team<'w> {
        self.team
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.plan.config()
    }

    /// Blocks of each launch.
    pub fn blocks(&self) -> u32 {
        self.launch.grid.0[0]
    }

    /// Threads of each block.
    pub fn threads(&self) -> u32 {
        self.launch.block.0[0]
    }

    /// Takes ranks out of the exchange, or back in: those whose flag is true are neither sent to nor waited
    /// for, and their experts get nothing, from the next call on. All ranks that remain make the same call
    /// between the same rounds; a rank that is out makes no calls. A rank comes back only in a new exchange.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the flags are not one for each rank, or take this rank itself out.
    pub fn set_absent(&mut self, absent: &[bool]) -> Result<()> {
        self.plan.set_absent(absent, self.team.my_pe())
    }

    /// Sends this rank's tokens to the ranks of their experts, and receives those for its own: one launch.
    ///
    /// # Errors
    /// [`Error::Order`] where the last dispatch or combine was begun by halves and not ended, and
    /// [`Error::Invalid`] for addresses or counts that cannot be; nothing is put on the stream then.
    ///
    /// # Safety
    /// The memory is this PE's device's, as large as is said at each field, and is not used otherwise until
    /// the stream has come to the launch's end. (In a graph: whenever that is launched.) `x`, `experts`
    /// and `weights` may then be changed; what combine needs of them is kept.
    pub unsafe fn dispatch(&self, tokens: &Tokens, to: &Received, stream: &Stream<'_>) -> Result<()> {
        let (tokens, to) = (self.plan.tokens(tokens)?, self.plan.received(to)?);
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(tokens), ByValue(to));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::Dispatch, arguments, stream) }
    }

    /// The first half of [`dispatch`](AllToAll::dispatch): sends, and waits for nothing.
    ///
    /// # Errors
    /// As for [`dispatch`](AllToAll::dispatch).
    ///
    /// # Safety
    /// As for [`dispatch`](AllToAll::dispatch).
    pub unsafe fn dispatch_send(&self, tokens: &Tokens, stream: &Stream<'_>) -> Result<()> {
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(self.plan.tokens(tokens)?));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::DispatchSend, arguments, stream) }
    }

    /// The second half of [`dispatch`](AllToAll::dispatch): receives. What runs between the halves has the
    /// device for itself.
    ///
    /// # Errors
    /// As for [`dispatch`](AllToAll::dispatch).
    ///
    /// # Safety
    /// As for [`dispatch`](AllToAll::dispatch).
    pub unsafe fn dispatch_receive(&self, to: &Received, stream: &Stream<'_>) -> Result<()> {
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(self.plan.received(to)?));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::DispatchReceive, arguments, stream) }
    }

    /// Brings the results of a dispatch back to the ranks of their tokens, and adds them up: one launch.
    ///
    /// `y` has the results of this rank's experts where dispatch left the tokens, of `hidden` columns of
    /// [`Config::combine`]'s first type. `out` gets `[count][hidden]` of its second: for each of this rank's
    /// tokens the sum over its experts of weight times result, in f32: on each rank in the order of the
    /// token's experts, then in the order of ranks, each product and sum rounded by itself. A token without
    /// experts gets zeros.
    ///
    /// # Errors
    /// As for [`dispatch`](AllToAll::dispatch). A second combine of one dispatch is [`Error::Order`] here,
    /// and in graphs [`Why::CombinedTwice`](crate::Why::CombinedTwice).
    ///
    /// # Safety
    /// As for [`dispatch`](AllToAll::dispatch).
    pub unsafe fn combine(&self, y: *const c_void, out: *mut c_void, stream: &Stream<'_>) -> Result<()> {
        let products = self.plan.products(y, out)?;
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(products));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::Combine, arguments, stream) }
    }

    /// The first half of [`combine`](AllToAll::combine): pushes this rank's results to the tokens' homes, and
    /// waits for nothing.
    ///
    /// # Errors
    /// As for [`combine`](AllToAll::combine).
    ///
    /// # Safety
    /// As for [`combine`](AllToAll::combine).
    pub unsafe fn combine_send(&self, y: *const c_void, stream: &Stream<'_>) -> Result<()> {
        let products = self.plan.products(y, std::ptr::null_mut())?;
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(products));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::CombineSend, arguments, stream) }
    }

    /// The second half of [`combine`](AllToAll::combine): adds up what has come.
    ///
    /// # Errors
    /// As for [`combine`](AllToAll::combine).
    ///
    /// # Safety
    /// As for [`combine`](AllToAll::combine).
    pub unsafe fn combine_receive(&self, out: *mut c_void, stream: &Stream<'_>) -> Result<()> {
        let products = self.plan.products(std::ptr::null(), out)?;
        let arguments = (self.team, ByValue(self.plan.exchange()), ByValue(products));
        // SAFETY: the caller vouches for its memory, the exchange has its own.
        unsafe { self.put(Call::CombineReceive, arguments, stream) }
    }

    /// Whether all rounds since the last call were carried out. Call it when the stream has been
    /// synchronised. Local; all ranks get the same.
    ///
    /// # Errors
    /// [`Error::Round`]: the first that was refused. Later ones were carried out, or refused on their own
    /// account.
    pub fn check(&self) -> Result<()> {
        let words = self.memory.slice(self.plan.failure_words())?;
        let Some(failure) = self.plan.failure(&words.to_vec()?) else { return Ok(()) };
        words.slice(..1)?.write(&[0])?;
        Err(Error::Round(failure))
    }

    /// Counts on as though `rounds` rounds had been, for tests of numbers that take years to come to.
    /// Collective over the team, between rounds whose streams have been synchronised.
    ///
    /// # Errors
    /// As [`SymSlice::write`] and [`Team::barrier`].
    #[doc(hidden)]
    pub fn skip_to(&self, rounds: u64) -> Result<()> {
        self.team.barrier()?;
        for words in self.plan.round_words() {
            self.memory.slice(words)?.fill(rounds)?;
        }
        Ok(self.team.barrier()?)
    }

    /// Gives the memory back. Collective like [`new`](AllToAll::new); launches have ended.
    ///
    /// # Errors
    /// As [`SymSlice::free`].
    pub fn free(self) -> Result<()> {
        self.module.unload()?;
        Ok(self.memory.free()?)
    }

    /// Carries a call out in its turn.
    ///
    /// # Safety
    /// The arguments are those of the kernel, whose memory lives until the launch has ended.
    unsafe fn put(&self, call: Call, with: impl KernelArgs, on: &Stream<'_>) -> Result<()> {
        let turn = self.turns.begin(call)?;
        let kernel: Kernel<'_> = self.module.kernel(call.name())?;
        let launch = self.launch.shared_bytes(self.plan.shared_bytes(call));
        // SAFETY: as this function's.
        unsafe { kernel.launch_on(launch, with, on) }?;
        turn.done();
        Ok(())
    }
}
