//! Words that network cards update for kernels (`rushmem/card_word.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A word that kernels leave to network cards: `rushmem::card_word` of the device headers, whose overloads of
/// `atomic_fetch_add` and the like are asked of the card of the PE whose word it is, where every PE of the
/// job has one (`docs/rdma.md`), and else are any atomics.
///
/// The host has no atomics on it, as a card's are atomic with nobody else's: `x.at(0, pe).fetch_add(..)` does
/// not compile. It may load, store and copy the word while no kernel updates it, after a
/// [`barrier_all`](crate::World::barrier_all).
///
/// ```
/// # rushmem::testing::threads(1, |world| {
/// let tickets = world.alloc::<rushmem::CardWord>(1).unwrap();
/// // A kernel takes `rushmem::card_word *tickets` for it.
/// assert_eq!(tickets.to_vec().unwrap(), [rushmem::CardWord(0)]);
/// # });
/// ```
///
/// ```compile_fail
/// # rushmem::testing::threads(1, |world| {
/// let tickets = world.alloc::<rushmem::CardWord>(1).unwrap();
/// tickets.at(0, world.my_pe()).fetch_add(rushmem::CardWord(1)).unwrap();
/// # });
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct CardWord(pub u64);
