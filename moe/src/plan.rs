//! The plan of an exchange: its memory, its kernels' text, its launches and their turns, as values. Nothing
//! here calls the runtime, so that every front end follows one plan: [`AllToAll`](crate::AllToAll) by the
//! Rust API, the Python package by the C ABI.
//!
//! A front end makes a [`Plan`], allocates its memory, zeroed, at a multiple of [`ALIGN`], loads its text,
//! and asks how many [`blocks`](Plan::blocks) a launch has. Where the device has room for none it loads the
//! text anew with the options for [`less_shared`](Plan::less_shared) memory. Each [`Call`] is then a launch
//! of its kernel, early, in its [`Turns`], with a team and [`Plan::exchange`], and the call's structs behind
//! these, by value.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::buffers::{Products, RawReceived, RawTokens};
pub use crate::memory::Exchange;
pub use crate::source::KERNELS as SOURCE;

use crate::buffers::{aligned, Received, Tokens};
use crate::config::{Config, Layout, MOST_RANKS};
use crate::error::{Error, Failure, Result, Why};
use crate::memory::{FAILURE_WORDS, MOST_BLOCKS, MOST_WARPS_FAR};
use crate::rooms::Rooms;

/// The memory's address is a multiple of so many bytes.
pub const ALIGN: usize = 128;
/// Threads of a block and most blocks of a launch: on a GPU two blocks a multiprocessor of an H200.
const GPU_SHAPE: (u32, u32) = (264, 256);
/// The same of an exchange for few tokens: one block a multiprocessor, of half of the warps where all of a
/// launch's work is then still dealt out once. Fewer threads start and end faster; still fewer bring nothing
/// (performance-log.md, 40).
const GPU_SHAPE_OF_FEW: (u32, u32) = (132, 512);
const LEAST_THREADS_OF_FEW: u32 = 256;
/// On the CPU device, where every block is a thread of the operating system.
const CPU_SHAPE: (u32, u32) = (3, 64);
/// Bytes of shared memory of which a multiprocessor has no room for two.
const LARGE: usize = 112 << 10;
/// The most shared memory of a block that any device of today has (compute capability 9.0 and 10.0).
const MOST_SHARED: u32 = 227 << 10;
/// Pieces of rows that a warp of a combine has under way in shared memory, `MOE_PIECES` of
/// `kernels/pieces.h`; where a device has less shared memory, and in blocks of more warps than so many.
const PIECES: u32 = 4;
const FEW_PIECES: u32 = 2;
/// Where lanes fetch for themselves: what is under way must cover the latency by itself there.
const LANE_PIECES: u32 = 6;
const WARPS_OF_ALL_PIECES: u32 = 16;
/// Blocks that are few: each has a multiprocessor for itself, and so many are bound by instructions. Their
/// lanes fetch what they add in a combine (`MOE_BY_LANES` of `kernels/by_lanes.h`).
const FEW_BLOCKS: u32 = 48;
/// Bytes of a piece, and of a warp's barriers.
const PIECE: usize = 2048;
const BARRIERS: usize = 128;
/// What kernels take of shared memory besides, at most.
const BESIDES: usize = 14 << 10;
/// Shared memory for the counts of the warps that take rows, each with one for each expert of its rank.
const COUNTS_OF_WARPS: u32 = 32 << 10;
/// Packets, or as many bytes, that are a block's least share of a row: a warp's.
const SHARE: u32 = 32;

/// What an exchange of so many ranks needs, and how it is launched.
#[derive(Clone)]
pub struct Plan {
    config: Config,
    ranks: u32,
    exchange: Exchange,
    /// Where its memory begins, once it has some.
    base: u64,
    bytes: u64,
    far: bool,
    on_gpu: bool,
    /// Whether a block reads the experts of all tokens where they came, and has no copy in shared memory.
    in_place: bool,
    /// Whether the kernels are those for few tokens (`kernels/few.h`).
    few: bool,
    /// Whether each lane fetches what it adds in a combine (`kernels/by_lanes.h`).
    by_lanes: bool,
    /// Whether a block has shared memory for the least only: few pieces of rows under way, small rooms.
    tight: bool,
    /// That of this device.
    shape: Shape,
}

/// The shape of launches on a kind of device, for where a block has the experts of all tokens.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// The most blocks.
    blocks: u64,
    threads: u32,
    pieces: u32,
    rooms: Rooms,
    shared_bytes: usize,
}

impl Plan {
    /// For `ranks` ranks, on GPUs or the CPU device. `far`: some rank does not map another's memory; the same
    /// on all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that cannot be.
    pub fn new(config: Config, ranks: u32, far: bool, on_gpu: bool) -> Result<Plan> {
        config.check(ranks)?;
        let parts = config.parts(ranks, far);
        let (exchange, bytes) = (parts.offsets, parts.bytes);
        let mut plan = Plan {
            config,
            ranks,
            exchange,
            base: 0,
            bytes,
            far,
            on_gpu,
            in_place: false,
            few: false,
            by_lanes: false,
            tight: false,
            shape: Shape::default(),
        };
        let most_shared = u64::from(config.shared_routing.unwrap_or(MOST_SHARED));
        plan.few = config.is_few(ranks, far);
        // Of the rank-major layout rows are not added but copied, which the copy engine does faster.
        plan.by_lanes = !plan.few
            && plan.has_few_blocks()
            && config.sums_are_rows()
            && config.layout != Layout::RankMajor;
        plan.in_place = config.shared_bytes(ranks, plan.tokens_of_all(), 1) > most_shared
            || plan.shape_on(true).shared_bytes + BESIDES > MOST_SHARED as usize;
        plan.shape = plan.shape_on(on_gpu);
        Ok(plan)
    }

    fn has_few_blocks(&self) -> bool {
        self.config.blocks.is_some_and(|blocks| blocks <= FEW_BLOCKS)
    }

    /// Tokens of all ranks, where each has as many as it may.
    fn tokens_of_all(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.config.max_tokens)
    }

    /// Threads of a block of an exchange for few tokens, on GPUs.
    fn threads_of_few(&self) -> u32 {
        let items = self.config.items_of_few(self.ranks).div_ceil(u64::from(GPU_SHAPE_OF_FEW.0));
        let warps = items.min(u64::from(GPU_SHAPE_OF_FEW.1 / 32)).next_power_of_two() as u32;
        (32 * warps).max(LEAST_THREADS_OF_FEW)
    }

    /// The shape of launches on GPUs, or on the CPU device.
    fn shape_on(&self, gpu: bool) -> Shape {
        let (config, exchange) = (&self.config, &self.exchange);
        let (most, few) = match (gpu, self.few) {
            (true, true) => (GPU_SHAPE_OF_FEW.0, self.threads_of_few()),
            (true, false) => GPU_SHAPE,
            _ => CPU_SHAPE,
        };
        let (tokens, many) = (self.tokens_of_all(), 2 * few);
        // A block that has a multiprocessor for itself has more warps. So has one that reads all tokens from
        // memory: there are fewer of them then.
        let copied = config.shared_bytes(self.ranks, tokens, 1) as usize;
        let alone = gpu && !self.few && self.has_few_blocks();
        let threads = if self.in_place || copied > LARGE || alone { many } else { few };
        let threads = config.threads.unwrap_or(threads);
        let warps = threads / 32;
        let pieces = match (warps > WARPS_OF_ALL_PIECES || self.tight, self.by_lanes) {
            (true, _) => FEW_PIECES,
            (_, true) => LANE_PIECES,
            _ => PIECES,
        };
        let kept = if self.in_place { 0 } else { tokens };
        let (rooms, shared_bytes) = if self.few {
            (Rooms::default(), config.shared_bytes_of_few(self.ranks, tokens) as usize)
        } else {
            let own = config.experts_a_rank(self.ranks);
            let takers = match config.layout {
                Layout::RankMajor => warps,
                _ => (COUNTS_OF_WARPS / 4 / own).clamp(1, warps),
            };
            let counted = config.shared_bytes(self.ranks, kept, takers) as usize;
            // As two such blocks have room beside each other, or else one.
            let most = if threads == few && !self.in_place { LARGE } else { MOST_SHARED as usize };
            let within = |most: usize| Rooms::within(takers, most.saturating_sub(BESIDES + counted));
            let rooms = match (gpu, self.tight) {
                (false, _) => Rooms::on_cpu(takers),
                (true, false) => {
                    within(most).or_else(|| within(MOST_SHARED as usize)).unwrap_or(Rooms::least(takers))
                }
                _ => Rooms::least(takers),
            };
            (rooms, rooms.bytes() + counted)
        };
        // More blocks than parts of rows have nothing to do, but for the one that counts.
        let parts = tokens * u64::from(exchange.row_words.max(exchange.unit_bytes / 8).div_ceil(SHARE));
        let mut blocks = u64::from(config.blocks.unwrap_or(most)).min(parts + 1).min(u64::from(MOST_BLOCKS));
        if self.far {
            blocks = blocks.min(u64::from((MOST_WARPS_FAR / warps).max(1)));
        }
        Shape { blocks, threads, pieces, rooms, shared_bytes }
    }

    /// Where the device has no room for a block: whether there are other [`options`](Plan::options), with
    /// which it needs less shared memory, because it has fewer pieces of rows under way, and then because it
    /// reads the experts of all tokens where they came. They are this plan's from then on, and may not do
    /// either: ask again.
    pub fn less_shared(&mut self) -> bool {
        let fewer = std::mem::take(&mut self.by_lanes);
        let copied = !self.in_place && !self.few;
        if copied && !fewer {
            self.in_place = true;
            self.tight = true;
        }
        self.shape = self.shape_on(self.on_gpu);
        fewer || copied
    }

    /// Of the symmetric heap, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Ranks of the exchange.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Threads of each block.
    pub fn threads(&self) -> u32 {
        self.shape.threads
    }

    /// The compiler's options for [`SOURCE`]: the same on every device, so that kernels can be compiled ahead
    /// for GPUs where there are none.
    pub fn options(&self) -> Vec<String> {
        let [cpu, gpu] = [false, true]
            .map(|gpu| self.shape_on(gpu))
            .map(|shape| (shape.threads, shape.pieces, shape.rooms));
        crate::source::options(&self.config, cpu, gpu, self.in_place, self.few, self.by_lanes)
    }

    /// Bytes of dynamic shared memory of a call's launch.
    pub fn shared_bytes(&self, call: Call) -> usize {
        match call {
            Call::Dispatch | Call::DispatchReceive => self.shape.shared_bytes,
            Call::DispatchSend => 0,
            Call::Combine | Call::CombineSend | Call::CombineReceive => self.bytes_of_pieces(),
        }
    }

    /// Of the pieces of a combine's warps (`room_of_pieces` of `kernels/pieces.h`). Rounds whose sums are all
    /// packets have none.
    fn bytes_of_pieces(&self) -> usize {
        if self.exchange.max_tokens <= self.exchange.few_back {
            return 0;
        }
        (self.shape.threads / 32) as usize * (self.shape.pieces as usize * PIECE + BARRIERS)
    }

    /// The most that a launch has: what [`blocks`](Plan::blocks) is asked with for each kernel.
    pub fn most_shared_bytes(&self) -> usize {
        self.shape.shared_bytes.max(self.bytes_of_pieces())
    }

    /// Blocks of each launch, where the device has room for so many of the kernel of which it has room for
    /// the fewest, of [`threads`](Plan::threads) and [`most_shared_bytes`](Plan::most_shared_bytes).
    ///
    /// # Errors
    /// [`Error::Invalid`] where that is none: with [`less_shared`](Plan::less_shared) memory there may be
    /// some.
    pub fn blocks(&self, room: u64) -> Result<u32> {
        if room == 0 {
            return Err(Error::Invalid(format!(
                "{} experts, {} of them on each of {} ranks, need {} bytes of shared memory for a block of {} \
                 threads, more than the device has ({MOST_SHARED} at most): use fewer experts, more ranks, or \
                 fewer threads",
                self.config.experts,
                self.config.experts_a_rank(self.ranks),
                self.ranks,
                self.shape.shared_bytes,
                self.shape.threads
            )));
        }
        Ok(self.shape.blocks.min(room) as u32)
    }

    /// Says where the memory is.
    pub fn place(&mut self, base: usize) {
        self.exchange = self.exchange.moved(self.base, base as u64);
        self.base = base as u64;
    }

    /// What each launch knows of the exchange: a struct of the kernels', by value.
    pub fn exchange(&self) -> Exchange {
        self.exchange
    }

    /// Takes ranks out of the exchange: those whose flag is true. `me` is this rank.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the flags are not one for each rank, or take this rank itself out.
    pub fn set_absent(&mut self, absent: &[bool], me: u32) -> Result<()> {
        if absent.len() != self.ranks as usize {
            return Err(Error::Invalid(format!("{} flags for {} ranks", absent.len(), self.ranks)));
        }
        if absent[me as usize] {
            return Err(Error::Invalid(format!("rank {me} takes itself out")));
        }
        self.exchange.absent = [0; MOST_RANKS as usize / 64];
        for (rank, _) in absent.iter().enumerate().filter(|(_, absent)| **absent) {
            self.exchange.absent[rank / 64] |= 1 << (rank % 64);
        }
        Ok(())
    }

    /// A rank's tokens, as the kernels take them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for addresses or counts that cannot be.
    pub fn tokens(&self, tokens: &Tokens) -> Result<RawTokens> {
        tokens.checked(&self.config)
    }

    /// Where tokens are received, as the kernels take it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for addresses that cannot be.
    pub fn received(&self, to: &Received) -> Result<RawReceived> {
        to.checked()
    }

    /// Results and sums, as the kernels take them; null where a half has no use for one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for addresses that cannot be.
    pub fn products(&self, y: *const c_void, out: *mut c_void) -> Result<Products> {
        aligned("y", y.addr(), 16)?;
        aligned("out", out.addr(), 16)?;
        Ok(Products { y, out })
    }

    /// Where in the memory, in 64-bit words, is written which round was refused, and in how many words. The
    /// first is 0 where none was, and is set to 0 by who has read them.
    pub fn failure_words(&self) -> std::ops::Range<usize> {
        let begin = (self.exchange.failure - self.base) as usize / 8;
        begin..begin + FAILURE_WORDS
    }

    /// Where in the memory, in 64-bit words, rounds are counted.
    pub(crate) fn round_words(&self) -> [std::ops::Range<usize>; 3] {
        [self.exchange.sent, self.exchange.received, self.exchange.combined].map(|at| {
            let begin = (at - self.base) as usize / 8;
            begin..begin + self.exchange.words as usize
        })
    }

    /// What these words say.
    pub fn failure(&self, said: &[u64]) -> Option<Failure> {
        let (rank, about, count) = (said[2] as u32, said[3], said[4]);
        let why = match said[0] {
            0 => return None,
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
        Some(Failure { round: said[1], why })
    }
}

/// The calls of an exchange, each a launch of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// With [`RawTokens`] and [`RawReceived`].
    Dispatch,
    /// With [`RawTokens`].
    DispatchSend,
    /// With [`RawReceived`].
    DispatchReceive,
    /// With [`Products`].
    Combine,
    /// With [`Products`], whose `out` is null.
    CombineSend,
    /// With [`Products`], whose `y` is null.
    CombineReceive,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 6] = [
        Call::Dispatch,
        Call::DispatchSend,
        Call::DispatchReceive,
        Call::Combine,
        Call::CombineSend,
        Call::CombineReceive,
    ];

    /// Its name, and its kernel's.
    pub fn name(self) -> &'static str {
        match self {
            Call::Dispatch => "dispatch",
            Call::DispatchSend => "dispatch_send",
            Call::DispatchReceive => "dispatch_receive",
            Call::Combine => "combine",
            Call::CombineSend => "combine_send",
            Call::CombineReceive => "combine_receive",
        }
    }

    /// After which calls it may come, and what has been done then.
    fn turn(self) -> (&'static [Done], Done) {
        match self {
            Call::Dispatch => (&[Done::Round, Done::Received], Done::Received),
            Call::DispatchSend => (&[Done::Round, Done::Received], Done::Sent),
            Call::DispatchReceive => (&[Done::Sent], Done::Received),
            Call::Combine => (&[Done::Received], Done::Round),
            Call::CombineSend => (&[Done::Received], Done::Returning),
            Call::CombineReceive => (&[Done::Returning], Done::Round),
        }
    }
}

/// What has been done of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Done {
    #[default]
    Round,
    Sent,
    Received,
    Returning,
}

/// Whose turn it is.
#[derive(Default)]
pub struct Turns(Mutex<Done>);

/// A call in its turn; it counts once [`done`](Turn::done).
#[must_use]
pub struct Turn<'t>(MutexGuard<'t, Done>, Done);

impl Turns {
    /// Begins a call. Others' calls wait until it is dropped.
    ///
    /// # Errors
    /// [`Error::Order`] where another call comes next.
    pub fn begin(&self, call: Call) -> Result<Turn<'_>> {
        let done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (after, to) = call.turn();
        if !after.contains(&done) {
            let expected = match *done {
                Done::Round => "dispatch or dispatch_send",
                Done::Sent => "dispatch_receive",
                Done::Received => "combine, combine_send, or the next dispatch",
                Done::Returning => "combine_receive",
            };
            let name = call.name();
            return Err(Error::Order(format!("{name} is out of turn: what comes next is {expected}")));
        }
        Ok(Turn(done, to))
    }
}

impl Turn<'_> {
    /// The launch is on its stream.
    pub fn done(mut self) {
        *self.0 = self.1;
    }
}

#[cfg(test)]
mod tests;
