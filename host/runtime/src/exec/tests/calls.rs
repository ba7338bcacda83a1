//! The operations by their names, for tests: what the C ABI makes of its arguments, without the C ABI.

use std::ffi::c_void;

use crate::error::Result;
use crate::exec::stream::StreamOrder;
use crate::exec::{self, Form};
use crate::op::atomic::AtomicOp;
use crate::op::movement::Movement;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::op::wait::Wait;
use crate::op::Op;
use crate::world::World;

/// # Safety
/// Here and below: local memory is valid for the operation's length.
pub(super) unsafe fn put(w: &World, dst: usize, src: *const u8, bytes: usize, pe: i32) -> Result<()> {
    // SAFETY: the caller vouches for the source.
    unsafe { exec::run(w, Op::put(dst, src as usize, bytes), pe, Form::Blocking) }.map(drop)
}

pub(super) unsafe fn get(w: &World, dst: *mut u8, src: usize, bytes: usize, pe: i32) -> Result<()> {
    // SAFETY: the caller vouches for the destination.
    unsafe { exec::run(w, Op::get(dst as usize, src, bytes), pe, Form::Blocking) }.map(drop)
}

pub(super) unsafe fn iput(w: &World, dst: usize, src: *const u8, strides: Strides, pe: i32) -> Result<()> {
    // SAFETY: the caller vouches for the source.
    unsafe { exec::run(w, Op::iput(dst, src as usize, strides), pe, Form::Blocking) }.map(drop)
}

pub(super) unsafe fn iget(w: &World, dst: *mut u8, src: usize, strides: Strides, pe: i32) -> Result<()> {
    // SAFETY: the caller vouches for the destination.
    unsafe { exec::run(w, Op::iget(dst as usize, src, strides), pe, Form::Blocking) }.map(drop)
}

pub(super) fn p(w: &World, at: usize, bits: u64, bytes: usize, pe: i32) -> Result<()> {
    // SAFETY: no local memory.
    unsafe { exec::run(w, Op::P { at, bits, bytes }, pe, Form::Blocking) }.map(drop)
}

pub(super) fn g(w: &World, at: usize, bytes: usize, pe: i32) -> Result<u64> {
    // SAFETY: no local memory.
    unsafe { exec::run(w, Op::G { at, bytes }, pe, Form::Blocking) }
}

pub(super) fn atomic(
    w: &World,
    op: AtomicOp,
    kind: i32,
    target: usize,
    value: u64,
    compare: u64,
    pe: i32,
) -> Result<u64> {
    // SAFETY: no local memory.
    unsafe { exec::run(w, Op::atomic(op, kind, target, value, compare)?, pe, Form::Blocking) }
}

pub(super) fn signal_op(w: &World, sig: usize, op: SignalOp, pe: i32) -> Result<()> {
    // SAFETY: no local memory.
    unsafe { exec::run(w, Op::signal(sig, op), pe, Form::Blocking) }.map(drop)
}

pub(super) unsafe fn put_signal(
    w: &World,
    dst: usize,
    src: *const u8,
    bytes: usize,
    sig: usize,
    op: SignalOp,
    pe: i32,
) -> Result<()> {
    // SAFETY: the caller vouches for the source.
    unsafe {
        exec::run(w, Op::put_signal(Movement::bytes(dst, src as usize, bytes), sig, op), pe, Form::Blocking)
    }
    .map(drop)
}

pub(super) fn signal_wait_until(w: &World, sig: usize, cmp: i32, value: u64) -> Result<u64> {
    exec::wait::until_value(w, &Wait::signal(w, sig, cmp, value)?)
}

/// The same in a stream's turn.
pub(super) mod on_stream {
    use super::*;

    /// # Safety
    /// Here and below: local memory is valid for the operation's length until it is done; the stream is null
    /// or one of the world's.
    pub(crate) unsafe fn put(
        w: &World,
        dst: usize,
        src: usize,
        bytes: usize,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the source and the stream.
        unsafe { exec::on_stream(w, Op::put(dst, src, bytes), pe, on) }
    }

    pub(crate) unsafe fn get(
        w: &World,
        dst: usize,
        src: usize,
        bytes: usize,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the destination and the stream.
        unsafe { exec::on_stream(w, Op::get(dst, src, bytes), pe, on) }
    }

    pub(crate) unsafe fn iput(
        w: &World,
        dst: usize,
        src: usize,
        strides: Strides,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the source and the stream.
        unsafe { exec::on_stream(w, Op::iput(dst, src, strides), pe, on) }
    }

    pub(crate) unsafe fn iget(
        w: &World,
        dst: usize,
        src: usize,
        strides: Strides,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the destination and the stream.
        unsafe { exec::on_stream(w, Op::iget(dst, src, strides), pe, on) }
    }

    pub(crate) unsafe fn p(
        w: &World,
        at: usize,
        bits: u64,
        bytes: usize,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: no local memory; the caller vouches for the stream.
        unsafe { exec::on_stream(w, Op::P { at, bits, bytes }, pe, on) }
    }

    pub(crate) unsafe fn signal_op(
        w: &World,
        sig: usize,
        op: SignalOp,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: no local memory; the caller vouches for the stream.
        unsafe { exec::on_stream(w, Op::signal(sig, op), pe, on) }
    }

    #[allow(clippy::too_many_arguments, reason = "the operation has that many")]
    pub(crate) unsafe fn put_signal(
        w: &World,
        dst: usize,
        src: usize,
        bytes: usize,
        sig: usize,
        op: SignalOp,
        pe: i32,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the source and the stream.
        unsafe { exec::on_stream(w, Op::put_signal(Movement::bytes(dst, src, bytes), sig, op), pe, on) }
    }

    pub(crate) unsafe fn signal_wait_until(
        w: &World,
        sig: usize,
        cmp: i32,
        value: u64,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        unsafe { exec::wait_on_stream(w, "signal_wait_until", Wait::signal(w, sig, cmp, value)?, on) }
    }

    pub(crate) unsafe fn wait_until(
        w: &World,
        kind: i32,
        ivar: usize,
        cmp: i32,
        value: u64,
        on: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        unsafe { exec::wait_on_stream(w, "wait_until", Wait::until(w, kind, ivar, cmp, value)?, on) }
    }

    pub(crate) unsafe fn fence(w: &World, on: *mut c_void) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        unsafe { exec::order_on_stream(w, "fence", StreamOrder::Fence, on) }
    }

    pub(crate) unsafe fn quiet(w: &World, on: *mut c_void) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        unsafe { exec::order_on_stream(w, "quiet", StreamOrder::Quiet, on) }
    }

    pub(crate) unsafe fn sync_all(w: &World, what: &str, barrier: bool, on: *mut c_void) -> Result<()> {
        let order = if barrier { StreamOrder::BarrierAll } else { StreamOrder::SyncAll };
        // SAFETY: the caller vouches for the stream.
        unsafe { exec::order_on_stream(w, what, order, on) }
    }
}
