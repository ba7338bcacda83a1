//! Where a job meets, as far as a rank knows it beforehand.

use std::time::Duration;

use crate::endpoint::Address;
use crate::local::TAG_BYTES;
use crate::names;

/// Where a job meets.
#[derive(Debug, Clone)]
pub(crate) struct MeetingAddress {
    pub(crate) at: Where,
    /// The caller means this host alone.
    pub(crate) loopback: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Where {
    /// There.
    At(Address),
    /// Under a local name with this tag, because of `why`.
    Local { tag: [u8; TAG_BYTES], why: String },
    /// At the first of these ports that was free, on a host given by name or address; `from` says by whom.
    Named { host: String, from: String, ports: Vec<u16> },
}

impl MeetingAddress {
    pub(crate) fn at(addr: Address) -> MeetingAddress {
        let loopback = match addr {
            Address::Net(addr) => addr.ip().is_loopback(),
            Address::Local(_) => true,
        };
        MeetingAddress { at: Where::At(addr), loopback }
    }

    pub(crate) fn named(host: &str, from: &str, ports: Vec<u16>) -> MeetingAddress {
        let at = Where::Named { host: host.into(), from: from.into(), ports };
        MeetingAddress { at, loopback: names::is_loopback(host) }
    }

    /// Whether rank 0 chooses among many ports.
    pub(crate) fn is_list(&self) -> bool {
        matches!(&self.at, Where::Named { ports, .. } if ports.len() > 1)
    }

    /// What to check when no rendezvous was found.
    pub(crate) fn advice(&self) -> &'static str {
        match &self.at {
            Where::Local { .. } => {
                "check that rank 0 runs on this host, as this user and in this network namespace; ranks in \
                 containers with networks of their own must meet over one: set RUSHMEM_UID_IFNAME to an \
                 interface, and RUSHMEM_JOB_SECRET"
            }
            _ => {
                "check that the process that hosts it (the maker of the unique ID, or rank 0) runs and that \
                 this host reaches it"
            }
        }
    }
}

impl std::fmt::Display for MeetingAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Where::At(addr) => write!(f, "{addr}"),
            Where::Local { why, .. } => write!(f, "a socket of this user on this host ({why})"),
            Where::Named { host, ports, .. } => match ports[..] {
                [port] => write!(f, "{host}:{port}"),
                [first, second, ..] => {
                    write!(f, "{host} on any of {} ports ({first}, {second}, …)", ports.len())
                }
                [] => write!(f, "{host}"),
            },
        }
    }
}

/// How long a rank of a job of `n` lets pass between two looks at one place, at most: many ranks that wait
/// for one listener must not be a flood themselves.
pub(crate) fn longest_pause(n: u32) -> Duration {
    Duration::from_millis(50) + n * Duration::from_micros(100)
}
