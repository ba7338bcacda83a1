//! What operations take beside symmetric arrays: anything with the buffer protocol (numpy, bytes), tensors
//! (`data_ptr()`), and arrays of GPUs (`__cuda_array_interface__`). Nothing is copied.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::Array;
use crate::dtype::Dtype;
use crate::error;

/// Memory that an operation reads or writes.
pub(crate) struct Operand {
    pub(crate) at: usize,
    /// Elements.
    pub(crate) n: usize,
    /// Bytes of one.
    pub(crate) elem: usize,
    /// From element to element, in elements; 1 or more.
    pub(crate) stride: isize,
    /// Where it is known. Bytes stand for anything.
    pub(crate) dtype: Option<Dtype>,
    /// Keeps the memory for as long as the operand lives.
    pub(crate) held: Held,
}

/// What keeps an operand's memory.
pub(crate) enum Held {
    /// A symmetric array, of this PE's or a peer's memory.
    Array(Py<Array>),
    /// A buffer, which its owner cannot move or free meanwhile.
    Buffer(PyUntypedBuffer),
    /// An object with an address. `true` for host memory.
    Object(Py<PyAny>, bool),
}

/// What is done with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
}

impl Operand {
    pub(crate) fn bytes(&self) -> usize {
        self.n * self.elem
    }

    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str, use_: For) -> PyResult<Operand> {
        let py = object.py();
        if let Ok(array) = object.cast::<Array>() {
            let a = array.get();
            a.check_there(py)?;
            let stride = a.stride().ok_or_else(|| gaps(what))?;
            return Ok(Operand {
                at: a.at,
                n: a.len(),
                elem: a.dtype.bytes(),
                stride,
                dtype: Some(a.dtype),
                held: Held::Array(array.clone().unbind()),
            });
        }
        if let Ok(buffer) = PyUntypedBuffer::get(object) {
            return Operand::of_buffer(py, buffer, what, use_);
        }
        if let Some(operand) = Operand::of_tensor(object, what)? {
            return Ok(operand);
        }
        if let Some(operand) = Operand::of_cuda(object, what, use_)? {
            return Ok(operand);
        }
        Err(PyTypeError::new_err(format!(
            "{what} is a {}: an array is wanted (rushmem, numpy, torch, or anything with the buffer protocol)",
            object.get_type().name()?
        )))
    }

    fn of_buffer(py: Python<'_>, buffer: PyUntypedBuffer, what: &str, use_: For) -> PyResult<Operand> {
        if use_ == For::Writing && buffer.readonly() {
            return Err(PyBufferError::new_err(format!("{what} is read-only")));
        }
        let (elem, n) = (buffer.item_size(), buffer.item_count());
        let stride = if buffer.is_c_contiguous() || n <= 1 {
            1
        } else {
            even(buffer.shape(), buffer.strides(), elem).ok_or_else(|| gaps(what))?
        };
        let format = buffer.format().to_string_lossy();
        if elem > 1 && format.starts_with(['>', '!']) {
            let text = format!("{what} has another byte order than this machine: {format}");
            return Err(error::invalid(py, &text));
        }
        let dtype = Dtype::of_format(&format, elem);
        Ok(Operand { at: buffer.buf_ptr() as usize, n, elem, stride, dtype, held: Held::Buffer(buffer) })
    }

    /// torch's, which have no buffer protocol.
    fn of_tensor(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<Operand>> {
        let py = object.py();
        let Some(at) = object.getattr_opt(pyo3::intern!(py, "data_ptr"))? else { return Ok(None) };
        let stride = if object.call_method0(pyo3::intern!(py, "is_contiguous"))?.is_truthy()? {
            1
        } else {
            let shape: Vec<usize> = object.getattr(pyo3::intern!(py, "shape"))?.extract()?;
            // In elements, not in bytes.
            let strides: Vec<isize> = object.call_method0(pyo3::intern!(py, "stride"))?.extract()?;
            even(&shape, &strides, 1).ok_or_else(|| gaps(what))?
        };
        let at = at.call0()?.extract()?;
        let n = object.call_method0(pyo3::intern!(py, "numel"))?.extract()?;
        let elem = object.call_method0(pyo3::intern!(py, "element_size"))?.extract()?;
        let is_host = !object.getattr(pyo3::intern!(py, "is_cuda"))?.is_truthy()?;
        let dtype = Dtype::of_object(object);
        if at == 0 && n > 0 {
            let text = format!("{what} is a tensor without memory, as of the device \"meta\"");
            return Err(PyTypeError::new_err(text));
        }
        check_resolved(object, what, dtype)?;
        let held = Held::Object(object.clone().unbind(), is_host);
        Ok(Some(Operand { at, n, elem, stride, dtype, held }))
    }

    fn of_cuda(object: &Bound<'_, PyAny>, what: &str, use_: For) -> PyResult<Option<Operand>> {
        let Some(about) = object.getattr_opt("__cuda_array_interface__")? else { return Ok(None) };
        let (at, read_only): (usize, bool) = about.get_item("data")?.extract()?;
        if use_ == For::Writing && read_only {
            return Err(PyBufferError::new_err(format!("{what} is read-only")));
        }
        let shape: Vec<usize> = about.get_item("shape")?.extract()?;
        let kind: String = about.get_item("typestr")?.extract()?;
        let elem: usize = kind
            .get(2..)
            .and_then(|bytes| bytes.parse().ok())
            .ok_or_else(|| PyTypeError::new_err(format!("{what} has elements of type {kind:?}")))?;
        let n = shape.iter().product();
        let mut stride = 1;
        if let Some(strides) = about.get_item("strides").ok().filter(|strides| !strides.is_none() && n > 1) {
            let strides: Vec<isize> = strides.extract()?;
            let dense = crate::array::dense(&shape);
            let same = |i: usize| shape[i] <= 1 || strides.get(i) == Some(&(dense[i] * elem as isize));
            if !(0..shape.len()).all(same) {
                stride = even(&shape, &strides, elem).ok_or_else(|| gaps(what))?;
            }
        }
        let held = Held::Object(object.clone().unbind(), false);
        Ok(Some(Operand { at, n, elem, stride, dtype: None, held }))
    }

    /// Refuses what has gaps.
    pub(crate) fn check_dense(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.stride == 1 || self.n <= 1 {
            return Ok(());
        }
        Err(error::invalid(py, &format!("{what} has gaps between its elements; make it contiguous")))
    }

    /// What a stream must not lose. Symmetric arrays are noted, and are safe without.
    pub(crate) fn lend(self, py: Python<'_>, stream: usize, loan: &mut Loan) -> PyResult<()> {
        match self.held {
            Held::Array(array) => array.get().memory.uses.note(stream),
            Held::Buffer(buffer) => loan.host.push(Py::new(py, Lent { _buffer: buffer })?.into_any()),
            Held::Object(object, true) => loan.host.push(object),
            Held::Object(object, false) => loan.device.push(object),
        }
        Ok(())
    }
}

/// What one call lends to its stream.
#[derive(Default)]
pub(crate) struct Loan {
    /// Objects in host memory.
    pub(crate) host: Vec<Py<PyAny>>,
    /// Objects in a GPU's, whose allocator (torch's, cupy's) knows the stream that they were made on and none
    /// else: dropped, their memory is another object's at once.
    pub(crate) device: Vec<Py<PyAny>>,
}

/// A buffer that a stream holds.
#[pyclass(frozen)]
struct Lent {
    _buffer: PyUntypedBuffer,
}

/// From element to element, in elements, where that is one distance for all; `strides` count units of which
/// an element has `unit`.
fn even(shape: &[usize], strides: &[isize], unit: usize) -> Option<isize> {
    let mut wide = shape.iter().zip(strides).filter(|(n, _)| **n > 1);
    match (wide.next(), wide.next()) {
        (Some((_, stride)), None) if *stride > 0 && *stride as usize % unit == 0 => {
            Some(stride / unit as isize)
        }
        _ => None,
    }
}

/// Refuses torch's views whose memory has other values than they: negated ones and conjugates.
fn check_resolved(object: &Bound<'_, PyAny>, what: &str, dtype: Option<Dtype>) -> PyResult<()> {
    let py = object.py();
    let is = |name: &Bound<'_, PyString>| match object.getattr_opt(name)? {
        Some(f) => f.call0()?.is_truthy(),
        None => Ok(false),
    };
    if is(pyo3::intern!(py, "is_neg"))? {
        return Err(PyBufferError::new_err(format!("{what} is a negated view: call resolve_neg()")));
    }
    if dtype.is_none_or(Dtype::is_complex) && is(pyo3::intern!(py, "is_conj"))? {
        return Err(PyBufferError::new_err(format!("{what} is a conjugate view: call resolve_conj()")));
    }
    Ok(())
}

fn gaps(what: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "{what} has gaps between its elements in more than one dimension, or repeats them; make it contiguous"
    ))
}
