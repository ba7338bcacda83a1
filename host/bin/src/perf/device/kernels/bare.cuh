/* What bare collectives of two PEs have in common, on streams (bare.cu) and inside kernels (bare_inside.cu):
 * no team, no checks, no types, no watch over a wait; f32. Block b of a PE meets block b of the other.
 *
 * `room` is memory of both PEs, and zero at first: on streams which call it is, for each block; lines in
 * which the other's blocks arrive; packets, of even calls and of odd ones. */

enum bare_what { bare_reduce, bare_reducescatter, bare_broadcast, bare_fcollect, bare_alltoall };

#define ARRIVALS (16 << 10) /* words behind the beginning */
#define PACKETS (256 << 10) /* bytes behind it */
#define PACKETS_APART (2 << 20)

using rushmem::packet;
using rushmem::impl::load_packet;
using rushmem::impl::load_pair;
using rushmem::impl::pair;
using rushmem::impl::store_packet;
using rushmem::impl::store_pair;

/* The same place at the other PE. */
template <typename T> DEV T *there(const job &j, T *here) { return rushmem::impl::run_address(here, j.peer); }

DEV uint64_t add_pairs(uint64_t a, uint64_t b) {
  rushmem::impl::accumulator<float, rushmem::sum> sum;
  sum.begin(a);
  sum.add(b);
  return sum.result();
}
DEV uint64_t sum_of(int me, uint64_t own, uint64_t theirs) {
  return me == 0 ? add_pairs(own, theirs) : add_pairs(theirs, own);
}
DEV pair sum_of(int me, pair own, pair theirs) {
  return {sum_of(me, own.a, theirs.a), sum_of(me, own.b, theirs.b)};
}
DEV uint64_t word_of(const char *at) {
  return rushmem::impl::load_plain_word(reinterpret_cast<const uint64_t *>(at));
}
DEV void leave_word(char *at, uint64_t value) {
  rushmem::impl::store_plain_word(reinterpret_cast<uint64_t *>(at), value);
}

/* What all forms have in common: a call, of which `number` counts from 1. */
template <bare_what what> struct bare_call {
  static constexpr bool whole = what == bare_reduce || what == bare_broadcast;
  static constexpr bool shares = what == bare_alltoall || what == bare_reducescatter;
  static constexpr bool sums = what == bare_reduce || what == bare_reducescatter;
  static constexpr bool keeps = what == bare_alltoall || what == bare_fcollect;
  int me;
  bool sends, gets;
  uint64_t bytes, number;
  char *sent, *own; /* what goes, and what is added to or kept */
  char *kept, *got; /* where that goes, and what comes */

  DEV char *at(char *array, bool apart, int pe, uint64_t bytes) { return array + (apart ? pe * bytes : 0); }
  __device__ __forceinline__ bare_call(const job &j, uint64_t number_, int root)
      : me(1 - j.peer), sends(what != bare_broadcast || me == root),
        gets(what != bare_broadcast || me != root), bytes(whole ? j.bytes : j.bytes / 2), number(number_),
        sent(at(j.from, shares, 1 - me, bytes)), own(at(j.from, shares, me, bytes)),
        kept(at(j.to, keeps, me, bytes)), got(at(j.to, keeps, 1 - me, bytes)) {}
  /* Whether something of this PE's goes to its own array as it is. */
  __device__ __forceinline__ bool leaves_own() const { return keeps || (what == bare_broadcast && sends); }
};

DEV packet *packets_of(const job &j, uint64_t number) {
  return reinterpret_cast<packet *>(reinterpret_cast<char *>(j.room) + PACKETS + number % 2 * PACKETS_APART);
}
DEV uint64_t *arrival_of(const job &j) { return j.room + ARRIVALS + blockIdx.x * LINE; }

/* The blocks of both PEs are here, and have said so in a line. Without `stores` they have only loaded from
 * there before, which has ended where the values have been used. */
template <bool stores = true> DEV void meet_in(const job &j, uint64_t *line, uint64_t value) {
  __syncthreads();
  if (threadIdx.x == 0) {
    if (stores) rushmem::impl::fence_release();
    else rushmem::impl::loads_before_later();
    rushmem::impl::store_relaxed_word(there(j, line), value);
    spin_until([&] { return rushmem::impl::load_relaxed_word(line) >= value; });
    if (stores) rushmem::impl::fence_acquire();
  }
  __syncthreads();
}
/* The same for the `step`-th time in this call. */
template <bool stores = true> DEV void meet_other(const job &j, uint64_t number, int step) {
  meet_in<stores>(j, arrival_of(j), number * 4 + step);
}

/* A block's part of so many of something. */
struct span {
  uint32_t begin, end;
};
DEV span part_of_block(uint32_t all) {
  if (gridDim.x == 1) return {0, all};
  const uint32_t each = (all + gridDim.x - 1) / gridDim.x, begin = min(each * blockIdx.x, all);
  return {begin, min(begin + each, all)};
}

/* This block's part of so many bytes, a few vectors of 16 of each thread at a time: all are loaded, then all
 * are stored. */
template <int U, typename Load, typename Store> DEV void move_part(uint64_t bytes, Load load, Store store) {
  const span mine = part_of_block(uint32_t(bytes / 16));
  RUSHMEM_ROLLED
  for (uint32_t from = mine.begin + threadIdx.x; from < mine.end; from += blockDim.x * U) {
    decltype(load(uint64_t(0))) held[U];
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      if (from + u * blockDim.x < mine.end) held[u] = load(uint64_t(from + u * blockDim.x) * 16);
    }
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      if (from + u * blockDim.x < mine.end) store(uint64_t(from + u * blockDim.x) * 16, held[u]);
    }
  }
}

struct two_pairs {
  pair a, b;
};

/* Between two meetings: what there is for the other PE is stored into its array. A sum's half goes there, is
 * added to what is there between two meetings more, and the sum goes to both. */
template <bare_what what> DEV void store_there(const job &j, const bare_call<what> &c) {
  if (what == bare_alltoall) {
    char *const to = there(j, c.kept);
    move_part<4>(c.bytes,
                 [&](uint64_t at) { return two_pairs{load_pair(c.sent + at), load_pair(c.own + at)}; },
                 [&](uint64_t at, const two_pairs &v) {
                   store_pair(to + at, v.a);
                   store_pair(c.kept + at, v.b);
                 });
  } else if (what == bare_reduce) {
    const uint64_t half = c.bytes / 2;
    char *const mine = c.got + c.me * half, *const to = there(j, mine);
    char *const first = there(j, c.got + (1 - c.me) * half);
    const char *const own = c.own + c.me * half, *const sent = c.own + (1 - c.me) * half;
    move_part<8>(half, [&](uint64_t at) { return load_pair(sent + at); },
                 [&](uint64_t at, pair v) { store_pair(first + at, v); });
    meet_other(j, c.number, 1);
    move_part<4>(half, [&](uint64_t at) { return two_pairs{load_pair(own + at), load_pair(mine + at)}; },
                 [&](uint64_t at, const two_pairs &v) {
                   const pair sum = sum_of(c.me, v.a, v.b);
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
}

/* Between two meetings: what there is for this PE is loaded from the other's array, U vectors at a time. */
template <int U, bare_what what> DEV void load_from_there(const job &j, const bare_call<what> &c) {
  const char *const from = there(j, c.own);
  if (what == bare_broadcast) {
    const char *const source = c.gets ? from : c.own;
    move_part<U>(c.bytes, [&](uint64_t at) { return load_pair(source + at); },
                 [&](uint64_t at, pair v) { store_pair(c.got + at, v); });
    return;
  }
  move_part<U>(c.bytes, [&](uint64_t at) { return two_pairs{load_pair(c.own + at), load_pair(from + at)}; },
               [&](uint64_t at, const two_pairs &v) {
                 if (c.keeps) store_pair(c.kept + at, v.a);
                 store_pair(c.got + at, c.sums ? sum_of(c.me, v.a, v.b) : v.b);
               });
}
