/* The forms of bare collectives of two PEs inside kernels (bare.cuh). A call ends with its threads together,
 * as a caller needs it: what has come is there for all of them.
 *
 * - Packets of a word: each thread sends some, and receives them while the next ones are on their way.
 * - Rows of eight lines of 128 bytes, of which 8 are a number: the same by warps.
 * - Stores into the other's array, or loads from it, between two meetings; of a sum also both: each PE adds a
 *   half, which goes to both.
 *
 * Packets and rows of a call replace those of two calls before, in `room`. These have been taken: a block
 * returns from a call when it has something that the other's block sent in it, and that one's threads were
 * together at the end of the call before. So a root, too, waits for a word of the other's. */

/* `send(at)` and `receive(at)` of all steps: one is sent before the one before is received. */
template <typename Send, typename Receive>
DEV void in_steps(span all, uint32_t step, Send send, Receive receive) {
  RUSHMEM_ROLLED
  for (uint32_t at = all.begin; at < all.end + step; at += step) {
    if (at < all.end) send(at);
    if (at != all.begin) receive(at - step);
  }
}

/* Waits for those of 0 .. N that `wanted` has a bit of: loads all that have not come by `load(i)` together,
 * and `has_come(i)` says what came of it. */
template <int N, typename Load, typename HasCome>
DEV void await_all(uint32_t wanted, Load load, HasCome has_come) {
  spin_until([&] {
    RUSHMEM_UNROLL
    for (int i = 0; i < N; ++i) {
      if (wanted >> i & 1) load(i);
    }
    RUSHMEM_UNROLL
    for (int i = 0; i < N; ++i) {
      if ((wanted >> i & 1) && has_come(i)) wanted &= ~(1u << i);
    }
    return wanted == 0;
  });
}

/* Of a broadcast: what the root waits for at its end. */
template <bare_what what> DEV void tell_root(const job &j, const bare_call<what> &c) {
  if (what != bare_broadcast || c.sends || threadIdx.x != 0) return;
  rushmem::impl::store_relaxed_word(there(j, arrival_of(j)), c.number * 4);
}
template <bare_what what> DEV void hear_as_root(const job &j, const bare_call<what> &c) {
  if (what != bare_broadcast || !c.sends || threadIdx.x != 0) return;
  spin_until([&] { return rushmem::impl::load_relaxed_word(arrival_of(j)) >= c.number * 4; });
}

/* A word of 8 bytes, or an element. */
template <int size> DEV uint64_t load_unit(const char *at) {
  if (size == 8) return word_of(at);
  return rushmem::impl::load_relaxed_word(reinterpret_cast<const uint32_t *>(at));
}
template <int size> DEV void leave_unit(char *at, uint64_t value) {
  if (size == 8) leave_word(at, value);
  else rushmem::impl::store_relaxed_word(reinterpret_cast<uint32_t *>(at), uint32_t(value));
}

/* A packet of each thread at most, of `size` bytes of data. Addresses are in registers before the first
 * call. */
template <typename Threads, int size, bare_what what> struct packet_each {
  const job &j;
  bool has;
  const char *sent, *own;
  char *kept, *got;
  packet *here, *to;

  explicit __device__ __forceinline__ packet_each(const job &job_) : j(job_) {
    using rushmem::impl::opaque;
    const bare_call<what> c(j, 0, 0);
    const span mine = part_of_block(uint32_t(c.bytes) / size);
    const uint32_t w = mine.begin + threadIdx.x;
    has = w < mine.end;
    sent = opaque(c.sent + w * size), own = opaque(c.own + w * size);
    kept = opaque(c.kept + w * size), got = opaque(c.got + w * size);
    here = opaque(packets_of(j, 0) + w), to = opaque(there(j, here));
  }
  __device__ __forceinline__ void operator()(const bare_call<what> &c) const {
    const uint32_t set = uint32_t(c.number) % 2 * (PACKETS_APART / sizeof(packet));
    tell_root(j, c);
    if (has) {
      const uint64_t value = c.sends ? load_unit<size>(sent) : 0;
      const uint64_t mine = c.shares ? load_unit<size>(own) : value;
      if (c.sends) store_packet(to + set, value, c.number);
      if (c.leaves_own()) leave_unit<size>(kept, mine);
      if (c.gets) {
        packet seen;
        spin_until([&] { return (seen = load_packet(here + set)).sequence == c.number; });
        leave_unit<size>(got, c.sums ? sum_of(c.me, mine, seen.value) : seen.value);
      }
    }
    hear_as_root(j, c);
    Threads::sync();
  }
};

/* A thread has U packets of a word under way together. */
template <int U, bare_what what> DEV void by_packets(const job &j, const bare_call<what> &c) {
  const span mine = part_of_block(uint32_t(c.bytes) / 8);
  packet *const here = packets_of(j, c.number), *const to = there(j, here);
  const auto each = [&](uint32_t at, auto of) {
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      const uint32_t w = at + threadIdx.x + u * blockDim.x;
      if (w < mine.end) of(u, w);
    }
  };
  const auto send = [&](uint32_t at) {
    uint64_t v[U];
    if (!c.sends) return;
    each(at, [&](int u, uint32_t w) { v[u] = word_of(c.sent + w * 8); });
    each(at, [&](int u, uint32_t w) { store_packet(to + w, v[u], c.number); });
    if (!c.leaves_own()) return;
    if (c.shares) each(at, [&](int u, uint32_t w) { v[u] = word_of(c.own + w * 8); });
    each(at, [&](int u, uint32_t w) { leave_word(c.kept + w * 8, v[u]); });
  };
  const auto receive = [&](uint32_t at) {
    packet seen[U];
    uint64_t own[U];
    uint32_t wanted = 0;
    if (!c.gets) return;
    each(at, [&](int u, uint32_t w) {
      wanted |= 1u << u;
      if (c.sums) own[u] = word_of(c.own + w * 8);
    });
    await_all<U>(
        wanted, [&](int u) { seen[u] = load_packet(here + at + threadIdx.x + u * blockDim.x); },
        [&](int u) { return seen[u].sequence == c.number; });
    each(at, [&](int u, uint32_t w) {
      leave_word(c.got + w * 8, c.sums ? sum_of(c.me, own[u], seen[u].value) : seen[u].value);
    });
  };
  tell_root(j, c);
  in_steps(mine, blockDim.x * U, send, receive);
  hear_as_root(j, c);
  __syncthreads();
}

/* A warp has R rows under way together, as the library lays them out: a row is 60 vectors of 16 bytes. */
template <int R, bare_what what> DEV void by_rows(const job &j, const bare_call<what> &c) {
  using rushmem::impl::row_part;
  const rushmem::impl::row_lane l(threadIdx.x % 32);
  const bool numbers = l.has_numbers();
  const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, vectors = uint32_t(c.bytes) / 16;
  const span mine = part_of_block((vectors + 59) / 60);
  char *const here = reinterpret_cast<char *>(packets_of(j, c.number)), *const to = there(j, here);
  const auto each = [&](uint32_t at, auto of) {
    RUSHMEM_UNROLL
    for (int r = 0; r < R; ++r) {
      const uint32_t row = at + warp + r * warps;
      if (row < mine.end) of(r, row);
    }
  };
  /* Those with a number have one vector, in two halves. */
  const auto load = [&](const char *from, uint32_t row) {
    const uint32_t first = row * 60 + l.first(), second = row * 60 + l.second();
    row_part v = {};
    if (first < vectors) v.first = rushmem::impl::load_own_pair(from + first * 16);
    v.second = v.first;
    if (!numbers && second < vectors) v.second = rushmem::impl::load_own_pair(from + second * 16);
    return v;
  };
  const auto leave = [&](char *array, uint32_t row, const row_part &v) {
    const uint32_t first = row * 60 + l.first(), second = row * 60 + l.second();
    if (first < vectors) store_pair(array + first * 16, v.first);
    if (!numbers && second < vectors) store_pair(array + second * 16, v.second);
  };
  const auto send = [&](uint32_t at) {
    row_part v[R];
    if (!c.sends) return;
    each(at, [&](int r, uint32_t row) { v[r] = load(c.sent, row); });
    each(at, [&](int r, uint32_t row) { rushmem::impl::store_row(to + row * 1024, l, v[r], c.number); });
    if (!c.leaves_own()) return;
    if (c.shares) each(at, [&](int r, uint32_t row) { v[r] = load(c.own, row); });
    each(at, [&](int r, uint32_t row) { leave(c.kept, row, v[r]); });
  };
  const auto receive = [&](uint32_t at) {
    packet low[R], high[R];
    row_part own[R];
    uint32_t wanted = 0;
    if (!c.gets) return;
    each(at, [&](int r, uint32_t row) {
      wanted |= 1u << r;
      if (c.sums) own[r] = load(c.own, row);
    });
    const auto look = [&](int r) {
      const char *const row = here + (at + warp + r * warps) * 1024;
      const packet *const from = reinterpret_cast<const packet *>(row) + l.lane;
      rushmem::impl::meet_lanes();
      low[r] = load_packet(from);
      high[r] = load_packet(from + 32);
    };
    await_all<R>(wanted, look, [&](int r) {
      const bool both = low[r].sequence == c.number && high[r].sequence == c.number;
      return __all_sync(0xffffffffu, !numbers || both);
    });
    each(at, [&](int r, uint32_t row) {
#if defined(RUSHMEM_CPU)
      /* Numbers are stored last there, and a line is not loaded as a whole. */
      look(r);
#endif
      const pair first = {low[r].value, numbers ? high[r].value : low[r].sequence};
      const pair second = {high[r].value, high[r].sequence};
      if (c.sums) leave(c.got, row, {sum_of(c.me, own[r].first, first), sum_of(c.me, own[r].second, second)});
      else leave(c.got, row, {first, second});
    });
  };
  tell_root(j, c);
  in_steps(mine, warps * R, send, receive);
  hear_as_root(j, c);
  __syncthreads();
}

template <bare_what what> DEV void by_stores(const job &j, const bare_call<what> &c) {
  meet_other(j, c.number, 0);
  store_there(j, c);
  meet_other(j, c.number, 2);
}
template <bare_what what> DEV void by_loads(const job &j, const bare_call<what> &c) {
  meet_other(j, c.number, 0);
  load_from_there<8>(j, c);
  meet_other<false>(j, c.number, 1);
}
DEV void by_halves(const job &j, const bare_call<bare_reduce> &c) {
  const uint64_t half = c.bytes / 2;
  const char *const own = c.own + c.me * half, *const from = there(j, own);
  char *const mine = c.got + c.me * half, *const to = there(j, mine);
  meet_other(j, c.number, 0);
  move_part<8>(half, [&](uint64_t at) { return two_pairs{load_pair(own + at), load_pair(from + at)}; },
               [&](uint64_t at, const two_pairs &v) {
                 const pair sum = sum_of(c.me, v.a, v.b);
                 store_pair(to + at, sum);
                 store_pair(mine + at, sum);
               });
  meet_other(j, c.number, 1);
}
