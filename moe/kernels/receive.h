/* The receiver's part of dispatch: all blocks learn the routing of all tokens, each computes the places of the
 * rows that it takes, and moves these from where they arrived to every place that wants them.
 *
 * MOE_LAYOUT: 0 expert-major, 1 rank-major, 2 flat. */
#ifndef MOE_LAYOUT
#define MOE_LAYOUT 0
#endif

namespace moe {

/* The places of a row, found by a warp. */
struct placed {
  uint32_t places[most_top_k];
  uint32_t copies;
};

/* What a block knows of a round, in shared memory. Tokens of all sources stand one behind the other. */
struct known {
  uint32_t counts[most_ranks];    /* tokens of each source */
  uint32_t start[most_ranks + 1]; /* the first token of each source; at the end how many there are */
  uint32_t wrong;                 /* the first token with an expert that does not exist */
  int failure;                    /* kind, with the words of note_failure */
  uint64_t rank, about, count;
};

/* Dynamic shared memory: the experts of all tokens, in words of four; then for each expert of this rank
 * the row of its next token, counted up to the row at hand; then how many tokens each of all experts has. */
struct table {
  uint64_t *ids;
  uint32_t *before, *totals;
};
__device__ inline table table_of(const exchange &e, const rushmem::team &t, unsigned char *shared) {
  const size_t ids = size_t(t.n_pes()) * e.max_tokens * id_words(e);
  uint64_t *words = reinterpret_cast<uint64_t *>(shared);
  uint32_t *before = reinterpret_cast<uint32_t *>(words + ids);
  return {words, before, before + e.experts_a_rank};
}

struct place_of_token {
  uint32_t source, token;
};
__device__ inline place_of_token locate(const known &k, uint32_t ranks, uint32_t at) {
  uint32_t source = 0;
  while (source + 1 < ranks && k.start[source + 1] <= at) ++source;
  return {source, at - k.start[source]};
}

/* By one thread: the first failure counts; each thread that finds one finds the same, or one of the same kind
 * with a lower rank, as all go through tokens in one order. */
__device__ inline void fail_round(known &k, int kind, uint64_t rank, uint64_t about, uint64_t count) {
  k.failure = kind;
  k.rank = rank;
  k.about = about;
  k.count = count;
}

/* Counts that are none. */
constexpr uint32_t unknown = ~0u, too_many = ~0u - 1;

__device__ inline uint32_t id_at(uint64_t four, uint32_t i) { return static_cast<uint32_t>(four >> (16 * i)) & 0xffff; }

__device__ inline uint64_t *ids_of(const exchange &e, const table &all, place_of_token p) {
  return all.ids + (p.source * e.max_tokens + p.token) * id_words(e);
}

/* A word of a token's experts, once it has come. */
__device__ inline void keep_word(known &k, uint64_t *to, uint64_t four, uint32_t number) {
  *to = four;
  for (uint32_t j = 0; j < 4; ++j) {
    if (id_at(four, j) == unheard) atomicMin(&k.wrong, number);
  }
}

/* How many tokens each source has, and their experts. Both are waited for at once, as the loads of a wait take
 * as long as the link: a thread polls a word that may never come, until its source's count says so. */
__device__ inline void learn_routing(const exchange &e, const rushmem::team &t, uint64_t round, known &k, const table &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), set = round & 1;
  volatile uint32_t *const counts = k.counts;
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) counts[rank] = unknown;
  if (threadIdx.x == 0) {
    k.failure = 0;
    k.wrong = ~0u;
    k.start[0] = 0;
  }
  __syncthreads();
  /* From the block's end: the words that are sure to come are other threads'. */
  for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < ranks; i += blockDim.x) {
    const uint64_t said = is_absent(e, i) ? 0 : rushmem::wait_packed(routing_of(e, ranks, set, i), round);
    counts[i] = said > e.max_tokens ? too_many : static_cast<uint32_t>(said);
  }
  const uint32_t each = e.max_tokens * words;
  for (uint32_t i = threadIdx.x; i < ranks * each; i += blockDim.x) {
    const uint32_t source = ranks == 1 ? 0 : i / each, at = i - source * each, token = words == 1 ? at : at / words;
    const packet *slot = routing_of(e, ranks, set, source) + 1 + size_t(token) * e.routing_words + (at - token * words);
    uint64_t four = 0;
    bool has = rushmem::test_packed(slot, round, &four);
    while (!has) {
      const uint32_t n = counts[source];
      if (n == unknown) {
        has = rushmem::test_packed(slot, round, &four);
        continue;
      }
      if (n == too_many || token >= n) break;
      four = rushmem::wait_packed(slot, round);
      has = true;
    }
    if (has) keep_word(k, all.ids + i, four, i / words);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t n = counts[rank];
      if (n == too_many) {
        if (!k.failure) fail_round(k, too_many_tokens, rank, 0, routing_of(e, ranks, set, rank)->value);
        n = counts[rank] = 0;
      }
      k.start[rank + 1] = k.start[rank] + n;
    }
  }
  __syncthreads();
}

/* The lowest of all threads' values, on all. */
__device__ inline uint32_t lowest(uint32_t value, uint32_t *shared) {
  __syncthreads();
  if (threadIdx.x == 0) *shared = ~0u;
  __syncthreads();
  if (value != ~0u) atomicMin(shared, value);
  __syncthreads();
  return *shared;
}

__device__ inline uint32_t padded(const exchange &e, uint32_t rows) { return (rows + e.align - 1) / e.align * e.align; }

/* The block that counts for the result: the last, which has the fewest rows. */
__device__ inline bool is_clerk() { return blockIdx.x == gridDim.x - 1; }

/* Counts the tokens of every expert, on all ranks alike, and looks for errors. Where no expert can have too
 * many, one block alone counts. */
__device__ inline void judge(const exchange &e, const rushmem::team &t, known &k, const table &all) {
  __shared__ uint32_t first;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e);
  if (k.wrong != ~0u) {
    if (threadIdx.x == 0 && !k.failure) {
      fail_round(k, no_such_expert, k.wrong / e.max_tokens, k.wrong % e.max_tokens, 0);
    }
    __syncthreads();
  }
  const bool can_fail = MOE_LAYOUT == 2 || (MOE_LAYOUT == 0 && e.capacity < ranks * e.max_tokens);
  if (MOE_LAYOUT == 1 || !(can_fail || is_clerk())) return;
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) all.totals[i] = 0;
  __syncthreads();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t *ids = ids_of(e, all, {rank, 0});
    for (uint32_t i = threadIdx.x; i < (k.start[rank + 1] - k.start[rank]) * words; i += blockDim.x) {
      const uint64_t four = ids[i];
      for (uint32_t j = 0; j < 4; ++j) {
        if (id_at(four, j) < unheard) atomicAdd(all.totals + id_at(four, j), 1u);
      }
    }
  }
  __syncthreads();
  if (!can_fail) return;
  uint32_t over = ~0u;
#if MOE_LAYOUT == 0
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) {
    if (all.totals[i] > e.capacity && i < over) over = i;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) {
    fail_round(k, over_capacity, over / e.experts_a_rank, over, all.totals[over]);
  }
#elif MOE_LAYOUT == 2
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
    uint32_t rows = 0;
    for (uint32_t i = rank * e.experts_a_rank; i < (rank + 1) * e.experts_a_rank && i < e.experts; ++i) rows += padded(e, all.totals[i]);
    if (rows > e.capacity && rank < over) over = rank;
  }
  over = lowest(over, &first);
  if (over != ~0u && threadIdx.x == 0 && !k.failure) {
    uint32_t rows = 0;
    for (uint32_t i = over * e.experts_a_rank; i < (over + 1) * e.experts_a_rank && i < e.experts; ++i) rows += padded(e, all.totals[i]);
    fail_round(k, over_capacity, over, e.experts, rows);
  }
#endif
  __syncthreads();
}

/* The first row of each expert of this rank. */
__device__ inline void begin_places(const exchange &e, uint32_t first, const table &all) {
  for (uint32_t i = threadIdx.x; i < e.experts_a_rank; i += blockDim.x) {
    uint32_t row = i * e.capacity;
    if (MOE_LAYOUT == 2) {
      row = 0;
      for (uint32_t j = first; j < first + i && j < e.experts; ++j) row += padded(e, all.totals[j]);
    }
    all.before[i] = row;
  }
}

/* Counts the tokens from number `from` up to `to`. */
__device__ inline void advance(const exchange &e, const rushmem::team &t, const known &k, const table &all, uint32_t from,
                               uint32_t to) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t begin = k.start[rank], end = k.start[rank + 1];
    if (end <= from || begin >= to) continue;
    const uint32_t low = from > begin ? from - begin : 0, high = (to < end ? to : end) - begin;
    const uint64_t *ids = ids_of(e, all, {rank, low});
    for (uint32_t i = threadIdx.x; i < (high - low) * id_words(e); i += blockDim.x) {
      const uint64_t four = ids[i];
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t local = id_at(four, j) - first;
        if (id_at(four, j) < unheard && local < e.experts_a_rank) atomicAdd(all.before + local, 1u);
      }
    }
  }
}

/* By a warp: the places of token `at`, in this rank's part of the result; and where combine finds them.
 * `before` counts the tokens before number `base`; those from there on the warp looks at itself. */
__device__ inline void place(const exchange &e, const rushmem::team &t, const received &r, const known &k, const table &all,
                             uint32_t base, uint32_t at, place_of_token p, bool tell, placed &to) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank, words = id_words(e);
  uint32_t id = nowhere;
  if (lane < e.top_k) id = id_at(ids_of(e, all, p)[lane / 4], lane % 4);
  const uint32_t local = id - first;
  const bool here = id < unheard && local < e.experts_a_rank;
  const uint32_t ours = __ballot_sync(all_lanes, here);
#if MOE_LAYOUT == 1
  static_cast<void>(base);
  static_cast<void>(at);
  static_cast<void>(words);
  static_cast<void>(k);
  if (lane == 0) {
    const uint32_t row = p.source * e.max_tokens + p.token;
    to.copies = ours != 0 ? 1 : 0;
    to.places[0] = row;
    if (tell && ours != 0 && r.sources) r.sources[row] = static_cast<int32_t>(row);
  }
#else
  /* An expert that a token names twice has it twice. */
  const uint32_t alike = __match_any_sync(all_lanes, id), below = (1u << lane) - 1;
  if (here) {
    uint32_t row = all.before[local] + __popc(alike & below);
    for (uint32_t other = base; other < at; ++other) {
      const uint64_t *ids = ids_of(e, all, locate(k, static_cast<uint32_t>(t.n_pes()), other));
      for (uint32_t i = 0; i < words; ++i) {
        const uint64_t four = ids[i];
        for (uint32_t j = 0; j < 4; ++j) row += id_at(four, j) == id ? 1 : 0;
      }
    }
    to.places[__popc(ours & below)] = row;
    if (tell) {
      e.positions[(size_t(p.source) * e.max_tokens + p.token) * e.top_k + lane] = static_cast<int32_t>(row);
      if (r.sources) r.sources[row] = static_cast<int32_t>(p.source * e.max_tokens + p.token);
    }
  }
  if (lane == 0) to.copies = __popc(ours);
#endif
  __syncwarp();
}

/* ---- rows ---- */

/* How many bytes a scale has in the result. */
constexpr uint32_t scale_bytes = MOE_SCALES == 1 ? 1 : 4;

/* A part of a row that comes as packets: each is waited for by itself. */
__device__ inline void take_packets(const exchange &e, const received &r, const packet *slots, uint64_t round, uint32_t part,
                                    uint32_t parts, const placed &to) {
  const uint32_t data_words = e.data_bytes / 8;
  const range data = part_of(data_words, part, parts), side = part_of(e.row_words - data_words, part, parts);
  for (uint32_t base = data.begin; base < data.end; base += 2 * lanes) {
    /* Two in flight. */
    const uint32_t w = base + lane_of(), next = w + lanes;
    uint64_t first = 0, second = 0;
    const bool has = w < data.end && rushmem::test_packed(slots + w, round, &first);
    const bool has_next = next < data.end && rushmem::test_packed(slots + next, round, &second);
    if (w < data.end && !has) first = rushmem::wait_packed(slots + w, round);
    if (next < data.end && !has_next) second = rushmem::wait_packed(slots + next, round);
    for (uint32_t i = 0; i < to.copies; ++i) {
      unsigned char *row = r.x + size_t(to.places[i]) * e.data_bytes;
      if (w < data.end) store8(row + size_t(w) * 8, first);
      if (next < data.end) store8(row + size_t(next) * 8, second);
    }
  }
  for (uint32_t w = side.begin + lane_of(); w < side.end; w += lanes) {
    const uint64_t value = rushmem::wait_packed(slots + data_words + w, round);
    for (uint32_t i = 0; r.side && i < to.copies; ++i) {
      unsigned char *beside = r.side + size_t(to.places[i]) * e.side_bytes;
#if MOE_CAST
      if (scale_bytes == 1) beside[w] = static_cast<unsigned char>(value);
      else store4(beside + size_t(w) * 4, static_cast<uint32_t>(value));
#else
      store8(beside + size_t(w) * 8, value);
#endif
    }
  }
}

/* A part of a row that has come: the part that its flag stands for, and of that the scales of its columns. */
__device__ inline void take_row(const exchange &e, const received &r, const unsigned char *row, uint32_t part, uint32_t parts,
                                const placed &to) {
#if MOE_CAST
  /* As the sender cut it: by groups. */
  const range groups = part_of((e.hidden + group_columns - 1) / group_columns, part, parts);
  const uint32_t end = groups.end * 8, quads = e.data_bytes / 16;
  const range data = {groups.begin * 8, end < quads ? end : quads};
#else
  const range data = part_of(e.data_bytes / 16, part, parts), side = part_of(e.side_bytes / 16, part, parts);
#endif
  for (uint32_t base = data.begin + lane_of(); base < data.end; base += held * lanes) {
    uint4 v[held];
#pragma unroll
    for (uint32_t i = 0; i < held; ++i) v[i] = quad_of(row, base + i * lanes, data.end);
    for (uint32_t c = 0; c < to.copies; ++c) {
      unsigned char *copy = r.x + size_t(to.places[c]) * e.data_bytes;
#pragma unroll
      for (uint32_t i = 0; i < held; ++i) {
        if (base + i * lanes < data.end) store16(copy + size_t(base + i * lanes) * 16, v[i]);
      }
    }
  }
  if (!r.side) return;
  const unsigned char *beside = row + e.data_bytes;
#if MOE_CAST
  for (uint32_t g = groups.begin + lane_of(); g < groups.end; g += lanes) {
    for (uint32_t c = 0; c < to.copies; ++c) {
      unsigned char *copy = r.side + size_t(to.places[c]) * e.side_bytes;
      if (scale_bytes == 1) copy[g] = beside[g];
      else store4(copy + size_t(g) * 4, load4(beside + size_t(g) * 4));
    }
  }
#else
  for (uint32_t i = side.begin + lane_of(); i < side.end; i += lanes) {
    const uint4 v = load16(beside + size_t(i) * 16);
    for (uint32_t c = 0; c < to.copies; ++c) store16(r.side + size_t(to.places[c]) * e.side_bytes + size_t(i) * 16, v);
  }
#endif
}

/* By all blocks: what else a result says. */
__device__ inline void tell_of_round(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, known &k,
                                     const table &all) {
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  if (is_clerk() && r.counts) {
#if MOE_LAYOUT == 1
    const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
    for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) {
      r.counts[i] = k.failure ? 0 : static_cast<int32_t>(k.start[i + 1] - k.start[i]);
    }
#else
    for (uint32_t i = threadIdx.x; i < e.experts_a_rank; i += blockDim.x) {
      r.counts[i] = k.failure || first + i >= e.experts ? 0 : static_cast<int32_t>(all.totals[first + i]);
    }
#endif
  }
#if MOE_LAYOUT == 1
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  const uint32_t n = ranks * e.max_tokens * e.top_k;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const uint32_t at = i / e.top_k, j = i - at * e.top_k, source = at / e.max_tokens, token = at - source * e.max_tokens;
    const bool has = !k.failure && token < k.start[source + 1] - k.start[source];
    const uint32_t id = has ? id_at(ids_of(e, all, {source, token})[j / 4], j % 4) : nowhere;
    const bool here = id < unheard && id - first < e.experts_a_rank;
    if (r.experts) r.experts[i] = here ? static_cast<int32_t>(id - first) : -1;
    if (r.weights && e.weighted && has) {
      const packet *slots = routing_of(e, ranks, round & 1, source) + 1 + size_t(token) * e.routing_words + id_words(e);
      const uint64_t two = rushmem::wait_packed(slots + j / 2, round);
      r.weights[i] = __uint_as_float(static_cast<uint32_t>(j % 2 ? two >> 32 : two));
    }
  }
#else
  static_cast<void>(round);
#endif
}

/* All of this block's part of receiving. */
__device__ inline void receive(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, unsigned char *shared) {
  __shared__ known k;
  __shared__ placed of_warps[warps];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t first = me * e.experts_a_rank;
  const table all = table_of(e, t, shared);
  learn_routing(e, t, round, k, all);
  judge(e, t, k, all);
  if (k.failure && blockIdx.x == 0 && threadIdx.x == 0) note_failure(e, round, k.failure, k.rank, k.about, k.count);
  tell_of_round(e, t, r, round, k, all);
  if (k.failure) return;
  begin_places(e, first, all);
  __syncthreads();
  placed &to = of_warps[warp_of()];
  const uint32_t total = k.start[ranks];
  /* Rows that come as packets are cut as suits, others as their flags are, of which sources may have different
   * numbers: a row has as many items as any needs. */
  uint32_t parts = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = k.counts[rank], wanted = n <= e.few ? parts_of(total, (e.row_words + lanes - 1) / lanes) : flags_of(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  const uint32_t items = total * parts;
  const dealt d = deal(items);
  uint32_t counted = 0;
  for (uint32_t turn = d.first; turn < items; turn += d.step) {
    /* Rows in their order, as `before` only grows. */
    const uint32_t base = turn / parts, item = turn + warp_of();
    if (MOE_LAYOUT != 1 && base != counted) {
      __syncthreads();
      advance(e, t, k, all, counted, base);
      counted = base;
      __syncthreads();
    }
    if (warp_of() >= d.each || item >= items) continue;
    const uint32_t at = item / parts, part = item - at * parts;
    const place_of_token p = locate(k, ranks, at);
    const uint32_t n = k.counts[p.source], flags = flags_of(e, n);
    const bool packed = n <= e.few;
    if (!packed && part >= flags) continue;
    place(e, t, r, k, all, base, at, p, part == 0, to);
    if (to.copies != 0 && packed) {
      take_packets(e, r, packets_of(e, ranks, round & 1, p.source, p.token), round, part, parts, to);
    } else if (to.copies != 0) {
      const size_t row = row_index(e, ranks, round & 1, p.source, p.token);
      /* One lane acquires for the warp, which meets behind it. */
      if (lane_of() == 0) rushmem::signal_wait_until(e.row_flags + row * e.parts + part, rushmem::cmp::ge, round);
      __syncwarp();
      take_row(e, r, e.rows + row * e.row_bytes, part, flags, to);
    }
    __syncwarp();
  }
}

}  // namespace moe
