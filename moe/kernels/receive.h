/* The receiver's part of dispatch: each block computes the places of the rows that its warps take, and these
 * move them from where they arrived to every place that wants them. */
namespace moe {

/* The places of a row, found by a warp. */
struct placed {
  uint32_t places[most_top_k];
  uint32_t copies;
};

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
    each_word(e, t, all, {rank, low}, high - low, [&](uint64_t four) {
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t local = id_at(four, j) - first;
        if (id_at(four, j) < unheard && local < e.experts_a_rank) atomicAdd(all.before + local, 1u);
      }
    });
  }
}

#if MOE_IN_PLACE
/* Copies the experts of the tokens that the warps take in a turn: from number `base` on, at most one a
 * warp. */
__device__ inline void keep_turn(const exchange &e, const rushmem::team &t, const known &k, const table &all, uint32_t base) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e);
  for (uint32_t i = threadIdx.x; i < warps * words; i += blockDim.x) {
    const uint32_t at = base + i / words;
    if (at < k.start[ranks]) all.ids[i] = word_at(all, ids_of(e, t, all, locate(k, ranks, at)) + i % words);
  }
}
#endif

/* The experts of token number `at`, of a turn whose first token has number `base`. */
__device__ inline const uint64_t *ids_in_turn(const exchange &e, const rushmem::team &t, const known &k, const table &all,
                                              uint32_t base, uint32_t at) {
#if MOE_IN_PLACE
  static_cast<void>(t);
  static_cast<void>(k);
  return all.ids + (at - base) * id_words(e);
#else
  static_cast<void>(base);
  return ids_of(e, t, all, locate(k, static_cast<uint32_t>(t.n_pes()), at));
#endif
}

/* By a warp: the places of token `at`, in this rank's part of the result; and where combine finds them.
 * `before` counts the tokens before number `base`; those from there on the warp looks at itself. */
__device__ inline void place(const exchange &e, const rushmem::team &t, const received &r, const known &k, const table &all,
                             uint32_t base, uint32_t at, place_of_token p, bool tell, placed &to) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank, words = id_words(e);
  uint32_t id = nowhere;
  if (lane < e.top_k) id = id_at(word_at(all, ids_of(e, t, all, p) + lane / 4), lane % 4);
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
      const uint64_t *ids = ids_in_turn(e, t, k, all, base, other);
      for (uint32_t i = 0; i < words; ++i) {
        const uint64_t four = ids[i];
        for (uint32_t j = 0; j < 4; ++j) row += id_at(four, j) == id ? 1 : 0;
      }
    }
    if (MOE_LAYOUT == 0) row = within(e, local, row);
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
__device__ inline void tell_of_round(const exchange &e, const rushmem::team &t, const received &r, known &k, const table &all,
                                     const crew &c) {
  static_cast<void>(c);
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  if (is_clerk() && r.counts) {
#if MOE_LAYOUT == 1
    const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
    for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) {
      r.counts[i] = k.failure ? 0 : static_cast<int32_t>(k.start[i + 1] - k.start[i]);
    }
#else
    for (uint32_t i = threadIdx.x; i < e.experts_a_rank; i += blockDim.x) {
      const bool none = k.failure || first + i >= e.experts;
      const uint32_t n = none ? 0 : all.totals[first + i];
      r.counts[i] = static_cast<int32_t>(MOE_LAYOUT == 0 && n > e.capacity ? e.capacity : n);
    }
#endif
  }
#if MOE_LAYOUT == 1
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  const uint32_t n = ranks * e.max_tokens * e.top_k;
  for (uint32_t i = c.block * blockDim.x + threadIdx.x; i < n; i += c.blocks * blockDim.x) {
    const uint32_t at = i / e.top_k, j = i - at * e.top_k, source = at / e.max_tokens, token = at - source * e.max_tokens;
    const bool has = !k.failure && token < k.start[source + 1] - k.start[source];
    const uint32_t id = has ? id_at(word_at(all, ids_of(e, t, all, {source, token}) + j / 4), j % 4) : nowhere;
    const bool here = id < unheard && id - first < e.experts_a_rank;
    if (r.experts) r.experts[i] = here ? static_cast<int32_t>(id - first) : -1;
    if (r.weights && e.weighted && has) {
      const packet *slots = routing_of(e, ranks, all.round & 1, source) + 1 + size_t(token) * e.routing_words + id_words(e);
      const uint64_t two = rushmem::wait_packed(slots + j / 2, all.round);
      r.weights[i] = __uint_as_float(static_cast<uint32_t>(j % 2 ? two >> 32 : two));
    }
  }
#endif
}

/* All of this block's part of receiving, which the first `senders` blocks have none of. */
__device__ inline void receive(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, uint32_t senders,
                               unsigned char *shared) {
  __shared__ known k;
  __shared__ placed of_warps[warps];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t first = me * e.experts_a_rank;
  const table all = table_of(e, t, round, shared);
  learn_routing(e, t, k, all);
  judge(e, t, k, all);
  if (k.failure && is_clerk() && threadIdx.x == 0) note_failure(e, round, k.failure, k.rank, k.about, k.count);
  crew c = all_hands();
  c.block -= senders;
  c.blocks -= senders;
  tell_of_round(e, t, r, k, all, c);
  if (k.failure) return;
  begin_places(e, first, all);
  __syncthreads();
  placed &to = of_warps[warp_of()];
  const uint32_t total = k.start[ranks];
  /* Rows that come as packets are cut as suits, others as their flags are, of which sources may have
   * different numbers: a row has as many items as any needs. */
  uint32_t parts = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = k.counts[rank], wanted = n <= e.few ? parts_of(total, (e.row_words + lanes - 1) / lanes) : flags_of(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  /* Where rows come meanwhile, blocks begin at as many places as there are sources. */
  const uint32_t groups = senders == 0 ? 1 : c.blocks < ranks ? c.blocks : ranks, group = c.block % groups;
  const uint32_t each = (total + groups - 1) / groups, begin = each * group < total ? each * group : total;
  const uint32_t items = (each < total - begin ? each : total - begin) * parts;
  c.block /= groups;
  c.blocks = (c.blocks - group + groups - 1) / groups;
  const dealt d = deal(items, c);
  uint32_t counted = 0;
  for (uint32_t turn = d.first; turn < items; turn += d.step) {
    /* Rows in their order, as `before` only grows. */
    const uint32_t base = begin + turn / parts, item = turn + warp_of();
    if (MOE_LAYOUT != 1 && (base != counted || MOE_IN_PLACE)) {
      __syncthreads();
      advance(e, t, k, all, counted, base);
#if MOE_IN_PLACE
      keep_turn(e, t, k, all, base);
#endif
      counted = base;
      __syncthreads();
    }
    if (warp_of() >= d.each || item >= items) continue;
    const uint32_t at = begin + item / parts, part = item % parts;
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
