//! Messages and descriptors of any content, given to an engine whose network takes everything and delivers nothing.

use std::os::fd::RawFd;
use std::sync::Arc;

use rushmem_ring::WORDS;

use super::engine::Engine;
use super::message::{number, prelude};
use super::ring::Descriptor;
use super::transport::{BulkId, Event, Memory, Remote, Token, Transport, BULK_HEAD};
use crate::error::Result;
use crate::health::Health;
use crate::seeds::parts;

/// Takes everything, delivers nothing.
struct Void;

impl Transport for Void {
    fn name(&self) -> &'static str {
        "void"
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
    unsafe fn put(&mut self, _: Remote, _: *const u8, _: usize, _: Token) -> Result<bool> {
        Ok(true)
    }
    unsafe fn get(&mut self, _: Remote, _: *mut u8, _: usize, _: Token) -> Result<bool> {
        Ok(true)
    }
    fn send(&mut self, _: usize, _: Vec<u8>) -> Result<()> {
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
        Ok(true)
    }
    unsafe fn receive(&mut self, _: BulkId, _: *mut u8, _: Token) -> Result<bool> {
        Ok(true)
    }
    fn flush(&mut self, _: usize, _: Token) -> Result<bool> {
        Ok(true)
    }
    fn progress(&mut self, _: &mut Vec<Event>) {}
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

/// Bytes of the engine's one segment, and of what must stay as it is on both sides of it.
const SEGMENT: usize = 4096;
const EDGE: usize = 512;
const UNTOUCHED: u8 = 0xa5;

/// Messages to PE 0 of three, in the order of their numbers whatever these are.
pub(crate) fn messages(bytes: &[u8]) {
    let health = Arc::new(Health::new("PE 0".into(), false, None));
    let names = (0..3).map(|pe| format!("PE {pe}")).collect();
    let mut engine = Engine::new(0, Box::new(Void), names, vec![1, 2], health);
    // Words, so that a misaligned atomic is the message's doing.
    let mut memory = vec![u64::from_ne_bytes([UNTOUCHED; 8]); (SEGMENT + 2 * EDGE) / 8];
    let own = memory.as_mut_ptr() as usize + EDGE;
    let id = engine.segments.new_id();
    engine.segments.insert(id, 0, SEGMENT, own, vec![0; 3], vec![true; 3]);
    let mut next = [0; 3];
    for part in parts(bytes) {
        let mut message = part.to_vec();
        // A message ahead of its turn is kept, which is no work for a parser.
        if let Ok((from, _)) = prelude(&message) {
            if let Some(next) = next.get_mut(from) {
                number(&mut message, *next);
                *next += 1;
            }
        }
        if engine.incoming(message).is_err() {
            break;
        }
    }
    drop(engine);
    let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let edges = bytes[..EDGE].iter().chain(&bytes[EDGE + SEGMENT..]);
    assert!(edges.into_iter().all(|byte| *byte == UNTOUCHED), "memory outside the segment was written to");
}

/// The words of descriptors, one after the other.
pub(crate) fn descriptors(bytes: &[u8]) {
    for (ticket, part) in parts(bytes).enumerate() {
        let mut padded = [0; 8 * WORDS];
        let length = part.len().min(padded.len());
        padded[..length].copy_from_slice(&part[..length]);
        let words = std::array::from_fn(|i| {
            u64::from_le_bytes(padded[i * 8..][..8].try_into().expect("eight bytes"))
        });
        let descriptor = Descriptor::new(words, ticket as u64);
        let _ = (descriptor.op(), descriptor.inline());
        assert_eq!(descriptor.reply_to().map(|to| to.ticket).unwrap_or(ticket as u64), ticket as u64);
        super::posts::fuzz(&descriptor);
    }
}
