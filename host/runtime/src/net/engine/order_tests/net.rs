//! A network of which the test chooses the next event: a copy arrives, a message arrives, a flush is over.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Result;
use crate::net::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};

/// A copy on its way.
#[derive(Debug, Clone)]
pub(super) struct Copying {
    id: u64,
    dst: usize,
    data: Vec<u8>,
    /// Whom its arrival completes, if its source was not free at once.
    token: Option<Token>,
    put: bool,
}

/// What is on its way between the two PEs.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// Messages to each PE, in order: the engine sorts them anyway.
    messages: [VecDeque<Vec<u8>>; 2],
    copies: Vec<Copying>,
    flushes: Vec<(Vec<u64>, Token)>,
    next: u64,
    /// Whether sources are free at once.
    eager: bool,
    /// What each PE hears of at its next turn.
    events: [Vec<Event>; 2],
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Issue,
    Message(usize),
    Copy(usize),
    Flush(usize),
}

impl Net {
    pub(super) fn new(eager: bool) -> Net {
        Net { eager, ..Net::default() }
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let messages = (0..2).filter(|pe| !self.messages[*pe].is_empty()).map(Step::Message);
        let copies = (0..self.copies.len()).map(Step::Copy);
        let over = |(ids, _): &(Vec<u64>, Token)| !self.copies.iter().any(|copy| ids.contains(&copy.id));
        let flushes =
            self.flushes.iter().enumerate().filter(|(_, flush)| over(flush)).map(|(i, _)| Step::Flush(i));
        messages.chain(copies).chain(flushes).collect()
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Issue => {}
            Step::Message(pe) => {
                let message = self.messages[pe].pop_front().expect("there is one");
                self.events[pe].push(Event::Message(message));
            }
            Step::Copy(i) => {
                let Copying { dst, data, token, put, .. } = self.copies.remove(i);
                let data = if put { data } else { read(data) };
                // SAFETY: the memory of a world of this test, which lives until the run is over.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), dst as *mut u8, data.len()) };
                self.events[0].extend(token.map(Event::Done));
            }
            Step::Flush(i) => {
                let (_, token) = self.flushes.remove(i);
                self.events[0].push(Event::Done(token));
            }
        }
    }
}

/// What a get finds when it is carried out: its source's address and length were kept.
fn read(source: Vec<u8>) -> Vec<u8> {
    let word = |i: usize| usize::from_le_bytes(source[i * 8..][..8].try_into().unwrap());
    // SAFETY: the memory of a world of this test.
    unsafe { std::slice::from_raw_parts(word(0) as *const u8, word(1)) }.to_vec()
}

/// The network as PE `me` sees it.
pub(super) struct Stepped {
    pub(super) me: usize,
    pub(super) net: Arc<Mutex<Net>>,
}

impl Stepped {
    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap()
    }
}

impl Transport for Stepped {
    fn name(&self) -> &'static str {
        "stepped"
    }
    fn about(&self) -> String {
        String::new()
    }
    fn address(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn learn_addresses(&mut self, _: Vec<Vec<u8>>) {}
    unsafe fn register(&mut self, _: u32, _: Memory) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn learn_keys(&mut self, _: u32, _: Vec<Vec<u8>>) {}
    fn forget(&mut self, _: u32) {}
    unsafe fn put(&mut self, to: Remote, src: *const u8, bytes: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let (id, eager) = (net.next, net.eager);
        net.next += 1;
        // SAFETY: the caller vouches for the source.
        let data = unsafe { std::slice::from_raw_parts(src, bytes) }.to_vec();
        let token = (!eager).then_some(token);
        net.copies.push(Copying { id, dst: to.address as usize, data, token, put: true });
        Ok(eager)
    }
    unsafe fn get(&mut self, from: Remote, dst: *mut u8, bytes: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let id = net.next;
        net.next += 1;
        let data = [from.address.to_le_bytes(), (bytes as u64).to_le_bytes()].concat();
        net.copies.push(Copying { id, dst: dst as usize, data, token: Some(token), put: false });
        Ok(false)
    }
    fn send(&mut self, pe: usize, message: Vec<u8>) -> Result<()> {
        self.net().messages[pe].push_back(message);
        Ok(())
    }
    unsafe fn send_bulk(
        &mut self,
        _: usize,
        _: [u8; BULK_HEAD],
        _: *const u8,
        _: usize,
        _: Token,
    ) -> Result<bool> {
        unreachable!("there is no GPU memory")
    }
    unsafe fn receive(&mut self, _: BulkId, _: *mut u8, _: Token) -> Result<bool> {
        unreachable!("there is no GPU memory")
    }
    fn flush(&mut self, _pe: usize, token: Token) -> Result<bool> {
        let mut net = self.net();
        let ids: Vec<u64> = net.copies.iter().filter(|copy| copy.put).map(|copy| copy.id).collect();
        if ids.is_empty() {
            return Ok(true);
        }
        net.flushes.push((ids, token));
        Ok(false)
    }
    fn progress(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.net().events[self.me]);
    }
    fn fd(&self) -> Option<RawFd> {
        None
    }
    fn arm(&mut self) -> bool {
        true
    }
    fn congested(&self) -> bool {
        false
    }
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn recycle(&mut self, _: Vec<u8>) {}
    fn cut(&mut self) {}
}
