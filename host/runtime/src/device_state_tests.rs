//! The layout as a C compiler sees it, and the texts about stalls.

use std::process::Command;

use super::*;

#[test]
fn the_layout_is_that_of_the_header() {
    let mut program = String::from(
        "#include <stdio.h>\n#include \"rushmem/abi.h\"\n\
         #define P(type, field) printf(#type \".\" #field \" %zu\\n\", offsetof(type, field));\nint main(void) {\n",
    );
    let mut expected = String::new();
    macro_rules! fields {
        ($c:literal, $rust:ty: $($field:ident)*) => {$(
            program += concat!("P(", $c, ", ", stringify!($field), ")\n");
            expected += &format!(concat!($c, ".", stringify!($field), " {}\n"), std::mem::offset_of!($rust, $field));
        )*};
    }
    fields!("rushmem_stall_record", StallRecord: state cmp from_pe width address expected seen waited_ns block thread
        reserved);
    fields!("rushmem_sync_line", SyncLine: epoch pad);
    fields!("rushmem_device_state", RawState: version bytes my_pe n_pes near_first near_count heap_base stride broken
        sync_lines sync_epoch stall_ns wait_limit_ns stalls failure trap_delay_ns ring mailbox reserved);
    program += "printf(\"%zu %zu %zu\\n\", sizeof(rushmem_stall_record), sizeof(rushmem_sync_line), \
                sizeof(rushmem_device_state));\n\
                printf(\"%u %d %d %d %d %d %d %d %d\\n\", RUSHMEM_DEVICE_ABI_VERSION, RUSHMEM_STALL_RECORDS, \
                RUSHMEM_STALL_SYNC, RUSHMEM_STALL_ANSWER, RUSHMEM_STALL_ROOM, \
                RUSHMEM_DEVICE_FAIL_BROKEN, RUSHMEM_DEVICE_FAIL_TIMEOUT, RUSHMEM_DEVICE_FAIL_BAD_PE, \
                RUSHMEM_DEVICE_FAIL_UNMAPPED);\n}\n";
    let sizes = [size_of::<StallRecord>(), size_of::<SyncLine>(), size_of::<RawState>()];
    expected += &format!("{} {} {}\n", sizes[0], sizes[1], sizes[2]);
    expected +=
        &format!("{VERSION} {STALL_RECORDS} {STALL_SYNC} {STALL_ANSWER} {STALL_ROOM} {FAIL_BROKEN} {FAIL_TIMEOUT} {FAIL_BAD_PE} {FAIL_UNMAPPED}\n");

    let dir = std::env::temp_dir().join(format!("rushmem-layout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (source, binary) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&source, program).unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../device/include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Werror", "-I", include, "-o"]).args([&binary, &source]);
    let built = cc.output().expect("the tests need a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = Command::new(&binary).output().unwrap().stdout;
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(String::from_utf8_lossy(&said), expected);
}

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
        near: (0, 4),
        heap_base: 0x10000,
        stride: 0x8000,
        sync_lines: 0x10000,
        sync_epoch: 0x10200,
        stall_report: Some(Duration::from_secs(5)),
        wait_limit: None,
        trap_delay: Duration::ZERO,
        ring: 0,
        mailbox: 0,
    };
    DeviceState::new(&facts, health, None).unwrap()
}

#[test]
fn stalls_become_texts_once() {
    let state = state();
    assert_eq!(state.raw.stall_ns, 5_000_000_000);
    assert_eq!(state.raw.wait_limit_ns, 0);
    assert!(state.drain_stalls("PE 1").is_empty());
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
    put(2, StallRecord { cmp: STALL_ANSWER, from_pe: 3, ..ring });
    put(3, StallRecord { cmp: STALL_ANSWER, from_pe: 1, ..ring });
    put(4, StallRecord { cmp: STALL_ROOM, from_pe: -1, ..ring });
    assert_eq!(
        state.drain_stalls("PE 1 (host h, pid 9)"),
        [
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s for the 4-byte word at heap \
             offset 0x40 (address 0x10040) to become >= 7 (0x7); it is 3 (0x3)",
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s for the answer to its operation \
             on PE 3, which is not mapped",
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s for its operations on PEs that \
             are not mapped to complete",
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s for room in the ring to PEs that \
             are not mapped: what was posted is not taken, or not answered",
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s from PE 2 for the 4-byte \
             word at address 0x20000 to become >= 7 (0x7); it is 3 (0x3)",
            "PE 1 (host h, pid 9): a kernel (block (1,0,0), thread (5,2,0)) has waited 5.2 s for PE 3 to enter the \
             device's sync number 12; it has entered 11",
        ]
    );
    assert!(state.drain_stalls("PE 1").is_empty());
}

#[test]
fn a_gpus_failure_is_unpacked() {
    let state = state();
    assert_eq!(state.take_failure().0, 0);
    let words = [FAIL_TIMEOUT, 70_000, 3 << 16 | 65_535, 63 << 20 | 1023 << 10 | 17];
    for (to, from) in state.failure.0.iter().zip(words) {
        to.store(from, Ordering::Relaxed);
    }
    let told = (FAIL_TIMEOUT, " in block (70000,3,65535), thread (17,1023,63)".to_owned());
    assert_eq!(state.take_failure(), told);
    assert_eq!(state.take_failure().0, 0);
}
