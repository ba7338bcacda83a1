/* The sender's part of dispatch, whole: rows that are sent one behind the other, and who sends them. */
namespace moe {

/* Of a row what the lanes of a warp have in registers at once, in so many steps: 32 bytes of a lane, side by
 * side where they become 16, else those of the lanes are. */
constexpr uint32_t steps = 2, quads_of_load = steps * lanes * 2;
struct loaded {
  uint4 low[steps], high[steps];
};
/* Bytes of a token as they are read, in quads. */
__device__ inline uint32_t quads_of_token(const exchange &e) { return MOE_CAST ? e.hidden / 8 : e.data_bytes / 16; }

/* Loads from quad `base` on. */
__device__ inline void load_row(const exchange &e, const tokens &in, uint32_t token, uint32_t base, loaded &l) {
  const uint32_t quads = quads_of_token(e);
  const unsigned char *x = in.x + size_t(token) * quads * 16;
#pragma unroll
  for (uint32_t i = 0; i < steps; ++i) {
    const uint32_t at = base + 2 * i * lanes + (MOE_CAST ? 2 : 1) * lane_of();
    l.low[i] = quad_of(x, at, quads);
    l.high[i] = quad_of(x, at + (MOE_CAST ? 1 : lanes), quads);
  }
}

#if MOE_CAST
/* The scales of a lane's groups: a group is eight lanes' in one step. What the lanes have of several steps is
 * brought together so that a lane works out the scale of one step, that of its number among as many lanes,
 * and not all of them that of each. */
static_assert(steps == 1 || steps == 2 || steps == 4, "steps are halved");
__device__ inline scaling scaling_of_mine(float (&most)[steps]) {
  uint32_t apart = 1;
#pragma unroll
  for (uint32_t n = steps; n > 1; n /= 2, apart *= 2) {
    const bool odd = lane_of() & apart;
#pragma unroll
    for (uint32_t i = 0; i < n / 2; ++i) {
      const float given = __shfl_xor_sync(all_lanes, odd ? most[2 * i] : most[2 * i + 1], static_cast<int>(apart));
      most[i] = fmaxf(odd ? most[2 * i + 1] : most[2 * i], given);
    }
  }
#pragma unroll
  for (; apart < 8; apart *= 2) most[0] = fmaxf(most[0], __shfl_xor_sync(all_lanes, most[0], static_cast<int>(apart)));
  return scaling_of(most[0]);
}
#endif

/* And stores it to all ranks that map the row. */
__device__ inline void store_loaded(const exchange &e, uint32_t base, const loaded &l, const outgoing &out) {
  const uint32_t ranks = out.ranks;
#if MOE_CAST
  float most[steps];
#pragma unroll
  for (uint32_t i = 0; i < steps; ++i) most[i] = largest_of_bf16(l.low[i], l.high[i]);
  const scaling mine = scaling_of_mine(most);
  uint4 bytes[steps];
#pragma unroll
  for (uint32_t i = 0; i < steps; ++i) {
    const float by = __shfl_sync(all_lanes, mine.by, static_cast<int>((lane_of() & 24) | i));
    const uint64_t a = fp8_of(eight_of_bf16(l.low[i]), by), b = fp8_of(eight_of_bf16(l.high[i]), by);
    bytes[i] = make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                          static_cast<uint32_t>(b >> 32));
  }
  const uint32_t first = base / 2 + lane_of(), end = e.hidden / 16;
  /* The group whose scale this lane has. */
  const uint32_t group = base / 16 + lane_of() % steps * (lanes / 8) + lane_of() / 8;
  const bool tells = lane_of() % 8 < steps && group * 8 < end;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    unsigned char *row = out.to[rank];
    if (!row) continue;
#pragma unroll
    for (uint32_t i = 0; i < steps; ++i) {
      if (first + i * lanes < end) store16(row + size_t(first) * 16 + i * lanes * 16, bytes[i]);
    }
    if (!tells) continue;
    unsigned char *scales = row + e.data_bytes;
    if (MOE_SCALES == 1) scales[group] = static_cast<unsigned char>(mine.scale);
    else store4(scales + size_t(group) * 4, mine.scale);
  }
#else
  const uint32_t first = base + lane_of(), quads = e.data_bytes / 16;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    unsigned char *row = out.to[rank];
    if (!row) continue;
#pragma unroll
    for (uint32_t i = 0; i < steps; ++i) {
      const uint32_t at = first + 2 * i * lanes;
      if (at < quads) store16(row + size_t(at) * 16, l.low[i]);
      if (at + lanes < quads) store16(row + size_t(at + lanes) * 16, l.high[i]);
    }
  }
#endif
}

/* Rows that are announced together. */
constexpr uint32_t rows_announced = 2;

/* Flags of rows that a warp has stored and not yet announced, at most one in a lane. */
struct unannounced {
  uint32_t lanes, rows;
  size_t at;
  int pe;
};
__device__ inline void announce_all(const exchange &e, uint64_t round, unannounced &u) {
  __syncwarp();
  if (lane_of() < u.lanes && u.pe >= 0) announce(e.rows + u.at * e.row_bytes, e.row_flags + u.at * e.parts, round, u.pe);
  u.lanes = u.rows = 0;
  u.pe = -1;
}

/* Who sends rows in a dispatch. */
struct roles {
  uint32_t tokens;  /* of this rank */
  uint32_t senders; /* blocks that only send, the first ones, while the others receive */
  bool split;       /* the warps of each block that receive nothing send, while the others receive */
  uint32_t apart;   /* how far apart the tokens are that are sent side by side */
  bool own_stay;    /* rows for this rank itself are not sent: they are taken from where the tokens lie */
  __device__ uint32_t left_out(const rushmem::team &t) const { return own_stay ? static_cast<uint32_t>(t.my_pe()) : ~0u; }
};

/* Sends whole rows, of tokens that are dealt out to a crew, and where `routes` their routing. While a part of
 * a row is stored the one behind it is being read, and several rows are announced together, as that waits
 * until they have arrived. The tokens are taken `apart` from each other: those side by side are one
 * receiving warp's. */
__device__ inline void send_rows(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, const roles &w,
                                 const crew &c, bool routes, outgoing &out) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint32_t n = w.tokens, apart = w.apart, left_out = w.left_out(t);
  const uint32_t turns = (n + apart - 1) / apart, items = turns * apart, quads = quads_of_token(e);
  const dealt d = deal(items, c);
  if (warp_of() >= d.each) return;
  const auto token_of = [&](uint32_t item) { return apart == 1 ? item : item % turns * apart + item / turns; };
  const auto next_of = [&](uint32_t item) {
    while (item < items && token_of(item) >= n) item += d.step;
    return item;
  };
  uint32_t item = next_of(d.first + warp_of());
  if (item >= items) return;
  unannounced pending{0, 0, 0, -1};
  loaded now;
  load_row(e, in, token_of(item), 0, now);
  while (item < items) {
    const uint32_t token = token_of(item), following = next_of(item + d.step);
    const uint64_t weights = routes ? weights_ahead(e, t, in, token) : 0;
    address(e, t, in, round & 1, token, left_out, out);
    if (routes) send_routing(e, t, in, round, token, out, weights);
#pragma unroll 1
    for (uint32_t base = 0; base < quads; base += quads_of_load) {
      const bool more = base + quads_of_load < quads;
      loaded next{};
      if (more || following < items) load_row(e, in, more ? token : token_of(following), more ? base + quads_of_load : 0, next);
      if (out.ranks != 0) store_loaded(e, base, now, out);
      now = next;
    }
    const size_t at = row_index(e, ranks, round & 1, me, token);
#if !MOE_CAST
    for (uint32_t i = lane_of(); i < e.side_bytes / 16 && out.ranks != 0; i += lanes) {
      const uint4 v = load16(in.side + size_t(token) * e.side_bytes + size_t(i) * 16);
      each_copy(out, nullptr, [&](unsigned char *row) { store16(row + e.data_bytes + size_t(i) * 16, v); });
    }
#endif
    if (pending.lanes + out.ranks > lanes) announce_all(e, round, pending);
    const uint32_t i = lane_of() - pending.lanes;
    if (i < out.ranks && out.to[i]) {
      pending.at = at;
      pending.pe = out.pe[i];
    }
    pending.lanes += out.ranks;
    if (++pending.rows == rows_announced) announce_all(e, round, pending);
    if (out.any_far) send_far(e, in, round, token, at, out);
    __syncwarp();
    item = following;
  }
  announce_all(e, round, pending);
}

/* From how many tokens on some send while others receive, and from how many blocks on they are blocks; else
 * they are warps of each block, where there are some that receive nothing. */
constexpr uint32_t many_tokens = 2048, many_blocks = 64;

/* In a dispatch of one launch: the tokens lie where they are until all of it has ended. Else all blocks send
 * and receive, one after the other. */
__device__ inline roles roles_of(const exchange &e, const rushmem::team &t, const tokens &in) {
  const uint64_t said = in.count_at ? *in.count_at : in.count;
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes());
  roles w{static_cast<uint32_t>(said), 0, false, 1, false};
  if (said > e.max_tokens || said <= e.few) return w;
  /* What is cast is sent to this rank, too: a row is cast once, and received as often as experts want it. */
  w.own_stay = MOE_CAST == 0;
  if (said < many_tokens || (w.own_stay && ranks == 1)) return w;
  if (gridDim.x >= many_blocks) w.senders = gridDim.x / 3;
  else w.split = takers < warps;
  const uint32_t all_takers = (gridDim.x - w.senders) * takers;
  if (w.senders != 0 || w.split) w.apart = (w.tokens * ranks + all_takers - 1) / all_takers;
  return w;
}

/* All of this block's part of sending; where warps send while others receive, only the routing. */
__device__ inline void send(const exchange &e, const rushmem::team &t, const tokens &in, uint64_t round, const roles &w,
                            outgoing &out) {
  const uint32_t ranks = static_cast<uint32_t>(t.n_pes()), me = static_cast<uint32_t>(t.my_pe());
  const uint64_t said = in.count_at ? *in.count_at : in.count;
  if (blockIdx.x == gridDim.x - 1) {
    for (uint32_t rank = blockDim.x - 1 - threadIdx.x; rank < ranks; rank += blockDim.x) {
      if (is_absent(e, rank)) continue;
      rushmem::put_packed(routing_of(e, ranks, round & 1, me), said, round, t.world_pe(static_cast<int>(rank)));
    }
  }
  if (said > e.max_tokens) return;
  const uint32_t n = static_cast<uint32_t>(said);
  /* Nothing but routing is sent where there is no other rank. */
  const bool alone = w.own_stay && ranks == 1;
  const bool packed = n <= e.few, first = w.senders != 0 || w.split || alone;
  const uint32_t left_out = w.left_out(t);
  const uint32_t parts = packed ? parts_of(n, (groups_of(e) + 1) / 2) : flags_of(e, n), items = n * parts;
  crew c = all_hands();
  if (first) {
    /* By all blocks: those that receive need all of it before the first row. */
    const dealt d = deal(n, c);
    for (uint32_t token = d.first + warp_of(); token < n && warp_of() < d.each; token += d.step) {
      const uint64_t weights = weights_ahead(e, t, in, token);
      address(e, t, in, round & 1, token, left_out, out);
      send_routing(e, t, in, round, token, out, weights);
      __syncwarp();
    }
    if (w.split || alone || c.block >= w.senders) return;
    c.blocks = w.senders;
  }
  if (!packed && parts == 1) return send_rows(e, t, in, round, w, c, !first, out);
  const dealt d = deal(items, c);
  for (uint32_t item = d.first + warp_of(); item < items && warp_of() < d.each; item += d.step) {
    const uint32_t token = item / parts, part = item - token * parts;
    const bool routes = part == 0 && !first;
    const uint64_t weights = routes ? weights_ahead(e, t, in, token) : 0;
    uint4 ahead{};
    if (packed) ahead = read_ahead(e, in, token, part, parts);
    address(e, t, in, round & 1, token, left_out, out);
    if (routes) send_routing(e, t, in, round, token, out, weights);
    if (packed) send_packets(e, t, in, round, token, part, parts, out, ahead);
    else if (out.ranks != 0) send_row(e, t, in, round, token, part, parts, out);
    __syncwarp();
  }
}

}  // namespace moe
