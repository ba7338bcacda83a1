//! An mlx5 card (ConnectX): opened through rdma-core's libraries, with queues in memory of ours that DEVX
//! commands tell its firmware of, as verbs have no collapsed completion queues. docs/rdma.md says what has
//! run on it.
//!
//! - [`library`]: what is called of `libibverbs` and `libmlx5`. [`commands`]: the firmware's commands.
//! - [`device`]: the opened card. [`pair`]: a queue to a PE. [`memory`]: what requests may name.

mod commands;
#[cfg(test)]
mod commands_tests;
mod device;
mod library;
mod memory;
mod pair;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use self::device::{Address, CardOrder, OpenCard, Wish};
pub(in crate::net) use self::memory::DmaBufs;
use self::memory::RegisteredMemory;
use self::pair::{CardPair, QueuePlace, Umem};
use super::card::{AccessRights, NetworkCard, OpenQueue, QueueArea, QueueMemory, QueueNeeds, RegionKeys};
use crate::config::PacketClass;
use crate::error::{err, Error, Result};
use crate::net::transport::Memory;
use crate::topology::card::random;

/// The card counts memory in pages of this size.
const PAGE: usize = 4096;
/// Of an address: the format's version, kind of link, RoCE version, MTU, LID, GID.
const HEAD: usize = 22;
/// Of an address, for each queue: the number of its pair, and its first packet's number.
const EACH: usize = 8;
const VERSION: u8 = 1;
/// The card of one PE.
pub(in crate::net) struct Mlx5Card {
    me: usize,
    // In the order in which they go.
    pairs: Vec<Option<CardPair>>,
    umem: Option<Umem>,
    registered: HashMap<u32, RegisteredMemory>,
    device: Arc<OpenCard>,
    /// Where heaps are in GPU memory.
    gpu: Option<DmaBufs>,
    /// The first number of each queue's packets.
    psns: Vec<u32>,
    class: PacketClass,
}

impl Mlx5Card {
    /// Opens the card that `wish` names (`RUSHMEM_CARD`), else the first with an active port, in that order;
    /// by the libraries in `folder` (`RUSHMEM_VERBS`), or where the system finds them. `gpu` describes GPU
    /// memory to it; its packets have that `class`.
    pub(in crate::net) fn new(
        me: usize,
        folder: Option<&FilePath>,
        wish: Option<&str>,
        order: CardOrder<'_>,
        gpu: Option<DmaBufs>,
        class: PacketClass,
    ) -> Result<Mlx5Card> {
        let wish = wish.map(Wish::parse).transpose()?;
        let device = Arc::new(OpenCard::open(folder, wish.as_ref(), order)?);
        if device.address.ethernet && class.level > 7 {
            return Err(err!(
                ENVIRONMENT,
                "RUSHMEM_CARD_SL={}: {} is Ethernet, whose priorities are 0 to 7",
                class.level,
                device.who()
            ));
        }
        let (pairs, psns) = (Vec::new(), Vec::new());
        Ok(Mlx5Card { me, pairs, umem: None, registered: HashMap::new(), device, gpu, psns, class })
    }

    /// The card and its port.
    #[cfg(test)]
    pub(in crate::net) fn who(&self) -> String {
        self.device.who()
    }
}

/// What a PE's address says of its card and of its pair for that queue.
fn read(address: &[u8], pe: usize, queue: usize) -> Result<(Address, u32, u32)> {
    let pair = HEAD + queue * EACH;
    if address.len() < pair + EACH || address[0] != VERSION {
        return Err(err!(
            MISMATCH,
            "the card's address of PE {pe} has {} bytes, which this PE cannot read: both need one version of rushmem",
            address.len()
        ));
    }
    let word = |at: usize| u32::from_le_bytes(address[at..at + 4].try_into().expect("four bytes"));
    let card = Address {
        ethernet: address[1] != 0,
        v2: address[2] != 0,
        mtu: address[3],
        lid: u16::from_le_bytes([address[4], address[5]]),
        gid: address[6..HEAD].try_into().expect("sixteen bytes"),
    };
    Ok((card, word(pair), word(pair + 4)))
}

impl NetworkCard for Mlx5Card {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn about(&self) -> String {
        let kind = if self.device.address.ethernet { "Ethernet" } else { "InfiniBand" };
        format!("kernels write requests to {} ({kind})", self.device.who())
    }

    fn needs(&self, slots: usize) -> QueueNeeds {
        QueueNeeds { page: PAGE, completions: slots }
    }

    fn address(&self) -> Vec<u8> {
        let Address { ethernet, v2, mtu, lid, gid } = self.device.address;
        let mut address = vec![VERSION, ethernet.into(), v2.into(), mtu];
        address.extend_from_slice(&lid.to_le_bytes());
        address.extend_from_slice(&gid);
        for (pair, psn) in self.pairs.iter().zip(&self.psns) {
            address.extend_from_slice(&pair.as_ref().map_or(0, |pair| pair.number).to_le_bytes());
            address.extend_from_slice(&psn.to_le_bytes());
        }
        address
    }

    unsafe fn open(
        &mut self,
        area: QueueArea,
        n: usize,
        queues: Vec<Option<QueueMemory>>,
    ) -> Result<Vec<OpenQueue>> {
        // SAFETY: the caller's memory outlives the card, and so this.
        let umem = unsafe { Umem::new(&self.device, area.start, area.bytes) }?;
        // Kept from here on, so that it goes after the pairs where one of them is refused.
        let umem = &*self.umem.insert(umem);
        let mut open = Vec::with_capacity(queues.len());
        for (queue, memory) in queues.into_iter().enumerate() {
            self.psns.push(u32::from_le_bytes(random()?) & 0xff_ffff);
            let pair = memory.map(|QueueMemory { slots, count, record, completion, .. }| {
                // The line of the record has room for the completion queue's, too.
                let cq_record = record.wrapping_add(16);
                CardPair::new(
                    umem,
                    &QueuePlace { slots, count, completions: completion, record, cq_record },
                    queue % n,
                )
            });
            let pair = pair.transpose()?;
            open.push(OpenQueue {
                number: pair.as_ref().map_or(0, |pair| pair.number),
                bell: pair.as_ref().map(CardPair::register),
            });
            self.pairs.push(pair);
        }
        Ok(open)
    }

    fn connect(&mut self, addresses: &[Option<Vec<u8>>]) -> Result<Vec<Option<Error>>> {
        let n = addresses.len();
        // Both ends have as many queues, in one order.
        let to = |queue: usize, address: &[u8], pair: &CardPair| {
            let pe = queue % n;
            let (peer, number, psn) = read(address, pe, queue - pe + self.me)?;
            let mtu = peer.mtu.min(self.device.address.mtu);
            let path = self.device.path_to(&peer)?;
            pair.connect((&path, self.class), mtu, number, [self.psns[queue], psn])
        };
        let one = |pe: usize| {
            let address = addresses[pe].as_deref()?;
            let queues = (pe..self.pairs.len()).step_by(n);
            queues.filter_map(|queue| to(queue, address, self.pairs[queue].as_ref()?).err()).next()
        };
        Ok((0..n).map(one).collect())
    }

    fn updates_words(&self) -> bool {
        self.device.atomics
    }

    unsafe fn register(&mut self, memory: Memory, named: u64, rights: AccessRights) -> Result<RegionKeys> {
        // SAFETY: the caller's memory stays until it is forgotten.
        let registered =
            unsafe { RegisteredMemory::new(&self.device, self.gpu.as_ref(), memory, named, rights) }?;
        let keys = registered.keys();
        self.registered.insert(keys.local, registered);
        Ok(keys)
    }

    fn forget(&mut self, keys: RegionKeys) {
        self.registered.remove(&keys.local);
    }

    // It has no threads: the kernel closes the device.
    fn halt(&self) {}
}
