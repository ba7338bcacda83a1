//! What other libraries see of an array, without a copy: the buffer protocol and `__array_interface__` in
//! host memory, `__cuda_array_interface__` (version 3) in GPU memory, DLPack (1.1) in either. Each holds the
//! memory: it stays mapped while anybody sees it, past the world's end. Registered memory is its owner's, who
//! is held.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::Array;
use crate::ledger::Allocation;
use crate::stream;

/// What a `Py_buffer` of ours points at.
struct Exported {
    _memory: Arc<Allocation>,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

impl Array {
    fn byte_strides(&self) -> Vec<isize> {
        self.strides.iter().map(|stride| stride * self.dtype.bytes() as isize).collect()
    }

    /// Where others see the first element: of registered memory where its owner has it, as that address
    /// outlives the world.
    fn shown_at(&self) -> PyResult<usize> {
        match (&self.memory.own, self.peer) {
            (None, _) => Ok(self.at),
            (Some(own), None) => Ok(own.at + (self.at - self.memory.at)),
            (Some(_), Some(pe)) => Err(PyBufferError::new_err(format!(
                "PE {pe} can make its registered memory private again, and so it is not shown; array.get({pe}) copies"
            ))),
        }
    }

    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_there(py)?;
        let Some(typestr) = self.dtype.typestr() else {
            return Err(PyAttributeError::new_err(format!("numpy has no {}: use DLPack", self.dtype.name())));
        };
        let about = PyDict::new(py);
        about.set_item("version", 3)?;
        about.set_item("shape", PyTuple::new(py, self.shape.iter())?)?;
        about.set_item("typestr", typestr)?;
        about.set_item("data", (if self.len() == 0 { 0 } else { self.shown_at()? }, false))?;
        let strides = if self.is_dense() { None } else { Some(PyTuple::new(py, self.byte_strides())?) };
        about.set_item("strides", strides)?;
        Ok(about)
    }
}

#[pymethods]
impl Array {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.memory.core.is_gpu() {
            return Err(PyAttributeError::new_err(
                "the memory is a GPU's: numpy cannot see it; array.get(pe) copies",
            ));
        }
        self.interface(py)
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.memory.core.is_gpu() {
            return Err(PyAttributeError::new_err("the memory is the host's"));
        }
        // Who takes the address holds this object, which nobody counts.
        self.memory.is_shown.store(true, Ordering::Relaxed);
        self.interface(py)
    }

    /// # Safety
    /// As CPython calls it: `view` is valid.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (py, a) = (slf.py(), slf.get());
        a.check_there(py)?;
        if a.memory.core.is_gpu() {
            return Err(PyBufferError::new_err("the memory is a GPU's, which has no buffers of the host"));
        }
        let Some(format) = a.dtype.format() else {
            return Err(PyBufferError::new_err(format!("buffers have no {}: use DLPack", a.dtype.name())));
        };
        let wants = |flag: c_int| flags & flag == flag;
        if !wants(ffi::PyBUF_STRIDES) && !a.is_dense() {
            return Err(PyBufferError::new_err("the array has gaps, which this buffer cannot say"));
        }
        let at = a.shown_at()?;
        let exported = Box::into_raw(Box::new(Exported {
            _memory: Arc::clone(&a.memory),
            shape: a.shape.iter().map(|n| *n as isize).collect(),
            strides: a.byte_strides(),
        }));
        // SAFETY: the caller's view, and a box that lives until __releasebuffer__.
        unsafe {
            let (exported, view) = (&mut *exported, &mut *view);
            view.buf = at as *mut c_void;
            view.len = a.bytes() as isize;
            view.readonly = 0;
            view.itemsize = a.dtype.bytes() as isize;
            view.format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { null_mut() };
            view.ndim = a.shape.len() as c_int;
            view.shape = if wants(ffi::PyBUF_ND) { exported.shape.as_mut_ptr() } else { null_mut() };
            view.strides = if wants(ffi::PyBUF_STRIDES) { exported.strides.as_mut_ptr() } else { null_mut() };
            view.suboffsets = null_mut();
            view.internal = std::ptr::from_mut(exported).cast();
            view.obj = slf.clone().into_ptr();
        }
        Ok(())
    }

    /// # Safety
    /// As CPython calls it: `view` is one that `__getbuffer__` filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the box of `__getbuffer__`, given back once.
        unsafe { drop(Box::from_raw((*view).internal.cast::<Exported>())) };
    }

    /// DLPack's device: its type (1 for the CPU, 2 for CUDA) and number.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let core = &self.memory.core;
        if core.is_gpu() {
            (DL_CUDA, core.view.gpu)
        } else {
            (DL_CPU, 0)
        }
    }

    /// The array as a DLPack capsule. What is on `stream` comes after nothing of ours: symmetric memory is
    /// ordered by signals and barriers, which the program makes.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        slf: Bound<'_, Self>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let (py, a) = (slf.py(), slf.get());
        a.check_there(py)?;
        let device = a.__dlpack_device__();
        if dl_device.is_some_and(|wanted| wanted != device) {
            return Err(PyBufferError::new_err(format!(
                "the array is on device {device:?} and is not copied"
            )));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("the array shares its memory and is not copied"));
        }
        // torch ends the process at such strides (`torch.from_dlpack(numpy_array[::-1])`, 2.11).
        if a.len() > 0 && a.shape.iter().zip(&a.strides).any(|(n, stride)| *n > 1 && *stride < 0) {
            return Err(PyBufferError::new_err("the array runs backwards, which DLPack's users do not take"));
        }
        // Who frees the array later must not free it under this stream's work.
        if let Some(stream) = stream {
            if let Some(handle) = stream::dlpack_handle(stream) {
                a.memory.uses.note(handle);
            }
        }
        let tensor = Tensor {
            data: if a.len() == 0 { null_mut() } else { a.shown_at()? as *mut c_void },
            device: [device.0, device.1],
            ndim: a.shape.len() as i32,
            dtype: Type { code: a.dtype.dlpack().0, bits: a.dtype.dlpack().1, lanes: 1 },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let shape = a.shape.iter().map(|n| *n as i64).collect();
        let strides = a.strides.iter().map(|stride| (*stride).max(1) as i64).collect();
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let memory = Arc::clone(&a.memory);
        if is_versioned {
            let tensor = Versioned { version: [1, 0], context: null_mut(), delete: None, flags: 0, tensor };
            capsule(py, Managed::boxed(tensor, shape, strides, memory))
        } else {
            let tensor = Unversioned { tensor, context: null_mut(), delete: None };
            capsule(py, Managed::boxed(tensor, shape, strides, memory))
        }
    }
}

const DL_CPU: i32 = 1;
const DL_CUDA: i32 = 2;

/// `DLDataType`.
#[repr(C)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    dtype: Type,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

type Delete<T> = Option<unsafe extern "C" fn(*mut T)>;

/// `DLManagedTensor`.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    delete: Delete<Unversioned>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    delete: Delete<Versioned>,
    flags: u64,
    tensor: Tensor,
}

/// What both forms have.
trait Form: Sized {
    const NAME: &'static std::ffi::CStr;
    fn parts(&mut self) -> (&mut Tensor, &mut Delete<Self>);
}

impl Form for Unversioned {
    const NAME: &'static std::ffi::CStr = c"dltensor";
    fn parts(&mut self) -> (&mut Tensor, &mut Delete<Self>) {
        (&mut self.tensor, &mut self.delete)
    }
}

impl Form for Versioned {
    const NAME: &'static std::ffi::CStr = c"dltensor_versioned";
    fn parts(&mut self) -> (&mut Tensor, &mut Delete<Self>) {
        (&mut self.tensor, &mut self.delete)
    }
}

/// A tensor with what it points at. It comes first: a pointer to it is one to all.
#[repr(C)]
struct Managed<T> {
    tensor: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _memory: Arc<Allocation>,
}

impl<T: Form> Managed<T> {
    fn boxed(tensor: T, shape: Vec<i64>, strides: Vec<i64>, memory: Arc<Allocation>) -> Box<Managed<T>> {
        let mut managed = Box::new(Managed { tensor, shape, strides, _memory: memory });
        let (shape, strides) = (managed.shape.as_mut_ptr(), managed.strides.as_mut_ptr());
        let (tensor, delete) = managed.tensor.parts();
        (tensor.shape, tensor.strides) = (shape, strides);
        *delete = Some(delete_managed::<T>);
        managed
    }
}

/// # Safety
/// `tensor` is the first field of a box of ours, and nobody uses it any more.
unsafe extern "C" fn delete_managed<T>(tensor: *mut T) {
    // SAFETY: per contract.
    drop(unsafe { Box::from_raw(tensor.cast::<Managed<T>>()) });
}

/// The capsule of a tensor; a consumer renames it and takes the tensor over.
fn capsule<T: Form>(py: Python<'_>, managed: Box<Managed<T>>) -> PyResult<Py<PyAny>> {
    /// # Safety
    /// As CPython calls it, with the capsule that dies.
    unsafe extern "C" fn end<T: Form>(capsule: *mut ffi::PyObject) {
        let name: *const c_char = T::NAME.as_ptr();
        // SAFETY: a capsule; under its first name nobody has taken the tensor over.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule, name) == 1 {
                delete_managed(ffi::PyCapsule_GetPointer(capsule, name).cast::<T>());
            }
        }
    }
    let tensor = Box::into_raw(managed);
    // SAFETY: a pointer that is not null, a name that lives for ever, a destructor for such a capsule; the
    // object is new.
    unsafe {
        let capsule = ffi::PyCapsule_New(tensor.cast(), T::NAME.as_ptr(), Some(end::<T>));
        Bound::from_owned_ptr_or_err(py, capsule)
            .map(Bound::unbind)
            .inspect_err(|_| drop(Box::from_raw(tensor)))
    }
}
