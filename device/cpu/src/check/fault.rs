//! Faults of one access or of one call, for their texts: where memory is used that must not be, or a call is
//! made as it must not be.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::actor::{Access, Seen, Spot};
use super::allocations::{Allocation, Outside};
use super::calls::{Asked, Call};
use super::clock::Strand;
use super::findings;
use super::report;
use super::world::World;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Symmetric memory that is not in a live allocation.
    Outside(Outside),
    /// Beside shared memory: dynamic, or a variable's; how far past its end, or before its beginning.
    PastShared { name: Option<String>, size: usize, past: isize },
    /// Beside a `__device__`, `__constant__` or static variable, likewise.
    PastGlobal { name: String, size: usize, past: isize },
    /// Shared memory that the block has not written.
    Unwritten { name: Option<String>, offset: usize },
    /// A word that is not on its natural alignment.
    Misaligned,
    /// A collective call that another member of the team makes otherwise.
    Unequal { mine: Asked, other: Call },
    /// A shuffle from a lane that is not in the mask, or has exited.
    Shuffle { mask: u32, source: u32 },
    /// A call that not all of its scope make together: which, and who is missing.
    Scope(String),
}

/// A fault, and whose.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    who: Seen,
    pub(crate) site: u32,
    spot: Spot,
    bytes: usize,
    pub(crate) what: What,
}

impl What {
    /// Its kind.
    pub(crate) fn head(&self) -> &'static str {
        match self {
            What::Outside(Outside::Freed(_)) => "use after free",
            What::Outside(_) | What::PastShared { .. } | What::PastGlobal { .. } => "out of bounds",
            What::Unwritten { .. } => "read of memory that was never written",
            What::Misaligned => "misaligned word",
            What::Unequal { .. } => "a collective call with unequal arguments",
            What::Shuffle { .. } => "a shuffle from a lane that takes no part in it",
            What::Scope(_) => "not all threads of a scope make a call together",
        }
    }
}

impl Fault {
    pub(crate) fn of(strand: Strand, site: u32, spot: Spot, access: &Access, what: What) -> Fault {
        let who =
            Seen { strand, site, clock: 0, write: access.write, atomic: access.atomic, unordered: false };
        Fault { who, site, spot, bytes: access.bytes, what }
    }

    /// Reports it, unless one of its kind and line was reported before.
    pub(crate) fn say(&self, world: &Arc<World>) {
        let (line, head) = (report::line(world, self.site), self.what.head());
        if !world.segment.is_new(xxh3_64(format!("{head} {line}").as_bytes())) {
            return;
        }
        let s = if self.bytes == 1 { "" } else { "s" };
        let text = match &self.what {
            What::Unequal { mine, other } => {
                let seen = Seen { strand: other.strand, site: other.site, ..self.who };
                let there = report::line(world, other.site);
                let (one, two) = (report::who(world, &line, &self.who), report::who(world, &there, &seen));
                let [mine, other] = [*mine, other.asked].map(|asked| arguments(&asked));
                format!("{head}\n  {one}: {mine}\n  {two}: {other}")
            }
            What::Shuffle { mask, source } => {
                let why =
                    if mask >> source & 1 == 0 { "which the mask has not" } else { "which is not there" };
                let who = report::who(world, &line, &self.who);
                format!("{head}\n  {who}: of lane {source}, {why}, with mask {mask:#010x}: its value is undefined")
            }
            What::Scope(text) => format!("{head}\n  {}: {text}", report::who(world, &line, &self.who)),
            _ => format!(
                "{head}\n  {} {} byte{s}\n  {}",
                report::access(world, &line, &self.who),
                self.bytes,
                self.memory(world)
            ),
        };
        findings::say(text);
    }

    fn memory(&self, world: &World) -> String {
        let shared = |name: &Option<String>, size: Option<usize>| match (name, size) {
            (Some(name), Some(size)) => format!("the shared variable `{name}` of {size} bytes"),
            (Some(name), None) => format!("the shared variable `{name}`"),
            (None, Some(0)) => "dynamic shared memory, of which the launch gave none".into(),
            (None, Some(size)) => format!("dynamic shared memory, of which the launch gave {size} bytes"),
            (None, None) => "dynamic shared memory".into(),
        };
        match &self.what {
            What::PastShared { name, size, past } => self.beside(*past, &shared(name, Some(*size))),
            What::PastGlobal { name, size, past } => {
                self.beside(*past, &format!("the variable `{name}` of {size} bytes"))
            }
            What::Unwritten { name, offset } => {
                format!("offset {offset} of {}; no thread of the block has written it", shared(name, None))
            }
            What::Outside(outside) => {
                format!("{}: {}", report::place(world, self.spot), self.outside(world, outside))
            }
            What::Misaligned => {
                let text = report::place(world, self.spot);
                format!("{text}: not a multiple of the word's size, and so not atomic; GPUs fail")
            }
            What::Scope(_) | What::Shuffle { .. } | What::Unequal { .. } => String::new(),
        }
    }

    /// How an access lies to what it is beside.
    fn beside(&self, past: isize, what: &str) -> String {
        match past {
            0 => format!("it begins at the end of {what}"),
            1.. => format!("it begins {past} bytes past the end of {what}"),
            _ if past.unsigned_abs() < self.bytes => format!("it runs over an end of {what}"),
            _ => format!("it begins {} bytes before {what}", past.unsigned_abs()),
        }
    }

    fn outside(&self, world: &World, outside: &Outside) -> String {
        let at = self.spot.at;
        let end = |of: &Allocation| of.offset + of.bytes;
        match outside {
            Outside::Past(of) => {
                let over = at + self.bytes - end(of);
                format!("it runs {over} bytes over the end of {}", allocation(world, of))
            }
            Outside::Freed(of) => {
                let by = report::line(world, of.freed);
                format!("offset {} of {}, which was given back ({by})", at - of.offset, allocation(world, of))
            }
            Outside::Nowhere(Some(below), above) => {
                let past = at - end(below);
                match above.filter(|above| above.offset - at < past) {
                    Some(above) => {
                        format!("{} bytes before {}", above.offset - at, allocation(world, &above))
                    }
                    None if past == 0 => format!("at the end of {}", allocation(world, below)),
                    None => format!("{past} bytes past the end of {}", allocation(world, below)),
                }
            }
            Outside::Nowhere(None, Some(above)) => {
                format!("{} bytes before {}", above.offset - at, allocation(world, above))
            }
            Outside::Nowhere(None, None) => "nothing is allocated".into(),
        }
    }
}

fn allocation(world: &World, of: &Allocation) -> String {
    let Allocation { offset, bytes, site, .. } = *of;
    format!("the allocation of {bytes} bytes at offset {offset:#x} ({})", report::line(world, site))
}

/// What a call was asked for, as its collective counts it (`tag_of` in `impl/coll/call.h`).
fn arguments(asked: &Asked) -> String {
    /// `RUSHMEM_COLLECTIVE_*`.
    const NAMES: [&str; 11] = [
        "a collective",
        "sync",
        "broadcast",
        "fcollect",
        "alltoall",
        "reduce",
        "reducescatter",
        "scan",
        "collect",
        "alltoallv",
        "alltoalls",
    ];
    let Asked { collective, size, more, .. } = *asked;
    let name = NAMES.get(collective as usize).unwrap_or(&NAMES[0]);
    match collective {
        1 => if more == 0 && size == 0 { "sync" } else { "barrier" }.to_owned(),
        2 => format!("{name} of {size} bytes from member {}", more / 2),
        5 | 6 => {
            let (code, element) = (more / 32, more / 2 % 16);
            format!("{name} of {size} bytes, operator number {code}, elements of {element} bytes")
        }
        8 | 9 => format!("{name} of elements of {size} bytes"),
        _ => format!("{name} of {size} bytes"),
    }
}
