/* What a call of a collective says and finds in words: its tag, and what a slot set has; the ways of words to
 * members that are not near; and what a wait for one does when it stops. */
#ifndef RUSHMEM_IMPL_COLL_WORDS_H
#define RUSHMEM_IMPL_COLL_WORDS_H

#include <rushmem/impl/stall.h>
#include <rushmem/packed.h>
#include <rushmem/team.h>

namespace rushmem {
namespace impl {

/* In front of a call's first access of memory that an earlier kernel may have written. The runtime's kernels
 * on streams are there before their turn, and wait for it behind all that a call works out from its arguments
 * (device/src/collectives.cu). Others are in their turn. */
RUSHMEM_DEVICE void await_turn() {
#if defined(RUSHMEM_CALLS_AWAIT_TURN)
  await_kernel_before();
#endif
}

/* By a thread of each block, once it has heard of all members in this call, or its block waits for none: if
 * all blocks have, those of all members run, and the call ends whatever else takes a place on a GPU. So the
 * next kernel of the stream may come. */
RUSHMEM_DEVICE void heard_of_all() {
#if defined(RUSHMEM_CALLS_AWAIT_TURN)
  let_next_kernel_come();
#endif
}

/* 16 bits of what all members must have in common. */
RUSHMEM_DEVICE uint64_t tag_of(uint32_t collective, uint64_t size, uint64_t more = 0) {
  const uint64_t mixed = (size * 0x9e3779b97f4a7c15u) ^ (more * 0xc2b2ae3d27d4eb4fu);
  const uint64_t tag = static_cast<uint64_t>(collective) << 12 | (mixed >> 52);
  note_arguments(collective, size, more, static_cast<uint32_t>(tag));
  return tag;
}

/* Stores to a member that may not be in the run around this PE, or not mapped. Out of line, as nearly all
 * teams are near: their registers are not there for it. */
template <typename W> RUSHMEM_OUTLINED void store_line_any(W *line, uint64_t value, int pe) {
  const route to = route_to(pe);
  if (to.is_far()) far_p(line, value, pe);
  else store_relaxed_word(to.at(line), value);
}
template <typename P> RUSHMEM_OUTLINED void store_packet_any(P *slot, uint64_t value, uint64_t number, int pe) {
  const route to = route_to(pe);
  if (to.is_far()) far_packet(slot, value, number, pe);
  else store_packet(to.at(slot), value, number);
}

/* A stop in the wait for PE `pe` to show itself in a word. A member that is in the same phase, and in another
 * call, may wait for this one: `current` is that word of a slot set where all members are near, else null. */
template <typename W>
RUSHMEM_OUTLINED stall_mark stop_in_call(uint32_t polls, uint64_t since, const W *word_, uint32_t about, int pe,
                                         uint64_t expected, uint64_t seen, const W *current) {
  if (current != nullptr) {
    const uint64_t ours = load_relaxed_word(current), theirs = load_relaxed_word(run_address(current, pe));
    if (ours >> 16 == theirs >> 16 && ours != theirs) {
      rushmem_stall_stop(0, 0, reinterpret_cast<uint64_t>(current), about, RUSHMEM_STALL_MISMATCH, pe, ours, theirs);
    }
  }
  return rushmem_stall_stop(polls, since, reinterpret_cast<uint64_t>(word_), about, RUSHMEM_STALL_COLLECTIVE, pe,
                            expected, seen);
}

/* What a slot set says of a phase that has ended here, and `ago` <= 4 phases before it at all members; and
 * whether the call was a grid's, behind which lines say nothing. */
RUSHMEM_DEVICE uint64_t ended_word(uint64_t phase, uint32_t ago) { return phase << 16 | ago; }
constexpr uint32_t ended_by_grid = 8;
RUSHMEM_DEVICE uint32_t ended_ago(uint64_t word_) { return static_cast<uint32_t>(word_) % 8; }

/* What a slot set says as a call begins. */
struct last_phases {
  uint64_t alone; /* rushmem_team_slots::alone; to calls by one block at most `ended` */
  packet of_grid; /* rushmem_team_slots::grid */
};
/* And what it says of one block of a grid: the last phase that this one has ended. */
struct phases_of_block {
  last_phases last;
  uint64_t ended;
};

}  // namespace impl
}  // namespace rushmem

#endif
