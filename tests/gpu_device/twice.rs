//! One source loaded more than once: in two worlds of a process, on one device and on two, and twice in one
//! world. Each copy has its own world's device state.

use rushmem::{Module, Uid};

use crate::*;

const WHO: &str = r#"
#include <rushmem/rushmem.cuh>
__device__ unsigned long long calls;
/* Who this is, sent to the right-hand PE, and how often this copy of the code was called. */
extern "C" __global__ void who(uint64_t *here, uint64_t *from_left) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  here[0] = static_cast<uint64_t>(me);
  here[1] = static_cast<uint64_t>(n);
  here[2] = atomicAdd(&calls, 1ull) + 1;
  rushmem::p(from_left, static_cast<uint64_t>(me) + 100, (me + 1) % n);
}
"#;

/// Two copies in this world, called in turn; the second is unloaded before the end.
fn two_copies(world: &World) {
    let (here, from_left) = (world.alloc::<u64>(3).unwrap(), world.alloc::<u64>(1).unwrap());
    let (me, n) = (u64::from(world.my_pe().number()), u64::from(world.n_pes()));
    let call = |module: &Module<'_>, calls: u64| {
        from_left.fill(0).unwrap();
        world.barrier_all().unwrap();
        // SAFETY: three words and one, written by this kernel alone.
        unsafe { module.kernel("who").unwrap().launch(Launch::new(1, 1), (&here, &from_left)) }.unwrap();
        world.synchronize().unwrap();
        world.barrier_all().unwrap();
        let seen = here.to_vec().unwrap();
        assert_eq!(seen[..2], [me, n]);
        // Variables are a copy's own on a GPU; the CPU device maps the same code once.
        assert!(!on_gpus() || seen[2] == calls, "{seen:?}, call {calls}");
        assert_eq!(from_left.to_vec().unwrap(), [(me + n - 1) % n + 100]);
    };
    let (first, second) = (world.load(WHO).unwrap(), world.load(WHO).unwrap());
    call(&first, 1);
    call(&first, 2);
    call(&second, 1);
    second.unload().unwrap();
    call(&first, 3);
    first.unload().unwrap();
}

#[test]
fn code_loaded_twice_knows_its_own_pe() {
    at_counts(&[1, 2, 3], |world, _| two_copies(world));
}

#[test]
fn two_worlds_of_one_process_have_code_each() {
    let uids = [Uid::create().unwrap().to_string(), Uid::create().unwrap().to_string()].join(",");
    testing::pes(2).env("UIDS", uids).run(|world| {
        let uids = std::env::var("UIDS").unwrap();
        let (one, other) = uids.split_once(',').unwrap();
        let (rank, n) = (world.my_pe().number(), world.n_pes());
        let one = World::builder().uid(&one.parse().unwrap(), rank, n).init().unwrap();
        // In the second one the PEs have swapped their numbers.
        let other = World::builder().uid(&other.parse().unwrap(), n - 1 - rank, n).init().unwrap();
        two_copies(&one);
        two_copies(&other);
        two_copies(world);
        two_copies(&one);
        other.finalize().unwrap();
        two_copies(&one);
        one.finalize().unwrap();
    });
}
