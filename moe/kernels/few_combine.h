/* Combine of few tokens. */
namespace moe {
namespace few {

__device__ inline slim_packet *unit_of(const exchange &e, uint32_t token, uint32_t unit) {
  return reinterpret_cast<slim_packet *>(e.result_packets) + size_t(token * e.units + unit) * unit_packets(e);
}

/* Six columns of what experts produce, as they lie in memory. */
struct raw_six {
  uint32_t w[six * y_bytes / 4];
};
__device__ inline raw_six load_six(const unsigned char *row, uint32_t column, uint32_t end) {
  raw_six out;
#pragma unroll
  for (uint32_t i = 0; i < 3; ++i) {
    const bool has = column + 2 * i < end;
    const unsigned char *from = row + size_t(column + 2 * i) * y_bytes;
    if constexpr (y_bytes == 2) {
      out.w[i] = has ? load4(from) : 0;
    } else {
      const uint64_t two = has ? load8(from) : 0;
      out.w[2 * i] = static_cast<uint32_t>(two);
      out.w[2 * i + 1] = static_cast<uint32_t>(two >> 32);
    }
  }
  return out;
}
__device__ inline float narrow_at(const uint32_t *w, uint32_t i) { return from_narrow(i % 2 ? w[i / 2] >> 16 : w[i / 2] & 0xffff); }
__device__ inline float number_at(const raw_six &raw, uint32_t i) {
  if constexpr (y_bytes == 4) return __uint_as_float(raw.w[i]);
  return narrow_at(raw.w, i);
}
__device__ inline uint32_t narrow_two(float low, float high) { return MOE_Y == 1 ? to_half_pair(low, high) : to_bf16_pair(low, high); }

/* Rows of which a lane has loads under way. */
constexpr uint32_t rows_at_once = 8;

/* By a warp: this lane's columns of a sum, of the rows that `terms` lanes have as entries. */
__device__ inline void add_up(const exchange &e, const products &y, uint64_t entry, uint32_t terms, uint32_t column,
                              float (&total)[six]) {
#pragma unroll 1
  for (uint32_t base = 0; base < terms; base += rows_at_once) {
    raw_six loaded[rows_at_once];
#pragma unroll
    for (uint32_t i = 0; i < rows_at_once; ++i) {
      if (base + i >= terms) break;
      const size_t row = __shfl_sync(all_lanes, static_cast<uint32_t>(entry), static_cast<int>(base + i));
      loaded[i] = load_six(y.y + row * e.unit_bytes, column, e.hidden);
    }
#pragma unroll
    for (uint32_t i = 0; i < rows_at_once; ++i) {
      if (base + i >= terms) break;
      const uint32_t bits = __shfl_sync(all_lanes, static_cast<uint32_t>(entry >> 32), static_cast<int>(base + i));
      const float weight = __uint_as_float(bits);
#pragma unroll
      for (uint32_t k = 0; k < six; ++k) {
        float v = number_at(loaded[i], k);
        if (e.weighted && MOE_LAYOUT != 1) v = __fmul_rn(v, weight);
        total[k] = base + i == 0 ? v : __fadd_rn(total[k], v);
      }
    }
  }
}

/* What a warp does next: a part of a sum that it pushes, or that it makes at home. `at`: whose record it
 * needs. Rank-major there is one row to a sum, in the token's own place: so that is asked for with the
 * record. */
struct next_item {
  uint32_t item, at;
  record known;
  raw_six row;
};
__device__ inline uint32_t part_of(const exchange &e, const next_item &one) { return one.item % parts_of_sum(e); }
__device__ inline uint32_t column_of(uint32_t part) { return part * part_columns + six * lane_of(); }
template <bool row_too>
__device__ inline void ask(const exchange &e, const products &y, next_item &one, uint32_t row, bool wanted) {
  one.known = read_record(e, one.at, wanted);
  if (row_too && wanted) one.row = load_six(y.y + size_t(row) * e.unit_bytes, column_of(part_of(e, one)), e.hidden);
}

/* Whether a rank's own sum does not go through packets: its row is added where it lies. Not where pushing is
 * a launch of its own, behind which the row may change. */
template <bool pushes, bool collects> constexpr bool adds_own = MOE_LAYOUT == 1 && pushes && collects;

/* By a warp: a part of this rank's sum of a token, to its home. Where that is it finds out behind the loads
 * of rows. */
__device__ inline void push_part(const exchange &e, const rushmem::team &t, const products &y, passage &through, uint32_t tag,
                                 const next_item &one) {
  const uint32_t lane = lane_of(), at = one.at, part = part_of(e, one), column = column_of(part);
  const bool is_short = y_bytes == 2 && (MOE_LAYOUT == 1 || (one.known.head & is_narrow) != 0);
  three packets[2];
  if (is_short && (MOE_LAYOUT == 1 || !e.rounded)) {
    /* A row that goes as the expert left it. */
    raw_six raw = one.row;
    if constexpr (MOE_LAYOUT != 1) {
      const size_t row = __shfl_sync(all_lanes, static_cast<uint32_t>(one.known.entry), 0);
      raw = load_six(y.y + row * e.unit_bytes, column, e.hidden);
    }
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) packets[0].w[i] = raw.w[i];
  } else if (y_bytes == 4 || MOE_LAYOUT != 1) {
    float total[six] = {};
    if constexpr (MOE_LAYOUT == 1) {
#pragma unroll
      for (uint32_t k = 0; k < six; ++k) total[k] = number_at(one.row, k);
    } else {
      add_up(e, y, one.known.entry, static_cast<uint32_t>(one.known.head & 0xff), column, total);
    }
    if (is_short) {
#pragma unroll
      for (uint32_t i = 0; i < 3; ++i) packets[0].w[i] = narrow_two(total[2 * i], total[2 * i + 1]);
    } else {
      to_packets(through, total, packets);
    }
  }
  const uint32_t source = at / e.max_tokens, unit = static_cast<uint32_t>(one.known.head >> 32);
  slim_packet *to = there(t, unit_of(e, at - source * e.max_tokens, unit), source) + part * (is_short ? narrow_packets : wide_packets) + lane;
  rushmem::store_packed(to, packets[0].w, tag);
  if (!is_short) rushmem::store_packed(to + lanes, packets[1].w, tag);
}

/* `own`: this rank's tokens have none. */
template <bool own>
__device__ inline next_item item_to_push(const exchange &e, const rushmem::team &t, const products &y, uint32_t item) {
  const uint32_t number = item / parts_of_sum(e);
  next_item one{item, own ? others_token(e, t, number) : number, {}, {}};
  ask<MOE_LAYOUT == 1>(e, y, one, one.at, one.at < static_cast<uint32_t>(t.n_pes()) * e.max_tokens);
  return one;
}

/* What the next item needs is asked for before this one goes. */
template <bool own>
__device__ inline void push_all(const exchange &e, const rushmem::team &t, const products &y, uint32_t tag, passage &through,
                                next_item next) {
  const uint32_t rows = static_cast<uint32_t>(t.n_pes()) * e.max_tokens;
#pragma unroll 1
  while (next.at < rows) {
    const next_item one = next;
    next = item_to_push<own>(e, t, y, one.item + slots());
    if ((one.known.head & 0xff) != 0) push_part(e, t, y, through, tag, one);
  }
}

/* ---- at home ---- */

/* Ranks' sums that are waited for side by side. */
constexpr uint32_t sums_at_once = 2;

/* By a warp: the ranks' sums of a part of a token, added up. */
template <bool own>
__device__ inline void collect_part(const exchange &e, const products &y, passage &through, uint32_t tag, uint32_t terms,
                                    const next_item &next, uint32_t token, uint32_t part) {
  const uint32_t lane = lane_of();
  float total[six] = {};
#pragma unroll 1
  for (uint32_t base = 0; base < terms; base += sums_at_once) {
    const slim_packet *slots[2 * sums_at_once];
    bool wanted[2 * sums_at_once], is_short[sums_at_once], is_here[sums_at_once];
    three values[2 * sums_at_once];
    float weights[sums_at_once];
#pragma unroll
    for (uint32_t i = 0; i < sums_at_once; ++i) {
      const uint64_t one = __shfl_sync(all_lanes, static_cast<unsigned long long>(next.known.entry), static_cast<int>((base + i) % lanes));
      weights[i] = __uint_as_float(static_cast<uint32_t>(one >> 32));
      is_short[i] = y_bytes == 2 && (one & is_narrow) != 0;
      is_here[i] = own && (one & is_own) != 0;
      slots[2 * i] = unit_of(e, token, static_cast<uint32_t>(one & unit_bits)) + part * (is_short[i] ? narrow_packets : wide_packets) + lane;
      slots[2 * i + 1] = slots[2 * i] + lanes;
      wanted[2 * i] = base + i < terms && !is_here[i];
      wanted[2 * i + 1] = base + i < terms && !is_short[i] && !is_here[i];
    }
    await(slots, wanted, values, tag);
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < sums_at_once; ++i) {
      if (base + i >= terms) break;
      float v[six];
      if (is_here[i]) {
#pragma unroll
        for (uint32_t k = 0; k < six; ++k) v[k] = number_at(next.row, k);
      } else if (is_short[i]) {
#pragma unroll
        for (uint32_t k = 0; k < six; ++k) {
          v[k] = narrow_at(values[2 * i].w, k);
          if (e.weighted && MOE_LAYOUT != 1 && !e.rounded) v[k] = __fmul_rn(v[k], weights[i]);
        }
      } else {
        of_packets(through, values[2 * i], values[2 * i + 1], v);
      }
#pragma unroll
      for (uint32_t k = 0; k < six; ++k) total[k] = base + i == 0 ? v[k] : __fadd_rn(total[k], v[k]);
    }
  }
  unsigned char *out = y.out + size_t(token) * e.hidden * out_bytes;
  if constexpr (out_bytes == 2) {
    three twos;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
      const float low = total[2 * i], high = total[2 * i + 1];
      twos.w[i] = MOE_OUT == 1 ? to_half_pair(low, high) : to_bf16_pair(low, high);
    }
    const three words = across(through, twos);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t word = part * part_columns / 2 + i * lanes + lane;
      if (2 * word < e.hidden) store4(out + size_t(word) * 4, words.w[i]);
    }
  } else {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t column = part * part_columns + six * lane + 2 * i;
      if (column < e.hidden) store8(out + size_t(column) * 4, word_of(total[2 * i], total[2 * i + 1]));
    }
  }
}

template <bool own>
__device__ inline next_item item_to_collect(const exchange &e, const rushmem::team &t, const products &y, uint32_t item) {
  const uint32_t token = item / parts_of_sum(e), ranks = static_cast<uint32_t>(t.n_pes());
  next_item one{item, ranks * e.max_tokens + token, {}, {}};
  ask<own>(e, y, one, static_cast<uint32_t>(t.my_pe()) * e.max_tokens + token, token < e.max_tokens);
  return one;
}

template <bool own>
__device__ inline void collect_all(const exchange &e, const rushmem::team &t, const products &y, uint32_t tag, passage &through,
                                   next_item next) {
  const uint32_t first = static_cast<uint32_t>(t.n_pes()) * e.max_tokens;
#pragma unroll 1
  while (next.at - first < e.max_tokens) {
    const next_item one = next;
    next = item_to_collect<own>(e, t, y, one.item + slots());
    const uint64_t head = one.known.head;
    if (head & exists) collect_part<own>(e, y, through, tag, static_cast<uint32_t>(head & 0xff), one, one.at - first, part_of(e, one));
  }
}

/* All loads that need no other come first. */
template <bool pushes, bool collects>
__device__ inline void combine_all(const exchange &e, const rushmem::team &t, const products &y) {
  __shared__ passage of_warps[warps];
  constexpr bool own = adds_own<pushes, collects>;
  passage &through = of_warps[warp_of()];
  next_item pushed{}, collected{};
  if constexpr (pushes) pushed = item_to_push<own>(e, t, y, from_front());
  if constexpr (collects) collected = item_to_collect<own>(e, t, y, from_back());
  const uint64_t round = e.received[blockIdx.x];
  const bool may = may_combine(e, round);
  if constexpr (pushes) {
    if (may) push_all<own>(e, t, y, static_cast<uint32_t>(round), through, pushed);
  }
  if constexpr (collects) {
    if (may) collect_all<own>(e, t, y, static_cast<uint32_t>(round), through, collected);
    count_round(e, e.combined, round);
  }
}

}  // namespace few
}  // namespace moe
