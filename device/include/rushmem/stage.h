/* put, get and put_signal through shared memory of the caller's: bulk copies for a thread or a warp by
 * itself.
 *
 *     RUSHMEM_DYNAMIC_SHARED(char, memory);  // a launch with 64 KiB of dynamic shared memory
 *     rushmem::put<rushmem::warp>(dst, src, n, pe, rushmem::stage(memory, 65536));
 *
 * One thread of the scope hands the transfer to the SM's copy engine (cp.async.bulk, sm_90 on), which moves
 * it through the stage piece by piece at the full rate of an SM, 46 GB/s to another GPU and 50 from it, where
 * plain copies by a thread reach 1 GB/s and by a warp 15. 64 KiB of stage are enough for the full rate, 128
 * KiB for every length.
 *
 * The stage: memory of this block that nobody else uses during the call, at least `stage_min_bytes`; with
 * more than one caller at a time (warps, say), one each. Accesses to it before the call are ordered before it
 * by the program like those to the source. On return it is free, and keeps nothing: a stage is as good for
 * the next call as new.
 *
 * Otherwise as the forms without (rma.h, signal.h); a put waits for its delivery itself, because
 * quiet() does not know of the engine's stores. That costs a link's latency, which hardly shows in long
 * transfers. The stage helps where source and destination are in global memory and aligned to each
 * other (equal modulo 16), the PE is mapped, and the transfer is long enough; everywhere else (and
 * before sm_90, and on the CPU device) the call is what it would be without.
 */
#ifndef RUSHMEM_STAGE_H
#define RUSHMEM_STAGE_H

#include <rushmem/impl/bulk.h>
#include <rushmem/signal.h>

namespace rushmem {

/* A stage of fewer bytes is not used. */
constexpr size_t stage_min_bytes = 1024;

/* Shared memory of the caller's: any address, one aligned to 128 bytes at best. */
struct stage {
  void *memory;
  size_t bytes;
  RUSHMEM_DEVICE stage(void *memory_, size_t bytes_) : memory(memory_), bytes(bytes_) {}
};

namespace impl {

/* From how many bytes on the copy engine is quicker than the scope's own threads. */
template <typename Scope> struct staged_from;
template <> struct staged_from<thread> {
  static constexpr size_t bytes = 1024;
};
template <> struct staged_from<warp> {
  static constexpr size_t bytes = 4096;
};
template <> struct staged_from<block> {
  static constexpr size_t bytes = 16384;
};

/* Makes the copy and returns true, or does nothing. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool copy_staged(T *to, const T *from, size_t n, const stage &through) {
  const size_t bytes = n * sizeof(T);
  if (bytes < staged_from<Scope>::bytes || through.bytes < stage_min_bytes || !bulk_can(to, from)) return false;
  bulk_copy<Scope, unit_of<T>::value>(to, from, bytes, through.memory, through.bytes);
  return true;
}

}  // namespace impl

/* As put(dst, src, n, pe). Order: none; delivered on return where the stage helps. Cost: copy, and a round
 * trip where the stage helps. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put(T *dst, const T *src, size_t n, int pe, const stage &through) {
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route way = impl::route_to(pe);
  if (RUSHMEM_LIKELY(way.near) &&
      impl::copy_staged<Scope>(way.at(dst), src, n, through)) {
    Scope::sync();
  } else {
    put<Scope>(dst, src, n, pe);
  }
}

/* As get(dst, src, n, pe).
 * Order: the data is here on return. Cost: round trip and copy. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void get(T *dst, const T *src, size_t n, int pe, const stage &through) {
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route way = impl::route_to(pe);
  if (RUSHMEM_LIKELY(way.near) &&
      impl::copy_staged<Scope>(dst, way.at(src), n, through)) {
    Scope::sync();
  } else {
    get<Scope>(dst, src, n, pe);
  }
}

/* As put_signal(dst, src, n, sig, value, sig_op, pe).
 * Order: the data before its signal. Cost: copy, and a round trip where the stage helps. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put_signal(T *dst, const T *src, size_t n, uint64_t *sig, uint64_t value, int sig_op, int pe,
                               const stage &through) {
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route way = impl::route_to(pe);
  if (RUSHMEM_LIKELY(way.near) &&
      impl::copy_staged<Scope>(way.at(dst), src, n, through)) {
    Scope::sync();
    if (Scope::rank() == 0) impl::signal_release(way.at(sig), value, sig_op);
  } else {
    put_signal<Scope>(dst, src, n, sig, value, sig_op, pe);
  }
}

}  // namespace rushmem

#endif
