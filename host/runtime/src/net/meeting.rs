//! What PEs exchange through the bootstrap before they can reach one another: addresses, and keys to memory.
//! Collective, all PEs or none.

use rushmem_bootstrap_abi::Bootstrap;

use super::queue::Queues;
use super::Shared;
use crate::error::{err, Error, Result};
use crate::memory::remote::Backed;
use crate::net::transport::ucx::listen::Listen;
use crate::net::transport::{Memory, Transport};
use crate::topology::card::Card;

/// Of a PE that could not.
const FAILED: u64 = u64::MAX;

/// Everybody gets everybody's bytes, however many. A PE that has an error instead lets the call fail
/// everywhere; its own error stays the reason there.
fn exchange(boot: &dyn Bootstrap, what: &str, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let n = boot.n_ranks() as usize;
    let context = |e| Error::from(e).context(what);
    let length = mine.as_ref().map_or(FAILED, |bytes| bytes.len() as u64);
    let mut lengths = vec![0; n * 8];
    boot.allgather(&length.to_le_bytes(), &mut lengths).map_err(context)?;
    let lengths: Vec<u64> = lengths
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let mut mine = mine?;
    if let Some(pe) = lengths.iter().position(|length| *length == FAILED) {
        return Err(err!(
            ENVIRONMENT,
            "{what}: PE {pe} failed (its own error says why), so it failed everywhere"
        ));
    }
    let most = lengths.iter().copied().max().unwrap_or(0) as usize;
    mine.resize(most, 0);
    let mut all = vec![0; n * most];
    boot.allgather(&mine, &mut all).map_err(context)?;
    Ok((0..n).map(|pe| all[pe * most..][..lengths[pe] as usize].to_vec()).collect())
}

/// Where a network has to listen for the PEs of these cards: where they have met, unless
/// `RUSHMEM_UID_IFNAME` names another interface.
pub(super) fn where_to_listen(cards: &[Card], boot: &dyn Bootstrap) -> Listen {
    if cards.windows(2).all(|two| two[0].real_host() == two[1].real_host()) {
        return Listen::Loopback;
    }
    let chosen = rushmem_bootstrap_uid::interface_from_env();
    let mut names = chosen.map_or_else(Vec::new, |ifname| rushmem_bootstrap_uid::interfaces_named(&ifname));
    if names.is_empty() {
        names = boot.interfaces();
    }
    if names.is_empty() {
        Listen::Anywhere
    } else {
        Listen::Interfaces(names)
    }
}

/// Everybody's addresses. The transports must be of one kind.
pub(super) fn introduce(
    opened: Result<Box<dyn Transport>>,
    boot: &dyn Bootstrap,
    cards: &[Card],
) -> Result<Box<dyn Transport>> {
    let mine = opened.and_then(|transport| {
        let mut own = vec![transport.name().len() as u8];
        own.extend_from_slice(transport.name().as_bytes());
        own.extend_from_slice(&transport.address()?);
        Ok((transport, own))
    });
    let (transport, own) = match mine {
        Ok((transport, own)) => (Some(transport), Ok(own)),
        Err(e) => (None, Err(e.context("opening the network for PEs on other hosts"))),
    };
    let all = exchange(boot, "meeting PEs on other hosts", own)?;
    let mut transport = transport.expect("the exchange fails where there is none");
    let name = |own: &[u8]| {
        let length = own.first().copied().unwrap_or(0) as usize;
        String::from_utf8_lossy(own.get(1..1 + length).unwrap_or(&[])).into_owned()
    };
    if let Some(other) = all.iter().position(|theirs| name(theirs) != transport.name()) {
        return Err(err!(
            MISMATCH,
            "this PE uses the transport {}, {} uses {}: set RUSHMEM_TRANSPORT alike",
            transport.name(),
            cards[other].who(),
            name(&all[other])
        ));
    }
    let length = 1 + transport.name().len();
    transport.learn_addresses(all.into_iter().map(|theirs| theirs[length..].to_vec()).collect());
    Ok(transport)
}

/// Connects everybody's network cards, whose queues kernels write.
pub(super) fn connect_cards(opened: Result<Queues>, boot: &dyn Bootstrap) -> Result<Queues> {
    let what = "connecting the network cards whose queues kernels write";
    let (queues, mine) = match opened.map_err(|e| e.context(what)) {
        Ok(queues) => {
            let address = queues.card_address();
            (Some(queues), Ok(address))
        }
        Err(e) => (None, Err(e)),
    };
    let all = exchange(boot, what, mine)?;
    let mut queues = queues.expect("the exchange fails where there are none");
    let connected = queues.connect(&all).map(|()| Vec::new());
    exchange(boot, what, connected)?;
    Ok(queues)
}

/// See [`RemoteMemory::add`](crate::memory::remote::RemoteMemory::add).
///
/// # Safety
/// As there.
pub(super) unsafe fn add(
    shared: &Shared,
    boot: &dyn Bootstrap,
    offset: usize,
    bytes: usize,
    own: usize,
    kind: Backed,
) -> Result<()> {
    let (id, mine) = {
        let _current = shared.current()?;
        let mut engine = shared.lock();
        let memory =
            Memory { address: own, bytes, gpu: kind != Backed::Host, single: kind != Backed::GpuPieces };
        let id = engine.segments().new_id();
        // SAFETY: the caller keeps the memory until it is forgotten.
        let key = unsafe { engine.transport().register(id, memory) };
        let queue = match engine.queues() {
            // SAFETY: the caller keeps the memory until it is forgotten.
            Some(queues) => unsafe { queues.register(id, offset, memory) },
            None => Ok(0),
        };
        let both = key.and_then(|key| Ok((key, queue?)));
        (id, both.map(|(key, queue)| [&(own as u64).to_le_bytes()[..], &queue.to_le_bytes(), &key].concat()))
    };
    let mine = mine.map_err(|e| e.context("making memory known to PEs on other hosts"));
    let all = exchange(boot, "making memory known to PEs on other hosts", mine);
    let mut engine = shared.lock();
    let all = match all {
        Ok(all) => all,
        Err(e) => {
            engine.transport().forget(id);
            if let Some(queues) = engine.queues() {
                queues.forget(id);
            }
            return Err(e);
        }
    };
    let remote =
        all.iter().map(|theirs| u64::from_le_bytes(theirs[..8].try_into().expect("eight bytes"))).collect();
    let queue_keys: Vec<u32> =
        all.iter().map(|theirs| u32::from_le_bytes(theirs[8..12].try_into().expect("four bytes"))).collect();
    let keys: Vec<Vec<u8>> = all.into_iter().map(|theirs| theirs[12..].to_vec()).collect();
    let reachable = keys.iter().map(|key| !key.is_empty()).collect();
    engine.transport().learn_keys(id, keys);
    engine.segments().insert(id, offset, bytes, own, remote, reachable);
    engine.queues().map_or(Ok(()), |queues| queues.insert(id, offset, bytes, &queue_keys))
}
