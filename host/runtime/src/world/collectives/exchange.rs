//! A block of each member's to every member: blocks of one size (alltoall), of elements apart from one
//! another (alltoalls), of any sizes (alltoallv).

use super::direct::{DST, SRC};
use super::{check_overlap, whole, Area, Arguments, Session, PRIVATE, SHARED};
use crate::error::{err, Result};
use crate::exec::{run, Form};
use crate::node::control::Call;
use crate::op::strided::Strides;
use crate::op::Op;
use crate::team::Team;
use crate::word::copy;
use crate::world::World;

/// The blocks of alltoallv, in bytes, by member.
#[derive(Debug)]
struct Blocks<'a> {
    /// Where what comes from each goes.
    dst_at: &'a [usize],
    /// Where what goes to each lies, and how much it is.
    src_at: &'a [usize],
    bytes: &'a [usize],
    /// How much there is room for in the destination.
    room: usize,
}

impl World {
    /// Collective over the team: block `j`, of `bytes` bytes, of each member's `src` is block `my_pe` of
    /// member `j`'s `dst`.
    ///
    /// # Safety
    /// Both are valid for a block for each member.
    pub(crate) unsafe fn team_alltoall(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut s = self.session(team, Call::Alltoall)?;
        let (n, me) = (s.n, s.me);
        let arguments = whole(bytes, n).and_then(|all| {
            let (to, from) = (self.area("the destination", dst, all)?, self.area("the source", src, all)?);
            let shared = check_overlap((dst, all), (src, all), || dst == src)?;
            Ok((Arguments { size: bytes as u64, what: 0, dst: to, src: from, shared }, all))
        });
        let all = arguments.as_ref().map_or(usize::MAX, |(_, all)| *all);
        let small = all <= s.small();
        // SAFETY: the caller vouches for both arrays.
        let arguments = unsafe { s.touchable_if(small, arguments.map(|(a, _)| a), (all, all)) };
        let areas = arguments.as_ref().map(|a| (a.dst, a.src, all)).ok();
        let carried = areas.filter(|_| small).map_or(0, |(_, _, all)| all);
        s.enter(arguments, carried, |to| {
            let from = areas.map_or(std::ptr::null(), |(_, src, _)| src.ptr());
            // SAFETY: the source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, carried) }
        })?;
        let Some((dst, src, all)) = areas else { return Ok(()) };
        if small {
            for i in 0..n {
                // SAFETY: each member has carried a block for each; the destination has a place for each.
                unsafe { copy(dst.ptr_mut().add(i * bytes), s.carried(i, carried).add(me * bytes), bytes) };
            }
            return s.done();
        }
        // In place, a block could come before the one that it replaces has left.
        let (into, from) = if s.any(SHARED) { (None, None) } else { (s.offsets(DST), s.offsets(SRC)) };
        if into.is_some() || from.is_some() {
            let moved = s.others().try_for_each(|i| {
                // SAFETY: the caller vouches for both arrays, and each member for its own.
                unsafe {
                    match (&into, &from) {
                        (Some(into), _) => {
                            s.push(i, into[i] + (me * bytes) as u64, src.ptr().add(i * bytes), bytes)
                        }
                        (_, Some(from)) => {
                            s.pull(i, from[i] + (me * bytes) as u64, dst.ptr_mut().add(i * bytes), bytes)
                        }
                        _ => Ok(()),
                    }
                }
            });
            // SAFETY: the caller vouches for both arrays, which are apart.
            let own = unsafe { s.copy_own(dst.ptr_mut().add(me * bytes), src.ptr().add(me * bytes), bytes) };
            return s.finish(moved.and(own));
        }
        // SAFETY: the caller vouches for both arrays.
        let (dst, src) = unsafe { s.touchable((dst, all), (src, all)) }?;
        let fill = |j: usize, at: usize, to: *mut u8, piece: usize| {
            // SAFETY: a part of block j, for which there is room.
            unsafe { copy(to, src.ptr().add(j * bytes + at), piece) }
        };
        s.transpose(bytes, fill, |i, at, from, piece| {
            // SAFETY: as many bytes were carried; a part of block i.
            unsafe { copy(dst.ptr_mut().add(i * bytes + at), from, piece) }
        })
    }

    /// [`World::team_alltoall`] of blocks of `count` elements of `elem` bytes that are apart: element `k` of
    /// block `j` is at `(j * count + k) * stride`, in elements.
    ///
    /// # Safety
    /// Both are valid for the elements of all blocks.
    #[allow(clippy::too_many_arguments, reason = "those of the C function")]
    pub(crate) unsafe fn team_alltoalls(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        dst_stride: isize,
        src_stride: isize,
        elem: usize,
        count: usize,
    ) -> Result<()> {
        /// Bytes in front of the data of the first round: both strides.
        const HEAD: usize = 16;
        let mut s = self.session(team, Call::Alltoalls)?;
        s.mirrors.has_gaps = true;
        let (n, me) = (s.n, s.me);
        let arguments = || {
            let all = Strides { dst_stride, src_stride, elem, n: whole(count, n)? };
            let (there, here) = (all.extent("destination", dst_stride)?, all.extent("source", src_stride)?);
            let to = self.area_of_parts("the destination", dst, there, || all.parts(dst_stride))?;
            let from = self.area_of_parts("the source", src, here, || all.parts(src_stride))?;
            check_overlap((dst, there), (src, here), || false)?;
            let size = count as u64 * elem as u64;
            if elem as u64 > super::COMPARED {
                return Err(err!(INVALID_ARGUMENT, "an element of {elem} bytes is too large"));
            }
            Ok((Arguments { size, what: elem as u64, dst: to, src: from, shared: false }, (there, here)))
        };
        let arguments = arguments();
        let extents = arguments.as_ref().map_or((0, 0), |(_, extents)| *extents);
        let block = count.saturating_mul(elem);
        let small = block.saturating_mul(n).saturating_add(HEAD) <= s.small();
        // SAFETY: the caller vouches for both arrays.
        let arguments = unsafe { s.touchable_if(small, arguments.map(|(a, _)| a), extents) };
        let areas = arguments.as_ref().map(|a| (a.dst, a.src)).ok();
        // From block to block, and within one, packed.
        let packed = |stride: isize, out: bool| Strides {
            dst_stride: if out { 1 } else { stride },
            src_stride: if out { stride } else { 1 },
            elem,
            n: count,
        };
        let apart = |stride: isize| (count as isize * stride * elem as isize) as usize;
        let carried = if small { HEAD + n * block } else { HEAD };
        s.enter(arguments, carried, |to| {
            // SAFETY: there is room for the strides and, where it is little, for all blocks; the source is
            // valid for all of its elements.
            unsafe {
                to.cast::<[isize; 2]>().write([dst_stride, src_stride]);
                let Some((_, src)) = areas.filter(|_| small) else { return };
                for j in 0..n {
                    let from = src.ptr().wrapping_add(j.wrapping_mul(apart(src_stride)));
                    packed(src_stride, true).copy(to.add(HEAD + j * block), from);
                }
            }
        })?;
        // SAFETY: every member has carried both.
        let strides = |i: usize| unsafe { s.carried(i, carried).cast::<[isize; 2]>().read() };
        if let Some(i) = (0..n).find(|i| strides(*i) != strides(0)) {
            let ([d, c], [dd, cc]) = (strides(0), strides(i));
            return Err(err!(
                MISMATCH,
                "the strides of {} differ between the PEs: {d} and {c} on PE {}, {dd} and {cc} on PE {}",
                s.what(),
                s.pe(0),
                s.pe(i)
            ));
        }
        let (Some((dst, src)), true) = (areas, block > 0) else { return s.done() };
        let place = |i: usize| dst.ptr_mut().wrapping_add(i.wrapping_mul(apart(dst_stride)));
        let source = |j: usize| src.ptr().wrapping_add(j.wrapping_mul(apart(src_stride)));
        if small {
            for i in 0..n {
                // SAFETY: each member has carried a block for each; the destination is valid for all
                // elements.
                unsafe {
                    packed(dst_stride, false).copy(place(i), s.carried(i, carried).add(HEAD + me * block))
                };
            }
            return s.done();
        }
        if let Some(into) = s.offsets(DST) {
            let strides = Strides { dst_stride, src_stride, elem, n: count };
            // Its own, too, where this thread cannot touch both.
            let own = s.is_apart().then_some(me);
            let moved = s.others().chain(own).try_for_each(|j| {
                let to = s.place(into[j]).wrapping_add(me.wrapping_mul(apart(dst_stride)));
                // SAFETY: the caller vouches for the source until the quiet.
                let put = unsafe { run(self, Op::iput(to, source(j) as usize, strides), s.pe(j), Form::Nbi) };
                put.map(drop)
            });
            if own.is_none() {
                // SAFETY: both are valid for all elements, and apart.
                unsafe { strides.copy(place(me), source(me)) };
            }
            return s.finish(moved);
        }
        // SAFETY: the caller vouches for both arrays.
        let (dst, src) = unsafe { s.touchable((dst, extents.0), (src, extents.1)) }?;
        let place = |i: usize| dst.ptr_mut().wrapping_add(i.wrapping_mul(apart(dst_stride)));
        let source = |j: usize| src.ptr().wrapping_add(j.wrapping_mul(apart(src_stride)));
        let bytes = |at: usize, piece: usize, mut each: Box<dyn FnMut(usize, usize, usize, usize) + '_>| {
            // The parts of elements that bytes [at, at + piece) of a packed block are.
            let mut done = 0;
            while done < piece {
                let (k, within) = ((at + done) / elem, (at + done) % elem);
                let part = (elem - within).min(piece - done);
                each(k, within, done, part);
                done += part;
            }
        };
        let fill = |j: usize, at: usize, to: *mut u8, piece: usize| {
            bytes(
                at,
                piece,
                Box::new(|k, within, done, part| {
                    let from = source(j).wrapping_add(k * src_stride as usize * elem + within);
                    // SAFETY: a part of an element, for which there is room.
                    unsafe { copy(to.add(done), from, part) }
                }),
            )
        };
        s.transpose(block, fill, |i, at, from, piece| {
            bytes(
                at,
                piece,
                Box::new(|k, within, done, part| {
                    let to = place(i).wrapping_add(k * dst_stride as usize * elem + within);
                    // SAFETY: a part of an element, of which as many bytes were carried.
                    unsafe { copy(to, from.add(done), part) }
                }),
            )
        })
    }

    /// Collective over the team: `bytes[j]` bytes at `src_at[j]` of each member's `src` go to member `j`,
    /// which has them at `dst_at[my_pe]` of its `dst`, where there are `room`; `received[i]`: how many have
    /// come from each.
    ///
    /// # Safety
    /// The lists are null or valid for an entry for each member; `src` is valid for all blocks, `dst` for all
    /// that come, or for the room that is said to be there.
    #[allow(clippy::too_many_arguments, reason = "those of the C function")]
    pub(crate) unsafe fn team_alltoallv(
        &self,
        team: &Team,
        dst: usize,
        dst_at: usize,
        room: usize,
        received: usize,
        src: usize,
        src_at: usize,
        bytes: usize,
    ) -> Result<()> {
        let n = team.members().n();
        let list = |list: usize, name| match list {
            0 => Err(err!(INVALID_ARGUMENT, "{name}, a list with an entry for each member, is null")),
            // SAFETY: valid for an entry for each member, as the caller says.
            list => Ok(unsafe { std::slice::from_raw_parts(list as *const usize, n) }),
        };
        let lists = || {
            let (dst_at, src_at) = (list(dst_at, "dst_at")?, list(src_at, "src_at")?);
            Ok(Blocks { dst_at, src_at, bytes: list(bytes, "bytes")?, room })
        };
        // SAFETY: the caller vouches for both arrays.
        let came = unsafe { self.exchange_blocks(team, dst, src, lists()) }?;
        if received != 0 {
            // SAFETY: valid for an entry for each member, as the caller says.
            unsafe { std::ptr::copy_nonoverlapping(came.as_ptr(), received as *mut usize, came.len()) };
        }
        Ok(())
    }

    /// [`World::team_alltoallv`]: how many bytes have come from each.
    ///
    /// # Safety
    /// As there.
    unsafe fn exchange_blocks(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        blocks: Result<Blocks<'_>>,
    ) -> Result<Vec<usize>> {
        /// The words with a member's largest block, and with all that it sends.
        const MOST: usize = 0;
        const ALL: usize = 2;
        let mut s = self.session(team, Call::Alltoallv)?;
        s.mirrors.has_gaps = true;
        let (n, me) = (s.n, s.me);
        let source = blocks.and_then(|blocks| {
            let (end, all) = (end_of(blocks.src_at, blocks.bytes), blocks.bytes.iter().try_fold(0, add));
            let (Some(end), Some(all)) = (end, all) else {
                return Err(err!(
                    INVALID_ARGUMENT,
                    "the blocks of the source are more than an address space"
                ));
            };
            let parts = || places(blocks.src_at, blocks.bytes);
            let from = self.area_of_parts("the source", src, end, parts)?;
            Ok((blocks, from, all, end))
        });
        let words = source.as_ref().map_err(Clone::clone).map(|(blocks, _, all, _)| {
            [blocks.bytes.iter().copied().max().unwrap_or(0) as u64, 0, *all as u64, 0]
        });
        let given = source.ok();
        // Every member's row: how much goes to each, and where it wants what comes from each.
        let table = n * size_of::<[usize; 2]>();
        s.enter_with(words, false, table, |to| {
            let row = to.cast::<[usize; 2]>();
            let lists = given.iter().flat_map(|(blocks, ..)| blocks.bytes.iter().zip(blocks.dst_at));
            for (j, (bytes, at)) in lists.enumerate() {
                // SAFETY: there is room for two words for each member, aligned as the rounds' room is.
                unsafe { row.add(j).write([*bytes, *at]) };
            }
        })?;
        let Some((blocks, from, all, sent_to)) = given else { return Ok(Vec::new()) };
        // SAFETY: each member has carried a row for all.
        let said = |i: usize, j: usize| unsafe { s.carried(i, table).cast::<[usize; 2]>().add(j).read() };
        let received: Vec<usize> = (0..n).map(|i| said(i, me)[0]).collect();
        let wanted: Vec<usize> = (0..n).map(|j| said(j, me)[1]).collect();
        let before: Vec<usize> = (0..n).map(|i| (0..me).map(|j| said(i, j)[0]).sum()).collect();
        let most = (0..n).map(|i| s.call.words(i)[MOST] as usize).max().unwrap_or(0);
        let sent: Vec<usize> = (0..n).map(|i| s.call.words(i)[ALL] as usize).collect();
        let small = sent.iter().all(|all| *all <= s.small());
        s.done()?;
        let mut to = self.check_places(dst, &blocks, &received);
        let end = if to.is_ok() { end_of(blocks.dst_at, &received).unwrap_or(0) } else { 0 };
        let mut area = to.as_ref().map_or(Area { at: dst, offset: PRIVATE }, |area| *area);
        let mut from = from;
        if small {
            // SAFETY: the caller vouches for the source, and the destination has that much room.
            match unsafe { s.touchable((area, end), (from, sent_to)) } {
                Ok(both) => (area, from) = both,
                Err(e) => to = to.and(Err(e)),
            }
        }
        if received.iter().all(|bytes| *bytes == 0) {
            // Nobody writes there, wherever it is.
            area.offset = 0;
        }
        if small {
            let (to, mut carried) = (s.call.carried_here(all), 0);
            for (at, bytes) in blocks.src_at.iter().zip(blocks.bytes) {
                // SAFETY: a block of the source, and room for all of them.
                unsafe { copy(to.add(carried), from.ptr().wrapping_add(*at), *bytes) };
                carried += bytes;
            }
        }
        s.settle(to.map(drop), [0, 0, area.offset, 0], if small { all } else { 0 })?;
        let place = |i: usize| area.ptr_mut().wrapping_add(blocks.dst_at[i]);
        if small {
            for i in 0..n {
                // SAFETY: the member has carried its blocks; this one's place was checked.
                unsafe { copy(place(i), s.carried(i, sent[i]).add(before[i]), received[i]) };
            }
            s.done()?;
            return Ok(received);
        }
        let into: Vec<u64> = (0..n).map(|j| s.offset(j, DST)).collect();
        if (0..n).all(|j| into[j] != PRIVATE) {
            let moved = s.others().filter(|j| blocks.bytes[*j] > 0).try_for_each(|j| {
                let (at, bytes) = (from.ptr().wrapping_add(blocks.src_at[j]), blocks.bytes[j]);
                // SAFETY: the caller vouches for the source until the quiet.
                unsafe { s.push(j, into[j] + wanted[j] as u64, at, bytes) }
            });
            let own = from.ptr().wrapping_add(blocks.src_at[me]);
            // SAFETY: both are valid for the block.
            let own = unsafe { s.copy_own(place(me), own, received[me]) };
            s.finish(moved.and(own))?;
            return Ok(received);
        }
        // SAFETY: the caller vouches for the source, and the destination has that much room.
        let (area, from) = unsafe { s.touchable((area, end), (from, sent_to)) }?;
        let place = |i: usize| area.ptr_mut().wrapping_add(blocks.dst_at[i]);
        let fill = |j: usize, at: usize, to: *mut u8, piece: usize| {
            let bytes = blocks.bytes[j].saturating_sub(at).min(piece);
            // SAFETY: a part of block j, for which there is room.
            unsafe { copy(to, from.ptr().wrapping_add(blocks.src_at[j].wrapping_add(at)), bytes) }
        };
        s.transpose(most, fill, |i, at, from, piece| {
            let bytes = received[i].saturating_sub(at).min(piece);
            // SAFETY: the member has carried as many; this one's place was checked.
            unsafe { copy(place(i).wrapping_add(at), from, bytes) }
        })?;
        Ok(received)
    }

    /// Where what comes goes, if there is room for all of it.
    fn check_places(&self, dst: usize, blocks: &Blocks<'_>, received: &[usize]) -> Result<Area> {
        let end = end_of(blocks.dst_at, received);
        match end {
            Some(end) if end <= blocks.room => {
                self.area_of_parts("the destination", dst, end, || places(blocks.dst_at, received))
            }
            _ => Err(err!(
                OUT_OF_BOUNDS,
                "what comes ends {} bytes behind the start of the destination, which has {}",
                end.map_or("more than all".to_owned(), |end| end.to_string()),
                blocks.room
            )),
        }
    }
}

/// The blocks as offsets and lengths.
fn places<'a>(at: &'a [usize], bytes: &'a [usize]) -> impl Iterator<Item = (usize, usize)> + 'a {
    at.iter().copied().zip(bytes.iter().copied())
}

/// Where the last of the blocks ends that are not empty.
fn end_of(at: &[usize], bytes: &[usize]) -> Option<usize> {
    let blocks = at.iter().zip(bytes).filter(|(_, bytes)| **bytes > 0);
    blocks.map(|(at, bytes)| at.checked_add(*bytes)).try_fold(0, |most, end| Some(most.max(end?)))
}

fn add(all: usize, bytes: &usize) -> Option<usize> {
    all.checked_add(*bytes)
}

impl Session<'_> {
    /// Moves blocks of `bytes` through the rounds: each carries a piece of every block. `fill(j, at, to,
    /// piece)` puts the piece at `at` of the block for member `j` at `to`, `take(i, at, from, piece)` takes
    /// that of member `i`.
    pub(super) fn transpose(
        &mut self,
        bytes: usize,
        fill: impl Fn(usize, usize, *mut u8, usize),
        mut take: impl FnMut(usize, usize, *const u8, usize),
    ) -> Result<()> {
        let (n, me, each) = (self.n, self.me, self.piece_of_each());
        let fill = |at: usize, to: *mut u8, piece: usize| {
            // SAFETY: there is room for a piece for each member.
            (0..n).for_each(|j| fill(j, at, unsafe { to.add(j * each) }, piece));
            n * each
        };
        self.staged(bytes, each, fill, |s, at, piece| {
            // SAFETY: every member has carried a piece for each.
            (0..n).for_each(|i| take(i, at, unsafe { s.piece_of(i).add(me * each) }, piece));
        })
    }
}
