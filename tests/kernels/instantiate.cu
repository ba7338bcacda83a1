/* Every public function of the device library at every scope and type it takes. Nobody runs this: that it
 * compiles, for each kind of device and without a warning, is the test (scripts/check-device). With BRIEF, of
 * the collectives of teams a third, which BRIEF numbers from 0: they take most of the time. */
#include <rushmem/rushmem.cuh>

/* NVRTC may have no such headers; after ours, which must not need them. */
#if __has_include(<cuda_bf16.h>)
#define WITH_HALVES 1
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace {

struct three_bytes {
  unsigned char at[3];
};
struct mixed {
  double a;
  int b;
};
struct alignas(16) wide {
  float at[12];
};

template <typename Scope, typename T> __device__ void scoped_bytes(T *x, T *y, size_t n, int pe) {
  uint64_t *sig = reinterpret_cast<uint64_t *>(x);
  rushmem::put<Scope>(x, y, n, pe);
  rushmem::put_nbi<Scope>(x, y, n, pe);
  rushmem::get<Scope>(x, y, n, pe);
  rushmem::get_nbi<Scope>(x, y, n, pe);
  rushmem::iput<Scope>(x, y, 2, 3, n, pe);
  rushmem::iget<Scope>(x, y, 2, 3, n, pe);
  rushmem::iput_signal<Scope>(x, y, 2, 3, n, sig, n, rushmem::signal::add, pe);
  rushmem::put_signal<Scope>(x, y, n, sig, 1, rushmem::signal::set, pe);
  rushmem::put_signal_nbi<Scope>(x, y, n, sig, 1, rushmem::signal::add, pe);
}

/* The forms that take shared memory, or packets. */
template <typename Scope, typename T> __device__ void scoped_forms(T *x, T *y, size_t n, int pe) {
  RUSHMEM_DYNAMIC_SHARED(char, memory);
  uint64_t *sig = reinterpret_cast<uint64_t *>(x);
  rushmem::put<Scope>(x, y, n, pe, rushmem::stage(memory, n));
  rushmem::get<Scope>(x, y, n, pe, rushmem::stage(memory, n));
  rushmem::put_signal<Scope>(x, y, n, sig, 1, rushmem::signal::set, pe, rushmem::stage(memory, n));
  rushmem::packet *slots = reinterpret_cast<rushmem::packet *>(x);
  rushmem::put_packed<Scope>(slots, y, n, 1, pe);
  rushmem::wait_packed<Scope>(y, slots, rushmem::packets<T>(n), 1);
}

template <typename T> __device__ void forms(T *x, T *y, size_t n, int pe) {
  scoped_forms<rushmem::thread>(x, y, n, pe);
  scoped_forms<rushmem::warp>(x, y, n, pe);
  scoped_forms<rushmem::block>(x, y, n, pe);
}

template <typename T> __device__ void bytes(T *x, T *y, size_t n, int pe) {
  scoped_bytes<rushmem::thread>(x, y, n, pe);
  scoped_bytes<rushmem::warp>(x, y, n, pe);
  scoped_bytes<rushmem::block>(x, y, n, pe);
  rushmem::put(x, y, n, pe);
  rushmem::p(x, rushmem::g(y, pe), pe);
  if (rushmem::ptr(x, pe) == nullptr) rushmem::quiet();
}

template <typename T> __device__ void numbers(T *x, int pe) {
  *x = rushmem::atomic_fetch(x, pe);
  rushmem::atomic_set(x, 1, pe);
  *x = rushmem::atomic_swap(x, 2, pe);
  *x = rushmem::atomic_fetch_add(x, 3, pe);
  rushmem::atomic_add(x, 4, pe);
}

template <typename T> __device__ void integers(T *x, T *y, size_t n, size_t *indices, int *status, int pe) {
  numbers(x, pe);
  *x = rushmem::atomic_compare_swap(x, 1, 2, pe);
  *x = rushmem::atomic_fetch_inc(x, pe);
  rushmem::atomic_inc(x, pe);
  *x = rushmem::atomic_fetch_and(x, 1, pe);
  *x = rushmem::atomic_fetch_or(x, 1, pe);
  *x = rushmem::atomic_fetch_xor(x, 1, pe);
  rushmem::atomic_and(x, 1, pe);
  rushmem::atomic_or(x, 1, pe);
  rushmem::atomic_xor(x, 1, pe);

  using namespace rushmem;
  wait_until(x, cmp::eq, 1);
  wait_until(const_cast<volatile T *>(x), RUSHMEM_CMP_NE, 1);
  wait_until_all(x, n, status, cmp::gt, 1);
  wait_until_all_vector(x, n, status, cmp::ge, y);
  indices[0] = wait_until_any(x, n, nullptr, cmp::lt, 1);
  indices[1] = wait_until_any_vector(x, n, status, cmp::le, y);
  indices[2] = wait_until_some(x, n, indices, status, cmp::eq, 1);
  indices[3] = wait_until_some_vector(x, n, indices, status, pe, y);
  status[0] = rushmem::test(x, cmp::eq, 1);
  status[1] = test_all(x, n, status, cmp::gt, 1);
  status[2] = test_all_vector(x, n, status, cmp::ge, y);
  indices[0] = test_any(x, n, status, cmp::lt, 1);
  indices[1] = test_any_vector(x, n, status, cmp::le, y);
  indices[2] = test_some(x, n, indices, status, cmp::eq, 1);
  indices[3] = test_some_vector(x, n, indices, status, cmp::eq, y);
}

}  // namespace

#define BYTES(type) \
  extern "C" __global__ void bytes_##type(type *x, type *y, size_t n, int pe) { bytes(x, y, n, pe); }
#define INTEGERS(type, name)                                                                           \
  extern "C" __global__ void integers_##name(type *x, type *y, size_t n, size_t *indices, int *status, \
                                             int pe) {                                                 \
    integers(x, y, n, indices, status, pe);                                                            \
  }

#define FORMS(type) \
  extern "C" __global__ void forms_##type(type *x, type *y, size_t n, int pe) { forms(x, y, n, pe); }

FORMS(three_bytes)
FORMS(double)
FORMS(wide)
BYTES(char)
BYTES(uint64_t)
BYTES(mixed)
INTEGERS(unsigned, unsigned)
INTEGERS(long long, long_long)
BYTES(short)
BYTES(int)
BYTES(float)
BYTES(double)
BYTES(three_bytes)
BYTES(wide)
INTEGERS(int, int)
INTEGERS(long, long)
INTEGERS(unsigned long, unsigned_long)
INTEGERS(unsigned long long, unsigned_long_long)
INTEGERS(size_t, size)

extern "C" __global__ void floats(float *x, double *y, int pe) {
  numbers(x, pe);
  numbers(y, pe);
}

#if defined(WITH_HALVES)
extern "C" __global__ void halves(__half *x, __nv_bfloat16 *y, size_t n, int pe) {
  *x = rushmem::atomic_fetch_add(x, __float2half(1.5f), pe);
  *y = rushmem::atomic_fetch_add(y, __float2bfloat16(1.5f), pe);
  rushmem::atomic_add(x, *x, pe);
  rushmem::atomic_add(y, *y, pe);
  bytes(x, x + n, n, pe);
  bytes(y, y + n, n, pe);
}
#endif

extern "C" __global__ void card_words(rushmem::card_word *x, uint64_t *y, int pe) {
  y[0] = rushmem::atomic_fetch(x, pe);
  rushmem::atomic_set(x, 1, pe);
  y[1] = rushmem::atomic_swap(x, 2, pe);
  y[2] = rushmem::atomic_fetch_add(x, 3, pe);
  rushmem::atomic_add(x, 4, pe);
  y[3] = rushmem::atomic_compare_swap(x, 1, 2, pe);
  y[4] = rushmem::atomic_fetch_inc(x, pe);
  rushmem::atomic_inc(x, pe);
  y[5] = rushmem::atomic_fetch_and(x, 1, pe);
  y[6] = rushmem::atomic_fetch_or(x, 1, pe);
  y[7] = rushmem::atomic_fetch_xor(x, 1, pe);
  rushmem::atomic_and(x, 1, pe);
  rushmem::atomic_or(x, 1, pe);
  rushmem::atomic_xor(x, 1, pe);
  rushmem::p(x, rushmem::card_word{0}, pe);
  rushmem::put(x, x, 1, pe);
}

extern "C" __global__ void packed_row(rushmem::packed_row *row, rushmem::row_words words, int pe) {
  if (!rushmem::has_packed_rows(rushmem::world())) return;
  rushmem::store_packed_row(rushmem::ptr(row, pe), words, 1);
  const rushmem::packed_row *const rows[1] = {row};
  bool has[1] = {false};
  rushmem::test_packed_rows<1>(rows, 1, has, &words);
  if (!has[0]) words = rushmem::wait_packed_row(row, 1);
  rushmem::store_packed_row(rushmem::ptr(row, pe), words, 2);
}

extern "C" __global__ void packed(rushmem::packet *slot, uint64_t value, int pe) {
  rushmem::put_packed(slot, value, 1, pe);
  if (!rushmem::test_packed(slot, 2, &value)) value = rushmem::wait_packed(slot, 2);
  rushmem::put_packed(slot, value, 3, pe);
}

extern "C" __global__ void collectives(uint64_t *sig) {
  rushmem::fence();
  rushmem::quiet();
  rushmem::sync_all();
  rushmem::sync_all<rushmem::warp>();
  rushmem::sync_all<rushmem::block>();
  rushmem::barrier_all();
  rushmem::barrier_all<rushmem::warp>();
  rushmem::barrier_all<rushmem::block>();
  rushmem::signal_op(sig, 1, rushmem::signal::add, rushmem::my_pe());
  if (rushmem::signal_fetch(sig) != rushmem::signal_wait_until(sig, rushmem::cmp::ne, 0)) {
    rushmem::signal_op(sig, static_cast<uint64_t>(rushmem::n_pes()), rushmem::signal::set, 0);
  }
}

template <typename Scope, typename T> __device__ void team_moves(const rushmem::team &t, T *x, T *y, size_t n, int root) {
  rushmem::broadcast<Scope>(t, x, y, n, root);
  rushmem::fcollect<Scope>(t, x, y, n);
  rushmem::alltoall<Scope>(t, x, y, n);
  rushmem::collect<Scope>(t, x, y, n);
  rushmem::alltoalls<Scope>(t, x, y, 2, 3, n);
  size_t at[2] = {0, n}, received[2];
  rushmem::alltoallv<Scope>(t, x, at, received, y, at, at);
}
template <typename Scope, typename T, typename Op> __device__ void team_reduces(const rushmem::team &t, T *x, T *y, size_t n, Op op) {
  rushmem::reduce<Scope>(t, x, y, n, op);
  rushmem::reducescatter<Scope>(t, x, y, n, op);
  rushmem::inscan<Scope>(t, x, y, n, op);
  rushmem::exscan<Scope>(t, x, y, n, op);
}
template <typename T> __device__ void team_numbers(const rushmem::team &t, T *x, T *y, size_t n) {
  team_reduces<rushmem::thread>(t, x, y, n, rushmem::sum{});
  team_reduces<rushmem::warp>(t, x, y, n, rushmem::prod{});
  team_reduces<rushmem::block>(t, x, y, n, rushmem::min{});
  team_reduces<rushmem::block>(t, x, y, n, rushmem::max{});
}
template <typename T> __device__ void team_bits(const rushmem::team &t, T *x, T *y, size_t n) {
  team_reduces<rushmem::thread>(t, x, y, n, rushmem::and_{});
  team_reduces<rushmem::warp>(t, x, y, n, rushmem::or_{});
  team_reduces<rushmem::block>(t, x, y, n, rushmem::xor_{});
}

#if !defined(BRIEF) || BRIEF == 0
extern "C" __global__ void teams(rushmem::team t, mixed *x, wide *y, size_t n) {
  team_moves<rushmem::thread>(t, x, x + n, n, 0);
  team_moves<rushmem::warp>(t, y, y + n, n, 1);
  team_moves<rushmem::block>(t.on(1), x, x + n, n, t.world_pe(t.my_pe()));
  team_moves<rushmem::grid>(t, x, x + n, n, 0);
  rushmem::sync<rushmem::grid>(t);
  rushmem::barrier<rushmem::grid>(t);
  rushmem::sync(t);
  rushmem::sync<rushmem::warp>(t);
  rushmem::sync<rushmem::block>(rushmem::world());
  rushmem::barrier(t);
  rushmem::barrier<rushmem::warp>(t);
  rushmem::barrier<rushmem::block>(t.on(t.slot_sets() - 1));
}
extern "C" __global__ void team_grids(rushmem::team t, float *x, wide *y, size_t n) {
  team_reduces<rushmem::grid>(t, x, x + n, n, rushmem::sum{});
  team_reduces<rushmem::grid_parts>(t, x, x + n, n, rushmem::max{});
  team_moves<rushmem::grid_parts>(t, y, y + n, n, 0);
}
#endif
#if !defined(BRIEF) || BRIEF == 1
extern "C" __global__ void team_complex(rushmem::team t, rushmem::complex<float> *x, rushmem::complex<double> *y, size_t n) {
  team_reduces<rushmem::block>(t, x, x + n, n, rushmem::sum{});
  team_reduces<rushmem::warp>(t, x, x + n, n, rushmem::prod{});
  team_reduces<rushmem::grid>(t, y, y + n, n, rushmem::sum{});
}
#endif
#define TEAM_NUMBERS(type) \
  extern "C" __global__ void team_##type(rushmem::team t, type *x, type *y, size_t n) { team_numbers(t, x, y, n); }
#define TEAM_BITS(type) \
  extern "C" __global__ void team_bits_##type(rushmem::team t, type *x, type *y, size_t n) { team_bits(t, x, y, n); }
#if !defined(BRIEF) || BRIEF == 0
TEAM_NUMBERS(float)
TEAM_BITS(char)
#endif
#if !defined(BRIEF) || BRIEF == 1
TEAM_NUMBERS(short)
TEAM_NUMBERS(uint64_t)
TEAM_BITS(int)
#endif
#if !defined(BRIEF) || BRIEF == 2
TEAM_NUMBERS(double)
TEAM_BITS(size_t)
#if defined(WITH_HALVES)
extern "C" __global__ void team_halves(rushmem::team t, __half *x, __nv_bfloat16 *y, size_t n) {
  team_numbers(t, x, x + n, n);
  team_numbers(t, y, y + n, n);
}
#endif
#endif

/* A put's source and a get's destination may be shared memory. */
extern "C" __global__ void shared_sides(float *x, size_t n, int pe) {
  RUSHMEM_DYNAMIC_SHARED(float, tile);
  rushmem::get<rushmem::block>(tile, x, n, pe);
  rushmem::put<rushmem::block>(x, tile, n, pe);
}
