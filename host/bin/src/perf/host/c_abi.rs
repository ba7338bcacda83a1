//! The same operations as a C program calls them: through the functions of `rushmem.h`, which look the
//! address up among the live allocations before they touch anything. Beside the Rust API's inline path, on
//! the same memory.

use std::ffi::c_void;

use libloading::os::unix::{Library, Symbol};
use rushmem::Pe;

use super::barrier::check;
use super::pair::{compared, verify, Pair, Unit};
use crate::args::HostArgs;
use crate::job::{Failure, Result};
use crate::report::Row;
use crate::stats::{calibrate, interleave};

type Put = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, i32) -> i32;
type Atomic = unsafe extern "C" fn(*mut c_void, i32, i32, *mut c_void, u64, u64, i32, *mut u64) -> i32;
type Barrier = unsafe extern "C" fn(*mut c_void) -> i32;

// As in rushmem.h.
const FETCH_ADD: i32 = 5;
const UINT64: i32 = 3;

struct Functions {
    put: Symbol<Put>,
    atomic: Symbol<Atomic>,
    barrier_all: Symbol<Barrier>,
}

impl Functions {
    /// Of the library that the Rust API has loaded.
    fn load() -> Result<Functions> {
        let (_, path) = rushmem::runtime()?;
        // SAFETY: already loaded and initialised; the types are those of `rushmem.h`. Symbols keep no library
        // open, but the Rust API does, for ever.
        unsafe {
            let library = Library::new(path)?;
            Ok(Functions {
                put: library.get(b"rushmem_put\0")?,
                atomic: library.get(b"rushmem_atomic\0")?,
                barrier_all: library.get(b"rushmem_barrier_all\0")?,
            })
        }
    }
}

pub(super) fn measure(pair: &Pair, args: &HostArgs, rows: &mut Vec<Row>) -> Result<()> {
    let functions = Functions::load()?;
    let memory = pair.world.alloc::<u64>(2)?;
    let (world, other) = (pair.world.as_raw().cast(), pair.other());
    let there = number(other);
    let (put_to, add_to) = (memory.as_ptr(), memory.as_ptr().wrapping_add(1));
    let samples = args.samples as usize;
    if pair.measures() {
        let mut put = |n| {
            for i in 0..n {
                let source: *const u64 = &i;
                // SAFETY: a live world, a word of a live allocation, a word to read.
                ok(unsafe { (functions.put)(world, put_to.cast(), source.cast(), 8, there) })?;
            }
            Ok(())
        };
        let api_put = |n| {
            for i in 0..n {
                memory.put(&[i], other)?;
            }
            Ok(())
        };
        let n = calibrate(args.batch_ns(), &mut put)?;
        let puts = interleave(samples, n, put, api_put)?;
        pair.spoil(&memory, other)?;
        verify("rushmem_put", memory.g(0, other)? == n - 1)?;

        let word = memory.at(1, other);
        let mut old = 0;
        let mut fetch_add = |n| {
            for _ in 0..n {
                // SAFETY: a live world, a word of its heap, and a place for the answer.
                ok(unsafe {
                    (functions.atomic)(world, FETCH_ADD, UINT64, add_to.cast(), 1, 0, there, &mut old)
                })?;
            }
            Ok(())
        };
        let api_add = |n| {
            for _ in 0..n {
                word.fetch_add(1)?;
            }
            Ok(())
        };
        let n = calibrate(args.batch_ns(), &mut fetch_add)?;
        word.set(0)?;
        let adds = interleave(samples, n, fetch_add, api_add)?;
        verify("rushmem_atomic", word.fetch()? == 2 * n * (samples as u64 + 1))?;
        for (name, taken) in [("rushmem_put", puts), ("rushmem_atomic", adds)] {
            rows.push(compared(name, Some(8), Unit::Ns, taken, "the Rust API, inline")?);
        }
    }
    // SAFETY: a live world; both PEs are here.
    let barrier = |n| (0..n).try_for_each(|_| ok(unsafe { (functions.barrier_all)(world) }));
    let api_barrier = |n| {
        for _ in 0..n {
            pair.world.barrier_all()?;
        }
        Ok(())
    };
    let barriers = interleave(samples, u64::from(args.batch), barrier, api_barrier)?;
    // SAFETY: a live world; both PEs are here.
    check(pair, "rushmem_barrier_all", &|| ok(unsafe { (functions.barrier_all)(world) }))?;
    if pair.measures() {
        rows.push(compared("rushmem_barrier_all", None, Unit::Ns, barriers, "the Rust API")?);
    }
    Ok(memory.free()?)
}

fn number(pe: Pe) -> i32 {
    pe.number() as i32
}

#[inline(always)]
fn ok(code: i32) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(Failure::new(format!("a call of the C ABI gave {code}")))
    }
}
