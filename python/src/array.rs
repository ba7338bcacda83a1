//! Symmetric arrays: memory of one size at the same place of every PE's heap, with a shape and a type.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PySlice, PyTuple};
use rushmem_abi::c::*;

use crate::dtype::Dtype;
use crate::error;
use crate::ledger::{self, Allocation};

/// Symmetric memory with a shape and a type, or a view of a part of it.
#[pyclass(frozen, weakref, module = "rushmem", name = "Array")]
pub(crate) struct Array {
    pub(crate) memory: Arc<Allocation>,
    /// Address of the first element.
    pub(crate) at: usize,
    pub(crate) shape: Box<[usize]>,
    /// From element to element, in elements.
    pub(crate) strides: Box<[isize]>,
    pub(crate) dtype: Dtype,
    /// Whose memory it shows: another PE's, which is for loads and stores alone, or this one's.
    pub(crate) peer: Option<i32>,
}

/// The number of elements of a shape, where that many bytes can be.
pub(crate) fn elements(py: Python<'_>, shape: &[usize], bytes: usize) -> PyResult<usize> {
    let n = shape.iter().try_fold(1_usize, |n, dim| n.checked_mul(*dim));
    n.filter(|n| n.checked_mul(bytes).is_some_and(|all| all <= isize::MAX as usize))
        .ok_or_else(|| error::invalid(py, &format!("a shape of {shape:?} has too many elements")))
}

/// The strides of an array without gaps, its last index running fastest.
pub(crate) fn dense(shape: &[usize]) -> Box<[isize]> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1) as isize;
    }
    strides.into()
}

/// A shape as Python has it: a number or numbers.
pub(crate) fn shape_of(object: &Bound<'_, PyAny>) -> PyResult<Box<[usize]>> {
    if let Ok(n) = object.extract::<usize>() {
        return Ok([n].into());
    }
    let shape: Vec<usize> = object.extract().map_err(|_| {
        PyTypeError::new_err(format!("{object} is no shape: a number or a tuple of numbers, 0 or more"))
    })?;
    Ok(shape.into())
}

impl Array {
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len() * self.dtype.bytes()
    }

    pub(crate) fn is_dense(&self) -> bool {
        let dense = dense(&self.shape);
        self.shape.iter().zip(&self.strides).zip(&dense).all(|((n, is), wanted)| *n <= 1 || is == wanted)
            || self.len() == 0
    }

    /// Where it has gaps: from element to element, if that is one distance for all, 1 or more.
    pub(crate) fn stride(&self) -> Option<isize> {
        if self.is_dense() {
            return Some(1);
        }
        let mut dims = self.shape.iter().zip(&self.strides).filter(|(n, _)| **n > 1);
        match (dims.next(), dims.next()) {
            (Some((_, stride)), None) if *stride >= 1 => Some(*stride),
            _ => None,
        }
    }

    /// The address for an operation on symmetric memory.
    pub(crate) fn symmetric(&self, py: Python<'_>) -> PyResult<usize> {
        match self.peer {
            None => Ok(self.at),
            Some(pe) => {
                let text = format!(
                    "this array shows PE {pe}'s memory, for loads and stores; operations take one's own array and the PE's \
                     number"
                );
                Err(error::invalid(py, &text))
            }
        }
    }

    /// The address of a single element.
    pub(crate) fn word(&self, py: Python<'_>) -> PyResult<usize> {
        if self.len() == 1 {
            return self.symmetric(py);
        }
        let text = format!("one element is meant, not an array of shape {:?}: array[i] is one", self.shape);
        Err(error::invalid(py, &text))
    }

    /// Refused once the memory is not this array's any more.
    pub(crate) fn check_there(&self, py: Python<'_>) -> PyResult<()> {
        if crate::FORKED.load(Ordering::Relaxed) {
            // SAFETY: a live handle, which is the parent's: the runtime has the text.
            return self.memory.core.call(py, |table, w| unsafe { (table.check)(w) });
        }
        if self.memory.is_freed.load(Ordering::Relaxed) {
            return Err(error::of(py, RUSHMEM_ERR_BAD_ADDRESS, "this array was freed"));
        }
        self.memory.core.enter(py).map(drop)
    }

    fn view(&self, at: usize, shape: Vec<usize>, strides: Vec<isize>) -> Array {
        Array {
            memory: Arc::clone(&self.memory),
            at,
            shape: shape.into(),
            strides: strides.into(),
            dtype: self.dtype,
            peer: self.peer,
        }
    }

    /// `a[...]`: numbers, slices and an ellipsis.
    fn index(&self, indices: &[Bound<'_, PyAny>]) -> PyResult<Array> {
        let is_ellipsis = |i: &&Bound<'_, PyAny>| i.is_instance_of::<PyEllipsis>();
        let ellipses = indices.iter().filter(is_ellipsis).count();
        let given = indices.len() - ellipses;
        if ellipses > 1 || given > self.shape.len() {
            let text = format!("too many indices for an array of {} dimensions", self.shape.len());
            return Err(PyIndexError::new_err(text));
        }
        let (mut at, mut dim) = (self.at as isize, 0);
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for index in indices {
            if index.is_instance_of::<PyEllipsis>() {
                let all = dim..dim + self.shape.len() - given;
                shape.extend_from_slice(&self.shape[all.clone()]);
                strides.extend_from_slice(&self.strides[all.clone()]);
                dim = all.end;
                continue;
            }
            let (n, stride) = (self.shape[dim], self.strides[dim]);
            let step = stride * self.dtype.bytes() as isize;
            if let Ok(slice) = index.cast::<PySlice>() {
                let part = slice.indices(n as isize)?;
                at += if part.slicelength > 0 { part.start * step } else { 0 };
                shape.push(part.slicelength);
                strides.push(stride * part.step);
            } else {
                let i: isize = index.extract().map_err(|_| {
                    PyTypeError::new_err(format!("{index} is no index: numbers, slices and ... are"))
                })?;
                let from_front = if i < 0 { i + n as isize } else { i };
                if from_front < 0 || from_front >= n as isize {
                    return Err(PyIndexError::new_err(format!("index {i} of a dimension of {n}")));
                }
                at += from_front * step;
            }
            dim += 1;
        }
        shape.extend_from_slice(&self.shape[dim..]);
        strides.extend_from_slice(&self.strides[dim..]);
        Ok(self.view(at as usize, shape, strides))
    }
}

#[pymethods]
impl Array {
    /// The lengths of its dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.iter())
    }

    /// From element to element in each dimension, in bytes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.strides.iter().map(|stride| stride * self.dtype.bytes() as isize))
    }

    /// The type of its elements, by name.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Its elements.
    #[getter]
    fn size(&self) -> usize {
        self.len()
    }

    #[getter]
    fn itemsize(&self) -> usize {
        self.dtype.bytes()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes()
    }

    /// The address of its first element: this PE's, or the peer's whose memory it shows.
    #[getter]
    fn address(&self) -> usize {
        self.at
    }

    /// The PE whose memory it shows; None for one's own symmetric memory.
    #[getter]
    fn pe(&self) -> Option<i32> {
        self.peer
    }

    #[getter]
    fn is_contiguous(&self) -> bool {
        self.is_dense()
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array without dimensions has no length"))
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Array> {
        match index.cast::<PyTuple>() {
            Ok(tuple) => self.index(&tuple.iter().collect::<Vec<_>>()),
            Err(_) => self.index(std::slice::from_ref(index)),
        }
    }

    /// The same elements, without gaps, in another shape; one length may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<Array> {
        let given: Vec<isize> = match shape.len() {
            1 => shape.get_item(0)?.extract().or_else(|_| shape.extract_all())?,
            _ => shape.extract_all()?,
        };
        if !self.is_dense() {
            return Err(PyValueError::new_err("an array with gaps has no other shape without a copy"));
        }
        let known: isize = given.iter().filter(|n| **n != -1).product();
        let open = given.iter().filter(|n| **n == -1).count();
        let n = self.len() as isize;
        let wrong = || PyValueError::new_err(format!("{n} elements have no shape {given:?}"));
        if given.iter().any(|n| *n < -1) || open > 1 || (open == 1 && (known == 0 || n % known != 0)) {
            return Err(wrong());
        }
        let shape: Vec<usize> =
            given.iter().map(|dim| if *dim == -1 { (n / known) as usize } else { *dim as usize }).collect();
        if shape.iter().product::<usize>() != self.len() {
            return Err(wrong());
        }
        let strides = dense(&shape).into_vec();
        Ok(self.view(self.at, shape, strides))
    }

    /// The same bytes, without gaps, as elements of another type of the same size or one that divides the
    /// last dimension.
    fn view_as(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Array> {
        let dtype = Dtype::of(dtype)?;
        let (old, new) = (self.dtype.bytes(), dtype.bytes());
        let mut shape = self.shape.to_vec();
        if old != new {
            let last = shape.last_mut().filter(|last| **last * old % new == 0);
            let Some(last) = last.filter(|_| self.is_dense()) else {
                let text = format!(
                    "{:?} elements of {} are no whole ones of {}",
                    self.shape,
                    self.dtype.name(),
                    dtype.name()
                );
                return Err(error::invalid(py, &text));
            };
            *last = *last * old / new;
        }
        let strides = if old == new { self.strides.to_vec() } else { dense(&shape).into_vec() };
        Ok(Array { dtype, ..self.view(self.at, shape, strides) })
    }

    /// PE `pe`'s copy of this array, where it is mapped: for loads and stores, by numpy or torch, and for
    /// kernels. None where it is not.
    fn peer(&self, py: Python<'_>, pe: i32) -> PyResult<Option<Array>> {
        let (own, mut at) = (self.symmetric(py)?, 0_usize);
        if self.bytes() > 0 {
            let out = &mut at;
            self.memory.core.call(py, move |table, w| {
                let out = std::ptr::from_mut(out).cast::<*mut std::ffi::c_void>();
                // SAFETY: a live handle, an address that is looked up, and a place for the answer.
                unsafe { (table.ptr)(w, own as *const _, pe, out) }
            })?;
            if at == 0 {
                return Ok(None);
            }
        }
        let view = self.view(at, self.shape.to_vec(), self.strides.to_vec());
        Ok(Some(Array { peer: Some(pe), ..view }))
    }

    /// Gives the memory back now. Collective over the world. Refused (`Busy`), on all PEs, where one of them
    /// has other views of it or a stream that still uses it. Without it, the memory is given back once all
    /// PEs have dropped the array, by the next `world.empty()` or `world.collect()`.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.check_there(py)?;
        let memory = &self.memory;
        if self.peer.is_some() || self.at != memory.at || self.bytes() != memory.bytes {
            return Err(error::invalid(py, "free takes the whole array, as world.empty() gave it"));
        }
        memory.core.run(py, || ledger::free(memory))
    }

    fn __repr__(&self) -> String {
        let core = &self.memory.core;
        let shape: Vec<_> = self.shape.iter().map(usize::to_string).collect();
        let of = self.peer.map_or_else(|| core.who(), |pe| format!("PE {pe}'s, seen by {}", core.who()));
        let comma = if shape.len() == 1 { "," } else { "" };
        format!("rushmem.Array(({}{comma}), {}, {of})", shape.join(", "), self.dtype.name())
    }
}

/// All of a tuple as numbers.
trait ExtractAll {
    fn extract_all(&self) -> PyResult<Vec<isize>>;
}

impl ExtractAll for Bound<'_, PyTuple> {
    fn extract_all(&self) -> PyResult<Vec<isize>> {
        self.iter().map(|item| item.extract()).collect()
    }
}
