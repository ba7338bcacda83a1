//! Errors are exceptions: a class for each code of the C ABI (`rushmem/_errors.py`), with the runtime's text.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::table::Table;

/// The runtime could not be loaded: no code of the C ABI's.
pub(crate) const LIBRARY_NOT_FOUND: i32 = -1000;

/// The exception of a code.
pub(crate) fn of(py: Python<'_>, code: i32, text: &str) -> PyErr {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let made = CLASSES
        .get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import("rushmem._errors")?.getattr("BY_CODE")?.cast_into::<PyDict>()?.unbind())
        })
        .and_then(|classes| {
            let class = classes.bind(py).get_item(code)?.map_or_else(
                || py.import("rushmem._errors").and_then(|module| module.getattr("Error")),
                Ok,
            )?;
            class.call1((text,))
        });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An argument that makes no sense.
pub(crate) fn invalid(py: Python<'_>, text: &str) -> PyErr {
    of(py, rushmem_abi::c::RUSHMEM_ERR_INVALID_ARGUMENT, text)
}

/// A failed call's code and text; taken on the thread that made the call.
pub(crate) struct Failure(pub(crate) i32, pub(crate) String);

impl Failure {
    /// `Ok` for success, else the code with this thread's text.
    pub(crate) fn check(table: &Table, code: i32) -> Result<(), Failure> {
        if code == rushmem_abi::c::RUSHMEM_OK {
            return Ok(());
        }
        // SAFETY: takes nothing; the text is this thread's until its next call, and is copied here.
        Err(Failure(code, unsafe { crate::table::text((table.last_error)()) }))
    }

    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        of(py, self.0, &self.1)
    }
}
