/* Rows that come by pieces (pieces.h), and what a warp makes of them: their sum, or a copy. */
namespace moe {

/* What a lane has of a piece of `n * lanes` fours. Where 16-bit numbers become 16-bit numbers (`twos`) two
 * fours lie side by side, so that a lane loads and stores 16 bytes; else those of the lanes do. */
template <bool twos> __device__ inline uint32_t four_of_lane(uint32_t j) {
  return twos ? 2 * (lane_of() + j / 2 * lanes) + j % 2 : lane_of() + j * lanes;
}

/* The first term is the sum so far: what it and -0 add up to. */
template <bool first> __device__ inline void add_to(four &total, four v, bool scaled, float by) {
  if (scaled) scale_four(v, by);
  if constexpr (first) total = v;
  else add_four(total, v);
}

/* Adds a piece. Where it is not full, what is added past its end is not used. */
template <bool twos, bool first, bool scaled, uint32_t n>
__device__ inline void add_piece(const unsigned char *piece, bool narrow, float by, four (&total)[n]) {
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) {
    const uint32_t at = four_of_lane<twos>(j);
    if constexpr (!twos) {
      const four v = narrow ? four_of_narrow(load8(piece + at * 8)) : four_of_floats(load16(piece + at * 16));
      add_to<first>(total[j], v, scaled, by);
    } else if (j % 2 == 0) {
      const uint4 q = load16(piece + at * 8);
      add_to<first>(total[j], four_of_narrow(static_cast<uint64_t>(q.y) << 32 | q.x), scaled, by);
      add_to<first>(total[j + 1], four_of_narrow(static_cast<uint64_t>(q.w) << 32 | q.z), scaled, by);
    }
  }
}

/* A row to be added: where it has a four, of how many bytes, and what it is multiplied by. */
struct term {
  const unsigned char *row;
  uint32_t four_bytes;
  bool scaled;
  float by;
};

/* The sums of a piece that begins at four `base`. A full piece, as most are, has no checks of its end. */
template <bool twos, uint32_t n, typename Put>
__device__ inline void put_piece(uint32_t base, range fours, const four (&total)[n], const Put &put) {
  const bool full = base + n * lanes <= fours.end;
  if (full) {
#pragma unroll
    for (uint32_t j = 0; j < n; ++j) put(base + four_of_lane<twos>(j), j, total);
    return;
  }
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) {
    const uint32_t at = base + four_of_lane<twos>(j);
    if (at < fours.end) put(at, j, total);
  }
}

/* Of no rows. */
template <bool twos, uint32_t n, typename Put> __device__ inline void put_zeros(range fours, const Put &put) {
  four total[n];
#pragma unroll
  for (uint32_t j = 0; j < n; ++j) total[j] = four_of(0.0f);
#pragma unroll 1
  for (uint32_t base = fours.begin; base < fours.end; base += n * lanes) {
    put_piece<twos>(base, fours, total, put);
  }
}

/* Adds up `terms` rows, which `term_of` describes, by pieces of `n * lanes` fours; `put` gets the sums: the
 * place of four `j` of a lane's. The warp works out which piece it fetches next before it adds the one at
 * hand, so that the fetch follows at once. */
template <bool twos, uint32_t n, typename TermOf, typename Put>
__device__ inline void add_rows(pieces &through, uint32_t terms, range fours, const TermOf &term_of,
                                const Put &put) {
  constexpr uint32_t each = n * lanes;
  if (terms == 0) return put_zeros<twos, n>(fours, put);
  uint32_t ahead = fours.begin, of = 0;
  const auto next = [&] {
    const term from = term_of(of);
    const uint32_t count = fours.end - ahead < each ? fours.end - ahead : each;
    const coming c{ahead < fours.end, from.row + ahead * from.four_bytes, count * from.four_bytes};
    if (++of == terms) {
      of = 0;
      ahead += each;
    }
    return c;
  };
#pragma unroll 1
  for (uint32_t i = 0; i < MOE_PIECES; ++i) through.fetch(i, next());
#pragma unroll 1
  for (uint32_t base = fours.begin; base < fours.end; base += each) {
    four total[n];
    const term first = term_of(0);
    const coming follows = next();
    const unsigned char *begun = through.wait();
    if (first.scaled) add_piece<twos, true, true>(begun, first.four_bytes == 8, first.by, total);
    else add_piece<twos, true, false>(begun, first.four_bytes == 8, 1, total);
    through.replace(follows);
#pragma unroll 1
    for (uint32_t i = 1; i < terms; ++i) {
      const term one = term_of(i);
      const coming c = next();
      const unsigned char *piece = through.wait();
      if (one.scaled) add_piece<twos, false, true>(piece, one.four_bytes == 8, one.by, total);
      else add_piece<twos, false, false>(piece, one.four_bytes == 8, 1, total);
      through.replace(c);
    }
    put_piece<twos>(base, fours, total, put);
  }
}

/* A row that goes as it is. */
__device__ inline void copy_row(pieces &through, const unsigned char *row, unsigned char *to, range fours) {
  const uint32_t end = fours.end * 8;
  uint32_t ahead = fours.begin * 8;
  const auto next = [&] {
    const coming c{ahead < end, row + ahead, end - ahead < piece_bytes ? end - ahead : piece_bytes};
    ahead += piece_bytes;
    return c;
  };
#pragma unroll 1
  for (uint32_t i = 0; i < MOE_PIECES; ++i) through.fetch(i, next());
#pragma unroll 1
  for (uint32_t base = fours.begin * 8; base < end; base += piece_bytes) {
    const coming c = next();
    const unsigned char *piece = through.wait();
#pragma unroll
    for (uint32_t j = 0; j < piece_bytes / 16 / lanes; ++j) {
      const uint32_t at = (lane_of() + j * lanes) * 16;
      if (base + at < end) store16(to + base + at, load16(piece + at));
    }
    through.replace(c);
  }
}

}  // namespace moe
