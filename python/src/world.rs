//! Worlds: allocation, order, synchronisation, and leaving a job. `join.rs` makes them.

use std::sync::Arc;

use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushmem_abi::c::*;

use crate::array::{dense, elements, shape_of, Array};
use crate::core::Core;
use crate::dtype::Dtype;
use crate::error::{self, Failure};
use crate::kernel::Module;
use crate::ledger::{self, Allocation};
use crate::nbi::Context;
use crate::operand::{For, Operand};
use crate::stream::{self, Stream};
use crate::table::text;
use crate::team::Team;

/// One PE's membership of one job.
#[pyclass(frozen, weakref, module = "rushmem", name = "World")]
pub(crate) struct World {
    core: Arc<Core>,
}

impl World {
    /// A world that was just joined.
    pub(crate) fn new(core: Arc<Core>) -> World {
        World { core }
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    fn array(&self, memory: Arc<Allocation>, shape: Box<[usize]>, dtype: Dtype) -> Array {
        let (at, strides) = (memory.at, dense(&shape));
        Array { memory, at, shape, strides, dtype, peer: None }
    }

    /// A call that may be one of a stream's.
    fn order(
        &self,
        py: Python<'_>,
        on: Option<&Bound<'_, PyAny>>,
        host: unsafe extern "C" fn(*mut rushmem_world_t) -> i32,
        on_stream: unsafe extern "C" fn(*mut rushmem_world_t, *mut std::ffi::c_void) -> i32,
    ) -> PyResult<()> {
        match stream::handle(&self.core, on)? {
            // SAFETY: a live handle.
            None => self.core.call(py, |_, w| unsafe { host(w) }),
            // SAFETY: a live handle; what is no stream of it is refused.
            Some(handle) => self.core.call(py, |_, w| unsafe { on_stream(w, handle as *mut _) }),
        }
    }
}

#[pymethods]
impl World {
    /// This PE's number.
    #[getter]
    fn my_pe(&self) -> i32 {
        self.core.view.my_pe
    }

    #[getter]
    fn n_pes(&self) -> i32 {
        self.core.view.n_pes
    }

    /// `cpu`, or `cuda:0`: in its memory this PE's heap is. `torch.device` takes it.
    #[getter]
    fn device(&self) -> String {
        if self.core.is_gpu() {
            format!("cuda:{}", self.core.view.gpu)
        } else {
            "cpu".into()
        }
    }

    /// The device for people.
    #[getter]
    fn device_name(&self) -> String {
        self.core.device_name()
    }

    /// Whether the world has been finalised, aborted or left.
    #[getter]
    fn has_ended(&self) -> bool {
        self.core.gate.has_ended()
    }

    /// Zeroed symmetric memory: the same array on every PE. Collective, with the same arguments on all. First
    /// gives back what no PE uses any more (`collect`).
    #[pyo3(signature = (shape, dtype="float32".into()))]
    fn empty(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: Text<'_>) -> PyResult<Array> {
        let (shape, dtype) = (shape_of(shape)?, dtype.dtype(py)?);
        let bytes = elements(py, &shape, dtype.bytes())? * dtype.bytes();
        let core = &self.core;
        stream::release(core);
        let memory = core.run(py, || {
            ledger::collect(core)?;
            ledger::allocate(core, bytes)
        })?;
        Ok(self.array(memory, shape, dtype))
    }

    /// The array of this shape and type at an address in symmetric memory: a torch tensor's `data_ptr()`,
    /// say. Local.
    fn array_at(
        &self,
        py: Python<'_>,
        address: usize,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
    ) -> PyResult<Array> {
        let (shape, dtype) = (shape_of(shape)?, Dtype::of(dtype)?);
        let bytes = elements(py, &shape, dtype.bytes())? * dtype.bytes();
        let core = &self.core;
        let found = match bytes {
            // No bytes lie anywhere: of an empty part of a tensor torch gives no address.
            0 => core.run(py, || Ok(Some(ledger::unlisted(core, address, 0, None))))?,
            _ => core.run(py, || Ok(ledger::find(core, address)))?,
        };
        let Some(memory) = found.filter(|memory| bytes <= memory.at + memory.bytes - address) else {
            let text = format!("{bytes} bytes at {address:#x} lie in no symmetric array of this world");
            return Err(error::of(py, RUSHMEM_ERR_BAD_ADDRESS, &text));
        };
        let strides = dense(&shape);
        Ok(Array { memory, at: address, shape, strides, dtype, peer: None })
    }

    /// `n` signals, zero: an array of uint64. Collective.
    #[pyo3(signature = (n=1))]
    fn signals(&self, py: Python<'_>, n: usize) -> PyResult<Array> {
        self.empty(py, n.into_pyobject(py)?.as_any(), "uint64".into())
    }

    /// Frees the arrays that no PE uses any more; how many. Collective. `empty` does it, too.
    fn collect(&self, py: Python<'_>) -> PyResult<usize> {
        stream::release(&self.core);
        self.core.run(py, || ledger::collect(&self.core))
    }

    /// Makes memory of one's own symmetric, in place: a torch tensor's or a numpy array's, as far as the
    /// device can (whole pages of the host, allocations of the GPU). The array is its symmetric form, of
    /// bytes; `view_as` and `reshape` give it a type and a shape. Collective. The object is held until
    /// `unregister` or the world's end.
    fn register(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        let operand = Operand::of(object, "what is registered", For::Writing)?;
        operand.check_dense(py, "what is registered")?;
        let (at, bytes, core) = (operand.at, operand.bytes(), &self.core);
        let alias = core.run(py, || {
            let mut alias = std::ptr::null_mut();
            // SAFETY: a live handle, memory of the object's, which is held, and a place for the answer.
            Failure::check(core.table, unsafe {
                (core.table.register)(core.raw(), at as *mut _, bytes, &mut alias)
            })?;
            Ok(alias as usize)
        })?;
        let holder = Arc::new(operand);
        core.keep.hold_registered(alias, Box::new(Arc::clone(&holder)));
        let own = ledger::Own { at, _holder: holder };
        let memory = ledger::unlisted(core, alias, bytes, Some(own));
        Ok(self.array(memory, [bytes].into(), Dtype::of_name("uint8")))
    }

    /// Makes registered memory private again; it keeps its contents. Collective.
    fn unregister(&self, py: Python<'_>, array: &Bound<'_, Array>) -> PyResult<()> {
        let at = array.get().memory.at;
        // SAFETY: a live handle; what is not registered is refused.
        self.core.call(py, |table, w| unsafe { (table.unregister)(w, at as *mut _) })?;
        array.get().memory.is_freed.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(self.core.keep.release_registered(at));
        Ok(())
    }

    /// The team of all PEs.
    #[getter]
    fn team(&self, py: Python<'_>) -> PyResult<Team> {
        Team::world(py, &self.core)
    }

    /// The team of the PEs that map each other's memory. Collective.
    #[pyo3(signature = (*, slot_sets=1))]
    fn node_team(&self, py: Python<'_>, slot_sets: u32) -> PyResult<Option<Team>> {
        Team::node(py, &self.core, slot_sets)
    }

    /// A new stream.
    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        Stream::create(py, &self.core)
    }

    /// The stream of kernels that were given none.
    #[getter]
    fn default_stream(&self, py: Python<'_>) -> PyResult<Stream> {
        Stream::default(py, &self.core)
    }

    /// Waits for all work on the world's streams, or on `stream`; raises its first failure.
    #[pyo3(signature = (stream=None))]
    fn synchronize(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        match stream::handle(&self.core, stream)? {
            Some(handle) => stream::synchronize(py, &self.core, handle)?,
            // SAFETY: a live handle.
            None => self.core.call(py, |table, w| unsafe { (table.synchronize)(w) })?,
        }
        stream::release(&self.core);
        Ok(())
    }

    /// Compiles a CUDA C++ source for the world's device. `options` are further arguments of
    /// the compiler: `--nvrtc=ARGUMENT` is one for GPUs alone, `--cxx=ARGUMENT` for the CPU device.
    #[pyo3(signature = (source, *, name="kernel.cu", options=vec![]))]
    fn load(&self, py: Python<'_>, source: &str, name: &str, options: Vec<String>) -> PyResult<Module> {
        Module::load(py, &self.core, source, name, options)
    }

    /// Loads machine code for GPUs: a cubin, a fatbin or PTX.
    #[pyo3(signature = (code, *, name="module"))]
    fn load_binary(&self, py: Python<'_>, code: &[u8], name: &str) -> PyResult<Module> {
        Module::load_binary(py, &self.core, code, name)
    }

    /// Tells kernels that another compiler has loaded (a CUmodule, as a number) who their PE is; whether they
    /// call rushmem at all. Before the first of their launches. `rushmem.triton.attach` does it for Triton's
    /// kernels.
    fn initialise_module(&self, py: Python<'_>, cu_module: usize) -> PyResult<bool> {
        let mut found = 0_i32;
        let out = &mut found;
        self.core.call(py, move |table, w| {
            // SAFETY: a live handle and a place for the answer; that the number is a module's is the caller's
            // word.
            unsafe { (table.others.kernel_state_tell)(w, cu_module as *mut _, out) }
        })?;
        Ok(found != 0)
    }

    /// Orders: what this PE put, updated and signalled before is seen before what comes after.
    #[pyo3(signature = (*, stream=None))]
    fn fence(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let table = self.core.table;
        self.order(py, stream, table.fence, table.fence_on_stream)
    }

    /// Completes: what this PE has put has arrived.
    #[pyo3(signature = (*, stream=None))]
    fn quiet(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (core, table) = (&self.core, self.core.table);
        if stream.is_none() {
            // SAFETY: a live handle.
            return core.complete(py, None, || unsafe { (table.quiet)(core.raw()) });
        }
        self.order(py, stream, table.quiet, table.quiet_on_stream)
    }

    /// Returns once every PE has called it. Collective.
    #[pyo3(signature = (*, stream=None))]
    fn sync_all(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let table = self.core.table;
        self.order(py, stream, table.sync_all, table.sync_all_on_stream)
    }

    /// `quiet`, then `sync_all`: what any PE has put is there. Collective.
    #[pyo3(signature = (*, stream=None))]
    fn barrier_all(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (core, table) = (&self.core, self.core.table);
        if stream.is_none() {
            // SAFETY: a live handle.
            return core.complete(py, None, || unsafe { (table.barrier_all)(core.raw()) });
        }
        self.order(py, stream, table.barrier_all, table.barrier_all_on_stream)
    }

    /// A communication context: `with context:` gives this thread's operations an order and a completion of
    /// their own. Local.
    fn context(&self, py: Python<'_>) -> PyResult<Context> {
        Context::create(py, &self.core)
    }

    /// Raises `PeerDead`, which names the PE, where one has died or left.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: a live handle.
        self.core.call(py, |table, w| unsafe { (table.check)(w) })
    }

    /// The symmetric heap in numbers: bytes `used`, `committed` and `max`, `allocations`, and those that this
    /// PE does not use any more (`unused`).
    fn heap_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let core = &self.core;
        let (info, unused) = core.run(py, || {
            let mut info = rushmem_heap_info_t::default();
            // SAFETY: a live handle, and a place for the answer.
            Failure::check(core.table, unsafe { (core.table.heap_info)(core.raw(), &mut info) })?;
            Ok((info, core.keep.allocations.unused()))
        })?;
        let about = PyDict::new(py);
        about.set_item("used", info.used)?;
        about.set_item("committed", info.committed)?;
        about.set_item("max", info.max)?;
        about.set_item("allocations", info.allocations)?;
        about.set_item("unused", unused)?;
        Ok(about)
    }

    /// Where PE `pe` runs and how it is reached: `pid`, `host`, `transport`, `reason`.
    fn peer_info<'py>(&self, py: Python<'py>, pe: i32) -> PyResult<Bound<'py, PyDict>> {
        let core = &self.core;
        let (pid, texts) = core.run(py, || {
            let mut peer = std::mem::MaybeUninit::<rushmem_peer_t>::uninit();
            // SAFETY: a live handle, and a place for the answer.
            Failure::check(core.table, unsafe { (core.table.peer)(core.raw(), pe, peer.as_mut_ptr()) })?;
            // SAFETY: filled by the successful call.
            let peer = unsafe { peer.assume_init() };
            let texts = [peer.host, peer.transport, peer.reason];
            // SAFETY: strings of the world, which lives through this call.
            Ok((peer.pid, texts.map(|one| unsafe { text(one) })))
        })?;
        let about = PyDict::new(py);
        about.set_item("pid", pid)?;
        for (name, text) in ["host", "transport", "reason"].into_iter().zip(texts) {
            about.set_item(name, text)?;
        }
        Ok(about)
    }

    /// Leaves the job in good order. Collective; waits for the world's streams first. Arrays that numpy or
    /// torch still see keep their memory; operations on them are refused. A second call does nothing.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        self.core.finalize(py)
    }

    /// Leaves the job at once: the other PEs' calls end with an error that names this PE and `why`. Local.
    fn abort(&self, py: Python<'_>, why: &str) {
        self.core.abort(py, why);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Finalises; after an exception it aborts, so that the other PEs learn at once which PE it was and why.
    #[pyo3(signature = (kind, exception, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if kind.is_none() {
            self.core.finalize(py)?;
        } else if is_good_exit(exception) {
            self.core.leave(py, "its program ended by sys.exit()");
        } else {
            self.core.abort(py, &raised(kind, exception));
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let ended = if self.core.gate.has_ended() { ", ended" } else { "" };
        format!("rushmem.World({}{ended})", self.core.who())
    }
}

/// `sys.exit()` and `sys.exit(0)`: the end of a program, and no failure.
fn is_good_exit(exception: &Bound<'_, PyAny>) -> bool {
    let code = exception.is_instance_of::<PySystemExit>().then(|| exception.getattr("code"));
    code.and_then(Result::ok).is_some_and(|code| code.is_none() || code.eq(0).unwrap_or(false))
}

/// An exception as the other PEs read it.
pub(crate) fn raised(kind: &Bound<'_, PyAny>, exception: &Bound<'_, PyAny>) -> String {
    let name = kind.getattr("__name__").and_then(|name| name.extract::<String>());
    let text = exception.str().map(|text| text.to_string()).unwrap_or_default();
    let colon = if text.is_empty() { "" } else { ": " };
    format!("its program raised {}{colon}{text}", name.unwrap_or_else(|_| "an exception".into()))
}

/// A type of elements: a default's name, or what was given.
pub(crate) enum Text<'py> {
    Name(&'static str),
    Given(Bound<'py, PyAny>),
}

impl From<&'static str> for Text<'_> {
    fn from(name: &'static str) -> Self {
        Text::Name(name)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'py> {
    type Error = PyErr;
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Text::Given(object.to_owned()))
    }
}

impl Text<'_> {
    fn dtype(&self, _py: Python<'_>) -> PyResult<Dtype> {
        match self {
            Text::Name(name) => Ok(Dtype::of_name(name)),
            Text::Given(given) => Dtype::of(given),
        }
    }
}
