//! A struct as an element of symmetric memory, in a crate that depends on rushmem alone (scripts/snippets
//! builds this there): what `rushmem::Symmetric` documents.

use rushmem::zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "rushmem::zerocopy")]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    charge: f32,
}

#[test]
fn a_struct_goes_through_symmetric_memory() {
    rushmem::testing::run(2, |world| {
        let inbox = world.alloc::<Particle>(2)?;
        let me = world.my_pe().number() as f32;
        let gift = Particle { position: [me, -me, 0.5], charge: 1.0 + me };
        inbox.put(&[gift, gift], world.right())?;
        world.barrier_all()?;
        let from = world.left().number() as f32;
        assert_eq!(inbox.to_vec()?[1], Particle { position: [from, -from, 0.5], charge: 1.0 + from });
        Ok::<(), rushmem::Error>(())
    });
}
