/* The receiver's part of dispatch: all blocks learn the routing of all tokens, each computes the places of the
 * rows that it takes, and moves these from where they arrived to every place that wants them.
 *
 * MOE_LAYOUT: 0 expert-major, 1 rank-major, 2 flat. */
#ifndef MOE_LAYOUT
#define MOE_LAYOUT 0
#endif

namespace moe {

/* What a block knows of a round, in shared memory. Tokens of all sources stand one behind the other. */
struct known {
  uint32_t start[most_ranks + 1]; /* the first token of each source; at the end how many there are */
  int failure;                    /* kind, with the words of note_failure */
  uint64_t rank, about, count;
  /* Of the row that is being received. */
  uint32_t places[most_top_k];
  uint32_t copies;
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

/* How many tokens each source has, of this round. Where none are waited for they have come. */
__device__ inline void learn_counts(const exchange &e, const rushmem::team &t, uint64_t round, known &k) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  for (uint32_t rank = threadIdx.x; rank < ranks; rank += blockDim.x) {
    const packet *head = routing_of(e, ranks, round & 1, rank);
    /* A count that is too large is kept as such, and a failure. */
    const uint64_t said = is_absent(e, rank) ? 0 : rushmem::wait_packed(head, round);
    k.start[rank + 1] = said > e.max_tokens ? ~0u : static_cast<uint32_t>(said);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    k.failure = 0;
    k.start[0] = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t n = k.start[rank + 1];
      if (n == ~0u) {
        if (!k.failure) fail_round(k, too_many_tokens, rank, 0, rushmem::wait_packed(routing_of(e, ranks, round & 1, rank), round));
        n = 0;
      }
      k.start[rank + 1] = k.start[rank] + n;
    }
  }
  __syncthreads();
}

/* The experts of all tokens. */
__device__ inline void learn_experts(const exchange &e, const rushmem::team &t, uint64_t round, known &k, const table &all) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), total = k.start[ranks];
  for (uint32_t i = threadIdx.x; i < total * words; i += blockDim.x) {
    const uint32_t at = i / words, word = i - at * words;
    const place_of_token p = locate(k, ranks, at);
    const packet *slots = routing_of(e, ranks, round & 1, p.source) + 1 + size_t(p.token) * e.routing_words;
    all.ids[i] = rushmem::wait_packed(slots + word, round);
  }
  __syncthreads();
}

__device__ inline uint32_t id_at(uint64_t four, uint32_t i) { return static_cast<uint32_t>(four >> (16 * i)) & 0xffff; }

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

/* Counts the tokens of every expert, on all ranks alike, and looks for errors. */
__device__ inline void judge(const exchange &e, const rushmem::team &t, known &k, const table &all) {
  __shared__ uint32_t first;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), n = k.start[ranks] * words;
  /* Where nothing can be too many, one block counts, for the result's counts. */
  const bool counts = blockIdx.x == 0 || MOE_LAYOUT == 2 || (MOE_LAYOUT == 0 && e.capacity < ranks * e.max_tokens);
  for (uint32_t i = threadIdx.x; i < e.experts; i += blockDim.x) all.totals[i] = 0;
  __syncthreads();
  uint32_t wrong = ~0u;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const uint64_t four = all.ids[i];
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t id = id_at(four, j);
      if (id < unheard) {
        if (counts) atomicAdd(all.totals + id, 1u);
      } else if (id == unheard && wrong == ~0u) {
        wrong = i / words;
      }
    }
  }
  wrong = lowest(wrong, &first);
  if (wrong != ~0u && threadIdx.x == 0 && !k.failure) {
    const place_of_token p = locate(k, ranks, wrong);
    fail_round(k, no_such_expert, p.source, p.token, 0);
  }
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
__device__ inline void advance(const exchange &e, uint32_t first, const table &all, uint32_t from, uint32_t to) {
  const uint32_t words = id_words(e);
  for (uint32_t i = from * words + threadIdx.x; i < to * words; i += blockDim.x) {
    const uint64_t four = all.ids[i];
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t local = id_at(four, j) - first;
      if (id_at(four, j) < unheard && local < e.experts_a_rank) atomicAdd(all.before + local, 1u);
    }
  }
}

/* By the first warp: the places of token `at`, in this rank's part of the result; and where combine finds
 * them. `before` counts the tokens before it. */
__device__ inline void place(const exchange &e, const rushmem::team &t, const received &r, known &k, const table &all, uint32_t at,
                             place_of_token p, bool tell) {
  const uint32_t lane = threadIdx.x, first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  uint32_t id = nowhere;
  if (lane < e.top_k) id = id_at(all.ids[at * id_words(e) + lane / 4], lane % 4);
  const uint32_t local = id - first;
  const bool here = id < unheard && local < e.experts_a_rank;
  const uint32_t ours = __ballot_sync(0xffffffffu, here);
#if MOE_LAYOUT == 1
  if (lane == 0) {
    k.copies = ours != 0 ? 1 : 0;
    k.places[0] = p.source * e.max_tokens + p.token;
  }
#else
  /* An expert that a token names twice has it twice. */
  const uint32_t alike = __match_any_sync(0xffffffffu, id), below = (1u << lane) - 1;
  if (here) {
    const uint32_t row = all.before[local] + __popc(alike & below);
    k.places[__popc(ours & below)] = row;
    if (tell) {
      e.positions[(size_t(p.source) * e.max_tokens + p.token) * e.top_k + lane] = static_cast<int32_t>(row);
      if (r.sources) r.sources[row] = static_cast<int32_t>(p.source * e.max_tokens + p.token);
    }
  }
  if (lane == 0) k.copies = __popc(ours);
#endif
  if (lane == 0 && MOE_LAYOUT == 1 && tell && ours != 0 && r.sources) r.sources[k.places[0]] = static_cast<int32_t>(k.places[0]);
}

/* ---- rows ---- */

/* How many bytes a scale has in the result. */
constexpr uint32_t scale_bytes = MOE_SCALES == 1 ? 1 : 4;

/* Chunk `chunk` of a row that comes as packets: each is waited for by itself. */
__device__ inline void take_packets(const exchange &e, const received &r, const packet *slots, uint64_t round, uint32_t chunk,
                                    uint32_t chunks, const known &k) {
  const uint32_t data_words = e.data_bytes / 8;
  const range data = part_of(data_words, chunk, chunks), side = part_of(e.row_words - data_words, chunk, chunks);
  for (uint32_t w = data.begin + threadIdx.x; w < data.end; w += blockDim.x) {
    const uint64_t value = rushmem::wait_packed(slots + w, round);
    for (uint32_t i = 0; i < k.copies; ++i) store8(r.x + size_t(k.places[i]) * e.data_bytes + size_t(w) * 8, value);
  }
  /* From the block's end, so that other threads take these. */
  for (uint32_t w = side.begin + (blockDim.x - 1 - threadIdx.x); w < side.end; w += blockDim.x) {
    const uint64_t value = rushmem::wait_packed(slots + data_words + w, round);
    for (uint32_t i = 0; r.side && i < k.copies; ++i) {
      unsigned char *beside = r.side + size_t(k.places[i]) * e.side_bytes;
#if MOE_CAST
      if (scale_bytes == 1) beside[w] = static_cast<unsigned char>(value);
      else store4(beside + size_t(w) * 4, static_cast<uint32_t>(value));
#else
      store8(beside + size_t(w) * 8, value);
#endif
    }
  }
}

/* A chunk of a row that has come. */
__device__ inline void take_row(const exchange &e, const received &r, const unsigned char *row, uint32_t chunk, uint32_t chunks,
                                const known &k) {
  const range data = part_of(e.data_bytes / 16, chunk, chunks), side = part_of(e.side_bytes / 4, chunk, chunks);
  for (uint32_t i = data.begin + threadIdx.x; i < data.end; i += blockDim.x) {
    const uint4 v = load16(row + size_t(i) * 16);
    for (uint32_t c = 0; c < k.copies; ++c) store16(r.x + size_t(k.places[c]) * e.data_bytes + size_t(i) * 16, v);
  }
  for (uint32_t i = side.begin + (blockDim.x - 1 - threadIdx.x); r.side && i < side.end; i += blockDim.x) {
    const uint32_t v = load4(row + e.data_bytes + size_t(i) * 4);
    for (uint32_t c = 0; c < k.copies; ++c) store4(r.side + size_t(k.places[c]) * e.side_bytes + size_t(i) * 4, v);
  }
}

/* By all blocks: what else a result says. */
__device__ inline void tell_of_round(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, known &k,
                                     const table &all) {
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  if (blockIdx.x == 0 && r.counts) {
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
    const uint32_t id = has ? id_at(all.ids[(k.start[source] + token) * id_words(e) + j / 4], j % 4) : nowhere;
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
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t first = me * e.experts_a_rank;
  const table all = table_of(e, t, shared);
  learn_counts(e, t, round, k);
  learn_experts(e, t, round, k, all);
  judge(e, t, k, all);
  if (k.failure && blockIdx.x == 0 && threadIdx.x == 0) note_failure(e, round, k.failure, k.rank, k.about, k.count);
  tell_of_round(e, t, r, round, k, all);
  if (k.failure) return;
  begin_places(e, first, all);
  const uint32_t total = k.start[ranks], chunks = chunks_of(total, (e.row_words + 63) / 64);
  uint32_t counted = 0;
  for (uint32_t item = blockIdx.x; item < total * chunks; item += gridDim.x) {
    /* Rows in their order, as `before` only grows. */
    const uint32_t at = item / chunks, chunk = item - at * chunks;
    const place_of_token p = locate(k, ranks, at);
    __syncthreads();
    if (MOE_LAYOUT != 1) advance(e, first, all, counted, at);
    counted = at;
    __syncthreads();
    if (threadIdx.x < 32) place(e, t, r, k, all, at, p, chunk == 0);
    __syncthreads();
    if (k.copies == 0) continue;
    const bool packed = k.start[p.source + 1] - k.start[p.source] <= e.few;
    if (packed) {
      take_packets(e, r, packets_of(e, ranks, round & 1, p.source, p.token), round, chunk, chunks, k);
      continue;
    }
    const size_t row = row_index(e, ranks, round & 1, p.source, p.token);
    /* One thread acquires for the block, which meets behind it. */
    if (threadIdx.x == 0) rushmem::signal_wait_until(e.row_flags + row, rushmem::cmp::ge, round);
    __syncthreads();
    take_row(e, r, e.rows + row * e.row_bytes, chunk, chunks, k);
  }
}

}  // namespace moe
