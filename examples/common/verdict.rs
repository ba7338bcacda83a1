//! Whether the PEs found the right results.

use rushmem::World;

use crate::common::Outcome;

/// One verdict of all PEs: an error on each of them if any found something `wrong`, so that no PE reports
/// success while another has found an error. Collective.
pub(crate) fn all_agree(world: &World, wrong: Option<String>) -> Outcome {
    let reports = world.alloc::<u32>(world.n_pes() as usize)?;
    for pe in world.pes() {
        reports.p(world.my_pe().index(), u32::from(wrong.is_some()), pe)?;
    }
    world.barrier_all()?;
    let against = reports.to_vec()?.iter().position(|report| *report != 0);
    reports.free()?;
    match (wrong, against) {
        (Some(wrong), _) => Err(format!("{}: {wrong}", world.my_pe()).into()),
        (None, Some(pe)) => Err(format!("{}: PE {pe} found a wrong result", world.my_pe()).into()),
        (None, None) => Ok(()),
    }
}
