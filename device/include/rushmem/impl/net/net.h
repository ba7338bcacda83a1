/* The way to PEs that are not mapped. An operation's header asks whether the PE is far, and if so calls one
 * of the `far_*` functions here; these call a *back end*, which carries operations to the network. Everything
 * here is off the near path.
 *
 * There are two back ends: `proxy` (proxy.h), descriptors in a ring, which a thread of the host takes; and
 * `queue` (queue.h), in which the kernel writes the network card's own work requests. `far_*` choose for each
 * peer, and a program does not see which. `queue` leaves some operations to the proxy.
 *
 * What a back end offers, with its name in front (`proxy_put`, `queue_put`). Each is called by one thread,
 * for a PE that is far, with addresses of this PE as numbers; it ends the launch where there is no such PE,
 * or where an address is none of this PE's symmetric memory. RUSHMEM_RING_REPLY among `flags` makes it wait.
 *
 *   p<T>(dst, value, pe)                        stores one value in one piece; the host checks the address
 *   g(src, width, pe)                           the word there
 *   put(dst, src, bytes, pe, flags)             waits until the source is free
 *   get(dst, src, bytes, pe, flags)             waits until the data is here
 *   put_signal(dst, src, bytes, sig, value, sig_op, pe, flags)
 *                                               the signal word changes behind the data; waits as put does
 *   put_word_signal(dst, word, sig, value, pe)  the same for 8 bytes, and a signal that is set
 *   signal(sig, value, sig_op, pe)              changes a signal word
 *   iput, iget(dst, src, dst_stride, src_stride, n, element, pe)
 *                                               strided, in elements; wait as put and get do
 *   atomic(code, width, target, value, compare, pe, flags)
 *                                               RUSHMEM_ATOMIC_* by bit patterns, with RUSHMEM_RING_FLOAT
 *                                               on a float; waits for the old value
 *   fence()                                     orders what was asked of each far PE before what follows
 *   quiet()                                     waits until all that was asked has happened
 *
 * Order: between two operations of one thread on one PE there is none without a fence, whatever back end
 * carries them; a fence or a quiet covers all back ends that the kernel has used.
 *
 * Words that the cards update (`card_word`) are apart: `by_card` says whether, and then card.h has them for
 * PEs near and far alike.
 */
#ifndef RUSHMEM_IMPL_NET_NET_H
#define RUSHMEM_IMPL_NET_NET_H

#include <rushmem/impl/net/card.h>
#include <rushmem/scope.h>

namespace rushmem {
namespace impl {

/* Whether kernels have the back end `queue` beside the proxy. On GPUs they are compiled with
 * RUSHMEM_NET_QUEUE for it: no card has run it, and with it a warp's put_signal takes 66 registers, where
 * 1024 threads have 64 each. On the CPU device they have it unless compiled with RUSHMEM_NO_NET_QUEUE. */
#if (defined(RUSHMEM_CPU) && !defined(RUSHMEM_NO_NET_QUEUE)) || defined(RUSHMEM_NET_QUEUE)
constexpr bool with_queues = true;
#else
constexpr bool with_queues = false;
#endif

RUSHMEM_DEVICE uint64_t far_address(const volatile void *at) { return reinterpret_cast<uint64_t>(at); }

/* Whether cards update `card_word`s, on all PEs of the job. A kernel that cannot have them do it ends: a word
 * that some update by a card, and others otherwise, loses updates. */
RUSHMEM_DEVICE bool by_card() {
  const rushmem_queues *all = state().queues;
  if (RUSHMEM_LIKELY(!all || all->card_words == 0)) return false;
  if constexpr (!with_queues) fail(RUSHMEM_DEVICE_FAIL_CARD_WORD);
  return true;
}

/* ---- order ---- */

RUSHMEM_DEVICE void far_fence() {
  if constexpr (with_queues) rushmem_queue_fence();
  else proxy_fence();
}
/* The same where it orders what was put, for checked runs. */
RUSHMEM_DEVICE void noted_far_fence() {
  note(noted_fence);
  far_fence();
}
RUSHMEM_DEVICE void far_quiet() {
  if constexpr (with_queues) rushmem_queue_quiet();
  else proxy_quiet();
}

/* ---- one value ---- */

template <typename T> RUSHMEM_DEVICE void far_p(T *dst, const T &value, int pe) {
  if constexpr (with_queues) {
    if (has_queue(pe)) return queue_p(dst, value, pe);
  }
  proxy_p(dst, value, pe);
}
template <typename T> RUSHMEM_DEVICE T far_g(const T *src, int pe) {
  if constexpr (with_queues) {
    return from_bits<T>(static_cast<word<T>>(rushmem_queue_g(far_address(src), sizeof(T), pe)));
  }
  return from_bits<T>(static_cast<word<T>>(proxy_g(far_address(src), sizeof(T), pe)));
}

/* ---- bytes: one thread of the scope asks for all of it ---- */

template <typename Scope>
RUSHMEM_DEVICE void post_put(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if (Scope::rank() != 0) return;
  if constexpr (with_queues) {
    const queue_transfer t{far_address(dst), far_address(src), bytes, 0, 0, flags, pe, 0};
    if (rushmem_queue_put(&t)) return;
  }
  proxy_put(far_address(dst), far_address(src), bytes, pe, flags);
}
template <typename Scope>
RUSHMEM_DEVICE void post_get(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if (Scope::rank() != 0) return;
  if constexpr (with_queues) {
    const queue_transfer t{far_address(dst), far_address(src), bytes, 0, 0, flags, pe, 0};
    if (rushmem_queue_get(&t)) return;
  }
  proxy_get(far_address(dst), far_address(src), bytes, pe, flags);
}

/* Of a block by a call of its own, for its loops' registers, as in copy_askew. */
template <typename Scope>
RUSHMEM_OUTLINED_LARGE void post_put_apart(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  post_put<Scope>(dst, src, bytes, pe, flags);
}
template <typename Scope>
RUSHMEM_OUTLINED_LARGE void post_get_apart(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  post_get<Scope>(dst, src, bytes, pe, flags);
}
template <typename Scope>
RUSHMEM_DEVICE void far_put(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if constexpr (is_alone<Scope>::value || is_one_warp<Scope>::value) post_put<Scope>(dst, src, bytes, pe, flags);
  else post_put_apart<Scope>(dst, src, bytes, pe, flags);
}
template <typename Scope>
RUSHMEM_DEVICE void far_get(void *dst, const void *src, size_t bytes, int pe, uint32_t flags) {
  if constexpr (is_alone<Scope>::value || is_one_warp<Scope>::value) post_get<Scope>(dst, src, bytes, pe, flags);
  else post_get_apart<Scope>(dst, src, bytes, pe, flags);
}

template <typename Scope, typename T>
RUSHMEM_DEVICE void far_iput(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n,
                             int pe) {
  if (Scope::rank() == 0) {
    if constexpr (with_queues) rushmem_queue_before_proxy(pe);
    proxy_iput(far_address(dst), far_address(src), static_cast<uint64_t>(dst_stride),
               static_cast<uint64_t>(src_stride), n, sizeof(T), pe);
  }
}
template <typename Scope, typename T>
RUSHMEM_DEVICE void far_iget(T *dst, const T *src, ptrdiff_t dst_stride, ptrdiff_t src_stride, size_t n,
                             int pe) {
  if (Scope::rank() == 0) {
    if constexpr (with_queues) rushmem_queue_before_proxy(pe);
    proxy_iget(far_address(dst), far_address(src), static_cast<uint64_t>(dst_stride),
               static_cast<uint64_t>(src_stride), n, sizeof(T), pe);
  }
}

/* ---- signals ---- */

/* The scope meets first: what its threads wrote to the source before the call is the signal's data, too. */
template <typename Scope>
RUSHMEM_DEVICE void far_put_signal(void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t value,
                                   int sig_op, int pe, uint32_t flags) {
  Scope::sync();
  if (Scope::rank() != 0) return;
  const uint64_t to = far_address(dst), from = far_address(src), at = far_address(sig);
  if constexpr (with_queues) {
    const queue_transfer t{to, from, bytes, at, value, flags, pe, sig_op};
    if (rushmem_queue_put(&t)) return;
  }
  proxy_put_signal(to, from, bytes, at, value, sig_op, pe, flags);
}
RUSHMEM_DEVICE void far_put_word_signal(uint64_t *dst, uint64_t word_, uint64_t *sig, uint64_t value,
                                        int pe) {
  if constexpr (with_queues) rushmem_queue_words(far_address(dst), word_, 8, far_address(sig), value, pe);
  else proxy_put_word_signal(far_address(dst), word_, far_address(sig), value, pe);
}
RUSHMEM_DEVICE void far_signal(uint64_t *sig, uint64_t value, int sig_op, int pe) {
  if constexpr (with_queues) rushmem_queue_signal(far_address(sig), value, sig_op, pe);
  else proxy_signal(far_address(sig), value, sig_op, pe);
}

/* ---- atomics ---- */

/* On a 4- or 8-byte word, RUSHMEM_ATOMIC_*, by bit patterns. */
template <typename T>
RUSHMEM_DEVICE uint64_t far_atomic(uint32_t code, const T *target, T value, T compare, int pe,
                                   uint32_t flags) {
  if (is_floating<T>::value) flags |= RUSHMEM_RING_FLOAT;
  const uint64_t at = far_address(target);
  if constexpr (with_queues) {
    return rushmem_queue_atomic(code, sizeof(T), at, to_bits(value), to_bits(compare), pe, flags);
  }
  return proxy_atomic(code, sizeof(T), at, to_bits(value), to_bits(compare), pe, flags);
}
template <typename T> RUSHMEM_DEVICE T far_fetch(uint32_t code, const T *target, T value, T compare, int pe) {
  return from_bits<T>(static_cast<word<T>>(far_atomic(code, target, value, compare, pe, RUSHMEM_RING_REPLY)));
}
template <typename T> RUSHMEM_DEVICE void far_update(uint32_t code, const T *target, T value, int pe) {
  far_atomic(code, target, value, T{}, pe, 0);
}

/* Adds to a 16-bit float by compare-and-swap of the word that it is in. Its other half keeps what it has. */
template <typename T> RUSHMEM_DEVICE T far_fetch_add_small(T *target, T value, int pe) {
  uint32_t *word_ = reinterpret_cast<uint32_t *>(far_address(target) & ~uint64_t(3));
  const uint32_t shift = static_cast<uint32_t>(far_address(target) & 2) * 8;
  uint32_t seen = far_fetch<uint32_t>(RUSHMEM_ATOMIC_FETCH, word_, 0, 0, pe);
  for (;;) {
    const unsigned short before = static_cast<unsigned short>(seen >> shift);
    const unsigned short addend = to_bits(value);
    const uint32_t after = is_half<T>::value ? sum_of_halves(before, addend) : sum_of_bfloat16s(before, addend);
    const uint32_t wanted = (seen & ~(uint32_t(0xffff) << shift)) | after << shift;
    const uint32_t found = far_fetch(RUSHMEM_ATOMIC_COMPARE_SWAP, word_, wanted, seen, pe);
    if (found == seen) return from_bits<T>(before);
    seen = found;
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
