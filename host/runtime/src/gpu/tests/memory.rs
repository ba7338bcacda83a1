//! Memory with and without addresses, shared by descriptor, pinned.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::gpu::pinned::{PinnedBox, Registered};
use crate::os::{page_size, Memfd, Reservation};

#[test]
fn one_allocation_at_two_addresses() {
    let Some(mut t) = turn("one_allocation_at_two_addresses") else { return };
    let grain = Allocation::granularity(&t.cuda).unwrap();
    let bytes = grain * (1 + t.random.below(4));
    let align = 1 << 30;
    let range = AddressRange::reserve(&t.cuda, 4 * bytes, align).unwrap();
    assert_eq!((range.base() % align, range.bytes()), (0, 4 * bytes));
    let allocation = Arc::new(Allocation::create(&t.cuda, bytes).unwrap());
    assert_eq!(allocation.bytes(), bytes);
    let first = range.map(0, &allocation, &[&t.cuda]).unwrap();
    let second = range.map(3 * bytes, &allocation, &[]).unwrap();
    second.set_access(&[&t.cuda]).unwrap();
    assert_eq!((first.base(), second.base()), (range.base(), range.base() + 3 * bytes));
    assert!(Arc::ptr_eq(first.allocation(), &allocation) && first.bytes() == bytes);
    let (at, data) = (t.random.below(bytes / 2), t.random.bytes(bytes / 2));
    t.write(first.base() + at, &data);
    assert!(t.read(second.base() + at, data.len()) == data);
    // A place that is taken, one past the end, one off the grain.
    assert!(range.map(0, &allocation, &[&t.cuda]).is_err());
    assert_eq!(range.map(3 * bytes + grain, &allocation, &[]).unwrap_err().code, code::INTERNAL);
    assert!(range.map(bytes + grain / 2, &allocation, &[]).is_err());
    // The mappings keep what they need, and nothing is left behind.
    drop((allocation, range, first));
    assert!(t.read(second.base() + at, data.len()) == data);
    drop(second);
    // The driver may keep some for itself, but not what comes and goes.
    let (before, _) = t.cuda.memory().unwrap();
    for _ in 0..32 {
        t.write(t.memory(16 * bytes).base(), &data);
    }
    assert!(t.cuda.memory().unwrap().0 + 128 * bytes >= before, "memory is left behind");
    t.cuda.check().unwrap();
}

#[test]
fn more_than_there_is() {
    let Some(t) = turn("more_than_there_is") else { return };
    let total = t.cuda.facts().memory.next_multiple_of(Allocation::granularity(&t.cuda).unwrap());
    let e = Allocation::create(&t.cuda, 2 * total).unwrap_err();
    assert_eq!(e.code, code::HEAP_EXHAUSTED);
    assert!(e.message.contains("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"), "{e}");
    assert_eq!(Allocation::create(&t.cuda, 1).unwrap_err().code, code::INVALID_ARGUMENT);
    assert!(AddressRange::reserve(&t.cuda, 1 << 62, 0).is_err());
    t.cuda.check().unwrap();
}

#[test]
fn descriptors_carry_memory() {
    let Some(mut t) = turn("descriptors_carry_memory") else { return };
    let mapping = t.memory(1);
    let bytes = mapping.bytes();
    let data = t.random.bytes(bytes);
    t.write(mapping.base(), &data);
    let fd = mapping.allocation().export().unwrap();
    let other = mapping.allocation().export().unwrap();
    // Only who made memory may export it.
    let spare = mapping.allocation().export().unwrap();
    let imported = Arc::new(Allocation::import(&t.cuda, fd, bytes).unwrap());
    let range = AddressRange::reserve(&t.cuda, 2 * bytes, 0).unwrap();
    let alias = range.map(0, &imported, &[&t.cuda]).unwrap();
    assert!(t.read(alias.base(), bytes) == data);
    // The descriptor and then the import keep the memory.
    drop(mapping);
    let third = Arc::new(Allocation::import(&t.cuda, other, bytes).unwrap());
    drop((alias, imported));
    let alias = range.map(0, &third, &[&t.cuda]).unwrap();
    assert!(t.read(alias.base(), bytes) == data);
    // A size that is a lie, and descriptors of something else.
    assert!(third.export().is_err());
    let lie = Arc::new(Allocation::import(&t.cuda, spare, 2 * bytes).unwrap());
    let empty = AddressRange::reserve(&t.cuda, 2 * bytes, 0).unwrap();
    assert!(empty.map(0, &lie, &[&t.cuda]).is_err());
    let other = OwnedFd::from(Memfd::create("rushmem-test", bytes).unwrap());
    let e = Allocation::import(&t.cuda, other, bytes).unwrap_err();
    eprintln!("{e}");
    t.cuda.check().unwrap();
}

#[test]
fn fills() {
    let Some(mut t) = turn("fills") else { return };
    let mapping = t.memory(1 << 20);
    let mut expected = t.random.bytes(1 << 20);
    t.write(mapping.base(), &expected);
    for (at, len, value) in
        [(0, 0, 1), (0, 1, 2), (7, 5, 3), (8, 4096, 0), (4097, 4095, 9), (65536, 1 << 19, 0)]
    {
        // SAFETY: mapped; `read` waits.
        unsafe { t.stream.fill(mapping.base() + at, value, len) }.unwrap();
        expected[at..at + len].fill(value);
    }
    assert!(t.read(mapping.base(), expected.len()) == expected);
}

#[test]
fn pinned_memory() {
    let Some(mut t) = turn("pinned_memory") else { return };
    let mapping = t.memory(4096);
    let word = PinnedBox::new(&t.cuda, AtomicU64::new(7)).unwrap();
    assert_eq!(word.as_ptr() as usize % align_of::<AtomicU64>(), 0);
    let mut buffer = PinnedBox::<[u8]>::filled(&t.cuda, 4000, 0).unwrap();
    let data = t.random.bytes(4000);
    buffer.as_mut_slice().copy_from_slice(&data);
    let back = PinnedBox::<[u8]>::filled(&t.cuda, 4000, 0xee).unwrap();
    // SAFETY: mapped and pinned; waited for below.
    unsafe {
        t.stream.copy(mapping.base(), buffer.device_address(), 4000).unwrap();
        t.stream.copy(back.device_address() + 1, mapping.base() + 1, 3998).unwrap();
        t.stream.copy(word.device_address(), mapping.base(), 8).unwrap();
    }
    t.finish();
    assert_eq!((back[0], back[3999]), (0xee, 0xee));
    assert!(back[1..3999] == data[1..3999]);
    assert_eq!(word.load(Ordering::Relaxed).to_le_bytes(), data[..8]);
    // Values are dropped with their box; none are no problem.
    let shared = Arc::new(());
    drop(PinnedBox::new(&t.cuda, Arc::clone(&shared)).unwrap());
    assert_eq!(Arc::strong_count(&shared), 1);
    assert!(PinnedBox::<[u64]>::filled(&t.cuda, 0, 0).unwrap().is_empty());
}

#[test]
fn registered_host_memory() {
    let Some(mut t) = turn("registered_host_memory") else { return };
    let bytes = 3 * page_size();
    let data = t.random.bytes(bytes);
    let mapping = t.memory(bytes);
    t.write(mapping.base(), &data);
    // As other processes share it: a control segment, say.
    let fd = OwnedFd::from(Memfd::create("rushmem-test", bytes).unwrap());
    let reservation = Reservation::new(bytes).unwrap();
    reservation.map(0, bytes, std::os::fd::AsFd::as_fd(&fd)).unwrap();
    // SAFETY: mapped until the end of the test.
    let registered = unsafe { Registered::new(&t.cuda, reservation.base(), bytes) }.unwrap();
    // SAFETY: mapped, registered, waited for.
    unsafe { t.stream.copy(registered.device_address(), mapping.base(), bytes) }.unwrap();
    t.finish();
    // SAFETY: the copy is done.
    assert!(unsafe { std::slice::from_raw_parts(reservation.base() as *const u8, bytes) } == data);
    // SAFETY: refused, as it is registered.
    let e = unsafe { Registered::new(&t.cuda, reservation.base(), bytes) }.unwrap_err();
    assert!(e.message.contains("ALREADY_REGISTERED"), "{e}");
    drop(registered);
    // SAFETY: mapped until the end of the test.
    drop(unsafe { Registered::new(&t.cuda, reservation.base(), bytes) }.unwrap());
}

#[test]
fn memory_of_a_peer() {
    let Some(mut t) = turn("memory_of_a_peer") else { return };
    if Cuda::count().unwrap() < 2 {
        eprintln!("SKIP memory_of_a_peer: one GPU only");
        return;
    }
    let peer = Cuda::open(1).unwrap();
    if !t.cuda.can_access_peer(&peer).unwrap() {
        eprintln!("SKIP memory_of_a_peer: {} cannot reach {peer}", t.cuda);
        return;
    }
    let bytes = Allocation::granularity(&peer).unwrap();
    let theirs = Arc::new(Allocation::create(&peer, bytes).unwrap());
    // By descriptor, as another process would.
    let imported = Arc::new(Allocation::import(&t.cuda, theirs.export().unwrap(), bytes).unwrap());
    let range = AddressRange::reserve(&t.cuda, 2 * bytes, 0).unwrap();
    let here = range.map(0, &imported, &[&t.cuda]).unwrap();
    let there = range.map(bytes, &theirs, &[&peer]).unwrap();
    let data = t.random.bytes(bytes - 1);
    t.write(here.base() + 1, &data);
    let theirs = Stream::new(&peer, Priority::High).unwrap();
    let mut back = vec![0; data.len()];
    // SAFETY: mapped; waited for.
    unsafe { theirs.copy(back.as_mut_ptr() as usize, there.base() + 1, back.len()) }.unwrap();
    finish(&theirs);
    assert!(back == data);
    assert!(t.read(here.base() + 1, data.len()) == data);
    let own = t.memory(bytes);
    // SAFETY: mapped; `read` waits.
    unsafe { t.stream.copy(own.base(), here.base() + 1, data.len()) }.unwrap();
    assert!(t.read(own.base(), data.len()) == data);
}

/// What a network card's driver would be given of a heap. Whether the driver takes it, only a card can show.
#[test]
fn heap_memory_has_a_dma_buf() {
    let test = "heap_memory_has_a_dma_buf";
    let Some(t) = turn(test) else { return };
    let grain = Allocation::granularity(&t.cuda).unwrap();
    let memory = t.memory(2 * grain);
    if !t.cuda.facts().dma_buf {
        let why = t.cuda.dma_buf(memory.base(), memory.bytes()).unwrap_err();
        assert!(why.message.contains("gives no dma-bufs"), "{why}");
        return eprintln!("SKIP {test}: {why}");
    }
    let kind = |fd: &OwnedFd| {
        std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd))).unwrap()
    };
    for (at, bytes) in [(0, 2 * grain), (page_size(), 3 * page_size())] {
        let fd = t.cuda.dma_buf(memory.base() + at, bytes).unwrap();
        assert!(kind(&fd).to_string_lossy().contains("dmabuf"), "{:?}", kind(&fd));
    }
    // Past the end.
    let error = t.cuda.dma_buf(memory.base(), 1 << 40).unwrap_err().message;
    assert!(error.contains("cuMemGetHandleForAddressRange") && error.contains("a dma-buf of"), "{error}");
}
