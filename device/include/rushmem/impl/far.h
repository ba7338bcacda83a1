/* The way to PEs that are not mapped: operations on them are posted to the device ring and carried out by the
 * host (abi_ring.h has the protocol, host/ring a model of it for loom). Everything here is off the near path:
 * an operation's test whether the PE is near leads to a call of one of the `rushmem_far_*` functions, which
 * are never inlined; in relocatable code they are the device library's (device/src/device.cu).
 *
 * One thread of a scope posts for all of it. It needs no fence of its own: publishing releases what it has
 * seen of the others by the program's barrier (or, for a signal, by the scope's).
 *
 * The host reaches a put's source and a get's destination in global memory. What is in a GPU thread's local
 * memory, in shared memory or among a kernel's parameters travels inside descriptors, 32 bytes at a time
 * there and 8 back. Memory that a kernel took from the device's own malloc is in reach of neither.
 */
#ifndef RUSHMEM_IMPL_FAR_H
#define RUSHMEM_IMPL_FAR_H

#include <rushmem/impl/route.h>
#include <rushmem/impl/stall.h>
#include <rushmem/scope.h>

static_assert(sizeof(rushmem_descriptor) == 64 && sizeof(rushmem_reply) == 32 && sizeof(rushmem_ring) == 768,
              "rushmem/abi_ring.h");

namespace rushmem {
namespace impl {

/* A descriptor's first word. */
RUSHMEM_DEVICE uint64_t far_head(uint32_t op, uint32_t sub, uint32_t width, uint32_t flags, int pe) {
  return static_cast<uint64_t>(op | sub << 8 | width << 16 | flags << 24) |
         static_cast<uint64_t>(static_cast<uint32_t>(pe)) << 32;
}

/* What it says. */
RUSHMEM_DEVICE uint32_t far_op(uint64_t head) { return static_cast<uint32_t>(head) & 255; }
RUSHMEM_DEVICE bool far_answers(uint64_t head) { return (head >> 24 & RUSHMEM_RING_REPLY) != 0; }
RUSHMEM_DEVICE int far_pe(uint64_t head) { return static_cast<int>(head >> 32); }

/* ---- what differs between the two kinds of device ---- */

#if defined(RUSHMEM_CPU)

/* The host is the device. */
RUSHMEM_DEVICE bool far_in_reach(uint64_t) { return true; }

/* Stores `a` and `b` side by side, aligned to 16. */
RUSHMEM_DEVICE void far_store_pair(void *to, uint64_t a, uint64_t b) {
  alias<uint64_t> *at = static_cast<alias<uint64_t> *>(to);
  at[0] = a;
  at[1] = b;
}
RUSHMEM_DEVICE void far_store(void *to, uint64_t a) { *static_cast<alias<uint64_t> *>(to) = a; }

/* Aligned words of memory of any kind. */
RUSHMEM_DEVICE uint64_t far_load_local(const void *from) {
  return *static_cast<const alias<uint64_t> *>(from);
}
RUSHMEM_DEVICE void far_store_local(void *to, uint64_t word_) { far_store(to, word_); }

#else

RUSHMEM_DEVICE bool far_in_reach(uint64_t address) {
  uint32_t is;
  asm("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "l"(address));
  return is != 0;
}

RUSHMEM_DEVICE void far_store_pair(void *to, uint64_t a, uint64_t b) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
RUSHMEM_DEVICE void far_store(void *to, uint64_t a) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(a) : "memory");
}

/* Aligned words of memory of any kind. */
RUSHMEM_DEVICE uint64_t far_load_local(const void *from) {
  uint64_t word_;
  asm volatile("ld.u64 %0, [%1];" : "=l"(word_) : "l"(from) : "memory");
  return word_;
}
RUSHMEM_DEVICE void far_store_local(void *to, uint64_t word_) {
  asm volatile("st.u64 [%0], %1;" ::"l"(to), "l"(word_) : "memory");
}

#endif

/* ---- the ring ---- */

/* Whether `ticket`'s slot is free. Counts may be a little old on either side of the difference, so it is
 * signed. */
RUSHMEM_DEVICE bool far_has_room(rushmem_ring *ring, uint64_t ticket) {
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
RUSHMEM_DEVICE bool far_take_ticket(rushmem_ring *ring, uint64_t &ticket) {
#if defined(RUSHMEM_CPU)
  ticket = load_relaxed_word(&ring->tail.value);
  while (far_has_room(ring, ticket)) {
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

/* What a descriptor says, but its ticket: its words in their order. Handed to the out-of-line function in memory of the
 * caller's own, since every register of it would be one more in the kernel. */
struct far_words {
  uint64_t head, dst, src, bytes, sig, value, element;
};

#if defined(RUSHMEM_COLD_IN_LIBRARY)

/* By C names, here and below, as uint64_t is another type to NVRTC than to nvcc, and both link with one library. */
extern "C" RUSHMEM_COLD uint64_t rushmem_far_post(const volatile far_words *what);

#else

/* Ends the launch where [at, at + bytes) is not in this PE's stride. The record says which address it was. */
RUSHMEM_DEVICE void far_check(uint64_t at, uint64_t bytes, int pe) {
  const rushmem_device_state &s = state();
  const uint64_t offset = at - s.heap_base;
  if (offset < s.stride && bytes <= s.stride - offset) return;
  report_stall(at, 0, RUSHMEM_STALL_ADDRESS, pe, 0, 0, 0);
  fail(RUSHMEM_DEVICE_FAIL_BAD_ADDRESS);
}

/* The same for the symmetric addresses of a descriptor. */
RUSHMEM_DEVICE void far_check_words(const volatile far_words *what) {
  const int pe = far_pe(what->head);
  switch (far_op(what->head)) {
    case RUSHMEM_RING_PUT: return far_check(what->dst, what->bytes, pe);
    case RUSHMEM_RING_GET: return far_check(what->src, what->bytes, pe);
    case RUSHMEM_RING_PUT_INLINE:
    case RUSHMEM_RING_IPUT:
    case RUSHMEM_RING_ATOMIC: return far_check(what->dst, 1, pe);
    case RUSHMEM_RING_G:
    case RUSHMEM_RING_IGET: return far_check(what->src, 1, pe);
    case RUSHMEM_RING_SIGNAL: return far_check(what->sig, 8, pe);
    case RUSHMEM_RING_PUT_SIGNAL:
    case RUSHMEM_RING_PUT_SIGNAL_INLINE: far_check(what->dst, 1, pe); return far_check(what->sig, 8, pe);
    default: return;
  }
}

/* Posts a descriptor; with RUSHMEM_RING_REPLY waits for the answer and returns its value. Ends the launch
 * where there is no such PE, or no way to it, or where an address is none of this PE's symmetric memory.
 *
 * One loop with a stage, rather than a loop for each: threads of a warp wait for one another here, so none
 * may be kept from publishing or from freeing its reply slot at the end of a loop that others are still in.
 */
extern "C" RUSHMEM_COLD uint64_t rushmem_far_post(const volatile far_words *what) {
  rushmem_ring *ring = state().ring;
  if (!ring || static_cast<uint32_t>(far_pe(what->head)) >= static_cast<uint32_t>(state().n_pes)) {
    fail(why_not_near(far_pe(what->head)));
  }
  far_check_words(what);
  enum : uint32_t { claiming, ordering, placing, waiting };
  uint32_t stage = far_answers(what->head) ? claiming : ordering, claim = 0;
  uint64_t ticket = 0;
  stall_watch watch;
  for (;;) {
    if (stage == claiming) {
      claim = static_cast<uint32_t>(fetch_add_word(&ring->reply_tail.value, uint64_t(1)) & ring->reply_mask);
      if (compare_swap_word(ring->busy + claim, uint64_t(0), uint64_t(1)) == 0) stage = ordering;
    }
    if (stage == ordering && far_take_ticket(ring, ticket)) stage = placing;
    if (stage == placing && far_has_room(ring, ticket)) {
      rushmem_descriptor *slot = ring->slots + (ticket & ring->mask);
      far_store_pair(slot, what->head, what->dst);
      far_store_pair(&slot->src, what->src, what->bytes);
      far_store_pair(&slot->sig, what->sig, what->value);
      far_store(&slot->reply, claim | what->element << 32);
      fence_acq_rel();
      store_relaxed_word(&slot->ticket, ticket + 1);
      if (far_op(what->head) == RUSHMEM_RING_FENCE) store_release_word(&ring->fenced.value, ticket + 1);
      if (!far_answers(what->head)) return 0;
      stage = waiting;
    }
    if (stage == waiting) {
      const rushmem_reply *reply = ring->replies + claim;
      const uint64_t seen = load_relaxed_word(&reply->state);
      if (seen == ticket + 1) {
        fence_acq_rel();
        const uint64_t got = load_relaxed_word(&reply->value);
        store_release_word(ring->busy + claim, uint64_t(0));
        if (far_op(what->head) == RUSHMEM_RING_QUIET) store_release_word(&ring->quieted.value, ticket + 1);
        return got;
      }
      watch.unsatisfied(&reply->state, RUSHMEM_STALL_ANSWER, ticket + 1, seen, far_pe(what->head));
    } else {
      watch.unsatisfied(&ring->consumed_seen.value, RUSHMEM_STALL_ROOM, ticket + 1, uint64_t(0), -1);
    }
  }
}

#endif

RUSHMEM_DEVICE uint64_t far_post(uint64_t head, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                 uint64_t value, uint32_t element) {
  const far_words what{head, dst, src, bytes, sig, value, element};
  return rushmem_far_post(&what);
}

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" {
RUSHMEM_COLD void rushmem_far_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                         uint64_t value, int sig_op, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_iput(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                                   uint64_t n, uint32_t element, int pe);
RUSHMEM_COLD void rushmem_far_iget(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                                   uint64_t n, uint32_t element, int pe);
RUSHMEM_COLD void rushmem_far_fence();
RUSHMEM_COLD void rushmem_far_quiet();
}

#else

/* Everything that happened before this call, to each far PE, before everything that happens after. Nothing is to be
 * posted where another thread's fence stands behind all that was posted, or its quiet has ended. A quiet that has not ended yet
 * does not do: it holds up its own thread and no other's operations. */
extern "C" RUSHMEM_COLD void rushmem_far_fence() {
  rushmem_ring *ring = state().ring;
  const uint64_t fenced = load_acquire_word(&ring->fenced.value);
  const uint64_t quieted = load_acquire_word(&ring->quieted.value);
  const uint64_t tail = load_relaxed_word(&ring->tail.value);
  if (static_cast<int64_t>(tail - fenced) <= 0 || static_cast<int64_t>(tail - quieted) <= 0) return;
  far_post(far_head(RUSHMEM_RING_FENCE, 0, 0, 0, state().my_pe), 0, 0, 0, 0, 0, 0);
}

/* Everything that happened before this call, to far PEs, is complete. */
extern "C" RUSHMEM_COLD void rushmem_far_quiet() {
  rushmem_ring *ring = state().ring;
  const uint64_t quieted = load_acquire_word(&ring->quieted.value);
  if (static_cast<int64_t>(load_relaxed_word(&ring->tail.value) - quieted) <= 0) return;
  far_post(far_head(RUSHMEM_RING_QUIET, 0, 0, RUSHMEM_RING_REPLY, state().my_pe), 0, 0, 0, 0, 0, 0);
}

/* ---- operations made of descriptors ---- */

/* Up to 8 bytes of this PE's memory, of any kind and alignment, and above them zeros. */
RUSHMEM_DEVICE uint64_t far_load(uint64_t from, uint64_t bytes) {
  if (bytes == 0) return 0;
  const unsigned char *at = reinterpret_cast<const unsigned char *>(from);
  if (bytes >= 8 && from % 8 == 0) return far_load_local(at);
  uint64_t word_ = 0;
  for (uint64_t i = 0; i < 8 && i < bytes; ++i) word_ |= static_cast<uint64_t>(at[i]) << 8 * i;
  return word_;
}

/* The low bytes of a word into this PE's memory, likewise. */
RUSHMEM_DEVICE void far_store_bytes(uint64_t to, uint64_t word_, uint64_t bytes) {
  unsigned char *at = reinterpret_cast<unsigned char *>(to);
  if (bytes == 8 && to % 8 == 0) return far_store_local(at, word_);
  for (uint64_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>(word_ >> 8 * i);
}

/* `bytes` inside descriptors. The source is free on return. */
RUSHMEM_DEVICE void far_put_inline(uint64_t dst, uint64_t src, uint64_t bytes, int pe) {
  for (uint64_t at = 0; at < bytes; at += RUSHMEM_RING_INLINE_BYTES) {
    uint64_t left = bytes - at;
    if (left > RUSHMEM_RING_INLINE_BYTES) left = RUSHMEM_RING_INLINE_BYTES;
    const uint64_t from = src + at;
    far_post(far_head(RUSHMEM_RING_PUT_INLINE, 0, static_cast<uint32_t>(left), 0, pe), dst + at,
                     far_load(from, left), far_load(from + 8, left > 8 ? left - 8 : 0),
                     far_load(from + 16, left > 16 ? left - 16 : 0),
                     far_load(from + 24, left > 24 ? left - 24 : 0), 0);
  }
}

/* `bytes` in answers to descriptors: there on return. */
RUSHMEM_DEVICE void far_get_words(uint64_t dst, uint64_t src, uint64_t bytes, int pe) {
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t left = bytes - at < 8 ? bytes - at : 8;
    const uint64_t head = far_head(RUSHMEM_RING_G, 0, static_cast<uint32_t>(left), RUSHMEM_RING_REPLY, pe);
    far_store_bytes(dst + at, far_post(head, 0, src + at, 0, 0, 0, 0), left);
  }
}

/* put and, without RUSHMEM_RING_REPLY, put_nbi. */
extern "C" RUSHMEM_COLD void rushmem_far_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                             uint32_t flags) {
  if (bytes <= RUSHMEM_RING_INLINE_BYTES || !far_in_reach(src)) far_put_inline(dst, src, bytes, pe);
  else far_post(far_head(RUSHMEM_RING_PUT, 0, 0, flags, pe), dst, src, bytes, 0, 0, 0);
}

/* get and, without RUSHMEM_RING_REPLY, get_nbi. A word that is waited for comes in the answer, which spares
 * the host a way into this PE's memory. */
extern "C" RUSHMEM_COLD void rushmem_far_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                             uint32_t flags) {
  if (bytes == 0) return;
  if ((bytes <= 8 && flags != 0) || !far_in_reach(dst)) far_get_words(dst, src, bytes, pe);
  else far_post(far_head(RUSHMEM_RING_GET, 0, 0, flags, pe), dst, src, bytes, 0, 0, 0);
}

/* put_signal and, without RUSHMEM_RING_REPLY, put_signal_nbi. */
extern "C" RUSHMEM_COLD void rushmem_far_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                                    uint64_t value, int sig_op, int pe, uint32_t flags) {
  const uint32_t sub = static_cast<uint32_t>(sig_op);
  if (bytes != 0 && bytes <= 8) {
    const uint64_t head = far_head(RUSHMEM_RING_PUT_SIGNAL_INLINE, sub, static_cast<uint32_t>(bytes), 0, pe);
    far_post(head, dst, far_load(src, bytes), 0, sig, value, 0);
  } else if (bytes != 0 && far_in_reach(src)) {
    far_post(far_head(RUSHMEM_RING_PUT_SIGNAL, sub, 0, flags, pe), dst, src, bytes, sig, value, 0);
  } else {
    if (bytes != 0) {
      far_put_inline(dst, src, bytes, pe);
      rushmem_far_fence();
    }
    far_post(far_head(RUSHMEM_RING_SIGNAL, sub, 0, 0, pe), 0, 0, 0, sig, value, 0);
  }
}

/* Strides are in elements, and signed. */
extern "C" RUSHMEM_COLD void rushmem_far_iput(uint64_t dst, uint64_t src, uint64_t dst_stride,
                                              uint64_t src_stride, uint64_t n, uint32_t element, int pe) {
  if (n != 0 && far_in_reach(src)) {
    far_post(far_head(RUSHMEM_RING_IPUT, 0, 0, RUSHMEM_RING_REPLY, pe), dst, src, n, dst_stride,
                     src_stride, element);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    far_put_inline(dst + i * dst_stride * element, src + i * src_stride * element, element, pe);
  }
}

extern "C" RUSHMEM_COLD void rushmem_far_iget(uint64_t dst, uint64_t src, uint64_t dst_stride,
                                              uint64_t src_stride, uint64_t n, uint32_t element, int pe) {
  if (n != 0 && far_in_reach(dst)) {
    far_post(far_head(RUSHMEM_RING_IGET, 0, 0, RUSHMEM_RING_REPLY, pe), dst, src, n, dst_stride,
                     src_stride, element);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    far_get_words(dst + i * dst_stride * element, src + i * src_stride * element, element, pe);
  }
}

#endif

/* ---- what the operations' headers call ---- */

RUSHMEM_DEVICE uint64_t far_address(const volatile void *at) { return reinterpret_cast<uint64_t>(at); }

/* One word, in one piece. On a GPU without a call, even one that is hardly ever made: for its sake the compiler would keep
 * the registers of a loop around p in memory (sm_90: 112 GB/s instead of 202). Publishes inside the loop, as
 * rushmem_far_post does, and for the same reason. */
template <typename T> RUSHMEM_DEVICE void far_p(T *dst, const T &value, int pe) {
  const uint64_t head = far_head(RUSHMEM_RING_PUT_INLINE, 0, sizeof(T), 0, pe);
#if defined(RUSHMEM_CPU)
  far_post(head, far_address(dst), to_bits(value), 0, 0, 0, 0);
#else
  const rushmem_device_state &s = state();
  rushmem_ring *ring = s.ring;
  if (!ring || static_cast<uint32_t>(pe) >= static_cast<uint32_t>(s.n_pes)) fail(why_not_near(pe));
  const uint64_t ticket = fetch_add_word(&ring->tail.value, uint64_t(1));
  for (bool posted = false; !posted;) {
    if (far_has_room(ring, ticket)) {
      rushmem_descriptor *slot = ring->slots + (ticket & ring->mask);
      far_store_pair(slot, head, far_address(dst));
      far_store_pair(&slot->src, to_bits(value), 0);
      far_store_pair(&slot->sig, 0, 0);
      far_store(&slot->reply, 0);
      fence_acq_rel();
      store_relaxed_word(&slot->ticket, ticket + 1);
      posted = true;
    } else if (load_relaxed_word(s.broken) != 0) {
      fail(RUSHMEM_DEVICE_FAIL_BROKEN);
    }
  }
#endif
}
template <typename T> RUSHMEM_DEVICE T far_g(const T *src, int pe) {
  const uint64_t head = far_head(RUSHMEM_RING_G, 0, sizeof(T), RUSHMEM_RING_REPLY, pe);
  return from_bits<T>(static_cast<word<T>>(far_post(head, 0, far_address(src), 0, 0, 0, 0)));
}

template <typename Scope>
RUSHMEM_DEVICE void far_put(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if (Scope::rank() == 0) rushmem_far_put(far_address(dst), far_address(src), bytes, pe, flags);
}
template <typename Scope>
RUSHMEM_DEVICE void far_get(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if (Scope::rank() == 0) rushmem_far_get(far_address(dst), far_address(src), bytes, pe, flags);
}

/* The scope meets first: what its threads wrote to the source before the call is the signal's data, too. */
template <typename Scope>
RUSHMEM_DEVICE void far_put_signal(void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t value,
                                   int sig_op, int pe, uint32_t flags) {
  Scope::sync();
  if (Scope::rank() == 0) {
    rushmem_far_put_signal(far_address(dst), far_address(src), bytes, far_address(sig), value, sig_op, pe,
                           flags);
  }
}
RUSHMEM_DEVICE void far_signal(uint64_t *sig, uint64_t value, int sig_op, int pe) {
  far_post(far_head(RUSHMEM_RING_SIGNAL, static_cast<uint32_t>(sig_op), 0, 0, pe), 0, 0, 0,
                   far_address(sig), value, 0);
}

/* An atomic operation on a 4- or 8-byte word, RUSHMEM_ATOMIC_*, by bit patterns. */
template <typename T>
RUSHMEM_DEVICE uint64_t far_atomic(uint32_t code, const T *target, T value, T compare, int pe,
                                   uint32_t flags) {
  if (is_floating<T>::value) flags |= RUSHMEM_RING_FLOAT;
  const uint64_t head = far_head(RUSHMEM_RING_ATOMIC, code, sizeof(T), flags, pe);
  return far_post(head, far_address(target), 0, 0, to_bits(compare), to_bits(value), 0);
}
template <typename T> RUSHMEM_DEVICE T far_fetch(uint32_t code, const T *target, T value, T compare, int pe) {
  return from_bits<T>(static_cast<word<T>>(far_atomic(code, target, value, compare, pe, RUSHMEM_RING_REPLY)));
}
template <typename T> RUSHMEM_DEVICE void far_update(uint32_t code, const T *target, T value, int pe) {
  far_atomic(code, target, value, T{}, pe, 0);
}

#if !defined(RUSHMEM_CPU)

/* Sums of 16-bit floats, by their bits. */
template <typename T> RUSHMEM_DEVICE unsigned short far_sum(unsigned short a, unsigned short b) {
  unsigned short sum;
  if (is_half<T>::value) {
    asm("add.rn.f16 %0, %1, %2;" : "=h"(sum) : "h"(a), "h"(b));
  } else {
    /* As in cuda.h: sm_80 has no plain addition of these. */
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(sum) : "h"(a), "h"(static_cast<unsigned short>(0x3f80)), "h"(b));
  }
  return sum;
}

/* Adds to a 16-bit float by compare-and-swap of the word that it is in. Its other half keeps what it has. */
template <typename T> RUSHMEM_DEVICE T far_fetch_add_small(T *target, T value, int pe) {
  uint32_t *word_ = reinterpret_cast<uint32_t *>(far_address(target) & ~uint64_t(3));
  const uint32_t shift = static_cast<uint32_t>(far_address(target) & 2) * 8;
  uint32_t seen = far_fetch<uint32_t>(RUSHMEM_ATOMIC_FETCH, word_, 0, 0, pe);
  for (;;) {
    const unsigned short before = static_cast<unsigned short>(seen >> shift);
    const uint32_t after = far_sum<T>(before, to_bits(value));
    const uint32_t wanted = (seen & ~(uint32_t(0xffff) << shift)) | after << shift;
    const uint32_t found = far_fetch(RUSHMEM_ATOMIC_COMPARE_SWAP, word_, wanted, seen, pe);
    if (found == seen) return from_bits<T>(before);
    seen = found;
  }
}

#endif

template <typename T> RUSHMEM_DEVICE T far_fetch_add(T *target, T value, int pe) {
#if !defined(RUSHMEM_CPU)
  if constexpr (is_half<T>::value || is_bfloat16<T>::value) return far_fetch_add_small(target, value, pe);
  else
#endif
    return far_fetch<T>(RUSHMEM_ATOMIC_FETCH_ADD, target, value, T{}, pe);
}

}  // namespace impl
}  // namespace rushmem

#endif
