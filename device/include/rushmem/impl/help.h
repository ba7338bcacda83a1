/* Carries out far PEs' updates of this PE's memory (abi_mailbox.h) without a free SM: a thread that waits has
 * one, so it helps. The wait's loop looks at the doorbell at some polls (stall.h); where no thread waits, a
 * service kernel of the runtime does the same (device/src/service.cu).
 *
 * One word, `turn`, is lock and count in one: the thread that changes it from 2n to 2n + 1 carries out
 * request n and some after it, then sets it to twice the number of those done. So each is carried out once,
 * in order, and a thread that finds another at it goes on with its own wait: no thread waits for the lock,
 * and its holder waits for nothing but memory. The doorbell is a count that is compared, not a flag that is
 * cleared: a ring that no thread could answer at once is still there at the next look.
 *
 * Ordering. Each request is an acquire and release at system scope: what the host knew to be done when it
 * rang, the copies of the same source among it, comes before the first; and the fence between two requests
 * orders them for every thread that sees the second. The result is there before `done` counts it.
 */
#ifndef RUSHMEM_IMPL_HELP_H
#define RUSHMEM_IMPL_HELP_H

#include <rushmem/state.h>

/* Behind what gives NVRTC the names of integers. */
#include <rushmem/abi_mailbox.h>

static_assert(sizeof(rushmem_mailbox) == 128 && sizeof(rushmem_mailbox_request) == 32 &&
                  (RUSHMEM_MAILBOX_SLOTS & (RUSHMEM_MAILBOX_SLOTS - 1)) == 0,
              "rushmem/abi_mailbox.h");

namespace rushmem {
namespace impl {

/* Updates a word as RUSHMEM_ATOMIC_* says and returns what was there. */
template <typename W> RUSHMEM_DEVICE W update_word(uint64_t op, W *at, W value, W compare) {
  switch (op) {
    case RUSHMEM_ATOMIC_FETCH: return load_relaxed_word(at);
    case RUSHMEM_ATOMIC_SET:
    case RUSHMEM_ATOMIC_SWAP: return swap_word(at, value);
    case RUSHMEM_ATOMIC_COMPARE_SWAP: return compare_swap_word(at, compare, value);
    case RUSHMEM_ATOMIC_ADD:
    case RUSHMEM_ATOMIC_FETCH_ADD: return fetch_add_word(at, value);
    case RUSHMEM_ATOMIC_AND:
    case RUSHMEM_ATOMIC_FETCH_AND: return fetch_and_word(at, value);
    case RUSHMEM_ATOMIC_OR:
    case RUSHMEM_ATOMIC_FETCH_OR: return fetch_or_word(at, value);
    case RUSHMEM_ATOMIC_XOR:
    case RUSHMEM_ATOMIC_FETCH_XOR: return fetch_xor_word(at, value);
  }
  return 0;
}

template <typename F> RUSHMEM_DEVICE uint64_t add_to_float(uint64_t address, uint64_t value) {
  return to_bits(fetch_add_float(reinterpret_cast<F *>(address), from_bits<F>(static_cast<word<F>>(value))));
}

/* The word of one request, which is relaxed here: fences are its caller's. */
RUSHMEM_DEVICE uint64_t carry_out(uint64_t what, uint64_t address, uint64_t value, uint64_t compare) {
  const uint64_t op = what & 255, kind = what >> 8 & 255, bytes = what >> 16 & 255;
  if (kind == RUSHMEM_WORD_BITS) {
    if (bytes == 8) return update_word(op, reinterpret_cast<uint64_t *>(address), value, compare);
    return update_word(op, reinterpret_cast<uint32_t *>(address), static_cast<uint32_t>(value),
                       static_cast<uint32_t>(compare));
  }
  if (bytes == 2) {
    unsigned short *at = reinterpret_cast<unsigned short *>(address);
    const unsigned short addend = static_cast<unsigned short>(value);
    return kind == RUSHMEM_WORD_BFLOAT16 ? fetch_add_bfloat16(at, addend) : fetch_add_half(at, addend);
  }
  return bytes == 8 ? add_to_float<double>(address, value) : add_to_float<float>(address, value);
}

/* Requests that one visit carries out at most: a thread that helps has a wait of its own to look after. */
constexpr uint64_t requests_per_visit = 8;

/* Carries out requests from number turn / 2 on, up to `end`, if this thread gets the turn, which was seen
 * free. One request at a time, because the registers used here count for every kernel that waits. */
RUSHMEM_DEVICE void serve(rushmem_mailbox *box, uint64_t turn, uint64_t end) {
  if (compare_swap_word(&box->turn, turn, turn | 1) != turn) return;
  rushmem_mailbox_queue *queue = box->queue;
  uint64_t at = turn / 2;
  if (end - at > requests_per_visit) end = at + requests_per_visit;
  while (at != end) {
    const rushmem_mailbox_request *request = &queue->requests[at % RUSHMEM_MAILBOX_SLOTS];
    /* Acquires the turn and the bell; and orders this request after the one before. */
    fence_acq_rel();
    const uint64_t address = load_relaxed_word(&request->address), value = load_relaxed_word(&request->value);
    const uint64_t compare = load_relaxed_word(&request->compare), what = load_relaxed_word(&request->what);
    const uint64_t before = carry_out(what, address, value, compare);
    store_relaxed_word(&queue->results[at % RUSHMEM_MAILBOX_SLOTS], before);
    ++at;
  }
  store_release_word(&queue->done, at);
  /* A release of its own: the next holder's `done` must not be overtaken by this one's. */
  store_release_word(&box->turn, 2 * at);
}

/* One look at the doorbell. True if it was rung and this thread may have answered: then there may be more. */
RUSHMEM_DEVICE bool help(rushmem_mailbox *box) {
  const uint64_t turn = load_relaxed_word(&box->turn), bell = load_relaxed_word(&box->bell);
  if (RUSHMEM_LIKELY((turn & 1) != 0 || turn / 2 >= bell)) return false;
  /* One of a warp is enough. */
  if (!is_first_lane()) return false;
  serve(box, turn, bell);
  return true;
}

}  // namespace impl
}  // namespace rushmem

#endif
