//! An opened card: which one and which port, its protection domain, and commands to its firmware. What is
//! made of it holds it, and so goes before it does.

use std::ffi::c_int;
use std::path::Path as FilePath;
use std::ptr::null_mut;

use super::commands::{answer, status_text, Command, Path, ANSWER};
use super::library::{
    ContextAttr, DeviceAttr, GidEntry, Objects, PathAttr, PathFacts, PdFacts, Pointer, PortAttr,
    VerbsFunctions, OBJECT_PATH, OBJECT_PD, VECTOR_MAC,
};
use crate::error::{err, Error, Result};

/// `IBV_ATOMIC_NONE`. Else they are atomic for what goes through the card, or for processors, too, which
/// nothing here relies on.
const NO_ATOMICS: u32 = 0;
/// `IBV_PORT_ACTIVE`.
const ACTIVE: u32 = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// `IBV_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// `MLX5DV_CONTEXT_FLAGS_DEVX`.
const DEVX: u32 = 1;
/// Ports are asked for from 1 on; no card has more.
const PORTS: u8 = 4;

/// Which card and port is asked for: `mlx5_0`, `mlx5_0:1`, `mlx5_0:1:3` with the number of a GID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    name: String,
    port: Option<u8>,
    gid: Option<u8>,
}

impl Wish {
    pub(super) fn parse(text: &str) -> Result<Wish> {
        let bad = || {
            err!(
                ENVIRONMENT,
                "RUSHMEM_CARD={text}: expected DEVICE, DEVICE:PORT or DEVICE:PORT:GID, as mlx5_0:1:3"
            )
        };
        let mut parts = text.trim().split(':');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or_else(bad)?.to_owned();
        let mut number = || parts.next().map(|part| part.parse::<u8>().map_err(|_| bad())).transpose();
        let wish = Wish { name, port: number()?, gid: number()? };
        if parts.next().is_some() || wish.port == Some(0) {
            return Err(bad());
        }
        Ok(wish)
    }
}

/// In which order to try the cards of those names.
pub(in crate::net) type CardOrder<'a> = &'a dyn Fn(&[String]) -> Vec<usize>;

/// How others find the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ethernet: bool,
    /// RoCE v2.
    pub(super) v2: bool,
    /// `IBV_MTU_*`, which are the numbers of commands.
    pub(super) mtu: u8,
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
}

pub(super) struct OpenCard {
    pub(super) verbs: &'static VerbsFunctions,
    pub(super) context: Pointer,
    pub(super) pd: Pointer,
    pub(super) pdn: u32,
    pub(super) eq: u32,
    name: String,
    pub(super) port: u8,
    gid_index: u8,
    pub(super) address: Address,
    /// It has fetch-and-add and compare-and-swap, atomic among all that ask it.
    pub(super) atomics: bool,
}

// SAFETY: rdma-core's objects may be used by any thread.
unsafe impl Send for OpenCard {}
// SAFETY: rdma-core's calls lock what they share.
unsafe impl Sync for OpenCard {}

/// A port's state (`enum ibv_port_state`), and what to do about it.
fn state(state: u32) -> &'static str {
    match state {
        1 => "down; is its cable in, and its interface up? `ip link`, `ibstat`",
        2 => "starting; on InfiniBand it waits for a subnet manager",
        3 => "set up; on InfiniBand it waits for the subnet manager",
        5 => "its link was lost a moment ago",
        _ => "no driver has it",
    }
}

/// The system's reason for the last failure.
fn errno() -> std::io::Error {
    std::io::Error::last_os_error()
}

impl OpenCard {
    /// Opens the card that is asked for, else the first mlx5 card with an active port, in that order of the
    /// cards that are listed.
    pub(super) fn open(
        folder: Option<&FilePath>,
        wish: Option<&Wish>,
        order: CardOrder<'_>,
    ) -> Result<OpenCard> {
        let verbs = VerbsFunctions::load(folder)?;
        let mut count: c_int = 0;
        // SAFETY: writes the count, and gives a list or null.
        let list = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            return Err(err!(
                ENVIRONMENT,
                "libibverbs.so.1 lists no card: {} (is the module ib_uverbs loaded?)",
                errno()
            ));
        }
        let mut reasons = Vec::new();
        let mut opened = None;
        let listed: Vec<(Pointer, String)> = (0..count.max(0) as usize)
            .map(|i| {
                // SAFETY: an entry of the list.
                unsafe {
                    let device = *list.add(i);
                    (device, verbs.name(device))
                }
            })
            .collect();
        let names: Vec<String> = listed.iter().map(|(_, name)| name.clone()).collect();
        for i in order(&names) {
            let (device, name) = (listed[i].0, &listed[i].1);
            if wish.is_some_and(|wish| wish.name != *name) {
                reasons.push(format!("{name} is not asked for"));
                continue;
            }
            // SAFETY: a device of the list, which stays until it is opened.
            match unsafe { Self::open_one(verbs, device, name, wish) } {
                Ok(device) => {
                    opened = Some(device);
                    break;
                }
                Err(e) => reasons.push(e.message),
            }
        }
        // SAFETY: the list that was given; opened devices outlive it.
        unsafe { (verbs.ibv_free_device_list)(list) };
        opened.ok_or_else(|| {
            let asked = wish.map_or(String::new(), |wish| format!(" (RUSHMEM_CARD asks for {})", wish.name));
            let why =
                if reasons.is_empty() { "libibverbs.so.1 lists none".to_owned() } else { reasons.join("; ") };
            err!(
                ENVIRONMENT,
                "no card whose queues kernels could write{asked}: {why}. rushmem-info lists the cards"
            )
        })
    }

    /// # Safety
    /// `device` is one of the list.
    unsafe fn open_one(
        verbs: &'static VerbsFunctions,
        device: Pointer,
        name: &str,
        wish: Option<&Wish>,
    ) -> Result<OpenCard> {
        // SAFETY: a device of the list.
        if !unsafe { (verbs.mlx5dv_is_supported)(device) } {
            return Err(err!(ENVIRONMENT, "{name} is no mlx5 card"));
        }
        let mut attr = ContextAttr { flags: DEVX, comp_mask: 0 };
        // SAFETY: a device of the list, and attributes of the structure's first version.
        let context = unsafe { (verbs.mlx5dv_open_device)(device, &mut attr) };
        if context.is_null() {
            return Err(err!(
                ENVIRONMENT,
                "{name}: opening it with DEVX failed: {} (/dev/infiniband/uverbs* must be open to this user, and the kernel's \
                 mlx5_ib must know DEVX: Linux 4.19 or newer)",
                errno()
            ));
        }
        // Dropped, and so closed, where something is missing.
        let mut opened = OpenCard {
            verbs,
            context,
            pd: null_mut(),
            pdn: 0,
            eq: 0,
            name: name.to_owned(),
            port: 0,
            gid_index: 0,
            address: Address { ethernet: false, v2: false, mtu: 0, lid: 0, gid: [0; 16] },
            atomics: false,
        };
        let mut attr = DeviceAttr::default();
        // SAFETY: an open device; writes the attributes. What answers in another order of bytes says that it
        // has none.
        let asked = unsafe { (verbs.ibv_query_device)(context, &mut attr) };
        opened.atomics = asked == 0 && attr.atomics != NO_ATOMICS;
        opened.choose_port(wish)?;
        opened.domain()?;
        Ok(opened)
    }

    /// The card and its port, as errors begin.
    pub(super) fn who(&self) -> String {
        format!("{}, port {}", self.name, self.port)
    }

    /// An error about a call that gave no reason but errno.
    pub(super) fn failed(&self, what: &str, next: &str) -> Error {
        err!(ENVIRONMENT, "{}: {what} failed: {} ({next})", self.who(), errno())
    }

    fn choose_port(&mut self, wish: Option<&Wish>) -> Result<()> {
        let mut said = Vec::new();
        let ports = wish.and_then(|wish| wish.port).map_or(1..=PORTS, |port| port..=port);
        for port in ports {
            let mut attr = PortAttr::default();
            // SAFETY: an open device; writes the attributes.
            if unsafe { (self.verbs.ibv_query_port)(self.context, port, &mut attr) } != 0 {
                said.push(format!("there is no port {port}"));
                break;
            }
            if attr.state != ACTIVE {
                said.push(format!("port {port} is not active (state {}: {})", attr.state, state(attr.state)));
                continue;
            }
            self.port = port;
            let ethernet = attr.link_layer == ETHERNET;
            let chosen = self.choose_gid(ethernet, attr.gid_tbl_len, wish.and_then(|wish| wish.gid));
            let Some((index, gid, v2)) = chosen else {
                said.push(format!(
                    "port {port} has no GID that is set (`show_gids`; an Ethernet port takes its address's)"
                ));
                continue;
            };
            self.gid_index = index;
            self.address = Address { ethernet, v2, mtu: attr.active_mtu as u8, lid: attr.lid, gid };
            return Ok(());
        }
        Err(err!(ENVIRONMENT, "{}: {}", self.name, said.join(", ")))
    }

    /// InfiniBand: the first. Ethernet: RoCE v2 before v1, and addresses that are routed before those that
    /// are not.
    fn choose_gid(&self, ethernet: bool, count: c_int, wish: Option<u8>) -> Option<(u8, [u8; 16], bool)> {
        let most = count.clamp(0, 256) as u32;
        let found = (0..most).filter_map(|index| {
            let mut entry = GidEntry::default();
            // SAFETY: an open device; writes an entry of that size.
            let failed = unsafe {
                (self.verbs._ibv_query_gid_ex)(
                    self.context,
                    self.port.into(),
                    index,
                    &mut entry,
                    0,
                    size_of::<GidEntry>(),
                )
            };
            let mut gid = [0; 16];
            gid[..8].copy_from_slice(&entry.gid[0].to_ne_bytes());
            gid[8..].copy_from_slice(&entry.gid[1].to_ne_bytes());
            (failed == 0 && gid != [0; 16]).then_some((index as u8, gid, entry.kind == ROCE_V2))
        });
        match wish {
            Some(wish) => found.into_iter().find(|(index, ..)| *index == wish),
            None if ethernet => {
                // The first of the best.
                found.into_iter().min_by_key(|(_, gid, v2)| (!v2, gid[..2] == [0xfe, 0x80]))
            }
            None => found.into_iter().next(),
        }
    }

    fn domain(&mut self) -> Result<()> {
        // SAFETY: an open device.
        self.pd = unsafe { (self.verbs.ibv_alloc_pd)(self.context) };
        if self.pd.is_null() {
            return Err(self.failed("allocating a protection domain", "ulimit -l must let memory be pinned"));
        }
        let mut facts = PdFacts::default();
        let mut objects = Objects([[null_mut(); 2]; 7]);
        objects.0[OBJECT_PD] = [self.pd, (&raw mut facts).cast()];
        // SAFETY: the domain, and a place for its facts.
        if unsafe { (self.verbs.mlx5dv_init_obj)(&mut objects, 1 << OBJECT_PD) } != 0 {
            return Err(self.failed("asking for the protection domain's number", "report it with this line"));
        }
        self.pdn = facts.pdn;
        // SAFETY: an open device; writes the number of the queue of events of vector 0.
        if unsafe { (self.verbs.mlx5dv_devx_query_eqn)(self.context, 0, &mut self.eq) } != 0 {
            return Err(self.failed("asking for a queue of events", "does the kernel's mlx5_ib know DEVX?"));
        }
        Ok(())
    }

    /// The way to a port of that address.
    pub(super) fn path_to(&self, peer: &Address) -> Result<Path> {
        let kind = |ethernet| if ethernet { "Ethernet" } else { "InfiniBand" };
        if peer.ethernet != self.address.ethernet {
            return Err(err!(
                ENVIRONMENT,
                "{}: it is {}, and the peer's card is {}: choose alike (RUSHMEM_CARD)",
                self.who(),
                kind(self.address.ethernet),
                kind(peer.ethernet)
            ));
        }
        if !peer.ethernet {
            if peer.gid[..8] != self.address.gid[..8] {
                return Err(err!(
                    ENVIRONMENT,
                    "{}: the peer's card is in another InfiniBand subnet, and these queues cross none: choose others (RUSHMEM_CARD)",
                    self.who()
                ));
            }
            return Ok(Path::Lid(peer.lid));
        }
        if peer.v2 != self.address.v2 {
            return Err(err!(
                ENVIRONMENT,
                "{}: one end speaks RoCE v2 and the other v1: choose GIDs alike (RUSHMEM_CARD=DEVICE:PORT:GID)",
                self.who()
            ));
        }
        // The kernel finds the peer's MAC, or that of the router before it.
        let gid = |at: usize| u64::from_ne_bytes(peer.gid[at..at + 8].try_into().expect("eight bytes"));
        let mut attr = PathAttr {
            dgid: [gid(0), gid(8)],
            sgid_index: self.gid_index,
            hop_limit: 64,
            is_global: 1,
            port_num: self.port,
            ..PathAttr::default()
        };
        // SAFETY: the domain of this device, and attributes of the structure.
        let handle = unsafe { (self.verbs.ibv_create_ah)(self.pd, &mut attr) };
        if handle.is_null() {
            return Err(self.failed(
                "finding the way to the peer's address",
                "can the two hosts ping each other on these ports?",
            ));
        }
        let mut facts = PathFacts { vector: std::ptr::null(), comp_mask: 0 };
        let mut objects = Objects([[null_mut(); 2]; 7]);
        objects.0[OBJECT_PATH] = [handle, (&raw mut facts).cast()];
        // SAFETY: the handle, and a place for its facts.
        let asked = unsafe { (self.verbs.mlx5dv_init_obj)(&mut objects, 1 << OBJECT_PATH) };
        let mut mac = [0; 6];
        if asked == 0 && !facts.vector.is_null() {
            // SAFETY: the handle's vector, which lives as long as the handle.
            mac.copy_from_slice(unsafe { &(&(*facts.vector))[VECTOR_MAC..VECTOR_MAC + 6] });
        }
        // SAFETY: the handle from above.
        unsafe { (self.verbs.ibv_destroy_ah)(handle) };
        if mac == [0; 6] {
            return Err(self.failed("reading the peer's MAC", "report it with this line"));
        }
        Ok(Path::Ethernet { gid: peer.gid, mac, source: self.gid_index, v2: peer.v2 })
    }

    // ---- commands ----

    fn refused(&self, command: &Command, what: &str, why: &std::io::Error, out: &[u8; ANSWER]) -> Error {
        let (who, name) = (self.who(), command.name);
        match answer(out) {
            (0, ..) => {
                err!(IO, "{who}: {name} for {what} did not reach the firmware: {why} (dmesg may say more)")
            }
            (status, syndrome, _) => err!(
                IO,
                "{who}: {name} for {what} was refused: status {status:#04x}, syndrome {syndrome:#010x}: {}",
                status_text(status)
            ),
        }
    }

    /// Makes an object; its handle and its number.
    pub(super) fn create(&self, command: &Command, what: &str) -> Result<(Pointer, u32)> {
        let mut out = [0; ANSWER];
        let (bytes, len) = (command.bytes.as_ptr(), command.bytes.len());
        // SAFETY: a command and a place for its answer, with their lengths.
        let made = unsafe {
            (self.verbs.mlx5dv_devx_obj_create)(self.context, bytes, len, out.as_mut_ptr(), out.len())
        };
        if made.is_null() {
            return Err(self.refused(command, what, &errno(), &out));
        }
        Ok((made, answer(&out).2))
    }

    /// Changes one.
    ///
    /// # Safety
    /// `object` is a handle that [`Self::create`] gave.
    pub(super) unsafe fn modify(&self, object: Pointer, command: &Command, what: &str) -> Result<()> {
        let mut out = [0; ANSWER];
        let (bytes, len) = (command.bytes.as_ptr(), command.bytes.len());
        // SAFETY: the caller's object; a command and a place for its answer, with their lengths.
        let failed =
            unsafe { (self.verbs.mlx5dv_devx_obj_modify)(object, bytes, len, out.as_mut_ptr(), out.len()) };
        if failed != 0 {
            let why = std::io::Error::from_raw_os_error(failed.abs());
            return Err(self.refused(command, what, &why, &out));
        }
        Ok(())
    }
}

impl Drop for OpenCard {
    fn drop(&mut self) {
        // SAFETY: what was opened here; all that was made of it held this, and is gone.
        unsafe {
            if !self.pd.is_null() && (self.verbs.ibv_dealloc_pd)(self.pd) != 0 {
                log::warn!("{}: its protection domain was not freed: {}", self.who(), errno());
            }
            if (self.verbs.ibv_close_device)(self.context) != 0 {
                log::warn!("{}: it was not closed: {}", self.who(), errno());
            }
        }
    }
}
