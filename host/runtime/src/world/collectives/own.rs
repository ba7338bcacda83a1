//! This PE's own arrays where the host cannot touch them, because its heap is in a GPU's memory. Large
//! symmetric arrays are moved where they lie, by the GPU's copy engines ([`super::direct`]), which need no SM
//! and so reach a GPU that is full of waiting kernels; large reductions of them are launched
//! ([`Session::on_gpus`]). What travels in the rounds is in host memory for the time of the call: small
//! arrays, arrays of a call in which some are not symmetric, and those that the host combines.

use std::ffi::c_void;
use std::sync::PoisonError;

use super::direct::PAST_CACHES;
use super::{Area, Arguments, Session, PRIVATE};
use crate::error::Result;
use crate::exec::{collective_on_stream, prepare_collective, SlotSet};
use crate::op::team_call::{is_reduced_by_kernels, TeamCall};
use crate::word::{copy, copy_past_caches};

/// Arrays of a call in host memory.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    arrays: Vec<Mirror>,
    /// What is written back at the end: to where, from where, how many bytes, and what they were where the
    /// call leaves some alone, which others may write meanwhile.
    results: Vec<(usize, usize, usize, Option<Vec<u8>>)>,
    /// The call leaves bytes of its destination alone.
    pub(super) has_gaps: bool,
}

#[derive(Debug)]
struct Mirror {
    at: usize,
    bytes: usize,
    /// In words, which are aligned for any element.
    host: Vec<u64>,
}

impl Session<'_> {
    /// Whether the host cannot touch the heap.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.world.heap_is_apart()
    }

    /// Copies between this PE's own arrays, which may be one place.
    ///
    /// # Safety
    /// Both are valid for `bytes`; they are one place, or apart.
    pub(super) unsafe fn copy_own(&self, dst: *mut u8, src: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for both.
        unsafe {
            match bytes {
                _ if dst.cast_const() == src => {}
                _ if self.is_apart() => return self.world.copy_own(dst as usize, src as usize, bytes),
                PAST_CACHES.. => copy_past_caches(dst, src, bytes),
                _ => copy(dst, src, bytes),
            }
        }
        Ok(())
    }

    /// Destination and source, each with its length, where this thread can touch them: they themselves, or in
    /// host memory. What is written there is in the destination when [`Session::done`] returns.
    ///
    /// # Safety
    /// Both are valid for as many bytes; they are apart, or one contains the other.
    pub(super) unsafe fn touchable(
        &mut self,
        (dst, dst_bytes): (Area, usize),
        (src, src_bytes): (Area, usize),
    ) -> Result<(Area, Area)> {
        if !self.is_apart() {
            return Ok((dst, src));
        }
        // The longer one first: it may contain the other.
        if dst_bytes < src_bytes {
            // SAFETY: the caller vouches for it.
            unsafe { self.mirror(src, src_bytes) }?;
        }
        // SAFETY: the caller vouches for both.
        let (to, from) = unsafe { (self.mirror(dst, dst_bytes)?, self.mirror(src, src_bytes)?) };
        if to.at != dst.at {
            // SAFETY: the mirror of the destination, which nobody writes yet.
            let bytes = || unsafe { std::slice::from_raw_parts(to.at as *const u8, dst_bytes) }.to_vec();
            let before = self.mirrors.has_gaps.then(bytes);
            self.mirrors.results.push((dst.at, to.at, dst_bytes, before));
        }
        Ok((to, from))
    }

    /// [`Session::touchable`] before the first round, for calls that are small.
    ///
    /// # Safety
    /// Both are valid for as many bytes; they are apart, or one contains the other.
    pub(super) unsafe fn touchable_if(
        &mut self,
        small: bool,
        arguments: Result<Arguments>,
        (dst_bytes, src_bytes): (usize, usize),
    ) -> Result<Arguments> {
        if !small || !self.is_apart() {
            return arguments;
        }
        let arguments = arguments?;
        // SAFETY: the caller vouches for both.
        let (dst, src) = unsafe { self.touchable((arguments.dst, dst_bytes), (arguments.src, src_bytes)) }?;
        Ok(Arguments { dst, src, ..arguments })
    }

    /// # Safety
    /// The array is valid for as many bytes.
    unsafe fn mirror(&mut self, area: Area, bytes: usize) -> Result<Area> {
        if bytes == 0 {
            return Ok(area);
        }
        let within = |m: &&Mirror| m.at <= area.at && area.at + bytes <= m.at + m.bytes;
        if let Some(whole) = self.mirrors.arrays.iter().find(within) {
            return Ok(Area { at: whole.host.as_ptr() as usize + (area.at - whole.at), offset: PRIVATE });
        }
        if area.offset == PRIVATE && !self.world.is_in_device(area.at)? {
            return Ok(area);
        }
        let mut host = vec![0u64; bytes.div_ceil(8)];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: the caller vouches for the array, and there is room for it.
        unsafe { self.world.copy_own(at, area.at, bytes) }?;
        self.mirrors.arrays.push(Mirror { at: area.at, bytes, host });
        Ok(Area { at, offset: PRIVATE })
    }

    /// Has the GPUs do a reduction of symmetric arrays, whose arguments all members have compared: a launch
    /// of what streams launch, in a slot set that is the host's alone. `Ok(false)`: they do not know it.
    ///
    /// # Safety
    /// The call's arrays are valid.
    pub(super) unsafe fn on_gpus(&mut self, reduction: TeamCall) -> Result<bool> {
        let world = self.world;
        let (name, of, op) = match reduction {
            TeamCall::Reduce { r#type, op, .. } => ("reduce", r#type, op),
            TeamCall::Reducescatter { r#type, op, .. } => ("reducescatter", r#type, op),
            _ => return Ok(false),
        };
        if !is_reduced_by_kernels(of, op) {
            return Ok(false);
        }
        // One that lacks the kernel fails before the others wait for it in theirs.
        let ready = prepare_collective(world, name, op, of as usize);
        self.settle(ready, [0; 4], 0)?;
        let team = self.team.of_host();
        let slots = SlotSet { team: &team, name: self.team.rounds().name().to_string(), set: 0 };
        // Calls of several teams may be under way, and one would wait behind another that waits for a PE
        // where they are the other way round.
        let spare = world.call_streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stream = spare.map_or_else(|| world.kernels.create_stream(), |raw| Ok(raw as *mut c_void))?;
        // SAFETY: the caller vouches for the arrays; the stream lives as long as the world, and the launch is
        // waited for.
        let done = unsafe {
            collective_on_stream(world, &slots, &reduction, stream)
                .and_then(|()| world.synchronize_stream(stream))
        };
        world.call_streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream as usize);
        done?;
        Ok(true)
    }

    /// Writes back what the call has written to host memory in the arrays' place.
    pub(super) fn write_back(&self) -> Result<()> {
        self.mirrors.results.iter().try_for_each(|(to, from, bytes, before)| {
            // SAFETY: part of an array of the caller's, and its mirror, which lives as long as the session.
            let write = |at: usize, len: usize| unsafe { self.world.copy_own(to + at, from + at, len) };
            let Some(before) = before else { return write(0, *bytes) };
            // SAFETY: the mirror, which the call has written to the end.
            let after = unsafe { std::slice::from_raw_parts(*from as *const u8, *bytes) };
            let mut at = 0;
            while let Some(skip) = (at..*bytes).position(|i| after[i] != before[i]) {
                let first = at + skip;
                let end = (first..*bytes).find(|i| after[*i] == before[*i]).unwrap_or(*bytes);
                write(first, end - first)?;
                at = end;
            }
            Ok(())
        })
    }
}
