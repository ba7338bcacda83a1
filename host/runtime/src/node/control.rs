//! The control segment: one `memfd` that all PEs of a node map, through which their host calls meet.
//!
//! Each PE owns one slot that only it writes, with a line for its even calls and one for its odd ones. A
//! collective call is one round: the PE stores its arrival word (call number and kind) there, then reads
//! those of all. That is one store and `n` loads, without a central counter. Kinds that differ are an error
//! on every PE, so a mismatched call is reported and does not hang. A call may carry four words of arguments,
//! which the others read after the round.
//!
//! A call may carry more: up to [`WITHIN`] bytes lie in the slot, and behind the slots there are [`room`]
//! bytes of each PE for the even calls of a board and as many for the odd ones, written before the arrival.
//! As with the words, a PE has read them when it enters the next call, and they are written again in the
//! one after that.
//!
//! There is a slot for every PE of the job: those of other nodes are written by this node's leader, when
//! it learns of their arrivals. So each slot has one writer, and shows a PE's arrivals in their order.
//!
//! Such slots make a *board*. The calls of one team go over one board, the world's over board 0; teams
//! without a common member may have the same one. The segment has room for all boards, and memory for those
//! in use. Numbers of calls on a board only grow, also when another team takes it over ([`crate::team`]).

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{err, Error, Result};
use crate::os::{page_size, Memfd};

/// Of the teams of one PE that may be alive at once, its world among them, and [`MEETINGS`].
pub(crate) const BOARDS: usize = 1025;
/// The board of PEs that make a team without a parent ([`crate::world`]).
pub(crate) const MEETINGS: usize = BOARDS - 1;

/// Which collective call a PE is in. The numbers meet in the arrival word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    Start = 1,
    BarrierAll,
    SyncAll,
    Alloc,
    Free,
    Register,
    Unregister,
    Finalize,
    /// A later round of a call that is already agreed on.
    Step,
    TeamSync,
    TeamBarrier,
    /// The last round of a team's board before others take it over.
    TeamFree,
    SplitStrided,
    Split2d,
    Split,
    SplitList,
    TeamNode,
    Broadcast,
    Fcollect,
    Collect,
    Alltoall,
    Alltoalls,
    Alltoallv,
    Reduce,
    Reducescatter,
    Inscan,
    Exscan,
    TeamMeet,
    TeamHost,
    TeamLeast,
}

impl Call {
    /// Whether nobody reads the words of a call of this kind.
    #[inline]
    fn carries_nothing(code: u8) -> bool {
        const MEETINGS: u32 = 1 << Call::BarrierAll as u32
            | 1 << Call::SyncAll as u32
            | 1 << Call::TeamSync as u32
            | 1 << Call::TeamBarrier as u32;
        code < 32 && MEETINGS >> code & 1 != 0
    }

    /// The call's name in the C ABI's words.
    pub(crate) fn name(code: u8) -> &'static str {
        match code {
            1 => "start-up",
            2 => "barrier_all",
            3 => "sync_all",
            4 => "alloc",
            5 => "free",
            6 => "register",
            7 => "unregister",
            8 => "finalize",
            9 => "a later step of alloc, free, register or split",
            10 => "team_sync",
            11 => "team_barrier",
            12 => "team_free",
            13 => "team_split_strided",
            14 => "team_split_2d",
            15 => "team_split",
            16 => "team_split_list",
            17 => "team_node",
            18 => "team_broadcast",
            19 => "team_fcollect",
            20 => "team_collect",
            21 => "team_alltoall",
            22 => "team_alltoalls",
            23 => "team_alltoallv",
            24 => "team_reduce",
            25 => "team_reducescatter",
            26 => "team_inscan",
            27 => "team_exscan",
            28 => "team_meet",
            29 => "team_host",
            30 => "team_least",
            AHEAD => "others since (it gave this one up)",
            _ => "an unknown call",
        }
    }
}

/// The kind of a call of which nothing can be read any more, as its PE has made two others since.
pub(crate) const AHEAD: u8 = u8::MAX;

/// What a call carries for the others to compare.
pub(crate) type RoundWords = [u64; 4];

/// Bytes that a call of a board may carry of each PE beyond its words, in a world of `n`: two words for each
/// PE at least.
pub(crate) fn room(n: usize) -> usize {
    const ALL: usize = 4 << 20;
    let fair = (ALL / n).clamp(4 << 10, 64 << 10);
    fair.max(16 * n).next_power_of_two()
}

/// What another node's PE has sent: parts of what a call carries, then that it has entered the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FromAfar<'a> {
    Carried(Carried<'a>),
    Arrival(Arrival),
}

/// A part of what a call carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried<'a> {
    /// That of the team, below [`BOARDS`].
    pub(crate) board: usize,
    /// Of the call.
    pub(crate) number: u64,
    /// Where it is in the whole.
    pub(crate) at: u64,
    /// The whole is [`WITHIN`] bytes at most.
    pub(crate) within: bool,
    pub(crate) data: &'a [u8],
}

/// A PE has entered a collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// That of the team, below [`BOARDS`].
    pub(crate) board: usize,
    /// Of the call.
    pub(crate) number: u64,
    /// A [`Call`], and that of the call before it.
    pub(crate) kind: u8,
    pub(crate) previous: u8,
    pub(crate) words: RoundWords,
}

/// Bytes that a call carries within a slot; more goes to the room behind the slots.
pub(crate) const WITHIN: usize = 88;

/// One PE's slot: a pair of lines for its even calls and one for its odd ones, as a PE gets at most one
/// call ahead. What a call says in few bytes comes with the arrival that everybody polls, in one line of
/// the caches.
#[repr(C)]
struct Slot([SlotLine; 2]);

/// See [`Slot`]. Two lines of the caches long, as processors fetch pairs of them.
#[repr(C, align(128))]
struct SlotLine {
    /// `number << 16 | previous kind << 8 | kind`.
    arrival: AtomicU64,
    words: [AtomicU64; 4],
    /// What the call carries, if that is little.
    within: UnsafeCell<[u8; WITHIN]>,
}

/// The mapped segment.
#[derive(Debug)]
pub(crate) struct Control {
    base: *mut Slot,
    n: usize,
    me: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping lives until drop. It is only reached through atomics, and by pointers to what a call
// carries, which its PE writes before the arrival and others read behind it.
unsafe impl Send for Control {}
// SAFETY: the mapping is only reached through atomics, and by pointers to what a call carries, which its PE
// writes before the arrival and others read behind it.
unsafe impl Sync for Control {}

impl Control {
    /// Bytes for the job's `n` PEs.
    fn bytes(n: usize) -> usize {
        Self::slot_bytes(n) + BOARDS * n * 2 * room(n)
    }

    /// Bytes of the slots, which come first.
    fn slot_bytes(n: usize) -> usize {
        (BOARDS * n * std::mem::size_of::<Slot>()).next_multiple_of(page_size())
    }

    /// Made by the node's leader.
    pub(crate) fn create(n: usize, me: usize) -> Result<Control> {
        Self::map(Memfd::create("rushmem-control", Self::bytes(n))?.into(), n, me)
    }

    /// Mapped by PE `me` from the leader's descriptor.
    pub(crate) fn open(fd: OwnedFd, n: usize, me: usize) -> Result<Control> {
        Self::map(fd, n, me)
    }

    fn map(fd: OwnedFd, n: usize, me: usize) -> Result<Control> {
        // SAFETY: a fresh shared mapping of a memfd of that size, which is sealed against shrinking.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::bytes(n),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::os("mapping the node's control segment"));
        }
        let control = Control { base: base.cast(), n, me, fd };
        control.populate_world()?;
        Ok(control)
    }

    /// The world's board has its memory from the start; the others' comes as they are used.
    fn populate_world(&self) -> Result<()> {
        let bytes =
            (self.n * std::mem::size_of::<Slot>()).next_multiple_of(page_size()).min(Self::bytes(self.n));
        // SAFETY: replaces the first pages of this segment's own mapping by the same ones.
        let again = unsafe {
            libc::mmap(
                self.base.cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE,
                self.fd.as_raw_fd(),
                0,
            )
        };
        if again == libc::MAP_FAILED {
            return Err(Error::os("mapping the node's control segment"));
        }
        Ok(())
    }

    /// This PE.
    #[inline]
    pub(crate) fn my_pe(&self) -> usize {
        self.me
    }

    /// The descriptor that the leader hands to the others.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn line(&self, board: usize, pe: usize, number: u64) -> &SlotLine {
        assert!(pe < self.n && board < BOARDS);
        // SAFETY: in the mapping; the slot is atomics and a cell, for which zeroes are values.
        unsafe { &(*self.base.add(board * self.n + pe)).0[(number & 1) as usize] }
    }

    /// Bytes that a call may carry of each PE.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        room(self.n)
    }

    /// Where what call `number` carries of PE `pe` is, where that is `bytes` bytes: [`Control::room`] at
    /// most.
    #[inline]
    pub(crate) fn carried(&self, board: usize, pe: usize, number: u64, bytes: usize) -> *mut u8 {
        if bytes <= WITHIN {
            return self.line(board, pe, number).within.get().cast();
        }
        assert!(pe < self.n && board < BOARDS);
        let place = (board * self.n + pe) * 2 + (number & 1) as usize;
        // SAFETY: in the mapping, behind the slots.
        unsafe { self.base.cast::<u8>().add(Self::slot_bytes(self.n) + place * room(self.n)) }
    }

    /// Notes what PE `pe` of another node has sent. Only the leader of this node's PEs calls it, in the order
    /// in which it was sent.
    pub(crate) fn note(&self, pe: usize, what: &FromAfar<'_>) -> Result<()> {
        match what {
            FromAfar::Arrival(arrival) => self.arrive_for(pe, arrival),
            FromAfar::Carried(Carried { board, number, at, within, data }) => {
                let (room, bytes) = if *within { (WITHIN, 0) } else { (self.room(), usize::MAX) };
                let at = usize::try_from(*at).ok().filter(|at| *at <= room && data.len() <= room - at);
                let Some(at) = at else {
                    return Err(err!(INTERNAL, "{} bytes past the {room} that a call carries", data.len()));
                };
                // SAFETY: in the room of a PE that only this one writes to; others read after the arrival.
                unsafe {
                    let to = self.carried(*board, pe, *number, bytes).add(at);
                    std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
                }
            }
        }
        Ok(())
    }

    /// Announces that this PE has entered a call.
    #[inline]
    pub(crate) fn arrive(&self, arrival: &Arrival) {
        self.arrive_for(self.me, arrival);
    }

    /// The same of PE `pe` of another node. Only the leader of this node's PEs calls it, in the order of the
    /// calls.
    #[inline]
    pub(crate) fn arrive_for(&self, pe: usize, arrival: &Arrival) {
        let Arrival { board, number, kind, previous, words } = arrival;
        let line = self.line(*board, pe, *number);
        // The others poll this line: each store may take it from them once more.
        if !Call::carries_nothing(*kind) {
            for (to, from) in line.words.iter().zip(words) {
                to.store(*from, Ordering::Relaxed);
            }
        }
        // Release: a PE that sees the arrival sees the arguments above and all earlier puts.
        line.arrival.store(number << 16 | u64::from(*previous) << 8 | u64::from(*kind), Ordering::Release);
    }

    /// The kind under which PE `pe` entered call `number` on `board`, once it has.
    ///
    /// A member is at most one call ahead of another, but for [`AHEAD`]: where it has given up waiting, and
    /// after the last call of a team, from which it may have gone on to calls of the team that has the board
    /// next. Only a free in which all agreed lets it do that.
    #[inline]
    pub(crate) fn arrived(&self, board: usize, pe: usize, number: u64) -> Option<u8> {
        let word = self.line(board, pe, number).arrival.load(Ordering::Acquire);
        match (word >> 16).wrapping_sub(number) as i64 {
            0 => Some(word as u8),
            // The next call is in the other line.
            ahead if ahead > 0 => Some(AHEAD),
            _ => None,
        }
    }

    /// The arguments that PE `pe` gave to call `number`; only after [`Control::arrived`] said that it came.
    pub(crate) fn words(&self, board: usize, pe: usize, number: u64) -> RoundWords {
        let w = &self.line(board, pe, number).words;
        std::array::from_fn(|k| w[k].load(Ordering::Relaxed))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of that size; no reference outlives `self`.
        unsafe { libc::munmap(self.base.cast(), Self::bytes(self.n)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(board: usize, number: u64, kind: Call) -> Arrival {
        Arrival { board, number, kind: kind as u8, previous: Call::TeamFree as u8, words: [number; 4] }
    }

    /// PE 1 has left its old team's last call, and is in the third one of the team that has the board next,
    /// when PE 0 looks for it in the former.
    #[test]
    fn a_board_that_others_have_taken_over_still_tells_that_its_team_was_freed() {
        let free = Call::TeamFree as u8;
        let control = Control::create(2, 1).unwrap();
        assert_eq!((control.arrived(7, 1, 5), control.arrived(7, 1, 1)), (None, None));
        control.arrive(&arrival(7, 5, Call::TeamFree));
        assert_eq!((control.arrived(7, 1, 5), control.arrived(7, 1, 6)), (Some(free), None));
        for (number, kind) in [(41, Call::TeamSync), (42, Call::TeamBarrier), (43, Call::Reduce)] {
            control.arrive(&arrival(7, number, kind));
            assert_eq!(control.arrived(7, 1, 5), Some(AHEAD));
        }
        assert_eq!(control.arrived(7, 1, 43), Some(Call::Reduce as u8));
        assert_eq!(control.words(7, 1, 43), [43; 4]);
        control.arrive(&arrival(7, 44, Call::TeamBarrier));
        assert_eq!(control.arrived(7, 1, 44), Some(Call::TeamBarrier as u8));
        assert_eq!((control.arrived(6, 1, 1), control.arrived(7, 0, 1)), (None, None));
    }

    /// What other nodes send lands in its PE's room, and nothing of it elsewhere.
    #[test]
    fn what_a_call_carries_stays_in_its_room() {
        let control = Control::create(3, 0).unwrap();
        let (room, data) = (control.room(), [7u8; 100]);
        let carried =
            |at: u64, data| FromAfar::Carried(Carried { board: 5, number: 9, at, within: false, data });
        let within =
            |at: u64, data| FromAfar::Carried(Carried { board: 5, number: 8, at, within: true, data });
        assert!(control.note(1, &within(0, &data[..WITHIN])).is_ok());
        assert!(control.note(1, &within(1, &data[..WITHIN])).is_err());
        assert!(control.arrived(5, 1, 8).is_none() && control.words(5, 1, 8) == [0; 4]);
        assert!(control.note(1, &carried(room as u64 - 100, &data)).is_ok());
        for at in [room as u64 - 99, room as u64 + 1, u64::MAX] {
            assert!(control.note(1, &carried(at, &data)).is_err(), "{at}");
        }
        let bytes = |pe, number| {
            let at = control.carried(5, pe, number, room);
            // SAFETY: the room of a PE, of one call and the other.
            unsafe { std::slice::from_raw_parts(at, room) }
        };
        assert_eq!(bytes(1, 9).iter().filter(|byte| **byte == 7).count(), 100);
        assert!([(1, 8), (0, 9), (2, 9), (2, 8)]
            .iter()
            .all(|(pe, i)| bytes(*pe, *i).iter().all(|b| *b == 0)));
    }

    /// A segment has room for every board of a large world and takes memory for what is used.
    #[test]
    fn boards_that_nobody_uses_take_no_memory() {
        use std::os::unix::fs::MetadataExt;
        let control = Control::create(512, 3).unwrap();
        let kept = std::fs::File::from(control.fd().try_clone_to_owned().unwrap());
        let used = || kept.metadata().unwrap().blocks() * 512;
        assert!(kept.metadata().unwrap().size() as usize == Control::bytes(512) && used() < 1 << 20);
        (0..BOARDS).step_by(64).for_each(|board| control.arrive(&arrival(board, 1, Call::TeamSync)));
        assert!(used() < 1 << 20, "{}", used());
    }
}
