//! The scope of non-blocking (implicit) operations: they may return before the source may be used again or
//! the data has come; the next quiet completes them (OpenSHMEM 1.5, section 9.6.2).
//!
//! The borrow checker cannot see a quiet, so a plain `put_nbi(&[T])` would let the source change or die
//! under the transfer. Three ways are offered: a scope that ends with a quiet ([`World::nbi`], safe, like
//! `std::thread::scope`), transfers between symmetric memory on both sides (safe: it lives as long as the
//! world, and free is a barrier), and `unsafe` forms that leave the promise to the caller.

use std::marker::PhantomData;

use crate::put_signal::When;
use crate::signal::{SignalOp, SignalRef};
use crate::slice::SymRef;
use crate::{Error, ErrorCode, Pe, Result, Symmetric, World};

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
        let src = (src.as_ptr(), src.len());
        self.own(dst)?.put_signal_raw(src, (signal, op, value), pe, When::Nbi)
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
