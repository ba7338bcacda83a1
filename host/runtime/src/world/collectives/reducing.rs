//! Reductions: all members' elements combined, to all of them (reduce), a block to each (reducescatter), or
//! up to each (inscan, exscan).
//!
//! Members are combined in the order of their numbers, element by element, by every protocol here
//! ([`crate::reduction`]). Small data travels with the first round, and each member combines all of it. Of
//! large symmetric arrays each member combines its share, which it reads from all, and writes the result to
//! all. Everything else goes through the rounds piece by piece.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::direct::{DST, PAST_CACHES, SRC};
use super::{check_overlap, whole, Area, Arguments, Session, MAPS_NODE, SHARED};
use crate::error::{err, Error, Result};
use crate::node::control::Call;
use crate::op::team_call::TeamCall;
use crate::reduction::{Block, Reduction, BLOCK};
use crate::team::Team;
use crate::word::copy;
use crate::world::World;
use rushmem_abi::reduction::{Operator, Reduced};

/// Shares begin at whole lines of any element.
const LINE: usize = 64;
/// Bytes that are read from each far member at a time, at most, and of all of them.
const FAR_PIECE: usize = 256 << 10;
const FAR_PIECES: usize = 4 << 20;

/// Which members' elements each member gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combined {
    /// Those of all.
    Whole,
    /// Those of the members up to it.
    Through,
    /// Those of the members before it; the first one gets zeroes.
    Before,
}

/// Type and operator in word 1.
fn word(reduction: &Reduction) -> u64 {
    reduction.of().code as u64 | (reduction.op().code() as u64) << 8
}

/// The type in it, for texts.
pub(super) fn type_name(word: u64) -> &'static str {
    Reduced::of((word & 0xff) as i32).map_or("none", |of| of.name)
}

/// The operator in it, for texts.
pub(super) fn operator_name(word: u64) -> &'static str {
    Operator::of((word >> 8 & 0xff) as i32).map_or("none", |op| op.name())
}

macro_rules! combining {
    ($($(#[$doc:meta])* $name:ident = $kind:ident $wanted:ident;)*) => {
        impl World {$(
            $(#[$doc])*
            ///
            /// # Safety
            /// Both are valid for `n` elements.
            pub(crate) unsafe fn $name(
                &self,
                team: &Team,
                dst: usize,
                src: usize,
                n: usize,
                of: i32,
                op: i32,
            ) -> Result<()> {
                // SAFETY: as the caller says.
                unsafe { self.combine(team, Call::$kind, Combined::$wanted, (dst, src), n, (of, op)) }
            }
        )*}
    };
}
combining! {
    /// Collective over the team: element `i` of every member's `dst` is that of all members' `src` combined.
    team_reduce = Reduce Whole;
    /// The same of the members up to each one.
    team_inscan = Inscan Through;
    /// The same of the members before each one; the first one gets zeroes.
    team_exscan = Exscan Before;
}

impl World {
    /// Collective over the team: element `i` of every member's `dst` is that of the wanted members' `src`
    /// combined.
    ///
    /// # Safety
    /// Both are valid for `n` elements.
    unsafe fn combine(
        &self,
        team: &Team,
        kind: Call,
        wanted: Combined,
        (dst, src): (usize, usize),
        n: usize,
        (of, op): (i32, i32),
    ) -> Result<()> {
        let mut s = self.session(team, kind)?;
        let arguments = Reduction::new(of, op).and_then(|r| {
            let bytes = whole(r.element(), n).map_err(|_| too_many(n))?;
            let (to, from) =
                (self.area("the destination", dst, bytes)?, self.area("the source", src, bytes)?);
            let shared = check_overlap((dst, bytes), (src, bytes), || dst == src)?;
            Ok((Arguments { size: bytes as u64, what: word(&r), dst: to, src: from, shared }, r, bytes))
        });
        let (small, bytes) =
            arguments.as_ref().map_or((false, 0), |(.., bytes)| (*bytes <= s.small(), *bytes));
        let reduction = arguments.as_ref().map(|(_, r, _)| *r).ok();
        // SAFETY: the caller vouches for both arrays.
        let arguments = unsafe { s.touchable_if(small, arguments.map(|(a, ..)| a), (bytes, bytes)) };
        let mine = arguments.as_ref().ok().zip(reduction).map(|(a, r)| (a.dst, a.src, r, bytes));
        let carried = mine.filter(|_| small).map_or(0, |(.., bytes)| bytes);
        s.enter(arguments, carried, |to| {
            let from = mine.map_or(std::ptr::null(), |(_, src, ..)| src.ptr());
            // SAFETY: the source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, carried) }
        })?;
        let Some((dst, src, r, bytes)) = mine else { return Ok(()) };
        let used = match wanted {
            Combined::Whole => s.n,
            Combined::Through => s.me + 1,
            Combined::Before => s.me,
        };
        if small {
            // SAFETY: every member has carried as many bytes; the destination is valid for them.
            unsafe { combine_pieces(&r, used, bytes, |i| s.carried(i, carried), dst.ptr_mut()) };
            return s.done();
        }
        if let (Some(from), into) = (s.offsets(SRC).filter(|_| !s.is_apart()), s.offsets(DST)) {
            if let Some(into) = into {
                return s.combine_shares(&r, wanted, bytes, &into, &from);
            }
            // In place, what others read would be written.
            if !s.any(SHARED) {
                return s.combine_here(&r, used, bytes, dst.ptr_mut(), &from);
            }
        }
        if s.is_apart() && s.offsets(SRC).is_some() && s.offsets(DST).is_some() {
            let (dst, src, r#type) = (dst.at, src.at, of);
            // SAFETY: the caller vouches for both arrays.
            if kind == Call::Reduce && unsafe { s.on_gpus(TeamCall::Reduce { dst, src, n, r#type, op }) }? {
                return Ok(());
            }
        }
        // SAFETY: the caller vouches for both arrays.
        let (dst, src) = unsafe { s.touchable((dst, bytes), (src, bytes)) }?;
        let fill = |at: usize, to: *mut u8, bytes: usize| {
            // SAFETY: a part of the source, for which there is room.
            unsafe { copy(to, src.ptr().add(at), bytes) };
            bytes
        };
        let room = s.call.room();
        s.staged(bytes, room, fill, |s, at, bytes| {
            // SAFETY: every member has carried as many bytes; a part of the destination.
            unsafe { combine_pieces(&r, used, bytes, |i| s.piece_of(i), dst.ptr_mut().add(at)) }
        })
    }

    /// Collective over the team: member `j` gets block `j`, of `n` elements, of all members' `src` combined.
    ///
    /// # Safety
    /// `dst` is valid for `n` elements, `src` for as many for each member.
    pub(crate) unsafe fn team_reducescatter(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        n: usize,
        of: i32,
        op: i32,
    ) -> Result<()> {
        let mut s = self.session(team, Call::Reducescatter)?;
        let (members, me) = (s.n, s.me);
        let arguments = Reduction::new(of, op).and_then(|r| {
            let bytes = whole(r.element(), n).map_err(|_| too_many(n))?;
            let all = whole(bytes, members)?;
            let (to, from) = (self.area("the destination", dst, bytes)?, self.area("the source", src, all)?);
            let shared = check_overlap((dst, bytes), (src, all), || dst == src || dst == src + me * bytes)?;
            Ok((Arguments { size: bytes as u64, what: word(&r), dst: to, src: from, shared }, r, bytes, all))
        });
        let (bytes, all) = arguments.as_ref().map_or((0, usize::MAX), |(.., bytes, all)| (*bytes, *all));
        let small = all <= s.small();
        let reduction = arguments.as_ref().map(|(_, r, ..)| *r).ok();
        // SAFETY: the caller vouches for both arrays.
        let arguments = unsafe { s.touchable_if(small, arguments.map(|(a, ..)| a), (bytes, all)) };
        let mine = arguments.as_ref().ok().zip(reduction).map(|(a, r)| (a.dst, a.src, r, bytes, all));
        let carried = mine.filter(|_| small).map_or(0, |(.., all)| all);
        s.enter(arguments, carried, |to| {
            let from = mine.map_or(std::ptr::null(), |(_, src, ..)| src.ptr());
            // SAFETY: the source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, carried) }
        })?;
        let Some((dst, src, r, bytes, all)) = mine else { return Ok(()) };
        if small {
            // SAFETY: every member has carried a block for each; the destination is valid for one.
            unsafe {
                combine_pieces(&r, members, bytes, |i| s.carried(i, carried).add(me * bytes), dst.ptr_mut());
            }
            return s.done();
        }
        if let Some(from) = s.offsets(SRC).filter(|_| !s.any(SHARED) && !s.is_apart()) {
            let from: Vec<u64> = from.iter().map(|offset| offset + (me * bytes) as u64).collect();
            return s.combine_here(&r, members, bytes, dst.ptr_mut(), &from);
        }
        // A block of the source other than the first is no destination for kernels.
        if s.is_apart() && s.offsets(SRC).is_some() && s.offsets(DST).is_some() && !s.any(SHARED) {
            let (dst, src, r#type) = (dst.at, src.at, of);
            // SAFETY: the caller vouches for both arrays.
            if unsafe { s.on_gpus(TeamCall::Reducescatter { dst, src, n, r#type, op }) }? {
                return Ok(());
            }
        }
        // SAFETY: the caller vouches for both arrays.
        let (dst, src) = unsafe { s.touchable((dst, bytes), (src, all)) }?;
        s.scatter_staged(&r, dst, src, bytes)
    }
}

/// A member's destination.
#[derive(Debug, Clone, Copy)]
enum OutPlace {
    /// It is mapped here.
    Near(*mut u8),
    /// At that offset of its heap.
    Far(u64),
    /// Nothing is written there.
    Nowhere,
}

impl Session<'_> {
    /// Every member combines its share of the elements, and writes the result to the members. In place a
    /// share is read by its member alone, before it is written.
    fn combine_shares(
        &mut self,
        r: &Reduction,
        wanted: Combined,
        bytes: usize,
        into: &[u64],
        from: &[u64],
    ) -> Result<()> {
        let share = bytes.div_ceil(self.n).next_multiple_of(LINE);
        let range = |i: usize| (share * i).min(bytes)..(share * (i + 1)).min(bytes);
        let me = self.me;
        // What is the same for all members goes to a node once.
        let relays = self.relays().filter(|_| wanted == Combined::Whole && self.all(MAPS_NODE));
        let place = |i: usize| match self.near(i, into[i]) {
            Some(at) => OutPlace::Near(at),
            None if relays.as_ref().is_some_and(|relays| !relays.sends(me, i)) => OutPlace::Nowhere,
            None => OutPlace::Far(into[i]),
        };
        let places: Vec<OutPlace> = (0..self.n).map(place).collect();
        let moved = self.combine_range(r, wanted, range(me), from, &places);
        let Some(relays) = relays else { return self.finish(moved) };
        let over = self.quiet();
        self.settle(moved.and(over), [0; 4], 0)?;
        let copied = relays.copies(me).try_for_each(|(i, relay)| {
            let (part, own) = (range(i), self.place(into[me]) as *mut u8);
            // SAFETY: this PE's own destination, of which nobody reads that part.
            unsafe { self.pull(relay, into[relay] + part.start as u64, own.add(part.start), part.len()) }
        });
        self.finish(copied)
    }

    /// Combines the elements of the first `used` members, whose sources are symmetric, for this one alone.
    fn combine_here(
        &mut self,
        r: &Reduction,
        used: usize,
        bytes: usize,
        dst: *mut u8,
        from: &[u64],
    ) -> Result<()> {
        let mut places = vec![OutPlace::Nowhere; self.n];
        places[self.me] = OutPlace::Near(dst);
        let moved = if used == 0 {
            // SAFETY: this PE's own destination.
            unsafe { dst.write_bytes(0, bytes) };
            Ok(())
        } else {
            self.combine_range(r, Combined::Whole, 0..bytes, &from[..used], &places)
        };
        self.finish(moved)
    }

    /// Combines a range of bytes of the sources at these offsets, and writes the result to the places.
    fn combine_range(
        &self,
        r: &Reduction,
        wanted: Combined,
        range: Range<usize>,
        from: &[u64],
        places: &[OutPlace],
    ) -> Result<()> {
        let mut sources: Vec<*const u8> = Vec::with_capacity(from.len());
        let mut far = Vec::new();
        for (i, offset) in from.iter().enumerate() {
            let near = self.near(i, *offset);
            far.extend(near.is_none().then_some(i));
            sources.push(near.map_or(std::ptr::null(), |at| at.cast_const()));
        }
        let mut targets: Vec<*mut u8> = places
            .iter()
            .map(|place| if let OutPlace::Near(at) = place { *at } else { std::ptr::null_mut() })
            .collect();
        let sent: Vec<(usize, u64)> = places
            .iter()
            .enumerate()
            .filter_map(
                |(i, place)| if let OutPlace::Far(offset) = place { Some((i, *offset)) } else { None },
            )
            .collect();
        if far.is_empty() && sent.is_empty() {
            // SAFETY: the members' arrays, which each of them has checked, mapped here.
            unsafe { self.combine_block_by_block(r, wanted, range, &sources, &targets) };
            return Ok(());
        }
        let piece = (FAR_PIECES / far.len().max(sent.len())).clamp(LINE, FAR_PIECE) / LINE * LINE;
        let mut come = vec![0u8; far.len() * piece];
        // The whole is sent from where this PE has it.
        let mut go = vec![0u8; if wanted == Combined::Whole { 0 } else { sent.len() * piece }];
        let (come, go) = (come.as_mut_ptr(), go.as_mut_ptr());
        let mut at = range.start;
        // Whatever fails, nothing moves to or from these pieces when they are freed.
        let moved = loop {
            if at == range.end {
                break Ok(());
            }
            let bytes = piece.min(range.end - at);
            let pulled = far.iter().enumerate().try_for_each(|(k, i)| {
                let to = come.wrapping_add(k * piece);
                sources[*i] = to.wrapping_sub(at);
                // SAFETY: a piece of its own, until the quiet.
                unsafe { self.pull(*i, from[*i] + at as u64, to, bytes) }
            });
            // What was sent from the pieces has gone, too.
            if let Err(e) = pulled.and_then(|()| self.quiet()) {
                break Err(e);
            }
            for (k, (i, _)) in sent.iter().enumerate().filter(|_| wanted != Combined::Whole) {
                targets[*i] = go.wrapping_add(k * piece).wrapping_sub(at);
            }
            // SAFETY: the members' arrays, which each of them has checked, or pieces of as many bytes.
            unsafe { self.combine_block_by_block(r, wanted, at..at + bytes, &sources, &targets) };
            let pushed = sent.iter().try_for_each(|(i, offset)| {
                let own = if wanted == Combined::Whole { targets[self.me] } else { targets[*i] };
                // SAFETY: nobody writes there before the quiet.
                unsafe { self.push(*i, offset + at as u64, own.wrapping_add(at), bytes) }
            });
            if let Err(e) = pushed {
                break Err(e);
            }
            at += bytes;
        };
        let over = self.quiet();
        moved.and(over)
    }

    /// Combines a range of bytes of the sources, and writes the result to the targets that are not null.
    ///
    /// # Safety
    /// The range of each source is valid for reads, and that of each target for writes.
    unsafe fn combine_block_by_block(
        &self,
        r: &Reduction,
        wanted: Combined,
        range: Range<usize>,
        sources: &[*const u8],
        targets: &[*mut u8],
    ) {
        let mut block = Block::new();
        let mut kept = [const { MaybeUninit::<u8>::uninit() }; BLOCK];
        let put = if range.len() >= PAST_CACHES { Reduction::put_past_caches } else { Reduction::put };
        let mut at = range.start;
        while at < range.end {
            let piece = r.block().min(range.end - at);
            // SAFETY: the caller vouches for both sides.
            unsafe {
                for (i, source) in sources.iter().enumerate() {
                    let (mut source, target) = (source.wrapping_add(at), targets[i].wrapping_add(at));
                    // In place, what comes out would replace what has yet to go in.
                    if wanted == Combined::Before && source == target.cast_const() {
                        copy(kept.as_mut_ptr().cast(), source, piece);
                        source = kept.as_ptr().cast();
                    }
                    match (wanted, i) {
                        (Combined::Before, 0) => target.write_bytes(0, piece),
                        (Combined::Before, _) => put(r, &mut block, target, piece),
                        _ => {}
                    }
                    if i == 0 {
                        r.begin(&mut block, source, piece);
                    } else {
                        r.add(&mut block, source, piece);
                    }
                    if wanted == Combined::Through {
                        put(r, &mut block, target, piece);
                    }
                }
                if wanted == Combined::Whole {
                    // Each its own way round, so that they do not all turn to one.
                    let (before, from_here) = targets.split_at(self.me);
                    for target in from_here.iter().chain(before).filter(|target| !target.is_null()) {
                        put(r, &mut block, target.wrapping_add(at), piece);
                    }
                }
            }
            at += piece;
        }
    }

    /// A reducescatter through the rounds: each carries a piece of every member's block.
    fn scatter_staged(&mut self, r: &Reduction, dst: Area, src: Area, bytes: usize) -> Result<()> {
        let (n, me, each) = (self.n, self.me, self.piece_of_each());
        let fill = |at: usize, to: *mut u8, piece: usize| {
            for j in 0..n {
                // SAFETY: a part of block j, for which there is room.
                unsafe { copy(to.add(j * each), src.ptr().add(j * bytes + at), piece) };
            }
            n * each
        };
        self.staged(bytes, each, fill, |s, at, piece| {
            // SAFETY: every member has carried a piece for each; a part of the destination.
            unsafe {
                combine_pieces(r, n, piece, |i| s.piece_of(i).add(me * each), dst.ptr_mut().add(at));
            }
        })
    }
}

/// Combines `bytes` bytes of the first `used` members, zeroes where that is none.
///
/// # Safety
/// `source` gives as many bytes of each, and `dst` is valid for them.
unsafe fn combine_pieces(
    r: &Reduction,
    used: usize,
    bytes: usize,
    source: impl Fn(usize) -> *const u8,
    dst: *mut u8,
) {
    if used == 0 {
        // SAFETY: the caller vouches for the destination.
        return unsafe { dst.write_bytes(0, bytes) };
    }
    let mut block = Block::new();
    let mut at = 0;
    while at < bytes {
        let piece = r.block().min(bytes - at);
        // SAFETY: the caller vouches for both sides.
        unsafe {
            r.begin(&mut block, source(0).add(at), piece);
            (1..used).for_each(|i| r.add(&mut block, source(i).add(at), piece));
            r.put(&mut block, dst.add(at), piece);
        }
        at += piece;
    }
}

fn too_many(n: usize) -> Error {
    err!(INVALID_ARGUMENT, "{n} elements are more than an address space")
}
