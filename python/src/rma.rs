//! Put, get and signals, as methods of arrays.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushmem_abi::c::*;

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{self, Failure};
use crate::operand::{For, Operand};
use crate::stream;

/// What a signal becomes: the value, or that much more.
pub(crate) fn signal_op(op: &str) -> PyResult<i32> {
    match op {
        "set" => Ok(RUSHMEM_SIGNAL_SET),
        "add" => Ok(RUSHMEM_SIGNAL_ADD),
        _ => {
            Err(PyValueError::new_err(format!("{op:?} is no operation of signals: \"set\" and \"add\" are")))
        }
    }
}

/// Two sides of a copy: as many elements of one size.
pub(crate) fn check_sides(py: Python<'_>, a: &Array, other: &Operand, what: &str) -> PyResult<()> {
    let (n, elem) = (a.len(), a.dtype.bytes());
    if other.bytes() != n * elem || (other.elem != elem && other.stride != 1) {
        let text = format!(
            "{what} has {} elements of {} bytes, the symmetric array {n} of {elem}",
            other.n, other.elem
        );
        return Err(error::invalid(py, &text));
    }
    // Bytes stand for anything, on either side.
    let is_byte = |dtype: Dtype| dtype.name() == "uint8";
    let are_bytes = |dtype: Dtype| other.elem != elem && (is_byte(dtype) || is_byte(a.dtype));
    if let Some(dtype) = other.dtype.filter(|dtype| !are_bytes(*dtype) && !a.dtype.takes(*dtype)) {
        let text = format!("{what} is of type {}, the symmetric array of {}", dtype.name(), a.dtype.name());
        return Err(error::invalid(py, &text));
    }
    Ok(())
}

fn stride_of(py: Python<'_>, a: &Array) -> PyResult<isize> {
    a.stride().ok_or_else(|| {
        let text =
            "the symmetric array has gaps between its elements in more than one dimension, or runs backwards";
        error::invalid(py, text)
    })
}

impl Array {
    /// The address of a signal.
    pub(crate) fn signal(&self, py: Python<'_>) -> PyResult<usize> {
        if self.dtype.name() != "uint64" {
            let text = format!(
                "a signal is a word of uint64, not of {}: world.signals(n) gives some",
                self.dtype.name()
            );
            return Err(error::invalid(py, &text));
        }
        self.word(py)
    }
}

#[pymethods]
impl Array {
    /// Copies `src`, of as many bytes, to this array on PE `pe`. On return `src` may be changed; the data is
    /// seen there after `world.quiet()` or a barrier. With `stream`: in its turn.
    #[pyo3(signature = (src, pe, *, stream=None))]
    fn put(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        pe: i32,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = &*self.memory.core;
        let (at, stride) = (self.symmetric(py)?, stride_of(py, self)?);
        let src = Operand::of(src, "src", For::Reading)?;
        check_sides(py, self, &src, "src")?;
        let (from, from_stride, elem, n) = (src.at, src.stride, self.dtype.bytes(), self.len());
        let is_plain = stride == 1 && from_stride == 1;
        let on = stream::handle(core, stream)?;
        let call = move || {
            let (w, dst, src) = (core.raw(), at as *mut _, from as *const _);
            // SAFETY: a live handle; the source is valid for its elements until the call, or the stream's
            // turn, is over; what is not symmetric is refused.
            unsafe {
                match (is_plain, on) {
                    (true, None) => (core.table.put)(w, dst, src, n * elem, pe),
                    (true, Some(on)) => (core.table.put_on_stream)(w, dst, src, n * elem, pe, on as *mut _),
                    (false, None) => (core.table.iput)(w, dst, src, stride, from_stride, elem, n, pe),
                    (false, Some(on)) => (core.table.iput_on_stream)(
                        w,
                        dst,
                        src,
                        stride,
                        from_stride,
                        elem,
                        n,
                        pe,
                        on as *mut _,
                    ),
                }
            }
        };
        match on {
            None => core.run(py, move || Failure::check(core.table, call())),
            Some(on) => {
                self.memory.uses.note(on);
                stream::put_on(py, core, on, [src], call)
            }
        }
    }

    /// Copies this array on PE `pe` to `out`, of as many bytes, or to a new numpy array, which is returned.
    /// With `stream`: in its turn, and `out` is needed.
    #[pyo3(signature = (pe, out=None, *, stream=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        pe: i32,
        out: Option<Bound<'py, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let core = &*self.memory.core;
        let (at, stride) = (self.symmetric(py)?, stride_of(py, self)?);
        let object = match out {
            Some(out) => out,
            None if stream.is_some() => return Err(error::invalid(py, "get on a stream needs out")),
            None => {
                let shape: Vec<usize> = self.shape.to_vec();
                py.import("numpy")?.call_method1("empty", (shape, self.dtype.name()))?
            }
        };
        let out = Operand::of(&object, "out", For::Writing)?;
        check_sides(py, self, &out, "out")?;
        let (to, to_stride, elem, n) = (out.at, out.stride, self.dtype.bytes(), self.len());
        let is_plain = stride == 1 && to_stride == 1;
        let on = stream::handle(core, stream)?;
        let call = move || {
            let (w, dst, src) = (core.raw(), to as *mut _, at as *const _);
            // SAFETY: a live handle; the destination is valid for its elements until the call, or the
            // stream's turn, is over; what is not symmetric is refused.
            unsafe {
                match (is_plain, on) {
                    (true, None) => (core.table.get)(w, dst, src, n * elem, pe),
                    (true, Some(on)) => (core.table.get_on_stream)(w, dst, src, n * elem, pe, on as *mut _),
                    (false, None) => (core.table.iget)(w, dst, src, to_stride, stride, elem, n, pe),
                    (false, Some(on)) => {
                        (core.table.iget_on_stream)(w, dst, src, to_stride, stride, elem, n, pe, on as *mut _)
                    }
                }
            }
        };
        match on {
            None => core.run(py, move || Failure::check(core.table, call()))?,
            Some(on) => {
                self.memory.uses.note(on);
                stream::put_on(py, core, on, [out], call)?;
            }
        }
        Ok(object)
    }

    /// Puts one value to this one element on PE `pe`. It arrives in one piece.
    #[pyo3(signature = (value, pe, *, stream=None))]
    fn p(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        pe: i32,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = &*self.memory.core;
        let (at, bits, bytes) = (self.word(py)?, self.dtype.bits(value)?, self.dtype.bytes());
        match stream::handle(core, stream)? {
            // SAFETY: a live handle; what is not symmetric is refused.
            None => core.call(py, |table, w| unsafe { (table.others.p)(w, at as *mut _, bits, bytes, pe) }),
            Some(on) => {
                self.memory.uses.note(on);
                core.call(py, |table, w| {
                    // SAFETY: a live handle; what is not symmetric, or no stream, is refused.
                    unsafe { (table.p_on_stream)(w, at as *mut _, bits, bytes, pe, on as *mut _) }
                })
            }
        }
    }

    /// Gets this one element of PE `pe`, in one piece.
    fn g(&self, py: Python<'_>, pe: i32) -> PyResult<Py<PyAny>> {
        let (at, bytes, mut bits) = (self.word(py)?, self.dtype.bytes(), 0);
        let out = &mut bits;
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; what is not symmetric is refused.
            unsafe { (table.others.g)(w, at as *const _, out, bytes, pe) }
        })?;
        self.dtype.value(py, bits)
    }

    /// `put`, and then the signal `signal` on PE `pe` becomes `value`, or that much more (`op="add"`): a PE
    /// that sees it sees the data.
    #[pyo3(signature = (src, signal, value, pe, *, op="set", stream=None))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn put_signal(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        signal: &Bound<'_, Array>,
        value: u64,
        pe: i32,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = &*self.memory.core;
        let (at, stride, sig) = (self.symmetric(py)?, stride_of(py, self)?, signal.get().signal(py)?);
        let (sig_op, src) = (signal_op(op)?, Operand::of(src, "src", For::Reading)?);
        check_sides(py, self, &src, "src")?;
        let (from, from_stride, elem, n) = (src.at, src.stride, self.dtype.bytes(), self.len());
        let is_plain = stride == 1 && from_stride == 1;
        let on = stream::handle(core, stream)?;
        let call = move || {
            let (w, dst, src, sig) = (core.raw(), at as *mut _, from as *const _, sig as *mut u64);
            let t = core.table;
            // SAFETY: a live handle; the source is valid for its elements until the call, or the stream's
            // turn, is over; what is not symmetric is refused.
            unsafe {
                match (is_plain, on) {
                    (true, None) => (t.put_signal)(w, dst, src, n * elem, sig, value, sig_op, pe),
                    (true, Some(on)) => {
                        (t.put_signal_on_stream)(w, dst, src, n * elem, sig, value, sig_op, pe, on as *mut _)
                    }
                    (false, None) => {
                        (t.iput_signal)(w, dst, src, stride, from_stride, elem, n, sig, value, sig_op, pe)
                    }
                    (false, Some(on)) => (t.iput_signal_on_stream)(
                        w,
                        dst,
                        src,
                        stride,
                        from_stride,
                        elem,
                        n,
                        sig,
                        value,
                        sig_op,
                        pe,
                        on as *mut _,
                    ),
                }
            }
        };
        match on {
            None => core.run(py, move || Failure::check(core.table, call())),
            Some(on) => {
                self.memory.uses.note(on);
                signal.get().memory.uses.note(on);
                stream::put_on(py, core, on, [src], call)
            }
        }
    }

    /// This signal on PE `pe` becomes `value`, or that much more (`op="add"`).
    #[pyo3(signature = (value, pe, *, op="set", stream=None))]
    fn signal_op(
        &self,
        py: Python<'_>,
        value: u64,
        pe: i32,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let core = &*self.memory.core;
        let (sig, sig_op) = (self.signal(py)?, signal_op(op)?);
        match stream::handle(core, stream)? {
            None => core.call(py, |table, w| {
                // SAFETY: a live handle; what is not symmetric is refused.
                unsafe { (table.signal_op)(w, sig as *mut u64, value, sig_op, pe) }
            }),
            Some(on) => {
                self.memory.uses.note(on);
                core.call(py, |table, w| {
                    // SAFETY: a live handle; what is not symmetric, or no stream, is refused.
                    unsafe {
                        (table.signal_op_on_stream)(w, sig as *mut u64, value, sig_op, pe, on as *mut _)
                    }
                })
            }
        }
    }

    /// This PE's own signal now, without waiting; what it announces is seen.
    fn signal_fetch(&self, py: Python<'_>) -> PyResult<u64> {
        let (sig, mut value) = (self.signal(py)?, 0);
        let out = &mut value;
        self.memory.core.call(py, move |table, w| {
            // SAFETY: a live handle, and a place for the answer; what is not symmetric is refused.
            unsafe { (table.others.signal_fetch)(w, sig as *const u64, out) }
        })?;
        Ok(value)
    }
}

/// For `python -m rushmem.bench`: what `n` puts of the C ABI take, in seconds, without Python between them.
#[pyfunction]
#[pyo3(signature = (array, src, pe, n, stream=None))]
pub(crate) fn _time_puts(
    py: Python<'_>,
    array: &Bound<'_, Array>,
    src: &Bound<'_, PyAny>,
    pe: i32,
    n: u32,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<f64> {
    let core = &*array.get().memory.core;
    let (at, src) = (array.get().symmetric(py)?, Operand::of(src, "src", For::Reading)?);
    check_sides(py, array.get(), &src, "src")?;
    src.check_dense(py, "src")?;
    let (from, bytes, on) = (src.at, src.bytes(), stream::handle(core, stream)?);
    core.run(py, || {
        let start = std::time::Instant::now();
        for _ in 0..n {
            let (w, dst, src) = (core.raw(), at as *mut _, from as *const _);
            // SAFETY: a live handle; the source is held through this call, which waits for the stream.
            let code = unsafe {
                match on {
                    None => (core.table.put)(w, dst, src, bytes, pe),
                    Some(on) => (core.table.put_on_stream)(w, dst, src, bytes, pe, on as *mut _),
                }
            };
            Failure::check(core.table, code)?;
        }
        let took = start.elapsed().as_secs_f64();
        if let Some(on) = on {
            // SAFETY: a live handle; what is no stream of it was refused above.
            Failure::check(core.table, unsafe { (core.table.stream_synchronize)(core.raw(), on as *mut _) })?;
        }
        Ok(took)
    })
}
