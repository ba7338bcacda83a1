//! A job on several hosts: our part is started on each ([`crate::launch`], [`crate::agent`]), their output is
//! written here, and what becomes of one host's part decides about all.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, killpg, Signal};
use nix::unistd::{getpgrp, getpid, tcgetpgrp, Pid};
use rushmem_bootstrap_uid::RendezvousHandle;

use crate::args::{Args, OURS};
use crate::hosts::Share;
use crate::launch::Launcher;
use crate::output::{Sink, Tagged, Writer};
use crate::signals::Signals;
use crate::supervise::TERM_GRACE;
use crate::verdict::{names, Step, Verdict};
use crate::wire::{self, Frame, Order, Plan, Report};
use crate::{rendezvous, say, spawn, Failure};

/// What a host may take beyond the PEs' own time to end, before its connection is cut.
const TRAVEL: Duration = Duration::from_secs(3);
/// How long a host may take to answer at all.
const ANSWER: Duration = Duration::from_secs(60);
/// What PEs get of the launcher's environment, with the folder and what `--env` says.
const FORWARDED: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];
const FORWARDED_PREFIXES: [&str; 2] = ["RUSHMEM_", "UCX_"];
/// Descriptors for each host.
const DESCRIPTORS: u32 = 4;

/// What a host has said.
enum HostEvent {
    Answered,
    Report(Report),
    /// A stream of ours that nobody reads any more.
    Unread(Sink),
    /// The connection has ended; why, if more is known.
    Lost(Option<String>),
}

struct Host {
    share: Share,
    child: Child,
    orders: Sender<Vec<u8>>,
    answered: bool,
    /// Its part has ended, well or not.
    over: bool,
}

/// Runs the job of `n` PEs on the hosts of `shares`; its exit code.
pub(crate) fn run(args: &Args, n: u32, shares: Vec<Share>) -> Result<u8, Failure> {
    let files = spawn::make_room(shares.len() as u32 * DESCRIPTORS + n, false)?;
    // Before the first thread, so that no thread takes a signal from us.
    let signals = Signals::block().map_err(|e| Failure::own(format!("cannot wait for signals: {e}")))?;
    let mut verdict = Verdict::new(n as usize, args.grace, TERM_GRACE + TRAVEL, args.timeout);
    let launcher = Launcher::new(args)?;
    let (uid, rendezvous) = rendezvous::open(shares.iter().all(|share| launcher.is_here(share)))?;
    let folder = std::env::current_dir()
        .map_err(|e| Failure::own(format!("cannot tell the hosts the folder to run in: {e}")))?;

    let (events, received) = channel();
    let credit = Credit::default();
    let output = Arc::new(Mutex::new(Tagged::new(args.tag_output)));
    let mut job = Job { n, hosts: Vec::new(), credit: credit.clone(), rendezvous };
    for share in shares {
        let mut child = launcher.start(&share, signals.before(), files)?;
        let plan = Plan {
            host: share.host.clone(),
            n,
            pes: share.pes.clone(),
            uid: uid.clone(),
            environment: environment(args),
            folder: folder.clone(),
            program: args.program.clone(),
        };
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (orders, queue) = channel();
        let at = job.hosts.len();
        // Its part reads this when it has come up.
        let _ = orders.send(wire::said(&Order::Start(plan)));
        job.hosts.push(Host { share, child, orders, answered: false, over: false });
        let thread = |e: io::Error| Failure::own(format!("cannot start a thread: {e}"));
        if let (Some(stdin), Some(stdout)) = (stdin, stdout) {
            write_orders(stdin, queue).map_err(thread)?;
            read_events(at, stdout, events.clone(), Arc::clone(&output)).map_err(thread)?;
        }
    }
    if let Some(first) = job.hosts.iter().find(|host| host.share.pes.contains(&0)) {
        read_input(first.orders.clone(), credit);
    }
    let watched = job.watch(&mut verdict, &signals, &received);
    drop(job);
    signals.restore();
    watched.map(|()| verdict.code())
}

/// What PEs get of this process' environment.
fn environment(args: &Args) -> Vec<(OsString, OsString)> {
    let forwarded = |name: &str| {
        FORWARDED.contains(&name)
            || (FORWARDED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !OURS.contains(&name))
    };
    let ours = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(forwarded));
    ours.chain(args.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

struct Job {
    n: u32,
    hosts: Vec<Host>,
    credit: Credit,
    rendezvous: RendezvousHandle,
}

impl Job {
    /// Until every host's part has ended, or is to be cut off.
    fn watch(
        &mut self,
        verdict: &mut Verdict,
        signals: &Signals,
        received: &Receiver<(usize, HostEvent)>,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            while let Ok((at, event)) = received.try_recv() {
                self.on_event(at, event, verdict);
            }
            if self.hosts.iter().all(|host| host.over) {
                return Ok(());
            }
            let silent = self.hosts.iter().find(|host| !host.answered && !host.over);
            let answer = silent.map(|_| begin + ANSWER);
            if let Some(silent) = silent.filter(|_| begin.elapsed() > ANSWER) {
                let text =
                    format!("host {} has not answered within {ANSWER:?}; ending the job", silent.share.host);
                verdict.failed(125, &text);
                return Ok(());
            }
            let until = match verdict.step() {
                Step::Wait(until) => [until, answer].into_iter().flatten().min(),
                Step::Terminate => {
                    self.order_all(&Order::End);
                    continue;
                }
                Step::Kill => {
                    for host in self.hosts.iter().filter(|host| !host.over) {
                        say(&format!(
                            "host {} does not answer; leaving its PEs to end by themselves",
                            host.share.host
                        ));
                    }
                    return Ok(());
                }
            };
            let arrived =
                signals.wait(until).map_err(|e| Failure::own(format!("cannot wait for signals: {e}")))?;
            for signal in arrived {
                self.order_all(&Order::Signal(signal.signal as i32));
                if verdict.signalled(signal) {
                    self.order_all(&Order::End);
                }
            }
        }
    }

    fn on_event(&mut self, at: usize, event: HostEvent, verdict: &mut Verdict) {
        let host = &mut self.hosts[at];
        let name = host.share.host.clone();
        match event {
            HostEvent::Answered => host.answered = true,
            HostEvent::Report(Report::Ended { pe, pid, failure }) if host.share.pes.contains(&pe) => {
                let who = format!("PE {pe} (host {name}, pid {pid})");
                if failure.is_none() {
                    rendezvous::ended(&self.rendezvous, pe, self.n, &who);
                }
                verdict.ended(pe as usize, &who, failure);
            }
            HostEvent::Report(Report::Ended { .. }) => {}
            HostEvent::Report(Report::Took(bytes)) => self.credit.give(bytes),
            HostEvent::Report(Report::Failure(code, text)) => {
                host.over = true;
                verdict.lost(&host.share.pes);
                verdict.failed(code, &format!("host {name}: {text}"));
                verdict.terminate();
                self.order_all(&Order::End);
            }
            HostEvent::Report(Report::Done) => host.over = true,
            HostEvent::Unread(sink) => self.order_all(&Order::Close(sink)),
            HostEvent::Lost(why) if !host.over => {
                host.over = true;
                verdict.lost(&host.share.pes);
                let how = match (why, ending(&mut host.child)) {
                    (Some(why), _) => why,
                    (None, Some(status)) => format!("its command ended with {status}"),
                    (None, None) => "its command has closed its output".into(),
                };
                let what =
                    if host.answered { "the connection is lost" } else { "rushmem-run did not start there" };
                verdict.failed(125, &format!("host {name} ({}): {what}: {how}", names(&host.share.pes)));
            }
            HostEvent::Lost(_) => {}
        }
    }

    fn order_all(&self, order: &Order) {
        for host in self.hosts.iter().filter(|host| !host.over) {
            // The thread that reads from a lost connection reports it.
            let _ = host.orders.send(wire::said(order));
        }
    }
}

/// How a command ended, if it does within a moment.
fn ending(child: &mut Child) -> Option<std::process::ExitStatus> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if begin.elapsed() > Duration::from_millis(500) => return None,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

impl Drop for Job {
    /// Cuts the connections that are left, with whatever holds them.
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if host.over && ending(&mut host.child).is_some() {
                continue;
            }
            let pid = Pid::from_raw(host.child.id() as i32);
            // It is gone already where this fails.
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = host.child.wait();
        }
    }
}

/// Wakes the main thread, which waits for signals, by one that does nothing else.
fn wake() {
    let _ = kill(getpid(), Signal::SIGCHLD);
}

fn write_orders(mut to: ChildStdin, queue: Receiver<Vec<u8>>) -> io::Result<()> {
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        for frame in queue {
            if to.write_all(&frame).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn read_events(
    at: usize,
    mut from: ChildStdout,
    events: Sender<(usize, HostEvent)>,
    output: Arc<Mutex<Tagged>>,
) -> io::Result<()> {
    std::thread::Builder::new().name("events".into()).spawn(move || {
        let tell = |what| {
            let taken = events.send((at, what)).is_ok();
            wake();
            taken
        };
        let why = |e: io::Error| (e.kind() == io::ErrorKind::InvalidData).then(|| e.to_string());
        if let Err(e) = wire::expect_greeting(&mut from, &mut io::stderr()) {
            tell(HostEvent::Lost(why(e)));
            return;
        }
        tell(HostEvent::Answered);
        let mut from = io::BufReader::new(from);
        loop {
            let taken = match wire::read::<Report>(&mut from) {
                Ok(Some(Frame::Said(report))) => tell(HostEvent::Report(report)),
                Ok(Some(Frame::Output(pe, sink, bytes))) => {
                    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                    let written = match bytes.is_empty() {
                        true => output.end(pe, sink),
                        false => output.data(pe, sink, &bytes),
                    };
                    drop(output);
                    written.is_ok() || tell(HostEvent::Unread(sink))
                }
                Ok(Some(Frame::Input(_))) => true,
                Ok(None) => !tell(HostEvent::Lost(None)),
                Err(e) => !tell(HostEvent::Lost(why(e))),
            };
            if !taken {
                return;
            }
        }
    })?;
    Ok(())
}

/// How much of our input may still be sent before PE 0 has read some.
#[derive(Clone)]
struct Credit(Arc<(Mutex<usize>, Condvar)>);

impl Default for Credit {
    fn default() -> Credit {
        Credit(Arc::new((Mutex::new(wire::WINDOW), Condvar::new())))
    }
}

impl Credit {
    fn give(&self, bytes: usize) {
        *self.0 .0.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        self.0 .1.notify_all();
    }

    /// Some of `most`, once there is any.
    fn take(&self, most: usize) -> usize {
        let mut left = self.0 .0.lock().unwrap_or_else(PoisonError::into_inner);
        while *left == 0 {
            left = self.0 .1.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        let some = most.min(*left);
        *left -= some;
        some
    }
}

/// Passes our input on to PE 0. Its thread ends with the process: nothing else ends a read.
fn read_input(to: Sender<Vec<u8>>, credit: Credit) {
    let mut from = io::stdin();
    // In the background it would be stopped for reading from the terminal, though its PE may not read at all.
    let foreground = tcgetpgrp(from.as_fd()).is_ok_and(|group| group == getpgrp());
    if from.is_terminal() && !foreground {
        let _ = to.send(wire::input(&[]));
        return;
    }
    let started = std::thread::Builder::new().name("input".into()).spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let most = credit.take(buffer.len());
            let n = match from.read(&mut buffer[..most]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                    credit.give(most);
                    continue;
                }
                read => read.unwrap_or(0),
            };
            credit.give(most - n);
            if to.send(wire::input(&buffer[..n])).is_err() || n == 0 {
                return;
            }
        }
    });
    if let Err(e) = started {
        say(&format!("cannot pass on the input: {e}"));
    }
}
