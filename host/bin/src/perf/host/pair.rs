//! Two PEs: PE 0 measures, PE 1 holds the memory that PE 0 works on, and takes part where both must act.

use rushmem::{Pe, SymRef, Symmetric, World};

use crate::job::{self, Failure, Result};
use crate::report::Row;
use crate::stats::Summary;

/// A world of two PEs, each on a core of its own where there are two.
pub(super) struct Pair {
    pub(super) world: World,
    /// Data is made wrong before it is looked at.
    corrupt: bool,
}

impl Pair {
    /// Joins the job that this process was started in. Collective.
    pub(super) fn join(corrupt: bool) -> Result<Pair> {
        let world = World::init()?;
        if world.n_pes() != 2 {
            return Err(Failure::new(format!(
                "rushmem-perf measures with 2 PEs; this job has {}",
                world.n_pes()
            )));
        }
        job::pin(world.my_pe().index());
        Ok(Pair { world, corrupt })
    }

    /// Whether this PE is the one that holds the clock.
    pub(super) fn measures(&self) -> bool {
        self.world.my_pe().number() == 0
    }

    /// The other PE.
    pub(super) fn other(&self) -> Pe {
        self.world.right()
    }

    /// `pe`'s copy of `memory` as plain memory: what the references work on.
    pub(super) fn mapped<T: Symmetric>(&self, memory: &SymRef<'_, T>, pe: Pe) -> Result<*mut T> {
        memory.ptr_at(pe).ok_or_else(|| {
            Failure::new(format!("the heap of {pe} is not mapped here: nothing to compare with"))
        })
    }
}

impl Pair {
    /// For the test that wrong data is an error: changes `pe`'s copy, where that was asked for.
    pub(super) fn spoil<T: Symmetric>(&self, memory: &SymRef<'_, T>, pe: Pe) -> Result<()> {
        if self.corrupt {
            let byte = self.mapped(memory, pe)?.cast::<u8>();
            // SAFETY: the first byte of a live allocation, which nobody else touches between the timed loop
            // and the look at it.
            unsafe { byte.write_volatile(byte.read_volatile() ^ 0x10) };
        }
        Ok(())
    }
}

/// Elements that differ from each other, from zero and from run to run of the loop.
pub(super) fn pattern(n: usize, salt: u64) -> impl Iterator<Item = u64> {
    (0..n as u64).map(move |i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
}

/// Wrong bytes are an error, not a figure.
pub(super) fn verify(what: &str, right: bool) -> Result<()> {
    if right {
        Ok(())
    } else {
        Err(Failure::new(format!("{what} moved wrong data: its figures mean nothing")))
    }
}

/// Samples of ours and of the reference, in nanoseconds.
pub(super) type Samples = (Vec<f64>, Vec<f64>);

/// What a row is shown in.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Ns,
    Us,
}

/// A row out of samples that were taken turn by turn.
pub(super) fn compared(
    measure: &str,
    bytes: Option<u64>,
    unit: Unit,
    (ours, reference): Samples,
    name: &str,
) -> Result<Row> {
    let (unit, scale) = match unit {
        Unit::Ns => ("ns", 1.0),
        Unit::Us => ("us", 1e-3),
    };
    let summary = |samples: Vec<f64>| {
        let scaled = samples.into_iter().map(|ns| ns * scale).collect();
        Summary::of(scaled).ok_or_else(|| Failure::new(format!("{measure}: no samples")))
    };
    Ok(Row::new(measure, bytes, 2, unit, summary(ours)?).against(name, summary(reference)?))
}
