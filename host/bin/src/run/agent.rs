//! The launcher's part on another host: starts that host's PEs, brings back what they write and how they end,
//! and passes signals on. Its standard streams are the connection; when that is lost, in whichever way,
//! everything here ends.

use std::fs::File;
use std::io::{self, Stdin, Stdout, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nix::sys::signal::{kill, Signal};
use nix::unistd::{getpid, Pid};

use crate::crew::{Crew, End};
use crate::output::{Output, Sink, Writer};
use crate::signals::Signals;
use crate::spawn::{Input, Recipe};
use crate::supervise::{KILL_LIMIT, TERM_GRACE};
use crate::wire::{self, Frame, Order, Plan, Report};
use crate::{processes, spawn, Failure};

/// The way back, shared by those who write frames.
#[derive(Clone)]
struct Back {
    out: Arc<Mutex<Stdout>>,
    /// Streams that nobody reads any more.
    closed: Arc<[AtomicBool; 2]>,
}

impl Back {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(frame).and_then(|()| out.flush())
    }

    fn report(&self, report: &Report) {
        // The thread that reads the orders sees that the connection is lost.
        let _ = self.send(&wire::said(report));
    }
}

impl Writer for Back {
    fn data(&mut self, pe: u32, sink: Sink, bytes: &[u8]) -> io::Result<()> {
        if self.closed[sink as usize].load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.send(&wire::output(pe, sink, bytes))
    }

    fn end(&mut self, pe: u32, sink: Sink) -> io::Result<()> {
        self.send(&wire::output(pe, sink, &[]))
    }
}

/// What the thread that reads orders hands to the one that acts on them; `Err`: the connection is lost.
type Orders = Receiver<Result<Order, ()>>;

/// Runs this host's part; the exit code, which says little: the launcher has all reports.
pub(crate) fn run() -> Result<u8, Failure> {
    let os = |what: &'static str| move |e: nix::Error| Failure::own(format!("cannot {what}: {e}"));
    processes::adopt_orphans().map_err(os("become the reaper of orphans"))?;
    let signals = Signals::block().map_err(os("wait for signals"))?;
    let back = Back { out: Arc::new(Mutex::new(io::stdout())), closed: Arc::default() };
    back.send(wire::greeting().as_bytes()).map_err(|e| {
        Failure::own(format!("rushmem-run starts this on other hosts, and it cannot answer rushmem-run: {e}"))
    })?;
    let mut from = io::stdin();
    let plan = match wire::read::<Order>(&mut from) {
        Ok(Some(Frame::Said(Order::Start(plan)))) => plan,
        Ok(None) => return Ok(0),
        _ => {
            return Err(Failure::own(
                "rushmem-run starts this on other hosts, and says on its standard input what to do",
            ))
        }
    };
    match host(plan, &back, &signals, from) {
        Ok(()) => back.report(&Report::Done),
        Err(failure) => {
            let _ = processes::kill_all(KILL_LIMIT, |_, _| ());
            back.report(&Report::Failure(failure.code, failure.text));
        }
    }
    Ok(0)
}

fn host(plan: Plan, back: &Back, signals: &Signals, from: Stdin) -> Result<(), Failure> {
    std::env::set_current_dir(&plan.folder).map_err(|e| {
        let folder = plan.folder.display();
        Failure::own(format!(
            "{e}: the folder {folder}, where the job was started; start it in one that all hosts have"
        ))
    })?;
    let local = plan.pes.len() as u32;
    let files = spawn::make_room(local, true)?;
    let recipe = Recipe { program: &plan.program, n: plan.n, uid: &plan.uid, mask: signals.before(), files };
    let mut children: Vec<Child> = Vec::new();
    for (at, pe) in plan.pes.iter().enumerate() {
        let input = if *pe == 0 { Input::Pipe } else { Input::None };
        children.push(recipe.spawn(*pe, (at as u32, local), input, true, &plan.environment)?);
    }
    let input = children.iter_mut().find_map(|child| child.stdin.take());
    let pids: Vec<Pid> = children.iter().map(|c| Pid::from_raw(c.id() as i32)).collect();
    let thread = |e: io::Error| Failure::own(format!("cannot start a thread: {e}"));
    let output = Output::start(&mut children, &plan.pes, back.clone()).map_err(thread)?;
    drop(children);
    let to_pe_0 = feed(input.map(OwnedFd::from), back.clone()).map_err(thread)?;
    let orders = listen(from, to_pe_0, back.clone()).map_err(thread)?;

    let mut crew = Crew::new(pids);
    let tell = |ends: Vec<End>| {
        for End { index, pid, failure } in ends {
            back.report(&Report::Ended { pe: plan.pes[index], pid: pid.as_raw(), failure });
        }
    };
    watch(&mut crew, signals, &orders, &tell)?;
    let (_, ends) = crew.kill_all(KILL_LIMIT);
    output.finish();
    tell(ends);
    Ok(())
}

/// Until no PE is left, or the rest is to be killed.
fn watch(
    crew: &mut Crew,
    signals: &Signals,
    orders: &Orders,
    tell: &dyn Fn(Vec<End>),
) -> Result<(), Failure> {
    let mut until = None;
    let end = |asked: &mut Option<Instant>| {
        if asked.is_none() {
            processes::terminate_all();
            *asked = Some(Instant::now() + TERM_GRACE);
        }
    };
    loop {
        tell(crew.reap());
        if !crew.is_alive() || until.is_some_and(|until| Instant::now() >= until) {
            return Ok(());
        }
        while let Ok(order) = orders.try_recv() {
            match order {
                Ok(Order::Signal(number)) => {
                    if let Ok(signal) = Signal::try_from(number) {
                        processes::forward(signal, &crew.pids(), false);
                    }
                }
                Ok(Order::End) | Err(()) => end(&mut until),
                Ok(Order::Start(_) | Order::Close(_)) => {}
            }
        }
        let arrived =
            signals.wait(until).map_err(|e| Failure::own(format!("cannot wait for signals: {e}")))?;
        // Other signals reach this process itself: from a connection that ends, or from a user who ends it.
        if arrived.iter().any(|arrived| !matches!(arrived.signal, Signal::SIGUSR1 | Signal::SIGUSR2)) {
            end(&mut until);
        }
    }
}

/// The thread that reads orders. It wakes the main thread, which waits for signals, by one that does nothing
/// else.
fn listen(mut from: Stdin, to_pe_0: Sender<Vec<u8>>, back: Back) -> io::Result<Orders> {
    let (orders, receiver) = channel();
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        let mut to_pe_0 = Some(to_pe_0);
        loop {
            let order = match wire::read::<Order>(&mut from) {
                Ok(Some(Frame::Input(bytes))) if bytes.is_empty() => {
                    to_pe_0 = None;
                    continue;
                }
                Ok(Some(Frame::Input(bytes))) => {
                    // PE 0 may have closed its input.
                    let _ = to_pe_0.as_ref().map(|to| to.send(bytes));
                    continue;
                }
                Ok(Some(Frame::Output(..))) => continue,
                Ok(Some(Frame::Said(Order::Close(sink)))) => {
                    back.closed[sink as usize].store(true, Ordering::Release);
                    continue;
                }
                Ok(Some(Frame::Said(order))) => Ok(order),
                Ok(None) | Err(_) => Err(()),
            };
            let lost = order.is_err();
            let heard = orders.send(order).is_ok();
            let _ = kill(getpid(), Signal::SIGCHLD);
            if lost || !heard {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// The thread that writes PE 0's input, where PE 0 runs here: it may read slowly, or never.
fn feed(input: Option<OwnedFd>, back: Back) -> io::Result<Sender<Vec<u8>>> {
    let (sender, receiver) = channel::<Vec<u8>>();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        let mut pipe = input.map(File::from);
        for bytes in receiver {
            // A PE that closes its input has read enough.
            if pipe.as_mut().is_some_and(|pipe| pipe.write_all(&bytes).is_err()) {
                pipe = None;
            }
            back.report(&Report::Took(bytes.len()));
        }
    })?;
    Ok(sender)
}
