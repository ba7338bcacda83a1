//! One wrong request, or doorbell, of each kind: the syndrome of its completion, and what the card says of
//! it.

use std::time::Instant;

use super::{name, Rig, BYTES, LIMIT, NAMED, SLOTS};

#[test]
fn a_bad_remote_key() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].inline(NAMED, rig.there() ^ 1, &[1]);
    rig.refuses(request, 0x13, "is none of this card's");
}

#[test]
fn a_remote_range_past_the_end() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].inline(NAMED + BYTES as u64 - 7, rig.there(), &[1; 8]);
    rig.refuses(request, 0x13, "8 bytes at 0x13ff9 are not in");
}

#[test]
fn a_bad_local_key() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].copy(8, 8, (NAMED, rig.there()), NAMED, 64);
    request[36] ^= 1;
    rig.refuses(request, 0x04, "local memory: key");
}

#[test]
fn a_local_range_past_the_end() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].copy(8, 8, (NAMED, rig.there()), NAMED - 1, 64);
    rig.refuses(request, 0x04, "local memory: 64 bytes at 0x3fff");
}

#[test]
fn the_number_of_another_request() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1]);
    request[2] = 5;
    rig.refuses(request, 0x02, "the slot of request 0 holds number 5");
}

#[test]
fn another_queue_pair() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1]);
    request[6] ^= 1;
    rig.refuses(request, 0x02, "it names queue pair");
}

#[test]
fn an_unknown_opcode() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1]);
    request[3] = 0x0e;
    rig.refuses(request, 0x02, "opcode 0x0e");
}

#[test]
fn a_wrong_count_of_segments() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1; 20]);
    request[7] = 3;
    rig.refuses(request, 0x02, "with 3 segments of 16 bytes, and it has 4");
}

#[test]
fn more_inline_data_than_there_is_room() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1; 28]);
    request[35] = 29;
    rig.refuses(request, 0x01, "29 bytes inline");
}

#[test]
fn a_copy_of_no_bytes() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].copy(8, 8, (NAMED, rig.there()), NAMED, 0);
    rig.refuses(request, 0x01, "a data segment of 0x0 bytes");
}

#[test]
fn an_atomic_on_a_word_that_is_not_aligned() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x12, (NAMED + 4, rig.there()), [1, 0], NAMED);
    rig.refuses(request, 0x12, "an atomic on 0x4004, which is no multiple of 8");
}

#[test]
fn an_atomic_on_memory_that_is_not_for_atomics() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x11, (NAMED, rig.0[1].plain.remote), [1, 0], NAMED);
    rig.refuses(request, 0x13, "is none for atomics");
}

#[test]
fn a_write_to_memory_that_is_for_answers() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].inline(NAMED, rig.0[1].answers.remote, &[1]);
    rig.refuses(request, 0x13, "is none for a peer's WRITEs");
}

#[test]
fn a_read_of_memory_that_is_for_answers() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].copy(0x10, 8, (NAMED, rig.0[1].answers.remote), NAMED, 64);
    rig.refuses(request, 0x13, "is none for a peer's READs");
}

#[test]
fn an_atomic_on_memory_that_is_for_answers() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x12, (NAMED, rig.0[1].answers.remote), [1, 0], NAMED);
    rig.refuses(request, 0x13, "is none for atomics");
}

/// Such memory may be read: by this card's WRITEs, and by the peer's READs.
#[test]
fn writes_to_memory_that_is_for_reading() {
    let mut rig = Rig::new(None, 0);
    let (here, there) = (rig.0[0].readable.local, rig.0[1].readable.remote);
    let mut write = rig.0[0].copy(8, 8, (NAMED + 64, rig.there()), NAMED, 64);
    name(&mut write, 32, 64, here, NAMED);
    rig.carry_out(&[write]);
    let read = rig.0[0].copy(0x10, 8, (NAMED, there), NAMED, 64);
    rig.carry_out(&[read]);
    let request = rig.0[0].inline(NAMED, there, &[1]);
    rig.refuses_at(2, request, 0x13, "is none for a peer's WRITEs");
    let rig = Rig::new(None, 0);
    let mut answer = rig.0[0].copy(0x10, 8, (NAMED, rig.there()), NAMED, 64);
    name(&mut answer, 32, 64, rig.0[0].readable.local, NAMED);
    rig.refuses(answer, 0x04, "local memory: key");
    let rig = Rig::new(None, 0);
    let mut answer = rig.0[0].atomic(0x12, (NAMED, rig.there()), [1, 0], NAMED);
    name(&mut answer, 48, 8, rig.0[0].readable.local, NAMED);
    rig.refuses(answer, 0x04, "is none for answers");
}

#[test]
fn an_atomic_past_the_end() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x12, (NAMED + BYTES as u64, rig.there()), [1, 0], NAMED);
    rig.refuses(request, 0x13, "8 bytes at 0x14000 are not in");
}

#[test]
fn an_atomic_with_a_bad_key() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x12, (NAMED, rig.there() ^ 1), [1, 0], NAMED);
    rig.refuses(request, 0x13, "is none of this card's");
}

#[test]
fn an_atomic_whose_answer_has_another_length() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].atomic(0x12, (NAMED, rig.there()), [1, 0], NAMED);
    request[51] = 4;
    rig.refuses(request, 0x01, "an atomic with 4 bytes for its answer");
}

#[test]
fn an_atomic_whose_answer_has_no_place() {
    let rig = Rig::new(None, 0);
    let request = rig.0[0].atomic(0x12, (NAMED, rig.there()), [1, 0], NAMED + BYTES as u64 - 4);
    rig.refuses(request, 0x04, "local memory: 8 bytes at 0x13ffc");
}

#[test]
fn an_atomic_without_its_answer() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].atomic(0x11, (NAMED, rig.there()), [1, 0], NAMED);
    request[7] = 3;
    rig.refuses(request, 0x02, "opcode 0x11 with 3 segments of 16 bytes, and it has 4");
}

#[test]
fn flags_that_are_none() {
    let rig = Rig::new(None, 0);
    let mut request = rig.0[0].inline(NAMED, rig.there(), &[1]);
    request[11] = 0x49;
    rig.refuses(request, 0x02, "flags 0x49");
}

/// The slot has its first segment, and the rest of it is what was there before.
#[test]
fn a_torn_slot() {
    let mut rig = Rig::new(None, 0);
    let there = rig.there();
    let nothing = rig.0[0].head(0, 1, 8, 0, 0);
    rig.carry_out(&[nothing]);
    for _ in 1..SLOTS {
        let nothing = rig.0[0].head(0, 1, 8, 0, 0);
        rig.carry_out(&[nothing]);
    }
    // Slot 0 again, which is poisoned.
    let request = rig.0[0].inline(NAMED, there, &[1; 8]);
    rig.0[0].shared.slots[0][..16].copy_from_slice(&request[..16]);
    rig.0[0].next += 1;
    rig.0[0].ring();
    rig.fails(SLOTS as u16, 0x02, "the reserved word behind the remote key");
}

#[test]
fn a_doorbell_before_the_request() {
    let mut rig = Rig::new(None, 0);
    for _ in 0..SLOTS {
        let nothing = rig.0[0].head(0, 1, 8, 0, 0);
        rig.carry_out(&[nothing]);
    }
    rig.0[0].next += 1;
    rig.0[0].ring();
    rig.fails(SLOTS as u16, 0x02, "it was not written, or torn");
}

#[test]
fn a_doorbell_before_its_record() {
    let mut rig = Rig::new(None, 0);
    let request = rig.0[0].inline(NAMED, rig.there(), &[1]);
    rig.0[0].write(&request);
    let number = rig.0[0].number;
    rig.0[0].ring_as(0, 0, number);
    rig.fails(0, 0x02, "rings for request 0, and its record counts 0");
}

#[test]
fn a_record_that_goes_back() {
    let mut rig = Rig::new(None, 0);
    for _ in 0..2 {
        let nothing = rig.0[0].head(0, 1, 8, 0, 0);
        rig.carry_out(&[nothing]);
    }
    let number = rig.0[0].number;
    rig.0[0].ring_as(1, 0, number);
    rig.fails(2, 0x02, "goes back, from 2 to 1");
}

#[test]
fn a_record_of_more_than_16_bits() {
    let mut rig = Rig::new(None, 0);
    let number = rig.0[0].number;
    rig.0[0].ring_as(0x1_0001, 0, number);
    rig.fails(0, 0x02, "no count of 16 bits");
}

#[test]
fn more_requests_than_slots() {
    let mut rig = Rig::new(None, 0);
    let number = rig.0[0].number;
    rig.0[0].ring_as(SLOTS as u32 + 1, SLOTS as u16, number);
    rig.fails(0, 0x02, "65 requests are under way, in 64 slots");
}

#[test]
fn a_doorbell_of_another_queue_pair() {
    let mut rig = Rig::new(None, 0);
    let number = rig.0[0].number ^ 1;
    rig.0[0].ring_as(1, 0, number);
    rig.fails(0, 0x02, "the doorbell names queue pair");
}

#[test]
fn after_a_failure_the_rest_is_flushed() {
    let mut rig = Rig::new(None, 0);
    let there = rig.there();
    let request = rig.0[0].inline(NAMED, there ^ 1, &[1]);
    rig.0[0].write(&request);
    for _ in 0..3 {
        let good = rig.0[0].inline(NAMED, there, &[1]);
        rig.0[0].write(&good);
    }
    rig.0[0].ring();
    assert_eq!(rig.0[0].wait(|_, _| false), (0, 13, 0x13));
    let since = Instant::now();
    while rig.0[0].completion() != (3, 13, 0x05) {
        assert!(since.elapsed() < LIMIT, "{:?}", rig.0[0].completion());
        std::thread::yield_now();
    }
}

#[test]
fn a_lost_link_ends_what_is_under_way() {
    let mut rig = Rig::new(Some(10), 0);
    let there = rig.there();
    for i in 0..20u16 {
        let request = rig.0[0].inline(NAMED, there, &[1]);
        rig.0[0].write(&request);
        rig.0[0].ring();
        let (index, kind, syndrome) = rig.0[0].wait(|index, _| index == i);
        if kind == 13 {
            assert!((9..20).contains(&index), "after about 10 requests, and not {index}");
            return assert_eq!(syndrome, 0x15);
        }
    }
    panic!("the link was not lost");
}
