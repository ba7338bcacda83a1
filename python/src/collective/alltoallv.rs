//! `alltoallv` on streams, whose lists are arrays of the device's.

use pyo3::prelude::*;

use super::Sides;
use crate::error;
use crate::operand::{For, Operand};
use crate::stream;
use crate::team::Team;

impl Team {
    /// `alltoallv` in a stream's turn, with lists dst_at, received, src_at and counts.
    pub(super) fn alltoallv_on(
        &self,
        py: Python<'_>,
        sides: Sides,
        lists: [Option<&Bound<'_, PyAny>>; 4],
        on: usize,
        slot_set: u32,
    ) -> PyResult<()> {
        let (core, team) = (&*self.core, self.raw(py)?);
        let (ends, elem) = ([&sides.dst, &sides.src].map(|side| (side.at, side.n)), sides.src.elem);
        let (mut at, mut operands) = ([0; 4], vec![sides.dst, sides.src]);
        for (i, list) in lists.into_iter().enumerate() {
            let Some(list) = list else { continue };
            let use_ = if i == 1 { For::Writing } else { For::Reading };
            let list = Operand::of(list, "a list of alltoallv", use_)?;
            list.check_dense(py, "a list of alltoallv")?;
            if list.n != self.n() || list.elem != size_of::<usize>() {
                let text = format!("alltoallv: a list has a 64-bit integer for each of {} members", self.n());
                return Err(error::invalid(py, &text));
            }
            at[i] = list.at;
            operands.push(list);
        }
        // torch's empty tensors have no address, which is refused: lengths are not known here. Nothing moves
        // there, so that any address will do.
        let [to, from] = ends.map(|(end, n)| if n == 0 { at[0] } else { end });
        stream::put_on(py, core, on, operands, || {
            let [dst_at, received, src_at, counts] = at.map(|at| at as *mut usize);
            let (to, from) = (to as *mut _, from as *const _);
            // SAFETY: a live team; lists with an entry for each member, which the stream holds; the caller
            // vouches for what they will say.
            unsafe {
                (core.table.team_alltoallv_on_stream)(
                    team as *mut _,
                    to,
                    dst_at,
                    received,
                    from,
                    src_at,
                    counts,
                    elem,
                    slot_set,
                    on as *mut _,
                )
            }
        })
    }
}
