//! What the software card has acknowledged and not yet written to memory: posted writes on their way over
//! PCIe. They keep their order, of all queues together, and neither a read nor an atomic passes them.

use std::collections::VecDeque;
use std::time::Instant;

use super::chance::Chance;
use super::memory::{CardPlace, Regions};
use crate::error::Result;

struct PostedWrite {
    due: Instant,
    to: CardPlace,
    data: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Arrivals(VecDeque<PostedWrite>);

impl Arrivals {
    /// One in four takes its time, and so do those behind it; now and then so long that what goes by another
    /// way overtakes them.
    pub(super) fn add(&mut self, to: CardPlace, data: Vec<u8>, chance: &mut Chance) {
        let due = match chance.number() % 32 {
            0 => chance.due_late(),
            1..=8 => chance.due(),
            _ => Instant::now(),
        };
        self.0.push_back(PostedWrite { due, to, data });
    }

    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Writes what is due. True where there was something.
    pub(super) fn step(&mut self, regions: &Regions, now: Instant) -> Result<bool> {
        let mut worked = false;
        while self.0.front().is_some_and(|first| now >= first.due) {
            worked = true;
            self.write_first(regions)?;
        }
        Ok(worked)
    }

    /// Writes everything.
    pub(super) fn finish(&mut self, regions: &Regions) -> Result<()> {
        while self.any() {
            self.write_first(regions)?;
        }
        Ok(())
    }

    fn write_first(&mut self, regions: &Regions) -> Result<()> {
        self.0.pop_front().map_or(Ok(()), |first| regions.write(first.to, &first.data))
    }
}
