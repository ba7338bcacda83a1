//! The Python package `rushmem`: worlds, symmetric arrays, teams, streams and kernels as Python's objects.
//!
//! A client of the C ABI (`table.rs`, `library.rs`). `core.rs` says how a world ends, `keep.rs` what it keeps
//! for others, `ledger.rs` when memory is given back, `call.rs` how calls wait without the GIL. What needs no
//! Rust is in `rushmem/*.py`.

// `cargo test --lib` builds a program of every library, and no program has the functions of Python.
#![cfg(not(test))]

mod array;
mod atomic;
mod call;
mod collective;
mod core;
mod dtype;
mod error;
mod event;
mod export;
mod join;
mod keep;
mod kernel;
mod ledger;
mod library;
mod moe;
mod nbi;
mod operand;
mod pool;
mod rma;
mod stream;
mod table;
mod team;
mod wait;
mod world;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

/// This process is a child of fork of one that had imported this module in a world.
pub(crate) static FORKED: AtomicBool = AtomicBool::new(false);

#[pymodule]
fn _rushmem(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<world::World>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<team::Team>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<kernel::Module>()?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<nbi::Context>()?;
    module.add_class::<moe::AllToAll>()?;
    module.add_function(wrap_pyfunction!(join::init, module)?)?;
    module.add_function(wrap_pyfunction!(join::uid, module)?)?;
    module.add_function(wrap_pyfunction!(runtime, module)?)?;
    module.add_function(wrap_pyfunction!(_set_library, module)?)?;
    module.add_function(wrap_pyfunction!(_abort_all, module)?)?;
    module.add_function(wrap_pyfunction!(_leave_all, module)?)?;
    module.add_function(wrap_pyfunction!(_after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(pool::_pool_of, module)?)?;
    module.add_function(wrap_pyfunction!(rma::_time_puts, module)?)?;
    Ok(())
}

/// The loaded runtime: its version, and the path that it came from.
#[pyfunction]
fn runtime(py: Python<'_>) -> PyResult<(String, String)> {
    let table = library::table(py)?;
    // SAFETY: both take nothing, and return strings that live for ever.
    Ok(unsafe { (table::text((table.library_version)()), table::text((table.library_path)())) })
}

/// Where the package has its runtime.
#[pyfunction]
fn _set_library(path: PathBuf) {
    library::set_own(path);
}

/// An exception escapes: every world of this process ends, and the other PEs learn why.
#[pyfunction]
fn _abort_all(py: Python<'_>, kind: &Bound<'_, PyAny>, exception: &Bound<'_, PyAny>) {
    let why = world::raised(kind, exception);
    for core in core::live() {
        core.abort(py, &why);
    }
}

/// The interpreter ends: worlds that live are left. Whether another PE's death was the reason of an abort.
#[pyfunction]
fn _leave_all(py: Python<'_>) -> bool {
    for core in core::live() {
        core.leave(py, "its program ended without world.finalize()");
    }
    core::take_follows()
}

/// In a child of fork.
#[pyfunction]
fn _after_fork() {
    if core::any_joined() {
        FORKED.store(true, Ordering::Relaxed);
    }
}
