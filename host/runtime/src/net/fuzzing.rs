//! Messages and descriptors of any content, given to an engine.

use std::sync::Arc;

use rushmem_ring::WORDS;

use crate::health::Health;
use crate::net::engine::Engine;
use crate::net::proxy::ring::Descriptor;
use crate::net::transport::stand_in::{Network, StandIn};
use crate::net::wire::message::{number, prelude};
use crate::seeds::parts;

/// Bytes of the engine's one segment, and of what must stay as it is on both sides of it.
const SEGMENT: usize = 4096;
const EDGE: usize = 512;
const UNTOUCHED: u8 = 0xa5;

/// Messages to PE 0 of three, in the order of their numbers whatever these are.
pub(crate) fn messages(bytes: &[u8]) {
    let health = Arc::new(Health::new("PE 0".into(), false, None));
    let names = (0..3).map(|pe| format!("PE {pe}")).collect();
    let network = Network::shared(3, true);
    let transport = Box::new(StandIn::new(0, &network));
    let mut engine = Engine::new(0, transport, names, Box::new(|_, _| Ok(())), health);
    // Words, so that a misaligned atomic is the message's doing.
    let mut memory = vec![u64::from_ne_bytes([UNTOUCHED; 8]); (SEGMENT + 2 * EDGE) / 8];
    let own = memory.as_mut_ptr() as usize + EDGE;
    let id = engine.segments().new_id();
    engine.segments().insert(id, 0, SEGMENT, own, vec![0; 3], vec![true; 3]);
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
        if engine.operations.receive(message).is_err() {
            break;
        }
        engine.turn();
        let mut network = network.lock().expect("no target goes on after a panic");
        while let Some(step) = network.steps().pop() {
            network.take(step);
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
        crate::net::proxy::posts::fuzz(&descriptor);
    }
}
