/* The receiver's part of dispatch, of few tokens. */
namespace moe {
namespace few {

/* The same of a part that the warp has sent, and kept. */
__device__ inline void store_kept(const exchange &e, const rushmem::team &t, const received &r,
                                  const routes &all, passage &through, const kept_part &kept) {
  if (kept.at == not_kept) return;
  const chosen c = chosen_of(e, t, all, kept.at);
  if (c.ours != 0) store_part(c, targets_of(e, r, kept.part), across(through, kept.v), kept.scale);
}

/* By a warp: a part of a row that comes, to every place that wants it. */
__device__ inline void take_packed_part(const exchange &e, const rushmem::team &t, const received &r, uint64_t round,
                                      const routes &all, passage &through, const taking &now) {
  const rushmem::packed_row *const row[1] = {reinterpret_cast<const rushmem::packed_row *>(now.packets)};
  bool has[1] = {false};
  rushmem::row_words words[1];
  /* Asked for before it is known whether it comes. */
  rushmem::test_packed_rows<1>(row, round, has, words);
  const chosen c = chosen_of(e, t, all, now.at);
  if (c.ours == 0) return;
  const targets to = targets_of(e, r, now.part);
#pragma unroll 1
  for (uint32_t i = 0; i < polls && !has[0]; ++i) rushmem::test_packed_rows<1>(row, round, has, words);
  if (!has[0]) words[0] = rushmem::wait_packed_row(row[0], round);
  uint32_t scale;
  const three v = of_row(words[0], scale);
  store_part(c, to, across(through, v), scale);
}
__device__ inline void take_part(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, const routes &all,
                                 passage &through, const taking &now) {
  if (sends_packed_rows(t)) return take_packed_part(e, t, r, round, all, through, now);
  const uint32_t lane = lane_of(), tag = static_cast<uint32_t>(round);
  const slim_packet *const slots[2] = {now.packets + lane, now.packets + lanes};
  three values[2];
  bool wanted[2] = {true, MOE_CAST && lane < 3};
  /* Asked for before it is known whether they come. */
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) wanted[j] = wanted[j] && !rushmem::test_packed(slots[j], tag, values[j].w);
  const chosen c = chosen_of(e, t, all, now.at);
  if (c.ours == 0) return;
  const targets to = targets_of(e, r, now.part);
  await(slots, wanted, values, tag);
#if MOE_CAST
  const uint32_t scale = word_of_lane(values[1]);
#else
  constexpr uint32_t scale = 0;
#endif
  store_part(c, to, across(through, values[0]), scale);
}

/* By a warp: the weight of a lane's expert of a token; of none that does not come. */
__device__ inline float weight_of(const exchange &e, const rushmem::team &t, uint64_t round, uint32_t at) {
  const uint32_t lane = lane_of(), source = at / e.max_tokens;
  uint64_t two = 0;
  if (lane < e.top_k) two = hear(e, t, round, source, at - source * e.max_tokens, id_words(e) + lane / 2, false).value;
  __syncwarp();
  return __uint_as_float(static_cast<uint32_t>(lane % 2 ? two >> 32 : two));
}

/* By a warp: what else is said of a token, and what combine will know of it. `there`: its source has it. */
__device__ inline void tell(const exchange &e, const rushmem::team &t, const received &r, const chosen &mine, bool there, uint32_t at,
                            float weight, bool failed) {
  const uint32_t lane = lane_of(), ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t source = at / e.max_tokens, token = at - source * e.max_tokens;
  if (failed) {
    if (MOE_LAYOUT == 1 && r.experts && lane < e.top_k) r.experts[size_t(at) * e.top_k + lane] = -1;
    return;
  }
  const bool here = mine.ours >> lane & 1;
#if MOE_LAYOUT == 1
  const int32_t local = here ? static_cast<int32_t>(mine.id - me * e.experts_a_rank) : -1;
  if (lane < e.top_k && r.experts) r.experts[size_t(at) * e.top_k + lane] = local;
  if (lane < e.top_k && there && r.weights && e.weighted) r.weights[size_t(at) * e.top_k + lane] = weight;
#endif
  const choice c = choice_among(e, mine.id, weight);
  const uint32_t below = (1u << lane) - 1, place = __popc(mine.ours & below);
  const uint32_t terms = MOE_LAYOUT == 1 ? (mine.ours != 0 ? 1 : 0) : __popc(mine.ours);
  uint64_t *record = record_of(e, at);
  if (here && place < terms) {
    if (r.sources) r.sources[mine.row] = static_cast<int32_t>(at);
    record[1 + place] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | mine.row;
  }
  /* Units and ranks before those of a lane's rank: of two ranks with experts of the token, or a few. */
  const uint32_t firsts = __ballot_sync(all_lanes, c.first);
  before b{0, 0};
#pragma unroll 1
  for (uint32_t left = firsts; left != 0; left &= left - 1) {
    const uint32_t theirs = __shfl_sync(all_lanes, c.units, static_cast<int>(lowest_bit(left)));
    const uint32_t of = __shfl_sync(all_lanes, c.rank, static_cast<int>(lowest_bit(left)));
    b.units += of < c.rank ? theirs : 0;
    b.ranks += of < c.rank ? 1 : 0;
  }
  if (c.rank == me && c.first) record[0] = static_cast<uint64_t>(b.units) << 32 | (c.narrow ? is_narrow : 0) | terms;
  if (lane == 0 && terms == 0) record[0] = 0;
  if (source != me) return;
  uint64_t *home = home_record_of(e, ranks, token);
  const uint64_t kind = (c.narrow ? is_narrow : 0) | (c.rank == me ? is_own : 0);
  if (c.first) home[1 + b.ranks] = static_cast<uint64_t>(__float_as_uint(weight)) << 32 | kind | b.units;
  if (lane == 0) home[0] = __popc(firsts) | (there ? exists : 0);
}

/* By each block, behind a meeting: all its threads have read their word. By the last threads, as the first
 * have rows. */
template <bool whole> __device__ inline void count_received(const exchange &e, uint64_t round) {
  for (uint32_t i = blockIdx.x + (blockDim.x - 1 - threadIdx.x) * gridDim.x; i < e.words; i += blockDim.x * gridDim.x) {
    if (whole) e.sent[i] = round;
    e.received[i] = round;
  }
}

/* A part of a row that a warp is about to store: one that it has kept, or one that comes. */
struct at_hand {
  uint32_t at, part;
  beside b; /* its packets, and which of them have not come */
};
__device__ inline void take_up(at_hand &now, const kept_part &kept) {
  now.at = kept.at;
  now.part = kept.part;
  now.b.lacks[0] = now.b.lacks[1] = false;
  now.b.values[0] = kept.v;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) now.b.values[1].w[i] = kept.scale;
}
__device__ inline void take_up(at_hand &now, const taking &next, uint32_t rows) {
  now.at = next.at;
  now.part = next.part;
  if (next.at < rows) {
    now.b.row[0] = next.packets + lane_of();
    now.b.row[1] = next.packets + lanes;
  }
  now.b.lacks[0] = next.at < rows;
  now.b.lacks[1] = MOE_CAST && next.at < rows && lane_of() < 3;
}

/* By a warp that hears all routing by itself. What can be known before is worked out before. */
template <bool whole>
__device__ inline void receive_by_warps(const exchange &e, const rushmem::team &t, const received &r, uint64_t round, kept_parts kept,
                                        taking next, passage &through) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), rows = ranks * e.max_tokens, lane = lane_of();
  const bool keeps = whole && keeps_parts(e, parts_of_row(e));
  at_hand now{};
  now.at = not_kept;
  const auto advance = [&] {
    if (whole && kept.first.at != not_kept) {
      take_up(now, kept.first);
      kept.first.at = not_kept;
    } else if (whole && kept.second.at != not_kept) {
      take_up(now, kept.second);
      kept.second.at = not_kept;
    } else {
      take_up(now, next, rows);
      next = aim(e, t, round, next.item + slots(), keeps);
    }
  };
  now.b.weights = e.routing;
  now.b.row[0] = now.b.row[1] = reinterpret_cast<const slim_packet *>(e.routing);
  advance();
  uint32_t told = from_middle();
  __syncthreads();
  count_received<whole>(e, round);
  if (now.at >= rows && told >= rows && !is_clerk()) return;
  const uint32_t source = told / e.max_tokens, token = told - source * e.max_tokens;
  if (e.weighted && told < rows && lane < e.top_k && !is_absent(e, source)) {
    now.b.weights = routing_of(e, ranks, round & 1, source) + 1 + token * e.routing_words + id_words(e) + lane / 2;
    now.b.lacks_weights = true;
  }
  targets to = targets_of(e, r, now.part);
  const hearing h = hear_all(e, t, round, now.b);
#pragma unroll 1
  while (now.at < rows && !h.failed) {
    const chosen c = chosen_of(e, t, h, now.at);
    if (c.ours != 0) {
      await(now.b.row, now.b.lacks, now.b.values, static_cast<uint32_t>(round));
      const three words = across(through, now.b.values[0]);
      const auto row = [&](uint32_t k) { return row_of(e, t, h, now.at, c, k); };
      store_part(c.ours, row, to, words, MOE_CAST ? word_of_lane(now.b.values[1]) : 0);
    }
    advance();
    to = targets_of(e, r, now.part);
  }
  bool first = true;
#pragma unroll 1
  for (; told < rows; told += slots()) {
    const uint32_t whose = told / e.max_tokens;
    const bool there = told - whose * e.max_tokens < tokens_of(e, h, whose);
    float weight = 1;
    if (e.weighted && !h.failed) {
      if (!first) weight = weight_of(e, t, round, told);
      else {
        if (there && now.b.lacks_weights) now.b.two = rushmem::wait_packed(now.b.weights, round);
        weight = __uint_as_float(static_cast<uint32_t>(lane % 2 ? now.b.two >> 32 : now.b.two));
      }
    }
    first = false;
    chosen c = chosen_of(e, t, h, told);
#pragma unroll 1
    for (uint32_t left = c.ours; left != 0; left &= left - 1) {
      const uint32_t row = row_of(e, t, h, told, c, lowest_bit(left));
      if (lane == lowest_bit(left)) c.row = row;
    }
    tell(e, t, r, c, there, told, weight, h.failed);
  }
  if (is_clerk()) keep_books(e, t, r, h, round);
}

/* `whole`: the launch has sent, too, and the warp has `kept` parts. */
template <bool whole>
__device__ inline void receive_all(const exchange &e, const rushmem::team &t, const received &r,
                                   uint64_t round, const routes &all, const kept_parts &kept) {
  __shared__ passage of_warps[warps];
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), rows = ranks * e.max_tokens;
  const bool keeps = whole && keeps_parts(e, parts_of_row(e));
  /* What it will take first it knows when it has to. */
  taking next = aim(e, t, round, from_front(), keeps);
#if MOE_LAYOUT != 1
  if (hears_by_warps(e, t)) return receive_by_warps<whole>(e, t, r, round, kept, next, of_warps[warp_of()]);
#endif
  /* A warp's first token to tell of, whose weights it hears meanwhile. */
  uint32_t told = from_middle();
  float weight = 1;
  if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  const bool failed = learn(e, t, round, all);
  count_received<whole>(e, round);
  if (keeps && !failed) {
    store_kept(e, t, r, all, of_warps[warp_of()], kept.first);
    store_kept(e, t, r, all, of_warps[warp_of()], kept.second);
  }
#pragma unroll 1
  while (next.at < rows && !failed) {
    take_part(e, t, r, round, all, of_warps[warp_of()], next);
    next = aim(e, t, round, next.item + slots(), keeps);
  }
#pragma unroll 1
  while (told < rows) {
    const uint32_t source = told / e.max_tokens;
    tell(e, t, r, chosen_of(e, t, all, told), told - source * e.max_tokens < all.counts[source], told, weight, failed);
    told += slots();
    if (e.weighted && told < rows) weight = weight_of(e, t, round, told);
  }
  if (!is_clerk()) return;
  if (failed && threadIdx.x == 0) refuse(e, round, ranks, all);
#if MOE_LAYOUT == 1
  if (!r.counts) return;
  for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) r.counts[i] = failed ? 0 : static_cast<int32_t>(all.counts[i]);
#else
  const uint32_t me = static_cast<uint32_t>(t.my_pe()), first = me * e.experts_a_rank;
  for (uint32_t i = threadIdx.x; i < e.experts_a_rank; i += blockDim.x) {
    uint32_t n = 0;
    if (!failed) n = *all.twice ? named(all.ids, rows * id_words(e), first + i) : before_token(e, all, i, rows);
    if (r.counts) r.counts[i] = static_cast<int32_t>(n < e.capacity ? n : e.capacity);
  }
  /* By one thread: words of two failures must not mix. */
  for (uint32_t i = 0; *all.twice && !failed && threadIdx.x == 0 && i < e.experts_a_rank; ++i) {
    const uint32_t n = named(all.ids, rows * id_words(e), first + i);
    if (n > e.capacity) return tell_failure(e, round, over_capacity, me, first + i, n);
  }
#endif
}

}  // namespace few
}  // namespace moe
