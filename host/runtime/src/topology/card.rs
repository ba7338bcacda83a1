//! A PE's card: what every PE tells every other at start, as one fixed-size blob through the bootstrap.
//!
//! PEs with the same boot ID and network namespace are on one *node*: they can reach each other's abstract
//! Unix sockets and so map each other's memory. A network namespace of its own therefore counts as another
//! host.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

use crate::config::{Config, TransportWish};
use crate::device::DeviceKind;
use crate::error::{err, Error, Result};
use rushmem_abi::c::RUSHMEM_ABI_VERSION;

const HOST_BYTES: usize = 64;
const NODE_BYTES: usize = 48;
/// Bytes of a card on the wire: in every version the same, with `abi`, `pe` and `pid` at its start and the
/// host's name at its end, so that PEs of different versions can tell each other apart. What has no room here
/// takes a round of its own.
pub(crate) const CARD_BYTES: usize = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 16 + 16 + NODE_BYTES + HOST_BYTES;
const _: () = assert!(CARD_BYTES == 188);

/// What one PE tells the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) abi: u32,
    pub(crate) pe: u32,
    pub(crate) pid: u32,
    /// The kind of its device.
    pub(crate) device: u32,
    /// What it asks of the way to others, a [`TransportWish`].
    pub(crate) transport: u32,
    /// Tells processes apart where pid namespaces give several the same number.
    pub(crate) process: u64,
    pub(crate) heap_max: u64,
    pub(crate) heap_min: u64,
    /// Name of this PE's abstract socket.
    pub(crate) link: [u8; 16],
    /// What a connection to it must show.
    pub(crate) secret: [u8; 16],
    /// Equal for PEs of one node.
    pub(crate) node: String,
    pub(crate) host: String,
}

impl Card {
    /// This PE's card.
    pub(crate) fn mine(config: &Config, pe: u32, device: DeviceKind) -> Result<Card> {
        Ok(Card {
            abi: RUSHMEM_ABI_VERSION,
            pe,
            pid: std::process::id(),
            device: device as u32,
            transport: config.transport as u32,
            process: process_id(),
            heap_max: config.heap_max,
            heap_min: config.heap_min,
            link: random()?,
            secret: random()?,
            node: node_id(config.placement.part(pe))?,
            host: host_name(),
        })
    }

    pub(crate) fn encode(&self) -> [u8; CARD_BYTES] {
        let mut out = [0u8; CARD_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8], width: usize| {
            let n = bytes.len().min(width);
            out[at..at + n].copy_from_slice(&bytes[..n]);
            at += width;
        };
        put(&self.abi.to_le_bytes(), 4);
        put(&self.pe.to_le_bytes(), 4);
        put(&self.pid.to_le_bytes(), 4);
        put(&self.device.to_le_bytes(), 4);
        put(&self.transport.to_le_bytes(), 4);
        put(&self.process.to_le_bytes(), 8);
        put(&self.heap_max.to_le_bytes(), 8);
        put(&self.heap_min.to_le_bytes(), 8);
        put(&self.link, 16);
        put(&self.secret, 16);
        put(self.node.as_bytes(), NODE_BYTES);
        put(self.host.as_bytes(), HOST_BYTES);
        out
    }

    pub(crate) fn decode(bytes: &[u8; CARD_BYTES]) -> Card {
        let mut at = 0;
        let mut take = |width: usize| {
            at += width;
            &bytes[at - width..at]
        };
        let text = |b: &[u8]| String::from_utf8_lossy(b.split(|c| *c == 0).next().unwrap_or(b)).into_owned();
        let fixed = "the width is the array's";
        Card {
            abi: u32::from_le_bytes(take(4).try_into().expect(fixed)),
            pe: u32::from_le_bytes(take(4).try_into().expect(fixed)),
            pid: u32::from_le_bytes(take(4).try_into().expect(fixed)),
            device: u32::from_le_bytes(take(4).try_into().expect(fixed)),
            transport: u32::from_le_bytes(take(4).try_into().expect(fixed)),
            process: u64::from_le_bytes(take(8).try_into().expect(fixed)),
            heap_max: u64::from_le_bytes(take(8).try_into().expect(fixed)),
            heap_min: u64::from_le_bytes(take(8).try_into().expect(fixed)),
            link: take(16).try_into().expect(fixed),
            secret: take(16).try_into().expect(fixed),
            node: text(take(NODE_BYTES)),
            host: text(take(HOST_BYTES)),
        }
    }

    /// Its node, without the part of it that the settings made.
    pub(crate) fn real_host(&self) -> &str {
        self.node.split('/').next().unwrap_or_default()
    }

    /// `PE 2 (host gpu01, pid 4711)`.
    pub(crate) fn who(&self) -> String {
        format!("PE {} (host {}, pid {})", self.pe, self.host, self.pid)
    }
}

/// Refuses a job whose PEs run different libraries or ask for different heaps.
pub(crate) fn check_agreement(cards: &[Card]) -> Result<()> {
    let first = &cards[0];
    // First of all: what a card of another version says beside that may mean something else.
    if let Some(card) = cards.iter().find(|card| card.abi != first.abi) {
        return Err(err!(
            VERSION,
            "{} runs rushmem with ABI version {}, {} with {}: use one librushmem_host.so in the whole job",
            first.who(),
            first.abi,
            card.who(),
            card.abi
        ));
    }
    for card in cards {
        let pe = card.pe;
        if card.device != first.device {
            return Err(err!(
                MISMATCH,
                "PE 0 on {} has {} as its device, PE {pe} on {} has {}: set RUSHMEM_DEVICE alike (cpu, or cuda where every \
                 PE sees a GPU)",
                first.host,
                DeviceKind::name(first.device),
                card.host,
                DeviceKind::name(card.device)
            ));
        }
        if card.transport != first.transport {
            return Err(err!(
                MISMATCH,
                "the ways to other PEs differ: RUSHMEM_TRANSPORT={} on PE 0 ({}), {} on PE {pe} ({}); set RUSHMEM_TRANSPORT \
                 alike",
                TransportWish::name(first.transport),
                first.host,
                TransportWish::name(card.transport),
                card.host
            ));
        }
        if card.transport == TransportWish::Fake as u32 && card.process != first.process {
            return Err(err!(
                UNSUPPORTED,
                "RUSHMEM_TRANSPORT=fake is a network within one process, and PE {pe} is in another one than PE 0: run the PEs as \
                 threads (rushmem::testing::threads), or take ucx"
            ));
        }
        for (what, name, ours, theirs) in [
            ("limit", "RUSHMEM_HEAP_MAX", first.heap_max, card.heap_max),
            ("first memory", "RUSHMEM_HEAP_MIN", first.heap_min, card.heap_min),
        ] {
            if ours != theirs {
                return Err(err!(
                    MISMATCH,
                    "the heap's {what} differs: {ours} bytes on PE 0, {theirs} on PE {pe} ({}); set {name} alike",
                    card.host
                ));
            }
        }
    }
    Ok(())
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut out = [0u8; N];
    getrandom::fill(&mut out).map_err(|e| err!(IO, "no random bytes from the system: {e}"))?;
    Ok(out)
}

/// Equal for all processes that can reach each other's abstract sockets, and belong to the same `part` of the
/// host.
fn node_id(part: Option<u32>) -> Result<String> {
    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    let boot = match std::fs::read_to_string(BOOT_ID) {
        Ok(boot) => boot,
        // A container may hide it. Of a process that is short of descriptors it would make another node.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => String::new(),
        Err(e) => return Err(Error::io(BOOT_ID, &e)),
    };
    let net = std::fs::metadata("/proc/self/ns/net").map(|m| m.ino()).unwrap_or(0);
    let boot: String = boot.trim().chars().filter(|c| *c != '-').collect();
    if boot.is_empty() && net == 0 {
        return Err(err!(
            IO,
            "neither /proc/sys/kernel/random/boot_id nor /proc/self/ns/net can be read; mount /proc"
        ));
    }
    let part = part.map_or_else(String::new, |part| format!("/{part:x}"));
    Ok(format!("{boot}{net:x}{part}"))
}

/// A number that no other process of this node has: pids repeat in pid namespaces.
fn process_id() -> u64 {
    use std::sync::OnceLock;
    static ID: OnceLock<u64> = OnceLock::new();
    let random = *ID.get_or_init(|| random::<8>().map(u64::from_le_bytes).unwrap_or(0));
    // Stays right after a fork, which copies the static.
    random ^ u64::from(std::process::id())
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|s| s.trim().to_string())
        .ok()
        .filter(|s| !s.is_empty())
        .unwrap_or_else(|| "unknown".into())
}

/// How many PEs of `me`'s host come before it, virtual nodes of the host taken together: they share its GPUs.
pub(crate) fn host_index(cards: &[Card], me: usize) -> usize {
    cards[..me].iter().filter(|card| card.real_host() == cards[me].real_host()).count()
}

/// Why `other`, on another node, is not among the PEs whose memory `mine` could map.
pub(crate) fn why_apart(mine: &Card, other: &Card) -> &'static str {
    if mine.real_host() != other.real_host() {
        "on another host, or in another network namespace"
    } else {
        "on this host, which RUSHMEM_PES_PER_NODE or RUSHMEM_NODES divides between them"
    }
}

/// All PEs' cards, exchanged through the bootstrap; checked to agree.
pub(crate) fn exchange(boot: &dyn rushmem_bootstrap_abi::Bootstrap, mine: &Card) -> Result<Vec<Card>> {
    let n = boot.n_ranks() as usize;
    let mut all = vec![0u8; n * CARD_BYTES];
    boot.allgather(&mine.encode(), &mut all)
        .map_err(|e| Error::from(e).context("exchanging who runs where through the bootstrap"))?;
    let cards: Vec<Card> =
        all.chunks_exact(CARD_BYTES).map(|c| Card::decode(c.try_into().expect("chunks are exact"))).collect();
    check_agreement(&cards)?;
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bootstrap::Scripted;
    use crate::topology::nodes::Nodes;

    #[test]
    fn a_card_survives_the_wire() {
        let mut card = Card::mine(&Config::from_lookup(&|_| None).unwrap(), 7, DeviceKind::Cpu).unwrap();
        assert_eq!(Card::decode(&card.encode()), card);
        card.host = "h".repeat(200);
        assert_eq!(Card::decode(&card.encode()).host, "h".repeat(HOST_BYTES), "a long name is cut, not lost");
    }

    #[test]
    fn settings_divide_a_host() {
        for (name, value, leaders) in
            [("RUSHMEM_PES_PER_NODE", "2", [0, 2, 4]), ("RUSHMEM_NODES", "0,1,1,0,2", [0, 1, 4])]
        {
            let config = Config::from_lookup(&|n| (n == name).then(|| value.into())).unwrap();
            let cards: Vec<Card> =
                (0..5).map(|pe| Card::mine(&config, pe, DeviceKind::Cpu).unwrap()).collect();
            assert_eq!(Nodes::new(&cards).leaders().collect::<Vec<_>>(), leaders);
            assert_eq!([0, 1, 2, 3, 4].map(|me| host_index(&cards, me)), [0, 1, 2, 3, 4]);
            assert_eq!(Card::decode(&cards[4].encode()), cards[4]);
            assert!(why_apart(&cards[0], &cards[4]).contains(name));
        }
        let card = Card::mine(&Config::from_lookup(&|_| None).unwrap(), 0, DeviceKind::Cpu).unwrap();
        let other = Card { node: "elsewhere".into(), ..card.clone() };
        assert!(why_apart(&card, &other).contains("another host"));
    }

    /// PE 2 is of the version before this one, whose cards begin with `abi`, `pe` and `pid` and end with the
    /// host's name; what lies between may be anything.
    #[test]
    fn a_pe_of_another_version_is_named_with_both_versions() {
        let config = Config::from_lookup(&|_| None).unwrap();
        let ours: Vec<Card> = (0..2).map(|pe| Card::mine(&config, pe, DeviceKind::Cpu).unwrap()).collect();
        let mut theirs = [0xff; CARD_BYTES];
        let head = [RUSHMEM_ABI_VERSION - 1, 2, 4711].map(u32::to_le_bytes).concat();
        theirs[..head.len()].copy_from_slice(&head);
        theirs[CARD_BYTES - HOST_BYTES..].fill(0);
        theirs[CARD_BYTES - HOST_BYTES..][..5].copy_from_slice(b"gpu07");
        // PE 1 differs in another setting, which the error does not name: the version comes first.
        let other = Card { heap_max: 1 << 20, ..ours[1].clone() };
        let all: Vec<u8> = ours[0].encode().into_iter().chain(other.encode()).chain(theirs).collect();
        let boot = Scripted::new(3, |_, _, out| out.copy_from_slice(&all));
        let e = exchange(&boot, &ours[0]).unwrap_err();
        assert_eq!(e.code, crate::error::code::VERSION);
        let (mine, old) = (RUSHMEM_ABI_VERSION, RUSHMEM_ABI_VERSION - 1);
        for part in [
            ours[0].who(),
            format!("ABI version {mine},"),
            "PE 2 (host gpu07, pid 4711)".into(),
            format!("with {old}:"),
        ] {
            assert!(e.message.contains(&part), "{part} is not in: {e}");
        }
    }

    #[test]
    fn disagreement_names_the_pe() {
        let a = Card::mine(&Config::from_lookup(&|_| None).unwrap(), 7, DeviceKind::Cpu).unwrap();
        let mut b = a.clone();
        b.pe = 2;
        b.heap_max /= 2;
        let e = check_agreement(&[a.clone(), a.clone(), b.clone()]).unwrap_err();
        assert!(e.message.contains("PE 2"), "{e}");
        (b.heap_max, b.device) = (a.heap_max, DeviceKind::Cuda as u32);
        let e = check_agreement(&[a.clone(), b.clone()]).unwrap_err();
        assert!(e.message.contains("PE 2") && e.message.contains("a GPU"), "{e}");
        (b.device, b.transport) = (a.device, TransportWish::Ucx as u32);
        let e = check_agreement(&[a.clone(), b]).unwrap_err();
        assert!(e.message.contains("=auto on PE 0") && e.message.contains("ucx on PE 2"), "{e}");
        b = Card { pe: 2, heap_min: 1 << 20, ..a.clone() };
        let e = check_agreement(&[a, b]).unwrap_err();
        assert!(e.message.contains("PE 2") && e.message.contains("RUSHMEM_HEAP_MIN"), "{e}");
    }
}
