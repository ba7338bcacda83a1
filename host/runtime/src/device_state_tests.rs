//! The texts about stalls and failures.

use super::*;
use crate::team::slots::Slots;

impl DeviceState {
    /// What a kernel does before it traps.
    pub(crate) fn fail_as_a_kernel_does(&self, code: u32) {
        self.failure.0[0].store(code, Ordering::Release);
    }
}

fn state() -> DeviceState {
    state_of(&Arc::new(Health::new("PE 1".into(), false, None)))
}

/// A state that no kernel has, of PE 1.
pub(crate) fn state_of(health: &Arc<Health>) -> DeviceState {
    let facts = DeviceFacts {
        my_pe: 1,
        n_pes: 4,
        near: &Near::new(1, 4, &[(0, 0), (1, 1), (2, 2), (3, 3)], 1 << 32),
        near_table: 0,
        heap_base: 0x10000,
        stride: 0x8000,
        sync_lines: 0x10000,
        sync_epoch: 0x10200,
        stall_report: Some(Duration::from_secs(5)),
        wait_limit: None,
        trap_delay: Duration::ZERO,
        ring: 0,
        mailbox: 0,
        world: Slots::of_world(4, false).world_team(1, 0x10400, 0x10000, Some(1 << 32)),
        teams: 0,
        queues: 0,
    };
    DeviceState::new(&facts, health, None).unwrap()
}

#[test]
fn stalls_become_texts_once() {
    let state = state();
    assert_eq!(state.raw.stall_ns, 5_000_000_000);
    assert_eq!(state.raw.wait_limit_ns, 0);
    assert!(state.take_stalls().is_empty());
    let mut word = StallRecord {
        state: 2,
        cmp: 3,
        from_pe: -1,
        width: 4,
        address: 0x10040,
        expected: 7,
        seen: 0xdead_0000_0003,
        waited_ns: 5_250_000_000,
        block: [1, 0, 0],
        thread: [5, 2, 0],
        reserved: 0,
    };
    let put = |i: usize, record: StallRecord| {
        // SAFETY: nobody else looks at the records now.
        unsafe { state.stalls.get().cast::<StallRecord>().add(i).write(record) }
    };
    put(0, word);
    // One that is still being written stays.
    put(1, StallRecord { state: 1, ..word });
    (word.address, word.from_pe) = (0x20000, 2);
    put(6, word);
    put(7, StallRecord { cmp: -1, width: 8, from_pe: 3, expected: 12, seen: 11, ..word });
    let ring = StallRecord { width: 8, address: 0x7000, expected: 12, seen: 11, ..word };
    put(2, StallRecord { cmp: RUSHMEM_STALL_ANSWER, from_pe: 3, ..ring });
    put(3, StallRecord { cmp: RUSHMEM_STALL_ANSWER, from_pe: 1, ..ring });
    put(4, StallRecord { cmp: RUSHMEM_STALL_ROOM, from_pe: -1, ..ring });
    put(5, StallRecord { cmp: RUSHMEM_STALL_ADDRESS, from_pe: 3, ..ring });
    assert_eq!(
        state.take_stalls().iter().map(|record| state.describe("PE 1 (host h, pid 9)", record)).collect::<Vec<_>>(),
        [
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for the 4-byte word at heap \
             offset 0x40 (address 0x10040) to become >= 7 (0x7); it is 3 (0x3)",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for the answer to its operation \
             on PE 3, which is not mapped",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for its operations on PEs that \
             are not mapped to complete",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for room to post an operation \
             on a PE that is not mapped: what was posted is not taken, or not answered",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) asks for PE 3's copy of address 0x7000, which \
             is not symmetric memory",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for the 4-byte \
             word at address 0x20000, which PE 2 is to write, to become >= 7 (0x7); it is 3 (0x3)",
            "PE 1 (host h, pid 9): a kernel in block (1,0,0), thread (5,2,0) has waited 5.2 s for PE 3 to enter the \
             device's sync number 12; it has entered 11",
        ]
    );
    assert!(state.take_stalls().is_empty());
    // Of a card's queue: a wait, whose word has eight bytes, and a request that failed.
    put(0, StallRecord { cmp: RUSHMEM_STALL_QUEUE, from_pe: 3, ..ring });
    put(1, StallRecord { cmp: RUSHMEM_STALL_REFUSED, from_pe: 3, width: 0x13, expected: 0, ..ring });
    put(2, StallRecord { cmp: RUSHMEM_STALL_ROOM, from_pe: 3, ..ring });
    let texts = state.take_stalls().iter().map(|record| state.describe("PE 1", record)).collect::<Vec<_>>();
    let place = "PE 1: a kernel in block (1,0,0), thread (5,2,0)";
    assert_eq!(
        texts,
        [
            format!("{place} has waited 5.2 s for the network card to complete request 12 to PE 3; it has completed 11"),
            format!(
                "{place}: the network card refused a request to PE 3: remote memory that is not registered so (syndrome \
                 0x13); 11 requests before it are complete"
            ),
            format!(
                "{place} has waited 5.2 s for room in the network card's queue to PE 3, which is full; the card has \
                 completed 11 requests"
            ),
        ]
    );
}

#[test]
fn a_gpus_failure_is_unpacked() {
    let state = state();
    assert_eq!(state.take_failure().0, 0);
    let words = [RUSHMEM_DEVICE_FAIL_TIMEOUT, 70_000, 3 << 16 | 65_535, 63 << 20 | 1023 << 10 | 17];
    for (to, from) in state.failure.0.iter().zip(words) {
        to.store(from, Ordering::Relaxed);
    }
    let expected = (RUSHMEM_DEVICE_FAIL_TIMEOUT, " in block (70000,3,65535), thread (17,1023,63)".to_owned());
    assert_eq!(state.take_failure(), expected);
    assert_eq!(state.take_failure().0, 0);
}
