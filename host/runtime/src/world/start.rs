//! The steps by which a world comes to be: what its node shares, how everybody else is reached, and what is told of it.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;

use super::{sync_bytes, Peer};
use crate::collective::Collective;
use crate::config::Config;
use crate::device::Device;
use crate::error::{code, Error, Result};
use crate::far::ring::DeviceRing;
use crate::far::Far;
use crate::health::Health;
use crate::heap::backing::{Backing, GpuBacking};
use crate::heap::window::Window;
use crate::memory::Reservation;
use crate::node::card::{self, Card};
use crate::node::control::{Call, Control};
use crate::node::links::Links;
use crate::symmetric::Symmetric;

/// During start-up a PE may see that another one ended before it hears why that one did: the bootstrap's first death is
/// the cause, and comes soon.
pub(super) fn first_cause(e: Error, boot: &dyn Bootstrap) -> Error {
    if e.code != code::PEER_DEAD {
        return e;
    }
    for _ in 0..20 {
        match boot.death() {
            Some(death) if e.message.contains(&death.what) => return e,
            Some(death) => return Error::new(e.code, format!("{}; before that, {}", e.message, death.what)),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    e
}

/// What a world is built on.
pub(super) struct Parts {
    pub(super) collective: Collective,
    pub(super) symmetric: Symmetric,
    pub(super) device: Device,
    /// PEs that run their kernels on this PE's GPU at the same time, this one included.
    pub(super) sharing: usize,
    /// How long its kernels go on once the job is broken.
    pub(super) trap_delay: Duration,
}

/// Where a PE is: its number, and the PEs of its node.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) me: usize,
    pub(super) first: usize,
    pub(super) slots: usize,
}

/// Collective: the control segment and the symmetric memory of a node whose PEs are connected, on `device`.
pub(super) fn share_memory(
    links: &Links,
    health: &Arc<Health>,
    cards: &[Card],
    Seat { me, first, slots }: Seat,
    config: &Config,
    device: Result<Device>,
    far: Option<&Arc<Far>>,
) -> Result<Parts> {
    let (n, slot, limit) = (cards.len(), me - first, config.init_timeout);
    let control = if slot == 0 {
        let control = Control::create(n, me)?;
        links.receive_from_leader(0, Some(control.fd()), limit)?;
        control
    } else {
        Control::open(links.receive_from_leader(0, None, limit)?, n, me)?
    };
    let control = Arc::new(control);
    if let Some(far) = far {
        far.set_control(Arc::clone(&control));
    }
    let collective = Collective::new(control, far.cloned(), n, config.timeout);
    let mut call = collective.enter(health, cards)?;
    call.round(Call::Start, [0; 4])?;
    let device = call.all_well(device, "opening the device")?;
    let reserve = |bytes| match device.gpu() {
        None => Reservation::new(bytes).map(Backing::Host),
        Some(cuda) => GpuBacking::reserve(cuda, bytes).map(Backing::Gpu),
    };
    let window = Window::reserve(slots, slot, config.heap_max, config.transport, reserve);
    let window = call.all_well(window, "reserving address space for the heaps")?;
    let reserved = sync_bytes(n) + DeviceRing::MOST_DEVICE_BYTES;
    let symmetric = Symmetric::new(window, first, reserved, config.heap_min, limit, &mut call, links)?;
    // PEs of one process share its context on a GPU, and so the processors at one time; processes take turns.
    let uuid = u128::from_le_bytes(device.gpu().map_or([0; 16], |cuda| cuda.facts().uuid));
    let place = [uuid as u64, (uuid >> 64) as u64, cards[me].process, 0];
    call.round(Call::Step, place)?;
    let sharing = (0..n).filter(|i| call.words(*i) == place).count();
    let mut processes: Vec<u64> =
        (0..n).map(|i| call.words(i)).filter(|other| other[..2] == place[..2]).map(|w| w[2]).collect();
    processes.sort_unstable();
    processes.dedup();
    let trap_delay = trap_delay(&device, processes.len(), processes.iter().position(|p| *p == place[2]));
    drop(call);
    Ok(Parts { collective, symmetric, device, sharing, trap_delay })
}

/// Processes that take turns on one GPU trap one after another, and not while the driver still clears up after the one that
/// died: of traps at one moment it tells only some (driver 580), and a kernel that has trapped unheard never ends.
pub(super) fn trap_delay(device: &Device, processes: usize, mine: Option<usize>) -> Duration {
    const APART: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(3);
    if device.gpu().is_none() || processes < 2 {
        return Duration::ZERO;
    }
    (APART * (mine.unwrap_or(0) as u32 + 1)).min(MOST)
}

/// Collective: where any PE has one that it cannot map, everybody joins the network, and all memory is made known to it.
pub(super) fn reach_all(
    far: Option<Arc<Far>>,
    meet: impl FnOnce() -> Result<Arc<Far>>,
    collective: &Collective,
    symmetric: &Symmetric,
    health: &Arc<Health>,
    cards: &[Card],
) -> Result<Option<Arc<Far>>> {
    let window = symmetric.window();
    let mut call = collective.enter(health, cards)?;
    let needed = far.is_some() || window.near().1 < window.slots();
    call.round(Call::Step, [needed.into(), 0, 0, 0])?;
    if (0..cards.len()).all(|pe| call.words(pe)[0] == 0) {
        return Ok(None);
    }
    let far = match far {
        Some(far) => far,
        None => meet()?,
    };
    symmetric.let_reach(&far)?;
    // Nobody asks anything of a PE that does not know its own memory yet.
    call.round(Call::Step, [0; 4])?;
    Ok(Some(far))
}

pub(super) fn describe(
    card: &Card,
    mine: &Card,
    (first, slots): (usize, usize),
    near: (i32, i32),
    window: &Window,
    far: Option<&Far>,
) -> Peer {
    let text = |s: &str| CString::new(s.replace('\0', "")).unwrap_or_default();
    let (pe, me) = (card.pe as usize, mine.pe as usize);
    let is_near = (near.0..near.0 + near.1).contains(&(pe as i32));
    let mate = (first..first + slots).contains(&pe);
    let network = far.map_or("none", Far::name);
    let about = far.map_or("", Far::about);
    let (transport, reason) = if pe == me {
        ("direct", "itself".to_owned())
    } else if is_near {
        ("direct", "same host: its memory is mapped here".to_owned())
    } else if !mate {
        (network, format!("{}; {about}", card::why_apart(mine, card)))
    } else {
        let why = window.why_unmapped(pe - first);
        let why = why.unwrap_or("its memory could be mapped here, but that of a PE between could not");
        (network, format!("{why}; {about}"))
    };
    Peer { pid: card.pid, host: text(&card.host), transport: text(transport), reason: text(&reason) }
}
