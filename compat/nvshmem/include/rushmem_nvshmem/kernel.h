/* What the functions of kernels are made of: teams by number, comparisons and signals by NVSHMEM's values,
 * waits on 16-bit words, a warpgroup as a scope. */
#ifndef RUSHMEM_NVSHMEM_KERNEL_H
#define RUSHMEM_NVSHMEM_KERNEL_H

#include <rushmem/rushmem.cuh>
#include <rushmem_nvshmem/types.h>

/* A template whose parameter nobody gives: it is compiled where it is called. There are thousands of them. */
#define RUSHMEM_NVSHMEM_DEVICE template <typename RushmemWhenCalled = void> RUSHMEM_DEVICE
/* What the host has, too. nvcc wants one function for both sides; for a kernel's side it is this one. */
#if defined(RUSHMEM_CPU)
#define RUSHMEM_NVSHMEM_SHARED RUSHMEM_NVSHMEM_DEVICE
#else
#define RUSHMEM_NVSHMEM_SHARED template <typename RushmemWhenCalled = void> __host__ __device__ __forceinline__
#endif

/* A function for both sides calls functions of kernels: the host's side of it is never called. */
#if defined(__NVCC__) && defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
#define RUSHMEM_NVSHMEM_BEGIN _Pragma("nv_diagnostic push") _Pragma("nv_diag_suppress 20011") \
  _Pragma("nv_diag_suppress 20014")
#define RUSHMEM_NVSHMEM_END _Pragma("nv_diagnostic pop")
#else
#define RUSHMEM_NVSHMEM_BEGIN
#define RUSHMEM_NVSHMEM_END
#endif

/* Loaders of kernels, JAX's among them, look for this name, to know for which modules to call
 * nvshmemx_cumodule_init. */
#if defined(__CUDACC__) && !defined(RUSHMEM_COLD_IN_LIBRARY)
struct nvshmemi_version {
  int major, minor, patch;
};
__constant__ nvshmemi_version nvshmemi_device_lib_version_d = {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                                              NVSHMEM_VENDOR_PATCH_VERSION};
#endif

namespace rushmem {
namespace nvshmem {

/* Elements of put8 ... put128. The widest need no more than 8 bytes' alignment. */
using bits8 = unsigned char;
using bits16 = unsigned short;
using bits32 = uint32_t;
using bits64 = uint64_t;
struct bits128 {
  uint64_t low, high;
};

RUSHMEM_DEVICE int signal(int op) { return op == NVSHMEM_SIGNAL_ADD ? RUSHMEM_SIGNAL_ADD : RUSHMEM_SIGNAL_SET; }

RUSHMEM_DEVICE int compare(int cmp) {
  switch (cmp) {
    case NVSHMEM_CMP_LE: return RUSHMEM_CMP_LE;
    case NVSHMEM_CMP_GE: return RUSHMEM_CMP_GE;
  }
  return cmp;
}
static_assert(int(NVSHMEM_CMP_EQ) == int(RUSHMEM_CMP_EQ) && int(NVSHMEM_CMP_NE) == int(RUSHMEM_CMP_NE) &&
                  int(NVSHMEM_CMP_GT) == int(RUSHMEM_CMP_GT) && int(NVSHMEM_CMP_LT) == int(RUSHMEM_CMP_LT),
              "compare()");

RUSHMEM_DEVICE void *address(void *local, int pe) { return rushmem::ptr(static_cast<char *>(local), pe); }

RUSHMEM_DEVICE void name(char *to) {
  const char text[] = NVSHMEM_VENDOR_STRING;
  for (size_t i = 0; i < sizeof(text); ++i) to[i] = text[i];
}

/* ---- teams ---- */

RUSHMEM_DEVICE team team_of(nvshmem_team_t t) {
  return t == NVSHMEM_TEAM_WORLD ? world() : numbered_team(t);
}

/* Whether this PE is a member of a team of that number. */
RUSHMEM_DEVICE bool is_team(const team &t) { return t.raw.slots != 0; }

RUSHMEM_DEVICE int team_my_pe(nvshmem_team_t t) {
  const team of = team_of(t);
  return is_team(of) ? of.my_pe() : -1;
}

RUSHMEM_DEVICE int team_n_pes(nvshmem_team_t t) {
  const team of = team_of(t);
  return is_team(of) ? of.n_pes() : -1;
}

RUSHMEM_DEVICE int team_translate(nvshmem_team_t from, int pe, nvshmem_team_t to) {
  const team source = team_of(from), dest = team_of(to);
  if (!is_team(source) || !is_team(dest) || pe < 0 || pe >= source.n_pes()) return -1;
  const int there = source.world_pe(pe);
  if (to == NVSHMEM_TEAM_WORLD) return there;
  for (int i = 0; i < dest.n_pes(); ++i) {
    if (dest.world_pe(i) == there) return i;
  }
  return -1;
}

/* ---- scopes ---- */

/* Four warps, the first of them at a multiple of four. */
struct warpgroup {
  RUSHMEM_DEVICE static uint32_t rank() { return rushmem::impl::thread_in_block() % 128; }
  RUSHMEM_DEVICE static uint32_t size() {
    const uint32_t left = rushmem::impl::threads_in_block() - rushmem::impl::thread_in_block() / 128 * 128;
    return left < 128 ? left : 128;
  }
  RUSHMEM_DEVICE static void sync() {
#if defined(RUSHMEM_CPU)
    if (rushmem::impl::threads_in_block() > 128) rushmem::impl::fail(RUSHMEM_DEVICE_FAIL_TEAM);
    __syncthreads();
#else
    /* Barriers 8 to 15 of the block's sixteen. bar counts whole warps. */
    asm volatile("barrier.sync %0, %1;" ::"r"(8 + rushmem::impl::thread_in_block() / 128), "r"((size() + 31) / 32 * 32)
                 : "memory");
#endif
  }
};

}  // namespace nvshmem

#if !defined(RUSHMEM_CPU)
/* A copy by a warpgroup keeps as much in flight as one by a warp. */
namespace impl {
template <bool fresh, bool signals>
struct vectors_held<nvshmem::warpgroup, fresh, signals> : vectors_held<warp, fresh, signals> {};
}  // namespace impl
#endif

namespace nvshmem {

/* Each thread's own operations, and then all of the scope's: on return they are complete. */
template <typename Scope> RUSHMEM_DEVICE void quiet_of() {
  quiet();
  Scope::sync();
}

/* ---- waits ---- */

template <typename T> using value = rushmem::impl::one_value<T>;
template <typename T> using vector = rushmem::impl::value_each<T>;

template <typename T> constexpr bool is_short = sizeof(T) < 4;

template <typename T> RUSHMEM_DEVICE void wait_until(T *ivar, int cmp, T wanted) {
  if constexpr (is_short<T>) {
    rushmem::impl::wait_for(ivar, compare(cmp), wanted);
    rushmem::impl::fence_acquire();
  } else {
    rushmem::wait_until(ivar, compare(cmp), wanted);
  }
}

/* The first satisfied word of 16 bits, which have no acquiring loads. */
template <typename T, typename Values>
RUSHMEM_DEVICE size_t find_short(const volatile T *ivars, size_t n, const int *status, int how, Values values) {
  for (size_t i = 0; i < n; ++i) {
    if (!rushmem::impl::left_out(status, i) &&
        rushmem::impl::compare(rushmem::impl::load_relaxed(ivars + i), how, values[i])) {
      rushmem::impl::fence_acquire();
      return i;
    }
  }
  return none;
}

template <typename T> RUSHMEM_DEVICE int test(T *ivar, int cmp, T wanted) {
  rushmem::impl::breathe();
  if constexpr (is_short<T>) return find_short(ivar, 1, nullptr, compare(cmp), value<T>{wanted}) == 0;
  else return rushmem::test(ivar, compare(cmp), wanted);
}

template <typename T, typename Values>
RUSHMEM_DEVICE void wait_all(T *ivars, size_t n, const int *status, int cmp, Values values) {
  rushmem::impl::wait_all(ivars, n, status, compare(cmp), values);
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t wait_any(T *ivars, size_t n, const int *status, int cmp, Values values) {
  const int how = compare(cmp);
  if constexpr (is_short<T>) {
    size_t first = 0;
    while (first < n && rushmem::impl::left_out(status, first)) ++first;
    if (first == n) return none;
    rushmem::impl::stall_watch watch;
    for (;;) {
      const size_t found = find_short(ivars, n, status, how, values);
      if (found != none) return found;
      watch.unsatisfied(ivars + first, how, values[first], rushmem::impl::load_relaxed(ivars + first));
    }
  } else {
    return rushmem::impl::wait_any(ivars, n, status, how, values);
  }
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t wait_some(T *ivars, size_t n, size_t *indices, const int *status, int cmp, Values values) {
  return rushmem::impl::wait_some(ivars, n, indices, status, compare(cmp), values);
}

template <typename T, typename Values>
RUSHMEM_DEVICE int test_all(T *ivars, size_t n, const int *status, int cmp, Values values) {
  return rushmem::impl::satisfied_all(ivars, n, status, compare(cmp), values);
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t test_any(T *ivars, size_t n, const int *status, int cmp, Values values) {
  if constexpr (is_short<T>) {
    rushmem::impl::breathe();
    return find_short(ivars, n, status, compare(cmp), values);
  } else {
    return rushmem::impl::satisfied_any(ivars, n, status, compare(cmp), values);
  }
}

template <typename T, typename Values>
RUSHMEM_DEVICE size_t test_some(T *ivars, size_t n, size_t *indices, const int *status, int cmp, Values values) {
  rushmem::impl::breathe();
  return rushmem::impl::collect(ivars, n, indices, status, compare(cmp), values);
}

/* ---- halves, which are half of a word that atomics know ---- */

template <typename H> RUSHMEM_DEVICE uint32_t *word_around(H *target) {
  return reinterpret_cast<uint32_t *>(reinterpret_cast<uintptr_t>(target) & ~static_cast<uintptr_t>(3));
}

template <typename H> RUSHMEM_DEVICE H half_of(uint32_t word, const H *target) {
  static_assert(sizeof(H) == 2, "a half");
  const unsigned short bits =
      static_cast<unsigned short>(word >> (reinterpret_cast<uintptr_t>(target) % 4 * 8));
  return rushmem::impl::from_bits<H>(bits);
}

template <typename H> RUSHMEM_DEVICE H half_fetch(const H *target, int pe) {
  return half_of(atomic_fetch(word_around(const_cast<H *>(target)), pe), target);
}

template <typename H> RUSHMEM_DEVICE H half_swap(H *target, H value, int pe) {
  const unsigned shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(target) % 4 * 8);
  const unsigned short bits = rushmem::impl::to_bits(value);
  uint32_t *word = word_around(target), seen = atomic_fetch(word, pe);
  for (;;) {
    const uint32_t wanted = (seen & ~(0xffffu << shift)) | static_cast<uint32_t>(bits) << shift;
    const uint32_t found = atomic_compare_swap(word, seen, wanted, pe);
    if (found == seen) return half_of(seen, target);
    seen = found;
  }
}

/* ---- the rest ---- */

/* Of pairs (value, place) the one with the largest value, element by element; of equal ones that of the
 * lowest member. `source` is symmetric. */
template <typename Scope, typename P>
RUSHMEM_DEVICE int maxloc(nvshmem_team_t number, P *dest, const P *source, size_t n) {
  const team t = team_of(number);
  for (size_t first = 0; first < n; first += Scope::size()) {
    const size_t i = first + Scope::rank();
    P best{};
    sync<Scope>(t);
    if (i < n) {
      best = g(source + i, t.world_pe(0));
      for (int member = 1; member < t.n_pes(); ++member) {
        const P other = g(source + i, t.world_pe(member));
        if (other.x > best.x) best = other;
      }
    }
    sync<Scope>(t);
    if (i < n) dest[i] = best;
  }
  Scope::sync();
  return 0;
}

RUSHMEM_DEVICE int region_start_block(nvshmemx_region_handle_t *handle, const nvshmemx_region_attrs_t *) {
  if (handle == nullptr) return NVSHMEMX_ERROR_INVALID_VALUE;
  if (block::rank() == 0) *handle = 0;
  return 0;
}

}  // namespace nvshmem
}  // namespace rushmem

#endif
