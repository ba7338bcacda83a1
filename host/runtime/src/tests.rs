//! The core as a whole, PEs as threads over the fake bootstrap: what one unit alone cannot show.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::code;
use crate::fake::{worlds, worlds_with};
use crate::node::control::Call;
use crate::op::Reached;
use crate::os::page_size;
use crate::world::World;

fn at(w: &World, p: usize, bytes: usize, pe: i32) -> *mut u8 {
    let (p, Reached::Host) = w.route(p, bytes, pe).unwrap() else { panic!("host memory") };
    p as *mut u8
}

#[test]
fn every_pe_sees_every_other_ones_memory() {
    for n in [1u32, 2, 3, 5] {
        worlds(n, |w| {
            let me = w.my_pe();
            let p = w.alloc(1000, 0).unwrap().unwrap();
            for pe in 0..n as i32 {
                // SAFETY: each PE writes its own byte of a live allocation.
                unsafe { at(w, p + me as usize, 1, pe).write_volatile(me as u8 + 1) };
            }
            w.sync_all(Call::BarrierAll).unwrap();
            for pe in 0..n as usize {
                // SAFETY: the barrier ordered the writes before.
                assert_eq!(unsafe { ((p + pe) as *const u8).read_volatile() }, pe as u8 + 1);
            }
            w.sync_all(Call::BarrierAll).unwrap();
            w.free(Some(p)).unwrap();
            assert_eq!(w.heap_info().used, 0);
        });
    }
}

#[test]
fn the_heap_grows_and_what_is_reused_is_zero() {
    let offsets = worlds(3, |w| {
        let first = w.heap_info().committed as usize;
        let mut offsets = Vec::new();
        for bytes in [1, first, 3 * first + 1, 17] {
            let p = w.alloc(bytes, 4096).unwrap().unwrap();
            assert_eq!(p % 4096, 0);
            // SAFETY: this PE's own fresh allocation.
            let own = unsafe { std::slice::from_raw_parts_mut(p as *mut u8, bytes) };
            assert!(own.iter().all(|b| *b == 0));
            own.fill(0xff);
            offsets.push(p - w.view().heap_base as usize);
            if bytes == first {
                w.free(Some(p)).unwrap();
            }
        }
        assert!(w.heap_info().committed as usize >= 4 * first);
        let p = w.alloc(first / 2, 0).unwrap().unwrap();
        // SAFETY: this PE's own fresh allocation.
        assert!(unsafe { std::slice::from_raw_parts(p as *const u8, first / 2) }.iter().all(|b| *b == 0));
        offsets
    });
    assert!(offsets.iter().all(|o| *o == offsets[0]), "offsets are symmetric");
}

#[test]
fn a_heap_may_have_its_memory_from_the_start() {
    worlds_with(2, &[("RUSHMEM_HEAP_MIN", "20M")], |w| {
        let before = w.heap_info().committed;
        assert!((20 << 20..22 << 20).contains(&before), "{before}");
        // All but what is rushmem's own.
        let p = w.alloc(5 << 20, 0).unwrap();
        assert_eq!(w.heap_info().committed, before);
        w.free(p).unwrap();
    });
}

#[test]
fn mistakes_are_errors_on_every_pe_and_the_job_goes_on() {
    worlds_with(3, &[("RUSHMEM_HEAP_MAX", "4M")], |w| {
        let me = w.my_pe() as usize;
        assert_eq!(w.alloc(100 + me, 0).unwrap_err().code, code::MISMATCH);
        assert_eq!(w.alloc(100, if me == 1 { 8 } else { 16 }).unwrap_err().code, code::MISMATCH);
        assert_eq!(w.alloc(100, 3).unwrap_err().code, code::INVALID_ARGUMENT);
        assert_eq!(w.alloc(5 << 20, 0).unwrap_err().code, code::HEAP_EXHAUSTED);
        assert_eq!(w.alloc(usize::MAX - 5, 0).unwrap_err().code, code::HEAP_EXHAUSTED);
        assert_eq!(w.alloc(0, 0).unwrap(), None);
        let e = if me == 2 { w.alloc(64, 0).map(|_| ()) } else { w.sync_all(Call::BarrierAll) }.unwrap_err();
        assert_eq!(e.code, code::MISMATCH);
        assert!(
            e.message.contains("PE 2 called alloc") && e.message.contains("PE 0 called barrier_all"),
            "{e}"
        );
        let p = w.alloc(128, 0).unwrap().unwrap();
        let q = w.alloc(128, 0).unwrap().unwrap();
        assert_eq!(w.free(Some(if me == 0 { p } else { q })).unwrap_err().code, code::MISMATCH);
        let wrong = if me == 0 { p + 64 } else { p };
        let e = w.free(Some(wrong)).unwrap_err();
        assert_eq!(e.code, if me == 0 { code::BAD_ADDRESS } else { code::MISMATCH });
        w.free(Some(p)).unwrap();
        assert_eq!(w.free(Some(p)).unwrap_err().code, code::BAD_ADDRESS);
        assert_eq!(w.route(p, 1, 0).unwrap_err().code, code::BAD_ADDRESS);
        assert_eq!(w.route(q, 129, 0).unwrap_err().code, code::OUT_OF_BOUNDS);
        for pe in [-1, 3, i32::MAX, i32::MIN] {
            assert_eq!(w.route(q, 1, pe).unwrap_err().code, code::BAD_PE);
        }
        w.finalize().unwrap();
    });
}

#[test]
fn registered_memory_is_reached_through_its_alias_and_its_own_address() {
    let page = page_size();
    worlds(3, |w| {
        let (me, n) = (w.my_pe() as usize, w.n_pes() as usize);
        let bytes = 4 * page;
        let layout = std::alloc::Layout::from_size_align(bytes, page).unwrap();
        // SAFETY: a fresh allocation, written before it is read, freed at the end.
        unsafe {
            let user = std::alloc::alloc(layout);
            (0..bytes).for_each(|i| user.add(i).write((i + me) as u8));
            let alias = w.register(user as usize, bytes).unwrap();
            assert!(w.register(user as usize, bytes).is_err(), "on every PE");
            let right = ((me + 1) % n) as i32;
            assert_eq!(at(w, alias + 5, 1, right).read_volatile(), (5 + right as usize) as u8);
            assert_eq!(at(w, user as usize + page, 1, right).read_volatile(), (page + right as usize) as u8);
            w.sync_all(Call::BarrierAll).unwrap();
            at(w, user as usize + 7, 1, right).write_volatile(200 + me as u8);
            w.sync_all(Call::BarrierAll).unwrap();
            assert_eq!(user.add(7).read_volatile(), 200 + ((me + n - 1) % n) as u8);
            assert_eq!(
                w.free(Some(alias)).unwrap_err().code,
                code::BAD_ADDRESS,
                "a region is not an allocation"
            );
            w.unregister(user as usize).unwrap();
            assert_eq!(user.add(7).read_volatile(), 200 + ((me + n - 1) % n) as u8);
            assert!(w.route(alias, 1, right).is_err() && w.route(user as usize, 1, right).is_err());
            let bad = if me == 1 { user as usize + 1 } else { user as usize };
            assert!(w.register(bad, bytes).is_err(), "one PE's bad address fails the call everywhere");
            std::alloc::dealloc(user, layout);
        }
    });
}

#[test]
fn a_pe_that_leaves_is_named_within_a_moment() {
    let start = Instant::now();
    worlds_with(4, &[], |w| {
        if w.my_pe() == 2 {
            w.abort("its input was bad");
            return;
        }
        let e = w.sync_all(Call::BarrierAll).unwrap_err();
        assert_eq!(e.code, code::PEER_DEAD);
        assert!(e.message.contains("PE 2") && e.message.contains("its input was bad"), "{e}");
        assert_eq!(w.alloc(8, 0).unwrap_err().code, code::PEER_DEAD);
    });
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn two_threads_of_a_pe_cannot_mix_their_collective_calls() {
    let busy = AtomicU64::new(0);
    worlds(2, |w| {
        if w.my_pe() == 1 {
            // One of the other's threads waits for it, until the other thread has come.
            let start = Instant::now();
            while busy.load(Ordering::Relaxed) == 0 && start.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return w.sync_all(Call::SyncAll).unwrap();
        }
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| match w.sync_all(Call::SyncAll) {
                    Ok(()) => {}
                    Err(e) => {
                        assert_eq!(e.code, code::BUSY);
                        busy.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(busy.load(Ordering::Relaxed), 1);
    });
}
