//! Waits and tests on one's own words.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushmem_abi::c::*;

use crate::array::Array;
use crate::error;
use crate::stream;

/// A comparison: `">="`.
fn comparison(cmp: &str) -> PyResult<i32> {
    match cmp {
        "==" | "eq" => Ok(RUSHMEM_CMP_EQ),
        "!=" | "ne" => Ok(RUSHMEM_CMP_NE),
        ">" | "gt" => Ok(RUSHMEM_CMP_GT),
        ">=" | "ge" => Ok(RUSHMEM_CMP_GE),
        "<" | "lt" => Ok(RUSHMEM_CMP_LT),
        "<=" | "le" => Ok(RUSHMEM_CMP_LE),
        _ => Err(PyValueError::new_err(format!("{cmp:?} is no comparison: ==, !=, >, >=, < and <= are"))),
    }
}

/// A limit in seconds, as the C ABI has it: 0 for the world's own.
fn limit(timeout: Option<f64>) -> PyResult<u64> {
    let Some(seconds) = timeout else { return Ok(0) };
    let nanoseconds = seconds * 1e9;
    if !(0.0..1e18).contains(&nanoseconds) {
        return Err(PyValueError::new_err(format!("timeout={seconds}: seconds, 0 or more")));
    }
    Ok((nanoseconds as u64).max(1))
}

impl Array {
    fn words(&self, py: Python<'_>) -> PyResult<usize> {
        if !self.is_dense() {
            return Err(error::invalid(py, "waits take words without gaps between them"));
        }
        self.symmetric(py)
    }
}

#[pymethods]
impl Array {
    /// Waits until this one element of this PE's compares with `value`: `flag.wait_until(">=", 3)`. What was
    /// put before the update is seen. `timeout` in seconds raises `Timeout`. With `stream`: holds that back.
    #[pyo3(signature = (cmp, value, *, timeout=None, stream=None))]
    fn wait_until(
        &self,
        py: Python<'_>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = &*self.memory.core;
        let (at, of) = (self.word(py)?, self.dtype.code(py, "a wait")?);
        let (cmp, bits, limit) = (comparison(cmp)?, self.dtype.bits(value)?, limit(timeout)?);
        match stream::handle(core, stream)? {
            None => core.call(py, |table, w| {
                // SAFETY: a live handle; what is not symmetric is refused.
                unsafe { (table.wait_until)(w, of, at as *const _, cmp, bits, limit) }
            }),
            Some(_) if limit != 0 => {
                Err(error::invalid(py, "a stream's waits have the world's limit: RUSHMEM_WAIT_TIMEOUT"))
            }
            Some(on) => {
                self.memory.uses.note(on);
                core.call(py, |table, w| {
                    // SAFETY: a live handle; what is not symmetric, or no stream, is refused.
                    unsafe { (table.wait_until_on_stream)(w, of, at as *const _, cmp, bits, on as *mut _) }
                })
            }
        }
    }

    /// `wait_until` of a signal; the value that did compare.
    #[pyo3(signature = (cmp, value, *, timeout=None, stream=None))]
    fn signal_wait_until(
        &self,
        py: Python<'_>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        let is_on_stream = stream.is_some();
        self.wait_until(py, cmp, value, timeout, stream)?;
        if is_on_stream {
            return Ok(None);
        }
        let (at, mut seen) = (self.word(py)?, 0);
        let out = &mut seen;
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; what is not symmetric is refused.
            unsafe { (table.others.signal_fetch)(w, at as *const u64, out) }
        })?;
        Ok(Some(seen))
    }

    /// Whether this one element compares with `value` now.
    fn test(&self, py: Python<'_>, cmp: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (at, of) = (self.word(py)?, self.dtype.code(py, "a test")?);
        let (cmp, bits, mut result) = (comparison(cmp)?, self.dtype.bits(value)?, 0);
        let out = &mut result;
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; what is not symmetric is refused.
            unsafe { (table.others.test)(w, of, at as *const _, cmp, bits, out) }
        })?;
        Ok(result != 0)
    }

    /// Waits until each element has compared with `value`.
    #[pyo3(signature = (cmp, value, *, timeout=None))]
    fn wait_until_all(
        &self,
        py: Python<'_>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (at, of, n) = (self.words(py)?, self.dtype.code(py, "a wait")?, self.len());
        let (cmp, bits, limit) = (comparison(cmp)?, self.dtype.bits(value)?, limit(timeout)?);
        self.memory.core.call(py, |table, w| {
            // SAFETY: a live handle; null excludes nothing; what is not symmetric is refused.
            unsafe { (table.wait_until_all)(w, of, at as *const _, n, std::ptr::null(), cmp, bits, limit) }
        })
    }

    /// Waits until an element compares with `value`: its index, with the elements in a row; None for an array
    /// without elements.
    #[pyo3(signature = (cmp, value, *, timeout=None))]
    fn wait_until_any(
        &self,
        py: Python<'_>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<usize>> {
        let (at, of, n) = (self.words(py)?, self.dtype.code(py, "a wait")?, self.len());
        let (cmp, bits, limit) = (comparison(cmp)?, self.dtype.bits(value)?, limit(timeout)?);
        let mut index = 0;
        let out = &mut index;
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; null excludes nothing.
            unsafe {
                (table.wait_until_any)(w, of, at as *const _, n, std::ptr::null(), cmp, bits, limit, out)
            }
        })?;
        Ok((index != usize::MAX).then_some(index))
    }

    /// Waits until at least one element compares with `value`: the indices of all that do.
    #[pyo3(signature = (cmp, value, *, timeout=None))]
    fn wait_until_some(
        &self,
        py: Python<'_>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<usize>> {
        let (at, of, n) = (self.words(py)?, self.dtype.code(py, "a wait")?, self.len());
        let (cmp, bits, limit) = (comparison(cmp)?, self.dtype.bits(value)?, limit(timeout)?);
        let (mut indices, mut count) = (vec![0_usize; n], 0);
        let (places, out) = (&mut indices, &mut count);
        self.memory.core.call(py, move |table, w| {
            let places = places.as_mut_ptr();
            // SAFETY: a live handle, room for all indices and a place for their number; null excludes
            // nothing.
            unsafe {
                (table.wait_until_some)(
                    w,
                    of,
                    at as *const _,
                    n,
                    std::ptr::null(),
                    cmp,
                    bits,
                    limit,
                    places,
                    out,
                )
            }
        })?;
        indices.truncate(count);
        Ok(indices)
    }
}
