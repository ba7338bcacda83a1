/* Any collective of 64-bit words at any scope, in a slot set of a team: what a host program of tests asks for
 * (tests/api_collective/mixed). Launched with as many threads as the scope has. */
#include <rushmem/rushmem.cuh>

/* As tests/api_collective/mixed/call.rs numbers them, with the strides that it has. */
enum { BROADCAST, FCOLLECT, ALLTOALL, ALLTOALLS, REDUCE, REDUCESCATTER, INSCAN, EXSCAN, BARRIER };

template <typename Scope>
static __device__ void any(rushmem::team t, int which, uint64_t *dst, const uint64_t *src, uint64_t n, int root) {
  switch (which) {
    case BROADCAST: return rushmem::broadcast<Scope>(t, dst, src, n, root);
    case FCOLLECT: return rushmem::fcollect<Scope>(t, dst, src, n);
    case ALLTOALL: return rushmem::alltoall<Scope>(t, dst, src, n);
    case ALLTOALLS: return rushmem::alltoalls<Scope>(t, dst, src, 2, 3, n);
    case REDUCE: return rushmem::reduce<Scope>(t, dst, src, n, rushmem::sum{});
    case REDUCESCATTER: return rushmem::reducescatter<Scope>(t, dst, src, n, rushmem::sum{});
    case INSCAN: return rushmem::inscan<Scope>(t, dst, src, n, rushmem::sum{});
    case EXSCAN: return rushmem::exscan<Scope>(t, dst, src, n, rushmem::sum{});
    default: return rushmem::barrier<Scope>(t);
  }
}

extern "C" __global__ void of_thread(rushmem::team t, unsigned set, int which, uint64_t *dst, const uint64_t *src,
                                     uint64_t n, int root) {
  any<rushmem::thread>(t.on(set), which, dst, src, n, root);
}
extern "C" __global__ void of_warp(rushmem::team t, unsigned set, int which, uint64_t *dst, const uint64_t *src,
                                   uint64_t n, int root) {
  any<rushmem::warp>(t.on(set), which, dst, src, n, root);
}
extern "C" __global__ void of_block(rushmem::team t, unsigned set, int which, uint64_t *dst, const uint64_t *src,
                                    uint64_t n, int root) {
  any<rushmem::block>(t.on(set), which, dst, src, n, root);
}
extern "C" __global__ void of_grid(rushmem::team t, unsigned set, int which, uint64_t *dst, const uint64_t *src,
                                   uint64_t n, int root) {
  any<rushmem::grid>(t.on(set), which, dst, src, n, root);
}
