//! A network for tests, of which the test chooses the next event: a copy arrives, a message arrives, a flush
//! is over. Its PEs are values of one process.

use std::collections::hash_map::DefaultHasher;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};
use crate::error::{err, Result};

/// A copy on its way.
#[derive(Debug, Clone)]
struct Copying {
    id: u64,
    /// The PE that operates, and the PE that owns the memory.
    by: usize,
    pe: usize,
    dst: usize,
    data: Bytes,
    /// What its arrival completes, if its source was not free at once.
    token: Option<Token>,
    put: bool,
}

/// Bytes, of which a text has a sum: tests compare the texts of networks.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum = DefaultHasher::new();
        self.0.hash(&mut sum);
        write!(f, "{} bytes {:x}", self.0.len(), sum.finish())
    }
}

/// The data of a large message.
#[derive(Debug)]
enum Bulk {
    /// Taken when it was sent.
    Taken(Bytes),
    /// Still with the PE that sends it, `by`: its address and length. The PE gets the token when it is free.
    Left { by: usize, token: Token, at: usize, bytes: usize },
}

impl Bulk {
    fn bytes(&self) -> usize {
        match self {
            Bulk::Taken(data) => data.0.len(),
            Bulk::Left { bytes, .. } => *bytes,
        }
    }
}

/// A range of addresses that the host cannot touch, as it cannot touch a GPU's memory, and where its contents
/// are instead.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) struct Device {
    pub(in crate::net) at: usize,
    pub(in crate::net) bytes: usize,
    pub(in crate::net) contents: usize,
}

impl Device {
    /// Whether the host cannot touch `at`.
    pub(in crate::net) fn has(&self, at: usize) -> bool {
        at.wrapping_sub(self.at) < self.bytes
    }

    /// Where what is at `at` can be touched.
    pub(in crate::net) fn contents_of(&self, at: usize) -> usize {
        if self.has(at) {
            at - self.at + self.contents
        } else {
            at
        }
    }
}

/// What is on its way between PEs.
#[derive(Debug, Default)]
pub(in crate::net) struct Network {
    /// Messages to each PE, in order: the engine sorts them anyway.
    messages: Vec<VecDeque<Bytes>>,
    /// Large messages on their way, each to a PE: its head, and its data.
    larges: Vec<(usize, Vec<u8>, Bulk)>,
    /// Data on its way out of a PE's memory: who gets it, where it goes, what that completes.
    receives: Vec<(usize, Bulk, usize, Token)>,
    copies: Vec<Copying>,
    /// The PE that flushes, the copies that it waits for, what it completes.
    flushes: Vec<(usize, Vec<u64>, Token)>,
    next: u64,
    /// Data of large messages that has been announced.
    announced: Vec<(BulkId, Bulk)>,
    /// Whether sources are free at once.
    eager: bool,
    /// Memory that a network with a way to GPU memory reaches.
    device: Option<Device>,
    /// Events that each PE gets at its next turn.
    events: Vec<Vec<Event>>,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Step {
    Message(usize),
    Large(usize),
    Receive(usize),
    Copy(usize),
    Flush(usize),
}

impl Network {
    /// Of `n` PEs; with `eager`, sources are free at once.
    pub(in crate::net) fn shared(n: usize, eager: bool) -> Arc<Mutex<Network>> {
        let messages = (0..n).map(|_| VecDeque::new()).collect();
        let events = (0..n).map(|_| Vec::new()).collect();
        Arc::new(Mutex::new(Network { messages, events, eager, ..Network::default() }))
    }

    /// One-sided copies reach that memory.
    #[cfg(test)]
    pub(in crate::net) fn reach(&mut self, device: Device) {
        self.device = Some(device);
    }

    fn contents_of(&self, at: usize) -> usize {
        self.device.map_or(at, |device| device.contents_of(at))
    }

    /// Messages on their way to a PE.
    #[cfg(test)]
    pub(in crate::net) fn waiting(&self, pe: usize) -> usize {
        self.messages[pe].len()
    }

    pub(in crate::net) fn steps(&self) -> Vec<Step> {
        let messages =
            (0..self.messages.len()).filter(|pe| !self.messages[*pe].is_empty()).map(Step::Message);
        let copies = (0..self.copies.len()).map(Step::Copy);
        let over = |ids: &[u64]| !self.copies.iter().any(|copy| ids.contains(&copy.id));
        let flushes = self.flushes.iter().enumerate().filter(|(_, (_, ids, _))| over(ids));
        let larges = (0..self.larges.len()).map(Step::Large);
        let receives = (0..self.receives.len()).map(Step::Receive);
        let flushes = flushes.map(|(i, _)| Step::Flush(i));
        messages.chain(larges).chain(receives).chain(copies).chain(flushes).collect()
    }

    pub(in crate::net) fn take(&mut self, step: Step) {
        match step {
            Step::Message(pe) => {
                let Bytes(message) = self.messages[pe].pop_front().expect("there is one");
                self.events[pe].push(Event::Message(message));
            }
            Step::Large(i) => {
                let (pe, head, data) = self.larges.remove(i);
                let (id, bytes) = (BulkId(self.number()), data.bytes());
                self.announced.push((id, data));
                self.events[pe].push(Event::Bulk { head, bytes, data: id });
            }
            Step::Receive(i) => {
                let (pe, data, dst, token) = self.receives.remove(i);
                let Bulk::Left { by, token: sent, at, bytes } = data else { return };
                // SAFETY: memory that sender and receiver keep until their tokens are done.
                unsafe { std::ptr::copy_nonoverlapping(at as *const u8, dst as *mut u8, bytes) };
                self.events[by].push(Event::Done(sent));
                self.events[pe].push(Event::Done(token));
            }
            Step::Copy(i) => {
                let Copying { by, dst, data, token, put, .. } = self.copies.remove(i);
                let data = if put { data.0 } else { self.read(&data.0) };
                let dst = self.contents_of(dst) as *mut u8;
                // SAFETY: memory that the test keeps until the run is over.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), dst, data.len()) };
                self.events[by].extend(token.map(Event::Done));
            }
            Step::Flush(i) => {
                let (by, _, token) = self.flushes.remove(i);
                self.events[by].push(Event::Done(token));
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// What a get finds when it is carried out: its source's address and length were kept.
    fn read(&self, source: &[u8]) -> Vec<u8> {
        let word = |i: usize| usize::from_le_bytes(source[i * 8..][..8].try_into().unwrap());
        let from = self.contents_of(word(0)) as *const u8;
        // SAFETY: memory that the test keeps until the run is over.
        unsafe { std::slice::from_raw_parts(from, word(1)) }.to_vec()
    }
}

/// The network as PE `me` sees it.
pub(in crate::net) struct StandIn {
    me: usize,
    network: Arc<Mutex<Network>>,
    is_cut: bool,
}

impl StandIn {
    pub(in crate::net) fn new(me: usize, network: &Arc<Mutex<Network>>) -> StandIn {
        StandIn { me, network: Arc::clone(network), is_cut: false }
    }

    fn network(&self) -> MutexGuard<'_, Network> {
        self.network.lock().expect("no test goes on after a panic")
    }

    /// True where connections are cut: then the operation fails.
    fn fails(&self, token: Token) -> bool {
        if self.is_cut {
            let why = err!(IO, "the stand-in's connections were cut");
            self.network().events[self.me].push(Event::Failed(token, why));
        }
        self.is_cut
    }
}

impl Transport for StandIn {
    fn name(&self) -> &'static str {
        "stand-in"
    }
    fn about(&self) -> String {
        String::new()
    }
    fn address(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn learn_addresses(&mut self, _: Vec<Vec<u8>>) {}
    unsafe fn register(&mut self, _: u32, _: Memory) -> Result<Vec<u8>> {
        Ok(vec![1])
    }
    fn learn_keys(&mut self, _: u32, _: Vec<Vec<u8>>) {}
    fn forget(&mut self, _: u32) {}
    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        if self.fails(token) {
            return Ok(false);
        }
        let mut net = self.network();
        let (id, eager, src) = (net.number(), net.eager, net.contents_of(src as usize) as *const u8);
        // SAFETY: the caller keeps the source valid.
        let data = Bytes(unsafe { std::slice::from_raw_parts(src, bytes) }.to_vec());
        let (token, dst) = ((!eager).then_some(token), to.address as usize);
        net.copies.push(Copying { id, by: self.me, pe: to.pe, dst, data, token, put: true });
        Ok(eager)
    }
    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        if self.fails(token) {
            return Ok(false);
        }
        let mut net = self.network();
        let id = net.number();
        let data = Bytes([from.address.to_le_bytes(), (bytes as u64).to_le_bytes()].concat());
        let (dst, token) = (dst as usize, Some(token));
        net.copies.push(Copying { id, by: self.me, pe: from.pe, dst, data, token, put: false });
        Ok(false)
    }
    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        if self.is_cut {
            return Ok(());
        }
        let mut net = self.network();
        net.messages[pe].push_back(Bytes(message));
        Ok(())
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
        let mut net = self.network();
        let eager = net.eager;
        let data = if eager {
            // SAFETY: the caller keeps the data valid.
            Bulk::Taken(Bytes(unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec()))
        } else {
            Bulk::Left { by: self.me, token, at: data as usize, bytes }
        };
        net.larges.push((pe, head.to_vec(), data));
        Ok(eager)
    }
    unsafe fn receive(&mut self, data: BulkId, dst: *mut u8, token: Token) -> Result<bool> {
        let mut net = self.network();
        let place = net.announced.iter().position(|(id, _)| *id == data);
        let place = place.ok_or_else(|| err!(INTERNAL, "data that was not announced"))?;
        match net.announced.swap_remove(place).1 {
            Bulk::Taken(Bytes(bytes)) => {
                // SAFETY: the caller keeps the destination valid.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
                Ok(true)
            }
            left => {
                net.receives.push((self.me, left, dst as usize, token));
                Ok(false)
            }
        }
    }
    fn flush(&mut self, pe: usize, token: Token) -> Result<bool> {
        let mut net = self.network();
        let mine = |copy: &&Copying| copy.put && copy.by == self.me && copy.pe == pe;
        let ids: Vec<u64> = net.copies.iter().filter(mine).map(|copy| copy.id).collect();
        if ids.is_empty() {
            return Ok(true);
        }
        net.flushes.push((self.me, ids, token));
        Ok(false)
    }
    fn progress(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.network().events[self.me]);
    }
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn cut(&mut self) {
        self.is_cut = true;
        let mut net = self.network();
        let why = || err!(IO, "the stand-in's connections were cut");
        let mut tokens = Vec::new();
        net.copies.retain(|copy| {
            let mine = copy.by == self.me;
            tokens.extend(copy.token.filter(|_| mine));
            !mine
        });
        net.flushes.retain(|(by, _, token)| {
            let mine = *by == self.me;
            tokens.extend(mine.then_some(*token));
            !mine
        });
        let mut is_mine = |data: &Bulk| match data {
            Bulk::Left { by, token, .. } if *by == self.me => {
                tokens.push(*token);
                true
            }
            _ => false,
        };
        net.larges.retain(|(_, _, data)| !is_mine(data));
        net.announced.retain(|(_, data)| !is_mine(data));
        for (pe, data, dst, token) in std::mem::take(&mut net.receives) {
            match data {
                Bulk::Left { by, token: sent, .. } if by == self.me || pe == self.me => {
                    net.events[by].push(Event::Failed(sent, why()));
                    net.events[pe].push(Event::Failed(token, why()));
                }
                other => net.receives.push((pe, other, dst, token)),
            }
        }
        net.events[self.me].extend(tokens.into_iter().map(|token| Event::Failed(token, why())));
    }
}
