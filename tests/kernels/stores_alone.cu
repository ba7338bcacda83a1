/* Large reductions of two members, which go by stores alone, against their definition: sizes around the
 * limit, also with odd ends, arrays on vectors and not, in place and not, either member late, one after the
 * other in one slot set. All PEs draw the same calls from a seed. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `StoresAlone` of tests/device/stores_alone.rs. */
struct stores_alone_args {
  unsigned char *dst, *src; /* `room` bytes each */
  uint64_t *words;          /* 16 words, zero: where blocks meet */
  uint64_t room, seed;
  int steps;
  int scope; /* SCOPE_GRID or SCOPE_GRID_PARTS */
  unsigned set;
};

namespace {

constexpr uint64_t margin = 64;
constexpr unsigned char canary = 0xee;

struct stores_call {
  uint64_t *report;
  rushmem::team team;
  const stores_alone_args &a;
  uint64_t seed;

  __device__ uint64_t random(uint64_t what) const { return mix(seed, what); }
  __device__ void meet() const { rushmem::impl::meet_blocks(a.words, 0); }
  __device__ static size_t rank() { return rushmem::grid::rank(); }
  __device__ static size_t size() { return rushmem::grid::size(); }
  template <typename T> __device__ T value(int member, uint64_t i) const {
    /* Of floats whose sums depend on nothing: of two numbers there is one order. */
    return static_cast<T>(static_cast<int64_t>(mix(mix(seed, static_cast<uint64_t>(member) + 9), i) >> 40) - (1 << 23));
  }

  template <typename T, typename Op, typename Combine> __device__ void one(Op, Combine combine) const {
    const uint64_t least = rushmem::impl::least_reduced_by_stores, line = 256 * rushmem::impl::blocks_in_grid();
    uint64_t bytes = least;
    switch (random(1) % 4) {
      case 0: bytes = least + random(2) % 512 / sizeof(T) * sizeof(T); break;
      case 1: bytes = (least + line - 1) / line * line + random(2) % 64 / sizeof(T) * sizeof(T); break;
      case 2: bytes = least - sizeof(T); break;
      default: bytes = least + random(2) % least / 4 / sizeof(T) * sizeof(T);
    }
    if (bytes + 3 * margin > a.room) bytes = (a.room - 3 * margin) / sizeof(T) * sizeof(T);
    const size_t n = bytes / sizeof(T);
    const bool askew = random(4) % 4 == 0, in_place = random(5) % 4 == 0;
    unsigned char *const at = a.dst + margin + (askew ? random(6) % 64 / sizeof(T) * sizeof(T) : 0);
    unsigned char *const there = in_place ? at : a.src + (askew ? random(7) % 64 / sizeof(T) * sizeof(T) : 0);
    T *const dst = reinterpret_cast<T *>(at), *const src = reinterpret_cast<T *>(there);
    const int me = team.my_pe(), other = 1 - me;
    for (uint64_t i = rank(); i < bytes + 2 * margin; i += size()) at[static_cast<int64_t>(i) - static_cast<int64_t>(margin)] = canary;
    meet();
    for (size_t i = rank(); i < n; i += size()) src[i] = value<T>(me, i);
    if (static_cast<uint64_t>(me) == random(8) % 4) {
      const uint64_t since = rushmem::impl::now_ns();
      while (rushmem::impl::now_ns() - since < random(9) % 3000000) rushmem::impl::pause(false);
    }
    meet();
    if (a.scope == SCOPE_GRID) {
      rushmem::reduce<rushmem::grid>(team, dst, static_cast<const T *>(src), n, Op{});
    } else {
      rushmem::reduce<rushmem::grid_parts>(team, dst, static_cast<const T *>(src), n, Op{});
      meet();
      /* What comes for other blocks of this PE is here once all blocks of the other have ended. */
      rushmem::sync<rushmem::grid>(team);
    }
    const uint64_t info = static_cast<uint64_t>(sizeof(T)) << 56 | static_cast<uint64_t>(in_place) << 55 | bytes << 28;
    for (size_t i = size() - 1 - rank(); i < n; i += size()) {
      CHECK(report, dst[i] == combine(value<T>(me, i), value<T>(other, i)), info | i);
      if (!in_place) CHECK(report, src[i] == value<T>(me, i), info | i);
    }
    for (uint64_t i = rank(); i < margin; i += size()) {
      CHECK_EQ(report, at[static_cast<int64_t>(i) - static_cast<int64_t>(margin)], canary, info | i);
      CHECK_EQ(report, at[bytes + i], canary, info | i);
    }
    meet();
  }
};

}  // namespace

extern "C" __global__ void stores_alone(uint64_t *report, rushmem::team world, stores_alone_args a) {
  const rushmem::team team = world.on(a.set);
  const auto sum = [](auto x, auto y) { return static_cast<decltype(x)>(x + y); };
  const auto most = [](auto x, auto y) { return x > y ? x : y; };
  for (int i = 0; i < a.steps; ++i) {
    const stores_call c{report, team, a, mix(a.seed, static_cast<uint64_t>(i))};
    switch (c.random(0) % 4) {
      case 0: c.one<float>(rushmem::sum{}, sum); break;
      case 1: c.one<int64_t>(rushmem::sum{}, sum); break;
      case 2: c.one<unsigned char>(rushmem::max{}, most); break;
      default: c.one<short>(rushmem::sum{}, sum);
    }
  }
}
