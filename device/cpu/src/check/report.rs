//! What is said of faults: who did what where, once for each pair of places.

use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::actor::{Conflict, Seen, Spot};
use super::clock::{Strand, Track};
use super::findings::say;
use super::scope::Scope;
use super::world::{early_name, World};
use crate::check_mode::Mode;
use crate::lock::lock;

/// Reports two accesses without order, unless a race of these two lines was reported before.
pub(crate) fn race(world: &Arc<World>, conflict: &Conflict, mode: Mode) {
    let reused = mode.memory.then(|| reused(world, conflict)).flatten();
    if reused.is_none() && !mode.races {
        return;
    }
    let [first, second] = [&conflict.first, &conflict.second].map(|seen| (line(world, seen.site), seen));
    let mut lines = [&first.0, &second.0].map(|line| xxh3_64(line.as_bytes()));
    lines.sort_unstable();
    let key = lines[0].rotate_left(17) ^ lines[1];
    if !world.segment.is_new(key) {
        return;
    }
    let [one, two] = [&first, &second].map(|(line, seen)| access(world, line, seen));
    let (head, why) = match reused {
        Some(why) => ("buffer reused before its operation was complete:", why),
        None => ("data race on", missing(world, conflict)),
    };
    say(format!("{head} {}\n  {one}\n  {two}\n  {why}", place(world, conflict.spot)));
}

/// The kernels of collectives on streams.
const ON_STREAM: &str = "kernel `rushmem_stream_";

/// Where a PE's own operation uses memory that an earlier one of its may still be using: what was missing.
fn reused(world: &World, conflict: &Conflict) -> Option<String> {
    let strands = [conflict.first.strand, conflict.second.strand];
    let pes = strands.map(|strand| world.segment.pe_of(strand.chain_number()));
    if pes[0] != pes[1] || World::pe_of(conflict.spot).is_some_and(|pe| pe != pes[0]) {
        return None;
    }
    if strands.iter().any(|strand| strand.track() == Track::Nbi) {
        return Some("no quiet between them: an nbi operation uses its local memory until then".into());
    }
    let is_host = strands.map(|strand| world.segment.chain(strand.chain_number()).1 == "host");
    let sites = [conflict.first.site, conflict.second.site];
    let pending = |i: usize| match strands[i].place() {
        None => !is_host[i],
        Some(_) => line(world, sites[i]).starts_with(ON_STREAM),
    };
    let is_pending = is_host[0] && strands[0].place().is_none() && pending(1)
        || is_host[1] && strands[1].place().is_none() && pending(0);
    is_pending.then(|| {
        "the stream was not synchronised between them: its operation uses the memory until then".into()
    })
}

/// What a site is called. Another process may be about to say it.
pub(super) fn line(world: &World, site: u32) -> String {
    let call = lock(&world.calls).remove(&site);
    if let Some((what, counters)) = call {
        let at = counters.program_line().map_or(String::new(), |line| format!(" at {line}"));
        world.segment.name_site(site, &format!("{what}{at}"));
    }
    for _ in 0..50 {
        match world.segment.site(site).0 {
            Some(text) => return text,
            None if site == 0 => break,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    "a place whose line is not known".into()
}

/// Who accesses memory there, and how.
pub(super) fn access(world: &World, line: &str, seen: &Seen) -> String {
    let verb = match (seen.write, seen.atomic) {
        (true, None) => "writes",
        (false, None) => "reads",
        (true, Some(Scope::System)) => "writes atomically",
        (false, Some(Scope::System)) => "reads atomically",
        (true, Some(Scope::Device)) => "writes atomically in device scope",
        (false, Some(Scope::Device)) => "reads atomically in device scope",
        (true, Some(Scope::Block)) => "writes atomically in block scope",
        (false, Some(Scope::Block)) => "reads atomically in block scope",
    };
    let when = match seen.strand.track() {
        Track::Now | Track::Put => "",
        Track::Far => ", on its way until a fence or quiet",
        Track::Nbi => ", at any time until a quiet",
    };
    format!("{}: {verb}{when}", who(world, line, seen))
}

/// The PE, and the thread and line of its kernel, or the call of its host.
pub(super) fn who(world: &World, line: &str, seen: &Seen) -> String {
    let (_, grid, block) = world.segment.site(seen.site);
    let (pe, name) = world.segment.chain(seen.strand.chain_number());
    let who = match seen.strand.place() {
        Some((b, t)) => {
            let (line, at) = line.split_once(" at ").unwrap_or((line, ""));
            let at = if at.is_empty() { String::new() } else { format!(" at {at}") };
            let [gx, gy] = grid.map(u64::from);
            let [bx, by] = block;
            format!(
                "{line}, block ({},{},{}), thread ({},{},{}){at}",
                b % gx,
                b / gx % gy,
                b / gx / gy,
                t % bx,
                t / bx % by,
                t / bx / by
            )
        }
        None => format!("{name}, {line}"),
    };
    if pe < 0 {
        who
    } else {
        format!("PE {pe}, {who}")
    }
}

/// A place in memory.
pub(super) fn place(world: &World, spot: Spot) -> String {
    match World::pe_of(spot) {
        Some(pe) => format!("PE {pe}'s symmetric memory, offset {:#x}", spot.at),
        None if world.pe < 0 => format!("memory at {:#x}", spot.at),
        None => format!("memory of PE {} at {:#x}", world.pe, spot.at),
    }
}

/// Whether they are threads of two kernels of one stream, of which the later may start before the other ends.
fn is_early(world: &World, first: Strand, second: Strand) -> bool {
    let is_other =
        |one: Strand, of: Strand| world.segment.chain(one.chain_number()).1 == early_name(of.chain_number());
    is_other(first, second) || is_other(second, first)
}

/// Which order would have been one.
fn missing(world: &World, conflict: &Conflict) -> String {
    let (first, second) = (conflict.first.strand, conflict.second.strand);
    let [one, two] = [first, second].map(|strand| world.segment.pe_of(strand.chain_number()));
    let is_one = first.on(Track::Now) == second.on(Track::Now);
    let text = if is_one && conflict.first.unordered && conflict.second.unordered {
        "no fence or quiet between them: puts of one thread to a far PE, and nbi operations, have no order"
    } else if conflict.first.atomic.is_some() && conflict.second.atomic.is_some() {
        "their scopes do not include both threads: they are not atomic with respect to each other"
    } else if conflict.narrow {
        "the scope of a fence or an atomic between them does not include both threads"
    } else if first.track() == Track::Nbi || second.track() == Track::Nbi {
        "no quiet between them that the other one follows"
    } else if [first, second].iter().any(|strand| strand.track() == Track::Far) {
        "no fence, quiet or barrier between them: the put may still be on its way"
    } else if one != two {
        "no signal, barrier or quiet between them"
    } else if first.block_of() == second.block_of() && first.place().is_some() {
        "no __syncthreads, and no release and acquire, between them"
    } else if is_early(world, first, second) {
        "the second kernel was launched early, and its thread does not wait for the first before that, by \
         rushmem::await_stream()"
    } else if first.chain_number() == second.chain_number() {
        "no release and acquire between the blocks, and no end of the launch between them"
    } else {
        "no event, synchronisation of the stream, signal or barrier between them"
    };
    text.to_owned()
}
