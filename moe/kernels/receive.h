/* The receiver's part of dispatch: each block computes the places of the rows that its warps take, and these
 * move them from where they arrived to every place that wants them. */
namespace moe {

/* By the block, which has counted: makes of `before` for each warp that takes tokens, and each expert of this
 * rank, the row of the expert's first token that is not before the warp's. */
__device__ inline void begin_places(const exchange &e, uint32_t first, const table &all) {
#if MOE_LAYOUT != 1
  const uint32_t own = e.experts_a_rank;
#if MOE_LAYOUT == 2
  /* The experts' first rows, in place of their totals, which nobody needs any more. */
  __syncthreads();
  if (warp_of() == 0) {
    uint32_t rows = 0;
    for (uint32_t base = 0; base < own; base += lanes) {
      const uint32_t i = base + lane_of();
      const bool has = i < own && first + i < e.experts;
      const uint32_t n = has ? padded(e, all.totals[first + i]) : 0;
      uint32_t up_to = n;
      for (uint32_t apart = 1; apart < lanes; apart *= 2) {
        const uint32_t below = __shfl_up_sync(all_lanes, up_to, apart);
        if (lane_of() >= apart) up_to += below;
      }
      if (has) all.totals[first + i] = rows + up_to - n;
      rows += __shfl_sync(all_lanes, up_to, lanes - 1);
    }
  }
  __syncthreads();
#endif
  for (uint32_t i = threadIdx.x; i < own; i += blockDim.x) {
    uint32_t row = i * e.capacity;
    if (MOE_LAYOUT == 2) row = first + i < e.experts ? all.totals[first + i] : 0;
    for (uint32_t taker = 0; taker < takers; ++taker) row = all.before[taker * own + i] += row;
  }
#endif
  __syncthreads();
}

/* By a warp: the places of its next token, in this rank's part of the result; and where combine finds them.
 * `before` is the warp's. */
__device__ inline void place(const exchange &e, const rushmem::team &t, const received &r, const table &all, uint32_t *before,
                             place_of_token p, bool tell, placed &to) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  uint32_t id = nowhere;
  if (lane < e.top_k) id = id_at(word_at(all, ids_of(e, t, all, p) + lane / 4), lane % 4);
  const uint32_t local = id - first;
  const bool here = id < unheard && local < e.experts_a_rank;
  const uint32_t ours = __ballot_sync(all_lanes, here);
#if MOE_LAYOUT == 1
  static_cast<void>(before);
  if (lane == 0) {
    const uint32_t row = p.source * e.max_tokens + p.token;
    to.copies = ours != 0 ? 1 : 0;
    to.places[0] = row;
    if (tell && ours != 0 && r.sources) r.sources[row] = static_cast<int32_t>(row);
  }
#else
  /* An expert that a token names twice has it twice. */
  const uint32_t alike = __match_any_sync(all_lanes, id), below = (1u << lane) - 1;
  uint32_t row = here ? before[local] : 0;
  __syncwarp();
  if (here) {
    if ((alike & below) == 0) before[local] = row + __popc(alike);
    row += __popc(alike & below);
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

/* A part of a row that has come, with what lies `beside` it: the part that its flag stands for, and of that
 * the scales of its columns. */
__device__ inline void take_row(const exchange &e, const received &r, mover &m, const unsigned char *row,
                                const unsigned char *beside, uint32_t part, uint32_t parts) {
#if MOE_CAST
  /* As the sender cut it: by groups. */
  const range groups = part_of((e.hidden + group_columns - 1) / group_columns, part, parts);
  const uint32_t end = groups.end * 8, quads = e.data_bytes / 16;
  const range data = {groups.begin * 8, end < quads ? end : quads};
#else
  const range data = part_of(e.data_bytes / 16, part, parts), side = part_of(e.side_bytes / 16, part, parts);
#endif
  const bool along = r.side && parts == 1 && e.side_bytes % 16 == 0;
  const uint32_t data_end = data.end * 16;
  const bool apart = MOE_CAST == 0 && beside != row + e.data_bytes;
  m.move(e, r, row, data.begin * 16, along && !apart ? data_end + e.side_bytes : data_end);
  if (along && apart) m.move(e, r, beside - e.data_bytes, data_end, data_end + e.side_bytes);
  if (r.side && !along) {
    const placed &to = m.at_hand();
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
  __syncwarp();
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

/* By a warp: how many of the items from `item` up to `end`, at most one for each lane, have come, those up to
 * the first that has not. Behind it they may be fetched. */
__device__ inline uint32_t have_come(const exchange &e, const known &k, uint32_t ranks, uint32_t here, uint64_t round,
                                     const shares &s, uint32_t item, uint32_t end) {
  item += lane_of();
  bool has = false;
  if (item < end) {
    const uint32_t at = item / s.parts, part = item - at * s.parts;
    const place_of_token p = locate(k, ranks, at);
    const uint32_t n = k.counts[p.source];
    if (p.source == here) {
      has = true;
    } else if (n > e.few && part < flags_of(e, n)) {
      has = rushmem::signal_fetch(e.row_flags + row_index(e, ranks, round & 1, p.source, p.token) * e.parts + part) >= round;
    }
  }
  const uint32_t missing = ~__ballot_sync(all_lanes, has);
  pieces::behind_flags();
  return missing == 0 ? lanes : __ffs(static_cast<int>(missing)) - 1;
}

/* By a warp: takes its share of the rows; those of `in`, if there is one, from where the tokens lie. */
__device__ inline void take_share(const exchange &e, const rushmem::team &t, const received &r, const known &k, const table &all,
                                  const shares &s, const tokens *in, uint32_t taker, rooms_of_warp *own) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), begin = s.begin(taker);
  const uint32_t here = in ? static_cast<uint32_t>(t.my_pe()) : ~0u;
  const uint32_t end = s.items - begin < s.each ? s.items : begin + s.each;
  uint32_t *const before = all.before + (MOE_LAYOUT == 1 ? 0 : taker * e.experts_a_rank);
  mover m;
  m.begin(own);
  /* The row whose places are at hand; items whose flags have been seen. */
  uint32_t known_row = ~0u, seen = begin;
#pragma unroll 1
  for (uint32_t item = begin; item < end; ++item) {
    const uint32_t at = item / s.parts, part = item - at * s.parts;
    const place_of_token p = locate(k, ranks, at);
    const uint32_t n = k.counts[p.source], flags = flags_of(e, n);
    if (at != known_row) place(e, t, r, all, before, p, part == 0, m.at_hand());
    known_row = at;
    /* No such part, and the room at hand may be the next row's by now. */
    if (n > e.few && part >= flags) continue;
    const placed &to = m.at_hand();
    if (to.copies == 0) continue;
    if (n <= e.few) {
      take_packets(e, r, packets_of(e, ranks, all.round & 1, p.source, p.token), all.round, part, s.parts, to);
      continue;
    }
    const size_t row = row_index(e, ranks, all.round & 1, p.source, p.token);
    if (seen <= item) seen = item + have_come(e, k, ranks, here, all.round, s, item, end);
    if (seen <= item) {
      m.drain(e, r);
      /* One lane acquires for the warp, which meets behind it. */
      if (lane_of() == 0) rushmem::signal_wait_until(e.row_flags + row * e.parts + part, rushmem::cmp::ge, all.round);
      pieces::behind_flags();
      seen = item + 1;
    }
    if (p.source == here) {
      take_row(e, r, m, in->x + size_t(p.token) * e.data_bytes, in->side + size_t(p.token) * e.side_bytes, part, flags);
    } else {
      const unsigned char *come = e.rows + row * e.row_bytes;
      take_row(e, r, m, come, come + e.data_bytes, part, flags);
    }
    /* The next item's places may be others. */
    if (part + 1 >= flags) m.another();
  }
  m.end(e, r);
}

/* All of this block's part of receiving, which the first `senders` blocks have none of. Rows of this rank's
 * own tokens are taken from `in`, where that is given, and have not been sent. Meanwhile the warps
 * that take none do what `meanwhile` says, in rounds that can be. */
template <typename Meanwhile>
__device__ inline void receive(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, uint32_t senders,
                               const tokens *in, unsigned char *shared, const Meanwhile &meanwhile) {
  __shared__ known k;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  rooms_of_warp *const own = reinterpret_cast<rooms_of_warp *>(shared);
  const table all = table_of(e, t, round, shared + takers * sizeof(rooms_of_warp));
  learn_routing(e, t, k, all);
  crew c = all_hands();
  c.block -= senders;
  c.blocks -= senders;
  const uint32_t total = k.start[ranks];
  /* Rows that come as packets are cut as suits, others as their flags are, of which sources may have
   * different numbers: a row has as many items as any needs. */
  uint32_t parts = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t n = k.counts[rank], wanted = n <= e.few ? parts_of(total, (e.row_words + lanes - 1) / lanes) : flags_of(e, n);
    if (n != 0 && wanted > parts) parts = wanted;
  }
  const uint32_t all_takers = c.blocks * takers;
  const shares s{total * parts, parts, (total * parts + all_takers - 1) / all_takers, c};
  judge(e, t, k, all, s);
  if (k.failure && is_clerk() && threadIdx.x == 0) note_failure(e, round, k.failure, k.rank, k.about, k.count);
  tell_of_round(e, t, r, k, all, c);
  if (k.failure) return;
  begin_places(e, static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank, all);
  if (warp_of() + takers < warps) meanwhile();
  else take_share(e, t, r, k, all, s, in, warp_of() - (warps - takers), own + (warp_of() - (warps - takers)));
}

}  // namespace moe
