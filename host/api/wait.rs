//! Waiting for words of this PE's memory that peers update: wait_until and test, for one word, and for all,
//! any or some of several (OpenSHMEM 1.5, section 9.10).
//!
//! A wait that succeeds acquires: what its writer put before the update (with a fence between) is visible. A
//! wait that stalls is reported on standard error, and ends with an error when a PE of the job dies.

use std::ffi::c_void;
use std::time::Duration;

use rushmem_abi::c::*;

use crate::element::Word;
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::{AtomicInt, Error, ErrorCode, Result};

/// How a word is compared with a value: `word cmp value`, by the word's type (signed or unsigned).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
}

impl Cmp {
    /// Whether `seen cmp value`.
    #[inline(always)]
    pub fn holds<T: Ord>(self, seen: &T, value: &T) -> bool {
        match self {
            Cmp::Eq => seen == value,
            Cmp::Ne => seen != value,
            Cmp::Gt => seen > value,
            Cmp::Ge => seen >= value,
            Cmp::Lt => seen < value,
            Cmp::Le => seen <= value,
        }
    }

    pub(crate) fn raw(self) -> i32 {
        match self {
            Cmp::Eq => RUSHMEM_CMP_EQ,
            Cmp::Ne => RUSHMEM_CMP_NE,
            Cmp::Gt => RUSHMEM_CMP_GT,
            Cmp::Ge => RUSHMEM_CMP_GE,
            Cmp::Lt => RUSHMEM_CMP_LT,
            Cmp::Le => RUSHMEM_CMP_LE,
        }
    }
}

impl<T: AtomicInt> SymRef<'_, T> {
    /// Waits until this PE's own element `index` compares so.
    ///
    /// # Errors
    /// [`PeerDead`](ErrorCode::PeerDead) once a PE of the job has died, [`Timeout`](ErrorCode::Timeout) after
    /// `RUSHMEM_WAIT_TIMEOUT` if that is set, [`OutOfBounds`](ErrorCode::OutOfBounds).
    #[inline]
    pub fn wait_until(&self, index: usize, cmp: Cmp, value: T) -> Result<()> {
        // On a GPU the wait itself looks first.
        if self.world().is_host_heap() && self.test(index, cmp, value)? {
            return Ok(());
        }
        self.element(index)?;
        let (world, ivar) = (self.world(), self.as_ptr().wrapping_add(index).cast());
        // SAFETY: a live handle and an element of a live allocation: `test` checked the index.
        world.check(unsafe {
            (world.runtime().wait_until)(world.as_raw(), T::TYPE, ivar, cmp.raw(), value.to_bits64(), 0)
        })
    }

    /// Whether this PE's own element `index` compares so now.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds); where it does not compare so,
    /// [`PeerDead`](ErrorCode::PeerDead) once a PE of the job has died, so that a loop around it ends.
    #[inline]
    pub fn test(&self, index: usize, cmp: Cmp, value: T) -> Result<bool> {
        let element = self.element(index)?;
        if !self.world().is_host_heap() {
            return element.ivars().test_all(cmp, value);
        }
        // SAFETY: this PE's own copy of an element of a live allocation, aligned as `T` is.
        let seen = T::from_word(unsafe { T::Word::load(element.as_ptr().cast()) });
        if cmp.holds(&seen, &value) {
            Ok(true)
        } else if self.world().is_broken() {
            element.ivars().test_all(cmp, value)
        } else {
            Ok(false)
        }
    }

    /// All elements of this view as words to wait for or test together.
    pub fn ivars(&self) -> Ivars<'_, T> {
        Ivars { view: self, excluded: None, timeout_ns: 0 }
    }
}

/// Several words to wait for or test together; made by [`SymRef::ivars`].
///
/// Excluded words count as absent. With none left, `all` holds, `any` gives `None` and `some` nothing, at
/// once.
///
/// ```no_run
/// # fn main() -> rushmem::Result<()> {
/// use rushmem::{Cmp, World};
/// let world = World::init()?;
/// let arrived = world.alloc::<u32>(8)?;
/// let mut done = [false; 8];
/// while let Some(i) = arrived.ivars().excluding(&done).wait_until_any(Cmp::Ne, 0)? {
///     done[i] = true; // handle the i-th as it comes
/// }
/// # world.finalize() }
/// ```
#[must_use = "nothing waits until a wait_until or test method is called"]
pub struct Ivars<'a, T: AtomicInt> {
    view: &'a SymRef<'a, T>,
    excluded: Option<Vec<i32>>,
    timeout_ns: u64,
}

/// The arguments that the whole family starts with.
macro_rules! call {
    ($self:ident . $function:ident ( $($arg:expr),* )) => {{
        let (world, words) = ($self.view.world(), $self.view.as_ptr().cast::<c_void>());
        let status = $self.status()?;
        // SAFETY: a live handle, a live allocation of `len` words, a status array (or null), values and
        // places for answers of `len` entries each, all through the call.
        world.check(unsafe {
            (world.runtime().$function)(world.as_raw(), T::TYPE, words.cast_const(), $self.view.len(), status, $($arg),*)
        })
    }};
}

impl<T: AtomicInt> Ivars<'_, T> {
    /// Leaves out each word whose entry is true. One entry for each word.
    pub fn excluding(mut self, excluded: &[bool]) -> Self {
        self.excluded = Some(excluded.iter().map(|out| i32::from(*out)).collect());
        self
    }

    /// A limit for the waits; otherwise `RUSHMEM_WAIT_TIMEOUT`, or none.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1);
        self
    }

    fn status(&self) -> Result<*const i32> {
        match &self.excluded {
            None => Ok(std::ptr::null()),
            Some(excluded) if excluded.len() == self.view.len() => Ok(excluded.as_ptr()),
            Some(excluded) => Err(self.wrong_length("exclusions", excluded.len())),
        }
    }

    fn values(&self, values: &[T]) -> Result<*const c_void> {
        if values.len() == self.view.len() {
            Ok(values.as_ptr().cast())
        } else {
            Err(self.wrong_length("values", values.len()))
        }
    }

    fn wrong_length(&self, what: &str, given: usize) -> Error {
        let message = format!("{given} {what} for {} words: one for each is needed", self.view.len());
        Error::new(ErrorCode::InvalidArgument, message)
    }

    /// The C ABI's "none": every word is excluded, or there are none.
    fn index(index: usize) -> Option<usize> {
        (index != usize::MAX).then_some(index)
    }

    /// Runs a call that fills a list of indices and its length.
    fn list(&self, call: impl FnOnce(*mut usize, *mut usize) -> Result<()>) -> Result<Vec<usize>> {
        let (mut indices, mut count) = (vec![0; self.view.len()], 0);
        call(indices.as_mut_ptr(), &mut count)?;
        indices.truncate(count);
        Ok(indices)
    }

    /// Waits until every word compares so. Errors, here and below: [`PeerDead`](ErrorCode::PeerDead),
    /// [`Timeout`](ErrorCode::Timeout), and [`InvalidArgument`](ErrorCode::InvalidArgument) for lists of the
    /// wrong length.
    pub fn wait_until_all(&self, cmp: Cmp, value: T) -> Result<()> {
        call!(self.wait_until_all(cmp.raw(), value.to_bits64(), self.timeout_ns))
    }

    /// Waits until some word compares so, and gives its index; `None` when there is no word to wait for.
    pub fn wait_until_any(&self, cmp: Cmp, value: T) -> Result<Option<usize>> {
        let mut index = usize::MAX;
        call!(self.wait_until_any(cmp.raw(), value.to_bits64(), self.timeout_ns, &mut index))?;
        Ok(Self::index(index))
    }

    /// Waits until at least one word compares so, and gives the indices of all that do.
    pub fn wait_until_some(&self, cmp: Cmp, value: T) -> Result<Vec<usize>> {
        self.list(|indices, count| {
            call!(self.wait_until_some(cmp.raw(), value.to_bits64(), self.timeout_ns, indices, count))
        })
    }

    /// [`wait_until_all`](Ivars::wait_until_all) with a value for each word.
    pub fn wait_until_all_vector(&self, cmp: Cmp, values: &[T]) -> Result<()> {
        let values = self.values(values)?;
        call!(self.wait_until_all_vector(cmp.raw(), values, self.timeout_ns))
    }

    /// [`wait_until_any`](Ivars::wait_until_any) with a value for each word.
    pub fn wait_until_any_vector(&self, cmp: Cmp, values: &[T]) -> Result<Option<usize>> {
        let (values, mut index) = (self.values(values)?, usize::MAX);
        call!(self.wait_until_any_vector(cmp.raw(), values, self.timeout_ns, &mut index))?;
        Ok(Self::index(index))
    }

    /// [`wait_until_some`](Ivars::wait_until_some) with a value for each word.
    pub fn wait_until_some_vector(&self, cmp: Cmp, values: &[T]) -> Result<Vec<usize>> {
        let values = self.values(values)?;
        self.list(|indices, count| {
            call!(self.wait_until_some_vector(cmp.raw(), values, self.timeout_ns, indices, count))
        })
    }

    /// Whether every word compares so now. Errors, here and below, as for the waits, without the time limit:
    /// a test that finds nothing in a broken job ends with [`PeerDead`](ErrorCode::PeerDead).
    pub fn test_all(&self, cmp: Cmp, value: T) -> Result<bool> {
        let mut result = 0;
        call!(self.test_all(cmp.raw(), value.to_bits64(), &mut result))?;
        Ok(result != 0)
    }

    /// The index of a word that compares so now.
    pub fn test_any(&self, cmp: Cmp, value: T) -> Result<Option<usize>> {
        let mut index = usize::MAX;
        call!(self.test_any(cmp.raw(), value.to_bits64(), &mut index))?;
        Ok(Self::index(index))
    }

    /// The indices of all words that compare so now.
    pub fn test_some(&self, cmp: Cmp, value: T) -> Result<Vec<usize>> {
        self.list(|indices, count| call!(self.test_some(cmp.raw(), value.to_bits64(), indices, count)))
    }

    /// [`test_all`](Ivars::test_all) with a value for each word.
    pub fn test_all_vector(&self, cmp: Cmp, values: &[T]) -> Result<bool> {
        let (values, mut result) = (self.values(values)?, 0);
        call!(self.test_all_vector(cmp.raw(), values, &mut result))?;
        Ok(result != 0)
    }

    /// [`test_any`](Ivars::test_any) with a value for each word.
    pub fn test_any_vector(&self, cmp: Cmp, values: &[T]) -> Result<Option<usize>> {
        let (values, mut index) = (self.values(values)?, usize::MAX);
        call!(self.test_any_vector(cmp.raw(), values, &mut index))?;
        Ok(Self::index(index))
    }

    /// [`test_some`](Ivars::test_some) with a value for each word.
    pub fn test_some_vector(&self, cmp: Cmp, values: &[T]) -> Result<Vec<usize>> {
        let values = self.values(values)?;
        self.list(|indices, count| call!(self.test_some_vector(cmp.raw(), values, indices, count)))
    }
}

/// The form in a stream's turn.
impl<T: AtomicInt> SymRef<'_, T> {
    /// Holds the stream back until this PE's own element `index` compares so: what is behind it on the stream
    /// sees what its writer did before. A wait that stalls is reported on standard error.
    ///
    /// # Errors
    /// [`OutOfBounds`](ErrorCode::OutOfBounds) now; the death of a PE and `RUSHMEM_WAIT_TIMEOUT` make the
    /// stream's work fail.
    pub fn wait_until_on(&self, index: usize, cmp: Cmp, value: T, stream: &Stream<'_>) -> Result<()> {
        let (world, element) = (self.world(), self.element(index)?);
        let raw = stream.of(world)?;
        let ivar = element.as_ptr().cast_const().cast();
        // SAFETY: a live handle, a stream of its world and a live allocation.
        world.check(unsafe {
            (world.runtime().wait_until_on_stream)(
                world.as_raw(),
                T::TYPE,
                ivar,
                cmp.raw(),
                value.to_bits64(),
                raw,
            )
        })
    }
}

impl Stream<'_> {
    /// Holds the stream back until this PE's own element `index` of `ivars` compares so. Otherwise as
    /// [`SymRef::wait_until_on`].
    pub fn wait_until<T: AtomicInt>(
        &self,
        ivars: &SymRef<'_, T>,
        index: usize,
        cmp: Cmp,
        value: T,
    ) -> Result<()> {
        ivars.wait_until_on(index, cmp, value, self)
    }
}
