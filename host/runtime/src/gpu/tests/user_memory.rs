//! Memory that other code of the process made: how it is recognised, and how other processes reach it.

use std::sync::Arc;

use cudarc::driver::sys;

use super::{turn, Turn};
use crate::error::code;
use crate::gpu::ipc::{IpcHandle, IpcMapping};
use crate::gpu::pointer::MemoryType;
use crate::gpu::vmm::{AddressRange, Allocation};
use crate::memory::gpu_region::{inspect, GpuMemory};

/// Memory of `cuMemAlloc`.
struct Plain<'a>(&'a Turn, usize);

impl<'a> Plain<'a> {
    fn new(turn: &'a Turn, bytes: usize) -> Self {
        let _current = turn.cuda.current().unwrap();
        let mut at = 0;
        // SAFETY: writes the address of new memory, which is freed in `drop`.
        assert_eq!(unsafe { sys::cuMemAlloc_v2(&mut at, bytes) } as u32, 0);
        Plain(turn, at as usize)
    }
}

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        let _current = self.0.cuda.current().unwrap();
        // SAFETY: made in `new`.
        assert_eq!(unsafe { sys::cuMemFree_v2(self.1 as u64) } as u32, 0);
    }
}

#[test]
fn addresses_are_known_for_what_they_are() {
    let Some(turn) = turn("addresses_are_known_for_what_they_are") else { return };
    let cuda = &turn.cuda;
    let host = [0u8; 100];
    assert_eq!(cuda.place_of(host.as_ptr() as usize).unwrap(), None);
    assert_eq!(cuda.place_of(8).unwrap(), None);
    let here = Some(MemoryType::Gpu(cuda.facts().ordinal));

    let plain = Plain::new(&turn, 131_072);
    assert_eq!(cuda.place_of(plain.1 + 131_071).unwrap(), here);
    assert_eq!(cuda.allocation_around(plain.1 + 5).unwrap(), (plain.1, 131_072));
    assert!(!cuda.is_pooled(plain.1).unwrap());
    assert!(Allocation::at_address(cuda, plain.1, 4096).unwrap().is_none());
    let (at, first) = (plain.1, cuda.allocation_id(plain.1).unwrap());
    assert!(first.is_some());
    drop(plain);
    assert_ne!(cuda.allocation_id(at).unwrap(), first, "freed");

    let mapping = turn.memory(1);
    assert_eq!(cuda.place_of(mapping.base() + 1).unwrap(), here);
    assert_eq!(cuda.allocation_around(mapping.base() + 5).unwrap(), (mapping.base(), mapping.bytes()));
    let again = Allocation::at_address(cuda, mapping.base() + 77, mapping.bytes()).unwrap().unwrap();
    assert!(again.is_shareable().unwrap());
    // The same memory, by another descriptor.
    let imported = Allocation::import(cuda, again.export().unwrap(), again.bytes()).unwrap();
    let range = AddressRange::reserve(cuda, imported.bytes(), 0).unwrap();
    let twin = range.map(0, &Arc::new(imported), &[cuda]).unwrap();
    turn.write(mapping.base() + 10, b"seen twice");
    assert_eq!(turn.read(twin.base() + 10, 10), b"seen twice");
}

#[test]
fn neighbouring_mappings_are_told_apart() {
    let Some(turn) = turn("neighbouring_mappings_are_told_apart") else { return };
    let cuda = &turn.cuda;
    let piece = Allocation::granularity(cuda).unwrap();
    let range = AddressRange::reserve(cuda, 4 * piece, 0).unwrap();
    let small = range.map(0, &Arc::new(Allocation::create(cuda, piece).unwrap()), &[cuda]).unwrap();
    let large = range.map(piece, &Arc::new(Allocation::create(cuda, 2 * piece).unwrap()), &[cuda]).unwrap();
    assert_eq!(cuda.allocation_around(small.base() + piece - 1).unwrap(), (small.base(), piece));
    assert_eq!(cuda.allocation_around(large.base()).unwrap(), (large.base(), 2 * piece));

    let look = |at: usize, bytes: usize| inspect(cuda, at, bytes, piece, false);
    let pieces = |found| match found {
        GpuMemory::Vmm(pieces) => pieces.iter().map(|p| (p.offset, p.bytes)).collect::<Vec<_>>(),
        GpuMemory::Plain(plain) => panic!("{plain:?}"),
    };
    assert_eq!(pieces(look(small.base(), 3 * piece).unwrap()), [(0, piece), (piece, 2 * piece)]);
    assert_eq!(pieces(look(large.base(), 2 * piece).unwrap()), [(0, 2 * piece)]);
    for (at, bytes) in [(small.base(), 2 * piece), (large.base() + piece, piece), (small.base() + 16, 16)] {
        let e = look(at, bytes).unwrap_err();
        assert_eq!(e.code, code::INVALID_ARGUMENT, "{e}");
        assert!(e.message.contains("whole allocations"), "{e}");
    }
    let e = look(small.base(), 4 * piece).unwrap_err();
    assert_eq!(e.code, code::INVALID_ARGUMENT, "nothing is mapped in the last piece: {e}");
}

#[test]
fn a_part_of_plain_memory_is_found_with_its_handle() {
    let Some(turn) = turn("a_part_of_plain_memory_is_found_with_its_handle") else { return };
    let cuda = &turn.cuda;
    let piece = Allocation::granularity(cuda).unwrap();
    for bytes in [4096, 5 << 20] {
        let memory = Plain::new(&turn, bytes);
        let Ok(GpuMemory::Plain(found)) = inspect(cuda, memory.1 + 512, bytes - 512, piece, false) else {
            panic!("plain memory");
        };
        assert_eq!(found.offset, 512);
        assert_eq!(found.handle, IpcHandle::of(cuda, memory.1).unwrap());
        // Drivers so far let no process open its own handle; the address itself serves there.
        let opened = IpcMapping::open(cuda, &found.handle).map(|mapping| mapping.start());
        eprintln!("opened by its own process: {opened:?}");
        assert!(inspect(cuda, memory.1 + 512, bytes, piece, false).is_err(), "past the end");
        assert!(inspect(cuda, memory.1 + 8, 16, piece, false).is_err(), "misaligned");
    }
    cuda.enable_peer_access(cuda).unwrap();
}
