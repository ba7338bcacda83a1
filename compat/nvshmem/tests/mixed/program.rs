//! A Rust program in a job of rushmem's, and a C library that calls nvshmem.h's functions, in one process:
//! both see one world. Argument: the library.

use std::error::Error;

use libloading::{Library, Symbol};
use rushmem::World;

/// library.c: `put`, and what Rust has left for it to look at.
type Shift = unsafe extern "C" fn(*mut u64, *const u64, u64) -> i32;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: mixed LIBRARY")?;
    let world = World::init()?;
    let (me, left) = (u64::from(world.my_pe().number()), u64::from(world.left().number()));
    let (by_rust, by_c) = (world.alloc::<u64>(1)?, world.alloc::<u64>(1)?);
    // SAFETY: a library of this test, which does nothing as it is loaded.
    let library = unsafe { Library::new(path) }?;
    // SAFETY: the function's type is that of library.c.
    let shift: Symbol<Shift> = unsafe { library.get(b"shift\0") }?;
    for turn in 1..=3 {
        by_rust.put(&[turn * 1000 + me], world.right())?;
        world.barrier_all()?;
        // SAFETY: both are symmetric words, which nobody else looks at before the next barrier.
        let wrong = unsafe { shift(by_c.as_ptr(), by_rust.as_ptr(), turn) };
        let got = by_c.to_vec()?[0];
        if wrong != 0 || got != turn * 1_000_000 + left {
            return Err(format!("turn {turn}: line {wrong} of the library, {got}").into());
        }
        world.barrier_all()?;
    }
    println!("PE {me} of {}: all well", world.n_pes());
    world.finalize()?;
    Ok(())
}
