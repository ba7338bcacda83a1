//! The exchange: made once for a team, then dispatch and combine on streams, round after round.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use rushmem::{ByValue, Device, Kernel, KernelArgs, Launch, Max, Module, Stream, SymSlice, Team};

use crate::buffers::{aligned, Products, Received, Tokens};
use crate::config::{Config, Layout, MOST_RANKS};
use crate::error::{Error, Failure, Result, Why};
use crate::memory::{Exchange, FAILURE_WORDS, MOST_BLOCKS, MOST_WARPS_FAR};
use crate::source::source;

/// Which call comes next.
const IDLE: u8 = 0;
const SENT: u8 = 1;
const RECEIVED: u8 = 2;
const RETURNING: u8 = 3;

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
    config: Config,
    exchange: Exchange,
    memory: SymSlice<'w, u64>,
    module: Module<'w>,
    launch: Launch,
    shared_bytes: usize,
    /// Which call comes next; held while one is put on its stream.
    state: Mutex<u8>,
}

/// Threads of a block and most blocks of a launch: on a GPU two blocks a multiprocessor of an H200.
const GPU_SHAPE: (u32, u32) = (264, 256);
/// On the CPU device, where every block is a thread of the operating system.
const CPU_SHAPE: (u32, u32) = (3, 64);
/// Bytes of shared memory of which a multiprocessor has no room for two.
const LARGE: usize = 112 << 10;
/// Packets, or as many bytes, that are a block's least share of a row: a warp's.
const SHARE: u32 = 32;

const KERNELS: [&str; 6] =
    ["dispatch", "dispatch_send", "dispatch_receive", "combine", "combine_send", "combine_receive"];

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
        let far = far[0] != 0;
        let on_gpu = world.device() != Device::Cpu;
        let (most, threads) = if on_gpu { GPU_SHAPE } else { CPU_SHAPE };
        let shared_bytes = config.shared_bytes(ranks) as usize;
        // A block that has a multiprocessor for itself has more warps.
        let threads = config.threads.unwrap_or(if shared_bytes > LARGE { 2 * threads } else { threads });
        let parts = config.parts(ranks, far);
        let memory = world.alloc_aligned::<u64>(parts.bytes.div_ceil(8) as usize, 128)?;
        let exchange = parts.offsets.at(memory.as_ptr().addr() as u64);
        // More blocks than parts of rows have nothing to do, but for the one that counts.
        let rows = u64::from(ranks) * u64::from(config.max_tokens);
        let parts = rows * u64::from(exchange.row_words.max(exchange.unit_bytes / 8).div_ceil(SHARE));
        let mut blocks = u64::from(config.blocks.unwrap_or(most)).min(parts + 1).min(u64::from(MOST_BLOCKS));
        if far {
            blocks = blocks.min(u64::from((MOST_WARPS_FAR / (threads / 32)).max(1)));
        }
        // As many registers a thread as that leaves.
        let blocks_each = (512 / threads).max(1);
        let module = world.load(source(&config, threads, blocks_each))?;
        for name in KERNELS {
            let most = module.kernel(name)?.max_blocks(threads, shared_bytes)?;
            if most == 0 {
                return Err(Error::Invalid(format!(
                    "{rows} tokens of all ranks with top_k {} need {shared_bytes} bytes of shared memory for a \
                     block of {threads} threads, more than the device has: lower max_tokens",
                    config.top_k
                )));
            }
            blocks = blocks.min(most);
        }
        let launch = Launch::new(blocks as u32, threads);
        let state = Mutex::new(IDLE);
        Ok(AllToAll { team, config, exchange, memory, module, launch, shared_bytes, state })
    }

    /// The team.
    pub fn team(&self) -> &'t Team<'w> {
        self.team
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
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
        if absent.len() != self.team.n_pes() as usize {
            let (flags, ranks) = (absent.len(), self.team.n_pes());
            return Err(Error::Invalid(format!("{flags} flags for {ranks} ranks")));
        }
        if absent[self.team.my_pe() as usize] {
            return Err(Error::Invalid(format!("rank {} takes itself out", self.team.my_pe())));
        }
        self.exchange.absent = [0; MOST_RANKS as usize / 64];
        for (rank, _) in absent.iter().enumerate().filter(|(_, absent)| **absent) {
            self.exchange.absent[rank / 64] |= 1 << (rank % 64);
        }
        Ok(())
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
        let (tokens, to) = (tokens.checked(&self.config)?, to.checked()?);
        self.step("dispatch", &[IDLE, RECEIVED], RECEIVED, || {
            let arguments = (self.team, ByValue(self.exchange), ByValue(tokens), ByValue(to));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("dispatch", true, arguments, stream) }
        })
    }

    /// The first half of [`dispatch`](AllToAll::dispatch): sends, and waits for nothing.
    ///
    /// # Errors
    /// As for [`dispatch`](AllToAll::dispatch).
    ///
    /// # Safety
    /// As for [`dispatch`](AllToAll::dispatch).
    pub unsafe fn dispatch_send(&self, tokens: &Tokens, stream: &Stream<'_>) -> Result<()> {
        let tokens = tokens.checked(&self.config)?;
        self.step("dispatch_send", &[IDLE, RECEIVED], SENT, || {
            let arguments = (self.team, ByValue(self.exchange), ByValue(tokens));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("dispatch_send", false, arguments, stream) }
        })
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
        let to = to.checked()?;
        self.step("dispatch_receive", &[SENT], RECEIVED, || {
            let arguments = (self.team, ByValue(self.exchange), ByValue(to));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("dispatch_receive", true, arguments, stream) }
        })
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
    /// and in graphs [`Why::CombinedTwice`].
    ///
    /// # Safety
    /// As for [`dispatch`](AllToAll::dispatch).
    pub unsafe fn combine(&self, y: *const c_void, out: *mut c_void, stream: &Stream<'_>) -> Result<()> {
        aligned("y", y.addr(), 16)?;
        aligned("out", out.addr(), 16)?;
        self.step("combine", &[RECEIVED], IDLE, || {
            let arguments = (self.team, ByValue(self.exchange), ByValue(Products { y, out }));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("combine", false, arguments, stream) }
        })
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
        aligned("y", y.addr(), 16)?;
        self.step("combine_send", &[RECEIVED], RETURNING, || {
            let out = std::ptr::null_mut();
            let arguments = (self.team, ByValue(self.exchange), ByValue(Products { y, out }));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("combine_send", false, arguments, stream) }
        })
    }

    /// The second half of [`combine`](AllToAll::combine): adds up what has come.
    ///
    /// # Errors
    /// As for [`combine`](AllToAll::combine).
    ///
    /// # Safety
    /// As for [`combine`](AllToAll::combine).
    pub unsafe fn combine_receive(&self, out: *mut c_void, stream: &Stream<'_>) -> Result<()> {
        aligned("out", out.addr(), 16)?;
        self.step("combine_receive", &[RETURNING], IDLE, || {
            let y = std::ptr::null();
            let arguments = (self.team, ByValue(self.exchange), ByValue(Products { y, out }));
            // SAFETY: the caller vouches for its memory, the exchange has its own.
            unsafe { self.put("combine_receive", false, arguments, stream) }
        })
    }

    /// Whether all rounds since the last call were carried out. Call it when the stream has been
    /// synchronised. Local; all ranks get the same.
    ///
    /// # Errors
    /// [`Error::Round`]: the first that was refused. Later ones were carried out, or refused on their own
    /// account.
    pub fn check(&self) -> Result<()> {
        let begin = (self.exchange.failure - self.memory.as_ptr().addr() as u64) as usize / 8;
        let words = self.memory.slice(begin..begin + FAILURE_WORDS)?;
        let said = words.to_vec()?;
        let (rank, about, count) = (said[2] as u32, said[3], said[4]);
        let why = match said[0] {
            0 => return Ok(()),
            1 => Why::OverCapacity {
                rank,
                expert: (!matches!(self.config.layout, Layout::Flat { .. })).then_some(about as u32),
                count,
                capacity: self.exchange.capacity.into(),
            },
            2 => Why::TooManyTokens { rank, count, max_tokens: self.config.max_tokens.into() },
            3 => Why::NoSuchExpert { rank, token: about },
            _ => Why::CombinedTwice,
        };
        words.slice(..1)?.write(&[0])?;
        Err(Error::Round(Failure { round: said[1], why }))
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
    fn step(&self, name: &str, after: &[u8], to: u8, put: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !after.contains(&state) {
            let expected = match *state {
                IDLE => "dispatch or dispatch_send",
                SENT => "dispatch_receive",
                RECEIVED => "combine, combine_send, or the next dispatch",
                _ => "combine_receive",
            };
            return Err(Error::Order(format!("{name} is out of turn: what comes next is {expected}")));
        }
        put()?;
        *state = to;
        Ok(())
    }

    /// # Safety
    /// The arguments are those of the kernel, whose memory lives until the launch has ended.
    unsafe fn put(&self, name: &str, shared: bool, with: impl KernelArgs, on: &Stream<'_>) -> Result<()> {
        let kernel: Kernel<'_> = self.module.kernel(name)?;
        let launch = self.launch.shared_bytes(if shared { self.shared_bytes } else { 0 });
        // SAFETY: as this function's.
        Ok(unsafe { kernel.launch_on(launch, with, on) }?)
    }
}
