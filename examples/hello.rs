//! Who is there: every PE says where it runs, who its neighbours are, and how and why it reaches them that
//! way.
//!
//! `rushmem-run -n 4 -- hello`; with `RUSHMEM_LOG=info` the runtime says how it found the others.

mod common;
#[path = "common/device.rs"]
mod device;

use std::process::ExitCode;

use common::Outcome;
use rushmem::World;

fn main() -> ExitCode {
    common::exit("hello", run())
}

fn run() -> Outcome {
    let world = World::init()?;
    let me = world.peer(world.my_pe())?;
    let (left, right) = (world.peer(world.left())?, world.peer(world.right())?);
    // One call for one line: PEs share the terminal.
    println!(
        "hello from {} of {} on {} (pid {}), device: {}; left {} by {} ({}), right {} by {} ({})",
        me.pe,
        world.n_pes(),
        me.host,
        me.pid,
        device::name(&world),
        left.pe,
        left.transport,
        left.reason,
        right.pe,
        right.transport,
        right.reason,
    );
    world.finalize()?;
    Ok(())
}
