//! A network that behaves as badly as one may (`RUSHMEM_TRANSPORT=fake`): everything is delayed by some
//! random time, copies arrive in pieces and in any order, some of them long after their source was free, and
//! messages overtake one another. For the PEs of one process. A program that runs well on it depends on
//! nothing that rushmem does not promise; a laptop is enough to find out.
//!
//! The seed is logged; `RUSHMEM_FAKE_SEED` sets it, `RUSHMEM_FAKE_DELAY` the longest delay in microseconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{err, Result};
use crate::net::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD, MESSAGE};
use crate::topology::card::random;

/// Of a put or get, moved at one time.
const PIECE: usize = 1000;
/// Copies of a PE's under way from which on it is to wait with more: few, so that programs meet it.
const MOST_MOVING: usize = 32;

/// What is on its way to a PE.
#[derive(Debug, Default)]
struct Arriving {
    messages: Vec<(Instant, Message)>,
    /// The PE has ended: its memory is about to go.
    over: bool,
}

#[derive(Debug)]
enum Message {
    Small(Vec<u8>),
    Large { head: Vec<u8>, data: Vec<u8> },
}

type SharedArriving = Mutex<Arriving>;

type Registry = HashMap<[u8; 16], Weak<SharedArriving>>;

/// The arrivals of all PEs of this process.
fn registry() -> MutexGuard<'static, Registry> {
    static ALL: OnceLock<Mutex<Registry>> = OnceLock::new();
    ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy under way: its pieces that are not there yet.
#[derive(Debug)]
struct Moving {
    id: u64,
    pe: usize,
    pieces: Vec<(Instant, usize, usize, usize)>,
    /// What it completes; `None`: the source was free at once.
    token: Option<Token>,
    put: bool,
    /// What the network has copied of the source then: the pieces lie in it.
    _kept: Option<Vec<u8>>,
}

/// The transport.
pub(crate) struct Fake {
    id: [u8; 16],
    mine: Arc<SharedArriving>,
    addresses: Vec<Vec<u8>>,
    peers: Vec<Option<Arc<SharedArriving>>>,
    moving: Vec<Moving>,
    next_moving: u64,
    /// Flushes: the copies that each waits for, and what it completes.
    flushes: Vec<(Vec<u64>, Token)>,
    /// What was in flight when connections were broken, or was asked later.
    cut_off: Vec<Token>,
    is_cut: bool,
    bulk: HashMap<u64, Vec<u8>>,
    next_bulk: u64,
    state: u64,
    delay: u64,
}

impl Fake {
    /// With delays of up to `delay` microseconds as a rule.
    pub(crate) fn new(seed: Option<u64>, delay: u64) -> Result<Fake> {
        let id: [u8; 16] = random()?;
        let seed = seed.map_or_else(|| random().map(u64::from_le_bytes), Ok)?;
        log::info!("the fake network's seed is {seed} (RUSHMEM_FAKE_SEED)");
        let mine = Arc::new(SharedArriving::default());
        registry().insert(id, Arc::downgrade(&mine));
        Ok(Fake {
            id,
            mine,
            addresses: Vec::new(),
            peers: Vec::new(),
            moving: Vec::new(),
            next_moving: 0,
            flushes: Vec::new(),
            cut_off: Vec::new(),
            is_cut: false,
            bulk: HashMap::new(),
            next_bulk: 0,
            state: seed | 1,
            delay,
        })
    }

    fn random(&mut self) -> u64 {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Some time from now on; now and then it is at once, and now and then it takes long.
    fn due(&mut self) -> Instant {
        let micros = match self.random() % 8 {
            0 | 1 => 0,
            2 => self.random() % (self.delay * 4 + 1),
            _ => self.random() % (self.delay + 1),
        };
        Instant::now() + Duration::from_micros(micros)
    }

    /// Finds the PE, if it is of this process and was not found before.
    fn meet(&mut self, pe: usize) {
        if self.peers[pe].is_none() {
            let id: Option<[u8; 16]> = self.addresses[pe].as_slice().try_into().ok();
            self.peers[pe] = id.and_then(|id| registry().get(&id).and_then(Weak::upgrade));
        }
    }

    fn post(&mut self, pe: usize, message: Message) -> Result<()> {
        let due = self.due();
        self.meet(pe);
        let Some(peer) = &self.peers[pe] else {
            return Err(err!(
                UNSUPPORTED,
                "RUSHMEM_TRANSPORT=fake reaches PEs of one process only, and PE {pe} is in another: run the \
                 PEs as threads"
            ));
        };
        peer.lock().unwrap_or_else(PoisonError::into_inner).messages.push((due, message));
        Ok(())
    }

    /// A copy in pieces, each with its time.
    fn pieces(&mut self, dst: usize, src: usize, bytes: usize) -> Vec<(Instant, usize, usize, usize)> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes {
            let piece = (1 + self.random() as usize % PIECE).min(bytes - at);
            let due = self.due();
            pieces.push((due, dst + at, src + at, piece));
            at += piece;
        }
        pieces
    }

    fn number(&mut self) -> u64 {
        self.next_moving += 1;
        self.next_moving
    }

    /// True where connections are cut: then the operation fails.
    fn fails(&mut self, token: Token) -> bool {
        if self.is_cut {
            self.cut_off.push(token);
        }
        self.is_cut
    }
}

impl Transport for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn about(&self) -> String {
        format!("a network within this process that delays by up to {} us and reorders", self.delay * 4)
    }

    fn address(&self) -> Result<Vec<u8>> {
        Ok(self.id.to_vec())
    }

    fn learn_addresses(&mut self, addresses: Vec<Vec<u8>>) {
        self.peers = addresses.iter().map(|_| None).collect();
        self.addresses = addresses;
    }

    unsafe fn register(&mut self, _id: u32, memory: Memory) -> Result<Vec<u8>> {
        Ok(if memory.gpu { Vec::new() } else { vec![1] })
    }

    fn learn_keys(&mut self, _id: u32, _keys: Vec<Vec<u8>>) {}

    fn forget(&mut self, _id: u32) {}

    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        if self.fails(token) {
            return Ok(false);
        }
        // The source may be free long before the data has arrived.
        let free = self.random() % 2 == 0;
        // SAFETY: the caller vouches for the source.
        let kept = free.then(|| unsafe { std::slice::from_raw_parts(src, bytes) }.to_vec());
        let src = kept.as_ref().map_or(src, |kept| kept.as_ptr());
        self.meet(to.pe);
        let pieces = self.pieces(to.address as usize, src as usize, bytes);
        let (id, token) = (self.number(), (!free).then_some(token));
        self.moving.push(Moving { id, pe: to.pe, pieces, token, put: true, _kept: kept });
        Ok(free)
    }

    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        if self.fails(token) {
            return Ok(false);
        }
        self.meet(from.pe);
        let pieces = self.pieces(dst as usize, from.address as usize, bytes);
        let (id, token) = (self.number(), Some(token));
        self.moving.push(Moving { id, pe: from.pe, pieces, token, put: false, _kept: None });
        Ok(false)
    }

    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        if self.is_cut {
            return Ok(());
        }
        self.post(pe, Message::Small(message))
    }

    unsafe fn send_bulk(
        &mut self,
        pe: usize,
        head: [u8; BULK_HEAD],
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<bool> {
        if self.fails(token) {
            return Ok(false);
        }
        // SAFETY: the caller vouches for the data.
        let data = unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec();
        self.post(pe, Message::Large { head: head.to_vec(), data })?;
        Ok(true)
    }

    unsafe fn receive(&mut self, data: BulkId, dst: *mut u8, _token: Token) -> Result<bool> {
        let bytes = self.bulk.remove(&data.0).ok_or_else(|| err!(INTERNAL, "data that was not announced"))?;
        // SAFETY: the caller vouches for the destination.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
        Ok(true)
    }

    fn flush(&mut self, pe: usize, token: Token) -> Result<bool> {
        let before: Vec<u64> = self.moving.iter().filter(|m| m.pe == pe && m.put).map(|m| m.id).collect();
        if before.is_empty() {
            return Ok(true);
        }
        self.flushes.push((before, token));
        Ok(false)
    }

    fn progress(&mut self, events: &mut Vec<Event>) {
        let why = || err!(IO, "the fake network: the connection was closed");
        events.extend(self.cut_off.drain(..).map(|token| Event::Failed(token, why())));
        let now = Instant::now();
        for moving in &mut self.moving {
            // Held meanwhile, so that the PE does not end.
            let peer = self.peers[moving.pe].as_ref();
            let peer = peer.map(|peer| peer.lock().unwrap_or_else(PoisonError::into_inner));
            if peer.as_ref().is_none_or(|peer| peer.over) {
                moving.pieces.clear();
                self.cut_off.extend(moving.token.take());
                continue;
            }
            moving.pieces.retain(|&(due, dst, src, bytes)| {
                if due > now {
                    return true;
                }
                // SAFETY: both sides are valid until the operation is done, as put's and get's callers vouch;
                // the other PE is in this process, so that its address is ours.
                unsafe { crate::word::copy(dst as *mut u8, src as *const u8, bytes) };
                false
            });
        }
        let flushes = &mut self.flushes;
        self.moving.retain(|moving| {
            if !moving.pieces.is_empty() {
                return true;
            }
            events.extend(moving.token.map(Event::Done));
            flushes.iter_mut().for_each(|(before, _)| before.retain(|id| *id != moving.id));
            false
        });
        flushes.retain(|(before, token)| {
            if before.is_empty() {
                events.push(Event::Done(*token));
            }
            !before.is_empty()
        });
        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, later): (Vec<_>, Vec<_>) = mine.messages.drain(..).partition(|(due, _)| *due <= now);
        mine.messages = later;
        drop(mine);
        let mut due: Vec<Message> = due.into_iter().map(|(_, message)| message).collect();
        while !due.is_empty() {
            let pick = self.random() as usize % due.len();
            events.push(match due.swap_remove(pick) {
                Message::Small(message) => Event::Message(message),
                Message::Large { head, data } => {
                    let id = self.next_bulk;
                    self.next_bulk += 1;
                    let bytes = data.len();
                    self.bulk.insert(id, data);
                    Event::Bulk { head, bytes, data: BulkId(id) }
                }
            });
        }
    }

    fn congested(&self) -> bool {
        self.moving.len() >= MOST_MOVING
    }

    fn buffer(&mut self) -> Vec<u8> {
        Vec::with_capacity(MESSAGE)
    }

    fn cut(&mut self) {
        self.is_cut = true;
        let moving = self.moving.drain(..).filter_map(|moving| moving.token);
        self.cut_off.extend(moving.chain(self.flushes.drain(..).map(|(.., token)| token)));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        registry().remove(&self.id);
    }
}
