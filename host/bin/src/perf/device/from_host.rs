//! Operations that the host calls for: itself, on a stream, or as a CUDA graph that is launched. What is on a
//! stream is timed by the device: a kernel stamps its clock before a batch and after, in the stream's turn;
//! the host queues as fast as it can, and where that is slower than the device, it is what is measured, as it
//! is what a program gets. A graph holds a whole batch. What the host does itself is timed by the host's
//! clock.
//!
//! Batches of an operation and of the driver's own call take turns on one stream: a new stream, or the same
//! one a little later, may be a microsecond an operation slower or faster, for both.

use std::time::{Duration, Instant};

use rushmem::{ByValue, Cmp, Launch, Pe, SignalOp, SignalRef, Stream, SymRef};

use super::bare::{self, BareCall};
use super::bench::{Bench, Rounds};
use super::collectives::{self, Arrays};
use super::driver::{BareCopy, Empty, Graph};
use super::kernels::{Family, Job, CHECK, HEAD};
use super::measure::{Part, What};
use super::scope::Scope;
use super::spec::Spec;
use crate::job::{Failure, Result};

/// For so long at least, small operations that one PE queues alone are queued before they are timed. The host
/// is what limits them, and a core that comes out of idleness takes some milliseconds to its full clock: a
/// batch's worth.
const HOST_WARM_UP: Duration = Duration::from_millis(30);
/// What the host limits, in bytes: at most.
const HOST_LIMITED: u64 = 64 << 10;

/// Who does what is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doer {
    /// The library.
    Library,
    /// The driver: its own call in place of the library's. Of collectives an empty kernel, or a bare one.
    Driver,
}

/// Nanoseconds of one operation, for each batch; none on PEs without a part. Where there are several `doers`,
/// as many batches of each, in turns. Collective.
pub(super) fn times(bench: &Bench<'_>, spec: &Spec, rounds: Rounds, doers: &[Doer]) -> Result<Vec<f64>> {
    bench.words.fill(0)?;
    bench.stamps.slice(..HEAD)?.fill(0)?;
    bench.signals.words().fill(0)?;
    bench.world.barrier_all()?;
    let mut times = Vec::new();
    if spec.stream_collective().is_some() {
        collectives::prepare(bench, spec)?;
    }
    if bench.runs(spec.what.part(false)) {
        let stream = bench.world.stream()?;
        times = match spec.scope {
            Scope::Host => by_the_host(bench, spec, rounds)?,
            Scope::Graph => in_graphs(bench, spec, rounds, &stream, doers)?,
            _ => on_a_stream(bench, spec, rounds, &stream, doers)?,
        };
        stream.synchronize()?;
        stream.destroy()?;
    }
    bench.world.barrier_all()?;
    Ok(times)
}

/// Has what is no data arrived, and do barriers hold back? That of transfers is looked at where all are
/// (`verify`). Collective.
pub(super) fn told(bench: &Bench<'_>, spec: &Spec, doer: Doer, rounds: Rounds) -> Result<()> {
    let (seen, right) = match spec.what {
        What::HostBarrier => return holds_back(bench, spec),
        _ if spec.stream_collective().is_some() => {
            return collectives::told(bench, spec, |arrays, round, stream| match doer {
                Doer::Driver if bare::is_there(spec) => {
                    BareCall::new(bench, spec, arrays)?.queue(round, stream)
                }
                _ => collectives::queue(bench, spec, arrays, round, stream),
            })
        }
        What::HostSignalPingpong if bench.runs(Part::Pair) => (bench.signals.at(0)?.fetch()?, rounds.total()),
        What::HostPutSignal if bench.world.my_pe().number() == 1 => (bench.signals.at(0)?.fetch()?, 1),
        What::HostP if bench.world.my_pe().number() == 1 => {
            (bench.words.slice(CHECK..CHECK + 1)?.to_vec()?[0], bench.salt())
        }
        _ => return Ok(()),
    };
    if seen == right {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: {seen:#x} arrived, not {right:#x}: its figures mean nothing",
        spec.measure()
    )))
}

/// Makes wrong what `told` looks at; whether there is such a thing.
pub(super) fn spoil(bench: &Bench<'_>, spec: &Spec) -> Result<bool> {
    let word = match spec.what {
        What::HostSignalPingpong => bench.signals.words().slice(..1)?,
        What::HostP => bench.words.slice(CHECK..CHECK + 1)?,
        // It looks at what it has stored itself.
        What::HostBarrier => return Ok(true),
        _ if spec.stream_collective().is_some() => return Ok(true),
        _ => return Ok(false),
    };
    let value = word.to_vec()?[0];
    word.write(&[value ^ 1 << 8])?;
    Ok(true)
}

/// Rounds in which barriers are looked at, as the kernels' own are (`check` in sync.cu).
const LOOKS: u64 = 8;
/// By so much one PE is late in each of them.
const LATE: Duration = Duration::from_millis(2);

/// Does every PE see behind a barrier what all have stored before it? Collective.
fn holds_back(bench: &Bench<'_>, spec: &Spec) -> Result<()> {
    let (world, me) = (bench.world, bench.world.my_pe());
    let words = bench.words.slice(CHECK..CHECK + world.n_pes() as usize)?;
    let stream = world.stream()?;
    let meet = || -> Result<()> {
        if spec.scope == Scope::Host {
            return Ok(world.barrier_all()?);
        }
        world.barrier_all_on(&stream)?;
        Ok(stream.synchronize()?)
    };
    for round in 1..=LOOKS {
        let value = |pe: Pe| bench.salt().wrapping_mul(round).wrapping_add(u64::from(pe.number()));
        if round % u64::from(world.n_pes()) == u64::from(me.number()) {
            std::thread::sleep(LATE);
        }
        for pe in world.pes() {
            match spec.scope {
                Scope::Host => words.p(me.index(), value(me), pe)?,
                _ => words.p_on(me.index(), value(me), pe, &stream)?,
            }
        }
        meet()?;
        let mut seen = words.to_vec()?;
        seen[0] ^= u64::from(spec.corrupt) << 8;
        if !seen.iter().copied().eq(world.pes().map(value)) {
            return Err(Failure::new(format!(
                "{}, {}: {me} does not see behind it what all have stored before: its figures mean nothing",
                spec.measure(),
                spec.scope.word()
            )));
        }
        // Nobody stores the next round's before all have looked.
        meet()?;
    }
    Ok(stream.destroy()?)
}

/// The two sides of a transfer, and the words that tell.
struct Sides<'b> {
    to: SymRef<'b, u8>,
    from: SymRef<'b, u8>,
    word: SymRef<'b, u64>,
    signal: SignalRef<'b>,
    peer: Pe,
    /// What the driver is to do in place of an operation.
    bare: Option<Bare<'b>>,
    /// Where all PEs take part.
    arrays: Option<Arrays<'b>>,
}

/// What is measured beside an operation.
enum Bare<'b> {
    Copy(BareCopy),
    Empty(Empty),
    Call(BareCall<'b>),
}

impl<'b> Sides<'b> {
    fn of(bench: &'b Bench<'_>, spec: &Spec, doer: Doer) -> Result<Sides<'b>> {
        let collective = spec.stream_collective().is_some();
        let arrays = collective.then(|| Arrays::of(bench, spec)).transpose()?;
        let n = if collective { 0 } else { spec.bytes as usize };
        let (to, from, peer) = (bench.to.slice(..n)?, bench.from.slice(..n)?, bench.peer());
        let gets = matches!(spec.what, What::HostGet | What::HostGetBw);
        let copy = match gets {
            true => BareCopy::new(Some(to.as_ptr()), from.ptr_at(peer), n),
            false => BareCopy::new(to.ptr_at(peer), Some(from.as_ptr()), n),
        };
        let word = bench.words.slice(CHECK..CHECK + 1)?;
        let bare = match (doer, &arrays) {
            (Doer::Driver, Some(arrays)) if bare::is_there(spec) => {
                Some(Bare::Call(BareCall::new(bench, spec, arrays)?))
            }
            (Doer::Driver, Some(_)) => Some(Bare::Empty(collectives::floor(spec)?)),
            (Doer::Driver, None) => copy.map(Bare::Copy),
            (Doer::Library, _) => None,
        };
        Ok(Sides { word, signal: bench.signals.at(0)?, bare, arrays, to, from, peer })
    }
}

fn on_a_stream(
    bench: &Bench<'_>,
    spec: &Spec,
    rounds: Rounds,
    stream: &Stream<'_>,
    doers: &[Doer],
) -> Result<Vec<f64>> {
    // As in a program that uses CUDA itself, and the same for both.
    let _context = bench.has_driver().then(|| bench.context()).transpose()?;
    let sides = doers.iter().map(|doer| Sides::of(bench, spec, *doer)).collect::<Result<Vec<_>>>()?;
    let mut round = 0;
    // Where a peer takes part, both must make as many rounds.
    let alone = !spec.what.is_collective() && spec.what != What::HostSignalPingpong;
    let least = if alone && spec.bytes <= HOST_LIMITED { HOST_WARM_UP } else { Duration::ZERO };
    let begin = Instant::now();
    while round < u64::from(rounds.warm_up) || begin.elapsed() < least {
        for sides in &sides {
            queue(bench, spec, sides, &mut round, stream)?;
        }
    }
    in_batches(bench, rounds, doers.len(), stream, |turn| {
        (0..rounds.iterations).try_for_each(|_| queue(bench, spec, &sides[turn], &mut round, stream))
    })
}

/// A graph of a batch: what is captured is what would have been queued. Signals carry the round, so they are
/// none of it.
fn in_graphs(
    bench: &Bench<'_>,
    spec: &Spec,
    rounds: Rounds,
    stream: &Stream<'_>,
    doers: &[Doer],
) -> Result<Vec<f64>> {
    let _context = bench.context()?;
    // What is captured names kernels, which a graph does not keep.
    let sides = doers.iter().map(|doer| Sides::of(bench, spec, *doer)).collect::<Result<Vec<_>>>()?;
    let capture = |sides: &Sides<'_>| {
        Graph::capture(stream, || {
            let mut round = 0;
            (0..rounds.iterations).try_for_each(|_| queue(bench, spec, sides, &mut round, stream))
        })
    };
    let graphs = sides.iter().map(capture).collect::<Result<Vec<_>>>()?;
    if spec.stream_collective().is_some() {
        // All have uploaded theirs before one runs that waits for the others' (`Graph::capture`).
        bench.world.barrier_all()?;
    }
    graphs.iter().try_for_each(|graph| graph.launch(stream))?;
    in_batches(bench, rounds, doers.len(), stream, |turn| graphs[turn].launch(stream))
}

/// Puts one operation on the stream.
fn queue(
    bench: &Bench<'_>,
    spec: &Spec,
    sides: &Sides<'_>,
    round: &mut u64,
    stream: &Stream<'_>,
) -> Result<()> {
    *round += 1;
    let (world, peer) = (bench.world, sides.peer);
    match &sides.bare {
        Some(Bare::Copy(copy)) => return copy.queue(stream),
        Some(Bare::Empty(empty)) => return empty.queue(stream),
        Some(Bare::Call(call)) => return call.queue(*round, stream),
        None => {}
    }
    if let Some(arrays) = &sides.arrays {
        return collectives::queue(bench, spec, arrays, *round, stream);
    }
    match spec.what {
        What::HostPut => {
            sides.to.put_from_on(&sides.from, peer, stream)?;
            world.quiet_on(stream)?;
        }
        What::HostGet => {
            sides.from.get_into_on(&sides.to, peer, stream)?;
            world.quiet_on(stream)?;
        }
        What::HostP => {
            sides.word.p_on(0, bench.salt(), peer, stream)?;
            world.quiet_on(stream)?;
        }
        What::HostPutSignal => {
            sides.to.put_signal_from_on(&sides.from, &sides.signal, SignalOp::Set, 1, peer, stream)?;
        }
        What::HostSignalPingpong => {
            let send = || sides.signal.signal_op_on(SignalOp::Set, *round, peer, stream);
            let wait = || sides.signal.wait_until_on(Cmp::Ge, *round, stream);
            if bench.first() {
                send()?;
                wait()?;
            } else {
                wait()?;
                send()?;
            }
        }
        What::HostPutBw => sides.to.put_from_on(&sides.from, peer, stream)?,
        What::HostGetBw => sides.from.get_into_on(&sides.to, peer, stream)?,
        What::HostBarrier => world.barrier_all_on(stream)?,
        _ => return Err(Failure::new(format!("{} is no operation of the host's", spec.measure()))),
    }
    Ok(())
}

fn stamp(bench: &Bench<'_>, index: u32, stream: &Stream<'_>) -> Result<()> {
    let kernel = bench.kernel(Family::Local, "stamp_now")?;
    let rounds = Rounds { iterations: 0, batches: 0, warm_up: 0 };
    let job = Job { op: HEAD as u32 + index, ..bench.job(&Spec::new(What::Wait), rounds, Part::First) };
    // SAFETY: the kernel writes one stamp of this PE's, which is there for each batch.
    unsafe { kernel.launch_on(Launch::new(1, 1), (ByValue(job),), stream) }?;
    Ok(())
}

/// Nanoseconds of one operation in each of the batches that `queue_one` puts on the stream, for one after the
/// other of so many that take turns.
fn in_batches(
    bench: &Bench<'_>,
    rounds: Rounds,
    turns: usize,
    stream: &Stream<'_>,
    mut queue_one: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<f64>> {
    let batches = rounds.batches * turns as u32;
    for batch in 0..batches {
        stamp(bench, 2 * batch, stream)?;
        queue_one(batch as usize % turns)?;
        stamp(bench, 2 * batch + 1, stream)?;
    }
    stream.synchronize()?;
    let stamps = bench.stamps.slice(HEAD..HEAD + 2 * batches as usize)?.to_vec()?;
    let each = |batch: &[u64]| batch[1].saturating_sub(batch[0]) as f64 / f64::from(rounds.iterations);
    Ok(stamps.chunks(2).map(each).collect())
}

fn by_the_host(bench: &Bench<'_>, spec: &Spec, rounds: Rounds) -> Result<Vec<f64>> {
    let sides = Sides::of(bench, spec, Doer::Library)?;
    let mut round = 0;
    let mut times = Vec::new();
    for batch in 0..=rounds.batches {
        let n = if batch == 0 { rounds.warm_up } else { rounds.iterations };
        let begin = Instant::now();
        for _ in 0..n {
            call(bench, spec, &sides, &mut round)?;
        }
        if matches!(spec.what, What::HostPutBw | What::HostGetBw) {
            bench.world.quiet()?;
        }
        if batch > 0 {
            times.push(begin.elapsed().as_nanos() as f64 / f64::from(n));
        }
    }
    Ok(times)
}

/// Does one operation.
fn call(bench: &Bench<'_>, spec: &Spec, sides: &Sides<'_>, round: &mut u64) -> Result<()> {
    *round += 1;
    let (world, peer) = (bench.world, sides.peer);
    match spec.what {
        What::HostPut => {
            sides.to.put_from(&sides.from, peer)?;
            world.quiet()?;
        }
        What::HostGet => {
            sides.from.get_into(&sides.to, peer)?;
            world.quiet()?;
        }
        What::HostP => {
            sides.word.p(0, bench.salt(), peer)?;
            world.quiet()?;
        }
        What::HostPutSignal => {
            sides.to.put_signal_from(&sides.from, &sides.signal, SignalOp::Set, 1, peer)?
        }
        What::HostSignalPingpong => {
            if bench.first() {
                sides.signal.set(*round, peer)?;
                sides.signal.wait_until(Cmp::Ge, *round)?;
            } else {
                sides.signal.wait_until(Cmp::Ge, *round)?;
                sides.signal.set(*round, peer)?;
            }
        }
        What::HostPutBw => sides.to.put_from(&sides.from, peer)?,
        What::HostGetBw => sides.from.get_into(&sides.to, peer)?,
        What::HostBarrier => world.barrier_all()?,
        _ => return Err(Failure::new(format!("{} is no operation of the host's", spec.measure()))),
    }
    Ok(())
}
