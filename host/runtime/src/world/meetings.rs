//! Teams without a parent: their members make them, and no other PE takes part.
//!
//! A split's rounds go over the parent's board. Here there is none, so the members meet on one that is
//! nobody's ([`MEETINGS`]), each PE in one meeting at a time. PEs of other meetings may be on it, too: each
//! looks at its own members' slots alone. A member may come from an earlier meeting with others, in which its
//! slot shows other rounds; therefore each meeting has a ticket, larger than those of its members' meetings
//! before, and counts its rounds from there. As a team's last round does, a meeting's says that the board is
//! free, so that members may go on to the next before all have seen it.

use std::sync::TryLockError;

use super::teams::{check_sets, digest};
use super::World;
use crate::error::{code, err, Result};
use crate::node::control::{Call, MEETINGS};
use crate::team::split::{self, Group};
use crate::team::Team;
use crate::topology::members::Members;

/// Rounds of a meeting, at most, as a power of two: some for each of a thousand attempts.
const ROUNDS: u32 = 16;
/// Tickets lie below this: numbers of rounds have 48 bits.
const TICKETS: u64 = 1 << (47 - ROUNDS);

impl World {
    /// Collective over the PEs `pes`, of which this is one, in that order: their team, with so many slot
    /// sets.
    pub(crate) fn meet(&self, pes: &[i32], ticket: u64, sets: u32) -> Result<Team> {
        self.health.check()?;
        let me = self.me as usize;
        let group = split::listed(self.n as usize, me, pes)?.ok_or_else(|| {
            err!(INVALID_ARGUMENT, "PE {me} is not in the list: members alone make this team")
        })?;
        let mut last = match self.meetings.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(err!(
                    BUSY,
                    "another thread of {} is making a team with PEs of its own choice; a PE makes one such team at a time",
                    self.health.who()
                ))
            }
        };
        if ticket <= *last || ticket >= TICKETS {
            return Err(err!(
                INVALID_ARGUMENT,
                "ticket {ticket}: expected one above {}, this PE's last, and below {TICKETS}",
                *last
            ));
        }
        *last = ticket;
        let rounds = self.rounds_of(MEETINGS, Members::new(pes), ticket << ROUNDS);
        let mut call = rounds.enter(&self.rounds)?;
        let what = "the making of a team by its members";
        let budget = self.books().budget() as u64;
        let length = pes.len() as u64 | u64::from(sets) << 32;
        call.round(Call::TeamMeet, [digest(pes), length, 0, budget])?;
        let alike = check_sets(&call, what).and_then(|()| {
            call.agree_by(&format!("the list of {what}"), |w| format!("one of digest {:x}", w[0]))
        });
        // Its numbers are the world's; in this meeting they are those of the list.
        let group = Group { members: (0..pes.len()).collect(), ..group };
        let made = alike.and_then(|()| self.make(&mut call, &rounds, Some(group), sets, what));
        // Alike on all members, but for an end of waiting, of which others may know nothing.
        if !matches!(&made, Err(e) if e.code == code::TIMEOUT) && self.health.check().is_ok() {
            call.round(Call::TeamFree, [0; 4])?;
        }
        made?.ok_or_else(|| err!(INTERNAL, "{what} gave no team to a member"))
    }
}
