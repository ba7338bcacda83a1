/* What the device ring's test runs against a stand-in for the proxy that keeps no order but what FENCE and
 * QUIET ask for (host/runtime/src/net/proxy/ring_kernel_tests.rs). Every operation to every PE, near, far and
 * oneself alike: nothing here knows who is mapped. All pointers but reports are symmetric. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

namespace {

struct three {
  unsigned char at[3];
};
struct forty {
  uint64_t at[5];
};

__device__ inline uint64_t thread_of_grid() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline uint64_t threads_of_grid() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

/* One value of T to this thread's place at PE `pe`, and back. */
template <typename T> __device__ void there_and_back(uint64_t *report, T *row, uint64_t seed, int pe) {
  T value, back;
  unsigned char *bytes = reinterpret_cast<unsigned char *>(&value);
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes[i] = pattern(seed, rushmem::my_pe(), thread_of_grid() * 64 + i);
  T *at = row + static_cast<uint64_t>(rushmem::my_pe()) * threads_of_grid() + thread_of_grid();
  rushmem::p(at, value, pe);
  rushmem::fence();
  rushmem::quiet();
  back = rushmem::g(at, pe);
  const unsigned char *seen = reinterpret_cast<const unsigned char *>(&back);
  for (size_t i = 0; i < sizeof(T); ++i) CHECK_EQ(report, seen[i], bytes[i], sizeof(T) << 32 | i);
}

/* `WordsMemory` of ring_kernel_tests.rs. `rows` is an array for each size: n_pes * threads elements.
 * `tickets` has n_pes * threads entries: what this PE's threads got of PE pe's counter. */
struct far_words_memory {
  unsigned char *rows1;
  uint16_t *rows2;
  uint32_t *rows4;
  uint64_t *rows8;
  three *rows3;
  forty *rows40;
  uint64_t *counter;
  float *sum;
  double *sum8;
  uint64_t *tickets;
};

}  // namespace

/* All threads of many blocks post at once. */
extern "C" __global__ void far_words(uint64_t *report, far_words_memory m, uint64_t seed) {
  const int n = rushmem::n_pes();
  for (int i = 0; i < n; ++i) {
    const int pe = static_cast<int>((thread_of_grid() + static_cast<uint64_t>(i)) % static_cast<uint64_t>(n));
    there_and_back(report, m.rows1, seed + 1, pe);
    there_and_back(report, m.rows2, seed + 2, pe);
    there_and_back(report, m.rows4, seed + 3, pe);
    there_and_back(report, m.rows8, seed + 4, pe);
    there_and_back(report, m.rows3, seed + 5, pe);
    there_and_back(report, m.rows40, seed + 6, pe);
    m.tickets[static_cast<uint64_t>(pe) * threads_of_grid() + thread_of_grid()] =
        rushmem::atomic_fetch_add(m.counter, 1, pe);
    rushmem::atomic_add(m.sum, 1.0f, pe);
    rushmem::atomic_add(m.sum8, 0.5, pe);
  }
  rushmem::quiet();
}

namespace {

/* The source is changed as soon as that is allowed, and what lies around the destination must stay as it was.
 */
template <typename Scope>
__device__ void bytes_at(uint64_t *report, unsigned char *area, unsigned char *local, uint64_t *sig, size_t n,
                         size_t shift, uint64_t seed, int pe, uint64_t times) {
  const int me = rushmem::my_pe();
  const bool leads = Scope::rank() == 0;
  unsigned char *there = area + 16 + shift, *source = local + 3 * shift % 16, *back = source + n + 64;
  auto fill = [&](uint64_t with) {
    Scope::sync();
    for (size_t i = Scope::rank(); i < n; i += Scope::size()) source[i] = pattern(with, me, i);
    Scope::sync();
  };
  auto scribble = [&] {
    for (size_t i = Scope::rank(); i < n; i += Scope::size()) source[i] = 0xee;
  };
  auto wait = [&] {
    Scope::sync();
    if (leads) rushmem::quiet();
    Scope::sync();
  };
  auto look = [&](uint64_t with, uint64_t what) {
    Scope::sync();
    for (size_t i = Scope::rank(); i < n; i += Scope::size())
      CHECK_EQ(report, back[i], pattern(with, me, i), n << 32 | what);
    Scope::sync();
    for (size_t i = Scope::rank(); i < n; i += Scope::size()) back[i] = 0xdd;
    Scope::sync();
  };

  fill(seed);
  rushmem::put<Scope>(there, source, n, pe);
  scribble();
  wait();
  rushmem::get<Scope>(back, there, n, pe);
  look(seed, 1);

  fill(seed + 1);
  rushmem::put_nbi<Scope>(there, source, n, pe);
  wait();
  scribble();
  rushmem::get_nbi<Scope>(back, there, n, pe);
  wait();
  look(seed + 1, 2);

  fill(seed + 2);
  rushmem::put_signal<Scope>(there, source, n, sig, times, rushmem::signal::set, pe);
  scribble();
  wait();
  if (leads) CHECK_EQ(report, rushmem::atomic_fetch(sig, pe), times, n);
  rushmem::get<Scope>(back, there, n, pe);
  look(seed + 2, 3);

  fill(seed + 3);
  rushmem::put_signal_nbi<Scope>(there, source, n, sig, 5, rushmem::signal::add, pe);
  wait();
  if (leads) CHECK_EQ(report, rushmem::g(sig, pe), times + 5, n);
  rushmem::get<Scope>(back, there, n, pe);
  look(seed + 3, 4);

  if (leads) {
    for (size_t i = 0; i < 8; ++i) {
      CHECK_EQ(report, rushmem::g(there - 8 + i, pe), 0, n << 32 | 5);
      CHECK_EQ(report, rushmem::g(there + n + i, pe), 0, n << 32 | 6);
    }
  }
  fill(0);
  for (size_t i = Scope::rank(); i < n; i += Scope::size()) source[i] = 0;
  Scope::sync();
  rushmem::put<Scope>(there, source, n, pe);
  wait();
}

}  // namespace

/* `Bytes` of ring_kernel_tests.rs. Each block has an area of `most` + 64 bytes at each PE for each PE, zero
 * at first, 2 * (most + 128) bytes of `local`, and a signal at each PE for each PE. */
struct far_bytes_args {
  unsigned char *areas, *local;
  uint64_t *signals;
  const uint64_t *sizes;
  uint64_t count, most, scope, seed;
};

namespace {

template <typename Scope> __device__ void all_bytes(uint64_t *report, const far_bytes_args &a) {
  const uint64_t mine = static_cast<uint64_t>(rushmem::my_pe()) * gridDim.x + blockIdx.x;
  unsigned char *area = a.areas + mine * (a.most + 64), *local = a.local + blockIdx.x * 2 * (a.most + 128);
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    for (uint64_t i = 0; i < a.count; ++i) {
      bytes_at<Scope>(report, area, local, a.signals + mine, a.sizes[i], mix(a.seed, i) % 9, a.seed + i, pe, 1000 + i);
    }
  }
}

}  // namespace

/* Blocks of one warp where the scope is one, of one thread where it is that. */
extern "C" __global__ void far_bytes(uint64_t *report, far_bytes_args a) {
  if (a.scope == SCOPE_THREAD) all_bytes<rushmem::thread>(report, a);
  else if (a.scope == SCOPE_WARP) all_bytes<rushmem::warp>(report, a);
  else all_bytes<rushmem::block>(report, a);
}

/* Sources and destinations in the thread's own and in shared memory. `area` has 256 words for each PE and
 * thread. */
extern "C" __global__ void far_local_memory(uint64_t *report, uint64_t *area, uint64_t *sig, uint64_t seed) {
  __shared__ uint64_t shared[64 * 7];
  uint64_t own[37], back[37];
  const int me = rushmem::my_pe();
  uint64_t *there = area + 256 * (static_cast<uint64_t>(me) * blockDim.x + threadIdx.x);
  uint64_t *mine = shared + 7 * threadIdx.x;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    for (uint64_t i = 0; i < 37; ++i) own[i] = mix(seed + i, static_cast<uint64_t>(pe));
    for (uint64_t i = 0; i < 7; ++i) mine[i] = mix(seed + 100 + i, static_cast<uint64_t>(pe));
    rushmem::put_nbi(there, own, 37, pe);
    rushmem::put(there + 40, mine, 7, pe);
    rushmem::put_signal(there + 50, own, 9, sig + me * blockDim.x + threadIdx.x, seed, rushmem::signal::set,
                        pe);
    rushmem::iput(there + 60, own, 2, 1, 37, pe);
    rushmem::quiet();
    rushmem::get(back, there, 37, pe);
    for (uint64_t i = 0; i < 37; ++i) CHECK_EQ(report, back[i], own[i], i);
    rushmem::get_nbi(mine, there + 50, 7, pe);
    rushmem::quiet();
    for (uint64_t i = 0; i < 7; ++i) CHECK_EQ(report, mine[i], own[i], i);
    rushmem::get(mine, there + 40, 7, pe);
    for (uint64_t i = 0; i < 7; ++i)
      CHECK_EQ(report, mine[i], mix(seed + 100 + i, static_cast<uint64_t>(pe)), i);
    rushmem::iget(back, there + 60, 1, 2, 37, pe);
    for (uint64_t i = 0; i < 37; ++i) CHECK_EQ(report, back[i], own[i], i);
    CHECK_EQ(report, rushmem::g(sig + me * blockDim.x + threadIdx.x, pe), seed, 0);
  }
}

namespace {

template <typename Scope, typename T>
__device__ void strided_at(uint64_t *report, unsigned char *area, unsigned char *local, size_t n, int dst,
                           int src, uint64_t seed, int pe) {
  const int me = rushmem::my_pe();
  T *there = reinterpret_cast<T *>(area), *source = reinterpret_cast<T *>(local);
  const size_t all = n * static_cast<size_t>(dst > src ? dst : src) * sizeof(T);
  const size_t far = n * static_cast<size_t>(dst) * sizeof(T);
  Scope::sync();
  for (size_t i = Scope::rank(); i < all; i += Scope::size()) local[i] = pattern(seed, me, i);
  for (size_t i = Scope::rank(); i < far; i += Scope::size())
    rushmem::p(area + i, static_cast<unsigned char>(0x55), pe);
  rushmem::quiet();
  Scope::sync();
  rushmem::iput<Scope>(there, source, dst, src, n, pe);
  if (Scope::rank() == 0) rushmem::quiet();
  Scope::sync();
  /* Byte b of element i is there, and between the elements is what was. */
  for (size_t i = Scope::rank(); i < far; i += Scope::size()) {
    const size_t element = i / sizeof(T), within = i % sizeof(T);
    const size_t from = element / static_cast<size_t>(dst) * static_cast<size_t>(src) * sizeof(T) + within;
    const unsigned char wanted = element % static_cast<size_t>(dst) == 0 ? pattern(seed, me, from) : 0x55;
    CHECK_EQ(report, rushmem::g(area + i, pe), wanted, sizeof(T) << 32 | i);
  }
  Scope::sync();
  for (size_t i = Scope::rank(); i < all; i += Scope::size()) local[i] = 0x77;
  Scope::sync();
  rushmem::iget<Scope>(source, there, src, dst, n, pe);
  const size_t near = n * static_cast<size_t>(src) * sizeof(T);
  for (size_t i = Scope::rank(); i < near; i += Scope::size()) {
    const unsigned char wanted = i / sizeof(T) % static_cast<size_t>(src) == 0 ? pattern(seed, me, i) : 0x77;
    CHECK_EQ(report, local[i], wanted, sizeof(T) << 32 | i);
  }
}

template <typename T>
__device__ void strided_of(uint64_t *report, unsigned char *areas, unsigned char *local, uint64_t seed) {
  unsigned char *area = areas + static_cast<size_t>(rushmem::my_pe()) * 4096;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    strided_at<rushmem::block, T>(report, area, local, 17, 3, 2, seed, pe);
    strided_at<rushmem::block, T>(report, area, local, 1, 5, 1, seed + 1, pe);
    strided_at<rushmem::block, T>(report, area, local, 0, 1, 1, seed + 2, pe);
    __syncthreads();
    if (threadIdx.x < 32) strided_at<rushmem::warp, T>(report, area, local, 9, 1, 4, seed + 3, pe);
    __syncthreads();
    if (threadIdx.x == 0) strided_at<rushmem::thread, T>(report, area, local, 5, 2, 1, seed + 4, pe);
    __syncthreads();
  }
}

}  // namespace

/* One block. 4096 bytes for each PE in `areas`, and in `local`; aligned to 8. */
extern "C" __global__ void far_strided(uint64_t *report, unsigned char *areas, unsigned char *local,
                                       uint64_t seed) {
  strided_of<unsigned char>(report, areas, local, seed);
  strided_of<uint16_t>(report, areas, local, seed + 10);
  strided_of<uint32_t>(report, areas, local, seed + 20);
  strided_of<uint64_t>(report, areas, local, seed + 30);
  strided_of<three>(report, areas, local, seed + 40);
  strided_of<forty>(report, areas, local, seed + 50);
}

namespace {

template <typename T> __device__ void atomics_of(uint64_t *report, T *word_, uint64_t seed, int pe) {
  const T a = static_cast<T>(mix(seed, 1)), b = static_cast<T>(mix(seed, 2)),
          c = static_cast<T>(mix(seed, 3));
  T model = a;
  rushmem::atomic_set(word_, a, pe);
  rushmem::fence();
  CHECK_EQ(report, rushmem::atomic_fetch(word_, pe), model, 1);
  CHECK_EQ(report, rushmem::atomic_swap(word_, b, pe), model, 2);
  model = b;
  CHECK_EQ(report, rushmem::atomic_compare_swap(word_, static_cast<T>(b + 1), c, pe), model, 3);
  CHECK_EQ(report, rushmem::atomic_compare_swap(word_, b, c, pe), model, 4);
  model = c;
  CHECK_EQ(report, rushmem::atomic_fetch_add(word_, a, pe), model, 5);
  model = static_cast<T>(model + a);
  CHECK_EQ(report, rushmem::atomic_fetch_inc(word_, pe), model, 6);
  ++model;
  CHECK_EQ(report, rushmem::atomic_fetch_and(word_, b, pe), model, 7);
  model = static_cast<T>(model & b);
  CHECK_EQ(report, rushmem::atomic_fetch_or(word_, a, pe), model, 8);
  model = static_cast<T>(model | a);
  CHECK_EQ(report, rushmem::atomic_fetch_xor(word_, c, pe), model, 9);
  model = static_cast<T>(model ^ c);
  rushmem::atomic_add(word_, b, pe);
  rushmem::atomic_inc(word_, pe);
  model = static_cast<T>(model + b + 1);
  rushmem::fence();
  rushmem::atomic_and(word_, c, pe);
  model = static_cast<T>(model & c);
  rushmem::fence();
  rushmem::atomic_or(word_, a, pe);
  model = static_cast<T>(model | a);
  rushmem::fence();
  rushmem::atomic_xor(word_, b, pe);
  model = static_cast<T>(model ^ b);
  rushmem::quiet();
  CHECK_EQ(report, rushmem::g(word_, pe), model, 10);
}

template <typename T> __device__ void floats_of(uint64_t *report, T *word_, uint64_t seed, int pe) {
  const T a = static_cast<T>(seed % 1000) / 4, b = static_cast<T>(seed % 77) - 30;
  rushmem::atomic_set(word_, a, pe);
  rushmem::fence();
  CHECK(report, rushmem::atomic_fetch(word_, pe) == a, 1);
  CHECK(report, rushmem::atomic_fetch_add(word_, b, pe) == a, 2);
  rushmem::atomic_add(word_, b, pe);
  rushmem::fence();
  CHECK(report, rushmem::atomic_swap(word_, T(1.5), pe) == a + b + b, 3);
  CHECK(report, rushmem::g(word_, pe) == T(1.5), 4);
}

}  // namespace

/* Four words of 8 bytes for each PE and thread. */
extern "C" __global__ void far_atomics(uint64_t *report, uint64_t *words, uint64_t seed) {
  const uint64_t mine = static_cast<uint64_t>(rushmem::my_pe()) * threads_of_grid() + thread_of_grid();
  uint64_t *at = words + 4 * mine;
  for (int pe = 0; pe < rushmem::n_pes(); ++pe) {
    const uint64_t with = mix(seed + mine, static_cast<uint64_t>(pe));
    atomics_of(report, at, with, pe);
    atomics_of(report, reinterpret_cast<int64_t *>(at), with + 1, pe);
    /* The upper half of the second word: what lies beside must stay. */
    atomics_of(report, reinterpret_cast<uint32_t *>(at) + 3, with + 2, pe);
    atomics_of(report, reinterpret_cast<int32_t *>(at) + 3, with + 3, pe);
    CHECK_EQ(report, rushmem::g(reinterpret_cast<uint32_t *>(at) + 2, pe), 0, pe);
    floats_of(report, reinterpret_cast<float *>(at) + 4, with, pe);
    floats_of(report, reinterpret_cast<double *>(at) + 3, with, pe);
  }
}

/* `Order` of ring_kernel_tests.rs. `way` says what lies between data and flag. `data` has 4 * rounds words,
 * `source` as many, `flag` one. */
struct far_order_args {
  uint64_t *data, *source, *flag;
  uint64_t way, rounds;
};

/* Message passing: block 0 of each PE writes to the PE after next, block 1 reads what comes. */
extern "C" __global__ void far_order(uint64_t *report, far_order_args a) {
  uint64_t *const data = a.data, *const source = a.source, *const flag = a.flag;
  const uint64_t way = a.way, rounds = a.rounds;
  const int n = rushmem::n_pes(), me = rushmem::my_pe(), to = (me + 2) % n;
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    for (uint64_t i = 0; i < rounds; ++i) {
      uint64_t *there = data + 4 * i, *from = source + 4 * i;
      for (uint64_t k = 0; k < 4; ++k) from[k] = mix(i + k, static_cast<uint64_t>(me));
      if (way >= 4) {
        if (way == 4) rushmem::put_signal_nbi(there, from, 4, flag, i + 1, rushmem::signal::set, to);
        else if (way == 5) rushmem::put_signal(there, from, 4, flag, 1, rushmem::signal::add, to);
        if (way == 4) rushmem::fence(); /* one set must not overtake another */
        continue;
      }
      rushmem::put_nbi(there, from, 2, to);
      rushmem::p(there + 2, from[2], to);
      rushmem::put(there + 3, from + 3, 1, to);
      if (way == 3) rushmem::quiet();
      else rushmem::fence();
      if (way == 0) rushmem::p(flag, i + 1, to);
      else if (way == 1) rushmem::signal_op(flag, i + 1, rushmem::signal::set, to);
      else if (way == 2) rushmem::atomic_inc(flag, to);
      else rushmem::atomic_set(flag, i + 1, to);
    }
    rushmem::quiet();
  } else {
    const int from = (me + n - 2 % n) % n;
    for (uint64_t i = 0; i < rounds; ++i) {
      rushmem::signal_wait_until(flag, rushmem::cmp::ge, i + 1);
      /* With additions the i-th to arrive may be another's signal: all data only at the end. */
      if (way == 5 && i + 1 != rounds) continue;
      for (uint64_t at = way == 5 ? 0 : i; at <= i; ++at) {
        for (uint64_t k = 0; k < 4; ++k) {
          CHECK_EQ(report, data[4 * at + k], mix(at + k, static_cast<uint64_t>(from)), at << 32 | k);
        }
      }
    }
  }
}

/* Barriers of one block: everybody's puts of the round are there, and a sync lets nobody through early.
 * `rows` has n_pes entries. */
extern "C" __global__ void far_barriers(uint64_t *report, uint64_t *rows, int rounds, int scope) {
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  for (int round = 1; round <= rounds; ++round) {
    const uint64_t number = static_cast<uint64_t>(round);
    for (int pe = static_cast<int>(threadIdx.x); pe < n; pe += static_cast<int>(blockDim.x)) {
      rushmem::p(rows + me, number, (pe + round) % n);
    }
    __syncthreads();
    if (scope == SCOPE_BLOCK) rushmem::barrier_all<rushmem::block>();
    else if (scope == SCOPE_WARP && threadIdx.x < 32) rushmem::barrier_all<rushmem::warp>();
    else if (scope == SCOPE_THREAD && threadIdx.x == 0) rushmem::barrier_all();
    __syncthreads();
    for (int pe = static_cast<int>(threadIdx.x); pe < n; pe += static_cast<int>(blockDim.x)) {
      CHECK_EQ(report, rushmem::signal_fetch(rows + pe), number, pe);
    }
    __syncthreads();
    if (scope == SCOPE_BLOCK) rushmem::sync_all<rushmem::block>();
    else if (scope == SCOPE_WARP && threadIdx.x < 32) rushmem::sync_all<rushmem::warp>();
    else if (scope == SCOPE_THREAD && threadIdx.x == 0) rushmem::sync_all();
    __syncthreads();
  }
}

/* Every thread asks PE `pe` for a word. */
extern "C" __global__ void far_ask(uint64_t *word_, int pe) { rushmem::g(word_, pe); }
