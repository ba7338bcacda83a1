/* Atomics that network cards carry out: fetch-and-add and compare-and-swap of words of 8 bytes, posted to a
 * queue as any other request. The card of the PE whose word it is does it, for all PEs: far ones, near ones
 * and that PE itself reach it by their queues, because what a card does is atomic with nothing else (PCIe's
 * own atomics aside, which no card promises): a processor's atomic between the card's read and its write is
 * lost. So a word is the cards' or everybody else's; card_word.h is how a program says so.
 *
 * What was there arrives in a place for answers; of an atomic that nobody waits for, in the place behind
 * these, which nobody reads.
 *
 * Order. A queue's atomics come behind its WRITEs (queue.h has the source), so that what this thread has put
 * to a far PE is there before a later atomic changes its word; what was stored to a near PE is there before a
 * later request, as posting is behind a fence at system scope. A WRITE or a store may overtake an atomic. So
 * a fence waits until the atomics before it are answered (queue_await_atomics; with several contexts, until
 * all is settled): then the card has carried them out, and whatever else it carries out comes after them. In
 * memory, for a processor that loads the word, the result is after a quiet, whose probe is a READ behind it.
 * Updates of one word by the queues of several contexts are atomic among each other as those of several PEs
 * are: one card carries out all of them.
 */
#ifndef RUSHMEM_IMPL_NET_CARD_H
#define RUSHMEM_IMPL_NET_CARD_H

#include <rushmem/impl/net/queue.h>

namespace rushmem {
namespace impl {

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" RUSHMEM_COLD uint64_t rushmem_card_atomic(uint32_t opcode, uint64_t target, uint64_t value,
                                                     uint64_t compare, int pe, uint32_t waits);

#else

/* Ends the launch where no card updates that word. That it is aligned, the card finds out. */
RUSHMEM_DEVICE void card_check(uint64_t target, int pe) {
  const rushmem_device_state &s = state();
  if (static_cast<uint32_t>(pe) >= static_cast<uint32_t>(s.n_pes)) fail(RUSHMEM_DEVICE_FAIL_BAD_PE);
  if (queue_reaches(target, 8, pe)) return;
  const uint64_t offset = target - s.heap_base;
  const bool symmetric = offset < s.stride && s.stride - offset >= 8;
  report_stall(target, 0, symmetric ? RUSHMEM_STALL_UNREACHED : RUSHMEM_STALL_ADDRESS, pe, 0, 0, 0);
  fail(symmetric ? RUSHMEM_DEVICE_FAIL_CARD_WORD : RUSHMEM_DEVICE_FAIL_BAD_ADDRESS);
}

/* The request. */
RUSHMEM_COLD void card_request(queue_request &r, uint32_t opcode, uint64_t offset, uint64_t value,
                               uint64_t compare, int pe) {
  const rushmem_queues *all = state().queues;
  const uint64_t unread = all->sink_address + RUSHMEM_QUEUE_SINKS * RUSHMEM_QUEUE_SINK_BYTES;
  r = queue_request{offset, big_endian(value), big_endian(compare),
                    big_endian(uint32_t(8)) | static_cast<uint64_t>(all->sink_lkey) << 32, big_endian(unread),
                    queue_piece_at(offset, pe).rkey, opcode, 4, 0};
}

/* RUSHMEM_MLX5_FETCH_ADD or RUSHMEM_MLX5_COMPARE_SWAP on a PE's word; what was there, if it waits. */
extern "C" RUSHMEM_COLD uint64_t rushmem_card_atomic(uint32_t opcode, uint64_t target, uint64_t value,
                                                     uint64_t compare, int pe, uint32_t waits) {
  card_check(target, pe);
  queue_posting what;
  card_request(what.requests[0], opcode, target - state().heap_base, value, compare, pe);
  if (waits) return queue_post(what, 1, queue_waits | queue_sinks, pe, 0, 8);
  queue_post(what, 1, queue_updates, pe);
  /* Counted behind `last_atomic`, so that a fence that sees the one sees the other. */
  fence_acq_rel();
  fetch_add_word(&state().queues->atomics, uint64_t(1));
  return 0;
}

#endif

}  // namespace impl
}  // namespace rushmem

#endif
