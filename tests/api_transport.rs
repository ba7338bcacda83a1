//! Ways to other PEs and devices that do not go together: peers that are not mapped are reported and refused, not fatal at
//! the start; PEs that ask for different devices, or for one that is not there, are told who did.

mod api_common;

use std::time::Duration;

use api_common::place::on_gpus;
use rushmem::testing::{self, Exit};
use rushmem::{Cmp, Device, ErrorCode, Launch, Pe, SignalOp, World};

const LIMIT: Duration = Duration::from_secs(30);

fn without_mapping(n: u32) -> testing::Pes {
    testing::pes(n).env("RUSHMEM_TRANSPORT", "ucx")
}

#[test]
fn peers_that_are_not_mapped_are_reported_and_the_rest_works() {
    without_mapping(3).run(|world| {
        let me = world.my_pe();
        for pe in world.pes() {
            let peer = world.peer(pe).unwrap();
            if pe == me {
                assert_eq!(peer.transport, "direct", "{peer:?}");
            } else {
                assert_eq!(peer.transport, "none", "{peer:?}");
                assert!(peer.reason.contains("RUSHMEM_TRANSPORT=ucx"), "{peer:?}");
            }
        }
        // One's own memory, collective calls and kernels that stay here.
        let slice = world.alloc::<u64>(100).unwrap();
        let signal = world.signal().unwrap();
        slice.put(&[7; 100], me).unwrap();
        slice.at(3, me).add(5).unwrap();
        signal.set(1, me).unwrap();
        signal.wait_until(Cmp::Eq, 1).unwrap();
        world.barrier_all().unwrap();
        let module = world
            .load(
                "#include <rushmem/rushmem.cuh>\n\
                 extern \"C\" __global__ void own(uint64_t *x) { rushmem::p(x, uint64_t(9), rushmem::my_pe()); }",
            )
            .unwrap();
        // SAFETY: one word, which nobody else uses.
        unsafe { module.kernel("own").unwrap().launch(Launch::new(1, 1), (&slice,)) }.unwrap();
        world.synchronize().unwrap();
        assert_eq!(slice.to_vec().unwrap()[..5], [9, 7, 7, 12, 7]);
        world.barrier_all().unwrap();
        slice.free().unwrap();
    });
}

#[test]
fn operations_on_a_pe_that_is_not_mapped_are_errors_that_name_it() {
    without_mapping(2).run(|world| {
        let (slice, signal) = (world.alloc::<u64>(8).unwrap(), world.signal().unwrap());
        let (me, other) = (world.my_pe(), world.right());
        let refused = [
            ("put", slice.put(&[1; 8], other)),
            ("get", slice.get(&mut [1; 8], other)),
            ("p", slice.p(0, 1, other)),
            ("g", slice.g(0, other).map(drop)),
            ("iput", slice.iput(&[1; 8], 1, 1, 8, other)),
            ("iget", slice.iget(&mut [1; 8], 1, 1, 8, other)),
            ("put_from", slice.put_from(&slice, other)),
            ("fetch_add", slice.at(0, other).fetch_add(1).map(drop)),
            ("set", slice.at(0, other).set(1)),
            ("signal", signal.add(1, other)),
            ("put_signal", slice.put_signal(&[1; 8], &signal, SignalOp::Set, 1, other)),
            ("nbi", world.nbi(|scope| scope.put(&slice, &[1; 8], other))),
        ];
        for (what, result) in refused {
            let error = result.err().unwrap_or_else(|| panic!("{what} reached {other}"));
            assert_eq!(error.code(), ErrorCode::Unsupported, "{what}: {error}");
            assert!(error.message().contains(&other.to_string()), "{what}: {error}");
        }
        assert_eq!(slice.ptr_at(other), None);
        assert_eq!(slice.ptr_at(me), Some(slice.as_ptr()));
        world.barrier_all().unwrap();
        assert_eq!((slice.to_vec().unwrap(), signal.fetch().unwrap()), (vec![0; 8], 0));
        world.barrier_all().unwrap();
    });
}

#[test]
fn a_kernel_that_addresses_a_pe_that_is_not_mapped_ends_with_an_error() {
    // In processes of their own: after a failed kernel a GPU is lost to its process.
    without_mapping(2).supervise(
        |_| {
            let world = World::init().unwrap();
            let slice = world.alloc::<u64>(1).unwrap();
            let module = world
                .load(
                    "#include <rushmem/rushmem.cuh>\n\
                     extern \"C\" __global__ void reach(uint64_t *x, int pe) {\n\
                       if (!rushmem::ptr(x, pe)) rushmem::p(x, uint64_t(1), pe);\n\
                     }",
                )
                .unwrap();
            let (reach, other) = (module.kernel("reach").unwrap(), world.right());
            world.barrier_all().unwrap();
            // SAFETY: the kernel is stopped before it writes.
            unsafe { reach.launch(Launch::new(1, 1), (&slice, other.number() as i32)) }.unwrap();
            let error = world.synchronize().unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
            assert!(error.message().contains("`reach`") && error.message().contains("not mapped"), "{error}");
            if world.device() == Device::Cpu {
                world.barrier_all().unwrap();
                assert_eq!(slice.to_vec().unwrap(), [0]);
                world.finalize().unwrap();
            }
        },
        |job| {
            for outcome in job.outcomes() {
                assert_eq!(
                    outcome.exit,
                    Exit::Done,
                    "{}:\n{}\n{}",
                    outcome.pe,
                    outcome.stdout,
                    outcome.stderr
                );
            }
        },
    );
}

/// Starts a job whose PEs have these `RUSHMEM_DEVICE`s; each PE's error.
fn start_with(devices: &[&str]) -> Vec<String> {
    let mut pes = testing::pes(devices.len() as u32).env("RUSHMEM_INIT_TIMEOUT", "20");
    for (pe, device) in (0u32..).zip(devices) {
        pes = pes.env_for(Pe::new(pe), "RUSHMEM_DEVICE", device);
    }
    let mut errors = Vec::new();
    pes.supervise(
        |_| {
            let started = World::init();
            println!(
                "ENDED {}",
                started.map_or_else(|error| error.to_string(), |world| format!("as {world:?}"))
            );
        },
        |job| {
            for pe in 0..devices.len() as u32 {
                errors.push(job.wait_for_line(Pe::new(pe), "ENDED", LIMIT));
            }
        },
    );
    errors
}

#[test]
fn pes_that_ask_for_different_devices_are_told_who_did() {
    // Without a GPU the odd one finds that there is none; the others learn that from it.
    for error in start_with(&["cpu", "cpu", "cuda"]) {
        assert!(
            error.contains("PE 2") || (!on_gpus() && error.contains("RUSHMEM_DEVICE asks for a GPU")),
            "{error}"
        );
        assert!(error.contains("GPU"), "{error}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    for devices in [&["cuda:99"][..], &["cuda:99", "cuda:99"]] {
        for error in start_with(devices) {
            assert!(
                error.contains("99") || (!on_gpus() && error.contains("RUSHMEM_DEVICE asks for a GPU")),
                "{error}"
            );
        }
    }
}
