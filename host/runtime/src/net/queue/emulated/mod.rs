//! A network card as a program: a thread that knows the card's formats and nothing else of what writes them.
//! It looks at doorbell registers and records in plain memory, reads requests, checks what a card checks,
//! carries them out with the cards of the other PEs of this host, and writes completions
//! (`RUSHMEM_TRANSPORT=queue-emulated`). `RUSHMEM_FAKE_SEED` and `RUSHMEM_FAKE_DELAY` set its chance and its
//! usual longest delay, `RUSHMEM_QUEUE_LOSE` after about how many requests it loses a link.
//!
//! Cards talk over abstract Unix sockets. A connection counts when it names the PE's secret, which went round
//! the bootstrap, and comes from a process of the same user.

mod arrivals;
mod chance;
mod memory;
mod packets;
mod pair;
mod requests;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rushmem_abi::device::RingLine;

use self::arrivals::Arrivals;
use self::chance::Chance;
use self::memory::Regions;
use self::packets::Link;
use self::pair::{Pair, Rest};
use super::card::{AccessRights, NetworkCard, OpenQueue, QueueArea, QueueMemory, QueueNeeds, RegionKeys};
use crate::error::{err, Error, Result};
use crate::gpu::Cuda;
use crate::net::transport::Memory;
use crate::topology::card::random;

/// How long the thread looks on after the last work before it naps.
const LOOK: Duration = Duration::from_micros(100);
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_micros(500);
/// A secret, and the number of the queue there that it is for.
const HELLO: usize = 20;

/// What the card's thread and its owner share.
struct Inside {
    pairs: Vec<Option<Pair>>,
    rest: Rest,
    listener: UnixListener,
    /// Connections that have not said all of who they are.
    strangers: Vec<(UnixStream, Vec<u8>)>,
    secret: [u8; 16],
}

/// The card of one PE.
pub(in crate::net) struct SoftwareCard {
    me: usize,
    name: [u8; 16],
    secret: [u8; 16],
    lose: Option<u64>,
    inside: Arc<Mutex<Inside>>,
    cuda: Option<Arc<Cuda>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

fn socket(name: &[u8]) -> std::io::Result<SocketAddr> {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("rushmem-card-{hex}"))
}

impl SoftwareCard {
    /// The card of PE `me`; heaps may be in memory of `cuda`.
    pub(in crate::net) fn new(
        me: usize,
        cuda: Option<&Arc<Cuda>>,
        seed: Option<u64>,
        delay: u64,
        lose: Option<u64>,
    ) -> Result<SoftwareCard> {
        let (name, secret): ([u8; 16], [u8; 16]) = (random()?, random()?);
        let seed = seed.map_or_else(|| random().map(u64::from_le_bytes), Ok)?;
        log::info!("the software card's seed is {seed} (RUSHMEM_FAKE_SEED)");
        let listening = |e: std::io::Error| Error::io("listening for other software cards", &e);
        let listener =
            socket(&name).and_then(|address| UnixListener::bind_addr(&address)).map_err(listening)?;
        listener.set_nonblocking(true).map_err(listening)?;
        let seed = seed.wrapping_add((me as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (arrivals, chance) = (Arrivals::default(), Chance::new(seed, delay));
        let rest = Rest { regions: Regions::new(cuda)?, arrivals, chance, told: Vec::new() };
        let inside = Inside { pairs: Vec::new(), rest, listener, strangers: Vec::new(), secret };
        Ok(SoftwareCard {
            me,
            name,
            secret,
            lose,
            inside: Arc::new(Mutex::new(inside)),
            cuda: cuda.cloned(),
            stop: Arc::new(AtomicBool::new(false)),
            thread: None,
        })
    }

    /// What was wrong with requests so far.
    #[cfg(test)]
    pub(in crate::net) fn told(&self) -> Vec<String> {
        lock(&self.inside).rest.told.clone()
    }
}

impl NetworkCard for SoftwareCard {
    fn name(&self) -> &'static str {
        "queue-emulated"
    }

    fn needs(&self, _slots: usize) -> QueueNeeds {
        QueueNeeds { page: size_of::<RingLine>(), completions: 1 }
    }

    fn about(&self) -> String {
        "kernels write requests to a software card, which delays and reorders".into()
    }

    fn address(&self) -> Vec<u8> {
        [self.name, self.secret].concat()
    }

    unsafe fn open(
        &mut self,
        _area: QueueArea,
        n: usize,
        queues: Vec<Option<QueueMemory>>,
    ) -> Result<Vec<OpenQueue>> {
        let mut inside = lock(&self.inside);
        let mut open = Vec::with_capacity(queues.len());
        for (queue, memory) in queues.into_iter().enumerate() {
            // 24 bits; none is 0.
            let number = (inside.rest.chance.number() as u32 & 0xff_ffff).max(1);
            let left = self.lose.map(|about| about.max(1) + inside.rest.chance.number() % about.max(1));
            // No cable leads to itself that could be lost.
            let left = left.filter(|_| queue % n != self.me);
            inside.pairs.push(memory.map(|memory| Pair::new(memory, number, queue, left)));
            open.push(OpenQueue { number, bell: None });
        }
        Ok(open)
    }

    fn connect(&mut self, addresses: &[Option<Vec<u8>>]) -> Result<Vec<Option<Error>>> {
        let n = addresses.len();
        let queues = lock(&self.inside).pairs.len();
        for queue in (0..queues).filter(|queue| queue % n > self.me) {
            let pe = queue % n;
            let Some(address) = &addresses[pe] else { continue };
            let [name, secret] = [address.get(..16), address.get(16..32)];
            let (Some(name), Some(secret)) = (name, secret) else {
                return Err(err!(INTERNAL, "the card's address of PE {pe} has {} bytes", address.len()));
            };
            let connected =
                socket(name).and_then(|to| UnixStream::connect_addr(&to)).and_then(|mut stream| {
                    let there = queue - pe + self.me;
                    stream.write_all(&[secret, &(there as u32).to_le_bytes()].concat())?;
                    Link::new(stream)
                });
            let link = connected.map_err(|e| {
                Error::io("connecting software cards, which reach PEs of one host only", &e)
                    .context(format_args!("PE {pe}"))
            })?;
            if let Some(Some(pair)) = lock(&self.inside).pairs.get_mut(queue) {
                pair.attach(link);
            }
        }
        for pair in lock(&self.inside).pairs.iter_mut().skip(self.me).step_by(n).flatten() {
            pair.attach(Link::to_itself());
        }
        let (inside, stop, cuda) = (Arc::clone(&self.inside), Arc::clone(&self.stop), self.cuda.clone());
        let run = move || {
            let _current = cuda.as_ref().map(|cuda| cuda.current_for_life());
            run(&inside, &stop);
        };
        let thread = std::thread::Builder::new().name("rushmem-card".into()).spawn(run);
        self.thread = Some(thread.map_err(|e| Error::thread("the software card", &e))?);
        Ok(addresses.iter().map(|_| None).collect())
    }

    fn updates_words(&self) -> bool {
        true
    }

    unsafe fn register(&mut self, memory: Memory, named: u64, rights: AccessRights) -> Result<RegionKeys> {
        let mut inside = lock(&self.inside);
        let key = loop {
            let key = inside.rest.chance.number() as u32;
            if key != 0 && !inside.rest.regions.has(key) {
                break key;
            }
        };
        inside.rest.regions.insert(key, named, memory, rights);
        Ok(RegionKeys { local: key, remote: key })
    }

    fn forget(&mut self, keys: RegionKeys) {
        let _current = self.cuda.as_ref().map(|cuda| cuda.current());
        let mut inside = lock(&self.inside);
        let rest = &mut inside.rest;
        // What is on its way there arrives first.
        if let Err(e) = rest.arrivals.finish(&rest.regions) {
            rest.told.push(e.message);
        }
        rest.regions.remove(keys.local);
    }

    fn halt(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Drop for SoftwareCard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The card's life.
fn run(inside: &Mutex<Inside>, stop: &AtomicBool) {
    // The system lengthens naps by 50 us otherwise; a refusal costs no more than that.
    // SAFETY: changes this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
    let mut last_work = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let worked = lock(inside).step();
        if worked {
            last_work = Instant::now();
            std::thread::yield_now();
            continue;
        }
        let idle = last_work.elapsed();
        if idle < LOOK {
            std::thread::yield_now();
        } else {
            let nap = lock(inside).nap((idle / 8).clamp(SHORTEST, LONGEST));
            nap();
        }
    }
}

impl Inside {
    fn step(&mut self) -> bool {
        let now = Instant::now();
        let mut worked = self.accept();
        for pair in self.pairs.iter_mut().flatten() {
            worked |= pair.step(&mut self.rest, now);
        }
        let Rest { regions, arrivals, told, .. } = &mut self.rest;
        if let Err(e) = arrivals.step(regions, now) {
            told.push(e.message);
        }
        worked || arrivals.any()
    }

    /// What sleeps until something comes over a socket, and no longer than `most`. Nothing tells of
    /// doorbells.
    fn nap(&self, most: Duration) -> impl FnOnce() {
        let entry = |fd, out: bool| libc::pollfd {
            fd,
            events: libc::POLLIN | if out { libc::POLLOUT } else { 0 },
            revents: 0,
        };
        let links = self.pairs.iter().flatten().filter_map(Pair::link);
        let links =
            links.filter_map(|link| Some(entry(link.stream.as_ref()?.as_raw_fd(), link.has_output())));
        let mut fds: Vec<_> = links.chain([entry(self.listener.as_raw_fd(), false)]).collect();
        move || {
            let time = libc::timespec { tv_sec: 0, tv_nsec: most.subsec_nanos() as _ };
            // SAFETY: an array of pollfd with its length; a descriptor that was closed meanwhile is an event.
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &time, std::ptr::null()) };
        }
    }

    /// Connections of PEs with lower numbers.
    fn accept(&mut self) -> bool {
        let mut worked = false;
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && is_ours(&stream) {
                self.strangers.push((stream, Vec::new()));
            }
            worked = true;
        }
        for (mut stream, mut said) in std::mem::take(&mut self.strangers) {
            let mut part = [0; HELLO];
            match stream.read(&mut part[said.len()..]) {
                Ok(n) if n > 0 => said.extend_from_slice(&part[said.len()..][..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                _ => continue,
            }
            if said.len() < HELLO {
                self.strangers.push((stream, said));
                continue;
            }
            let queue = u32::from_le_bytes(said[16..].try_into().expect("four bytes")) as usize;
            let known = said[..16] == self.secret;
            if let (true, Some(Some(pair)), Ok(link)) = (known, self.pairs.get_mut(queue), Link::new(stream))
            {
                pair.attach(link);
            }
            worked = true;
        }
        worked
    }
}

/// Whether the other end is a process of this user.
fn is_ours(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes a `ucred` of that length.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut bytes,
        )
    };
    // SAFETY: has no preconditions.
    got == 0 && peer.uid == unsafe { libc::geteuid() }
}

/// For tests: what the card reads in a slot.
#[cfg(test)]
pub(in crate::net) fn parsed(block: &[u8; 64], index: u16, number: u32) -> impl std::fmt::Debug {
    requests::WorkRequest::parse(block, index, number).expect("a request")
}
