//! Kernels: CUDA C++ source, compiled for the world's device, and launched with arrays and numbers, which are
//! compared with the kernel's parameters.

use std::ffi::CString;
use std::sync::Arc;

use half::f16;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};
use rushmem_abi::c::*;
use rushmem_abi::device::RawTeam;

use crate::core::Core;
use crate::dtype::Dtype;
use crate::error::{self, Failure};
use crate::operand::{For, Held, Operand};
use crate::stream;
use crate::table::text;
use crate::team::Team;

/// A compiled source. It stays loaded until `unload()` or the world's end.
#[pyclass(frozen, weakref, module = "rushmem", name = "Module")]
pub(crate) struct Module {
    core: Arc<Core>,
    raw: usize,
}

/// A kernel of a module.
#[pyclass(frozen, weakref, module = "rushmem", name = "Kernel")]
pub(crate) struct Kernel {
    core: Arc<Core>,
    raw: usize,
    name: String,
    params: Vec<rushmem_arg_type_t>,
    default_stream: usize,
}

impl Module {
    pub(crate) fn load(
        py: Python<'_>,
        core: &Arc<Core>,
        source: &str,
        name: &str,
        options: Vec<String>,
    ) -> PyResult<Module> {
        let name = CString::new(name)?;
        let options = options.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let mut raw = 0_usize;
        let out = &mut raw;
        core.call(py, move |table, w| {
            let list: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
            let (text, bytes, out) = (source.as_ptr().cast(), source.len(), std::ptr::from_mut(out).cast());
            // SAFETY: a live handle; the texts outlive the call and the lengths are theirs; a place for the
            // answer.
            unsafe { (table.module_load)(w, text, bytes, name.as_ptr(), list.as_ptr(), list.len(), out) }
        })?;
        Ok(Module { core: Arc::clone(core), raw })
    }

    pub(crate) fn load_binary(py: Python<'_>, core: &Arc<Core>, code: &[u8], name: &str) -> PyResult<Module> {
        let (name, mut raw) = (CString::new(name)?, 0_usize);
        let out = &mut raw;
        core.call(py, move |table, w| {
            let out = std::ptr::from_mut(out).cast();
            // SAFETY: a live handle; code and name outlive the call; a place for the answer.
            unsafe { (table.module_load_binary)(w, code.as_ptr().cast(), code.len(), name.as_ptr(), out) }
        })?;
        Ok(Module { core: Arc::clone(core), raw })
    }
}

#[pymethods]
impl Module {
    /// The kernel (`__global__` function) of this name.
    fn kernel(&self, py: Python<'_>, name: &str) -> PyResult<Kernel> {
        let (c_name, module) = (CString::new(name)?, self.raw);
        let core = &self.core;
        let (raw, params, default_stream) = core.run(py, || {
            let (mut raw, mut n, mut on) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
            let t = core.table;
            // SAFETY: a live module, a C string, and a place for the answer.
            Failure::check(t, unsafe { (t.module_kernel)(module as *mut _, c_name.as_ptr(), &mut raw) })?;
            // SAFETY: a live kernel; null asks for the number alone.
            Failure::check(t, unsafe { (t.kernel_params)(raw, std::ptr::null_mut(), 0, &mut n) })?;
            let unknown = rushmem_arg_type_t {
                kind: RUSHMEM_ARG_UNKNOWN,
                size: 0,
                pointee_kind: RUSHMEM_ARG_UNKNOWN,
                pointee_size: 0,
            };
            let mut params = vec![unknown; n];
            // SAFETY: a live kernel, and room for as many types as it has.
            Failure::check(t, unsafe { (t.kernel_params)(raw, params.as_mut_ptr(), n, &mut n) })?;
            // SAFETY: a live handle, and a place for the answer.
            Failure::check(t, unsafe { (t.stream_default)(core.raw(), &mut on) })?;
            Ok((raw as usize, params, on as usize))
        })?;
        Ok(Kernel { core: Arc::clone(core), raw, name: name.to_owned(), params, default_stream })
    }

    /// The names of all kernels.
    #[getter]
    fn kernels(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let (core, module) = (&self.core, self.raw);
        core.run(py, || {
            let mut names = Vec::new();
            loop {
                let (n, mut name) = (names.len(), std::ptr::null());
                // SAFETY: a live module and a place for the answer.
                let code = unsafe { (core.table.module_kernel_names)(module as *mut _, n, &mut name) };
                if code != RUSHMEM_OK {
                    return Ok(names);
                }
                // SAFETY: a string of the module's, which lives.
                names.push(unsafe { text(name) });
            }
        })
    }

    /// Unloads the module: `Busy` while one of its kernels runs.
    fn unload(&self, py: Python<'_>) -> PyResult<()> {
        let module = self.raw;
        // SAFETY: a module's handle; a stale one is refused.
        self.core.call(py, |table, _| unsafe { (table.module_unload)(module as *mut _) })
    }
}

/// Extents: a number, or up to three.
fn extents(object: &Bound<'_, PyAny>, what: &str) -> PyResult<[u32; 3]> {
    if let Ok(x) = object.extract::<u32>() {
        return Ok([x, 1, 1]);
    }
    match object.extract::<Vec<u32>>() {
        Ok(given) if (1..=3).contains(&given.len()) => {
            let mut all = [1; 3];
            all[..given.len()].copy_from_slice(&given);
            Ok(all)
        }
        _ => Err(PyTypeError::new_err(format!("{what} is a number or up to three"))),
    }
}

/// A value as a kernel takes it.
#[repr(C, align(16))]
struct Value([u8; size_of::<RawTeam>()]);

impl Value {
    fn new<T: Copy>(value: T) -> Value {
        const { assert!(size_of::<T>() <= size_of::<Value>()) };
        let mut bytes = Value([0; size_of::<RawTeam>()]);
        // SAFETY: as many bytes, of which there is room; alignment is 16.
        unsafe { std::ptr::from_mut(&mut bytes).cast::<T>().write(value) };
        bytes
    }
}

impl Kernel {
    /// An argument's value and type for parameter `i`, and what it holds.
    fn argument(
        &self,
        i: usize,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<(Value, rushmem_arg_type_t, Option<Operand>)> {
        let py = object.py();
        let param = self.params[i];
        let scalar = |kind, size| rushmem_arg_type_t {
            kind,
            size,
            pointee_kind: RUSHMEM_ARG_UNKNOWN,
            pointee_size: 0,
        };
        let wrong = |what: &str| {
            PyTypeError::new_err(format!("argument {i} of {} is {what}, and {object} is none", self.name))
        };
        if let Ok(team) = object.cast::<Team>() {
            let raw = team.get().raw(py)?;
            let mut out = std::mem::MaybeUninit::<RawTeam>::uninit();
            // SAFETY: a live team and room for its form in kernels.
            let code = unsafe { (self.core.table.team_device)(raw as *mut _, out.as_mut_ptr().cast()) };
            Failure::check(self.core.table, code).map_err(|failure| failure.raise(py))?;
            // SAFETY: filled by the successful call.
            let value = Value::new(unsafe { out.assume_init() });
            return Ok((value, scalar(RUSHMEM_ARG_STRUCT, size_of::<RawTeam>() as u32), None));
        }
        // A tensor without dimensions is a number where one is wanted, and an array behind a pointer.
        let has_no_length = || {
            Ok::<_, PyErr>(object.getattr_opt("shape")?.is_none_or(|shape| shape.len().is_ok_and(|n| n == 0)))
        };
        let is_number = match param.kind {
            RUSHMEM_ARG_POINTER => object.is_instance_of::<PyInt>(),
            _ => object.extract::<f64>().is_ok() && has_no_length()?,
        };
        if !is_number {
            if param.kind != RUSHMEM_ARG_POINTER && param.kind != RUSHMEM_ARG_UNKNOWN {
                return Err(wrong("a number"));
            }
            let operand = Operand::of(object, &format!("argument {i} of {}", self.name), For::Reading)?;
            operand.check_dense(py, &format!("argument {i} of {}", self.name))?;
            if self.core.is_gpu() && matches!(operand.held, Held::Buffer(_) | Held::Object(_, true)) {
                return Err(error::invalid(
                    py,
                    &format!(
                        "argument {i} of {} is in host memory, which this GPU's kernels do not reach",
                        self.name
                    ),
                ));
            }
            let dtype = operand.dtype.or_else(|| Dtype::of_object(object));
            let (pointee_kind, pointee_size) = dtype.map_or((RUSHMEM_ARG_UNKNOWN, 0), Dtype::pointee);
            let ty = rushmem_arg_type_t { kind: RUSHMEM_ARG_POINTER, size: 8, pointee_kind, pointee_size };
            return Ok((Value::new(operand.at), ty, Some(operand)));
        }
        let (value, kind) = match (param.kind, param.size) {
            (RUSHMEM_ARG_INT, 1) => (Value::new(object.extract::<i8>()?), RUSHMEM_ARG_INT),
            (RUSHMEM_ARG_INT, 2) => (Value::new(object.extract::<i16>()?), RUSHMEM_ARG_INT),
            (RUSHMEM_ARG_INT, 4) => (Value::new(object.extract::<i32>()?), RUSHMEM_ARG_INT),
            (RUSHMEM_ARG_INT, 8) => (Value::new(object.extract::<i64>()?), RUSHMEM_ARG_INT),
            (RUSHMEM_ARG_UINT, 1) if object.is_instance_of::<PyBool>() => {
                (Value::new(object.is_truthy()?), RUSHMEM_ARG_UINT)
            }
            (RUSHMEM_ARG_UINT, 1) => (Value::new(object.extract::<u8>()?), RUSHMEM_ARG_UINT),
            (RUSHMEM_ARG_UINT, 2) => (Value::new(object.extract::<u16>()?), RUSHMEM_ARG_UINT),
            (RUSHMEM_ARG_UINT, 4) => (Value::new(object.extract::<u32>()?), RUSHMEM_ARG_UINT),
            (RUSHMEM_ARG_UINT, 8) => (Value::new(object.extract::<u64>()?), RUSHMEM_ARG_UINT),
            (RUSHMEM_ARG_FLOAT, 2) => {
                (Value::new(f16::from_f64(object.extract()?).to_bits()), RUSHMEM_ARG_FLOAT)
            }
            (RUSHMEM_ARG_FLOAT, 4) => (Value::new(object.extract::<f64>()? as f32), RUSHMEM_ARG_FLOAT),
            (RUSHMEM_ARG_FLOAT, 8) => (Value::new(object.extract::<f64>()?), RUSHMEM_ARG_FLOAT),
            (RUSHMEM_ARG_UNKNOWN, 4) if object.is_instance_of::<PyFloat>() => {
                (Value::new(object.extract::<f64>()? as f32), RUSHMEM_ARG_UNKNOWN)
            }
            (RUSHMEM_ARG_UNKNOWN, 8) if object.is_instance_of::<PyFloat>() => {
                (Value::new(object.extract::<f64>()?), RUSHMEM_ARG_UNKNOWN)
            }
            (RUSHMEM_ARG_UNKNOWN, 1..=8) => {
                // Its sign is not known: what fits either way.
                let bits = object.extract::<i64>().map(|n| n as u64).or_else(|_| object.extract::<u64>())?;
                let (high, width) = (bits as i64 >> (param.size * 8 - 1), param.size * 8);
                if width < 64 && high != 0 && high != -1 && bits >> width != 0 {
                    return Err(wrong(&format!("of {} bytes", param.size)));
                }
                (Value::new(bits), RUSHMEM_ARG_UNKNOWN)
            }
            // An address: the caller knows best.
            (RUSHMEM_ARG_POINTER, _) => (
                Value::new(object.extract::<usize>().map_err(|_| wrong("a pointer: an array"))?),
                RUSHMEM_ARG_POINTER,
            ),
            _ => return Err(wrong("a struct: a Team is the one that can be passed")),
        };
        Ok((value, scalar(kind, param.size), None))
    }
}

#[pymethods]
impl Kernel {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The number of its parameters.
    #[getter]
    fn n_params(&self) -> usize {
        self.params.len()
    }

    /// Launches `grid` blocks of `block` threads (numbers, or up to three) with arrays, numbers and teams.
    /// Asynchronous: `world.synchronize()` or the stream's says that it has ended, and reports what went
    /// wrong. All blocks are resident at once, so they may wait for one another; with `in_turns`, a grid may
    /// have any number of blocks, which may not.
    #[pyo3(signature = (grid, block, *args, shared_bytes=0, cluster=None, stream=None, in_turns=false))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn launch(
        &self,
        py: Python<'_>,
        grid: &Bound<'_, PyAny>,
        block: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        shared_bytes: u64,
        cluster: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
        in_turns: bool,
    ) -> PyResult<()> {
        let core = &*self.core;
        if args.len() != self.params.len() {
            let text =
                format!("{} takes {} arguments, {} were given", self.name, self.params.len(), args.len());
            return Err(error::of(py, RUSHMEM_ERR_LAUNCH, &text));
        }
        let on = stream::handle(core, stream)?.unwrap_or(self.default_stream);
        let (grid, block) = (extents(grid, "grid")?, extents(block, "block")?);
        let cluster = cluster.map_or(Ok([0; 3]), |cluster| extents(cluster, "cluster"))?;
        let (mut values, mut types, mut operands) = (Vec::new(), Vec::new(), Vec::new());
        for (i, argument) in args.iter().enumerate() {
            let (value, ty, operand) = self.argument(i, &argument)?;
            values.push(value);
            types.push(ty);
            operands.extend(operand);
        }
        for operand in &operands {
            if let Held::Array(array) = &operand.held {
                array.get().memory.uses.note(on);
            }
        }
        let (kernel, values, types) = (self.raw, &values, &types);
        stream::put_on(py, core, on, operands, move || {
            let config = rushmem_launch_t {
                size: size_of::<rushmem_launch_t>() as u32,
                flags: if in_turns { RUSHMEM_LAUNCH_IN_TURNS } else { 0 },
                grid,
                block,
                shared_bytes,
                stream: on as *mut _,
                cluster,
                reserved: 0,
            };
            let pointers: Vec<_> = values.iter().map(|value| std::ptr::from_ref(value).cast()).collect();
            // SAFETY: a live kernel; as many values and types as said, which outlive the call. What the
            // kernel does with them is the caller's word.
            unsafe {
                (core.table.launch)(kernel as *mut _, &config, pointers.as_ptr(), types.as_ptr(), types.len())
            }
        })
    }

    /// How many blocks of this shape can be resident at once: the largest grid that a launch takes.
    #[pyo3(signature = (block, shared_bytes=0))]
    fn max_blocks(&self, py: Python<'_>, block: &Bound<'_, PyAny>, shared_bytes: usize) -> PyResult<u64> {
        let (block, kernel, mut most) = (extents(block, "block")?, self.raw, 0);
        let out = &mut most;
        self.core.call(py, move |table, _| {
            // SAFETY: a live kernel, three extents and a place for the answer.
            unsafe { (table.kernel_max_blocks)(kernel as *mut _, block.as_ptr(), shared_bytes, out) }
        })?;
        Ok(most)
    }

    fn __repr__(&self) -> String {
        format!("rushmem.Kernel({}, {})", self.name, self.core.who())
    }
}
