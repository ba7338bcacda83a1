//! What streams refuse, and what a world knows of them. PEs are threads, on the CPU device;
//! `tests/api_stream` has the operations themselves, on both.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use super::calls::on_stream::*;
use crate::capi::stream::*;
use crate::error::code;
use crate::fake::{worlds, worlds_with};
use crate::kernel::event::StreamEvent;
use crate::kernel::handle::Handle;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::world::World;
use rushmem_abi::c::*;

const NULL: *mut c_void = std::ptr::null_mut();

fn alloc(w: &World, bytes: usize) -> usize {
    w.alloc(bytes, 64).unwrap().unwrap()
}

#[test]
fn what_an_operation_refuses_is_not_put_on_the_stream() {
    worlds(2, |w| {
        let (live, freed) = (alloc(w, 64), alloc(w, 64));
        w.free(Some(freed)).unwrap();
        let stream = w.kernels().create_stream().unwrap();
        let private = [0u64; 8];
        let src = private.as_ptr() as usize;
        let shape = |dst_stride, src_stride, elem, n| Strides { dst_stride, src_stride, elem, n };
        let set = SignalOp::Set(1);
        let number = 0x9_0000 as *mut c_void;
        use code::*;
        // SAFETY: private memory that lives, and what is not is refused before anybody looks at it.
        unsafe {
            for (case, result, expected) in [
                ("freed", put(w, freed, src, 8, 1, stream), BAD_ADDRESS),
                ("private", put(w, src, src, 8, 1, stream), BAD_ADDRESS),
                ("past the end", put(w, live + 60, src, 8, 1, stream), OUT_OF_BOUNDS),
                ("no PE", put(w, live, src, 8, 2, stream), BAD_PE),
                ("negative PE", get(w, src, live, 8, -1, stream), BAD_PE),
                ("null source", put(w, live, 0, 8, 1, stream), INVALID_ARGUMENT),
                ("null destination", get(w, 0, live, 8, 1, stream), INVALID_ARGUMENT),
                ("freed get", get(w, src, freed, 8, 1, stream), BAD_ADDRESS),
                ("width", p(w, live, 1, 3, 1, stream), INVALID_ARGUMENT),
                ("freed p", p(w, freed, 1, 8, 1, stream), BAD_ADDRESS),
                ("stride", iput(w, live, src, shape(0, 1, 8, 2), 1, stream), INVALID_ARGUMENT),
                ("extent", iput(w, live, src, shape(8, 1, 8, 2), 1, stream), OUT_OF_BOUNDS),
                ("element", iget(w, src, live, shape(1, 1, 0, 2), 1, stream), INVALID_ARGUMENT),
                ("unaligned", signal_op(w, live + 4, set, 1, stream), INVALID_ARGUMENT),
                ("freed signal", signal_op(w, freed, set, 1, stream), BAD_ADDRESS),
                ("its signal", put_signal(w, live, src, 8, freed, set, 1, stream), BAD_ADDRESS),
                ("its data", put_signal(w, freed, src, 8, live, set, 1, stream), BAD_ADDRESS),
                ("wait", signal_wait_until(w, live + 2, 0, 0, stream), INVALID_ARGUMENT),
                ("comparison", signal_wait_until(w, live, 6, 0, stream), INVALID_ARGUMENT),
                ("freed wait", signal_wait_until(w, freed, 0, 0, stream), BAD_ADDRESS),
                ("float", wait_until(w, RUSHMEM_FLOAT, live, 0, 0, stream), INVALID_ARGUMENT),
                ("int at 2", wait_until(w, RUSHMEM_INT32, live + 2, 0, 0, stream), INVALID_ARGUMENT),
                ("no stream", put(w, live, src, 8, 1, number), BAD_HANDLE),
                ("no stream for nothing", put(w, live, src, 0, 1, number), BAD_HANDLE),
                ("no stream to fence", fence(w, number), BAD_HANDLE),
                ("no stream to sync", sync_all(w, "sync_all", false, number), BAD_HANDLE),
            ] {
                let e = result.expect_err(case);
                assert_eq!(e.code, expected, "{case}: {e}");
            }
            let event = w.kernels().record(stream).unwrap();
            assert!(event.get().unwrap().test().unwrap(), "the stream is as empty as before");
            event.free().unwrap();
            // Nothing at all is fine where there is a PE.
            put(w, live, 0, 0, 1, stream).unwrap();
            assert_eq!(put(w, live, 0, 0, 2, stream).unwrap_err().code, BAD_PE);
            iget(w, 0, live, shape(1, 1, 8, 0), 1, stream).unwrap();
        }
        w.kernels().synchronize().unwrap();
        w.kernels().destroy_stream(stream).unwrap();
        w.sync_all(crate::node::control::Call::SyncAll).unwrap();
    });
}

#[test]
fn a_world_is_busy_as_long_as_one_of_its_streams_is() {
    worlds_with(1, &[("RUSHMEM_STREAMS", "2")], |w| {
        let sig = alloc(w, 8);
        let kernels = w.kernels();
        let streams = [NULL, kernels.pool_stream().unwrap(), kernels.create_stream().unwrap()];
        assert_eq!(kernels.destroy_stream(NULL).unwrap_err().code, code::INVALID_ARGUMENT);
        assert_eq!(kernels.destroy_stream(streams[1]).unwrap_err().code, code::INVALID_ARGUMENT);
        assert_eq!(
            kernels.destroy_stream(kernels.default_stream()).unwrap_err().code,
            code::INVALID_ARGUMENT
        );
        for (value, stream) in (1u64..).zip(streams) {
            // SAFETY: streams of this world; a live word.
            unsafe { signal_wait_until(w, sig, RUSHMEM_CMP_EQ, value, stream) }.unwrap();
            if value == 3 {
                kernels.destroy_stream(stream).unwrap();
                assert_eq!(kernels.destroy_stream(stream).unwrap_err().code, code::BAD_HANDLE);
            }
            let busy = w.finalize().unwrap_err();
            assert_eq!(busy.code, code::BUSY);
            assert!(busy.message.contains("signal_wait_until on a stream"), "{busy}");
            super::calls::signal_op(w, sig, SignalOp::Set(value), 0).unwrap();
            kernels.synchronize().unwrap();
        }
        w.finalize().unwrap();
    });
}

#[test]
fn events_are_handles_that_go_stale() {
    worlds_with(1, &[], |w| {
        let sig = alloc(w, 8);
        // SAFETY: this world's stream, handles of events and nulls, live places for answers.
        unsafe {
            signal_wait_until(w, sig, RUSHMEM_CMP_NE, 0, NULL).unwrap();
            let handle = w.kernels().record(NULL).unwrap();
            let event: *mut rushmem_event_t = handle.as_raw();
            let mut done = 7;
            assert_eq!(rushmem_event_test(event, &mut done), RUSHMEM_OK);
            assert_eq!(done, 0);
            assert_eq!(rushmem_event_test(event, std::ptr::null_mut()), RUSHMEM_ERR_INVALID_ARGUMENT);
            assert_eq!(rushmem_event_wait(std::ptr::null_mut()), RUSHMEM_ERR_BAD_HANDLE);
            super::calls::signal_op(w, sig, SignalOp::Set(1), 0).unwrap();
            assert_eq!(rushmem_event_wait(event), RUSHMEM_OK);
            assert_eq!((rushmem_event_test(event, &mut done), done), (RUSHMEM_OK, 1));
            assert_eq!(rushmem_event_free(event), RUSHMEM_OK);
            assert_eq!(rushmem_event_free(event), RUSHMEM_ERR_BAD_HANDLE);
            assert_eq!(rushmem_event_wait(event), RUSHMEM_ERR_BAD_HANDLE);
            // A world takes its events with it.
            let left: &'static Handle<StreamEvent> = w.kernels().record(NULL).unwrap();
            w.finalize().unwrap();
            left.get().unwrap().wait().unwrap();
        }
    });
}

#[test]
fn a_broken_job_ends_what_streams_wait_for() {
    worlds_with(2, &[], |w| {
        let sig = alloc(w, 8);
        w.sync_all(crate::node::control::Call::SyncAll).unwrap();
        if w.my_pe() == 1 {
            std::thread::sleep(Duration::from_millis(50));
            w.abort("PE 1 has had enough");
            return;
        }
        let start = Instant::now();
        let stream = w.kernels().create_stream().unwrap();
        // SAFETY: streams of this world; a live word.
        unsafe {
            signal_wait_until(w, sig, RUSHMEM_CMP_EQ, 1, stream).unwrap();
            sync_all(w, "barrier_all", true, NULL).unwrap();
            let event = w.kernels().record(stream).unwrap();
            let e = event.get().unwrap().wait().unwrap_err();
            assert_eq!(e.code, code::PEER_DEAD);
            assert!(e.message.contains("PE 1 has had enough") && e.message.contains("offset"), "{e}");
            let e = w.kernels().synchronize_stream(NULL).unwrap_err();
            assert_eq!(e.code, code::PEER_DEAD);
            assert!(e.message.contains("barrier_all on a stream"), "{e}");
            assert_eq!(signal_op(w, sig, SignalOp::Set(1), 0, stream).unwrap_err().code, code::PEER_DEAD);
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        w.abort("PE 1 is gone");
    });
}
