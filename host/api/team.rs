//! Teams: some PEs of a world that synchronise and communicate together (OpenSHMEM 1.5, section 9.4).

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};

use rushmem_abi::c::*;
use rushmem_abi::device::RawTeam;

use crate::runtime::Runtime;
use crate::{forked, Error, ErrorCode, Pe, Result, World};

/// A set of PEs in an order of their own, of which this PE is a member.
///
/// Its members are numbered `0..n_pes()` in it; everything that is done with one PE (put, get, atomics) takes
/// a [`Pe`] of the world, which [`world_pe`](Team::world_pe) gives. [`World::team`] is the team of all PEs.
/// Others are parts of a team, made by [`split_strided`](Team::split_strided) and its like, which all members
/// of that team call together; a PE that is no member of the new one gets `None`, and has nothing more to do
/// with it.
///
/// A kernel takes a team by value, as `rushmem::team`:
///
/// ```
/// use rushmem::{Launch, World};
///
/// # fn main() -> rushmem::Result<()> {
/// let world = World::init()?;
/// let module = world.load(r#"
///     #include <rushmem/rushmem.cuh>
///     extern "C" __global__ void sum(rushmem::team team, float *x, uint64_t n) {
///         rushmem::reduce<rushmem::block>(team, x, x, n, rushmem::sum{});
///     }
/// "#)?;
/// let x = world.alloc::<f32>(1000)?;
/// let even = world.team().split_strided(0, 2, world.n_pes().div_ceil(2))?;
/// if let Some(even) = &even {
///     // SAFETY: a thousand elements, which nobody else touches before synchronize.
///     unsafe { module.kernel("sum")?.launch(Launch::new(1, 256), (even, &x, 1000u64))? };
///     world.synchronize()?;
/// }
/// # Ok(()) }
/// ```
///
/// # Collective calls
/// One thread of a PE at a time is in a collective call of one team; teams are independent of each other,
/// also where they overlap, and other threads may make, use and free others. Members that make different
/// calls, or the same with different arguments, get an error that names them.
///
/// # The end of a team
/// [`free`](Team::free) is collective over the members alone, and so is dropping a team, which waits for the
/// others to drop theirs: members drop the teams that they share in one order. While its thread panics, and
/// once a PE has died, a drop does nothing, and the team ends with its world.
#[must_use = "dropping a team is collective: its members wait for each other"]
pub struct Team<'w> {
    world: &'w World,
    raw: *mut rushmem_team_t,
    info: rushmem_team_info_t,
    device: RawTeam,
    /// False for the team of all PEs, which is the world's.
    owned: bool,
}

// SAFETY: the C ABI takes a team from any thread and guards its own state; info and device form are constant.
unsafe impl Send for Team<'_> {}
// SAFETY: calls on one team from several threads at once are the C ABI's to guard, which it does.
unsafe impl Sync for Team<'_> {}

/// How the members of two teams compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamComparison {
    /// The same PEs in the same order.
    Identical,
    /// The same PEs in another order.
    Reordered,
    /// Not the same PEs.
    Different,
}

/// What new teams are to have; [`Team::configured`] takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamConfig {
    slot_sets: u32,
}

impl Default for TeamConfig {
    fn default() -> Self {
        TeamConfig { slot_sets: 1 }
    }
}

impl TeamConfig {
    /// How many collectives of one PE's kernels and streams may be under way in the team at once, each in a
    /// slot set of its own: as many as there are blocks that make them. 1 unless it is set, 1024 at most.
    #[must_use]
    pub fn slot_sets(self, slot_sets: u32) -> Self {
        TeamConfig { slot_sets }
    }

    fn raw(self) -> rushmem_team_config_t {
        // None at all is no choice that the C ABI has: a number that is refused on every PE stands for it.
        let slot_sets = if self.slot_sets == 0 { u32::MAX } else { self.slot_sets };
        rushmem_team_config_t { size: size_of::<rushmem_team_config_t>() as u32, slot_sets }
    }
}

impl World {
    /// The team of all PEs. Local; dropping or freeing it does nothing.
    ///
    /// # Panics
    /// Not in a live world: in a child of fork.
    pub fn team(&self) -> Team<'_> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer.
        let team = self.check(unsafe { (self.runtime().team_world)(self.as_raw(), &mut raw) });
        let team = team.and_then(|()| Team::new(self, raw, false));
        team.unwrap_or_else(|e| panic!("a live world has a team of all its PEs: {e}"))
    }

    /// A new team of the PEs of this PE's node, where all of them map each other's memory, as on one host
    /// they do as a rule; else of this PE alone. Collective over the world.
    ///
    /// # Errors
    /// As [`Team::split_strided`].
    pub fn node_team(&self) -> Result<Team<'_>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live handle and a place for the answer; no configuration is the default one.
        let code = unsafe { (self.runtime().team_node)(self.as_raw(), std::ptr::null(), &mut raw) };
        self.check(code)?;
        Team::new(self, raw, true)
    }
}

impl<'w> Team<'w> {
    fn new(world: &'w World, raw: *mut rushmem_team_t, owned: bool) -> Result<Team<'w>> {
        let (mut info, mut device) = (MaybeUninit::uninit(), MaybeUninit::<RawTeam>::uninit());
        // SAFETY: a live handle and places for the answers, filled by the successful calls.
        unsafe {
            world.check((world.runtime().team_info)(raw, info.as_mut_ptr()))?;
            world.check((world.runtime().team_device)(raw, device.as_mut_ptr().cast()))?;
            Ok(Team { world, raw, info: info.assume_init(), device: device.assume_init(), owned })
        }
    }

    pub(crate) fn runtime(&self) -> &'static Runtime {
        self.world.runtime()
    }

    /// This PE's number in the team.
    #[inline]
    pub fn my_pe(&self) -> u32 {
        self.info.my_pe as u32
    }

    /// The number of members.
    #[inline]
    pub fn n_pes(&self) -> u32 {
        self.info.n_pes as u32
    }

    /// The team's number, the same on every member, by which texts name it; 0 for all PEs. PEs that are no
    /// members may have another team of that number, and a later team may get it.
    pub fn number(&self) -> u32 {
        self.info.number as u32
    }

    /// How many slot sets it has.
    pub fn slot_sets(&self) -> u32 {
        self.info.slot_sets as u32
    }

    /// Bytes that it takes in each member's memory of teams (`RUSHMEM_TEAM_MEMORY`).
    pub fn bytes(&self) -> u64 {
        self.info.bytes
    }

    /// Its world.
    pub fn world(&self) -> &'w World {
        self.world
    }

    /// The PE of the world that is member `member`.
    ///
    /// # Errors
    /// [`ErrorCode::BadPe`] outside `0..n_pes()`.
    pub fn world_pe(&self, member: u32) -> Result<Pe> {
        if member < self.n_pes() {
            return Ok(self.pe_of(member));
        }
        Err(Error::new(
            ErrorCode::BadPe,
            format!("{self} has no member {member}: its members are 0 to {}", self.n_pes() - 1),
        ))
    }

    /// `member` is one.
    fn pe_of(&self, member: u32) -> Pe {
        let member = member as i32;
        let pe = if self.info.members.is_null() {
            self.info.start + member * self.info.stride
        } else {
            // SAFETY: the list has a number for each member, and lives as long as the team.
            unsafe { *self.info.members.add(member as usize) }
        };
        Pe::new(pe as u32)
    }

    /// The members, in their order.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = Pe> + ExactSizeIterator + Clone + use<'_, 'w> {
        (0..self.n_pes()).map(|member| self.pe_of(member))
    }

    /// The number in `other` of this team's member `member`; `None` where that PE is no member there.
    ///
    /// # Errors
    /// [`ErrorCode::BadPe`] where this team has no such member, [`ErrorCode::InvalidArgument`] for a team of
    /// another world.
    pub fn translate(&self, member: u32, other: &Team<'_>) -> Result<Option<u32>> {
        let mut found = -1;
        let member = i32::try_from(member).unwrap_or(i32::MAX);
        // SAFETY: live handles and a place for the answer.
        let code = unsafe { (self.runtime().team_translate_pe)(self.raw, member, other.raw, &mut found) };
        self.world.check(code)?;
        Ok(u32::try_from(found).ok())
    }

    /// Compares the members of two teams.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidArgument`] for a team of another world.
    pub fn compare(&self, other: &Team<'_>) -> Result<TeamComparison> {
        let mut result = 0;
        // SAFETY: live handles and a place for the answer.
        self.world.check(unsafe { (self.runtime().team_compare)(self.raw, other.raw, &mut result) })?;
        Ok(match result {
            RUSHMEM_TEAM_IDENTICAL => TeamComparison::Identical,
            RUSHMEM_TEAM_REORDERED => TeamComparison::Reordered,
            _ => TeamComparison::Different,
        })
    }

    /// Splits into teams that have what `config` says.
    pub fn configured(&self, config: TeamConfig) -> Split<'_, 'w> {
        Split { team: self, config }
    }

    /// A new team of the `size` members `start`, `start + stride` ... of this one; `stride` may be negative.
    /// Collective: all members of this team give the same arguments. `None` on those that are not in the new
    /// one.
    ///
    /// # Errors
    /// On all members alike, with nothing made: [`Mismatch`](ErrorCode::Mismatch) where arguments or calls
    /// differ, [`InvalidArgument`](ErrorCode::InvalidArgument) for members that do not exist,
    /// [`HeapExhausted`](ErrorCode::HeapExhausted) where the memory of teams (`RUSHMEM_TEAM_MEMORY`) is used
    /// up, [`Timeout`](ErrorCode::Timeout), [`PeerDead`](ErrorCode::PeerDead). On one PE:
    /// [`Busy`](ErrorCode::Busy) while another thread is in a collective call of this team.
    pub fn split_strided(&self, start: u32, stride: i32, size: u32) -> Result<Option<Team<'w>>> {
        self.configured(TeamConfig::default()).strided(start, stride, size)
    }

    /// Lays the members out in rows of `x_range`, and makes a team of this PE's row and one of its column.
    /// The last row may be shorter. Collective, and errors, as [`split_strided`](Team::split_strided).
    pub fn split_2d(&self, x_range: u32) -> Result<(Team<'w>, Team<'w>)> {
        self.configured(TeamConfig::default()).grid(x_range)
    }

    /// A new team for each colour: its members by `key`, those of one key by their numbers in this team. No
    /// colour, no team. Collective, and errors, as [`split_strided`](Team::split_strided); colours and keys
    /// are each PE's own.
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Team<'w>>> {
        self.configured(TeamConfig::default()).coloured(colour, key)
    }

    /// A new team of these members, each named once, in this order. Collective, and errors, as
    /// [`split_strided`](Team::split_strided).
    pub fn split_list(&self, members: &[u32]) -> Result<Option<Team<'w>>> {
        self.configured(TeamConfig::default()).listed(members)
    }

    /// Returns once every member has entered. Collective. It orders no remote updates; see
    /// [`Team::barrier`]. Of all PEs' team it is [`World::sync_all`].
    ///
    /// # Errors
    /// As [`World::sync_all`].
    pub fn sync(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.world.check(unsafe { (self.runtime().team_sync)(self.raw) })
    }

    /// [`World::quiet`], then [`Team::sync`]: what any member put before it, every member sees after it.
    /// Collective.
    ///
    /// # Errors
    /// As [`World::sync_all`].
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.world.check(unsafe { (self.runtime().team_barrier)(self.raw) })
    }

    /// Ends the team. Collective over its members. Kernels and work on streams that use it have ended
    /// ([`World::synchronize`]). Of the team of all PEs it does nothing.
    ///
    /// # Errors
    /// As [`World::sync_all`]; the team then stays until its world ends.
    pub fn free(self) -> Result<()> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        // SAFETY: a live handle, which nobody uses after this: the team is consumed, or being dropped.
        self.world.check(unsafe { (self.runtime().team_free)(self.raw) })
    }

    /// The C handle, to hand to a C library that takes a `rushmem_team_t *`. It is this team's: the library
    /// may use it while the team lives, and must not free it.
    pub fn as_raw(&self) -> *mut rushmem_team_t {
        self.raw
    }

    /// As a kernel takes it.
    pub(crate) fn device(&self) -> RawTeam {
        self.device
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        if forked::is_child() || std::thread::panicking() || self.world.is_broken() {
            return;
        }
        if let Err(error) = self.end() {
            eprintln!("rushmem: {}: freeing the dropped {self}: {error}", self.world.my_pe());
        }
    }
}

/// `team 3`: its number, as messages of the runtime have it.
impl fmt::Display for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "team {}", self.number())
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({}: {} of {})", self.number(), self.my_pe(), self.n_pes())
    }
}

/// The ways to split a team, for teams that are configured ([`Team::configured`]).
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Split<'t, 'w> {
    team: &'t Team<'w>,
    config: TeamConfig,
}

impl<'w> Split<'_, 'w> {
    /// The new team at `raw`, if this PE is a member of it.
    fn made(&self, code: i32, raw: *mut rushmem_team_t) -> Result<Option<Team<'w>>> {
        self.team.world.check(code)?;
        if raw.is_null() {
            return Ok(None);
        }
        Team::new(self.team.world, raw, true).map(Some)
    }

    /// See [`Team::split_strided`].
    pub fn strided(self, start: u32, stride: i32, size: u32) -> Result<Option<Team<'w>>> {
        let (config, mut raw) = (self.config.raw(), std::ptr::null_mut());
        // What does not fit turns negative, which no team has either.
        // SAFETY: a live handle, a configuration and a place for the answer.
        let code = unsafe {
            let split = self.team.runtime().team_split_strided;
            split(self.team.raw, start as i32, stride, size as i32, &config, &mut raw)
        };
        self.made(code, raw)
    }

    /// See [`Team::split_2d`].
    pub fn grid(self, x_range: u32) -> Result<(Team<'w>, Team<'w>)> {
        let (config, mut x, mut y) = (self.config.raw(), std::ptr::null_mut(), std::ptr::null_mut());
        let x_range = i32::try_from(x_range).unwrap_or(i32::MAX);
        // SAFETY: a live handle, a configuration and places for the answers.
        let code =
            unsafe { (self.team.runtime().team_split_2d)(self.team.raw, x_range, &config, &mut x, &mut y) };
        self.team.world.check(code)?;
        Ok((Team::new(self.team.world, x, true)?, Team::new(self.team.world, y, true)?))
    }

    /// See [`Team::split`].
    pub fn coloured(self, colour: Option<u32>, key: i32) -> Result<Option<Team<'w>>> {
        let (config, mut raw) = (self.config.raw(), std::ptr::null_mut());
        let colour = colour.map_or(RUSHMEM_TEAM_NO_COLOUR, i64::from);
        // SAFETY: a live handle, a configuration and a place for the answer.
        let code = unsafe { (self.team.runtime().team_split)(self.team.raw, colour, key, &config, &mut raw) };
        self.made(code, raw)
    }

    /// See [`Team::split_list`].
    pub fn listed(self, members: &[u32]) -> Result<Option<Team<'w>>> {
        let (config, mut raw) = (self.config.raw(), std::ptr::null_mut());
        let members: Vec<i32> = members.iter().map(|member| *member as i32).collect();
        // SAFETY: a live handle, a list of that length, a configuration and a place for the answer.
        let code = unsafe {
            let split = self.team.runtime().team_split_list;
            split(self.team.raw, members.as_ptr(), members.len(), &config, &mut raw)
        };
        self.made(code, raw)
    }
}
