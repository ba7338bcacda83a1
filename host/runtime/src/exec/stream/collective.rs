//! Collectives of a team in a stream's turn: one launch each, of the same device code that kernels call, so
//! that a stream's call on one PE meets a kernel's on another. What their phases are is counted in the slot
//! set, in memory: the host knows nothing of it, so a launch may be captured into a graph and replayed.

use std::ffi::c_void;

use crate::error::{err, Result};
use crate::exec::Home;
use crate::kernel::streams::On;
use crate::op::team_call::{check_plain, Caller, Find, TeamCall, TeamLaunch};
use crate::trace::event::About;
use rushmem_abi::device::RawTeam;

/// Scopes of launches of one block, and of several: a launch's end is all that its blocks wait for.
const ONE: &str = "rushmem::block";
const SEVERAL: &str = "rushmem::grid_parts";

/// A team's slot set as a collective on a stream takes it.
pub(crate) struct SlotSet<'a> {
    pub(crate) team: &'a RawTeam,
    /// What the team is called in texts.
    pub(crate) name: String,
    pub(crate) set: u32,
}

impl SlotSet<'_> {
    /// The team as the kernel takes it, with that slot set as its first.
    fn raw(&self) -> Result<RawTeam> {
        let team = self.team;
        if self.set >= team.slot_sets {
            return Err(err!(
                INVALID_ARGUMENT,
                "slot set {} of {}: a team has as many as it was configured with (rushmem_team_config_t, \
                 TeamConfig::slot_sets)",
                self.set,
                team.slot_sets
            ));
        }
        Ok(team.on(self.set))
    }
}

/// Checks a collective call now, and has it made in the stream's turn. On an error nothing was put on the
/// stream.
///
/// # Safety
/// The call's memory is valid until it is done, whose extent the members' sizes tell where they are not given
/// here; the team lives as long; the stream is one that [`crate::kernel::Kernels::on`] takes.
pub(crate) unsafe fn collective_on_stream(
    w: &impl Home,
    slots: &SlotSet<'_>,
    call: &TeamCall,
    raw: *mut c_void,
) -> Result<()> {
    let what = format!("{} of {} on a stream", call.name(), slots.name);
    let _span = w.trace().map(|trace| trace.span("enqueue", what.clone(), About::default()));
    // SAFETY: the caller vouches for memory, team and stream.
    unsafe { start(w, slots, call, &what, raw) }.map_err(|e| e.context(&what))
}

/// # Safety
/// As for [`collective_on_stream`].
unsafe fn start(
    w: &impl Home,
    slots: &SlotSet<'_>,
    call: &TeamCall,
    what: &str,
    raw: *mut c_void,
) -> Result<()> {
    w.health().check()?;
    let team = slots.raw()?;
    // SAFETY: the caller vouches for the stream.
    let on = unsafe { w.kernels().on(raw) }?;
    let gpu = matches!(on, On::Gpu(_));
    let caller = Caller { me: team.my_pe as usize, n: team.n_pes as usize, gpu };
    let place = |what, at, bytes| find(w, &on, what, at, bytes);
    let Some(launch) = call.check(caller, &place)? else { return Ok(()) };
    let advice = || format!("rushmem_team_prepare (Team::prepare) loads what {} needs", call.name());
    ahead(w, call, caller, &place)?;
    let step = w.launches().of(call.name(), launch.bytes, gpu, w.kernels().multiprocessors());
    let scope = if step.blocks > 1 { SEVERAL } else { ONE };
    let kernel = w.kernels().collective(&launch.instance(scope), Some(&on), &advice)?;
    let mut values: Vec<*const c_void> = vec![std::ptr::from_ref(&team).cast()];
    // Little-endian: a parameter of 4 bytes is the first half of its word.
    values.extend(launch.values.iter().map(|value| std::ptr::from_ref(value).cast::<c_void>()));
    // SAFETY: the parameters of this kernel; the caller vouches for addresses, team and stream.
    unsafe { w.kernels().launch_collective(&kernel, (step.blocks, step.threads), &values, what, raw) }
}

/// Loads the kernels that calls of this collective need; arguments as
/// [`rushmem_team_prepare`](crate::capi::team_stream::rushmem_team_prepare) has them.
pub(crate) fn prepare_collective(w: &impl Home, name: &str, op: i32, what: usize) -> Result<()> {
    let text = format!("preparing {name} on streams");
    w.health().check()?;
    let gpu = w.engine().is_some();
    for call in TeamCall::of_each_kind(name, op, what).map_err(|e| e.context(&text))? {
        // A member alone, whose addresses are as good as any.
        let (alone, place) = (Caller { me: 0, n: 1, gpu }, |_, at, _| Ok(at));
        if let Some(launch) = call.check(alone, &place).map_err(|e| e.context(&text))? {
            ahead(w, &call, alone, &place)?;
            let several = !gpu || w.kernels().multiprocessors() > 1;
            for scope in scopes(w, name, gpu).filter(|scope| several || *scope == ONE) {
                let instance = launch.instance(scope);
                w.kernels().collective(&instance, None, &String::new).map_err(|e| e.context(&text))?;
            }
        }
    }
    Ok(())
}

/// The scopes of a collective's launches, as the table has them.
fn scopes(w: &impl Home, name: &str, gpu: bool) -> impl Iterator<Item = &'static str> {
    let several = w.launches().steps(name, gpu).iter().any(|step| step.blocks > 1);
    std::iter::once(ONE).chain(several.then_some(SEVERAL))
}

/// Without a GPU: what one would launch for this call is compiled, where that is asked for.
fn ahead(w: &impl Home, call: &TeamCall, caller: Caller, place: Find<'_>) -> Result<()> {
    w.kernels().collectives_ahead(&|| {
        let launch = call.check(Caller { gpu: true, ..caller }, place)?;
        let instances = |launch: TeamLaunch| {
            scopes(w, call.name(), true).map(|scope| launch.instance(scope)).collect::<Vec<_>>()
        };
        Ok(launch.map_or_else(Vec::new, instances))
    })
}

/// Where a kernel of this stream finds a range of this PE's memory. What lies where symmetric memory does
/// must be live; the rest is any memory that the device reaches.
fn find(w: &impl Home, on: &On, what: &'static str, at: usize, bytes: usize) -> Result<usize> {
    if bytes == 0 {
        return Ok(at);
    }
    let state = w.kernels().state().raw();
    let offset = (at as u64).wrapping_sub(state.heap_base);
    match w.own(at, bytes) {
        Ok(own) => Ok(own),
        Err(e) if offset < state.stride => Err(e.context(what)),
        Err(_) => {
            check_plain(what, at, bytes)?;
            match on {
                On::Cpu(_) => Ok(at),
                On::Gpu(stream) => stream.reaches(at).ok_or_else(|| {
                    err!(
                        BAD_ADDRESS,
                        "{what} {at:#x} is memory that kernels of this GPU do not reach: give symmetric memory, or \
                         memory that CUDA has allocated or registered"
                    )
                }),
            }
        }
    }
}
