//! Collectives that the host calls over a team.
//!
//! A call is rounds of the team. The first carries what the call is to do, which is compared: members whose
//! arguments differ, or of which one's cannot be carried out, all get an error, and nothing is written. It
//! carries small data, too ([`Session::small`]): nobody waits twice. Large data is then moved
//! directly between the memory of the members, near by copies and far by the network, and a last round says
//! that all of it is there ([`direct`]); where memory is not symmetric, it goes through the rounds piece by
//! piece ([`staged`]).
//!
//! * [`moving`]: broadcast, fcollect, collect.
//! * [`exchange`]: alltoall, alltoalls, alltoallv.
//! * [`reducing`]: reduce, reducescatter, inscan, exscan.
//!
//! On GPU heaps the same is done to memory that this thread cannot touch: see [`own`].
//!
//! A PE that dies is named by the round that waits for it, or by the network.

mod direct;
mod exchange;
mod moving;
mod own;
mod reducing;
mod relays;
mod staged;

use rushmem_device_cpu::check::{Location, When};

use super::World;
use crate::collective::Entered;
use crate::error::{err, Error, Result};
use crate::node::control::{Call, RoundWords};
use crate::op::check_private;
use crate::team::Team;
use crate::word::copy;
use own::Mirrors;

/// Data up to so many bytes of each member travels with the first round, where that goes to other nodes: a
/// second round takes longer than what it carries.
const SMALL: usize = 16 << 10;
/// The same in a node: a second round takes less time than copying that much twice.
const SMALL_NEAR: usize = 3 << 10;

/// The offset of memory that is not symmetric.
const PRIVATE: u64 = u64::MAX;

/// Of word 1: what has to be the same on all members.
const COMPARED: u64 = (1 << 48) - 1;
/// Of word 1: source and destination are one array, or share a part.
const SHARED: u64 = 1 << 48;
/// Of word 1: the member maps the memory of all PEs of its node.
const MAPS_NODE: u64 = 1 << 49;
/// Of word 1: from here on, why the member cannot take part.
const CODE: u32 = 56;

/// A member's array.
#[derive(Debug, Clone, Copy)]
struct Area {
    /// Where this PE has it.
    at: usize,
    /// Where in the heap, or [`PRIVATE`].
    offset: u64,
}

/// A member's arguments, checked as far as it can do that alone.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    /// Bytes, as the call counts them.
    size: u64,
    /// Root, or type and operator; 48 bits.
    what: u64,
    dst: Area,
    src: Area,
    /// `dst` and `src` are one array, or share a part.
    shared: bool,
}

/// A collective call in progress.
struct Session<'a> {
    world: &'a World,
    team: &'a Team,
    call: Entered<'a>,
    kind: Call,
    me: usize,
    n: usize,
    /// The arrays that are in host memory for the time of the call.
    mirrors: Mirrors,
}

impl World {
    /// An array that a caller has given: symmetric, or any memory of this PE's.
    fn area(&self, what: &'static str, at: usize, bytes: usize) -> Result<Area> {
        self.area_of_parts(what, at, bytes, || [(0, bytes)])
    }

    /// The same of an array of which only some parts, as offset and length in bytes, are the call's: what
    /// lies between them is neither read nor written, and others may put there meanwhile.
    fn area_of_parts<P: IntoIterator<Item = (usize, usize)>>(
        &self,
        what: &'static str,
        at: usize,
        bytes: usize,
        parts: impl FnOnce() -> P,
    ) -> Result<Area> {
        if bytes == 0 {
            return Ok(Area { at, offset: PRIVATE });
        }
        check_private(what, at, bytes)?;
        match self.symmetric.find_any(at, bytes).map_err(|e| e.context(what))? {
            Some(own) => {
                self.note_parts(what, own, parts);
                Ok(Area { at: own, offset: (own - self.symmetric.base()) as u64 })
            }
            // In symmetric memory, but not in what lives there.
            None if self.symmetric.window().covers(at, bytes) => {
                self.symmetric.find(at, bytes).map_err(|e| e.context(what))?;
                Err(err!(BAD_ADDRESS, "{what} at {at:#x} is not in live symmetric memory"))
            }
            None => Ok(Area { at, offset: PRIVATE }),
        }
    }

    /// What a checked run notes of an array, before the call's first round: all that its members do to it is
    /// between the first round and the last.
    fn note_parts<P: IntoIterator<Item = (usize, usize)>>(
        &self,
        what: &'static str,
        at: usize,
        parts: impl FnOnce() -> P,
    ) {
        let Some(check) = &self.check else { return };
        check.note(what, |notes| {
            for (offset, bytes) in parts().into_iter().filter(|(_, bytes)| *bytes > 0) {
                match what {
                    "the source" => notes.reads(Location::At(at + offset), bytes, When::Now),
                    _ => notes.writes(Location::At(at + offset), bytes, When::Now),
                }
            }
        });
    }

    /// Whether the host cannot touch the heap.
    #[inline]
    fn heap_is_apart(&self) -> bool {
        self.apart
    }

    /// Whether memory that is not symmetric is a GPU's.
    fn is_in_device(&self, at: usize) -> Result<bool> {
        self.engine.as_ref().map_or(Ok(false), |engine| engine.knows(at))
    }

    /// Copies between any memory of this PE's, for hosts that cannot touch all of it.
    ///
    /// # Safety
    /// Both are valid for `bytes`, and do not overlap.
    unsafe fn copy_own(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        match &self.engine {
            // SAFETY: the caller vouches for both.
            Some(engine) => unsafe { engine.copy_own(dst, src, bytes) },
            None => {
                // SAFETY: the caller vouches for both, which are in host memory.
                unsafe { copy(dst as *mut u8, src as *const u8, bytes) };
                Ok(())
            }
        }
    }

    /// Whether this PE maps the memory of all PEs of its node.
    fn maps_node(&self) -> bool {
        self.near.count() == self.nodes.members(self.me as usize).len()
    }

    /// Begins a collective call of a team.
    fn session<'a>(&'a self, team: &'a Team, kind: Call) -> Result<Session<'a>> {
        self.health.check()?;
        let call = team.rounds().enter(&self.rounds)?;
        let (me, n) = (team.my_pe(), call.n());
        Ok(Session { world: self, team, call, kind, me, n, mirrors: Mirrors::default() })
    }
}

impl Area {
    fn ptr(&self) -> *const u8 {
        self.at as *const u8
    }

    fn ptr_mut(&self) -> *mut u8 {
        self.at as *mut u8
    }
}

impl<'a> Session<'a> {
    /// `team_reduce of team 3`, for texts.
    fn what(&self) -> String {
        format!("{} of {}", Call::name(self.kind as u8), self.team.rounds().name())
    }

    /// The PE of the world that is member `i`.
    fn pe(&self, i: usize) -> i32 {
        self.team.members().pe(i) as i32
    }

    /// Bytes that travel with the first round, at most.
    fn small(&self) -> usize {
        // All members know of each other's nodes, and say the same.
        let most = if self.call.is_of_one_node() { SMALL_NEAR } else { SMALL };
        most.min(self.call.room())
    }

    /// The first round, which carries what `fill` puts in the place that it is given, so many bytes. All
    /// members have the same arguments after it.
    fn enter(
        &mut self,
        arguments: Result<Arguments>,
        bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<()> {
        let words = arguments.as_ref().map(|a| [a.size, self.attributes(a), a.dst.offset, a.src.offset]);
        self.enter_with(words.map_err(Error::clone), true, bytes, fill)
    }

    /// Word 1 of the first round.
    fn attributes(&self, arguments: &Arguments) -> u64 {
        let maps = self.world.maps_node();
        arguments.what | if arguments.shared { SHARED } else { 0 } | if maps { MAPS_NODE } else { 0 }
    }

    /// The same of any words; `sizes`: the first is the same on all members.
    fn enter_with(
        &mut self,
        words: Result<RoundWords>,
        sizes: bool,
        bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<()> {
        let said = words.as_ref().map_or_else(|e| [0, code_word(e), PRIVATE, PRIVATE], |words| *words);
        let bytes = if words.is_ok() { bytes } else { 0 };
        if bytes > 0 {
            fill(self.call.carried_here(bytes));
        }
        self.call.round_with(self.kind, said, bytes, bytes)?;
        let mask = COMPARED | u64::MAX << CODE;
        let same = (0..self.n)
            .map(|i| self.call.words(i))
            .all(|theirs| (theirs[0] == said[0] || !sizes) && theirs[1] & mask == said[1] & mask);
        if same && words.is_ok() {
            return Ok(());
        }
        words.map_err(|e| e.context(self.what()))?;
        self.explain(sizes)
    }

    /// The first rounds' words differ: why.
    #[cold]
    fn explain(&self, sizes: bool) -> Result<()> {
        let what = self.what();
        self.check_codes(&what)?;
        if sizes {
            self.call.agree(0, &format!("the size, in bytes, of {what}"))?;
        }
        match self.kind {
            Call::Broadcast => self.call.agree_by(&format!("the root of {what}"), |w| w[1] as u32),
            Call::Reduce | Call::Reducescatter | Call::Inscan | Call::Exscan => {
                self.call.agree_by(&format!("the type of {what}"), |w| reducing::type_name(w[1]))?;
                self.call.agree_by(&format!("the operator of {what}"), |w| reducing::operator_name(w[1]))
            }
            _ => self.call.agree_by(&format!("the size of an element of {what}"), |w| w[1] & COMPARED),
        }
    }

    /// An error where a member has said in word 1 that it cannot take part.
    fn check_codes(&self, what: &str) -> Result<()> {
        let code = |i: usize| -((self.call.words(i)[1] >> CODE) as i32);
        match (0..self.n).map(|i| (i, code(i))).find(|(_, code)| *code != 0) {
            None => Ok(()),
            Some((i, code)) => Err(self.call.failed_elsewhere(i, code, what)),
        }
    }

    /// A round in which every member says whether its part went well.
    fn settle(&mut self, mine: Result<()>, words: RoundWords, bytes: usize) -> Result<()> {
        let code = mine.as_ref().err().map_or(0, code_word);
        let said = self.call.round_with(self.kind, [words[0], code, words[2], words[3]], bytes, bytes);
        mine.map_err(|e| e.context(self.what()))?;
        said?;
        if (0..self.n).all(|i| self.call.words(i)[1] >> CODE == 0) {
            return Ok(());
        }
        self.check_codes(&self.what())
    }
}

/// A code as the upper bits of word 1.
fn code_word(e: &Error) -> u64 {
    u64::from(e.code.unsigned_abs() as u8) << CODE
}

/// Refuses arrays that share a part, but for what `same` allows.
fn check_overlap(dst: (usize, usize), src: (usize, usize), same: impl Fn() -> bool) -> Result<bool> {
    let shared = dst.0 < src.0.saturating_add(src.1) && src.0 < dst.0.saturating_add(dst.1);
    if shared && !same() {
        return Err(err!(
            INVALID_ARGUMENT,
            "the destination, {} bytes at {:#x}, and the source, {} bytes at {:#x}, overlap",
            dst.1,
            dst.0,
            src.1,
            src.0
        ));
    }
    Ok(shared)
}

/// So many bytes of each of `n` members.
fn whole(bytes: usize, n: usize) -> Result<usize> {
    let all = bytes.checked_mul(n).filter(|all| *all <= isize::MAX as usize);
    all.ok_or_else(|| {
        err!(INVALID_ARGUMENT, "{bytes} bytes of each of {n} PEs are more than an address space")
    })
}
