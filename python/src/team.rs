//! Teams: some PEs that synchronise and communicate together. Their collectives are in `collective.rs`.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;

use pyo3::prelude::*;
use rushmem_abi::c::*;

use crate::core::Core;
use crate::error::{self, Failure};

/// Some PEs of a world. One that is collected stays until its world ends: free is collective.
#[pyclass(frozen, weakref, module = "rushmem", name = "Team")]
pub(crate) struct Team {
    pub(crate) core: Arc<Core>,
    raw: usize,
    info: Info,
    is_freed: AtomicBool,
    /// Under which kernels find it; negative without one.
    number: AtomicI32,
}

struct Info {
    my_pe: i32,
    n_pes: i32,
    number: i32,
    slot_sets: i32,
    members: Vec<i32>,
}

fn config(slot_sets: u32) -> rushmem_team_config_t {
    rushmem_team_config_t { size: size_of::<rushmem_team_config_t>() as u32, slot_sets }
}

impl Team {
    /// Of a handle that the runtime gave; `None` for null.
    fn of(py: Python<'_>, core: &Arc<Core>, raw: usize) -> PyResult<Option<Team>> {
        if raw == 0 {
            return Ok(None);
        }
        let info = core.run(py, || {
            let mut info = std::mem::MaybeUninit::<rushmem_team_info_t>::uninit();
            // SAFETY: a live handle, and a place for the answer.
            Failure::check(core.table, unsafe { (core.table.team_info)(raw as *mut _, info.as_mut_ptr()) })?;
            // SAFETY: filled by the successful call.
            let info = unsafe { info.assume_init() };
            let members = if info.members.is_null() {
                (0..info.n_pes).map(|i| info.start + i * info.stride).collect()
            } else {
                // SAFETY: a number for each member, which live as long as the team.
                unsafe { std::slice::from_raw_parts(info.members, info.n_pes as usize) }.to_vec()
            };
            Ok(Info {
                my_pe: info.my_pe,
                n_pes: info.n_pes,
                number: info.number,
                slot_sets: info.slot_sets,
                members,
            })
        })?;
        Ok(Some(Team {
            core: Arc::clone(core),
            raw,
            info,
            is_freed: AtomicBool::new(false),
            number: AtomicI32::new(-1),
        }))
    }

    /// The team of all PEs.
    pub(crate) fn world(py: Python<'_>, core: &Arc<Core>) -> PyResult<Team> {
        let mut raw = 0_usize;
        let out = &mut raw;
        core.call(py, move |table, w| {
            // SAFETY: a live handle and a place for the answer.
            unsafe { (table.team_world)(w, std::ptr::from_mut(out).cast()) }
        })?;
        Ok(Team::of(py, core, raw)?.expect("every PE is in the world"))
    }

    /// The team of the PEs that map each other's memory.
    pub(crate) fn node(py: Python<'_>, core: &Arc<Core>, slot_sets: u32) -> PyResult<Option<Team>> {
        let mut raw = 0_usize;
        let out = &mut raw;
        core.call(py, move |table, w| {
            // SAFETY: a live handle, a configuration and a place for the answer.
            unsafe { (table.team_node)(w, &config(slot_sets), std::ptr::from_mut(out).cast()) }
        })?;
        Team::of(py, core, raw)
    }

    /// The handle, of a team that was not freed.
    pub(crate) fn raw(&self, py: Python<'_>) -> PyResult<usize> {
        if self.is_freed.load(Ordering::Acquire) {
            return Err(error::of(py, RUSHMEM_ERR_BAD_HANDLE, "this team was freed"));
        }
        Ok(self.raw)
    }

    /// The members' numbers in the world.
    pub(crate) fn members_in_world(&self) -> &[i32] {
        &self.info.members
    }

    /// This PE's number in the team.
    pub(crate) fn me(&self) -> i32 {
        self.info.my_pe
    }

    pub(crate) fn n(&self) -> usize {
        self.info.n_pes as usize
    }
}

#[pymethods]
impl Team {
    /// This PE's number in the team.
    #[getter]
    fn my_pe(&self) -> i32 {
        self.info.my_pe
    }

    #[getter]
    fn n_pes(&self) -> i32 {
        self.info.n_pes
    }

    /// The members' numbers in the world.
    #[getter]
    fn members(&self) -> Vec<i32> {
        self.info.members.clone()
    }

    /// Its slot sets: on streams and in kernels, collectives of different sets may be under way at once.
    #[getter]
    fn slot_sets(&self) -> i32 {
        self.info.slot_sets
    }

    fn __len__(&self) -> usize {
        self.n()
    }

    /// The team of members `start`, `start + stride` and so on, `size` of them; None where this PE is no
    /// member of it. Collective over this team.
    #[pyo3(signature = (start, stride, size, *, slot_sets=1))]
    fn split_strided(
        &self,
        py: Python<'_>,
        start: i32,
        stride: i32,
        size: i32,
        slot_sets: u32,
    ) -> PyResult<Option<Team>> {
        let (parent, mut raw) = (self.raw(py)?, 0_usize);
        let out = &mut raw;
        self.core.call(py, move |table, _| {
            let out = std::ptr::from_mut(out).cast();
            // SAFETY: a live team, a configuration and a place for the answer.
            unsafe {
                (table.team_split_strided)(parent as *mut _, start, stride, size, &config(slot_sets), out)
            }
        })?;
        Team::of(py, &self.core, raw)
    }

    /// The team of the members with this PE's `colour`, in the order of their keys and then of their numbers;
    /// none where `colour` is None. Collective over this team.
    #[pyo3(signature = (colour, key=0, *, slot_sets=1))]
    fn split(&self, py: Python<'_>, colour: Option<i64>, key: i32, slot_sets: u32) -> PyResult<Option<Team>> {
        let (parent, mut raw) = (self.raw(py)?, 0_usize);
        let (out, colour) = (&mut raw, colour.unwrap_or(RUSHMEM_TEAM_NO_COLOUR));
        self.core.call(py, move |table, _| {
            let out = std::ptr::from_mut(out).cast();
            // SAFETY: a live team, a configuration and a place for the answer.
            unsafe { (table.team_split)(parent as *mut _, colour, key, &config(slot_sets), out) }
        })?;
        Team::of(py, &self.core, raw)
    }

    /// The team of these members, by their numbers in this one, in their order. Collective over this team.
    #[pyo3(signature = (members, *, slot_sets=1))]
    fn split_list(&self, py: Python<'_>, members: Vec<i32>, slot_sets: u32) -> PyResult<Option<Team>> {
        let (parent, mut raw) = (self.raw(py)?, 0_usize);
        let out = &mut raw;
        self.core.call(py, move |table, _| {
            let out = std::ptr::from_mut(out).cast();
            let (list, n) = (members.as_ptr(), members.len());
            // SAFETY: a live team, as many numbers as said, a configuration and a place for the answer.
            unsafe { (table.team_split_list)(parent as *mut _, list, n, &config(slot_sets), out) }
        })?;
        Team::of(py, &self.core, raw)
    }

    /// The teams of this PE's row and column, where the members lie in rows of `width`. Collective over this
    /// team.
    #[pyo3(signature = (width, *, slot_sets=1))]
    fn split_2d(&self, py: Python<'_>, width: i32, slot_sets: u32) -> PyResult<(Option<Team>, Option<Team>)> {
        let (parent, mut both) = (self.raw(py)?, [0_usize; 2]);
        let out = &mut both;
        self.core.call(py, move |table, _| {
            let [x, y] = out;
            let (x, y) = (std::ptr::from_mut(x).cast(), std::ptr::from_mut(y).cast());
            // SAFETY: a live team, a configuration and places for the answers.
            unsafe { (table.team_split_2d)(parent as *mut _, width, &config(slot_sets), x, y) }
        })?;
        Ok((Team::of(py, &self.core, both[0])?, Team::of(py, &self.core, both[1])?))
    }

    /// The number in `other` of this team's member `pe`; None where it is no member of that.
    fn translate(&self, py: Python<'_>, pe: i32, other: &Bound<'_, Team>) -> PyResult<Option<i32>> {
        let (this, other, mut number) = (self.raw(py)?, other.get().raw(py)?, -1);
        let out = &mut number;
        self.core.call(py, move |table, _| {
            // SAFETY: two live teams and a place for the answer.
            unsafe { (table.team_translate_pe)(this as *mut _, pe, other as *mut _, out) }
        })?;
        Ok((number >= 0).then_some(number))
    }

    /// Kernels of this PE find the team by this number from now on, 0 to 63 (rushmem.triton's `team_sync` and
    /// its like); None takes it back. No kernel uses the number meanwhile. Local.
    fn set_number(&self, py: Python<'_>, number: Option<u8>) -> PyResult<()> {
        let (raw, old) = (self.raw(py)?, self.number.load(Ordering::Acquire));
        let give = |number: i32, team: usize| {
            self.core.call(py, move |table, w| {
                // SAFETY: a live handle, and a live team or null.
                unsafe { (table.others.team_number)(w, number, team as *mut _) }
            })
        };
        let new = number.map_or(-1, i32::from);
        if new >= 0 {
            give(new, raw)?;
        }
        if old >= 0 && old != new {
            give(old, 0)?;
        }
        self.number.store(new, Ordering::Release);
        Ok(())
    }

    /// Frees the team. Collective over it.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.set_number(py, None)?;
        let raw = self.raw(py)?;
        // SAFETY: a live team; what uses it meanwhile is refused by the runtime.
        self.core.call(py, |table, _| unsafe { (table.team_free)(raw as *mut _) })?;
        self.is_freed.store(true, Ordering::Release);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let Info { my_pe, n_pes, number, .. } = &self.info;
        format!("rushmem.Team({number}: PE {my_pe} of {n_pes})")
    }
}
