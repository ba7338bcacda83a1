//! Rooms in shared memory through which rows come to a dispatch that receives (`kernels/rows.h`).

/// Rooms for pieces of rows that a warp of a dispatch has, bytes of each on GPUs at most, at least, and on
/// the CPU device (`MOE_ROOMS`, `MOE_ROOM` of `kernels/rows.h`).
pub(crate) const ROOMS: u32 = 3;
const MOST_ROOM: usize = 2048;
const LEAST_ROOM: usize = 768;
const CPU_ROOM: u32 = 512;
/// What a warp has besides them (`rooms_of_warp`): barriers, notes, and places of rows.
const BESIDES_ROOMS: usize = ROOMS as usize * (8 + 16) + (ROOMS as usize / 2 + 1) * 132;

/// Rooms in shared memory for rows that a dispatch receives.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rooms {
    /// Warps of a block that have some, each [`ROOMS`] of them.
    pub(crate) takers: u32,
    /// Bytes of each.
    pub(crate) room: u32,
}

impl Rooms {
    /// As large as they can be where all of a block's have so many bytes.
    pub(crate) fn within(takers: u32, bytes: usize) -> Option<Rooms> {
        let each = (bytes / takers as usize / 128 * 128).checked_sub(BESIDES_ROOMS)?;
        let room = (each / ROOMS as usize / 128 * 128).min(MOST_ROOM);
        (room >= LEAST_ROOM).then_some(Rooms { takers, room: room as u32 })
    }

    /// On the CPU device.
    pub(crate) fn on_cpu(takers: u32) -> Rooms {
        Rooms { takers, room: CPU_ROOM }
    }

    pub(crate) fn least(takers: u32) -> Rooms {
        Rooms { takers, room: LEAST_ROOM as u32 }
    }

    /// Shared memory of a block.
    pub(crate) fn bytes(self) -> usize {
        let each = ROOMS as usize * self.room as usize + BESIDES_ROOMS;
        self.takers as usize * each.next_multiple_of(128)
    }
}
