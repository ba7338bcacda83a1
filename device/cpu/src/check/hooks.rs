//! What instrumented kernels call (`rushmem_cpu/check.h`). They run on a coroutine's stack: they note, and
//! leave texts to the scheduler.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::actor::{Access, Effect, Order};
use super::block::CheckedThread;
use super::calls::Asked;
use super::clock::Track;
use super::scope::Scope;
use crate::context::ThreadContext;

/// `rushmem_cpu_checker`.
#[repr(C)]
pub(crate) struct CheckHooks {
    bytes: u32,
    access: unsafe extern "C" fn(*mut ThreadContext, *const c_void, usize, u32, *const c_void),
    atomic: unsafe extern "C" fn(*mut ThreadContext, *const AtomicCall) -> u64,
    fence: unsafe extern "C" fn(*mut ThreadContext, i32),
    order: unsafe extern "C" fn(*mut ThreadContext, u32),
    remote: unsafe extern "C" fn(*mut ThreadContext, *const RemoteCall),
    collective: unsafe extern "C" fn(*mut ThreadContext, *const CollectiveCall),
    shuffle: unsafe extern "C" fn(*mut ThreadContext, u32, u32, *const c_void),
    enter: unsafe extern "C" fn(*mut ThreadContext, *const c_void),
    leave: unsafe extern "C" fn(*mut ThreadContext),
    memmove: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void,
    memset: unsafe extern "C" fn(*mut c_void, i32, usize) -> *mut c_void,
}

pub(crate) static CHECK_HOOKS: CheckHooks = CheckHooks {
    bytes: size_of::<CheckHooks>() as u32,
    access,
    atomic,
    fence,
    order,
    remote,
    collective,
    shuffle,
    enter,
    leave,
    memmove: libc::memmove,
    memset: libc::memset,
};

/// Flags of an access: `RUSHMEM_CPU_CHECK_*`.
const WRITE: u32 = 1;
const VOLATILE: u32 = 2;
const NBI: u32 = 4;

/// `rushmem_cpu_atomic_call`.
#[repr(C)]
pub(crate) struct AtomicCall {
    at: *mut c_void,
    value: u64,
    /// Of a compare and swap, what is compared with.
    compare: u64,
    counter: *const c_void,
    bytes: u32,
    what: u32,
    order: i32,
}

/// `rushmem_cpu_remote_call`: an operation that the library carries out on PE `pe`.
#[repr(C)]
pub(crate) struct RemoteCall {
    at: u64,
    bytes: u64,
    /// From one of `count` parts to the next.
    stride: i64,
    count: u64,
    counter: *const c_void,
    pe: i32,
    /// `RUSHMEM_CPU_REMOTE_*`.
    what: u32,
}

/// `rushmem_cpu_collective_call`: what a collective call is asked for, or (`first` is not -1) its phase.
#[repr(C)]
pub(crate) struct CollectiveCall {
    size: u64,
    more: u64,
    slots: u64,
    phase: u64,
    counter: *const c_void,
    collective: u32,
    tag: u32,
    first: i32,
}

/// The thread's state, if its launch is checked.
///
/// # Safety
/// `thread` is null or the running CUDA thread.
#[inline]
unsafe fn checked<'a>(thread: *mut ThreadContext) -> Option<&'a mut CheckedThread> {
    // SAFETY: the caller's word; the scheduler sets the pointer for the thread's life.
    unsafe { thread.as_ref()?.check.cast::<CheckedThread>().as_mut() }
}

/// # Safety
/// Here and below: `thread` is null or the running CUDA thread, and pointers are what the header says.
unsafe extern "C" fn access(
    thread: *mut ThreadContext,
    at: *const c_void,
    bytes: usize,
    flags: u32,
    counter: *const c_void,
) {
    // SAFETY: the kernel's running thread, whose block nothing else uses meanwhile.
    unsafe {
        let Some(checked) = checked(thread) else { return };
        if flags & VOLATILE != 0 {
            return checked.volatile(at as usize, bytes, flags & WRITE != 0, counter as usize);
        }
        let track = if flags & NBI != 0 { Track::Nbi } else { Track::Now };
        let (write, unordered) = (flags & WRITE != 0, flags & NBI != 0);
        let access = Access { bytes, write, atomic: None, track, unordered, site: 0 };
        checked.access(at as usize, access, counter as usize);
    }
}

unsafe extern "C" fn atomic(thread: *mut ThreadContext, call: *const AtomicCall) -> u64 {
    // SAFETY: the header's inline functions pass a call of their own.
    let call = unsafe { &*call };
    let effect = match call.what {
        0 => Effect::Load,
        1 => Effect::Store,
        _ => Effect::Update,
    };
    // SAFETY: the kernel's atomic operation, on a word that it vouches for.
    let perform = || unsafe { perform(call) };
    // SAFETY: the kernel's running thread, whose block nothing else uses meanwhile.
    unsafe {
        match checked(thread) {
            Some(checked) => {
                let (order, counter) = (Order::of(call.order, checked.scope()), call.counter as usize);
                if call.at as usize % call.bytes as usize != 0 {
                    checked.misaligned(call.at as usize, None, call.bytes as usize, counter);
                    return perform_unaligned(call);
                }
                checked.atomic(call.at as usize, call.bytes as usize, order, effect, counter, perform)
            }
            None => perform().0,
        }
    }
}

/// What was there before, and whether the operation took effect.
///
/// # Safety
/// The word is valid and aligned.
unsafe fn perform(call: &AtomicCall) -> (u64, bool) {
    macro_rules! on {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: the caller's word; accesses of it are atomic.
            let word = unsafe { <$atomic>::from_ptr(call.at.cast()) };
            let (value, order) = (call.value as $word, Ordering::SeqCst);
            let before = match call.what {
                0 => word.load(order),
                1 => {
                    word.store(value, order);
                    0
                }
                2 => word.swap(value, order),
                3 => word.fetch_add(value, order),
                4 => word.fetch_sub(value, order),
                5 => word.fetch_and(value, order),
                6 => word.fetch_or(value, order),
                7 => word.fetch_xor(value, order),
                8 => word.fetch_nand(value, order),
                _ => match word.compare_exchange(call.compare as $word, value, order, order) {
                    Ok(before) => before,
                    Err(before) => return (u64::from(before), false),
                },
            };
            (u64::from(before), true)
        }};
    }
    match call.bytes {
        1 => on!(AtomicU8, u8),
        2 => on!(AtomicU16, u16),
        4 => on!(AtomicU32, u32),
        _ => on!(AtomicU64, u64),
    }
}

/// The same for a word that is not aligned: no other thread's update is kept away, as on no device. What was
/// there before.
///
/// # Safety
/// The word is valid.
unsafe fn perform_unaligned(call: &AtomicCall) -> u64 {
    let (mut bytes, count) = ([0; 8], call.bytes as usize);
    // SAFETY: the caller's word; at most 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(call.at.cast::<u8>(), bytes.as_mut_ptr(), count) };
    let (before, value) = (u64::from_le_bytes(bytes), call.value);
    let mask = u64::MAX >> (64 - 8 * count);
    let after = match call.what {
        0 => return before,
        1 | 2 => value,
        3 => before.wrapping_add(value),
        4 => before.wrapping_sub(value),
        5 => before & value,
        6 => before | value,
        7 => before ^ value,
        8 => !(before & value),
        _ if before == call.compare & mask => value,
        _ => return before,
    };
    // SAFETY: the caller's word; at most 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(after.to_le_bytes().as_ptr(), call.at.cast::<u8>(), count) };
    before
}

unsafe extern "C" fn fence(thread: *mut ThreadContext, order: i32) {
    std::sync::atomic::fence(Ordering::SeqCst);
    // SAFETY: the kernel's running thread, whose block nothing else uses meanwhile.
    unsafe {
        if let Some(checked) = checked(thread) {
            checked.fence(Order::of(order, checked.scope()));
        }
    }
}

/// 1: a fence of puts; 2: a quiet; 3 to 5: an nbi operation begins; 0: it has ended; 6: the
/// library synchronises with the host; 7: it has; 8, up to 0: a packet is sent; 9: all before the kernel on
/// its stream is complete; 16 to 19: scopes.
unsafe extern "C" fn order(thread: *mut ThreadContext, what: u32) {
    // SAFETY: the kernel's running thread, whose block nothing else uses meanwhile.
    unsafe {
        let Some(checked) = checked(thread) else { return };
        match what {
            1 => checked.complete(&[Track::Far, Track::Put]),
            2 => checked.complete(&[Track::Far, Track::Nbi, Track::Put]),
            3 => checked.begin([Track::Nbi, Track::Far]),
            4 => checked.begin([Track::Nbi, Track::Nbi]),
            5 => checked.begin([Track::Nbi, Track::Now]),
            6 | 7 => checked.inner(what == 6),
            8 => checked.begin_packet(),
            9 => checked.awaits_stream(),
            16.. => checked.scoped(Scope::of(what - 16)),
            _ => checked.begin([Track::Now, Track::Now]),
        }
    }
}

unsafe extern "C" fn remote(thread: *mut ThreadContext, call: *const RemoteCall) {
    // SAFETY: the header's inline functions pass a call of their own, of the running thread.
    unsafe {
        let (call, Some(checked)) = (&*call, checked(thread)) else { return };
        let counter = call.counter as usize;
        for i in 0..call.count {
            let at = call.at.wrapping_add_signed(call.stride.wrapping_mul(i as i64)) as usize;
            let bytes = call.bytes as usize;
            if matches!(call.what, 4..=6) && at % bytes != 0 {
                checked.misaligned(at, Some(call.pe), bytes, counter);
            }
            let plain =
                |write, track| Access { bytes, write, atomic: None, track, unordered: false, site: 0 };
            match call.what {
                // Receivers poll a packet's value beside its number, before it has come, too. Neither says
                // anything of other memory.
                1 | 2 | 5 if checked.sends_packet() => {
                    checked.remote_atomic(at, call.pe, bytes, Order::RELAXED, Effect::Store, counter);
                }
                0 => checked.remote(at, call.pe, plain(false, Track::Now), counter),
                1 => {
                    let access = Access { unordered: true, ..plain(true, Track::Far) };
                    checked.remote(at, call.pe, access, counter);
                }
                2 => checked.remote(at, call.pe, plain(true, Track::Now), counter),
                // A word by p; a signal; a signal that announces what its own call has put; an atomic.
                3 | 4 => {
                    checked.remote_atomic(at, call.pe, bytes, Order::RELAXED, Effect::Store, counter);
                }
                5 => checked.remote_atomic(at, call.pe, bytes, Order::RELEASE, Effect::Update, counter),
                6 => checked.remote_atomic(at, call.pe, bytes, Order::RELAXED, Effect::Update, counter),
                _ => checked.remote_atomic(at, call.pe, bytes, Order::RELAXED, Effect::Load, counter),
            }
        }
        if call.what == 1 {
            checked.begun();
        }
    }
}

unsafe extern "C" fn collective(thread: *mut ThreadContext, call: *const CollectiveCall) {
    // SAFETY: the header's inline functions pass a call of their own, of the running thread.
    unsafe {
        let (call, Some(checked)) = (&*call, checked(thread)) else { return };
        let CollectiveCall { size, more, collective, tag, .. } = *call;
        match call.first {
            -1 => checked.asked(Asked { collective, size, more, tag }),
            first => checked.calls(call.slots, first, call.phase, tag, call.counter as usize),
        }
    }
}

/// A lane has asked for the value of `source`, which has handed none in under this mask.
unsafe extern "C" fn shuffle(thread: *mut ThreadContext, mask: u32, source: u32, counter: *const c_void) {
    // SAFETY: the kernel's running thread, whose block nothing else uses meanwhile.
    unsafe {
        if let Some(checked) = checked(thread) {
            checked.shuffles(mask, source, counter as usize);
        }
    }
}

unsafe extern "C" fn enter(thread: *mut ThreadContext, counter: *const c_void) {
    // SAFETY: the kernel's running thread.
    unsafe {
        if let Some(checked) = checked(thread) {
            checked.enter(counter as usize);
        }
    }
}

unsafe extern "C" fn leave(thread: *mut ThreadContext) {
    // SAFETY: the kernel's running thread.
    unsafe {
        if let Some(checked) = checked(thread) {
            checked.leave();
        }
    }
}
