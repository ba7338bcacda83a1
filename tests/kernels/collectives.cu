/* Random collectives of a team against their definition: every PE derives the same calls from a seed, fills
 * its arrays with what the step's data is, makes the call at a scope of its own, and compares. Several blocks
 * do so at once, each in a slot set and in memory of its own. With COLLECTIVES_OF_GRID all blocks make each
 * call together, of fewer types, as compilers take long for all. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

struct collectives_args {
  uint64_t *dst; /* of each block `room` bytes */
  uint64_t *src;
  uint64_t room;
  uint64_t seed;
  int steps;
  int scope; /* 3: each PE its own, a new one each step */
  unsigned first_set;
  int parts; /* 0: the world; else PEs number p, p + parts, p + 2 * parts ... are team p */
};

namespace {

struct three_bytes {
  unsigned char at[3];
};
struct alignas(16) wide {
  uint64_t at[2];
};

/* Element i of member m in step `seed`. */
template <typename T> struct data {
  __device__ static T of(uint64_t seed, int member, size_t i) {
    const uint64_t bits = mix(mix(seed, static_cast<uint64_t>(member)), i);
    T value;
    unsigned char *to = reinterpret_cast<unsigned char *>(&value);
    for (size_t k = 0; k < sizeof(T); ++k) to[k] = static_cast<unsigned char>(mix(bits, k / 8) >> (k % 8 * 8));
    return value;
  }
};
/* Floats of many magnitudes: another order of additions gives other bits. */
template <typename F> struct floats {
  __device__ static F of(uint64_t seed, int member, size_t i) {
    const uint64_t bits = mix(mix(seed, static_cast<uint64_t>(member)), i);
    F value = static_cast<F>(static_cast<int64_t>(bits % 2000001) - 1000000) / static_cast<F>(977);
    for (uint64_t k = bits >> 40 & 15; k != 0; --k) value = value * static_cast<F>(0.25);
    return value;
  }
};
template <> struct data<float> : floats<float> {};
template <> struct data<double> : floats<double> {};

template <typename F> struct data<rushmem::complex<F>> {
  __device__ static rushmem::complex<F> of(uint64_t seed, int member, size_t i) {
    return {floats<F>::of(seed, member, 2 * i), floats<F>::of(seed, member, 2 * i + 1)};
  }
};

template <typename T> __device__ bool same_bits(const T &a, const T &b) {
  const unsigned char *x = reinterpret_cast<const unsigned char *>(&a), *y = reinterpret_cast<const unsigned char *>(&b);
  for (size_t k = 0; k < sizeof(T); ++k) {
    if (x[k] != y[k]) return false;
  }
  return true;
}

/* What one step is: the same on all members. */
struct step {
  uint64_t *report;
  rushmem::team team;
  char *dst, *src;
  uint64_t seed;
  size_t n; /* elements */
  int scope, root;
  bool in_place;
  uint64_t *blocks; /* where all blocks of the launch meet, if they make calls together */
  size_t *received; /* of all-to-alls whose blocks differ in size */

  template <typename T> __device__ T *to() const { return reinterpret_cast<T *>(dst); }
  template <typename T> __device__ T *from() const { return reinterpret_cast<T *>(in_place ? dst : src); }

  template <typename T> __device__ void fill(T *at, size_t count, size_t first = 0) const {
    for (size_t i = rank(); i < count; i += size()) at[i] = data<T>::of(seed, team.my_pe(), first + i);
    meet();
  }
  /* What lies in `dst` before a call that leaves some of it as it is. */
  template <typename T> __device__ T old(size_t i) const { return data<T>::of(~seed, 77, i); }
  template <typename T> __device__ void untouched(size_t count) const {
    for (size_t i = rank(); i < count; i += size()) to<T>()[i] = old<T>(i);
    meet();
  }
  /* Of calls whose blocks differ in size: from member `from`, the `to`-th that it has. */
  __device__ size_t count_of(int from, int to) const {
    const uint64_t random = mix(mix(seed, static_cast<uint64_t>(from) + 1000), static_cast<uint64_t>(to));
    if (random % 5 == 0) return 0;
    return random % 5 == 1 ? n : random / 5 % (n + 1);
  }
  /* Bytes behind the result, which nobody may touch. */
  template <typename T> __device__ void guard(size_t count) const {
    for (size_t i = rank(); i < 16; i += size()) dst[count * sizeof(T) + i] = static_cast<char>(0x5a);
    meet();
  }
  template <typename T, typename Expected> __device__ void compare(size_t count, int what, Expected expected) const {
    __syncthreads();
    /* At grid scope every block looks at all of it. */
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
      CHECK(report, same_bits(to<T>()[i], expected(i)), static_cast<uint64_t>(what) << 48 | i << 20 | n);
    }
    for (size_t i = threadIdx.x; i < 16; i += blockDim.x) {
      CHECK_EQ(report, dst[count * sizeof(T) + i], 0x5a, static_cast<uint64_t>(what) << 48 | n);
    }
    meet();
  }
  template <typename Call> __device__ void at_scope(Call call) const {
#if defined(COLLECTIVES_OF_GRID)
    if (scope == SCOPE_GRID) return call(rushmem::grid{});
    if (scope == SCOPE_GRID_PARTS) {
      call(rushmem::grid_parts{});
      return meet();
    }
#endif
    if (blocks != nullptr && blockIdx.x != 0) return meet();
    if (scope == SCOPE_BLOCK) call(rushmem::block{});
    else if (scope == SCOPE_WARP && threadIdx.x < 32) call(rushmem::warp{});
    else if (scope == SCOPE_THREAD && threadIdx.x == 0) call(rushmem::thread{});
    meet();
  }
  /* Whose step it is: a block's, or all blocks'. */
  __device__ void meet() const {
    if (blocks != nullptr) rushmem::impl::meet_blocks(blocks, 0);
    else __syncthreads();
  }
  __device__ size_t rank() const { return blocks != nullptr ? rushmem::grid::rank() : threadIdx.x; }
  __device__ size_t size() const { return blocks != nullptr ? rushmem::grid::size() : blockDim.x; }
};

#define AT_SCOPE(s, call) (s).at_scope([&](auto scope_) { using S = decltype(scope_); call; })

template <typename T> __device__ void moves(const step &s, int what) {
  const size_t n = s.n, members = static_cast<size_t>(s.team.n_pes()), me = static_cast<size_t>(s.team.my_pe());
  if (what == 0) {
    s.fill(s.from<T>(), n);
    s.guard<T>(n);
    AT_SCOPE(s, (rushmem::broadcast<S>(s.team, s.to<T>(), s.from<T>(), n, s.root)));
    s.compare<T>(n, what, [&](size_t i) { return data<T>::of(s.seed, s.root, i); });
  } else if (what == 1) {
    T *from = s.in_place ? s.to<T>() + me * n : s.from<T>();
    s.fill(from, n);
    s.guard<T>(n * members);
    AT_SCOPE(s, (rushmem::fcollect<S>(s.team, s.to<T>(), from, n)));
    s.compare<T>(n * members, what, [&](size_t i) { return data<T>::of(s.seed, static_cast<int>(i / n), i % n); });
  } else if (what == 9) {
    /* Members have between nothing and n elements each. */
    size_t before = 0, all = 0;
    for (int m = 0; m < s.team.n_pes(); ++m) {
      if (m == s.team.my_pe()) before = all;
      all += s.count_of(m, 0);
    }
    const size_t mine = s.count_of(s.team.my_pe(), 0);
    T *from = s.in_place ? s.to<T>() + before : s.from<T>();
    s.fill(from, mine);
    s.guard<T>(all);
    AT_SCOPE(s, (rushmem::collect<S>(s.team, s.to<T>(), from, mine)));
    s.compare<T>(all, what, [&](size_t i) {
      int m = 0;
      for (; i >= s.count_of(m, 0); ++m) i -= s.count_of(m, 0);
      return data<T>::of(s.seed, m, i);
    });
  } else if (what == 10) {
    /* Blocks of up to n elements; places are n apart, in the reverse order at the receiver. */
    __shared__ size_t dst_at[64], src_at[64], count[64];
    for (size_t m = threadIdx.x; m < members && m < 64; m += blockDim.x) {
      dst_at[m] = (members - 1 - m) * n;
      src_at[m] = m * n;
      count[m] = s.count_of(static_cast<int>(me), static_cast<int>(m) + 1);
      if (!s.blocks || blockIdx.x == 0) s.received[m] = ~size_t(0);
    }
    T *from = reinterpret_cast<T *>(s.src);
    s.fill(from, n * members);
    s.untouched<T>(n * members);
    s.guard<T>(n * members);
    size_t *told = s.in_place ? nullptr : s.received;
    AT_SCOPE(s, (rushmem::alltoallv<S>(s.team, s.to<T>(), dst_at, told, from, src_at, count)));
    s.compare<T>(n * members, what, [&](size_t i) {
      const int m = static_cast<int>(members - 1 - i / n);
      if (i % n >= s.count_of(m, static_cast<int>(me) + 1)) return s.old<T>(i);
      return data<T>::of(s.seed, m, me * n + i % n);
    });
    for (size_t m = threadIdx.x; told != nullptr && m < members; m += blockDim.x) {
      CHECK_EQ(s.report, s.received[m], s.count_of(static_cast<int>(m), static_cast<int>(me) + 1), m);
    }
    __syncthreads();
  } else if (what == 11) {
    /* A block of k elements, which lie `to` and `of` apart. */
    const size_t to = 1 + s.seed % 3, of = 1 + s.seed / 3 % 3, k = n / 3, all = k * members;
    T *from = reinterpret_cast<T *>(s.src);
    s.fill(from, all * of);
    s.untouched<T>(all * to);
    s.guard<T>(all * to);
    AT_SCOPE(s, (rushmem::alltoalls<S>(s.team, s.to<T>(), from, to, of, k)));
    s.compare<T>(all * to, what, [&](size_t i) {
      if (i % to != 0) return s.old<T>(i);
      return data<T>::of(s.seed, static_cast<int>(i / to / k), (me * k + i / to % k) * of);
    });
  } else {
    s.fill(s.from<T>(), n * members);
    s.guard<T>(n * members);
    AT_SCOPE(s, (rushmem::alltoall<S>(s.team, s.to<T>(), s.from<T>(), n)));
    s.compare<T>(n * members, what, [&](size_t i) { return data<T>::of(s.seed, static_cast<int>(i / n), me * n + i % n); });
  }
}

template <typename T, typename Op> __device__ T combined(const step &s, int members, size_t i) {
  T value = data<T>::of(s.seed, 0, i);
  for (int member = 1; member < members; ++member) value = Op::of(value, data<T>::of(s.seed, member, i));
  return value;
}

template <typename T, typename Op> __device__ void reduces(const step &s, int what) {
  const size_t n = s.n, me = static_cast<size_t>(s.team.my_pe());
  const int members = s.team.n_pes();
  if (what == 3) {
    s.fill(s.from<T>(), n);
    s.guard<T>(n);
    AT_SCOPE(s, (rushmem::reduce<S>(s.team, s.to<T>(), s.from<T>(), n, Op{})));
    s.compare<T>(n, what, [&](size_t i) { return combined<T, Op>(s, members, i); });
  } else if (what == 4) {
    /* In place the blocks of the others stay behind the result. */
    s.fill(s.from<T>(), n * static_cast<size_t>(members));
    if (!s.in_place) s.guard<T>(n);
    AT_SCOPE(s, (rushmem::reducescatter<S>(s.team, s.to<T>(), s.from<T>(), n, Op{})));
    if (s.in_place) s.guard<T>(n);
    s.compare<T>(n, what, [&](size_t i) { return combined<T, Op>(s, members, me * n + i); });
  } else {
    s.fill(s.from<T>(), n);
    s.guard<T>(n);
    if (what == 5) AT_SCOPE(s, (rushmem::inscan<S>(s.team, s.to<T>(), s.from<T>(), n, Op{})));
    else AT_SCOPE(s, (rushmem::exscan<S>(s.team, s.to<T>(), s.from<T>(), n, Op{})));
    s.compare<T>(n, what, [&](size_t i) {
      const int up_to = static_cast<int>(me) + (what == 5 ? 1 : 0);
      return up_to == 0 ? T{} : combined<T, Op>(s, up_to, i);
    });
  }
}

template <typename T> __device__ void typed(step s, int what, uint64_t bytes) {
  s.n = bytes / sizeof(T);
  moves<T>(s, what);
}
template <typename T, typename Op> __device__ void typed_reduce(step s, int what, uint64_t bytes) {
  s.n = bytes / sizeof(T);
  reduces<T, Op>(s, what);
}

__device__ void any(const step &s, int what, uint64_t kind, uint64_t bytes) {
#if defined(COLLECTIVES_OF_GRID)
  if (what < 3 || what > 8) return kind % 2 == 0 ? typed<three_bytes>(s, what, bytes) : typed<float>(s, what, bytes);
  if (what < 7) {
    if (kind % 5 == 0) return typed_reduce<unsigned char, rushmem::max>(s, what, bytes);
    if (kind % 5 == 1) return typed_reduce<rushmem::complex<float>, rushmem::prod>(s, what, bytes);
    if (kind % 5 == 2) return typed_reduce<rushmem::complex<double>, rushmem::sum>(s, what, bytes);
    return typed_reduce<float, rushmem::sum>(s, what, bytes);
  }
#else
  if (what < 3 || what > 8) {
    switch (kind % 4) {
      case 0: return typed<three_bytes>(s, what, bytes);
      case 1: return typed<unsigned short>(s, what, bytes);
      case 2: return typed<uint64_t>(s, what, bytes);
      default: return typed<wide>(s, what, bytes);
    }
  }
  if (what < 7) {
    switch (kind % 6) {
      case 0: return typed_reduce<unsigned char, rushmem::max>(s, what, bytes);
      case 1: return typed_reduce<int, rushmem::min>(s, what, bytes);
      case 2: return typed_reduce<uint64_t, rushmem::prod>(s, what, bytes);
      case 3: return typed_reduce<uint32_t, rushmem::xor_>(s, what, bytes);
      case 4: return typed_reduce<double, rushmem::sum>(s, what, bytes);
      default: return typed_reduce<float, rushmem::sum>(s, what, bytes);
    }
  }
#endif
  if (what == 7) s.at_scope([&](auto scope) { rushmem::sync<decltype(scope)>(s.team); });
  else s.at_scope([&](auto scope) { rushmem::barrier<decltype(scope)>(s.team); });
}

}  // namespace

/* Every PE in one of `parts` teams, made by hand of a slot set of the world, which is large enough. A slot
 * set is one team's for ever. */
__device__ rushmem::team part_of(int parts, unsigned set) {
  rushmem::team t = rushmem::world().on(set);
  if (parts == 0) return t;
  const int me = rushmem::my_pe(), n = rushmem::n_pes();
  t.raw.my_pe = me / parts;
  t.raw.start = me % parts;
  t.raw.stride = parts;
  t.raw.n_pes = (n - me % parts + parts - 1) / parts;
  return t;
}

/* How many bytes a step takes: little and much, and what is near a limit: a phase of packets, or where calls
 * go by wide packets or become direct. */
__device__ uint64_t bytes_of(uint64_t random, uint64_t size, const rushmem::team &team, uint64_t most) {
  const uint64_t phase = 8 * team.raw.packets, others = team.n_pes() > 1 ? static_cast<uint64_t>(team.n_pes()) - 1 : 1;
  uint64_t bytes = size % 200;
  switch (random % 12) {
    case 0: bytes = size % 4; break;
    case 1: bytes = phase - 8 + size % 24; break;
    case 2: bytes = 2 * phase + size % 64; break;
    case 3: bytes = size % most; break;
    case 4: bytes = rushmem::impl::most_by_packets / others - 8 + size % 24; break;
    case 5: bytes = rushmem::impl::most_by_packets_of_grid / others - 8 + size % 24; break;
    case 6: bytes = size % 8192; break;
    case 7: bytes = team.raw.wide / rushmem::impl::row_bytes * (16 * rushmem::impl::row_vectors) - 8 + size % 24; break;
    case 9: bytes = rushmem::impl::most_by_packets_one_way / others - 8 + size % 24; break;
    case 8:
      bytes = (size / 32 % 2 ? rushmem::impl::most_wide : rushmem::impl::most_wide_of_block) / others - 8 + size % 24;
      break;
    case 10:
      bytes = (size / 32 % 2 ? rushmem::impl::least_wide : rushmem::impl::least_wide_of_block) - 8 + size % 24;
      break;
  }
  return bytes > most ? size % most : bytes;
}
/* The same of a step of any collective whose arrays have `room`. Between three PEs and more, a third of a
 * grid's broadcasts are so large that they go by relays, where there is room. */
__device__ uint64_t bytes_of_step(const step &s, int what, uint64_t room) {
  const uint64_t random = mix(s.seed, 1), size = mix(s.seed, 2), members = static_cast<uint64_t>(s.team.n_pes());
  if (what != 0) return bytes_of(random, size, s.team, room / members / 16 * 16);
  const uint64_t relayed = members < 3 ? room : rushmem::impl::least_relayed / (members - 2) * (16 + size % 3) / 16;
  return (random >> 48) % 3 == 0 && relayed < room ? relayed + size / 3 % 24 : bytes_of(random, size, s.team, room / 16 * 16);
}

#if !defined(COLLECTIVES_OF_GRID)
/* This block's steps, in the slot set that `team` has been given. Members have the same seed. */
__device__ void random_steps(uint64_t *report, const rushmem::team &team, const collectives_args &a, uint64_t seed) {
  step s;
  s.report = report;
  s.team = team;
  s.dst = reinterpret_cast<char *>(a.dst) + blockIdx.x * a.room;
  s.src = reinterpret_cast<char *>(a.src) + blockIdx.x * a.room;
  const uint64_t members = static_cast<uint64_t>(s.team.n_pes());
  s.blocks = nullptr;
  s.received = reinterpret_cast<size_t *>(s.src + a.room - 512);
  for (int i = 0; i < a.steps; ++i) {
    s.seed = mix(seed, static_cast<uint64_t>(i));
    const uint64_t random = mix(s.seed, 1);
    const int what = static_cast<int>((random >> 8) % 12);
    s.root = static_cast<int>((random >> 16) % members);
    s.in_place = (random >> 24) % 3 == 0;
    s.scope = a.scope == 3 ? static_cast<int>(mix(s.seed, static_cast<uint64_t>(s.team.my_pe()) + 99) % 3) : a.scope;
    any(s, what, random >> 32, bytes_of_step(s, what, a.room - 640));
    if (report[0] != 0) return;
  }
}

extern "C" __global__ void collectives_random(uint64_t *report, collectives_args a) {
  const rushmem::team team = part_of(a.parts, a.first_set + blockIdx.x);
  const uint64_t part = a.parts == 0 ? 0 : static_cast<uint64_t>(team.raw.start) + 1;
  random_steps(report, team, a, mix(a.seed, part * 64 + blockIdx.x));
}

#else
/* Steps of all blocks together, at grid scope, at grid scope by parts, and by the first block alone. Launches
 * with other numbers of blocks follow, in the same slot set. */
extern "C" __global__ void collectives_grid(uint64_t *report, rushmem::team team, collectives_args a) {
  step s;
  s.report = report;
  s.team = team.on(a.first_set);
  s.dst = reinterpret_cast<char *>(a.dst);
  s.src = reinterpret_cast<char *>(a.src);
  s.blocks = reinterpret_cast<uint64_t *>(s.src + a.room - 1024);
  s.received = reinterpret_cast<size_t *>(s.src + a.room - 512);
  const uint64_t members = static_cast<uint64_t>(s.team.n_pes());
  for (int i = 0; i < a.steps; ++i) {
    s.seed = mix(a.seed, static_cast<uint64_t>(i));
    const uint64_t random = mix(s.seed, 1), kind = mix(s.seed, 3) % 8;
    s.root = static_cast<int>((random >> 16) % members);
    s.in_place = (random >> 24) % 3 == 0;
    s.scope = kind < 4 ? SCOPE_GRID : SCOPE_GRID_PARTS;
    if (kind > 5) s.scope = static_cast<int>(mix(s.seed, static_cast<uint64_t>(s.team.my_pe()) + 99) % 3);
    const int what = static_cast<int>((random >> 8) % 12);
    any(s, what, random >> 32, bytes_of_step(s, what, a.room - 1152));
    s.meet();
    if (report[0] != 0) return;
    s.meet();
  }
}

/* Sums of one shape by parts, one after the other, without a meeting of this PE's blocks: each looks at what
 * it has from its own. Blocks are late at random. */
extern "C" __global__ void collectives_parts(uint64_t *report, rushmem::team team, collectives_args a) {
  const size_t n = a.room / 8, members = static_cast<size_t>(team.n_pes());
  for (size_t i = rushmem::grid::rank(); i < n; i += rushmem::grid::size()) a.src[i] = mix(a.seed, i);
  rushmem::sync<rushmem::grid>(team);
  for (int i = 0; i < a.steps; ++i) {
    if (mix(a.seed, static_cast<uint64_t>(i) * 64 + blockIdx.x) % 4 == 0) {
      for (int k = 0; k < 64; ++k) {
        if (rushmem::signal_fetch(a.src) == ~0ull) return;
      }
    }
    rushmem::reduce<rushmem::grid_parts>(team, a.dst, a.src, n, rushmem::sum{});
  }
  rushmem::sync<rushmem::grid>(team);
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) CHECK_EQ(report, a.dst[i], mix(a.seed, i) * members, i);
}

#endif

#if !defined(COLLECTIVES_OF_GRID)
/* The same of a team that the host has made. */
extern "C" __global__ void collectives_of_team(uint64_t *report, rushmem::team team, collectives_args a) {
  random_steps(report, team.on(blockIdx.x), a, mix(a.seed, blockIdx.x));
}

/* Memory of a PE that others cannot read. */
constexpr size_t private_count = rushmem::impl::most_wide_of_block / 8 + 16;
static __device__ uint64_t private_words[private_count];

/* Broadcasts in a row, whose roots may run ahead: others are late at random, and the root never is. Roots
 * change now and then, and so does where they have the words. Where there is room, others read a third of
 * them there, and some go by wide packets. */
extern "C" __global__ void collectives_broadcasts(uint64_t *report, collectives_args a) {
  const rushmem::team t = rushmem::world().on(a.first_set);
  const int n = t.n_pes(), me = t.my_pe();
  for (int i = 0; i < a.steps; ++i) {
    const uint64_t seed = mix(a.seed, static_cast<uint64_t>(i));
    const int root = static_cast<int>(mix(a.seed, static_cast<uint64_t>(i / 16)) % static_cast<uint64_t>(n));
    const size_t few = 1 + seed % 9, others = n > 1 ? static_cast<size_t>(n) - 1 : 1;
    const size_t most = t.raw.wide == 0 ? rushmem::impl::most_by_packets_one_way : rushmem::impl::most_wide_of_block;
    size_t words = few;
    if (seed / 16 % 6 < 2) words = most / 8 / others + few;
    if (seed / 16 % 6 == 2) words = rushmem::impl::least_wide_of_block / 8 - 4 + few;
    if (8 * words > a.room) words = few;
    uint64_t *const src = seed / 128 % 4 == 0 ? private_words : a.src;
    if (me == root) {
      for (size_t w = threadIdx.x; w < words; w += blockDim.x) src[w] = mix(seed, w);
    } else if (seed % 4 == 0) {
      for (uint64_t k = mix(seed, static_cast<uint64_t>(me)) % 256; k != 0; --k) {
        if (rushmem::signal_fetch(a.dst) == ~0ull) return;
      }
    }
    rushmem::broadcast<rushmem::block>(t, a.dst, src, words, root);
    for (size_t w = threadIdx.x; w < words; w += blockDim.x) CHECK_EQ(report, a.dst[w], mix(seed, w), static_cast<uint64_t>(i));
    __syncthreads();
  }
}
#endif
