/* The kernels' half of the device ring: a descriptor is posted, the host takes it, and an answer comes back
 * in a reply slot (abi_ring.h has the layout, host/ring a model of the protocol for loom, which a test
 * compares with this file step by step).
 *
 * What runs here is off the near path, so the functions are never inlined; in relocatable code they are the
 * device library's (device/src/device.cu). One thread of a scope posts for all of it. It needs no fence of
 * its own: publishing releases what it has seen of the others by the program's barrier (or, for a signal, by
 * the scope's).
 */
#ifndef RUSHMEM_IMPL_NET_RING_H
#define RUSHMEM_IMPL_NET_RING_H

#include <rushmem/impl/route.h>
#include <rushmem/impl/stall.h>

static_assert(sizeof(rushmem_descriptor) == 64 && sizeof(rushmem_reply) == 32 && sizeof(rushmem_ring) == 768,
              "rushmem/abi_ring.h");

namespace rushmem {
namespace impl {

/* A descriptor's first word. */
RUSHMEM_DEVICE uint64_t ring_head(uint32_t op, uint32_t sub, uint32_t width, uint32_t flags, int pe) {
  return static_cast<uint64_t>(op | sub << 8 | width << 16 | flags << 24) |
         static_cast<uint64_t>(static_cast<uint32_t>(pe)) << 32;
}

/* What it says. */
RUSHMEM_DEVICE uint32_t ring_op(uint64_t head) { return static_cast<uint32_t>(head) & 255; }
RUSHMEM_DEVICE bool ring_answers(uint64_t head) { return (head >> 24 & RUSHMEM_RING_REPLY) != 0; }
RUSHMEM_DEVICE int ring_pe(uint64_t head) { return static_cast<int>(head >> 32); }

/* ---- what differs between the two kinds of device ---- */

#if defined(RUSHMEM_CPU)

/* Stores `a` and `b` side by side, aligned to 16. */
RUSHMEM_DEVICE void ring_store_pair(void *to, uint64_t a, uint64_t b) {
  alias<uint64_t> *at = static_cast<alias<uint64_t> *>(to);
  at[0] = a;
  at[1] = b;
}
RUSHMEM_DEVICE void ring_store(void *to, uint64_t a) { *static_cast<alias<uint64_t> *>(to) = a; }

#else

RUSHMEM_DEVICE void ring_store_pair(void *to, uint64_t a, uint64_t b) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
RUSHMEM_DEVICE void ring_store(void *to, uint64_t a) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(a) : "memory");
}

#endif

/* ---- the ring ---- */

/* Whether `ticket`'s slot is free. Counts may be a little old on either side of the difference, so it is
 * signed. */
RUSHMEM_DEVICE bool ring_has_room(rushmem_ring *ring, uint64_t ticket) {
  const int64_t slots = static_cast<int64_t>(ring->mask) + 1;
  const uint64_t seen = load_acquire_word(&ring->consumed_seen.value);
  const int64_t ahead = static_cast<int64_t>(ticket - seen);
  if (ahead < slots) return true;
#if !defined(RUSHMEM_CPU)
  /* Tickets are taken whatever room there is, so there is one first in line, and only one. */
  if (ahead > slots) return false;
#endif
  const uint64_t now = load_acquire_word(ring->consumed);
  store_release_word(&ring->consumed_seen.value, now);
  return static_cast<int64_t>(ticket - now) < slots;
}

/* Whether there was a ticket to be had. */
RUSHMEM_DEVICE bool ring_take_ticket(rushmem_ring *ring, uint64_t &ticket) {
#if defined(RUSHMEM_CPU)
  ticket = load_relaxed_word(&ring->tail.value);
  while (ring_has_room(ring, ticket)) {
    const uint64_t found = compare_swap_word(&ring->tail.value, ticket, ticket + 1);
    if (found == ticket) return true;
    ticket = found;
  }
  return false;
#else
  ticket = fetch_add_word(&ring->tail.value, uint64_t(1));
  return true;
#endif
}

/* What a descriptor says, but its ticket: its words in their order. Handed to the out-of-line function in
 * memory of the caller's own, since every register of it would be one more in the kernel. */
struct ring_words {
  uint64_t head, dst, src, bytes, sig, value, element;
};

#if defined(RUSHMEM_COLD_IN_LIBRARY)

/* By C names, here and below, as uint64_t is another type to NVRTC than to nvcc, and both link with one
 * library. */
extern "C" RUSHMEM_COLD uint64_t rushmem_far_post(const volatile ring_words *what);

#else

/* Ends the launch where [at, at + bytes) is not in this PE's stride. The record says which address it was. */
RUSHMEM_DEVICE void ring_check(uint64_t at, uint64_t bytes, int pe) {
  const rushmem_device_state &s = state();
  const uint64_t offset = at - s.heap_base;
  if (offset < s.stride && bytes <= s.stride - offset) return;
  report_stall(at, 0, RUSHMEM_STALL_ADDRESS, pe, 0, 0, 0);
  fail(RUSHMEM_DEVICE_FAIL_BAD_ADDRESS);
}

/* The same for the symmetric addresses of a descriptor. */
RUSHMEM_DEVICE void ring_check_words(const volatile ring_words *what) {
  const int pe = ring_pe(what->head);
  switch (ring_op(what->head)) {
    case RUSHMEM_RING_PUT: return ring_check(what->dst, what->bytes, pe);
    case RUSHMEM_RING_GET: return ring_check(what->src, what->bytes, pe);
    case RUSHMEM_RING_PUT_INLINE:
    case RUSHMEM_RING_IPUT:
    case RUSHMEM_RING_ATOMIC: return ring_check(what->dst, 1, pe);
    case RUSHMEM_RING_G:
    case RUSHMEM_RING_IGET: return ring_check(what->src, 1, pe);
    case RUSHMEM_RING_SIGNAL: return ring_check(what->sig, 8, pe);
    case RUSHMEM_RING_PUT_SIGNAL:
    case RUSHMEM_RING_PUT_SIGNAL_INLINE: ring_check(what->dst, 1, pe); return ring_check(what->sig, 8, pe);
    default: return;
  }
}

#if defined(RUSHMEM_CPU_CHECK)

/* What a checked run notes of a descriptor as it is posted: what the engines of both PEs will do. */
RUSHMEM_DEVICE void ring_note(const volatile ring_words *what) {
  const uint32_t op = ring_op(what->head), sub = what->head >> 8 & 255, width = what->head >> 16 & 255;
  const int pe = ring_pe(what->head);
  const uint32_t later = ring_answers(what->head) ? 0 : RUSHMEM_CPU_CHECK_NBI;
  const auto local = [&](uint64_t at, uint64_t bytes, uint32_t write) {
    rushmem_cpu_check_range(reinterpret_cast<const void *>(at), bytes, write | later);
  };
  const auto remote = [&](uint32_t how, uint64_t at, uint64_t bytes) {
    rushmem_cpu_check_remote(how, at, bytes, pe, 0, 1);
  };
  const auto signal = [&](uint32_t how) { remote(how, what->sig, 8); };
  switch (op) {
    case RUSHMEM_RING_PUT:
      local(what->src, what->bytes, 0);
      return remote(RUSHMEM_CPU_REMOTE_WRITE, what->dst, what->bytes);
    case RUSHMEM_RING_GET:
      remote(RUSHMEM_CPU_REMOTE_READ, what->src, what->bytes);
      return local(what->dst, what->bytes, 1);
    case RUSHMEM_RING_PUT_INLINE:
      return remote(width > 8 ? RUSHMEM_CPU_REMOTE_WRITE : RUSHMEM_CPU_REMOTE_P, what->dst, width);
    case RUSHMEM_RING_IPUT:
    case RUSHMEM_RING_IGET: {
      const bool put = op == RUSHMEM_RING_IPUT;
      const int64_t here = static_cast<int64_t>(put ? what->value : what->sig) * static_cast<int64_t>(what->element);
      const int64_t there = static_cast<int64_t>(put ? what->sig : what->value) * static_cast<int64_t>(what->element);
      const uint64_t own = put ? what->src : what->dst;
      for (uint64_t i = 0; i < what->bytes; ++i) local(own + i * here, what->element, put ? 0 : 1);
      return rushmem_cpu_check_remote(put ? RUSHMEM_CPU_REMOTE_WRITE : RUSHMEM_CPU_REMOTE_READ,
                                      put ? what->dst : what->src, what->element, pe, there, what->bytes);
    }
    case RUSHMEM_RING_ATOMIC: return remote(RUSHMEM_CPU_REMOTE_ATOMIC, what->dst, width);
    case RUSHMEM_RING_SIGNAL:
      return signal(sub == RUSHMEM_SIGNAL_ADD ? RUSHMEM_CPU_REMOTE_ATOMIC : RUSHMEM_CPU_REMOTE_SET);
    case RUSHMEM_RING_PUT_SIGNAL:
      local(what->src, what->bytes, 0);
      remote(RUSHMEM_CPU_REMOTE_ANNOUNCED, what->dst, what->bytes);
      return signal(RUSHMEM_CPU_REMOTE_SIGNAL);
    case RUSHMEM_RING_PUT_SIGNAL_INLINE:
      remote(RUSHMEM_CPU_REMOTE_ANNOUNCED, what->dst, width);
      return signal(RUSHMEM_CPU_REMOTE_SIGNAL);
    default: return;
  }
}

/* A value has come: what its word carried when it was read. */
RUSHMEM_DEVICE void ring_note_answer(const volatile ring_words *what) {
  const uint32_t op = ring_op(what->head), width = what->head >> 16 & 255;
  if (op != RUSHMEM_RING_ATOMIC && op != RUSHMEM_RING_G) return;
  rushmem_cpu_check_remote(RUSHMEM_CPU_REMOTE_FETCH, op == RUSHMEM_RING_G ? what->src : what->dst, width,
                           ring_pe(what->head), 0, 1);
}

#endif

/* Posts a descriptor; with RUSHMEM_RING_REPLY waits for the answer and returns its value. Ends the launch
 * where there is no such PE, or no way to it, or where an address is none of this PE's symmetric memory.
 *
 * One loop with a stage, rather than a loop for each: threads of a warp wait for one another here, so none
 * may be kept from publishing or from freeing its reply slot at the end of a loop that others are still in.
 */
extern "C" RUSHMEM_COLD uint64_t rushmem_far_post(const volatile ring_words *what) {
  rushmem_ring *ring = state().ring;
  if (!ring || static_cast<uint32_t>(ring_pe(what->head)) >= static_cast<uint32_t>(state().n_pes)) {
    fail(why_not_near(ring_pe(what->head)));
  }
  ring_check_words(what);
#if defined(RUSHMEM_CPU_CHECK)
  ring_note(what);
  const noted_inner inner;
#endif
  enum : uint32_t { claiming, ordering, placing, waiting };
  uint32_t stage = ring_answers(what->head) ? claiming : ordering, claim = 0;
  uint64_t ticket = 0;
  stall_watch watch;
  for (;;) {
    if (stage == claiming) {
      claim = static_cast<uint32_t>(fetch_add_word(&ring->reply_tail.value, uint64_t(1)) & ring->reply_mask);
      if (compare_swap_word(ring->busy + claim, uint64_t(0), uint64_t(1)) == 0) stage = ordering;
    }
    if (stage == ordering && ring_take_ticket(ring, ticket)) stage = placing;
    if (stage == placing && ring_has_room(ring, ticket)) {
      rushmem_descriptor *slot = ring->slots + (ticket & ring->mask);
      ring_store_pair(slot, what->head, what->dst);
      ring_store_pair(&slot->src, what->src, what->bytes);
      ring_store_pair(&slot->sig, what->sig, what->value);
      ring_store(&slot->reply, claim | what->element << 32);
      fence_acq_rel();
      store_relaxed_word(&slot->ticket, ticket + 1);
      if (ring_op(what->head) == RUSHMEM_RING_FENCE) store_release_word(&ring->fenced.value, ticket + 1);
      if (!ring_answers(what->head)) return 0;
      stage = waiting;
    }
    if (stage == waiting) {
      const rushmem_reply *reply = ring->replies + claim;
      const uint64_t seen = load_relaxed_word(&reply->state);
      if (seen == ticket + 1) {
        fence_acq_rel();
        const uint64_t got = load_relaxed_word(&reply->value);
        store_release_word(ring->busy + claim, uint64_t(0));
        if (ring_op(what->head) == RUSHMEM_RING_QUIET) store_release_word(&ring->quieted.value, ticket + 1);
#if defined(RUSHMEM_CPU_CHECK)
        ring_note_answer(what);
#endif
        return got;
      }
      watch.unsatisfied(&reply->state, RUSHMEM_STALL_ANSWER, ticket + 1, seen, ring_pe(what->head));
    } else {
      watch.unsatisfied(&ring->consumed_seen.value, RUSHMEM_STALL_ROOM, ticket + 1, uint64_t(0), -1);
    }
  }
}

#endif

RUSHMEM_DEVICE uint64_t ring_post(uint64_t head, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                 uint64_t value, uint32_t element) {
  const ring_words what{head, dst, src, bytes, sig, value, element};
  return rushmem_far_post(&what);
}

/* ---- order ---- */

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" {
RUSHMEM_COLD void rushmem_far_fence();
RUSHMEM_COLD void rushmem_far_quiet();
}

#else

/* Everything that happened before this call, to each far PE, before everything that happens after. Nothing is
 * to be posted where another thread's fence stands behind all that was posted, or its quiet has ended. A
 * quiet that has not ended yet does not do: it holds up its own thread and no other's operations. */
extern "C" RUSHMEM_COLD void rushmem_far_fence() {
  rushmem_ring *ring = state().ring;
  const uint64_t fenced = load_acquire_word(&ring->fenced.value);
  const uint64_t quieted = load_acquire_word(&ring->quieted.value);
  const uint64_t tail = load_relaxed_word(&ring->tail.value);
  if (static_cast<int64_t>(tail - fenced) <= 0 || static_cast<int64_t>(tail - quieted) <= 0) return;
  ring_post(ring_head(RUSHMEM_RING_FENCE, 0, 0, 0, state().my_pe), 0, 0, 0, 0, 0, 0);
}

/* Everything that happened before this call, to far PEs, is complete. */
extern "C" RUSHMEM_COLD void rushmem_far_quiet() {
  rushmem_ring *ring = state().ring;
  const uint64_t quieted = load_acquire_word(&ring->quieted.value);
  if (static_cast<int64_t>(load_relaxed_word(&ring->tail.value) - quieted) <= 0) return;
  ring_post(ring_head(RUSHMEM_RING_QUIET, 0, 0, RUSHMEM_RING_REPLY, state().my_pe), 0, 0, 0, 0, 0, 0);
}

#endif

}  // namespace impl
}  // namespace rushmem

#endif
