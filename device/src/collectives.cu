/* The runtime's collectives in a stream's turn: a template for each family, over the collectives that kernels
 * call, so that a stream's call and a kernel's meet. The runtime makes modules of instances of these when
 * they are first needed (host/runtime/src/kernel/collectives.rs). Nobody else launches them; arguments are
 * the runtime's and not checked again. All of them are values, so a launch may be captured and replayed.
 *
 * `Scope` is rushmem::block for a launch of one block, rushmem::grid_parts for one of several. */
#define RUSHMEM_CALLS_AWAIT_TURN 1
#include <rushmem/alltoall.h>
#include <rushmem/alltoallv.h>
#include <rushmem/barrier.h>
#include <rushmem/broadcast.h>
#include <rushmem/collect.h>
#include <rushmem/fcollect.h>
#include <rushmem/reduce.h>

/* Elements of any type, by their size and by what their addresses are aligned to. */
template <size_t size, size_t align> struct alignas(align) rushmem_element {
  unsigned char at[size];
};

/* NVRTC need not have CUDA's own headers, and reductions look at the bits alone. */
struct alignas(2) __half {
  unsigned short bits;
};
struct alignas(2) __nv_bfloat16 {
  unsigned short bits;
};

/* As many as the table may ask for (host/runtime/src/config/launches.rs). */
#define RUSHMEM_STREAM_KERNEL __global__ void __launch_bounds__(512, 1)

/* A kernel's place on its stream. It may come while the kernel before it ends (`Shape::early`), and what that
 * one wrote may still be on its way: neither the caller's memory nor the slot set may be read or written
 * before its turn. So each call waits for that in front of its first access (impl::await_turn), and works out
 * meanwhile what its arguments say. A call that accesses nothing waits here, at the end: a kernel that ended
 * before its turn would let the one behind it begin too early.
 *
 * The next kernel may come once this one waits for nobody that may need a place on a GPU
 * (impl::heard_of_all). Earlier would be faster still, but kernels that wait for their turn could then take
 * the place of another stream's, for which a member waits that this call waits for.
 *
 * Each launch finds the caches of constants empty, so what every call begins with is asked for meanwhile. A
 * prefetch changes nothing that a program sees; it keeps the compiler from leaving that out. One thread of a
 * block is enough: prefetches of one line by all threads of a launch take their turns. */
struct turn {
  explicit RUSHMEM_DEVICE turn(const rushmem::team &t) {
    if (threadIdx.x != 0 || t.raw.heap_base != rushmem::state().heap_base) return;
    rushmem::impl::prefetch(reinterpret_cast<const char *>(t.raw.slots));
    rushmem::impl::prefetch(reinterpret_cast<const char *>(t.raw.slots) + 128);
  }
  RUSHMEM_DEVICE ~turn() { rushmem::impl::await_kernel_before(); }
};

template <typename Scope> RUSHMEM_STREAM_KERNEL rushmem_stream_sync(rushmem::team t) {
  const turn of(t);
  rushmem::sync<Scope>(t);
}

template <typename Scope> RUSHMEM_STREAM_KERNEL rushmem_stream_barrier(rushmem::team t) {
  const turn of(t);
  rushmem::barrier<Scope>(t);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_broadcast(rushmem::team t, T *dst, const T *src, uint64_t n, int root) {
  const turn of(t);
  rushmem::broadcast<Scope>(t, dst, src, n, root);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_fcollect(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::fcollect<Scope>(t, dst, src, n);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_collect(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::collect<Scope>(t, dst, src, n);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_alltoall(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::alltoall<Scope>(t, dst, src, n);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_alltoalls(rushmem::team t, T *dst, const T *src, uint64_t dst_stride,
                                               uint64_t src_stride, uint64_t n) {
  const turn of(t);
  rushmem::alltoalls<Scope>(t, dst, src, dst_stride, src_stride, n);
}

template <typename Scope, typename T>
RUSHMEM_STREAM_KERNEL rushmem_stream_alltoallv(rushmem::team t, T *dst, const size_t *dst_at, size_t *received,
                                               const T *src, const size_t *src_at, const size_t *n) {
  const turn of(t);
  rushmem::alltoallv<Scope>(t, dst, dst_at, received, src, src_at, n);
}

template <typename Scope, typename T, typename Op>
RUSHMEM_STREAM_KERNEL rushmem_stream_reduce(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::reduce<Scope>(t, dst, src, n, Op{});
}

template <typename Scope, typename T, typename Op>
RUSHMEM_STREAM_KERNEL rushmem_stream_reducescatter(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::reducescatter<Scope>(t, dst, src, n, Op{});
}

template <typename Scope, typename T, typename Op>
RUSHMEM_STREAM_KERNEL rushmem_stream_inscan(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::inscan<Scope>(t, dst, src, n, Op{});
}

template <typename Scope, typename T, typename Op>
RUSHMEM_STREAM_KERNEL rushmem_stream_exscan(rushmem::team t, T *dst, const T *src, uint64_t n) {
  const turn of(t);
  rushmem::exscan<Scope>(t, dst, src, n, Op{});
}
