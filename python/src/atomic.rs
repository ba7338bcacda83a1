//! Atomic operations, as methods of arrays of one element.

use pyo3::prelude::*;
use rushmem_abi::table::ATOMICS;

use crate::array::Array;

#[pymethods]
impl Array {
    /// This one element of PE `pe`, atomically.
    fn atomic_fetch(&self, py: Python<'_>, pe: i32) -> PyResult<Option<Py<PyAny>>> {
        self.atomic(py, "fetch", None, None, pe)
    }

    /// This one element of PE `pe` becomes `value` where it is `compare`; what it was.
    fn atomic_compare_swap(
        &self,
        py: Python<'_>,
        compare: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i32,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.atomic(py, "compare_swap", Some(value), Some(compare), pe)
    }
}

/// The atomic operations that take one value.
macro_rules! atomics {
    ($($(#[$doc:meta])* $method:ident = $name:literal;)*) => {
        #[pymethods]
        impl Array {
            $($(#[$doc])*
            fn $method(&self, py: Python<'_>, value: &Bound<'_, PyAny>, pe: i32) -> PyResult<Option<Py<PyAny>>> {
                self.atomic(py, $name, Some(value), None, pe)
            })*
        }
    };
}

atomics! {
    /// This one element of PE `pe` becomes `value`, atomically.
    atomic_set = "set";
    /// This one element of PE `pe` becomes `value`; what it was.
    atomic_swap = "swap";
    /// `value` is added to this one element of PE `pe`; integers wrap.
    atomic_add = "add";
    /// `value` is added to this one element of PE `pe`; what it was.
    atomic_fetch_add = "fetch_add";
    /// Bitwise and.
    atomic_and = "and";
    /// Bitwise and; what it was.
    atomic_fetch_and = "fetch_and";
    /// Bitwise or.
    atomic_or = "or";
    /// Bitwise or; what it was.
    atomic_fetch_or = "fetch_or";
    /// Bitwise exclusive or.
    atomic_xor = "xor";
    /// Bitwise exclusive or; what it was.
    atomic_fetch_xor = "fetch_xor";
}

impl Array {
    fn atomic(
        &self,
        py: Python<'_>,
        op: &str,
        value: Option<&Bound<'_, PyAny>>,
        compare: Option<&Bound<'_, PyAny>>,
        pe: i32,
    ) -> PyResult<Option<Py<PyAny>>> {
        let row = ATOMICS.iter().find(|row| row.name == op).expect("a row of the table");
        let (at, of) = (self.word(py)?, self.dtype.code(py, "an atomic operation")?);
        let bits = |value: Option<&Bound<'_, PyAny>>| value.map_or(Ok(0), |value| self.dtype.bits(value));
        let (value, compare, mut old) = (bits(value)?, bits(compare)?, 0);
        let (code, out) = (row.code, &mut old);
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; what is not symmetric is refused.
            unsafe { (table.atomic)(w, code, of, at as *mut _, value, compare, pe, out) }
        })?;
        row.fetches.then(|| self.dtype.value(py, old)).transpose()
    }
}
