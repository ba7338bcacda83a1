//! What only joining tells: how each PE reaches each other, and why so.
//!
//! Every PE writes its row as JSON into symmetric memory and PE 0 fetches them all: the report travels over
//! what it reports. Where PE 0 cannot fetch a row, that row's PE shows it, so that nothing is lost where a
//! way between two PEs is missing.

use std::fmt::Write;

use rushmem::{Pe, World};
use serde::{Deserialize, Serialize};

use crate::facts::Launch;

/// Room for a row: this, and so much more for each PE.
const ROW_BYTES: usize = 16 << 10;
const PEER_BYTES: usize = 1 << 10;
/// The transport of a PE that cannot be reached.
const UNREACHABLE: &str = "none";

/// The job, PE by PE.
#[derive(Debug, Serialize)]
pub(crate) struct Job {
    pub(crate) n_pes: u32,
    /// Those whose rows PE 0 could fetch.
    pub(crate) pes: Vec<Row>,
    /// Why there is no row of others.
    pub(crate) lost: Vec<String>,
}

/// A PE.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) pe: u32,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// Its device, by name.
    pub(crate) device: String,
    /// How it reaches each PE, itself included.
    pub(crate) peers: Vec<Way>,
    /// The PEs whose memory is mapped for its device.
    pub(crate) near: Near,
    /// What is missing where it runs.
    pub(crate) missing: Vec<String>,
}

/// The PEs that one maps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Near {
    pub(crate) pes: Vec<u32>,
    /// How operations tell them from others: `a run`, `2 apart`, `by a table`.
    pub(crate) shape: String,
}

/// How one PE reaches another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) pe: u32,
    pub(crate) transport: String,
    pub(crate) reason: String,
}

/// What is left to do for this process.
pub(crate) enum Part {
    /// To show the job.
    Shows(Job),
    /// Nothing: PE 0 shows this PE's row.
    Told,
}

/// Why the job could not be joined, or what went wrong in it.
pub(crate) struct Failure {
    pub(crate) pe: u32,
    pub(crate) text: String,
}

/// Joins; `missing` is what this PE's row says is missing where it runs.
pub(crate) fn join(launch: &Launch, missing: &[String]) -> Result<Part, Failure> {
    let failed =
        |pe: u32| move |e: rushmem::Error| Failure { pe, text: format!("joining the job: {}", e.message()) };
    let world = World::init().map_err(failed(launch.rank.unwrap_or(0)))?;
    let me = world.my_pe().number();
    let part = exchange(&world, missing).map_err(failed(me))?;
    world.finalize().map_err(failed(me))?;
    Ok(part)
}

fn exchange(world: &World, missing: &[String]) -> rushmem::Result<Part> {
    let row = Row::of(world, missing)?;
    let room = ROW_BYTES + PEER_BYTES * world.n_pes() as usize;
    let rows = world.alloc::<u8>(room)?;
    let mut text = serde_json::to_vec(&row).unwrap_or_default();
    // Spaces after the text are no part of it, for JSON; and nothing but spaces is a row that did not fit.
    if text.len() > room {
        text.clear();
    }
    text.resize(room, b' ');
    rows.put(&text, world.my_pe())?;
    world.barrier_all()?;
    let part = if world.my_pe().number() == 0 {
        let mut job = Job { n_pes: world.n_pes(), pes: Vec::new(), lost: Vec::new() };
        for pe in world.pes() {
            let fetched =
                if pe == world.my_pe() { Ok(text.clone()) } else { fetch(room, |to| rows.get(to, pe)) };
            match fetched.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())) {
                Ok(row) => job.pes.push(row),
                Err(why) => {
                    job.lost.push(format!("{pe} shows its own row, which could not be fetched: {why}"))
                }
            }
        }
        Part::Shows(job)
    } else {
        let unfit = text.iter().all(|byte| *byte == b' ');
        if unfit || row.peers.first().is_some_and(|way| way.transport == UNREACHABLE) {
            eprint!("{}", row.text());
        }
        Part::Told
    };
    world.barrier_all()?;
    rows.free()?;
    Ok(part)
}

fn fetch(room: usize, get: impl FnOnce(&mut [u8]) -> rushmem::Result<()>) -> Result<Vec<u8>, String> {
    let mut text = vec![0; room];
    get(&mut text).map_err(|e| e.message().to_owned())?;
    Ok(text)
}

impl Row {
    fn of(world: &World, missing: &[String]) -> rushmem::Result<Row> {
        let (me, near) = (world.peer(world.my_pe())?, world.near_pes()?);
        let way = |pe: Pe| {
            let peer = world.peer(pe)?;
            Ok(Way { pe: pe.number(), transport: peer.transport, reason: peer.reason })
        };
        Ok(Row {
            pe: me.pe.number(),
            host: me.host,
            pid: me.pid,
            device: world.device_name(),
            peers: world.pes().map(way).collect::<rushmem::Result<_>>()?,
            near: Near {
                pes: near.pes.iter().map(|pe| pe.number()).collect(),
                shape: near.shape.to_string(),
            },
            missing: missing.to_vec(),
        })
    }

    /// One PE's part of a job.
    pub(crate) fn text(&self) -> String {
        let mut text =
            format!("  PE {}: host {}, process {}, device {}\n", self.pe, self.host, self.pid, self.device);
        for (pes, transport, reason) in self.groups() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "    to {pes}: {transport} ({reason})");
        }
        if self.peers.len() > 1 {
            let _ = writeln!(text, "    near: {} ({})", ranges(&self.near.pes), self.near.shape);
        }
        text
    }

    /// The ways of one kind together: the PEs as ranges, the transport, the reason.
    pub(crate) fn groups(&self) -> Vec<(String, &str, &str)> {
        let mut groups: Vec<(Vec<u32>, &str, &str)> = Vec::new();
        for way in &self.peers {
            match groups.iter_mut().find(|(_, t, r)| (*t, *r) == (&way.transport, &way.reason)) {
                Some((pes, ..)) => pes.push(way.pe),
                None => groups.push((vec![way.pe], &way.transport, &way.reason)),
            }
        }
        groups.into_iter().map(|(pes, transport, reason)| (ranges(&pes), transport, reason)).collect()
    }
}

impl Job {
    /// What is missing anywhere in it.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for row in &self.pes {
            let of =
                |text: &String| if self.n_pes == 1 { text.clone() } else { format!("PE {}: {text}", row.pe) };
            all.extend(row.missing.iter().map(of));
            let unreachable = row.groups().into_iter().filter(|(_, transport, _)| *transport == UNREACHABLE);
            all.extend(unreachable.map(|(pes, _, why)| format!("PE {} cannot reach {pes}: {why}", row.pe)));
        }
        all.extend(self.lost.iter().cloned());
        all
    }
}

/// `PE 2`, `PEs 0-3, 7` for numbers in order.
fn ranges(pes: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &pe in pes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == pe => *last = pe,
            _ => runs.push((pe, pe)),
        }
    }
    let run = |(first, last): &(u32, u32)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    let word = if pes.len() == 1 { "PE" } else { "PEs" };
    format!("{word} {}", runs.iter().map(run).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pe: u32, transports: &[&str]) -> Row {
        let way = |(to, transport): (usize, &&str)| Way {
            pe: to as u32,
            transport: transport.to_string(),
            reason: format!("because of {transport}"),
        };
        let peers = transports.iter().enumerate().map(way).collect();
        Row {
            pe,
            host: "h".into(),
            pid: 1,
            device: "cpu".into(),
            peers,
            near: Near::default(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn ranges_are_as_short_as_can_be() {
        for (pes, want) in [(&[4][..], "PE 4"), (&[0, 1], "PEs 0-1"), (&[0, 2, 3, 4, 9], "PEs 0, 2-4, 9")] {
            assert_eq!(ranges(pes), want);
        }
    }

    #[test]
    fn a_way_that_is_missing_is_a_fault_that_names_both_ends() {
        let mut job = Job {
            n_pes: 3,
            pes: vec![row(0, &["direct", "none", "none"]), row(1, &["direct", "direct", "direct"])],
            lost: vec!["PE 2 is lost".into()],
        };
        job.pes[1].missing.push("no compiler".into());
        let want = ["PE 0 cannot reach PEs 1-2: because of none", "PE 1: no compiler", "PE 2 is lost"];
        assert_eq!(job.missing(), want);
        assert_eq!(job.pes[0].groups()[1], ("PEs 1-2".to_owned(), "none", "because of none"));
    }
}
