/* Copies by the SM's copy engine: global memory to shared to global, one thread issuing (stage.h is the
 * public side). Exists on sm_90 and up; elsewhere `bulk_can` is false.
 *
 * The pipeline: the stage is cut into equal buffers. Each has an mbarrier that counts its loads; stores are
 * counted by bulk groups. Two stores are always queued: once the group before the last has been *read*, its
 * buffer may be loaded again. All other buffers have loads in flight.
 *
 * Ordering. The engine's accesses are made in the async proxy (PTX manual, "Asynchronous Operations",
 * "Proxies"):
 *   1. what the program did to source, destination and stage before, by ordinary accesses of this thread or
 *      of others with which it has synchronised, comes before the engine's accesses by a fence.proxy.async of
 *      the issuing thread: it lies on the path of causality from the one to the other ("Causality Order",
 *      proxy-preserved base causality order). The same fence covers the mbarriers' initialisation;
 *   2. a load's data is there, for the store that follows in the same proxy and by the same thread, once the
 *      mbarrier's phase is seen complete (try_wait acquires);
 *   3. cp.async.bulk.wait_group, without .read, returns when the stores have been made visible to the issuing
 *      thread, and the completion of a bulk copy is followed by an implicit fence between the two proxies:
 *      from then on they are like stores of this thread's own that have been acknowledged. A release by this
 *      thread, or after a barrier by another one of its block, is cumulative over them. So a signal or
 *      quiet() after it needs nothing more, while .read would not do: it says only that the buffer is free.
 */
#ifndef RUSHMEM_IMPL_BULK_H
#define RUSHMEM_IMPL_BULK_H

#include <rushmem/impl/copy.h>

namespace rushmem {
namespace impl {

#if !defined(RUSHMEM_CPU) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/* In PTX: the compiler's __isGlobal does not take every pointer that is computed from an integer. */
RUSHMEM_DEVICE bool is_global(const void *at) {
  uint32_t yes;
  asm("{\n\t.reg .pred p;\n\tisspacep.global p, %1;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(yes) : "l"(at));
  return yes;
}

/* Both in global memory, and aligned to each other. */
RUSHMEM_DEVICE bool bulk_can(const void *to, const void *from) {
  const uint64_t apart = reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from);
  return apart % 16 == 0 && is_global(to) && is_global(from);
}

RUSHMEM_DEVICE void mbarrier_init(uint32_t bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
}
RUSHMEM_DEVICE void mbarrier_forget(uint32_t bar) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
RUSHMEM_DEVICE void mbarrier_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
  } while (!done);
}
/* This thread's arrival, and the bytes that end the phase. */
RUSHMEM_DEVICE void bulk_load(uint32_t to, const char *from, uint32_t bytes, uint32_t bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}
RUSHMEM_DEVICE void bulk_store(char *to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
RUSHMEM_DEVICE void bulk_last_but_one_read() { asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }
RUSHMEM_DEVICE void bulk_all_delivered() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
RUSHMEM_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

/* `bytes`, a multiple of 16, between addresses that are, by one thread; delivered on return. */
RUSHMEM_DEVICE void bulk_vectors(char *to, const char *from, size_t bytes, uint32_t stage, size_t stage_bytes) {
  /* Buffers from the stage's beginning, whole lines of it where it is aligned to them; the barriers at its
   * end. */
  constexpr uint32_t most = 8, most_bytes = 1u << 20;
  const uint32_t usable = stage_bytes < most_bytes ? static_cast<uint32_t>(stage_bytes) : most_bytes;
  const uint32_t first = (stage + 15) / 16 * 16, bars = (stage + usable) / 8 * 8 - 8 * most;
  const uint32_t room = bars - first, buffers = room >= 16384 ? most : 4;
  uint32_t piece = room / buffers;
  piece = piece >= 2048 ? piece / 128 * 128 : piece / 16 * 16;
  /* Short transfers in pieces that let their stores begin early. */
  const size_t share = (bytes / buffers + 127) / 128 * 128;
  if (piece > 2048 && share < piece) piece = share > 2048 ? static_cast<uint32_t>(share) : 2048;
  const uint32_t end = first + buffers * piece;

  for (uint32_t b = 0; b < buffers; ++b) mbarrier_init(bars + 8 * b);
  fence_proxy_async();

  const char *const from_end = from + bytes;
  char *const to_end = to + bytes;
  uint32_t loaded = 0, load_at = first, load_bar = bars;
  auto load_next = [&] {
    const size_t left = static_cast<size_t>(from_end - from);
    const uint32_t now = left < piece ? static_cast<uint32_t>(left) : piece;
    bulk_load(load_at, from, now, load_bar);
    from += now;
    load_at += piece;
    load_bar += 8;
    if (load_at == end) load_at = first, load_bar = bars;
  };
  for (; loaded < buffers && from != from_end; ++loaded) load_next();

  uint32_t store_at = first, store_bar = bars, parity = 0;
  for (bool oldest = true; to != to_end; oldest = false) {
    const size_t left = static_cast<size_t>(to_end - to);
    const uint32_t now = left < piece ? static_cast<uint32_t>(left) : piece;
    mbarrier_wait(store_bar, parity);
    bulk_store(to, store_at, now);
    to += now;
    store_at += piece;
    store_bar += 8;
    if (store_at == end) store_at = first, store_bar = bars, parity ^= 1;
    /* The buffer of the store before this one. */
    if (!oldest && from != from_end) {
      bulk_last_but_one_read();
      load_next();
    }
  }
  bulk_all_delivered();
  for (uint32_t b = 0; b < buffers; ++b) mbarrier_forget(bars + 8 * b);
}

/* The scope's copy, of which `bulk_can` has been asked. The engine's part is delivered on return of the
 * thread that issued it; what is before the first and after the last 16-byte boundary, the scope's threads
 * store, as `copy` does. */
template <typename Scope, size_t unit>
RUSHMEM_DEVICE void bulk_copy(void *to_, const void *from_, size_t bytes, void *stage, size_t stage_bytes) {
  char *to = static_cast<char *>(to_);
  const char *from = static_cast<const char *>(from_);
  const uint32_t head = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(to)) & 15;
  const size_t body = (bytes - head) / 16 * 16, tail_at = head + body;
  /* As a get would, from global memory to any: serves for both. */
  if constexpr (unit < 16) {
    if constexpr (is_alone<Scope>::value) {
      copy_edges<unit, true>(to, from, head, tail_at, static_cast<uint32_t>(bytes - tail_at));
    } else {
      copy_bytes<Scope, unit, true>(to, from, head);
      copy_bytes<Scope, unit, true>(to + tail_at, from + tail_at, bytes - tail_at);
    }
  }
  if (Scope::rank() == 0) {
    bulk_vectors(to + head, from + head, body, static_cast<uint32_t>(__cvta_generic_to_shared(stage)), stage_bytes);
  }
}

#else

RUSHMEM_DEVICE bool bulk_can(const void *, const void *) { return false; }
template <typename Scope, size_t unit>
RUSHMEM_DEVICE void bulk_copy(void *, const void *, size_t, void *, size_t) {}

#endif

}  // namespace impl
}  // namespace rushmem

#endif
