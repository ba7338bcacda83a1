/* The receiver's part of dispatch: each block computes the places of the rows that its warps take, and these
 * move them from where they arrived to every place that wants them. */
namespace moe {

/* The places of a row, found by a warp. */
struct placed {
  uint32_t places[most_top_k];
  uint32_t copies;
};

/* From how many tokens of each source an expert has: the row of each source's first one. */
__device__ inline void begin_places(const exchange &e, uint32_t ranks, const table &all) {
  const uint32_t local = e.experts_a_rank;
  for (uint32_t i = threadIdx.x; i < local; i += blockDim.x) {
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const uint32_t tokens = all.before[rank * local + i];
      all.before[rank * local + i] = sum;
      sum += tokens;
    }
    all.totals[i] = MOE_LAYOUT == 2 ? padded(e, sum) : 0;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < local; i += blockDim.x) {
    uint32_t row = i * e.capacity;
    if (MOE_LAYOUT == 2) {
      row = 0;
#pragma unroll 8
      for (uint32_t j = 0; j < i; ++j) row += all.totals[j];
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) all.before[rank * local + i] += row;
  }
}

/* Counts the tokens of all sources from number `from` up to `to`. */
__device__ inline void advance(const exchange &e, const rushmem::team &t, const known &k, const table &all, uint32_t from,
                               uint32_t to) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
#pragma unroll 1
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    uint32_t *of_rank = all.before + rank * e.experts_a_rank;
    each_expert(e, k, all, rank, from, to, [&](uint32_t id) {
      if (id - first < e.experts_a_rank) atomicAdd(of_rank + (id - first), 1u);
    });
  }
}

/* By a warp: the places of a token in this rank's part of the result; and where combine finds them. `before`
 * counts each source's tokens before number `base`; those from there on the warp looks at itself. */
__device__ inline void place(const exchange &e, const rushmem::team &t, const received &r, const table &all, uint32_t base,
                             place_of_token p, bool tell, placed &to) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank, words = id_words(e);
  uint32_t id = nowhere;
  if (lane < e.top_k) id = id_at(ids_of(e, all, p)[lane / 4], lane % 4);
  const uint32_t local = id - first;
  const bool here = id < unheard && local < e.experts_a_rank;
  const uint32_t ours = __ballot_sync(all_lanes, here);
#if MOE_LAYOUT == 1
  static_cast<void>(base);
  static_cast<void>(words);
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
    uint32_t row = all.before[p.source * e.experts_a_rank + local] + __popc(alike & below);
    const uint64_t *ids = ids_of(e, all, {p.source, base});
#pragma unroll 1
    for (uint32_t i = 0; i < (p.token - base) * words; ++i) {
      const uint64_t four = ids[i];
      for (uint32_t j = 0; j < 4; ++j) row += id_at(four, j) == id ? 1 : 0;
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

/* What a packet of a row carries, to all places of the row: 8 bytes of it, or of what is beside it. */
__device__ inline void store_word(const exchange &e, const received &r, uint32_t w, uint64_t value, const placed &to) {
  const uint32_t data_words = e.data_bytes / 8;
  const bool beside = w >= data_words;
  if (beside && !r.side) return;
#pragma unroll 2
  for (uint32_t i = 0; i < to.copies; ++i) {
    if (!beside) {
      store8(r.x + size_t(to.places[i]) * e.data_bytes + size_t(w) * 8, value);
      continue;
    }
    unsigned char *side = r.side + size_t(to.places[i]) * e.side_bytes;
#if MOE_CAST
    if (scale_bytes == 1) side[w - data_words] = static_cast<unsigned char>(value);
    else store4(side + size_t(w - data_words) * 4, static_cast<uint32_t>(value));
#else
    store8(side + size_t(w - data_words) * 8, value);
#endif
  }
}

/* A part of a row that comes as packets: each is waited for by itself, a lane's two at once. */
__device__ inline void take_packets(const exchange &e, const received &r, const packet *slots, uint64_t round, range words,
                                    const placed &to) {
#pragma unroll 1
  for (uint32_t base = words.begin; base < words.end; base += 2 * lanes) {
    const uint32_t w = base + lane_of(), next = w + lanes;
    uint64_t first = 0, second = 0;
    const bool has = w < words.end && rushmem::test_packed(slots + w, round, &first);
    const bool has_next = next < words.end && rushmem::test_packed(slots + next, round, &second);
    if (w < words.end && !has) first = await(slots + w, round);
    if (next < words.end && !has_next) second = await(slots + next, round);
    if (w < words.end) store_word(e, r, w, first, to);
    if (next < words.end) store_word(e, r, next, second, to);
  }
}

/* How a receiver cuts rows: as their flags do, and the longest parts again, so that a turn is short. */
struct cutting {
  uint32_t flags, again;
};
__device__ inline cutting cutting_of(const exchange &e, uint32_t tokens) {
  const uint32_t flags = flags_of(e, tokens);
  return {flags, flags == 1 ? 4u : 1u};
}
__device__ inline range piece_of(uint32_t all, uint32_t part, cutting cut) {
  const range whole = part_of(all, part / cut.again, cut.flags);
  const range piece = part_of(whole.end - whole.begin, part % cut.again, cut.again);
  return {whole.begin + piece.begin, whole.begin + piece.end};
}

/* A part of a row that has come: of what its flag stands for, and the scales of its columns. */
__device__ inline void take_row(const exchange &e, const received &r, const unsigned char *row, uint32_t part, cutting cut,
                                const placed &to) {
#if MOE_CAST
  /* As the sender cut it: by groups. */
  const range groups = piece_of((e.hidden + group_columns - 1) / group_columns, part, cut);
  const uint32_t end = groups.end * 8, quads = e.data_bytes / 16;
  const range data = {groups.begin * 8, end < quads ? end : quads};
#else
  const range data = piece_of(e.data_bytes / 16, part, cut), side = piece_of(e.side_bytes / 16, part, cut);
#endif
#pragma unroll 1
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
#pragma unroll 1
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
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  if (is_clerk()) {
    for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) e.known[i] = k.counts[i];
#if MOE_LAYOUT == 1
    for (uint32_t i = threadIdx.x; r.counts && i < ranks; i += blockDim.x) {
      r.counts[i] = k.failure ? 0 : static_cast<int32_t>(k.counts[i]);
    }
#else
    for (uint32_t i = threadIdx.x; r.counts && i < e.experts_a_rank; i += blockDim.x) {
      uint32_t tokens = 0;
      for (uint32_t rank = 0; rank < ranks && !k.failure; ++rank) tokens += all.before[rank * e.experts_a_rank + i];
      r.counts[i] = static_cast<int32_t>(tokens);
    }
#endif
  }
#if MOE_LAYOUT == 1
  const uint32_t n = ranks * e.max_tokens * e.top_k;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const uint32_t at = i / e.top_k, j = i - at * e.top_k, source = at / e.max_tokens, token = at - source * e.max_tokens;
    const bool has = !k.failure && token < k.counts[source];
    const uint32_t id = has ? id_at(ids_of(e, all, {source, token})[j / 4], j % 4) : nowhere;
    const bool here = id < unheard && id - first < e.experts_a_rank;
    if (r.experts) r.experts[i] = here ? static_cast<int32_t>(id - first) : -1;
    if (r.weights && e.weighted && has) {
      const packet *slots = routing_of(e, ranks, round & 1, source) + 1 + size_t(token) * e.routing_words + id_words(e);
      const uint64_t two = packet_of(slots + j / 2, round);
      r.weights[i] = __uint_as_float(static_cast<uint32_t>(j % 2 ? two >> 32 : two));
    }
  }
#else
  static_cast<void>(round);
  static_cast<void>(first);
#endif
}

/* All of this block's part of receiving. */
__device__ inline void receive(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, unsigned char *shared) {
  __shared__ known k;
  __shared__ placed of_warps[warps];
  __shared__ uint32_t tickets[2];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const table all = table_of(e, t, shared);
  const uint32_t own = round & 1 ? receive_odd : receive_even;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *counter_of(e, receive_even + receive_odd - own) = 0;
    *counter_of(e, push_tickets) = 0;
    *counter_of(e, collect_tickets) = 0;
  }
  learn_routing(e, t, round, k, all);
  judge(e, t, k, all);
  if (k.failure && blockIdx.x == 0 && threadIdx.x == 0) note_failure(e, round, k.failure, k.rank, k.about, k.count);
  tell_of_round(e, t, r, round, k, all);
  if (k.failure) return;
  __syncthreads();
  if (MOE_LAYOUT != 1) begin_places(e, ranks, all);
  __syncthreads();
  placed &to = of_warps[warp_of()];
  /* Rows that come as packets are cut as suits, others as their flags are, of which sources may have
   * different numbers: a row has as many items as any needs. */
  const uint32_t rows = k.most * ranks;
  uint32_t parts = 1;
#pragma unroll 1
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = k.counts[rank];
    const cutting cut = cutting_of(e, n);
    const uint32_t wanted = n <= e.few ? parts_of(rows, (e.row_words + lanes - 1) / lanes) : cut.flags * cut.again;
    if (n != 0 && wanted > parts) parts = wanted;
  }
  const uint32_t items = rows * parts;
  const dealt d = deal(items);
  const uint32_t each = is_one_turn(items) ? d.each : warps;
  uint32_t counted = 0;
  for (turns turn(tickets, is_one_turn(items) ? nullptr : counter_of(e, own), d); turn.at < items; turn.next()) {
    /* Tokens in their order, as `before` only grows. */
    const uint32_t base = turn.at / parts / ranks, item = turn.at + warp_of();
    if (MOE_LAYOUT != 1 && base != counted) {
      __syncthreads();
      advance(e, t, k, all, counted, base);
      counted = base;
      __syncthreads();
    }
    if (warp_of() >= each || item >= items) continue;
    const uint32_t at = item / parts, part = item - at * parts;
    const place_of_token p = row_in_turn(at, ranks, me);
    const uint32_t n = k.counts[p.source];
    if (p.token >= n) continue;
    const cutting cut = cutting_of(e, n);
    const bool packed = n <= e.few;
    if (!packed && part >= cut.flags * cut.again) continue;
    place(e, t, r, all, base, p, part == 0, to);
    if (to.copies != 0 && packed) {
      take_packets(e, r, packets_of(e, ranks, round & 1, p.source, p.token), round, part_of(e.row_words, part, parts), to);
    } else if (to.copies != 0) {
      const size_t row = row_index(e, ranks, round & 1, p.source, p.token);
      /* One lane acquires for the warp, which meets behind it. */
      if (lane_of() == 0) rushmem::signal_wait_until(e.row_flags + row * e.parts + part / cut.again, rushmem::cmp::ge, round);
      __syncwarp();
      take_row(e, r, e.rows + row * e.row_bytes, part, cut, to);
    }
    __syncwarp();
  }
}

}  // namespace moe
