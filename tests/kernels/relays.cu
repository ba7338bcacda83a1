/* Large broadcasts, which go by relays, against their definition: sizes around each limit of theirs,
 * elements of every alignment, arrays that begin anywhere, every root, in place and not, at one scope; other
 * collectives in the same slot set come between. All PEs draw the same calls from a seed. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `Relays` of tests/device/relays.rs. */
struct relays_args {
  unsigned char *dst, *src; /* `room` bytes each */
  uint64_t *words;          /* 1024 words, zero: where blocks meet, and what small calls have */
  uint64_t room, seed;
  int steps;
  int scope; /* SCOPE_GRID or SCOPE_GRID_PARTS */
  unsigned set;
  unsigned packets; /* of the slot set, if not 0: a grid's blocks beyond them are idle */
};

namespace {

constexpr uint64_t margin = 64;
constexpr unsigned char canary = 0xee;

struct three_bytes {
  unsigned char at[3];
};
struct alignas(16) wide {
  uint64_t at[2];
};

struct relay_call {
  uint64_t *report;
  rushmem::team team;
  const relays_args &a;
  uint64_t seed;
  int scope, root;

  __device__ uint64_t random(uint64_t what) const { return mix(seed, what); }
  __device__ void meet() const { rushmem::impl::meet_blocks(a.words, 0); }
  __device__ static size_t rank() { return rushmem::grid::rank(); }
  __device__ static size_t size() { return rushmem::grid::size(); }

  template <typename Call> __device__ void at_scope(Call call) const {
    if (scope == SCOPE_GRID) return call(rushmem::grid{});
    call(rushmem::grid_parts{});
    meet();
  }

  /* Bytes at a limit, and whether they are enough for relays. */
  __device__ uint64_t limit() const {
    const uint64_t members = static_cast<uint64_t>(team.n_pes());
    const uint64_t channels = rushmem::impl::call<rushmem::grid>::channels_of(team);
    const uint64_t least = rushmem::impl::least_relayed / (members - 2), unit = rushmem::impl::bytes_of_chunks;
    const uint64_t line = 128 * channels * (members - 1);
    uint64_t chunks = 1;
    switch (random(1) % 8) {
      case 0: case 1: return least;
      case 2: /* more chunks */
        while (chunks * chunks * unit < least + 100) ++chunks;
        return chunks * chunks * unit;
      case 3: return (least + line - 1) / line * line; /* parts of one size, whole lines */
      case 4: return (least + line - 1) / line * line + 128; /* a line more */
      case 5: return line * 32; /* whole pages of each channel, or little of each */
      case 6: return least + random(2) % least;
      default: return rushmem::impl::least_relayed_part * channels * (members - 1);
    }
  }
  __device__ uint64_t word_of(int member, uint64_t i) const { return mix(mix(seed, static_cast<uint64_t>(member) + 9), i); }

  template <typename T> __device__ void large() const {
    uint64_t bytes = limit();
    uint64_t n = bytes / sizeof(T) + random(3) % 3 - 1;
    if (n * sizeof(T) + 2 * margin + 72 > a.room) n = (a.room - 2 * margin - 72) / sizeof(T);
    bytes = n * sizeof(T);
    /* Half of the calls have arrays on lines. */
    const bool askew = random(4) % 2 == 0;
    unsigned char *to = a.dst + margin + (askew ? random(5) % 64 / alignof(T) * alignof(T) : 0);
    unsigned char *from = a.src + (askew ? random(6) % 64 / alignof(T) * alignof(T) : 0);
    if (random(7) % 3 == 0) from = to;
    const int me = team.my_pe();
    uint64_t *const old = reinterpret_cast<uint64_t *>(a.dst);
    const uint64_t behind = bytes + 2 * margin + 72;
    for (uint64_t w = rank(); w < behind / 8; w += size()) old[w] = canary * 0x0101010101010101u;
    meet();
    if (from != to || me == root) {
      for (uint64_t w = rank(); w < bytes / 8; w += size()) {
        const uint64_t word = word_of(me, w);
        memcpy(from + 8 * w, &word, 8);
      }
      for (uint64_t i = bytes / 8 * 8 + rank(); i < bytes; i += size()) from[i] = static_cast<unsigned char>(word_of(me, i));
    }
    /* A member is late. */
    if (static_cast<uint64_t>(me) == random(8) % (2 * static_cast<uint64_t>(team.n_pes()))) {
      const uint64_t since = rushmem::impl::now_ns();
      while (rushmem::impl::now_ns() - since < random(9) % 2000000) rushmem::impl::pause(false);
    }
    meet();
    at_scope([&](auto scope_) {
      rushmem::broadcast<decltype(scope_)>(team, reinterpret_cast<T *>(to), reinterpret_cast<const T *>(from), n, root);
    });
    /* Another thread than the one that wrote it looks at a word, as far as that is known. */
    const uint64_t info = static_cast<uint64_t>(root) << 56 | static_cast<uint64_t>(sizeof(T)) << 48;
    for (uint64_t w = size() - 1 - rank(); w < bytes / 8; w += size()) {
      uint64_t word;
      memcpy(&word, to + 8 * w, 8);
      CHECK_EQ(report, word, word_of(root, w), info | w << 24 | (n & 0xffffff));
    }
    for (uint64_t i = bytes / 8 * 8 + rank(); i < bytes; i += size()) {
      CHECK_EQ(report, to[i], static_cast<unsigned char>(word_of(root, i)), info | i);
    }
    for (uint64_t i = rank(); i < margin; i += size()) {
      CHECK_EQ(report, to[i - margin], canary, info | i);
      CHECK_EQ(report, to[bytes + i], canary, info | i);
    }
    meet();
  }

  /* Little calls, by packets. */
  __device__ void little() const {
    uint64_t *src = a.words + 16, *dst = src + 64;
    const int me = team.my_pe(), n = team.n_pes(), what = static_cast<int>(random(20) % 5);
    if (what == 0) return;
    const size_t count = what == 1 ? 0 : 1 + random(21) % 13;
    for (size_t i = rank(); i < count; i += size()) src[i] = word_of(me, i);
    meet();
    at_scope([&](auto scope_) {
      using S = decltype(scope_);
      if (what == 1) rushmem::sync<S>(team);
      else if (what == 2) rushmem::broadcast<S>(team, dst, src, count, root);
      else if (what == 3) rushmem::fcollect<S>(team, dst, src, count);
      else rushmem::reduce<S>(team, dst, src, count, rushmem::xor_{});
    });
    for (size_t i = rank(); i < (what == 3 ? count * static_cast<size_t>(n) : count); i += size()) {
      uint64_t wanted = what == 2 ? word_of(root, i) : 0;
      if (what == 3) wanted = word_of(static_cast<int>(i / count), i % count);
      for (int m = 0; what == 4 && m < n; ++m) wanted ^= word_of(m, i);
      CHECK_EQ(report, dst[i], wanted, static_cast<uint64_t>(what) << 32 | i);
    }
    meet();
  }
};

}  // namespace

extern "C" __global__ void relays(uint64_t *report, rushmem::team world, relays_args a) {
  rushmem::team team = world.on(a.set);
  if (a.packets != 0) team.raw.packets = a.packets;
  const int n = team.n_pes();
  for (int i = 0; i < a.steps; ++i) {
    const uint64_t seed = mix(a.seed, static_cast<uint64_t>(i));
    relay_call c{report, team, a, seed, a.scope, static_cast<int>((a.seed + static_cast<uint64_t>(i)) % static_cast<uint64_t>(n))};
    switch (c.random(0) % 5) {
      case 0: c.large<unsigned char>(); break;
      case 1: c.large<three_bytes>(); break;
      case 2: c.large<float>(); break;
      case 3: c.large<uint64_t>(); break;
      default: c.large<wide>();
    }
    /* Also after a mistake, which other members need not have: they would wait for ever. */
    c.little();
    c.meet();
  }
}
