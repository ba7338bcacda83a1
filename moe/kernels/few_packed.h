/* Rank-major sums of 16-bit numbers, which are rows of experts as they are, by packed rows: of what crosses
 * the link fifteen sixteenths are data, where of packets three quarters are; and a lane's numbers are side by
 * side as they lie in memory, so that no warp passes them on. (The other sums are few_combine.h's.) */
namespace moe {
namespace few {

#if MOE_LAYOUT == 1
constexpr bool sums_are_packed = y_bytes == 2;
#else
constexpr bool sums_are_packed = false;
#endif

/* Columns of a packed row, and of a lane: eight, or four where it has a number. */
constexpr uint32_t packed_columns = 240, lane_columns = 8;
__device__ inline uint32_t rows_of_sum(const exchange &e) { return (e.hidden + packed_columns - 1) / packed_columns; }
__device__ inline uint32_t packed_column(uint32_t row) {
  return row * packed_columns + lane_of() / 8 * (packed_columns / 4) + lane_of() % 8 * lane_columns;
}
/* Where a sum of a token's comes: in the memory of its packets, of which there are more. */
__device__ inline rushmem::packed_row *packed_unit(const exchange &e, uint32_t token, uint32_t unit) {
  return reinterpret_cast<rushmem::packed_row *>(unit_of(e, token, unit));
}

/* This lane's columns of a row of the experts'. */
__device__ inline rushmem::row_words load_packed(const exchange &e, const products &y, uint32_t row, uint32_t column) {
  const unsigned char *from = y.y + size_t(row) * e.unit_bytes + size_t(column) * 2;
  rushmem::row_words words{0, 0};
  if (column < e.hidden) words.low = load8(from);
  if (!rushmem::owns_number() && column + 4 < e.hidden) words.high = load8(from + 8);
  return words;
}

/* What a warp does next: a row of a sum that it pushes, or that it makes at home (few_combine.h). The row of
 * the experts' lies in the token's own place, so that it is asked for with the record. */
struct packed_item {
  uint32_t item, at;
  record known;
  rushmem::row_words own;
};
template <bool own>
__device__ inline packed_item packed_to_push(const exchange &e, const rushmem::team &t, const products &y, uint32_t item) {
  const uint32_t number = item / rows_of_sum(e);
  packed_item one{item, own ? others_token(e, t, number) : number, {0, 0}, {0, 0}};
  if (one.at >= static_cast<uint32_t>(t.n_pes()) * e.max_tokens) return one;
  one.known.head = *record_of(e, one.at);
  one.own = load_packed(e, y, one.at, packed_column(item % rows_of_sum(e)));
  return one;
}
template <bool own>
__device__ inline packed_item packed_to_collect(const exchange &e, const rushmem::team &t, const products &y, uint32_t item) {
  const uint32_t token = item / rows_of_sum(e), ranks = static_cast<uint32_t>(t.n_pes());
  packed_item one{item, token, {0, 0}, {0, 0}};
  if (token >= e.max_tokens) return one;
  one.known = read_record(e, ranks * e.max_tokens + token, true);
  if (own) one.own = load_packed(e, y, static_cast<uint32_t>(t.my_pe()) * e.max_tokens + token, packed_column(item % rows_of_sum(e)));
  return one;
}

template <bool own>
__device__ inline void push_packed(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, packed_item next) {
  const uint32_t rows = static_cast<uint32_t>(t.n_pes()) * e.max_tokens;
#pragma unroll 1
  while (next.at < rows) {
    const packed_item one = next;
    next = packed_to_push<own>(e, t, y, one.item + slots());
    if ((one.known.head & 0xff) == 0) continue;
    const uint32_t source = one.at / e.max_tokens, unit = static_cast<uint32_t>(one.known.head >> 32);
    rushmem::packed_row *to = packed_unit(e, one.at - source * e.max_tokens, unit) + one.item % rows_of_sum(e);
    rushmem::store_packed_row(rushmem::ptr(to, t.world_pe(static_cast<int>(source))), one.own, round);
  }
}

/* By a warp: the sums of two ranks, once they are here. */
__device__ inline void await_rows(const rushmem::packed_row *const (&rows)[2], bool (&has)[2], rushmem::row_words (&words)[2], uint64_t round) {
#pragma unroll 1
  for (uint32_t i = 0; i < polls; ++i) {
    rushmem::test_packed_rows<2>(rows, round, has, words);
    if (has[0] && has[1]) return;
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    if (!has[i]) words[i] = rushmem::wait_packed_row(rows[i], round);
  }
}

__device__ inline void add_packed(const rushmem::row_words &words, bool first, float (&total)[lane_columns]) {
#pragma unroll
  for (uint32_t k = 0; k < lane_columns; ++k) {
    const uint64_t word = k < 4 ? words.low : words.high;
    const float v = from_narrow(static_cast<uint32_t>(word >> (16 * (k % 4))) & 0xffff);
    total[k] = first ? v : __fadd_rn(total[k], v);
  }
}

/* A lane's columns of a result. */
__device__ inline void store_packed(const exchange &e, const products &y, uint32_t token, uint32_t column, const float (&total)[lane_columns]) {
  unsigned char *out = y.out + (size_t(token) * e.hidden + column) * out_bytes;
#pragma unroll
  for (uint32_t k = 0; k < lane_columns; k += 4) {
    if (column + k >= e.hidden || (k == 4 && rushmem::owns_number())) break;
    if constexpr (out_bytes == 2) {
      const auto two = [&](uint32_t i) -> uint64_t {
        return MOE_OUT == 1 ? to_half_pair(total[i], total[i + 1]) : to_bf16_pair(total[i], total[i + 1]);
      };
      store8(out + k * 2, two(k) | two(k + 2) << 32);
    } else {
      store8(out + k * 4, word_of(total[k], total[k + 1]));
      store8(out + k * 4 + 8, word_of(total[k + 2], total[k + 3]));
    }
  }
}

template <bool own>
__device__ inline void collect_packed(const exchange &e, const rushmem::team &t, const products &y, uint64_t round, packed_item next) {
#pragma unroll 1
  while (next.at < e.max_tokens) {
    const packed_item one = next;
    next = packed_to_collect<own>(e, t, y, one.item + slots());
    if (!(one.known.head & exists)) continue;
    const uint32_t terms = static_cast<uint32_t>(one.known.head & 0xff), row = one.item % rows_of_sum(e);
    float total[lane_columns] = {};
#pragma unroll 1
    for (uint32_t base = 0; base < terms; base += 2) {
      const rushmem::packed_row *rows[2];
      bool has[2];
      rushmem::row_words words[2];
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint64_t entry = __shfl_sync(all_lanes, static_cast<unsigned long long>(one.known.entry), static_cast<int>((base + i) % lanes));
        const bool is_here = own && (entry & is_own) != 0;
        rows[i] = packed_unit(e, one.at, base + i < terms ? static_cast<uint32_t>(entry & unit_bits) : 0) + row;
        has[i] = base + i >= terms || is_here;
        words[i] = one.own;
      }
      await_rows(rows, has, words, round);
      add_packed(words[0], base == 0, total);
      if (base + 1 < terms) add_packed(words[1], false, total);
    }
    store_packed(e, y, one.at, packed_column(row), total);
  }
}

/* All loads that need no other come first. */
template <bool pushes, bool collects>
__device__ inline void combine_packed(const exchange &e, const rushmem::team &t, const products &y) {
  constexpr bool own = adds_own<pushes, collects>;
  packed_item pushed{}, collected{};
  if constexpr (pushes) pushed = packed_to_push<own>(e, t, y, from_front());
  if constexpr (collects) collected = packed_to_collect<own>(e, t, y, from_back());
  const uint64_t round = e.received[blockIdx.x];
  const bool may = may_combine(e, round);
  if constexpr (pushes) {
    if (may) push_packed<own>(e, t, y, round, pushed);
  }
  if constexpr (collects) {
    if (may) collect_packed<own>(e, t, y, round, collected);
    count_round(e, e.combined, round);
  }
}

template <bool pushes, bool collects>
__device__ inline void combine(const exchange &e, const rushmem::team &t, const products &y) {
  if constexpr (sums_are_packed) {
    if (rushmem::has_packed_rows(t)) return combine_packed<pushes, collects>(e, t, y);
  }
  combine_all<pushes, collects>(e, t, y);
}

}  // namespace few
}  // namespace moe
