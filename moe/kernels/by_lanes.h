/* Rows that are added where blocks are few (MOE_BY_LANES; plan.rs says when). There a combine takes as long
 * as its instructions do, and as the copy engine of a multiprocessor takes for many short pieces (pieces.h).
 * Here each lane fetches the 16 bytes of a piece that it adds itself (cp.async): no lane waits for another,
 * and a count of its own groups says what has come. All rows and sums that such a combine adds are of one
 * type, that which experts produce.
 *
 * Order: cp.async reads as loads do, by the generic proxy. What other threads have stored in this launch is
 * fetched behind the acquire of its flag, behind which the warp has met; so no fence between proxies is
 * needed. A lane sees what it has fetched once cp.async.wait_group says so. It fetches to the same place
 * again behind its own load of it, as a pipeline of one thread does. */
#ifndef MOE_BY_LANES
#define MOE_BY_LANES 0
#endif

#if MOE_BY_LANES
namespace moe {

/* A piece is so many times 16 bytes of each lane, each time side by side; numbers in 16 bytes. */
constexpr uint32_t quads = piece_bytes / (16 * lanes), in_quad = 16 / y_bytes;
/* From one of a lane's 16 bytes to the next. */
constexpr uint32_t apart = 16 * lanes;

/* Of a row, in bytes: multiples of 16. */
struct stretch {
  uint32_t begin, end;
};
__device__ inline stretch stretch_of(range fours) {
  return {fours.begin * 4 * y_bytes, fours.end * 4 * y_bytes};
}

/* Where a lane has its first 16 bytes of a piece, in shared memory. */
#if MOE_FETCH == 0
using lane_place = unsigned char *;
__device__ inline lane_place place_at(unsigned char *p) { return p; }
__device__ inline uint4 load_place(lane_place from, uint32_t at) { return load16(from + at); }
#else
using lane_place = uint32_t;
__device__ inline lane_place place_at(unsigned char *p) { return pieces::in_shared(p); }
__device__ inline uint4 load_place(lane_place from, uint32_t at) {
  uint4 q;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "r"(from + at)
               : "memory");
  return q;
}
#endif

/* Begins to fetch a lane's part of a piece, from where the row has `left` bytes: a group, if an empty one. */
__device__ inline void fetch_place(lane_place to, const unsigned char *from, int32_t left) {
#pragma unroll
  for (uint32_t j = 0; j < quads; ++j) {
    const int32_t at = static_cast<int32_t>(j * apart);
#if MOE_FETCH == 0
    /* Zeros past the end are added, and not used: a checked run would report what was never written. */
    store16(to + at, left > at ? load16(from + at) : uint4{});
#else
    /* No branch: past the end of the row nothing is fetched. */
    asm volatile(
        "{\n.reg .pred p;\n"
        "setp.gt.s32 p, %2, %3;\n"
        "@p cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(to + at),
        "l"(from + at), "r"(left), "r"(at)
        : "memory");
#endif
  }
#if MOE_FETCH != 0
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for the oldest piece: for all groups but those behind it. */
__device__ inline void wait_place() {
#if MOE_FETCH != 0
  asm volatile("cp.async.wait_group %0;" ::"n"(MOE_PIECES - 1) : "memory");
#endif
}

/* Adds 16 bytes of a row. The first term is the sum so far. */
template <bool first, bool scaled>
__device__ inline void add_quad(float (&total)[in_quad], uint4 q, float by) {
  const uint32_t w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
  for (uint32_t i = 0; i < in_quad; ++i) {
    float v = __uint_as_float(w[i % 4]);
    if constexpr (y_bytes == 2) v = from_narrow(i % 2 ? w[i / 2] >> 16 : w[i / 2] & 0xffff);
    if constexpr (scaled) v = __fmul_rn(v, by);
    total[i] = first ? v : __fadd_rn(total[i], v);
  }
}

/* A lane's part of rows on their way, of each piece that of every row, in the order of rows. */
struct lane_rows {
  const unsigned char *const *rows; /* in shared memory */
  uint32_t terms, end;              /* how many they are, and where each ends */
  uint32_t of, ahead;               /* which is fetched next, and from where on */
  lane_place room, oldest;

  __device__ const unsigned char *next() const { return rows[of] + ahead; }
  __device__ void fetch(const unsigned char *from) {
    fetch_place(oldest, from, static_cast<int32_t>(end - ahead));
    oldest = oldest == room + (MOE_PIECES - 1) * piece_bytes ? room : oldest + piece_bytes;
    if (++of == terms) {
      of = 0;
      ahead += piece_bytes;
    }
  }

  /* Adds the oldest piece and fetches another in its place. */
  template <bool first, bool scaled>
  __device__ void add(float (&total)[quads][in_quad], const float *weight) {
    const unsigned char *from = next();
    const float by = scaled ? *weight : 1;
    wait_place();
    uint4 q[quads];
#pragma unroll
    for (uint32_t j = 0; j < quads; ++j) q[j] = load_place(oldest, j * apart);
#pragma unroll
    for (uint32_t j = 0; j < quads; ++j) add_quad<first, scaled>(total[j], q[j], by);
    fetch(from);
  }
};

/* Adds up `terms` rows, at least one, of each those bytes, through the warp's `room`. `put` gets the sums of
 * 16 bytes, and where they lie in a row. What is added past the end is not used. */
template <bool scaled, typename Put>
__device__ inline void add_by_lanes(unsigned char *room, const unsigned char *const *rows,
                                    const float *weights, uint32_t terms, stretch part, const Put &put) {
  const uint32_t mine = 16 * lane_of();
  const lane_place places = place_at(room + mine);
  lane_rows r{rows, terms, part.end, 0, part.begin + mine, places, places};
#pragma unroll 1
  for (uint32_t i = 0; i < MOE_PIECES; ++i) r.fetch(r.next());
#pragma unroll 1
  for (uint32_t base = part.begin; base < part.end; base += piece_bytes) {
    float total[quads][in_quad];
    r.add<true, scaled>(total, weights);
#pragma unroll 1
    for (uint32_t i = 1; i < terms; ++i) r.add<false, scaled>(total, weights + i);
    /* A full piece, as most are, has no checks of its end. */
    const uint32_t at = base + mine;
    if (base + piece_bytes <= part.end) {
#pragma unroll
      for (uint32_t j = 0; j < quads; ++j) put(at + j * apart, total[j]);
      continue;
    }
#pragma unroll
    for (uint32_t j = 0; j < quads; ++j) {
      if (at + j * apart < part.end) put(at + j * apart, total[j]);
    }
  }
}

__device__ inline four low_of(const float (&total)[in_quad]) {
  return {{total[0], total[1], total[2], total[3]}};
}
__device__ inline four high_of(const float (&total)[in_quad]) {
  constexpr uint32_t at = in_quad - 4;
  return {{total[at], total[at + 1], total[at + 2], total[at + 3]}};
}

/* A part of a sum, as the home will read it. */
__device__ inline void store_by_lanes(unsigned char *room, const unsigned char *const *rows,
                                      const float *weights, uint32_t terms, unsigned char *to, range fours) {
  const stretch part = stretch_of(fours);
  add_by_lanes<true>(room, rows, weights, terms, part, [&](uint32_t at, const float(&total)[in_quad]) {
    if constexpr (y_bytes == 4) store16(to + at, floats_of(low_of(total)));
    else store16(to + at, narrow_pair_of(low_of(total), high_of(total)));
  });
}

/* A part of a result, of sums that have come; zeros, if there are none. */
__device__ inline void collect_by_lanes(unsigned char *room, const unsigned char *const *rows, uint32_t terms,
                                        unsigned char *out, range fours) {
  if (terms == 0) {
    const auto put = [&](uint32_t at, uint32_t, const four(&total)[1]) { store_four(out, at, total[0]); };
    return put_zeros<false, 1>(fours, put);
  }
  const stretch part = stretch_of(fours);
  add_by_lanes<false>(room, rows, nullptr, terms, part, [&](uint32_t at, const float(&total)[in_quad]) {
    const uint32_t first = at / (4 * y_bytes);
    if constexpr (y_bytes == 2 && out_bytes == 2) {
      store_pair(out, first, low_of(total), high_of(total));
    } else {
      store_four(out, first, low_of(total));
      if constexpr (y_bytes == 2) store_four(out, first + 1, high_of(total));
    }
  });
}

}  // namespace moe
#endif
