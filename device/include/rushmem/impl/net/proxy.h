/* The back end `proxy`: operations as descriptors in the device ring, which the host's proxy thread carries
 * out. net.h says what each function has to do.
 *
 * The host reaches a put's source and a get's destination in global memory. What is in a GPU thread's local
 * memory, in shared memory or among a kernel's parameters travels inside descriptors, 32 bytes at a time
 * there and 8 back. Memory that a kernel took from the device's own malloc is in reach of neither.
 *
 * Functions with C names are never inlined; in relocatable code they are the device library's
 * (device/src/device.cu).
 */
#ifndef RUSHMEM_IMPL_NET_PROXY_H
#define RUSHMEM_IMPL_NET_PROXY_H

#include <rushmem/impl/net/ring.h>

namespace rushmem {
namespace impl {

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" {
RUSHMEM_COLD void rushmem_far_p(uint64_t dst, uint64_t word_, uint32_t width, int pe);
RUSHMEM_COLD uint64_t rushmem_far_g(uint64_t src, uint32_t width, int pe);
RUSHMEM_COLD void rushmem_far_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                         uint64_t value, int sig_op, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_far_iput(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                                   uint64_t n, uint32_t element, int pe);
RUSHMEM_COLD void rushmem_far_iget(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                                   uint64_t n, uint32_t element, int pe);
}

#else

/* ---- this PE's memory, of any kind ---- */

#if defined(RUSHMEM_CPU)

/* Whether the host reaches it. The host is the device. */
RUSHMEM_DEVICE bool proxy_reaches(uint64_t) { return true; }

/* Aligned words. */
RUSHMEM_DEVICE uint64_t proxy_load_word(const void *from) {
  return *static_cast<const alias<uint64_t> *>(from);
}
RUSHMEM_DEVICE void proxy_store_word(void *to, uint64_t word_) {
  *static_cast<alias<uint64_t> *>(to) = word_;
}

#else

RUSHMEM_DEVICE bool proxy_reaches(uint64_t address) {
  uint32_t is;
  asm("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "l"(address));
  return is != 0;
}

RUSHMEM_DEVICE uint64_t proxy_load_word(const void *from) {
  uint64_t word_;
  asm volatile("ld.u64 %0, [%1];" : "=l"(word_) : "l"(from) : "memory");
  return word_;
}
RUSHMEM_DEVICE void proxy_store_word(void *to, uint64_t word_) {
  asm volatile("st.u64 [%0], %1;" ::"l"(to), "l"(word_) : "memory");
}

#endif

/* Up to 8 bytes of this PE's memory, of any kind and alignment, and above them zeros. */
RUSHMEM_DEVICE uint64_t proxy_load(uint64_t from, uint64_t bytes) {
  if (bytes == 0) return 0;
  const unsigned char *at = reinterpret_cast<const unsigned char *>(from);
  if (bytes >= 8 && from % 8 == 0) return proxy_load_word(at);
  uint64_t word_ = 0;
  for (uint64_t i = 0; i < 8 && i < bytes; ++i) word_ |= static_cast<uint64_t>(at[i]) << 8 * i;
  return word_;
}

/* The low bytes of a word into this PE's memory, likewise. */
RUSHMEM_DEVICE void proxy_store(uint64_t to, uint64_t word_, uint64_t bytes) {
  unsigned char *at = reinterpret_cast<unsigned char *>(to);
  if (bytes == 8 && to % 8 == 0) return proxy_store_word(at, word_);
  for (uint64_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>(word_ >> 8 * i);
}

/* `bytes` inside descriptors. The source is free on return. */
RUSHMEM_DEVICE void proxy_put_inline(uint64_t dst, uint64_t src, uint64_t bytes, int pe) {
  for (uint64_t at = 0; at < bytes; at += RUSHMEM_RING_INLINE_BYTES) {
    uint64_t left = bytes - at;
    if (left > RUSHMEM_RING_INLINE_BYTES) left = RUSHMEM_RING_INLINE_BYTES;
    const uint64_t from = src + at;
    ring_post(ring_head(RUSHMEM_RING_PUT_INLINE, 0, static_cast<uint32_t>(left), 0, pe), dst + at,
                     proxy_load(from, left), proxy_load(from + 8, left > 8 ? left - 8 : 0),
                     proxy_load(from + 16, left > 16 ? left - 16 : 0),
                     proxy_load(from + 24, left > 24 ? left - 24 : 0), 0);
  }
}

/* `bytes` in answers to descriptors: there on return. */
RUSHMEM_DEVICE void proxy_get_words(uint64_t dst, uint64_t src, uint64_t bytes, int pe) {
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t left = bytes - at < 8 ? bytes - at : 8;
    const uint64_t head = ring_head(RUSHMEM_RING_G, 0, static_cast<uint32_t>(left), RUSHMEM_RING_REPLY, pe);
    proxy_store(dst + at, ring_post(head, 0, src + at, 0, 0, 0, 0), left);
  }
}

#if !defined(RUSHMEM_CPU)

/* One word. A function of its own, by which a kernel that puts nothing else takes half of the registers that
 * rushmem_far_post takes: the wait for room is not a stall_watch, but ends as one does, and the proxy reports
 * it while it lasts. Publishes inside the loop, as that does, and for the same reason. */
extern "C" RUSHMEM_COLD void rushmem_far_p(uint64_t dst, uint64_t word_, uint32_t width, int pe) {
  const rushmem_device_state &s = state();
  rushmem_ring *ring = s.ring;
  if (!ring || static_cast<uint32_t>(pe) >= static_cast<uint32_t>(s.n_pes)) fail(why_not_near(pe));
  const uint64_t ticket = fetch_add_word(&ring->tail.value, uint64_t(1));
  uint64_t since = 0;
  for (bool posted = false; !posted;) {
    if (ring_has_room(ring, ticket)) {
      rushmem_descriptor *slot = ring->slots + (ticket & ring->mask);
      ring_store_pair(slot, ring_head(RUSHMEM_RING_PUT_INLINE, 0, width, 0, pe), dst);
      ring_store_pair(&slot->src, word_, 0);
      ring_store_pair(&slot->sig, 0, 0);
      ring_store(&slot->reply, 0);
      fence_acq_rel();
      store_relaxed_word(&slot->ticket, ticket + 1);
      posted = true;
    } else {
      const uint64_t now = now_ns();
      if (load_relaxed_word(s.broken) != 0) give_up(RUSHMEM_DEVICE_FAIL_BROKEN, now);
      if (since == 0) since = now;
      if (s.wait_limit_ns != 0 && now - since >= s.wait_limit_ns) {
        report_stall(reinterpret_cast<uint64_t>(&ring->consumed_seen.value), 8, RUSHMEM_STALL_ROOM, -1, ticket + 1, 0,
                     s.wait_limit_ns);
        give_up(RUSHMEM_DEVICE_FAIL_TIMEOUT, now);
      }
    }
  }
}

/* One word, there on return. */
extern "C" RUSHMEM_COLD uint64_t rushmem_far_g(uint64_t src, uint32_t width, int pe) {
  return ring_post(ring_head(RUSHMEM_RING_G, 0, width, RUSHMEM_RING_REPLY, pe), 0, src, 0, 0, 0, 0);
}

#endif

/* put and, without RUSHMEM_RING_REPLY, put_nbi. */
extern "C" RUSHMEM_COLD void rushmem_far_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                             uint32_t flags) {
  if (bytes <= RUSHMEM_RING_INLINE_BYTES || !proxy_reaches(src)) proxy_put_inline(dst, src, bytes, pe);
  else ring_post(ring_head(RUSHMEM_RING_PUT, 0, 0, flags, pe), dst, src, bytes, 0, 0, 0);
}

/* get and, without RUSHMEM_RING_REPLY, get_nbi. A word that is waited for comes in the answer, which spares
 * the host a way into this PE's memory. */
extern "C" RUSHMEM_COLD void rushmem_far_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                             uint32_t flags) {
  if (bytes == 0) return;
  if ((bytes <= 8 && flags != 0) || !proxy_reaches(dst)) proxy_get_words(dst, src, bytes, pe);
  else ring_post(ring_head(RUSHMEM_RING_GET, 0, 0, flags, pe), dst, src, bytes, 0, 0, 0);
}

/* put_signal and, without RUSHMEM_RING_REPLY, put_signal_nbi. */
extern "C" RUSHMEM_COLD void rushmem_far_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                                    uint64_t value, int sig_op, int pe, uint32_t flags) {
  const uint32_t sub = static_cast<uint32_t>(sig_op);
  if (bytes != 0 && bytes <= 8) {
    const uint64_t head = ring_head(RUSHMEM_RING_PUT_SIGNAL_INLINE, sub, static_cast<uint32_t>(bytes), 0, pe);
    ring_post(head, dst, proxy_load(src, bytes), 0, sig, value, 0);
  } else if (bytes != 0 && proxy_reaches(src)) {
    ring_post(ring_head(RUSHMEM_RING_PUT_SIGNAL, sub, 0, flags, pe), dst, src, bytes, sig, value, 0);
  } else {
    if (bytes != 0) {
      proxy_put_inline(dst, src, bytes, pe);
      note(noted_fence);
      rushmem_far_fence();
    }
    ring_post(ring_head(RUSHMEM_RING_SIGNAL, sub, 0, 0, pe), 0, 0, 0, sig, value, 0);
  }
}

/* Strides are in elements, and signed. */
extern "C" RUSHMEM_COLD void rushmem_far_iput(uint64_t dst, uint64_t src, uint64_t dst_stride,
                                              uint64_t src_stride, uint64_t n, uint32_t element, int pe) {
  if (n != 0 && proxy_reaches(src)) {
    ring_post(ring_head(RUSHMEM_RING_IPUT, 0, 0, RUSHMEM_RING_REPLY, pe), dst, src, n, dst_stride,
                     src_stride, element);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    proxy_put_inline(dst + i * dst_stride * element, src + i * src_stride * element, element, pe);
  }
}

extern "C" RUSHMEM_COLD void rushmem_far_iget(uint64_t dst, uint64_t src, uint64_t dst_stride,
                                              uint64_t src_stride, uint64_t n, uint32_t element, int pe) {
  if (n != 0 && proxy_reaches(dst)) {
    ring_post(ring_head(RUSHMEM_RING_IGET, 0, 0, RUSHMEM_RING_REPLY, pe), dst, src, n, dst_stride,
                     src_stride, element);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    proxy_get_words(dst + i * dst_stride * element, src + i * src_stride * element, element, pe);
  }
}

#endif

/* ---- the set of functions that net.h calls ---- */

RUSHMEM_DEVICE void proxy_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags) {
  rushmem_far_put(dst, src, bytes, pe, flags);
}
RUSHMEM_DEVICE void proxy_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags) {
  rushmem_far_get(dst, src, bytes, pe, flags);
}
RUSHMEM_DEVICE void proxy_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig, uint64_t value,
                                     int sig_op, int pe, uint32_t flags) {
  rushmem_far_put_signal(dst, src, bytes, sig, value, sig_op, pe, flags);
}
RUSHMEM_DEVICE void proxy_iput(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                               uint64_t n, uint32_t element, int pe) {
  rushmem_far_iput(dst, src, dst_stride, src_stride, n, element, pe);
}
RUSHMEM_DEVICE void proxy_iget(uint64_t dst, uint64_t src, uint64_t dst_stride, uint64_t src_stride,
                               uint64_t n, uint32_t element, int pe) {
  rushmem_far_iget(dst, src, dst_stride, src_stride, n, element, pe);
}
RUSHMEM_DEVICE void proxy_fence() { rushmem_far_fence(); }
RUSHMEM_DEVICE void proxy_quiet() { rushmem_far_quiet(); }

RUSHMEM_DEVICE uint64_t proxy_g(uint64_t src, uint32_t width, int pe) {
#if defined(RUSHMEM_CPU)
  return ring_post(ring_head(RUSHMEM_RING_G, 0, width, RUSHMEM_RING_REPLY, pe), 0, src, 0, 0, 0, 0);
#else
  return rushmem_far_g(src, width, pe);
#endif
}
RUSHMEM_DEVICE void proxy_signal(uint64_t sig, uint64_t value, int sig_op, int pe) {
  ring_post(ring_head(RUSHMEM_RING_SIGNAL, static_cast<uint32_t>(sig_op), 0, 0, pe), 0, 0, 0, sig, value, 0);
}
RUSHMEM_DEVICE void proxy_put_word_signal(uint64_t dst, uint64_t word_, uint64_t sig, uint64_t value,
                                          int pe) {
  const uint32_t op = RUSHMEM_RING_PUT_SIGNAL_INLINE, set = RUSHMEM_SIGNAL_SET;
  ring_post(ring_head(op, set, 8, 0, pe), dst, word_, 0, sig, value, 0);
}
RUSHMEM_DEVICE uint64_t proxy_atomic(uint32_t code, uint32_t width, uint64_t target, uint64_t value,
                                     uint64_t compare, int pe, uint32_t flags) {
  return ring_post(ring_head(RUSHMEM_RING_ATOMIC, code, width, flags, pe), target, 0, 0, compare, value, 0);
}

/* One word, in one piece. */
template <typename T> RUSHMEM_DEVICE void proxy_p(T *dst, const T &value, int pe) {
#if defined(RUSHMEM_CPU)
  const uint64_t head = ring_head(RUSHMEM_RING_PUT_INLINE, 0, sizeof(T), 0, pe);
  ring_post(head, reinterpret_cast<uint64_t>(dst), to_bits(value), 0, 0, 0, 0);
#else
  rushmem_far_p(reinterpret_cast<uint64_t>(dst), to_bits(value), sizeof(T), pe);
#endif
}

}  // namespace impl
}  // namespace rushmem

#endif
