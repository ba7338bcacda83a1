/* The routing of the fewest tokens, whose experts are no more words than a warp has lanes: each warp that has
 * something to receive hears all of it by itself, beside the row that it takes, and works out places by
 * registers. So no block meets, and no shared memory is between a packet and what is done because of it. */
namespace moe {
namespace few {

__device__ inline bool hears_by_warps(const exchange &e, const rushmem::team &t) {
  return MOE_LAYOUT != 1 && static_cast<uint32_t>(t.n_pes()) * e.max_tokens * id_words(e) <= lanes;
}

/* Packets that a warp waits for beside the routing, which a lane may lack: of a part of a row and of its
 * scales, and two weights of a token. All have addresses that can be read. */
struct beside {
  const slim_packet *row[2];
  const packet *weights;
  bool lacks[2], lacks_weights;
  three values[2];
  uint64_t two;
};

/* What a warp hears: each lane a word of all tokens' experts, by sources, and how many tokens its source
 * has. */
struct hearing {
  uint64_t ids, tokens;
  bool failed;
};
__device__ inline uint32_t source_words(const exchange &e) { return e.max_tokens * id_words(e); }
/* By a warp. */
__device__ inline uint32_t tokens_of(const exchange &e, const hearing &h, uint32_t source) {
  return static_cast<uint32_t>(__shfl_sync(all_lanes, static_cast<unsigned long long>(h.tokens), static_cast<int>(source * source_words(e))));
}

__device__ inline hearing hear_all(const exchange &e, const rushmem::team &t, uint64_t round, beside &b) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), words = id_words(e), each = source_words(e), source = lane_of() / each;
  const uint32_t at = lane_of() - source * each, token = at / words;
  bool has = source >= ranks || is_absent(e, source), known = has;
  const packet *count_at = routing_of(e, ranks, round & 1, has ? 0 : source);
  const packet *slot = has ? count_at : count_at + 1 + token * e.routing_words + (at - token * words);
  hearing h{~uint64_t(0), 0, false};
  const auto exist = [&] { return h.tokens > e.max_tokens ? 0 : static_cast<uint32_t>(h.tokens); };
#pragma unroll 1
  for (uint32_t i = 0; i < polls; ++i) {
    /* Loads without a question in between: what a lane has, or lacks not, it asks for again. */
    uint64_t ids, tokens, two;
    three values[2];
    const bool ids_come = rushmem::test_packed(slot, round, &ids), count_comes = rushmem::test_packed(count_at, round, &tokens);
    const bool row_comes = rushmem::test_packed(b.row[0], static_cast<uint32_t>(round), values[0].w);
    const bool scales_come = rushmem::test_packed(b.row[1], static_cast<uint32_t>(round), values[1].w);
    const bool weights_come = rushmem::test_packed(b.weights, round, &two);
    if (!has && ids_come) h.ids = ids, has = true;
    if (!known && count_comes) h.tokens = tokens, known = true;
    if (b.lacks[0] && row_comes) b.values[0] = values[0], b.lacks[0] = false;
    if (b.lacks[1] && scales_come) b.values[1] = values[1], b.lacks[1] = false;
    if (b.lacks_weights && weights_come) b.two = two, b.lacks_weights = false;
    if (__all_sync(all_lanes, known && (has || token >= exist()))) break;
  }
  if (!known) h.tokens = rushmem::wait_packed(count_at, round);
  if (!has && token < exist()) h.ids = rushmem::wait_packed(slot, round);
  bool bad = h.tokens > e.max_tokens;
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) bad |= id_at(h.ids, j) == unheard;
  h.failed = __any_sync(all_lanes, bad);
  return h;
}

/* By a warp: of token `at`; rows are not known yet. */
__device__ inline chosen chosen_of(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t at) {
  const uint32_t lane = lane_of(), first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  const uint64_t four = __shfl_sync(all_lanes, static_cast<unsigned long long>(h.ids), static_cast<int>((at * id_words(e) + lane / 4) % lanes));
  chosen c{nowhere, 0, at};
  if (lane < e.top_k) c.id = id_at(four, lane % 4);
  c.ours = __ballot_sync(all_lanes, c.id < unheard && c.id - first < e.experts_a_rank);
  return c;
}

/* By a warp: the row of number `k` of a token's experts, which is this rank's: an expert's rows come in the
 * order in which it is named. */
__device__ inline uint32_t row_of(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t at, const chosen &c, uint32_t k) {
  const uint32_t id = __shfl_sync(all_lanes, c.id, static_cast<int>(k)), local = id - static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
  uint32_t before = 0;
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) before += 4 * lane_of() + j < 4 * id_words(e) * at + k && id_at(h.ids, j) == id ? 1 : 0;
  return within(e, local, local * e.capacity + added(before));
}

/* By a warp: how often an expert, a lane's, is named at all. */
__device__ inline uint32_t named(const exchange &e, const rushmem::team &t, const hearing &h, uint32_t id) {
  uint32_t n = 0;
#pragma unroll 4
  for (uint32_t word = 0; word < static_cast<uint32_t>(t.n_pes()) * source_words(e); ++word) {
    const uint64_t four = __shfl_sync(all_lanes, static_cast<unsigned long long>(h.ids), static_cast<int>(word));
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) n += id_at(four, j) == id ? 1 : 0;
  }
  return n;
}

/* By a warp that has found experts beyond their capacity, those of lanes `over`, from local expert `base` on:
 * tells of the first, if it is this rank's first. */
__device__ __noinline__ void tell_over(const exchange &e, const rushmem::team &t, hearing h, uint64_t round, uint32_t base,
                                       uint32_t over, uint32_t n) {
  const uint32_t me = static_cast<uint32_t>(t.my_pe()), first = me * e.experts_a_rank;
  for (uint32_t i = 0; i < base; i += lanes) {
    if (__any_sync(all_lanes, named(e, t, h, first + i + lane_of()) > e.capacity)) return;
  }
  if (lane_of() == lowest_bit(over)) tell_failure(e, round, over_capacity, me, first + base + lane_of(), n);
}

/* By a warp: what is wrong, as all ranks find it. */
__device__ __noinline__ void refuse(const exchange &e, hearing h, uint64_t round) {
  const bool many = h.tokens > e.max_tokens;
  bool bad = false;
  for (uint32_t j = 0; j < 4; ++j) bad |= id_at(h.ids, j) == unheard;
  const uint32_t any_many = __ballot_sync(all_lanes, many), any_bad = __ballot_sync(all_lanes, bad);
  if (lane_of() != lowest_bit(any_many ? any_many : any_bad)) return;
  const uint32_t source = lane_of() / source_words(e), token = (lane_of() - source * source_words(e)) / id_words(e);
  if (any_many) note_failure(e, round, too_many_tokens, source, 0, h.tokens);
  else note_failure(e, round, no_such_expert, source, token, 0);
}

/* By the clerk's warps: how many tokens each expert has, or what is wrong. */
__device__ inline void keep_books(const exchange &e, const rushmem::team &t, const received &r, const hearing &h, uint64_t round) {
  if (h.failed && warp_of() == 0) refuse(e, h, round);
  const uint32_t first = static_cast<uint32_t>(t.my_pe()) * e.experts_a_rank;
#pragma unroll 1
  for (uint32_t base = warp_of() * lanes; base < e.experts_a_rank; base += MOE_THREADS) {
    const uint32_t i = base + lane_of();
    uint32_t n = h.failed ? 0 : named(e, t, h, first + i);
    if (i >= e.experts_a_rank) n = 0;
    if (i < e.experts_a_rank && r.counts) r.counts[i] = static_cast<int32_t>(n < e.capacity ? n : e.capacity);
    const uint32_t over = __ballot_sync(all_lanes, n > e.capacity);
    if (over != 0) tell_over(e, t, h, round, base, over, n);
  }
}

}  // namespace few
}  // namespace moe
