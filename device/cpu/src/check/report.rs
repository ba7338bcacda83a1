//! What is said of faults that were found: once for each pair of places, and at the end of the process.

use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::actor::{Conflict, Seen};
use super::clock::Track;
use super::world::{lock, World};

/// The exit status of a process that found something, if it would have been 0.
pub const EXIT_STATUS: i32 = 66;

static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The texts since the last call, of this process; its end says nothing of them any more.
pub fn take() -> Vec<String> {
    COUNT.store(0, Ordering::Relaxed);
    std::mem::take(&mut lock(&REPORTS))
}

/// Reports two accesses without order, unless a race of these two lines was reported before.
pub(crate) fn race(world: &Arc<World>, conflict: &Conflict) {
    let [first, second] = [&conflict.first, &conflict.second].map(|seen| (line(world, seen.site), seen));
    let mut lines = [&first.0, &second.0].map(|line| xxh3_64(line.as_bytes()));
    lines.sort_unstable();
    let key = lines[0].rotate_left(17) ^ lines[1];
    if !world.segment.is_new(key) {
        return;
    }
    let [one, two] = [&first, &second].map(|(line, seen)| access(world, line, seen));
    say(format!("data race on {}\n  {one}\n  {two}\n  {}", place(world, conflict), missing(world, conflict)));
}

fn say(text: String) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    log::error!("{text}");
    // For sweeps over all tests, most of which keep what their PEs say to themselves.
    if let Some(path) = std::env::var_os("RUSHMEM_TEST_CHECK_LOG") {
        let program: Vec<String> = std::env::args().collect();
        let line = format!("{}\n{text}\n", program.join(" "));
        let file = std::fs::File::options().append(true).create(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            log::warn!("RUSHMEM_TEST_CHECK_LOG: {error}");
        }
    }
    lock(&REPORTS).push(text);
}

/// What a site is called. Another process may be about to say it.
fn line(world: &World, site: u32) -> String {
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

fn access(world: &World, line: &str, seen: &Seen) -> String {
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
    let verb = match (seen.write, seen.atomic) {
        (true, true) => "writes atomically",
        (true, false) => "writes",
        (false, true) => "reads atomically",
        (false, false) => "reads",
    };
    let when = match seen.strand.track() {
        Track::Now | Track::Put => "",
        Track::Far => ", on its way until a fence or quiet",
        Track::Nbi => ", at any time until a quiet",
    };
    if pe < 0 {
        format!("{who}: {verb}{when}")
    } else {
        format!("PE {pe}, {who}: {verb}{when}")
    }
}

fn place(world: &World, conflict: &Conflict) -> String {
    match World::pe_of(conflict.spot) {
        Some(pe) => format!("PE {pe}'s symmetric memory, offset {:#x}", conflict.spot.at),
        None if world.pe < 0 => format!("memory at {:#x}", conflict.spot.at),
        None => format!("memory of PE {} at {:#x}", world.pe, conflict.spot.at),
    }
}

/// Which order would have been one.
fn missing(world: &World, conflict: &Conflict) -> String {
    let (first, second) = (conflict.first.strand, conflict.second.strand);
    let [one, two] = [first, second].map(|strand| world.segment.pe_of(strand.chain_number()));
    let text = if first.track() == Track::Nbi || second.track() == Track::Nbi {
        "no quiet between them that the other one follows"
    } else if [first, second].iter().any(|strand| strand.track() == Track::Far) {
        "no fence, quiet or barrier between them: the put may still be on its way"
    } else if one != two {
        "no signal, barrier or quiet between them"
    } else if first.block_of() == second.block_of() && first.place().is_some() {
        "no __syncthreads, and no release and acquire, between them"
    } else if first.chain_number() == second.chain_number() {
        "no release and acquire between the blocks, and no end of the launch between them"
    } else {
        "no event, synchronisation of the stream, signal or barrier between them"
    };
    text.to_owned()
}

/// Says at the end of the process how much was found, and makes its exit status an error.
pub(crate) fn at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" {
        fn on_exit(call: extern "C" fn(i32, *mut c_void), argument: *mut c_void) -> i32;
    }
    extern "C" fn ended(status: i32, _: *mut c_void) {
        let count = COUNT.load(Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let s = if count == 1 { "" } else { "s" };
        eprintln!("rushmem: {count} fault{s} found by RUSHMEM_CHECK in this process");
        if status == 0 {
            // SAFETY: flushes what C programs have written, and ends the process, which is ending.
            unsafe {
                libc::fflush(std::ptr::null_mut());
                libc::_exit(EXIT_STATUS);
            }
        }
    }
    // SAFETY: the function stays: the library that has it is not unloaded before the process ends.
    ONCE.call_once(|| unsafe {
        on_exit(ended, std::ptr::null_mut());
    });
}
