//! What a block's threads do wrong besides races: noted as it happens, and reported once texts can be made.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{CheckedBlock, CheckedThread};
use crate::check::actor::{Access, Spot};
use crate::check::calls::{self, Asked, Call};
use crate::check::clock::Track;
use crate::check::fault::{Fault, What};
use crate::check::scope::Scope;
use crate::check::variables::{find, Accessed};
use crate::padding::GUARD;
use crate::stack_trace::Counters;

impl CheckedBlock {
    /// What is wrong with an access of that memory, as far as it is known; `None` for none of it.
    #[inline]
    pub(super) fn judge(&mut self, at: usize, spot: Option<Spot>, bytes: usize, write: bool) -> Option<What> {
        let spot = match spot {
            Some(spot) if spot.space & 1 << 15 == 0 => spot,
            _ => return self.shared.judge(at, bytes, write).or_else(|| self.judge_global(at, bytes)),
        };
        let world = &self.launch.chain.world;
        let end = spot.at + bytes;
        let (version, ranges) = (world.allocations.version(), &mut self.live.1);
        if self.live.0 != version {
            (self.live.0, *ranges) = (version, Default::default());
        }
        if ranges.iter().any(|range| range.start <= spot.at && end <= range.end) {
            return None;
        }
        match world.allocations.find(spot.at, bytes) {
            Ok(range) => {
                ranges.rotate_right(1);
                ranges[0] = range;
                None
            }
            Err(outside) => Some(What::Outside(outside)),
        }
    }

    /// The same of memory that is the module's, if any.
    fn judge_global(&self, at: usize, bytes: usize) -> Option<What> {
        let near = self.globals.first()?.range.start.saturating_sub(GUARD)
            ..self.globals.last()?.range.end.saturating_add(GUARD);
        if !near.contains(&at) {
            return None;
        }
        let Accessed::Beside(variable, past) = find(&self.globals, at, bytes) else { return None };
        Some(What::PastGlobal { name: variable.name.clone(), size: variable.range.len(), past })
    }

    /// Keeps a fault for the next time that texts can be made, unless it has one of its kind and place.
    pub(super) fn fault(&mut self, fault: Fault) {
        let is_known = |known: &Fault| known.site == fault.site && known.what.head() == fault.what.head();
        if !self.faults.iter().any(is_known) {
            self.faults.push(fault);
        }
    }

    /// Whether no call of that line was misused yet.
    pub(crate) fn is_first_at(&mut self, line: u32) -> bool {
        let is_new = !self.misused.contains(&line);
        if is_new {
            self.misused.push(line);
        }
        is_new
    }

    /// A thread makes a call that not all of its scope make.
    pub(crate) fn misused(&mut self, thread: usize, counters: Counters, said: String) {
        let launch = &self.launch;
        let mut key = DefaultHasher::new();
        (launch.code.kernel(), counters.list(), launch.grid, launch.block).hash(&mut key);
        let (site, is_new) = launch.world().site(key.finish(), launch.grid, launch.block);
        if is_new {
            self.unnamed.push((site, counters));
        }
        let strand = self.threads[thread].actor.strand;
        let spot = Spot { space: launch.world().private, at: 0 };
        let access =
            Access { bytes: 0, write: false, atomic: None, track: Track::Now, unordered: false, site };
        self.fault(Fault::of(strand, site, spot, &access, What::Scope(said)));
    }
}

impl CheckedThread {
    /// An update reads before it writes.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(super) unsafe fn reads_shared(&mut self, at: usize, access: Access, counter: usize) {
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        if !(block.launch.code.check.memory && block.shared.has(at)) {
            return;
        }
        if let Some(what) = block.shared.judge(at, access.bytes, false) {
            let site = block.site(counter, frames);
            let spot = Spot { space: block.launch.world().private, at };
            block.fault(Fault::of(actor.strand, site, spot, &access, what));
        }
    }

    /// A word of an atomic operation, or a signal, that is symmetric (on PE `pe`, or where it is mapped) and
    /// not on its natural alignment.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    #[cold]
    pub(crate) unsafe fn misaligned(&mut self, at: usize, pe: Option<i32>, bytes: usize, counter: usize) {
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        let world = std::sync::Arc::clone(block.launch.world());
        let spot = pe.map_or_else(|| block.spot(at), |pe| world.spot_on(at, pe));
        let Some(spot) = spot.filter(|spot| !world.is_own(*spot) && block.launch.code.check.memory) else {
            return;
        };
        let access = Access {
            bytes,
            write: true,
            atomic: Some(Scope::System),
            track: Track::Now,
            unordered: false,
            site: 0,
        };
        let site = block.site(counter, frames);
        block.fault(Fault::of(actor.strand, site, spot, &access, What::Misaligned));
    }

    /// A shuffle takes the value of a lane that takes no part in it.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn shuffles(&mut self, mask: u32, source: u32, counter: usize) {
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        if !block.launch.code.check.memory {
            return;
        }
        let site = block.site(counter, frames);
        let spot = Spot { space: block.launch.world().private, at: 0 };
        let access =
            Access { bytes: 0, write: false, atomic: None, track: Track::Now, unordered: false, site };
        block.fault(Fault::of(actor.strand, site, spot, &access, What::Shuffle { mask, source }));
    }

    /// What the collective call is asked for that it is about to make.
    pub(crate) fn asked(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// It makes the call of that tag, for its scope.
    ///
    /// # Safety
    /// As for [`CheckedThread::parts`].
    pub(crate) unsafe fn calls(&mut self, slots: u64, first: i32, phase: u64, tag: u32, counter: usize) {
        let asked = self.asked;
        // SAFETY: the caller's word.
        let (block, actor, frames) = unsafe { self.parts() };
        // Calls by several blocks have another tag.
        if !block.launch.code.check.memory || asked.tag != tag {
            return;
        }
        let (strand, site) = (actor.strand, block.site(counter, frames));
        let world = block.launch.world();
        let call = Call { asked, strand, site };
        if let Some(other) = calls::meet(&world.segment, slots, first, phase, call) {
            let spot = Spot { space: world.private, at: 0 };
            let access =
                Access { bytes: 0, write: false, atomic: None, track: Track::Now, unordered: false, site };
            block.fault(Fault::of(strand, site, spot, &access, What::Unequal { mine: asked, other }));
        }
    }
}
