//! Non-blocking (implicit) operations: they may return before the source may be used again or the data has
//! come; the next quiet completes them (OpenSHMEM 1.5, section 9.7).
//!
//! The borrow checker cannot see a quiet, so a plain `put_nbi(&[T])` would let the source change or die
//! under the transfer. Three ways are offered: a scope that ends with a quiet ([`World::nbi`], safe, like
//! `std::thread::scope`), transfers between symmetric memory on both sides (safe: it lives as long as the
//! world, and free is a barrier), and `unsafe` forms that leave the promise to the caller.

use std::marker::PhantomData;

use crate::error::out_of_bounds;
use crate::signal::{SignalOp, SignalRef};
use crate::slice::SymRef;
use crate::{Error, ErrorCode, Pe, Result, Symmetric, World};

impl<T: Symmetric> SymRef<'_, T> {
    /// Starts a [`put`](SymRef::put).
    ///
    /// # Safety
    /// Until the next quiet or barrier of this world, `src` lives and is not written.
    pub unsafe fn put_nbi(&self, src: &[T], pe: Pe) -> Result<()> {
        self.put_nbi_raw(src.as_ptr(), src.len(), pe)
    }

    /// Starts a [`get`](SymRef::get).
    ///
    /// # Safety
    /// Until the next quiet or barrier of this world, `dst` lives and is neither read nor written.
    pub unsafe fn get_nbi(&self, dst: &mut [T], pe: Pe) -> Result<()> {
        self.get_nbi_raw(dst.as_mut_ptr(), dst.len(), pe)
    }

    /// Starts a [`put_from`](SymRef::put_from). The source's contents at any time until the next quiet may be
    /// what arrives.
    pub fn put_from_nbi(&self, src: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        self.put_nbi_raw(src.as_ptr(), src.len(), pe)
    }

    /// Starts a [`get_into`](SymRef::get_into). The data is there after the next quiet.
    pub fn get_into_nbi(&self, dst: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        if dst.len() < self.len() {
            return Err(out_of_bounds(format_args!("{} elements at the start", self.len()), dst.len()));
        }
        self.get_nbi_raw(dst.as_ptr(), self.len(), pe)
    }

    /// Starts a [`put_signal_from`](SymRef::put_signal_from): the signal still comes after the data.
    pub fn put_signal_from_nbi(
        &self,
        src: &SymRef<'_, T>,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.put_signal_nbi_raw(src.as_ptr(), src.len(), signal, op, value, pe)
    }

    /// `src` points at `n` elements that live until the next quiet.
    fn put_nbi_raw(&self, src: *const T, n: usize, pe: Pe) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        // SAFETY: both sides hold `n` elements; the source lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().put_nbi)(world.as_raw(), self.as_ptr().cast(), src.cast(), bytes, pe.raw())
        })
    }

    /// `dst` points at `n` elements that live until the next quiet.
    fn get_nbi_raw(&self, dst: *mut T, n: usize, pe: Pe) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        // SAFETY: both sides hold `n` elements; the destination lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().get_nbi)(world.as_raw(), dst.cast(), self.as_ptr().cast(), bytes, pe.raw())
        })
    }

    /// `src` points at `n` elements that live until the next quiet.
    fn put_signal_nbi_raw(
        &self,
        src: *const T,
        n: usize,
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        let (world, bytes) = (self.world(), self.checked_bytes(n)?);
        let (to, word) = (self.as_ptr().cast(), signal.as_ptr());
        // SAFETY: both sides hold `n` elements; the source lives until the quiet, as the callers say.
        world.check(unsafe {
            (world.runtime().put_signal_nbi)(
                world.as_raw(),
                to,
                src.cast(),
                bytes,
                word,
                value,
                op.raw(),
                pe.raw(),
            )
        })
    }

    pub(crate) fn checked_bytes(&self, n: usize) -> Result<usize> {
        if n > self.len() {
            return Err(out_of_bounds(format_args!("{n} elements at the start"), self.len()));
        }
        Ok(n * size_of::<T>())
    }
}

impl World {
    /// Runs `f` with a scope in which non-blocking transfers may borrow local memory; a quiet at its end
    /// completes them all, also when `f` fails or panics.
    ///
    /// ```no_run
    /// # fn main() -> rushmem::Result<()> {
    /// let world = rushmem::World::init()?;
    /// let (dst, src) = (world.alloc::<f32>(1024)?, vec![1.0; 1024]);
    /// world.nbi(|scope| world.pes().try_for_each(|pe| scope.put(&dst, &src, pe)))?;
    /// # world.finalize() }
    /// ```
    pub fn nbi<'env, R>(&'env self, f: impl FnOnce(&NbiScope<'env>) -> Result<R>) -> Result<R> {
        /// The quiet on the way out when `f` panics.
        struct Quiet<'a>(&'a World);
        impl Drop for Quiet<'_> {
            fn drop(&mut self) {
                // A quiet that fails (a PE died) ends the transfers as well; there is nobody left to tell.
                let _ = self.0.quiet();
            }
        }
        let guard = Quiet(self);
        let result = f(&NbiScope { world: self, env: PhantomData });
        std::mem::forget(guard);
        let quiet = self.quiet();
        result.and_then(|value| quiet.map(|()| value))
    }
}

/// Where non-blocking transfers may borrow local memory; made by [`World::nbi`]. What they borrow outlives
/// the scope (`'env`), and the scope ends with the quiet.
///
/// ```compile_fail,E0597
/// # let world = rushmem::World::init().unwrap();
/// # let dst = world.alloc::<u64>(4).unwrap();
/// world.nbi(|scope| {
///     let src = vec![1, 2, 3, 4];
///     scope.put(&dst, &src, world.right()) // refused: `src` dies before the quiet
/// });
/// ```
pub struct NbiScope<'env> {
    world: &'env World,
    // Invariant, so that the lifetime cannot shrink to one that ends before the quiet.
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> NbiScope<'env> {
    /// Starts a [`put`](SymRef::put).
    pub fn put<T: Symmetric>(&self, dst: &SymRef<'_, T>, src: &'env [T], pe: Pe) -> Result<()> {
        self.own(dst)?.put_nbi_raw(src.as_ptr(), src.len(), pe)
    }

    /// Starts a [`get`](SymRef::get).
    pub fn get<T: Symmetric>(&self, src: &SymRef<'_, T>, dst: &'env mut [T], pe: Pe) -> Result<()> {
        self.own(src)?.get_nbi_raw(dst.as_mut_ptr(), dst.len(), pe)
    }

    /// Starts a [`put_signal`](SymRef::put_signal): the signal comes after the data.
    pub fn put_signal<T: Symmetric>(
        &self,
        dst: &SymRef<'_, T>,
        src: &'env [T],
        signal: &SignalRef<'_>,
        op: SignalOp,
        value: u64,
        pe: Pe,
    ) -> Result<()> {
        self.own(dst)?.put_signal_nbi_raw(src.as_ptr(), src.len(), signal, op, value, pe)
    }

    /// The quiet at the end is this world's, so only its transfers may borrow.
    fn own<'a, 'b, T: Symmetric>(&self, view: &'a SymRef<'b, T>) -> Result<&'a SymRef<'b, T>> {
        if std::ptr::eq(view.world(), self.world) {
            Ok(view)
        } else {
            let message = "the symmetric memory belongs to another world than the nbi scope";
            Err(Error::new(ErrorCode::InvalidArgument, message))
        }
    }
}
