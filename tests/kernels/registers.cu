/* Kernels that do one operation and nothing else, at each scope. Nobody runs these: scripts/check-device
 * looks how many registers they take. With more than 64 a launch of blocks of 1024 threads fails, and a
 * program should come that far without knowing of __launch_bounds__. Of `one_p`, `one_g` and `one_signal`
 * and of loops of p and g it counts the instructions. */
#include <rushmem/rushmem.cuh>

#define KERNEL extern "C" __global__ void
#define AT(scope)                                                                                             \
  KERNEL put_##scope(uint64_t *x, uint64_t *y, size_t n, int pe) { rushmem::put<rushmem::scope>(x, y, n, pe); } \
  KERNEL put_bytes_##scope(char *x, char *y, size_t n, int pe) { rushmem::put<rushmem::scope>(x, y, n, pe); }   \
  KERNEL put_nbi_##scope(float *x, float *y, size_t n, int pe) { rushmem::put_nbi<rushmem::scope>(x, y, n, pe); } \
  KERNEL get_##scope(uint64_t *x, uint64_t *y, size_t n, int pe) { rushmem::get<rushmem::scope>(x, y, n, pe); } \
  KERNEL get_bytes_##scope(char *x, char *y, size_t n, int pe) { rushmem::get<rushmem::scope>(x, y, n, pe); }   \
  KERNEL put_signal_##scope(uint64_t *x, uint64_t *y, size_t n, uint64_t *sig, uint64_t value, int pe) {      \
    rushmem::put_signal<rushmem::scope>(x, y, n, sig, value, rushmem::signal::set, pe);                       \
  }                                                                                                           \
  KERNEL put_signal_bytes_##scope(char *x, char *y, size_t n, uint64_t *sig, int pe) {                        \
    rushmem::put_signal<rushmem::scope>(x, y, n, sig, 1, rushmem::signal::add, pe);                           \
  }                                                                                                           \
  KERNEL iput_##scope(int *x, int *y, size_t n, int pe) { rushmem::iput<rushmem::scope>(x, y, 2, 3, n, pe); }   \
  KERNEL iget_##scope(int *x, int *y, size_t n, int pe) { rushmem::iget<rushmem::scope>(x, y, 2, 3, n, pe); }   \
  KERNEL sync_##scope() { rushmem::sync_all<rushmem::scope>(); }                                              \
  KERNEL barrier_##scope() { rushmem::barrier_all<rushmem::scope>(); }                                        \
  KERNEL team_sync_##scope() { rushmem::sync<rushmem::scope>(rushmem::world()); }

AT(thread)
AT(warp)
AT(block)

KERNEL one_p(uint64_t *x, uint64_t value, int pe) { rushmem::p(x, value, pe); }
/* What a put of one value to a PE with a queue becomes: counted, too. */
KERNEL posted_p(uint64_t *x, uint64_t value, int pe) { rushmem::impl::queue_p(x, value, pe); }
KERNEL one_g(uint64_t *x, uint64_t *y, int pe) { *y = rushmem::g(x, pe); }
/* Loops of them: scripts/check-device counts the instructions of a round, which is to have no branch but the
 * one that closes it. */
KERNEL loop_p(uint64_t *x, uint64_t n, int pe) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::p(x + i, i, pe);
}
KERNEL loop_add(uint64_t *x, uint64_t n, int pe) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::atomic_add(x + i, i, pe);
}
KERNEL loop_or(uint32_t *x, uint64_t n, int pe) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::atomic_or(x + i, uint32_t(i), pe);
}
KERNEL loop_set(uint64_t *x, uint64_t n, int pe) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::atomic_set(x + i, i, pe);
}
/* The same again and again, of words that the compiler knows nothing of. */
KERNEL rounds_add(uint64_t *x, uint64_t n, uint64_t rounds, int pe) {
  for (; rounds != 0; --rounds) {
    asm volatile("" : "+l"(x));
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::atomic_add(x + i, i, pe);
  }
}
KERNEL rounds_set(uint64_t *x, uint64_t n, uint64_t rounds, int pe) {
  for (; rounds != 0; --rounds) {
    asm volatile("" : "+l"(x));
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) rushmem::atomic_set(x + i, i, pe);
  }
}
KERNEL loop_g(uint64_t *x, const uint64_t *y, uint64_t n, int pe) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = rushmem::g(y + i, pe);
}
KERNEL sum_g(uint64_t *x, const uint64_t *y, uint64_t n, int pe) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += rushmem::g(y + i, pe);
  *x = sum;
}
KERNEL loop_fetch_add(uint64_t *x, uint64_t n, int pe, uint64_t *out) {
  for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = rushmem::atomic_fetch_add(x + i, i, pe);
}
KERNEL sum_fetch(uint64_t *x, const uint64_t *y, uint64_t n, int pe) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += rushmem::atomic_fetch(y + i, pe);
  *x = sum;
}
/* What is fetched is not used; the update is made. */
KERNEL lost_fetch_add(uint64_t *x, int pe) { rushmem::atomic_fetch_add(x, 1, pe); }
KERNEL one_signal(uint64_t *x, int pe) { rushmem::signal_op(x, 1, rushmem::signal::set, pe); }
KERNEL one_atomic(uint64_t *x, uint64_t *y, int pe) { *y = rushmem::atomic_fetch_add(x, *y, pe); }
KERNEL one_card_atomic(rushmem::card_word *x, uint64_t *y, int pe) { *y = rushmem::atomic_fetch_add(x, *y, pe); }
KERNEL one_card_swap(rushmem::card_word *x, uint64_t *y, int pe) { *y = rushmem::atomic_swap(x, *y, pe); }
KERNEL one_wait(uint64_t *x) { rushmem::wait_until(x, rushmem::cmp::ge, 1); }
KERNEL one_signal_wait(uint64_t *x, uint64_t *y) { *y = rushmem::signal_wait_until(x, rushmem::cmp::ge, 1); }
KERNEL one_fence_and_quiet() {
  rushmem::fence();
  rushmem::quiet();
}
