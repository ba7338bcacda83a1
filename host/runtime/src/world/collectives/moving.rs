//! One member's data to all (broadcast), and that of all to all (fcollect, collect).

use super::direct::{DST, SRC};
use super::{check_overlap, whole, Area, Arguments, Session, MAPS_NODE, PRIVATE};
use crate::error::{err, Result};
use crate::node::control::Call;
use crate::team::Team;
use crate::word::copy;
use crate::world::World;

impl World {
    /// Collective over the team: `bytes` bytes at the root's `src` are at every member's `dst`.
    ///
    /// # Safety
    /// `dst` is valid for as many bytes, and on the root `src`.
    pub(crate) unsafe fn team_broadcast(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        bytes: usize,
        root: i32,
    ) -> Result<()> {
        let mut s = self.session(team, Call::Broadcast)?;
        let at_root = s.me as i32 == root;
        let arguments = || {
            check_root(team, root)?;
            let area = self.area("the destination", dst, bytes)?;
            if !at_root {
                // Nobody reads the others' sources.
                let nothing = self.area("the source", 0, 0)?;
                return Ok(Arguments {
                    size: bytes as u64,
                    what: root as u64,
                    dst: area,
                    src: nothing,
                    shared: false,
                });
            }
            let source = self.area("the source", src, bytes)?;
            let shared = check_overlap((dst, bytes), (src, bytes), || dst == src)?;
            Ok(Arguments { size: bytes as u64, what: root as u64, dst: area, src: source, shared })
        };
        let small = bytes <= s.small();
        // SAFETY: the caller vouches for both arrays.
        let arguments =
            unsafe { s.touchable_if(small, arguments(), (bytes, if at_root { bytes } else { 0 })) };
        let areas = arguments.as_ref().map(|a| (a.dst, a.src)).ok();
        s.enter(arguments, if at_root && small { bytes } else { 0 }, |to| {
            let from = areas.map_or(std::ptr::null(), |(_, src)| src.ptr());
            // SAFETY: the root's source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, bytes) }
        })?;
        let (Some((dst, src)), root) = (areas, root as usize) else { return Ok(()) };
        if at_root {
            // SAFETY: both are valid; they may be the same.
            unsafe { s.copy_own(dst.ptr_mut(), src.ptr(), bytes) }?;
        }
        if small {
            if !at_root {
                // SAFETY: the root has carried as many; the destination is valid for them.
                unsafe { copy(dst.ptr_mut(), s.carried(root, bytes), bytes) };
            }
            return s.done();
        }
        match s.offset(root, SRC) {
            PRIVATE => {
                let read = if at_root { bytes } else { 0 };
                // SAFETY: the caller vouches for both arrays.
                let (dst, src) = unsafe { s.touchable((dst, bytes), (src, read)) }?;
                let fill = |at: usize, to: *mut u8, bytes: usize| {
                    if !at_root {
                        return 0;
                    }
                    // SAFETY: a part of the source, for which there is room.
                    unsafe { copy(to, src.ptr().add(at), bytes) };
                    bytes
                };
                let room = s.call.room();
                s.staged(bytes, room, fill, |s, at, bytes| {
                    if !at_root {
                        // SAFETY: a part of the destination, of which the root has carried as many bytes.
                        unsafe { copy(dst.ptr_mut().add(at), s.piece_of(root), bytes) };
                    }
                })
            }
            from => s.broadcast_direct(root, from, dst.ptr_mut(), bytes),
        }
    }

    /// Collective over the team: `bytes` bytes of each member's `src`, one behind the other, are at every
    /// member's `dst`.
    ///
    /// # Safety
    /// `src` is valid for as many bytes, `dst` for those of all members.
    pub(crate) unsafe fn team_fcollect(
        &self,
        team: &Team,
        dst: usize,
        src: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut s = self.session(team, Call::Fcollect)?;
        let (n, me) = (s.n, s.me);
        let arguments = || {
            let all = whole(bytes, n)?;
            let (to, from) = (self.area("the destination", dst, all)?, self.area("the source", src, bytes)?);
            let shared = check_overlap((dst, all), (src, bytes), || src == dst + me * bytes)?;
            Ok(Arguments { size: bytes as u64, what: 0, dst: to, src: from, shared })
        };
        let small = bytes <= s.small();
        // SAFETY: the caller vouches for both arrays.
        let arguments = unsafe { s.touchable_if(small, arguments(), (n * bytes, bytes)) };
        let areas = arguments.as_ref().map(|a| (a.dst, a.src)).ok();
        s.enter(arguments, if small { bytes } else { 0 }, |to| {
            let from = areas.map_or(std::ptr::null(), |(_, src)| src.ptr());
            // SAFETY: the source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, bytes) }
        })?;
        let Some((dst, src)) = areas else { return Ok(()) };
        if small {
            for i in 0..n {
                // SAFETY: each member has carried as many bytes; the destination has a place for each.
                unsafe { copy(dst.ptr_mut().add(i * bytes), s.carried(i, bytes), bytes) };
            }
            return s.done();
        }
        let part = |i: usize| (i * bytes, bytes);
        // SAFETY: the caller vouches for both arrays.
        unsafe { s.gather((dst, n * bytes), (src, bytes), part, bytes, s.offsets(SRC), s.all(MAPS_NODE)) }
    }

    /// Collective over the team: `bytes` bytes of each member's `src`, which may be as many as each likes,
    /// one behind the other are at every member's `dst`, where there are `room`; `*received`: how many.
    ///
    /// # Safety
    /// `src` is valid for `bytes` bytes, `dst` for those of all members or for `room`, if that is less;
    /// `received` is null or valid.
    pub(crate) unsafe fn team_collect(
        &self,
        team: &Team,
        dst: usize,
        room: usize,
        src: usize,
        bytes: usize,
        received: usize,
    ) -> Result<()> {
        // SAFETY: the caller vouches for both arrays.
        let came = unsafe { self.collect(team, dst, room, src, bytes) }?;
        // SAFETY: null, or valid.
        if let Some(received) = unsafe { (received as *mut usize).as_mut() } {
            *received = came;
        }
        Ok(())
    }

    /// [`World::team_collect`]: how many bytes have come.
    ///
    /// # Safety
    /// As there.
    unsafe fn collect(
        &self,
        team: &Team,
        dst: usize,
        room: usize,
        src: usize,
        bytes: usize,
    ) -> Result<usize> {
        /// The word with a member's room.
        const ROOM: usize = 2;
        let mut s = self.session(team, Call::Collect)?;
        let (n, me) = (s.n, s.me);
        let arguments = || {
            let from = self.area("the source", src, bytes)?;
            // What there is from the destination on decides how much may come.
            let rest = self.symmetric.rest(dst);
            let room = if dst == 0 { 0 } else { rest.unwrap_or(usize::MAX).min(room) };
            let to = self.area("the destination", dst, usize::from(room > 0))?;
            Ok((to, from, room))
        };
        let small = s.small();
        let arguments = arguments().and_then(|(to, from, room)| {
            let carried = if bytes <= small {
                // SAFETY: the caller vouches for the source, from which small ones are carried.
                unsafe { s.touchable((to, 0), (from, bytes)) }?.1
            } else {
                from
            };
            Ok((to, carried, room))
        });
        let areas = arguments.as_ref().ok().copied();
        let maps = if self.maps_node() { MAPS_NODE } else { 0 };
        let words = arguments.map(|(dst, _, room)| [bytes as u64, maps, room as u64, dst.offset]);
        s.enter_with(words, false, if bytes <= small { bytes } else { 0 }, |to| {
            let from = areas.map_or(std::ptr::null(), |(_, src, _)| src.ptr());
            // SAFETY: the source is valid for as many bytes, and there is room for them.
            unsafe { copy(to, from, bytes) }
        })?;
        let Some((to, from, _)) = areas else { return Ok(0) };
        let maps = s.all(MAPS_NODE);
        let sizes: Vec<usize> = (0..n).map(|i| s.call.words(i)[0] as usize).collect();
        let starts: Option<Vec<usize>> = sizes
            .iter()
            .scan(Some(0usize), |at, size| {
                let start = *at;
                *at = start.and_then(|start| start.checked_add(*size));
                Some(start)
            })
            .collect();
        let all = starts.as_ref().and_then(|starts| starts[n - 1].checked_add(sizes[n - 1]));
        let least = (0..n).min_by_key(|i| s.call.words(*i)[ROOM]).unwrap_or(0);
        let there = s.call.words(least)[ROOM];
        let (Some(starts), Some(all)) = (starts, all.filter(|all| *all as u64 <= there)) else {
            let (what, who, all) =
                (s.what(), s.call.who(least), sizes.iter().map(|size| *size as u128).sum::<u128>());
            return Err(err!(
                OUT_OF_BOUNDS,
                "{what}: {all} bytes come from all members, and {who} has room for {there} in its destination"
            ));
        };
        // Every member sees the same sizes, but only this one its addresses.
        let apart = check_overlap((dst, all), (src, bytes), || src == dst + starts[me]).map(drop);
        let most = sizes.iter().copied().max().unwrap_or(0);
        if most <= small {
            apart.map_err(|e| e.context(s.what()))?;
            // SAFETY: the destination has room for all, as checked.
            let (to, _) = unsafe { s.touchable((to, all), (from, 0)) }?;
            for i in 0..n {
                // SAFETY: each member has carried its bytes; the destination has room for all, as checked.
                unsafe { copy(to.ptr_mut().add(starts[i]), s.carried(i, sizes[i]), sizes[i]) };
            }
            s.done()?;
            return Ok(all);
        }
        s.settle(apart, [0, 0, to.offset, PRIVATE], 0)?;
        let part = |i: usize| (starts[i], sizes[i]);
        // SAFETY: the caller vouches for both arrays, of which the destination is long enough.
        unsafe { s.gather((to, all), (from, bytes), part, most, None, maps) }?;
        Ok(all)
    }
}

impl Session<'_> {
    /// Everybody reads the root's source at `from` of its heap. Where all destinations are symmetric, one
    /// member of each other node does, and the rest of its node from that one; and where all members are of
    /// one node, the root writes a part of each destination.
    fn broadcast_direct(&mut self, root: usize, from: u64, dst: *mut u8, bytes: usize) -> Result<()> {
        let node = |i: usize| self.world.nodes.leader(self.pe(i) as usize);
        let home = node(root);
        let heads = self.offsets(DST).filter(|_| self.all(MAPS_NODE)).map(|offsets| {
            let head = |i: usize| (0..self.n).find(|head| node(*head) == node(i)).unwrap_or(i);
            let away = |i: &usize| node(*i) != home && head(*i) != *i;
            ((0..self.n).any(|i| away(&i)), head(self.me), away(&self.me), offsets)
        });
        match heads {
            Some((true, head, away, offsets)) => {
                let first = if self.me == root || away {
                    Ok(())
                } else {
                    // SAFETY: this PE's own destination, of which nobody reads before the round.
                    unsafe { self.pull(root, from, dst, bytes) }.and_then(|()| self.quiet())
                };
                self.settle(first, [0; 4], 0)?;
                let second = if away {
                    // SAFETY: this PE's own destination.
                    unsafe { self.pull(head, offsets[head], dst, bytes) }
                } else {
                    Ok(())
                };
                self.finish(second)
            }
            heads => {
                // The root, which has nothing to fetch, brings a member's share of the work to each: the end.
                // In GPU memory copy engines work, of which nobody has measured that.
                let helps = self.call.is_of_one_node() && !self.is_apart();
                let helped = heads.filter(|_| helps).map(|(.., offsets)| offsets);
                let brought = if helped.is_some() { bytes / self.n / 64 * 64 } else { 0 };
                let at = bytes - brought;
                let mine = if self.me != root {
                    // SAFETY: this PE's own destination, of which the root writes what is behind `at`.
                    unsafe { self.pull(root, from, dst, at) }
                } else {
                    let source = (self.place(from) + at) as *const u8;
                    helped.filter(|_| brought > 0).map_or(Ok(()), |offsets| {
                        self.others().try_for_each(|i| {
                            let to = offsets[i] + at as u64;
                            // SAFETY: this PE's own source. The member leaves that part of its own alone.
                            unsafe { self.push(i, to, source, brought) }
                        })
                    })
                };
                self.finish(mine)
            }
        }
    }

    /// Every member's data to all: member `i`'s is `part(i)` of the destinations, a place and a number of
    /// bytes, `most` at most. `from` are the offsets of the sources, where all are symmetric; `maps`: all map
    /// their nodes, so that data which has come to a node once may be copied from there.
    ///
    /// # Safety
    /// `src` is valid for this member's part, `dst` for all of them; they are apart but for this member's
    /// own.
    unsafe fn gather(
        &mut self,
        (to, all): (Area, usize),
        (own, bytes): (Area, usize),
        part: impl Fn(usize) -> (usize, usize),
        most: usize,
        from: Option<Vec<u64>>,
        maps: bool,
    ) -> Result<()> {
        let (me, n) = (self.me, self.n);
        let (start, _) = part(me);
        let (dst, src) = (to.ptr_mut(), own.ptr());
        if let Some(offsets) = self.offsets(DST) {
            let relays = self.relays().filter(|_| maps);
            let goes_to = |to: &usize| relays.as_ref().is_none_or(|relays| relays.sends(me, *to));
            // SAFETY: the caller vouches for both; the others' destinations are as long.
            let pushed = self
                .others()
                .filter(goes_to)
                .try_for_each(|to| unsafe { self.push(to, offsets[to] + start as u64, src, bytes) });
            // SAFETY: the caller vouches for both; a part may be in its place already.
            let own = unsafe { self.copy_own(dst.add(start), src, bytes) };
            let Some(relays) = relays else { return self.finish(pushed.and(own)) };
            let over = self.quiet();
            self.settle(pushed.and(own).and(over), [0; 4], 0)?;
            let copied = relays.copies(me).try_for_each(|(i, relay)| {
                let (start, bytes) = part(i);
                // SAFETY: this PE's own destination, of which nobody reads that part.
                unsafe { self.pull(relay, offsets[relay] + start as u64, dst.add(start), bytes) }
            });
            return self.finish(copied);
        }
        if let Some(offsets) = from {
            let pulled = self.others().try_for_each(|i| {
                let (start, bytes) = part(i);
                // SAFETY: the caller vouches for the destination.
                unsafe { self.pull(i, offsets[i], dst.add(start), bytes) }
            });
            // SAFETY: the caller vouches for both; a part may be in its place already.
            let own = unsafe { self.copy_own(dst.add(start), src, bytes) };
            return self.finish(pulled.and(own));
        }
        // SAFETY: the caller vouches for both.
        let (to, own) = unsafe { self.touchable((to, all), (own, bytes)) }?;
        let (dst, src) = (to.ptr_mut(), own.ptr());
        let fill = |at: usize, to: *mut u8, piece: usize| {
            let bytes = bytes.saturating_sub(at).min(piece);
            // SAFETY: a part of the source, for which there is room.
            unsafe { copy(to, src.wrapping_add(at), bytes) };
            bytes
        };
        let room = self.call.room();
        self.staged(most, room, fill, |s, at, piece| {
            for i in 0..n {
                let (start, bytes) = part(i);
                let bytes = bytes.saturating_sub(at).min(piece);
                // SAFETY: the member has carried as many; the caller vouches for the destination.
                unsafe { copy(dst.wrapping_add(start + at), s.piece_of(i), bytes) };
            }
        })
    }
}

/// Refuses a root that is no member.
fn check_root(team: &Team, root: i32) -> Result<()> {
    let n = team.members().n();
    if usize::try_from(root).is_ok_and(|root| root < n) {
        return Ok(());
    }
    Err(err!(
        BAD_PE,
        "{} has no member {root}, the root: its members are 0 to {}",
        team.rounds().name(),
        n - 1
    ))
}
