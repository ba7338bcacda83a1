//! What PEs exchange through the bootstrap before they can reach one another: addresses, and keys to memory.
//! Collective, all PEs or none.

use rushmem_bootstrap_abi::Bootstrap;

use super::queue::links::{all_connected, CardOffer};
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

/// What is done when cards are connected.
const CONNECTING: &str = "connecting the network cards whose queues kernels write";

/// Connects everybody's network cards, whose queues kernels write.
pub(super) fn connect_cards(opened: Result<Queues>, boot: &dyn Bootstrap, me: usize) -> Result<Queues> {
    let what = CONNECTING;
    let (queues, mine) = match opened.map_err(|e| e.context(what)) {
        Ok(queues) => {
            let address = queues.card_address();
            (Some(queues), Ok(address))
        }
        Err(e) => (None, Err(e)),
    };
    let all = exchange(boot, what, mine)?;
    let mut queues = queues.expect("the exchange fails where there are none");
    let all: Vec<Option<Vec<u8>>> = all.into_iter().map(Some).collect();
    // Without the queue to itself cards update no words; all else goes on.
    let connected = queues.connect(&all).and_then(|mut failures| {
        let own = failures.get_mut(me).and_then(Option::take);
        all_connected(failures).map(|()| own.map(|e| e.message))
    });
    exchange(boot, what, connected.as_ref().map(|_| Vec::new()).map_err(Error::clone))?;
    if let Some(own) = connected? {
        let mut why = vec![None; all.len()];
        why[me] = Some(own);
        queues.leave_out(&why)?;
    }
    Ok(queues)
}

/// All PEs have so many queues to each PE, or none starts: each end of a queue counts them alike.
pub(super) fn agree_on_contexts(contexts: usize, boot: &dyn Bootstrap, cards: &[Card]) -> Result<()> {
    let mine = (contexts as u64).to_le_bytes();
    let mut all = vec![0; cards.len() * mine.len()];
    boot.allgather(&mine, &mut all)
        .map_err(|e| Error::from(e).context("agreeing on the number of queues to each PE"))?;
    let Some(pe) = all.chunks_exact(mine.len()).position(|theirs| theirs != mine) else { return Ok(()) };
    let theirs = u64::from_le_bytes(all[pe * mine.len()..][..mine.len()].try_into().expect("eight bytes"));
    Err(err!(
        MISMATCH,
        "this PE has RUSHMEM_QUEUE_CONTEXTS={contexts}, {} has {theirs}: set it alike on all PEs",
        cards[pe].who()
    ))
}

/// Agrees whether cards update words, all PEs or none; `None`: they do. Else which PE's do not, and why.
pub(super) fn agree_on_words(
    queues: &mut std::result::Result<Queues, String>,
    boot: &dyn Bootstrap,
    cards: &[Card],
) -> Result<Option<String>> {
    let mine = match queues {
        Ok(queues) => queues.why_no_words(),
        Err(why) => Some(format!("it has no card: {why}")),
    };
    let offer = mine.map_or(CardOffer::Card(Vec::new()), CardOffer::None);
    let what = "agreeing whether network cards update words";
    let all = exchange(boot, what, Ok(offer.encode()))?;
    for (pe, theirs) in all.iter().enumerate() {
        match CardOffer::decode(theirs, pe)? {
            CardOffer::Card(_) => {}
            CardOffer::None(why) => return Ok(Some(format!("{}: {why}", cards[pe].who()))),
        }
    }
    if let Ok(queues) = queues {
        queues.let_cards_update_words()?;
    }
    Ok(None)
}

/// Connects the network cards that there are. Both ends of a queue come to know of each other's failures, so
/// that they agree on it. Fails where the bootstrap does, and else nowhere. Why this PE has no card, where it
/// has none.
pub(super) fn connect_cards_that_there_are(
    opened: Result<Queues>,
    boot: &dyn Bootstrap,
    me: usize,
) -> Result<std::result::Result<Queues, String>> {
    let offer = match &opened {
        Ok(queues) => CardOffer::Card(queues.card_address()),
        Err(e) => CardOffer::None(e.message.clone()),
    };
    let all = exchange(boot, CONNECTING, Ok(offer.encode()))?;
    let mut addresses = Vec::with_capacity(all.len());
    let mut why: Vec<Option<String>> = Vec::with_capacity(all.len());
    for (pe, theirs) in all.iter().enumerate() {
        let (address, reason) = match CardOffer::decode(theirs, pe) {
            Ok(CardOffer::Card(address)) => (Some(address), None),
            Ok(CardOffer::None(reason)) => (None, Some(format!("that PE has none: {reason}"))),
            Err(e) => (None, Some(e.message)),
        };
        addresses.push(address);
        why.push(reason);
    }
    let mut opened = opened.map_err(|e| e.message);
    if let Ok(queues) = &mut opened {
        match queues.connect(&addresses) {
            Ok(failures) => {
                for (why, failure) in why.iter_mut().zip(failures) {
                    *why = why.take().or(failure.map(|e| e.message));
                }
            }
            Err(e) => why.iter_mut().for_each(|why| *why = why.take().or(Some(e.message.clone()))),
        }
    }
    let connected = why.iter().map(|why| u8::from(opened.is_ok() && why.is_none())).collect();
    let all = exchange(boot, CONNECTING, Ok(connected))?;
    let mut queues = match opened {
        Ok(queues) => queues,
        Err(why) => return Ok(Err(why)),
    };
    for (why, theirs) in why.iter_mut().zip(&all) {
        if theirs.get(me) != Some(&1) {
            let refused =
                "that PE could not connect its card to this PE's: its log says why (RUSHMEM_LOG=info)";
            why.get_or_insert_with(|| refused.to_owned());
        }
    }
    queues.leave_out(&why)?;
    Ok(Ok(queues))
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
        let queue = match engine.queues().filter(|queues| queues.lead_anywhere()) {
            // SAFETY: the caller keeps the memory until it is forgotten.
            Some(queues) => unsafe { queues.register(id, offset, memory) },
            None => Ok(0),
        };
        let queue = match queue {
            Ok(key) => Ok([&[0], &key.to_le_bytes()[..]].concat()),
            // Kernels can do without the card.
            Err(e) if shared.may_lack_queues => {
                log::info!("{}: the card does not take memory for kernels: {e}", shared.health.who());
                Ok(vec![1; 5])
            }
            Err(e) => Err(e),
        };
        let both = key.and_then(|key| Ok((key, queue?)));
        (id, both.map(|(key, queue)| [&(own as u64).to_le_bytes()[..], &queue, &key].concat()))
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
        all.iter().map(|theirs| u32::from_le_bytes(theirs[9..13].try_into().expect("four bytes"))).collect();
    let without_card = all.iter().position(|theirs| theirs[8] != 0);
    let keys: Vec<Vec<u8>> = all.into_iter().map(|theirs| theirs[13..].to_vec()).collect();
    let reachable = keys.iter().map(|key| !key.is_empty()).collect();
    engine.transport().learn_keys(id, keys);
    engine.segments().insert(id, offset, bytes, own, remote, reachable);
    let Some(queues) = engine.queues().filter(|queues| queues.lead_anywhere()) else { return Ok(()) };
    let inserted = match without_card {
        None => queues.insert(id, offset, bytes, &queue_keys),
        Some(pe) => {
            Err(err!(ENVIRONMENT, "the card of PE {pe} did not take it: its log says why (RUSHMEM_LOG=info)"))
        }
    };
    let Err(e) = inserted else { return Ok(()) };
    if !shared.may_lack_queues {
        return Err(e);
    }
    queues.forget(id);
    log::info!("{}: kernels reach {bytes} bytes of symmetric memory by the proxy: {e}", shared.health.who());
    if offset == 0 {
        // Where the probes read that a kernel's quiet posts; nothing was posted yet.
        let why = Some(format!("symmetric memory is not known to the cards: {e}"));
        queues.leave_out(&vec![why; queue_keys.len()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::queue::card::NetworkCard;
    use super::super::queue::emulated::SoftwareCard;
    use super::*;
    use crate::testing::bootstrap::Scripted;
    use crate::topology::card::CARD_BYTES;

    /// What PEs 1 to 3 say in one exchange.
    type Said = [Vec<u8>; 3];

    /// An exchange is two allgathers: lengths, then bytes.
    fn gather(others: &[Said], call: usize, mine: &[u8], out: &mut [u8]) {
        let (own, rest) = out.split_at_mut(mine.len());
        own.copy_from_slice(mine);
        for (theirs, out) in others[call / 2].iter().zip(rest.chunks_exact_mut(mine.len())) {
            let length = (theirs.len() as u64).to_le_bytes();
            let said = if call % 2 == 0 { &length[..] } else { theirs };
            out[..said.len()].copy_from_slice(said);
        }
    }

    /// PE 1 cannot connect to this one, which could; PE 2 has no card; PE 3 can.
    #[test]
    fn a_queue_needs_both_of_its_ends() {
        let card = |me| SoftwareCard::new(me, None, None, 0, None).unwrap();
        let cards = [card(1), card(3)];
        let [one, three] = [0, 1].map(|i| CardOffer::Card(cards[i].address()).encode());
        let none = CardOffer::None("its port is down".into()).encode();
        let meet = |opened| {
            let others = vec![
                [one.clone(), none.clone(), three.clone()],
                [vec![0, 0, 0, 1], vec![0; 4], vec![1, 1, 0, 0]],
            ];
            let boot = Scripted::new(4, move |call, mine, out| gather(&others, call, mine, out));
            let met = connect_cards_that_there_are(opened, &boot, 0).unwrap();
            // Whatever it has, it takes part to the end.
            assert_eq!(boot.calls(), 4);
            met
        };
        let queues = meet(Queues::new(0, 4, (1, 64), None, Box::new(card(0)), Default::default())).unwrap();
        assert_eq!([0, 1, 2, 3].map(|pe| queues.leads_to(pe)), [true, false, false, true]);
        assert!(queues.why_left_out(1).unwrap().contains("that PE could not connect its card to this PE's"));
        assert_eq!(queues.why_left_out(2).unwrap(), "that PE has none: its port is down");
        assert_eq!(queues.why_left_out(3), None);
        let Err(why) = meet(Err(err!(ENVIRONMENT, "no card here"))) else { panic!("it has no card") };
        assert_eq!(why, "no card here");
    }

    #[test]
    fn pes_have_one_number_of_queues_to_each_or_do_not_start() {
        let cards: Vec<Card> = (0..4).map(|pe| Card { pe, ..Card::decode(&[0; CARD_BYTES]) }).collect();
        for (others, says) in [([3u64, 3, 3], None), ([3, 64, 1], Some((2, 64))), ([1, 3, 3], Some((1, 1)))] {
            let boot = Scripted::new(4, move |_, mine, out| {
                let all = [&mine.to_vec()[..], &others.map(u64::to_le_bytes).concat()].concat();
                out.copy_from_slice(&all);
            });
            let agreed = agree_on_contexts(3, &boot, &cards);
            let Some((pe, theirs)) = says else {
                agreed.unwrap();
                continue;
            };
            let why = agreed.unwrap_err().message;
            assert!(why.starts_with("this PE has RUSHMEM_QUEUE_CONTEXTS=3, "), "{why}");
            let ends = format!("{} has {theirs}: set it alike on all PEs", cards[pe].who());
            assert!(why.ends_with(&ends), "{why}");
        }
    }

    /// Cards update words where every PE's could.
    #[test]
    fn cards_update_words_on_all_pes_or_on_none() {
        let cards: Vec<Card> = (0..4).map(|pe| Card { pe, ..Card::decode(&[0; CARD_BYTES]) }).collect();
        let can = || CardOffer::Card(Vec::new()).encode();
        let cannot = || CardOffer::None("it is old".into()).encode();
        let new = || {
            let card = SoftwareCard::new(0, None, None, 0, None).unwrap();
            Ok(Queues::new(0, 4, (1, 64), None, Box::new(card), Default::default()).unwrap())
        };
        for (others, mut mine, says) in [
            ([can(), can(), can()], new(), None),
            ([can(), cannot(), can()], new(), Some("it is old")),
            ([can(), can(), can()], Err("none here".to_owned()), Some("it has no card: none here")),
        ] {
            let boot = Scripted::new(4, move |call, mine, out| {
                gather(std::slice::from_ref(&others), call, mine, out)
            });
            let why = agree_on_words(&mut mine, &boot, &cards).unwrap();
            assert_eq!(boot.calls(), 2);
            assert_eq!(why.is_none(), says.is_none(), "{why:?}");
            assert!(says.is_none_or(|says| why.unwrap().ends_with(&format!(": {says}"))));
            assert_eq!(mine.is_ok_and(|queues| queues.cards_update_words()), says.is_none());
        }
    }
}
