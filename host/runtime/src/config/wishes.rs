//! What settings may ask for: a device, a way to other PEs, and how that way is to work.

use crate::error::{err, Result};

/// Which device a PE is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceWish {
    /// A GPU where the machine has one, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU: this one of those that the process sees, or rushmem's choice.
    Cuda(Option<usize>),
}

/// Which way leads to other PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportWish {
    /// Mapped where memory can be mapped, else the network.
    Auto,
    /// Mapped, or an error at start.
    Direct,
    /// The network, also to PEs whose memory could be mapped.
    Ucx,
    /// A network within this process that delays and reorders, to find out what a program depends on.
    Fake,
    /// The network, and for kernels queues of a software card, which they write themselves: for tests.
    QueueEmulated,
    /// The network, and for kernels queues of an mlx5 card.
    Queue,
    /// The same; by the network where one of two PEs has no such card.
    QueueUcx,
    /// Mapped where memory can be mapped, else as [`TransportWish::QueueUcx`].
    DirectQueueUcx,
}

impl TransportWish {
    const NAMES: [(&'static str, TransportWish); 8] = [
        ("auto", TransportWish::Auto),
        ("direct", TransportWish::Direct),
        ("ucx", TransportWish::Ucx),
        ("fake", TransportWish::Fake),
        ("queue-emulated", TransportWish::QueueEmulated),
        ("queue", TransportWish::Queue),
        ("queue,ucx", TransportWish::QueueUcx),
        ("direct,queue,ucx", TransportWish::DirectQueueUcx),
    ];

    pub(crate) fn parse(text: &str) -> Result<TransportWish> {
        let said: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let known = Self::NAMES.iter().find(|(name, _)| said.eq_ignore_ascii_case(name));
        known.map(|(_, wish)| *wish).ok_or_else(|| {
            err!(
                ENVIRONMENT,
                "RUSHMEM_TRANSPORT={text}: expected auto, direct, ucx, fake, queue, queue-emulated, or one of the lists \
                 queue,ucx and direct,queue,ucx, of which each PE is reached by the first that leads there"
            )
        })
    }

    /// Kernels are to write queues of a card.
    pub(crate) fn has_queues(self) -> bool {
        matches!(self, TransportWish::Queue | TransportWish::QueueEmulated) || self.may_lack_queues()
    }

    /// Where no queue leads to a PE, kernels are to reach it by the network.
    pub(crate) fn may_lack_queues(self) -> bool {
        matches!(self, TransportWish::QueueUcx | TransportWish::DirectQueueUcx)
    }

    /// How the wish of that number is written.
    pub(crate) fn name(number: u32) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, wish)| *wish as u32 == number);
        known.map_or("of another version", |(name, _)| name)
    }
}

/// Whether the PEs of a node map each other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappingWish {
    /// Where it is possible; else the network.
    Wanted,
    /// All of it, or an error.
    Needed,
    /// Not even where it is possible, as this setting asks for the network.
    Refused(&'static str),
}

/// How bulk gets into and out of the GPU's memory of PEs that are not mapped (`RUSHMEM_FAR_GPU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FarGpu {
    /// Through staging buffers: between two H200s, over tcp, they move two to three times what UCX 1.22 does
    /// (docs/far.md). Over an RDMA network neither has been measured.
    #[default]
    Auto,
    /// Through staging buffers in pinned memory.
    Bounce,
    /// By UCX, or an error at start.
    Ucx,
}

impl FarGpu {
    /// What `RUSHMEM_FAR_GPU` says.
    pub(crate) fn parse(text: &str) -> Result<FarGpu> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(FarGpu::Auto),
            "bounce" => Ok(FarGpu::Bounce),
            "ucx" => Ok(FarGpu::Ucx),
            _ => Err(err!(ENVIRONMENT, "RUSHMEM_FAR_GPU={text}: expected auto, bounce or ucx")),
        }
    }
}

/// Who is to carry copies (`RUSHMEM_FAR_COPIES`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Carrier {
    /// The network where it can, else rushmem.
    #[default]
    Auto,
    /// UCX, on any network: for tests, and for networks that rushmem does not know to be able.
    Ucx,
    /// Rushmem's own messages.
    Messages,
}

impl Carrier {
    /// What `RUSHMEM_FAR_COPIES` says.
    pub(crate) fn parse(text: &str) -> Result<Carrier> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Carrier::Auto),
            "ucx" => Ok(Carrier::Ucx),
            "messages" => Ok(Carrier::Messages),
            _ => Err(err!(ENVIRONMENT, "RUSHMEM_FAR_COPIES={text}: expected auto, ucx or messages")),
        }
    }
}

/// Who rings a network card's doorbells for kernels (`RUSHMEM_DOORBELL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ringer {
    /// Kernels, if their device reaches the registers; else the proxy thread.
    #[default]
    Auto,
    /// Kernels, or an error at start.
    Kernels,
    /// The proxy thread.
    Proxy,
}

impl Ringer {
    pub(crate) fn parse(text: &str) -> Result<Ringer> {
        match text.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Ringer::Auto),
            "kernel" => Ok(Ringer::Kernels),
            "proxy" => Ok(Ringer::Proxy),
            _ => Err(err!(ENVIRONMENT, "RUSHMEM_DOORBELL={text}: expected auto, kernel or proxy")),
        }
    }
}

/// What switches tell a card's packets by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PacketClass {
    /// The traffic class of RoCE (`RUSHMEM_CARD_TC`): DSCP, and two bits for congestion.
    pub(crate) traffic: u8,
    /// InfiniBand's service level, RoCE's priority (`RUSHMEM_CARD_SL`).
    pub(crate) level: u8,
}

impl PacketClass {
    /// Of the variables' texts.
    pub(crate) fn parse(traffic: Option<&str>, level: Option<&str>) -> Result<PacketClass> {
        let number = |name: &str, text: Option<&str>, most: u8| {
            let Some(text) = text else { return Ok(0) };
            let number = text.trim().parse().ok().filter(|n| *n <= most);
            number.ok_or_else(|| err!(ENVIRONMENT, "{name}={text}: expected a number from 0 to {most}"))
        };
        Ok(PacketClass {
            traffic: number("RUSHMEM_CARD_TC", traffic, 255)?,
            level: number("RUSHMEM_CARD_SL", level, 15)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_names_and_two_lists() {
        for (name, wish) in TransportWish::NAMES {
            assert_eq!(TransportWish::parse(name).unwrap(), wish);
            assert_eq!(TransportWish::name(wish as u32), name);
        }
        assert_eq!(TransportWish::parse(" Queue, UCX ").unwrap(), TransportWish::QueueUcx);
        for text in ["queue,", "ucx,queue", "queue,fake", "direct,queue", ","] {
            let error = TransportWish::parse(text).unwrap_err().message;
            assert!(error.contains("direct,queue,ucx"), "{error}");
        }
    }

    #[test]
    fn carriers() {
        assert_eq!(Carrier::parse(" Messages ").unwrap(), Carrier::Messages);
        assert!(Carrier::parse("rdma").unwrap_err().message.contains("RUSHMEM_FAR_COPIES=rdma"));
    }

    #[test]
    fn classes_of_packets() {
        assert_eq!(PacketClass::parse(None, None).unwrap(), PacketClass::default());
        let class = PacketClass::parse(Some("106"), Some(" 15")).unwrap();
        assert_eq!(class, PacketClass { traffic: 106, level: 15 });
        for (traffic, level, says) in [
            ("256", "0", "RUSHMEM_CARD_TC=256: expected a number from 0 to 255"),
            ("-1", "0", "RUSHMEM_CARD_TC=-1"),
            ("0", "16", "RUSHMEM_CARD_SL=16: expected a number from 0 to 15"),
        ] {
            let error = PacketClass::parse(Some(traffic), Some(level)).unwrap_err().message;
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn ringers() {
        for (text, ringer) in
            [("auto", Ringer::Auto), (" Kernel ", Ringer::Kernels), ("proxy", Ringer::Proxy)]
        {
            assert_eq!(Ringer::parse(text).unwrap(), ringer);
        }
        assert!(Ringer::parse("gpu").unwrap_err().message.contains("RUSHMEM_DOORBELL=gpu: expected auto"));
    }
}
