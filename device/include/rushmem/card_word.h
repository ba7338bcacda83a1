/* Words that network cards update: atomics of 8 bytes that no processor and no GPU has a part in.
 *
 * A kernel's atomic on a far PE goes to that PE's proxy thread (atomic.h), because a card's atomics are
 * atomic with nobody else's. Where a program leaves a word to the cards alone, the kernel asks the card
 * itself: a round trip over the network, with no thread of any host on the way. To say so, make it a
 * `card_word`:
 *
 *     __global__ void tickets(rushmem::card_word *next, uint64_t *mine) {
 *       *mine = rushmem::atomic_fetch_add(next, 1, 0); // by PE 0's card
 *     }
 *
 * Rules. All kernels, of all PEs, near PEs and the word's own PE among them, update and read the word by
 * these functions; there are none for hosts, and no others take the type. Hosts and kernels may load, store
 * and copy it while no kernel updates it: after a quiet and a barrier. It is in symmetric memory, at a
 * multiple of 8.
 *
 * Cards add and compare. They do it where every PE of the job has a card whose queues reach all PEs
 * (docs/rdma.md); a kernel compiled without queues ends there with an error. Everywhere else, on all PEs
 * alike, these are the atomics of atomic.h. So a program is the same with cards and without. Costs are those
 * of cards: a near PE's word, or one's own, is as far as any.
 *
 * Order is that of all atomics: none but by fence(), quiet() and barriers.
 */
#ifndef RUSHMEM_CARD_WORD_H
#define RUSHMEM_CARD_WORD_H

#include <rushmem/atomic.h>

namespace rushmem {

/* A word that cards update. Zero, as symmetric memory is, is a value as any. */
struct alignas(8) card_word {
  uint64_t value;
};

namespace impl {

RUSHMEM_DEVICE uint64_t card_fetch_add(const card_word *target, uint64_t value, int pe) {
  return rushmem_card_atomic(RUSHMEM_MLX5_FETCH_ADD, far_address(target), value, 0, pe, 1);
}
RUSHMEM_DEVICE uint64_t card_compare_swap(const card_word *target, uint64_t cond, uint64_t value, int pe) {
  return rushmem_card_atomic(RUSHMEM_MLX5_COMPARE_SWAP, far_address(target), value, cond, pe, 1);
}

/* What cards have no request for: compare-and-swap until nobody came between. */
template <typename F> RUSHMEM_DEVICE uint64_t card_change(const card_word *target, int pe, F next) {
  uint64_t seen = card_fetch_add(target, 0, pe);
  for (;;) {
    const uint64_t found = card_compare_swap(target, seen, next(seen), pe);
    if (found == seen) return seen;
    seen = found;
  }
}

}  // namespace impl

/* The value of `pe`'s `*target`: by the card, which adds zero.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_fetch(const card_word *target, int pe) {
  if (impl::by_card()) return impl::card_fetch_add(target, 0, pe);
  return atomic_fetch(&target->value, pe);
}

/* Adds and returns what was there, wrapping.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_fetch_add(card_word *target, uint64_t value, int pe) {
  if (impl::by_card()) return impl::card_fetch_add(target, value, pe);
  return atomic_fetch_add(&target->value, value, pe);
}

/* Adds; as atomic_fetch_add, and is not waited for.
 * Order: none. Cost: store. */
RUSHMEM_DEVICE void atomic_add(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_add(&target->value, value, pe);
  impl::rushmem_card_atomic(RUSHMEM_MLX5_FETCH_ADD, impl::far_address(target), value, 0, pe, 0);
}

/* Adds one and returns what was there.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_fetch_inc(card_word *target, int pe) { return atomic_fetch_add(target, 1, pe); }

/* Adds one.
 * Order: none. Cost: store. */
RUSHMEM_DEVICE void atomic_inc(card_word *target, int pe) { atomic_add(target, 1, pe); }

/* Sets it to `value` if it equals `cond`; returns what was there, `cond` exactly where it was set.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_compare_swap(card_word *target, uint64_t cond, uint64_t value, int pe) {
  if (impl::by_card()) return impl::card_compare_swap(target, cond, value, pe);
  return atomic_compare_swap(&target->value, cond, value, pe);
}

/* Sets it and returns what was there. Cards have no such request: this and the rest compare and swap until
 * nobody came between, so two round trips at least, and more where many PEs are at it.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_swap(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_swap(&target->value, value, pe);
  return impl::card_change(target, pe, [=](uint64_t) { return value; });
}

/* Sets it; waits, unlike the other atomic_set.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE void atomic_set(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_set(&target->value, value, pe);
  static_cast<void>(atomic_swap(target, value, pe));
}

/* Bitwise and, or, exclusive or; these return what was there.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE uint64_t atomic_fetch_and(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_fetch_and(&target->value, value, pe);
  return impl::card_change(target, pe, [=](uint64_t seen) { return seen & value; });
}
RUSHMEM_DEVICE uint64_t atomic_fetch_or(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_fetch_or(&target->value, value, pe);
  return impl::card_change(target, pe, [=](uint64_t seen) { return seen | value; });
}
RUSHMEM_DEVICE uint64_t atomic_fetch_xor(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_fetch_xor(&target->value, value, pe);
  return impl::card_change(target, pe, [=](uint64_t seen) { return seen ^ value; });
}

/* The same without a result; they wait, too.
 * Order: none. Cost: round trip. */
RUSHMEM_DEVICE void atomic_and(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_and(&target->value, value, pe);
  static_cast<void>(atomic_fetch_and(target, value, pe));
}
RUSHMEM_DEVICE void atomic_or(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_or(&target->value, value, pe);
  static_cast<void>(atomic_fetch_or(target, value, pe));
}
RUSHMEM_DEVICE void atomic_xor(card_word *target, uint64_t value, int pe) {
  if (!impl::by_card()) return atomic_xor(&target->value, value, pe);
  static_cast<void>(atomic_fetch_xor(target, value, pe));
}

}  // namespace rushmem

#endif
