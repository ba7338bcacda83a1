//! Handles of teams.
//!
//! A program may make and free millions of teams, so the cells of their handles are used again, the longest
//! freed one first and only once many are. A handle is its cell's address and, in the bits that an address
//! leaves, which use of the cell it is: a stale one is an error for the next hundred thousand teams.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::handles::{Cell, CELL};
use crate::team::Team;
use rushmem_abi::c::{rushmem_team_t, rushmem_world_t};

const MARK: u64 = u64::from_le_bytes(*b"rushmemT");
/// So many cells are free before one is used again.
const RESTING: usize = 4096;

/// What is in a cell: the team, or null, and how often the cell has been used.
struct Content {
    team: AtomicPtr<HeldTeam>,
    uses: AtomicU64,
}

type Handle = Cell<Content>;

/// A team and its world. The team is `None` for that of all PEs, which is the world's own.
pub(super) struct HeldTeam {
    pub(super) world: *mut rushmem_world_t,
    pub(super) team: Option<Team>,
}

/// All handles.
#[derive(Default)]
struct Handles {
    /// Those of each world, by its handle.
    live: HashMap<usize, OfWorld>,
    /// Cells that were freed, the longest freed one first.
    free: VecDeque<&'static Handle>,
}

#[derive(Default)]
struct OfWorld {
    /// That of all its PEs, once it was asked for.
    all: Option<usize>,
    handles: HashSet<usize>,
}

fn handles() -> MutexGuard<'static, Handles> {
    static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);
    // Whole between any two statements.
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bits that tell the uses of a cell apart.
fn use_of(handle: &Handle) -> usize {
    handle.content.uses.load(Ordering::Relaxed) as usize % CELL
}

impl Handles {
    fn make(&mut self, world: *mut rushmem_world_t, team: Option<Team>) -> Result<*mut rushmem_team_t> {
        let rested = self.free.len() > RESTING;
        let cell = match rested.then(|| self.free.pop_front()).flatten() {
            Some(cell) => cell,
            None => Cell::make(MARK, Content { team: AtomicPtr::default(), uses: AtomicU64::new(0) })?,
        };
        let held = Box::into_raw(Box::new(HeldTeam { world, team }));
        cell.content.team.store(held, Ordering::Release);
        let handle = cell.as_raw::<c_void>() as usize | use_of(cell);
        self.live.entry(world as usize).or_default().handles.insert(handle);
        Ok(handle as *mut rushmem_team_t)
    }

    /// Empties a live handle's cell.
    fn empty(&mut self, handle: usize) {
        let Some(cell) = cell(handle) else { return };
        let held = cell.content.team.swap(null_mut(), Ordering::AcqRel);
        cell.content.uses.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the box made in `make`, taken once; by contract nobody uses the team any more.
        drop((!held.is_null()).then(|| unsafe { Box::from_raw(held) }));
        self.free.push_back(cell);
    }
}

/// The cell of a handle, if it is one's.
fn cell(handle: usize) -> Option<&'static Handle> {
    // SAFETY: only `make` makes cells of this mark.
    let cell = unsafe { Handle::find((handle / CELL * CELL) as *const c_void, MARK) };
    cell.filter(|cell| use_of(cell) == handle % CELL)
}

/// What is behind a handle.
///
/// # Safety
/// Nobody frees the team or finalises its world meanwhile.
#[inline]
pub(super) unsafe fn find<'a>(t: *mut rushmem_team_t) -> Option<&'a HeldTeam> {
    // SAFETY: the pointer is a live box's until the handle is freed.
    cell(t as usize).and_then(|cell| unsafe { cell.content.team.load(Ordering::Acquire).as_ref() })
}

/// A handle of a new team of `world`.
pub(super) fn make(world: *mut rushmem_world_t, team: Team) -> Result<*mut rushmem_team_t> {
    handles().make(world, Some(team))
}

/// The handle of the team of all PEs.
pub(super) fn of_all(world: *mut rushmem_world_t) -> Result<*mut rushmem_team_t> {
    let mut all = handles();
    if let Some(handle) = all.live.get(&(world as usize)).and_then(|of| of.all) {
        return Ok(handle as *mut rushmem_team_t);
    }
    let handle = all.make(world, None)?;
    all.live.entry(world as usize).or_default().all = Some(handle as usize);
    Ok(handle)
}

/// The handle is stale from here on.
pub(super) fn free(world: *mut rushmem_world_t, t: *mut rushmem_team_t) {
    let mut all = handles();
    if let Some(of) = all.live.get_mut(&(world as usize)) {
        of.handles.remove(&(t as usize));
    }
    all.empty(t as usize);
}

/// The handles of a world's teams are stale from here on.
pub(in crate::capi) fn forget(w: *mut rushmem_world_t) {
    let mut all = handles();
    for handle in all.live.remove(&(w as usize)).map(|of| of.handles).into_iter().flatten() {
        all.empty(handle);
    }
}
