/* Collectives of two PEs on streams by bare instructions: no team, no checks, no types, no watch over a wait;
 * f32. Three forms, as the library has them at these sizes: packets of a word, a word a thread; rows of four
 * lines of 128 bytes, of which 8 are a number, by warps; stores into the arrays between meetings. Block b of
 * a PE meets block b of the other. A kernel begins when it is its turn, and lets the next one come once it
 * has heard of the other PE.
 *
 * `words` is room of both PEs: which call it is, for each block; lines in which the other's blocks arrive;
 * packets, of even calls and of odd ones. `op` is a broadcast's root. */

enum bare_what { bare_reduce, bare_reducescatter, bare_broadcast, bare_fcollect, bare_alltoall };

#define ARRIVALS (16 << 10) /* words behind the beginning */
#define PACKETS (256 << 10) /* bytes behind it */
#define PACKETS_APART (2 << 20)

using rushmem::impl::load_packet;
using rushmem::packet;
using rushmem::impl::store_packet;

/* The same place at the other PE. */
template <typename T> DEV T *there(const job &j, T *here) { return rushmem::impl::run_address(here, j.peer); }

DEV uint64_t add_pairs(uint64_t a, uint64_t b) {
  rushmem::impl::accumulator<float, rushmem::sum> sum;
  sum.begin(a);
  sum.add(b);
  return sum.result();
}
DEV uint64_t sum_of(int me, uint64_t own, uint64_t theirs) { return me == 0 ? add_pairs(own, theirs) : add_pairs(theirs, own); }
DEV uint64_t word_of(const char *at) { return rushmem::impl::load_plain_word(reinterpret_cast<const uint64_t *>(at)); }
DEV void leave_word(char *at, uint64_t value) { rushmem::impl::store_plain_word(reinterpret_cast<uint64_t *>(at), value); }

/* What all forms have in common. */
template <bare_what what> struct bare_call {
  static constexpr bool whole = what == bare_reduce || what == bare_broadcast;
  static constexpr bool shares = what == bare_alltoall || what == bare_reducescatter;
  static constexpr bool sums = what == bare_reduce || what == bare_reducescatter;
  static constexpr bool keeps = what == bare_alltoall || what == bare_fcollect;
  int me;
  bool sends, gets;
  uint64_t bytes, number;
  uint64_t *line;
  char *sent, *own; /* what goes, and what is added to or kept */
  char *kept, *got; /* where that goes, and what comes */

  DEV char *at(char *array, bool apart, int pe, uint64_t bytes) { return array + (apart ? pe * bytes : 0); }
  __device__ __forceinline__ bare_call(const job &j)
      : me(1 - j.peer), sends(what != bare_broadcast || me == int(j.op)), gets(what != bare_broadcast || me != int(j.op)),
        bytes(whole ? j.bytes : j.bytes / 2), line(j.words + blockIdx.x * LINE), sent(at(j.from, shares, 1 - me, bytes)),
        own(at(j.from, shares, me, bytes)), kept(at(j.to, keeps, me, bytes)), got(at(j.to, keeps, 1 - me, bytes)) {
    rushmem::await_stream();
    number = rushmem::impl::load_plain_word(line) + 1;
  }
  __device__ __forceinline__ void end() const {
    __syncthreads();
    if (threadIdx.x == 0) rushmem::impl::store_plain_word(line, number);
  }
};

DEV packet *packets_of(const job &j, uint64_t number) {
  return reinterpret_cast<packet *>(reinterpret_cast<char *>(j.words) + PACKETS + number % 2 * PACKETS_APART);
}

template <bare_what what> DEV void by_packets(const job &j) {
  const bare_call<what> c(j);
  const uint64_t w = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, at = w * 8;
  /* Of a broadcast the first thread of a block hears of the other PE either way. */
  const bool has = at < c.bytes, first = what == bare_broadcast && threadIdx.x == 0;
  packet *const here = packets_of(j, c.number) + w;
  const uint64_t sent = has && c.sends ? word_of(c.sent + at) : 0;
  const uint64_t own = c.shares && has ? word_of(c.own + at) : sent;
  if ((has && c.sends) || first) store_packet(there(j, here), sent, c.number);
  if (has && (c.keeps || (what == bare_broadcast && c.sends))) leave_word(c.kept + at, own);
  if ((has && c.gets) || first) {
    packet seen;
    spin_until([&] { return (seen = load_packet(here)).sequence == c.number; });
    rushmem::impl::let_next_kernel_come();
    if (has && c.gets) leave_word(c.got + at, c.sums ? sum_of(c.me, own, seen.value) : seen.value);
  }
  c.end();
}

/* A warp has up to three rows, of 480 bytes of data each. */
template <bare_what what> DEV void by_rows(const job &j) {
  constexpr int R = 3;
  const bare_call<what> c(j);
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
  const uint32_t first = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, rows = (uint32_t(c.bytes) + 479) / 480;
  const bool flag = lane % 8 == 7;
  packet *const here = packets_of(j, c.number) + lane;
  uint64_t sent[R][2] = {}, own[R][2] = {};
  const auto each = [&](auto of) {
    RUSHMEM_UNROLL
    for (int r = 0; r < R; ++r) {
      const uint32_t row = first + r * warps, at = row * 480 + lane / 8 * 120 + lane % 8 * 16;
      if (row < rows) of(r, row, at, at < c.bytes, !flag && at + 8 < c.bytes);
    }
  };
  if (c.sends) {
    each([&](int r, uint32_t, uint32_t at, bool low, bool high) {
      if (low) sent[r][0] = word_of(c.sent + at);
      if (high) sent[r][1] = word_of(c.sent + at + 8);
      if (c.shares && low) own[r][0] = word_of(c.own + at);
      if (c.shares && high) own[r][1] = word_of(c.own + at + 8);
    });
    each([&](int r, uint32_t row, uint32_t, bool, bool) {
      if (!c.shares) own[r][0] = sent[r][0], own[r][1] = sent[r][1];
      store_packet(there(j, here + row * 32), sent[r][0], flag ? c.number : sent[r][1]);
    });
  }
  if (c.keeps || (what == bare_broadcast && c.sends)) {
    each([&](int r, uint32_t, uint32_t at, bool low, bool high) {
      if (low) leave_word(c.kept + at, own[r][0]);
      if (high) leave_word(c.kept + at + 8, own[r][1]);
    });
  }
  uint64_t *const arrival = j.words + ARRIVALS + blockIdx.x * LINE;
  if (what == bare_broadcast && c.gets && threadIdx.x == 0) rushmem::impl::store_relaxed_word(there(j, arrival), c.number * 4);
  if (c.gets) {
    each([&](int r, uint32_t row, uint32_t at, bool low, bool high) {
      packet seen;
      spin_until([&] {
        seen = load_packet(here + row * 32);
        return __all_sync(0xffffffffu, !flag || seen.sequence == c.number);
      });
      rushmem::impl::let_next_kernel_come();
      if (low) leave_word(c.got + at, c.sums ? sum_of(c.me, own[r][0], seen.value) : seen.value);
      if (high) leave_word(c.got + at + 8, c.sums ? sum_of(c.me, own[r][1], seen.sequence) : seen.sequence);
    });
  } else if (threadIdx.x == 0) {
    spin_until([&] { return rushmem::impl::load_relaxed_word(arrival) >= c.number * 4; });
    rushmem::impl::let_next_kernel_come();
  }
  c.end();
}

/* The blocks of both PEs are here, for the `step`-th time in this call. */
DEV void meet_other(const job &j, uint64_t number, int step) {
  uint64_t *const arrival = j.words + ARRIVALS + blockIdx.x * LINE;
  __syncthreads();
  if (threadIdx.x == 0) {
    rushmem::impl::fence_release();
    rushmem::impl::store_relaxed_word(there(j, arrival), number * 4 + step);
    spin_until([&] { return rushmem::impl::load_relaxed_word(arrival) >= number * 4 + step; });
    rushmem::impl::fence_acquire();
  }
  __syncthreads();
}

/* This block's part of so many bytes, a few vectors of 16 of each thread at a time: all are loaded, then all
 * are stored. */
template <int U, typename Load, typename Store> DEV void move_part(uint64_t bytes, Load load, Store store) {
  const uint64_t all = bytes / 16, begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
  for (uint64_t from = begin + threadIdx.x; from < end; from += uint64_t(blockDim.x) * U) {
    decltype(load(uint64_t(0))) held[U];
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      if (from + u * blockDim.x < end) held[u] = load((from + u * blockDim.x) * 16);
    }
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      if (from + u * blockDim.x < end) store((from + u * blockDim.x) * 16, held[u]);
    }
  }
}

struct two_pairs {
  rushmem::impl::pair a, b;
};
DEV rushmem::impl::pair sum_of(int me, const two_pairs &v) {
  return {sum_of(me, v.a.a, v.b.a), sum_of(me, v.a.b, v.b.b)};
}

template <bare_what what> DEV void by_meetings(const job &j) {
  using rushmem::impl::load_pair;
  using rushmem::impl::pair;
  using rushmem::impl::store_pair;
  const bare_call<what> c(j);
  meet_other(j, c.number, 0);
  rushmem::impl::let_next_kernel_come();
  if (what == bare_alltoall) {
    char *const to = there(j, c.kept);
    move_part<4>(c.bytes, [&](uint64_t at) { return two_pairs{load_pair(c.sent + at), load_pair(c.own + at)}; },
                 [&](uint64_t at, const two_pairs &v) {
                   store_pair(to + at, v.a);
                   store_pair(c.kept + at, v.b);
                 });
  } else if (what == bare_reducescatter) {
    const char *const from = there(j, c.own);
    move_part<4>(c.bytes, [&](uint64_t at) { return two_pairs{load_pair(c.own + at), load_pair(from + at)}; },
                 [&](uint64_t at, const two_pairs &v) { store_pair(c.got + at, sum_of(c.me, v)); });
  } else if (what == bare_reduce) {
    /* The other's half goes there, and what comes is added to one's own: the sum goes to both. */
    const uint64_t half = c.bytes / 2;
    char *const mine = c.got + c.me * half, *const to = there(j, mine), *const others = c.got + (1 - c.me) * half;
    const char *const own = c.own + c.me * half, *const sent = c.own + (1 - c.me) * half;
    char *const first = there(j, others);
    move_part<8>(half, [&](uint64_t at) { return load_pair(sent + at); }, [&](uint64_t at, pair v) { store_pair(first + at, v); });
    meet_other(j, c.number, 1);
    move_part<4>(half, [&](uint64_t at) { return two_pairs{load_pair(own + at), load_pair(mine + at)}; },
                 [&](uint64_t at, const two_pairs &v) {
                   const pair sum = sum_of(c.me, v);
                   store_pair(to + at, sum);
                   store_pair(mine + at, sum);
                 });
  } else if (c.sends) {
    char *const to = there(j, c.kept);
    move_part<8>(c.bytes, [&](uint64_t at) { return load_pair(c.sent + at); },
                 [&](uint64_t at, pair v) {
                   store_pair(to + at, v);
                   store_pair(c.kept + at, v);
                 });
  }
  meet_other(j, c.number, 2);
  c.end();
}

#define OF_FORMS(what)                                                \
  HALF_KERNEL(bare_##what##_packets) { by_packets<bare_##what>(j); }   \
  HALF_KERNEL(bare_##what##_rows) { by_rows<bare_##what>(j); }         \
  HALF_KERNEL(bare_##what##_meetings) { by_meetings<bare_##what>(j); }

OF_FORMS(reduce)
OF_FORMS(reducescatter)
OF_FORMS(broadcast)
OF_FORMS(fcollect)
OF_FORMS(alltoall)
