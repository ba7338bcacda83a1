/* Collectives of two PEs on streams by bare instructions (bare.cuh). Three forms, as the library has them at
 * these sizes: packets of a word, a word a thread; rows of four lines of 128 bytes, of which 8 are a number,
 * by warps; stores into the arrays between meetings. A kernel begins when it is its turn, and lets the next
 * one come once it has heard of the other PE. `op` is a broadcast's root. */

/* The call whose turn it is. */
template <bare_what what> struct call_in_turn : bare_call<what> {
  static __device__ __forceinline__ uint64_t *line(const job &j) { return j.room + blockIdx.x * LINE; }
  static __device__ __forceinline__ uint64_t await_number(const job &j) {
    rushmem::await_stream();
    return rushmem::impl::load_plain_word(line(j)) + 1;
  }
  explicit __device__ __forceinline__ call_in_turn(const job &j)
      : bare_call<what>(j, await_number(j), int(j.op)) {}
  __device__ __forceinline__ void end(const job &j) const {
    __syncthreads();
    if (threadIdx.x == 0) rushmem::impl::store_plain_word(line(j), this->number);
  }
};

template <bare_what what> DEV void by_packets(const job &j) {
  const call_in_turn<what> c(j);
  const uint64_t w = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, at = w * 8;
  /* Of a broadcast the first thread of a block hears of the other PE either way. */
  const bool has = at < c.bytes, first = what == bare_broadcast && threadIdx.x == 0;
  packet *const here = packets_of(j, c.number) + w;
  const uint64_t sent = has && c.sends ? word_of(c.sent + at) : 0;
  const uint64_t own = c.shares && has ? word_of(c.own + at) : sent;
  if ((has && c.sends) || first) store_packet(there(j, here), sent, c.number);
  if (has && c.leaves_own()) leave_word(c.kept + at, own);
  if ((has && c.gets) || first) {
    packet seen;
    spin_until([&] { return (seen = load_packet(here)).sequence == c.number; });
    rushmem::impl::let_next_kernel_come();
    if (has && c.gets) leave_word(c.got + at, c.sums ? sum_of(c.me, own, seen.value) : seen.value);
  }
  c.end(j);
}

/* A warp has up to three rows, of 480 bytes of data each. */
template <bare_what what> DEV void by_rows(const job &j) {
  constexpr int R = 3;
  const call_in_turn<what> c(j);
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
  const uint32_t first = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const uint32_t rows = (uint32_t(c.bytes) + 479) / 480;
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
  if (c.leaves_own()) {
    each([&](int r, uint32_t, uint32_t at, bool low, bool high) {
      if (low) leave_word(c.kept + at, own[r][0]);
      if (high) leave_word(c.kept + at + 8, own[r][1]);
    });
  }
  uint64_t *const arrival = arrival_of(j);
  if (what == bare_broadcast && c.gets && threadIdx.x == 0) {
    rushmem::impl::store_relaxed_word(there(j, arrival), c.number * 4);
  }
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
  c.end(j);
}

/* A share of sums is loaded from there, which is one way less. */
template <bare_what what> DEV void by_meetings(const job &j) {
  const call_in_turn<what> c(j);
  meet_other(j, c.number, 0);
  rushmem::impl::let_next_kernel_come();
  if (what == bare_reducescatter) load_from_there<4>(j, c);
  else store_there(j, c);
  meet_other(j, c.number, 2);
  c.end(j);
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
