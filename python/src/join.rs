//! Joining a job.

use std::ffi::CString;
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rushmem_abi::c::*;

use crate::core::Core;
use crate::error::{self, Failure};
use crate::library::table;
use crate::table::Table;
use crate::world::World;

/// What `rushmem_init` is to do.
struct Attr {
    uid: Option<rushmem_uid_t>,
    address: Option<CString>,
    rank: i32,
    n_pes: i32,
    device: (i32, i32),
    heap_max: u64,
    init_timeout_ms: u64,
}

impl Attr {
    /// The world's handle. Takes until all PEs have come.
    fn init(&self, table: &Table) -> Result<usize, Failure> {
        let attr = rushmem_init_attr_t {
            size: size_of::<rushmem_init_attr_t>() as u32,
            flags: 0,
            uid: self.uid.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            address: self.address.as_ref().map_or(std::ptr::null(), |address| address.as_ptr()),
            mpi_comm: std::ptr::null(),
            rank: self.rank,
            n_pes: self.n_pes,
            device: self.device.0,
            gpu: self.device.1,
            heap_max: self.heap_max,
            init_timeout_ms: self.init_timeout_ms,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the attributes and what they point at outlive the call; a place for the handle.
        Failure::check(table, unsafe { (table.init)(&attr, &mut raw) })?;
        Ok(raw as usize)
    }
}

/// `"cpu"`, `"cuda"`, `"cuda:1"`, a `torch.device`: kind and 1 + number.
fn device_of(device: Option<&Bound<'_, PyAny>>) -> PyResult<(i32, i32)> {
    let Some(device) = device else { return Ok((0, 0)) };
    let name = device.str()?.to_string();
    let number = name.strip_prefix("cuda:").and_then(|number| number.parse::<i32>().ok());
    match (name.as_str(), number) {
        ("auto", _) => Ok((RUSHMEM_DEVICE_AUTO, 0)),
        ("cpu", _) => Ok((RUSHMEM_DEVICE_CPU, 0)),
        ("cuda", _) => Ok((RUSHMEM_DEVICE_CUDA, 0)),
        (_, Some(number)) if number >= 0 => Ok((RUSHMEM_DEVICE_CUDA, number + 1)),
        _ => {
            Err(PyValueError::new_err(format!("{name:?} is no device: \"cpu\", \"cuda\" and \"cuda:0\" are")))
        }
    }
}

/// Joins a job as one of its PEs, by what the environment says (rushmem-run, torchrun, mpirun, Slurm; none of
/// them: a job of one PE), by a unique ID of `rushmem.uid()`, or at an address where rank 0 listens.
/// Collective. `timeout` in seconds bounds it, Ctrl-C ends it.
#[pyfunction]
#[pyo3(signature = (*, uid=None, address=None, rank=None, n_pes=None, device=None, heap_max=None, timeout=None))]
#[allow(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn init(
    py: Python<'_>,
    uid: Option<&[u8]>,
    address: Option<&str>,
    rank: Option<i32>,
    n_pes: Option<i32>,
    device: Option<&Bound<'_, PyAny>>,
    heap_max: Option<u64>,
    timeout: Option<f64>,
) -> PyResult<World> {
    if (uid.is_some() || address.is_some()) && (rank.is_none() || n_pes.is_none()) {
        return Err(PyTypeError::new_err("init by uid or address needs rank and n_pes, too"));
    }
    if uid.is_none() && address.is_none() && (rank.is_some() || n_pes.is_some()) {
        return Err(PyTypeError::new_err(
            "init with rank and n_pes needs a uid or an address, by which the PEs meet",
        ));
    }
    let uid = match uid.map(<[u8; RUSHMEM_UID_BYTES]>::try_from) {
        None => None,
        Some(Ok(bytes)) => Some(rushmem_uid_t { bytes }),
        Some(Err(_)) => {
            return Err(PyValueError::new_err(format!(
                "a unique ID has {RUSHMEM_UID_BYTES} bytes: rushmem.uid() makes one"
            )))
        }
    };
    let timeout = match timeout {
        None => 0,
        Some(seconds) if seconds > 0.0 && seconds < 1e9 => ((seconds * 1e3) as u64).max(1),
        Some(seconds) => {
            return Err(PyValueError::new_err(format!("timeout={seconds}: seconds, more than 0")))
        }
    };
    let attr = Attr {
        uid,
        address: address.map(CString::new).transpose()?,
        rank: rank.unwrap_or(0),
        n_pes: n_pes.unwrap_or(0),
        device: device_of(device)?,
        heap_max: heap_max.unwrap_or(0),
        init_timeout_ms: timeout,
    };
    let table = table(py)?;
    let core = start(py, table, attr)?.map_err(|failure| failure.raise(py))?;
    Ok(World::new(core))
}

/// Joins on a thread of its own, so that a signal ends the wait for the others. A PE that joins after that
/// leaves at once.
fn start(py: Python<'_>, table: &'static Table, attr: Attr) -> PyResult<Result<Arc<Core>, Failure>> {
    let (done, result) = mpsc::sync_channel::<Result<usize, Failure>>(0);
    let join = move || {
        if let Err(mpsc::SendError(Ok(raw))) = done.send(attr.init(table)) {
            let why = c"it was interrupted while it joined";
            // SAFETY: a live handle that nobody else has; a constant text.
            unsafe { (table.abort)(raw as *mut _, why.as_ptr()) };
        }
    };
    let thread = std::thread::Builder::new().name("rushmem-init".into());
    thread
        .spawn(join)
        .map_err(|e| error::of(py, RUSHMEM_ERR_IO, &format!("starting a thread to join: {e}")))?;
    let result = std::sync::Mutex::new(result);
    loop {
        let came = py.detach(|| {
            let result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            result.recv_timeout(Duration::from_millis(20))
        });
        match came {
            Ok(Ok(raw)) => return Ok(Core::new(table, raw)),
            Ok(Err(failure)) => return Ok(Err(failure)),
            Err(mpsc::RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Ok(Err(Failure(
                    RUSHMEM_ERR_INTERNAL,
                    "the thread that joins ended without a word".into(),
                )))
            }
        }
    }
}

/// Makes a unique ID, to be carried to every PE, each of which passes it to `init` with its rank.
#[pyfunction]
pub(crate) fn uid(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    let table = table(py)?;
    let made = py.detach(|| {
        let mut uid = rushmem_uid_t { bytes: [0; RUSHMEM_UID_BYTES] };
        // SAFETY: a place for the answer.
        Failure::check(table, unsafe { (table.uid_create)(&mut uid) }).map(|()| uid)
    });
    Ok(PyBytes::new(py, &made.map_err(|failure| failure.raise(py))?.bytes))
}
