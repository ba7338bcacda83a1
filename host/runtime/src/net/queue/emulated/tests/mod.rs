//! The software card, by requests that these tests write byte by byte: right ones, and one wrong one of each
//! kind, of which the card says precisely what is wrong.

mod wrong;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::SoftwareCard;
use crate::net::queue::card::{AccessRights, NetworkCard, QueueArea, QueueMemory, RegionKeys};
use crate::net::transport::Memory;

const SLOTS: usize = 64;
const BYTES: usize = 1 << 16;
/// The address by which requests name the memory.
const NAMED: u64 = 0x4000;
const LIMIT: Duration = Duration::from_secs(30);

/// What lies where a kernel would write.
#[repr(C, align(64))]
struct Shared {
    slots: [[u8; 64]; SLOTS],
    record: [u32; 2],
    bell: u64,
    completion: [u64; 8],
}

/// One end: a card with one queue to the other.
struct End {
    card: SoftwareCard,
    shared: Box<Shared>,
    data: Vec<u64>,
    number: u32,
    keys: RegionKeys,
    /// The same memory, and not for atomics; for answers alone; and for reading alone.
    plain: RegionKeys,
    answers: RegionKeys,
    readable: RegionKeys,
    /// Requests written so far.
    next: u64,
}

struct Rig([End; 2]);

impl Rig {
    fn new(lose: Option<u64>, delay: u64) -> Rig {
        let mut ends = [0, 1].map(|me: usize| End::new(me, 1 - me, lose, delay));
        let addresses: Vec<Option<Vec<u8>>> = ends.iter().map(|end| Some(end.card.address())).collect();
        for end in &mut ends {
            assert_eq!(end.card.connect(&addresses).unwrap().iter().flatten().count(), 0);
        }
        Rig(ends)
    }

    /// The key by which end 0 names the memory of end 1.
    fn there(&self) -> u32 {
        self.0[1].keys.remote
    }

    fn word(&self, end: usize, at: usize) -> u64 {
        self.0[end].word(at).load(Ordering::Acquire)
    }

    /// End 0 writes requests, and rings once. Its next completion must say that of all of them.
    #[track_caller]
    fn carry_out(&mut self, requests: &[[u8; 64]]) {
        self.0[0].carry_out(requests);
    }

    /// The one request is refused with this syndrome, and the cards say why.
    #[track_caller]
    fn refuses(self, request: [u8; 64], syndrome: u8, why: &str) {
        self.refuses_at(0, request, syndrome, why);
    }

    /// The same of request `index`.
    #[track_caller]
    fn refuses_at(mut self, index: u16, request: [u8; 64], syndrome: u8, why: &str) {
        self.0[0].write(&request);
        self.0[0].ring();
        self.fails(index, syndrome, why);
    }

    #[track_caller]
    fn fails(&mut self, index: u16, syndrome: u8, why: &str) {
        assert_eq!(self.0[0].wait(|_, _| false), (index, 13, syndrome));
        let told: Vec<String> = self.0.iter().flat_map(|end| end.card.told()).collect();
        assert!(told.iter().any(|text| text.contains(why)), "{told:?} do not say {why:?}");
        assert!(self.0[1].data.iter().all(|word| *word == 0), "nothing was written");
    }
}

impl End {
    /// The end of PE `me`, one of two, with a queue to `peer`.
    fn new(me: usize, peer: usize, lose: Option<u64>, delay: u64) -> End {
        let card = SoftwareCard::new(me, None, None, delay, lose).unwrap();
        let shared = Shared {
            slots: [[0; 64]; SLOTS],
            record: [0; 2],
            bell: 0,
            completion: [0xff00_0000_0000_0000; 8],
        };
        let none = RegionKeys { local: 0, remote: 0 };
        let mut end = End {
            card,
            shared: Box::new(shared),
            data: vec![0; BYTES / 8],
            number: 0,
            keys: none,
            plain: none,
            answers: none,
            readable: none,
            next: 0,
        };
        let at = &raw mut *end.shared;
        // SAFETY: within the box, which outlives the card.
        let memory = unsafe {
            QueueMemory {
                slots: (&raw mut (*at).slots).cast(),
                count: SLOTS,
                record: (&raw mut (*at).record).cast(),
                bell: &raw mut (*at).bell,
                completion: (&raw mut (*at).completion).cast(),
            }
        };
        let queues = (0..2).map(|pe| (pe == peer).then_some(memory)).collect();
        let address = end.data.as_mut_ptr() as usize;
        let memory = Memory { address, bytes: BYTES, gpu: false, single: true };
        let area = QueueArea { start: at.cast(), bytes: size_of::<Shared>() };
        // SAFETY: the memory outlives the card.
        unsafe {
            end.number = end.card.open(area, 2, queues).unwrap()[peer].number;
            end.keys = end.card.register(memory, NAMED, AccessRights::symmetric(true)).unwrap();
            end.plain = end.card.register(memory, NAMED, AccessRights::symmetric(false)).unwrap();
            end.answers = end.card.register(memory, NAMED, AccessRights::ANSWERS).unwrap();
            let readable =
                AccessRights { local_write: false, remote_write: false, ..AccessRights::symmetric(false) };
            end.readable = end.card.register(memory, NAMED, readable).unwrap();
        }
        end
    }

    /// An end whose queue leads to itself.
    fn alone(delay: u64) -> End {
        let mut end = End::new(0, 0, None, delay);
        let address = end.card.address();
        assert!(end.card.connect(&[Some(address), None]).unwrap().iter().all(Option::is_none));
        end
    }

    fn write(&mut self, request: &[u8; 64]) {
        self.shared.slots[self.next as usize % SLOTS] = *request;
        self.next += 1;
    }

    /// Writes requests, and rings once.
    #[track_caller]
    fn carry_out(&mut self, requests: &[[u8; 64]]) {
        requests.iter().for_each(|request| self.write(request));
        self.ring();
        let last = (self.next - 1) as u16;
        assert_eq!(self.wait(|index, _| index == last), (last, 0, 0));
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: a word of the memory, which the card may write, atomic to both.
        unsafe { AtomicU64::from_ptr((&raw const self.data[at]).cast_mut()) }
    }

    fn ring(&mut self) {
        let (count, last) = (self.next as u32 & 0xffff, (self.next - 1) as u16);
        self.ring_as(count, last, self.number);
    }

    fn ring_as(&mut self, record: u32, last: u16, number: u32) {
        let head = (u32::from(last) << 8).to_be_bytes();
        let pair = (number << 8).to_be_bytes();
        let bell = u64::from_le_bytes([head, pair].concat().try_into().unwrap());
        // SAFETY: words that the card reads, atomic to both.
        unsafe {
            AtomicU32::from_ptr(&raw mut self.shared.record[1]).store(record.to_be(), Ordering::Release);
            AtomicU64::from_ptr(&raw mut self.shared.bell).store(bell, Ordering::Release);
        }
    }

    /// The completion now: index, kind, syndrome.
    fn completion(&self) -> (u16, u8, u8) {
        let word = |at: usize| {
            // SAFETY: words that the card writes, atomic to both.
            unsafe { AtomicU64::from_ptr((&raw const self.shared.completion[at]).cast_mut()) }
                .load(Ordering::Acquire)
                .to_le_bytes()
        };
        let last = word(7);
        let syndrome = if last[7] >> 4 == 13 { word(6)[7] } else { 0 };
        (u16::from_be_bytes([last[4], last[5]]), last[7] >> 4, syndrome)
    }

    /// The first completion that fits, or that is a failure.
    #[track_caller]
    fn wait(&self, fits: impl Fn(u16, u8) -> bool) -> (u16, u8, u8) {
        let since = Instant::now();
        loop {
            let found = self.completion();
            if found.1 == 13 || (found.1 == 0 && fits(found.0, found.1)) {
                return found;
            }
            assert!(since.elapsed() < LIMIT, "no completion; {found:?}, {:?}", self.card.told());
            std::thread::yield_now();
        }
    }

    /// A control segment, and an address behind it.
    fn head(&self, opcode: u8, segments: u8, flags: u8, remote: u64, key: u32) -> [u8; 64] {
        let mut block = [0; 64];
        block[0..4].copy_from_slice(&(((self.next as u32 & 0xffff) << 8) | u32::from(opcode)).to_be_bytes());
        block[4..8].copy_from_slice(&(self.number << 8 | u32::from(segments)).to_be_bytes());
        block[11] = flags;
        block[16..24].copy_from_slice(&remote.to_be_bytes());
        block[24..28].copy_from_slice(&key.to_be_bytes());
        block
    }

    fn inline(&self, remote: u64, key: u32, data: &[u8]) -> [u8; 64] {
        let segments = 2 + (4 + data.len()).div_ceil(16);
        let mut block = self.head(8, segments as u8, 8, remote, key);
        block[32..36].copy_from_slice(&(1 << 31 | data.len() as u32).to_be_bytes());
        block[36..36 + data.len()].copy_from_slice(data);
        block
    }

    fn copy(&self, opcode: u8, flags: u8, (remote, key): (u64, u32), local: u64, bytes: u32) -> [u8; 64] {
        let mut block = self.head(opcode, 3, flags, remote, key);
        name(&mut block, 32, bytes, self.keys.local, local);
        block
    }

    fn atomic(&self, opcode: u8, (remote, key): (u64, u32), operands: [u64; 2], local: u64) -> [u8; 64] {
        let mut block = self.head(opcode, 4, 8, remote, key);
        block[32..40].copy_from_slice(&operands[0].to_be_bytes());
        block[40..48].copy_from_slice(&operands[1].to_be_bytes());
        name(&mut block, 48, 8, self.keys.local, local);
        block
    }
}

fn name(block: &mut [u8; 64], at: usize, bytes: u32, key: u32, address: u64) {
    block[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
    block[at + 4..at + 8].copy_from_slice(&key.to_be_bytes());
    block[at + 8..at + 16].copy_from_slice(&address.to_be_bytes());
}

// ---- what is right ----

#[test]
fn requests_do_what_they_say() {
    let mut rig = Rig::new(None, 20);
    let there = rig.there();
    for bytes in 1..=28usize {
        let data: Vec<u8> = (0..bytes).map(|i| (bytes * 7 + i) as u8).collect();
        // With a READ behind it, as a completion of a WRITE alone does not say that it is in memory.
        let request = rig.0[0].inline(NAMED + 64, there, &data);
        rig.carry_out(&[request]);
        let behind = rig.0[0].copy(0x10, 8, (NAMED, there), NAMED + 1024, 8);
        rig.carry_out(&[behind]);
        let seen: Vec<u8> = rig.0[1].data[8..12].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(seen[..bytes], data, "{bytes} bytes inline");
    }
    // More than one part, in whatever order they arrive.
    let bytes = 50_000u32;
    (0..BYTES / 8).for_each(|i| rig.0[0].data[i] = 3 * i as u64 + 1);
    let write = rig.0[0].copy(8, 8, (NAMED + 800, there), NAMED + 80, bytes);
    rig.carry_out(&[write]);
    let behind = rig.0[0].copy(0x10, 8, (NAMED, there), NAMED + 60_000, 8);
    rig.carry_out(&[behind]);
    assert_eq!(rig.0[1].data[100..100 + bytes as usize / 8], rig.0[0].data[10..10 + bytes as usize / 8]);
    let read = rig.0[0].copy(0x10, 8, (NAMED + 800, there), NAMED + 1600, 4096);
    rig.carry_out(&[read]);
    assert_eq!(rig.0[0].data[200..712], rig.0[1].data[100..612]);
    // Atomics, and their answers.
    rig.0[1].data[0] = 40;
    let add = rig.0[0].atomic(0x12, (NAMED, there), [2, 0], NAMED + 8);
    rig.carry_out(&[add]);
    assert_eq!((rig.word(1, 0), rig.word(0, 1)), (42, 40));
    for (compare, after) in [(41, 42), (42, 7)] {
        let swap = rig.0[0].atomic(0x11, (NAMED, there), [7, compare], NAMED + 16);
        rig.carry_out(&[swap]);
        assert_eq!((rig.word(1, 0), rig.word(0, 2)), (after, 42), "compared with {compare}");
    }
    assert!(rig.0.iter().all(|end| end.card.told().is_empty()));
}

#[test]
fn slots_and_the_counter_of_16_bits_wrap() {
    let mut rig = Rig::new(None, 0);
    let there = rig.there();
    // Past 2^16 requests, many to a doorbell; of each batch the last alone asks for a completion.
    for batch in 0..70_000 / 50u64 {
        for i in 0..50 {
            let value = batch * 50 + i;
            let mut request = rig.0[0].inline(NAMED + value % 32 * 8, there, &value.to_le_bytes());
            request[11] = if i == 49 { 8 } else { 0 };
            rig.0[0].write(&request);
        }
        rig.0[0].ring();
        let last = (batch * 50 + 49) as u16;
        assert_eq!(rig.0[0].wait(|index, _| index == last), (last, 0, 0));
        assert_eq!(rig.word(1, (batch * 50 + 49) as usize % 32), batch * 50 + 49);
    }
    let none = (0..SLOTS).filter(|slot| rig.0[0].shared.slots[*slot] == [0xdb; 64]).count();
    assert_eq!(none, SLOTS, "slots are poisoned once they were taken");
}

/// A READ sees what was before it, and a WRITE behind it may be sooner, unless it has the fence.
#[test]
fn a_write_may_overtake_a_read_unless_it_is_fenced() {
    let mut rig = Rig::new(None, 20);
    let there = rig.there();
    for (fence, rounds) in [(0x80, 300), (0, 2000)] {
        let mut overtaken = 0;
        for round in 0..rounds {
            let (old, new) = (2 * round + 1, 2 * round + 2);
            let before = rig.0[0].inline(NAMED, there, &u64::to_le_bytes(old));
            rig.carry_out(&[before]);
            let read = rig.0[0].copy(0x10, 8, (NAMED, there), NAMED + 8, 8);
            rig.0[0].write(&read);
            let mut write = rig.0[0].inline(NAMED, there, &u64::to_le_bytes(new));
            write[11] |= fence;
            rig.carry_out(&[write]);
            let seen = rig.word(0, 1);
            assert!(seen == old || seen == new);
            overtaken += usize::from(seen == new);
            if fence == 0 && overtaken > 0 {
                break;
            }
        }
        assert_eq!(overtaken > 0, fence == 0, "fence {fence:#x}");
    }
}

/// Two ends update each other's words and their own at once, and nobody else does.
#[test]
fn atomics_of_all_ends_at_once_are_exact() {
    let rig = Rig::new(None, 5);
    let [mut one, mut other] = rig.0;
    let mut itself = End::alone(5);
    let (rounds, batch) = (300u64, 10);
    let add = |end: &mut End, key: u32| {
        let mut sum = 0;
        for _ in 0..rounds {
            let requests: Vec<[u8; 64]> = (0..batch)
                .map(|i| {
                    let request = end.atomic(0x12, (NAMED, key), [1, 0], NAMED + 8 + 8 * i);
                    end.next += 1;
                    request
                })
                .collect();
            end.next -= batch;
            end.carry_out(&requests);
            sum += (0..batch).map(|i| end.word(1 + i as usize).load(Ordering::Acquire)).sum::<u64>();
        }
        sum
    };
    let (to_one, to_other, to_itself) = (one.keys.remote, other.keys.remote, itself.keys.remote);
    let sums = std::thread::scope(|scope| {
        let first = scope.spawn(|| add(&mut one, to_other));
        let second = scope.spawn(|| add(&mut other, to_one));
        let third = scope.spawn(|| add(&mut itself, to_itself));
        [first.join().unwrap(), second.join().unwrap(), third.join().unwrap()]
    });
    let n = rounds * batch;
    for (sum, end) in sums.into_iter().zip([&one, &other, &itself]) {
        assert_eq!((sum, end.word(0).load(Ordering::Acquire)), (n * (n - 1) / 2, n));
        assert!(end.card.told().is_empty());
    }
}

/// What a card does is atomic with nobody else's, and this card plays it so: a processor's atomics beside it
/// are lost, now and then.
#[test]
fn atomics_beside_the_card_are_lost() {
    let mut rig = Rig::new(None, 0);
    let there = rig.there();
    let since = Instant::now();
    let (mut by_card, mut by_processor) = (0u64, 0);
    while rig.word(1, 0) == by_card + by_processor {
        assert!(since.elapsed() < LIMIT, "none of {by_processor} beside {by_card} was lost");
        let add = rig.0[0].atomic(0x12, (NAMED, there), [1, 0], NAMED + 8);
        rig.0[0].write(&add);
        rig.0[0].ring();
        by_card += 1;
        let last = (rig.0[0].next - 1) as u16;
        while rig.0[0].completion() != (last, 0, 0) {
            rig.0[1].word(0).fetch_add(1, Ordering::AcqRel);
            by_processor += 1;
        }
    }
    assert!(rig.word(1, 0) < by_card + by_processor);
}

#[test]
fn a_pair_may_lead_to_itself() {
    let mut end = End::alone(20);
    let key = end.keys.remote;
    (0..BYTES / 8).for_each(|i| end.data[i] = 5 * i as u64 + 2);
    let wanted: Vec<u64> = end.data[16..16 + 4000].to_vec();
    let write = end.copy(8, 8, (NAMED + 8 * 4100, key), NAMED + 8 * 16, 32_000);
    // With a READ behind it, as a completion of a WRITE alone does not say that it is in memory.
    end.carry_out(&[write]);
    let read = end.copy(0x10, 8, (NAMED + 8 * 4100, key), NAMED, 64);
    end.carry_out(&[read]);
    assert_eq!(end.data[4100..8100], wanted);
    assert_eq!(end.data[..8], wanted[..8]);
    let before = end.data[100];
    let swap = end.atomic(0x11, (NAMED + 800, key), [77, before], NAMED);
    end.carry_out(&[swap]);
    assert_eq!((end.word(100).load(Ordering::Acquire), end.word(0).load(Ordering::Acquire)), (77, before));
    assert!(end.card.told().is_empty());
}

/// A process that has a card's name, and not its secret, is not connected.
#[test]
fn strangers_are_not_connected() {
    let mut rig = Rig::new(None, 0);
    let [_, other] = &mut rig.0;
    let mut again = SoftwareCard::new(0, None, None, 0, None).unwrap();
    let mut address = other.card.address();
    address[20] ^= 1;
    again.connect(&[None, Some(address)]).unwrap();
    // The pair of before goes on.
    let there = rig.there();
    for _ in 0..100 {
        let request = rig.0[0].inline(NAMED, there, &[1]);
        rig.carry_out(&[request]);
    }
}
