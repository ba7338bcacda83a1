//! Communication contexts (OpenSHMEM 1.5, section 9.5): operations with an order and a completion of their
//! own.

use std::cell::Cell;
use std::marker::PhantomData;

use rushmem_abi::c::RUSHMEM_CONTEXT_DEFAULT;

use crate::{Result, World};

thread_local! {
    /// What this thread has entered: the world's handle as a number, and the context.
    static ENTERED: Cell<(usize, u64)> = const { Cell::new((0, RUSHMEM_CONTEXT_DEFAULT)) };
}

/// A context of a world: its fence and quiet wait for nothing of another context's.
///
/// A thread [`enter`](Context::enter)s it; until the guard is dropped the operations of that thread on PEs
/// whose memory is not mapped are the context's. Operations on mapped PEs are over when they return, in host
/// memory, and need none; those on streams and in kernels are always in the world's default context.
/// [`World::fence`] orders the default context alone, [`World::quiet`] and
/// [`World::barrier_all`] complete all contexts.
///
/// ```
/// use rushmem::{Pe, World};
///
/// # fn main() -> rushmem::Result<()> {
/// let world = World::init()?;
/// let x = world.alloc::<u64>(4)?;
/// let context = world.context()?;
/// {
///     let _entered = context.enter()?;
///     x.put(&[1, 2, 3, 4], Pe::new(0))?;
/// }
/// context.quiet()?; // waits for the put alone
/// # Ok(()) }
/// ```
///
/// # The end of a context
/// Dropping it completes its operations and ends it; that is local, and does nothing once the job is broken.
#[derive(Debug)]
pub struct Context<'w> {
    world: &'w World,
    number: u64,
}

/// While it lives, the thread that made it is in a context.
#[must_use = "dropped at once, it leaves the context again"]
#[derive(Debug)]
pub struct Entered<'c> {
    world: &'c World,
    before: (usize, u64),
    /// The context is the thread's.
    _not_send: PhantomData<*const ()>,
}

impl World {
    /// Makes a context. Local; there may be thousands.
    pub fn context(&self) -> Result<Context<'_>> {
        let mut number = 0;
        // SAFETY: a live handle, and room for a number.
        self.check(unsafe { (self.runtime().context_create)(self.as_raw(), &mut number) })?;
        Ok(Context { world: self, number })
    }

    fn enter_context(&self, number: u64) -> Result<()> {
        // SAFETY: a live handle; a number that is no context's is refused.
        self.check(unsafe { (self.runtime().context_enter)(self.as_raw(), number) })
    }
}

impl Context<'_> {
    /// The operations of this thread are the context's until the guard is dropped, and then those of what it
    /// was in before: guards are dropped in the reverse order of their making. A thread is in one context at
    /// a time, so that one of another world is left for good.
    ///
    /// # Errors
    /// [`BadHandle`](crate::ErrorCode::BadHandle) in a child of `fork`.
    pub fn enter(&self) -> Result<Entered<'_>> {
        self.world.enter_context(self.number)?;
        let before = ENTERED.replace((self.world.as_raw() as usize, self.number));
        Ok(Entered { world: self.world, before, _not_send: PhantomData })
    }

    /// Orders the context's puts, atomics and signals to each PE: those before it are seen before those of
    /// the context after it. Completes nothing.
    ///
    /// # Errors
    /// [`PeerDead`](crate::ErrorCode::PeerDead) once the job is broken.
    pub fn fence(&self) -> Result<()> {
        let world = self.world;
        // SAFETY: a live handle, and a context that lives as long as this value.
        world.check(unsafe { (world.runtime().context_fence)(world.as_raw(), self.number) })
    }

    /// Waits until every operation of the context is complete and visible to every PE. Errors as for
    /// [`fence`](Context::fence).
    pub fn quiet(&self) -> Result<()> {
        let world = self.world;
        // SAFETY: a live handle, and a context that lives as long as this value.
        world.check(unsafe { (world.runtime().context_quiet)(world.as_raw(), self.number) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        let world = self.world;
        // SAFETY: a live handle. No guard is left, as it borrows this value; the context ends with the world
        // where the call fails.
        let _ = unsafe { (world.runtime().context_destroy)(world.as_raw(), self.number) };
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let (world, number) = self.before;
        ENTERED.set(self.before);
        let same = world == self.world.as_raw() as usize;
        let _ = self.world.enter_context(if same { number } else { RUSHMEM_CONTEXT_DEFAULT });
    }
}
