//! What a queue pair of the software card does for the peer's: its WRITEs, its READs, some of which it
//! answers late, and its atomics.

use std::time::Instant;

use super::super::memory::{Access, WordChange};
use super::super::packets::{Frame, PacketKind, LAST, PART};
use super::super::requests::{syndrome, Mistake};
use super::{Pair, Rest};

impl Pair {
    pub(super) fn answer_late(&mut self, rest: &mut Rest, now: Instant, all: bool) -> bool {
        let mut worked = false;
        while self.late.front().is_some_and(|(due, _)| all || now >= *due) {
            if let Some((_, frame)) = self.late.pop_front() {
                self.carry_out(rest, &frame);
                worked = true;
            }
        }
        worked
    }

    fn reply(&mut self, to: &Frame, kind: PacketKind, more: u8, data: Vec<u8>) {
        if let Some(link) = &mut self.link {
            link.send(&Frame { kind, more, key: 0, index: to.index, address: 0, a: 0, b: 0, data });
        }
    }

    pub(super) fn carry_out(&mut self, rest: &mut Rest, frame: &Frame) {
        let done = match frame.kind {
            PacketKind::Write => self.carry_out_write(rest, frame),
            PacketKind::Read => self.carry_out_read(rest, frame),
            PacketKind::FetchAdd => self.carry_out_atomic(rest, frame, WordChange::Add(frame.a)),
            PacketKind::CompareSwap => {
                let change = WordChange::Swap { value: frame.a, compare: frame.b };
                self.carry_out_atomic(rest, frame, change)
            }
            PacketKind::Done | PacketKind::Refused | PacketKind::Data => Ok(()),
        };
        if let Err(Mistake { syndrome, why }) = done {
            self.tell(rest, &format!("the peer's request {}: remote memory: {why}", frame.index));
            self.reply(frame, PacketKind::Refused, syndrome, Vec::new());
        }
    }

    /// The acknowledgement says that this card has it.
    fn carry_out_write(&mut self, rest: &mut Rest, frame: &Frame) -> Result<(), Mistake> {
        let place = rest
            .regions
            .find(frame.key, frame.address, frame.data.len(), Access::RemoteWrite)
            .map_err(access)?;
        rest.arrivals.add(place, frame.data.clone(), &mut rest.chance);
        rest.arrivals.step(&rest.regions, Instant::now()).map_err(|e| access(e.message))?;
        if frame.more == LAST {
            self.reply(frame, PacketKind::Done, 0, Vec::new());
        }
        Ok(())
    }

    fn carry_out_read(&mut self, rest: &mut Rest, frame: &Frame) -> Result<(), Mistake> {
        rest.arrivals.finish(&rest.regions).map_err(|e| access(e.message))?;
        let bytes = frame.a as usize;
        let place = rest.regions.find(frame.key, frame.address, bytes, Access::RemoteRead).map_err(access)?;
        let mut at = 0;
        while at < bytes {
            let mut data = vec![0; PART.min(bytes - at)];
            rest.regions.read(place.offset(at), &mut data).map_err(|e| access(e.message))?;
            at += data.len();
            self.reply(frame, PacketKind::Data, 0, data);
        }
        Ok(())
    }

    /// By the InfiniBand specification an address that is not aligned is an invalid request, whatever its
    /// key.
    fn carry_out_atomic(
        &mut self,
        rest: &mut Rest,
        frame: &Frame,
        change: WordChange,
    ) -> Result<(), Mistake> {
        if frame.address % 8 != 0 {
            let why = format!("an atomic on {:#x}, which is no multiple of 8", frame.address);
            return Err(Mistake { syndrome: syndrome::REMOTE_INVALID, why });
        }
        let place =
            rest.regions.find(frame.key, frame.address, size_of::<u64>(), Access::Update).map_err(access)?;
        rest.arrivals.finish(&rest.regions).map_err(|e| access(e.message))?;
        let late = rest.chance.one_in(8);
        let old = rest.regions.update(place, change, late).map_err(|e| access(e.message))?;
        self.reply(frame, PacketKind::Data, 0, old.to_le_bytes().to_vec());
        Ok(())
    }
}

/// Memory that may not be accessed so.
fn access(why: String) -> Mistake {
    Mistake { syndrome: syndrome::REMOTE_ACCESS, why }
}
