//! A memory pool of torch's on the symmetric heap: the two functions that `CUDAPluggableAllocator` calls.
//!
//! torch asks a pool for large pieces, and cuts tensors out of them. An allocation is collective here, so all
//! PEs make the same tensors in the same order, as PEs of one program do. Giving back is not: a piece that
//! torch returns is only dropped, and freed by a later collective call (`ledger.rs`).

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::core::Core;
use crate::error::Failure;
use crate::ledger::{self, Allocation};
use crate::world::World;

/// Whose heap the pool is on, and what torch has of it.
struct Pool {
    core: Option<Arc<Core>>,
    pieces: BTreeMap<usize, Arc<Allocation>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { core: None, pieces: BTreeMap::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pieces of the pool come from this world's heap from now on.
#[pyfunction]
pub(crate) fn _pool_of(world: &Bound<'_, World>) {
    let core = world.get().core();
    let before = pool().core.replace(core);
    drop(before);
}

fn allocate(core: &Arc<Core>, bytes: usize) -> Result<usize, Failure> {
    let Some(_inside) = core.gate.enter() else {
        return Err(Failure(rushmem_abi::c::RUSHMEM_ERR_BAD_HANDLE, "the pool's world has ended".into()));
    };
    ledger::collect(core)?;
    let memory = ledger::allocate(core, bytes)?;
    let at = memory.at;
    pool().pieces.insert(at, memory);
    Ok(at)
}

/// torch's `alloc_fn`: collective over the pool's world. Null after an error, which is printed.
///
/// # Safety
/// Takes numbers alone; what it returns is given back by `rushmem_torch_free`.
#[no_mangle]
pub(crate) unsafe extern "C" fn rushmem_torch_alloc(
    size: isize,
    _device: i32,
    _stream: *mut c_void,
) -> *mut c_void {
    let Some(core) = pool().core.clone() else {
        eprintln!("rushmem: no world has a pool: rushmem.torch.pool() makes one");
        return std::ptr::null_mut();
    };
    let bytes = size.max(0) as usize;
    // torch's thread may hold the GIL, which the other threads of this process want meanwhile.
    let made = Python::try_attach(|py| py.detach(|| allocate(&core, bytes)));
    match made.unwrap_or_else(|| allocate(&core, bytes)) {
        Ok(at) => at as *mut c_void,
        Err(Failure(_, text)) => {
            eprintln!("rushmem: {}: torch's pool asked for {bytes} bytes: {text}", core.who());
            std::ptr::null_mut()
        }
    }
}

/// torch's `free_fn`: local.
///
/// # Safety
/// `pointer` is one of `rushmem_torch_alloc`'s, given back once; streams other than `stream` do not use it.
#[no_mangle]
pub(crate) unsafe extern "C" fn rushmem_torch_free(
    pointer: *mut c_void,
    _size: isize,
    _device: i32,
    stream: *mut c_void,
) {
    let piece = pool().pieces.remove(&(pointer as usize));
    if let Some(piece) = &piece {
        // As for `stream=0` of operations: the legacy default stream.
        piece.uses.note((stream as usize).max(crate::stream::LEGACY));
    }
    drop(piece);
}
