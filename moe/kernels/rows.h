/* Rows that go on as they are, to one place or to several: through rooms in shared memory of which each warp
 * that takes rows has some, in a ring. A piece of a row is fetched into a room once, and stored from there to
 * each place; meanwhile the pieces behind it, also those of the next row, are on their way. From sm_90 on one
 * lane has the SM's copy engine do both (cp.async.bulk), which takes it a few instructions for each piece and
 * place, whatever its length; before it the lanes fetch (cp.async) and store, and on the CPU device, too.
 *
 * Order, from sm_90 on (device/include/rushmem/impl/bulk.h argues the same at length):
 *   - a row that a peer has stored is fetched behind the acquire of its flag and pieces::behind_flags;
 *   - a piece is stored once its barrier says that all of it has come;
 *   - a room is fetched into again once all stores from it have been read (wait_group.read), which the lane
 *     that issued them waits for; so one lane issues them all;
 *   - what was stored is there for the next kernel of the stream, because that lane waits for its stores to
 *     be complete (wait_group without .read) before it ends, in `end`, and a kernel that is launched early
 *     waits for all of this one (await_stream).
 *
 * MOE_ROOMS, MOE_ROOM: rooms of a warp, and bytes of each, a multiple of 16. MOE_TAKERS: warps of a block
 * that take rows, the last ones. */
#ifndef MOE_ROOMS
#define MOE_ROOMS 3
#endif
#ifndef MOE_ROOM
#define MOE_ROOM 1536
#endif
#ifndef MOE_TAKERS
#define MOE_TAKERS (MOE_THREADS / 32)
#endif

namespace moe {

constexpr uint32_t rooms = MOE_ROOMS, room_bytes = MOE_ROOM, takers = MOE_TAKERS;
/* Pieces that have been fetched and not stored: half of the rooms, the others are being read. */
constexpr uint32_t lag = rooms / 2;
static_assert(lag >= 1 && room_bytes % 16 == 0 && takers <= warps, "at least two rooms");

/* The places of a row, found by a warp. */
struct placed {
  uint32_t places[most_top_k];
  uint32_t copies;
};

/* What lies in a room: bytes of a row from `at` on, of which the first `data` are the token's, the others
 * what lies beside it; and which places they go to. */
struct piece_note {
  uint32_t at, bytes, data, row;
};

/* What a warp has of shared memory (plan.rs has its size). */
struct rooms_of_warp {
  alignas(128) unsigned char room[rooms][room_bytes];
  uint64_t barriers[rooms];
  piece_note notes[rooms];
  placed rows[lag + 1]; /* of the rows of those pieces that have not been stored, and of one more */
};

struct mover {
  rooms_of_warp *own;
  uint32_t next, oldest, parity, queued;
  uint32_t row; /* which of `rows` is that at hand */

  /* By the warp, as all of these. */
  __device__ void begin(rooms_of_warp *shared) {
    own = shared;
    next = oldest = parity = queued = row = 0;
#if MOE_FETCH == 2
    if (lane_of() == 0) {
      for (uint32_t i = 0; i < rooms; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(pieces::in_shared(own->barriers + i)) : "memory");
      }
      asm volatile("fence.proxy.async;" ::: "memory");
    }
#endif
    __syncwarp();
  }

  /* The places of the row at hand; and from then on of another row, once pieces of this one have been
   * fetched: those that have not been stored are of `lag` rows at most, and lane 0 is done with the others
   * when the warp has met. */
  __device__ placed &at_hand() const { return own->rows[row]; }
  __device__ void another() { row = row == lag ? 0 : row + 1; }

  __device__ static void copy_out(unsigned char *to, const unsigned char *from, uint32_t bytes) {
#if MOE_FETCH == 2
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(pieces::in_shared(from)),
                 "r"(bytes)
                 : "memory");
#else
    for (uint32_t at = 16 * lane_of(); at < bytes; at += 16 * lanes) store16(to + at, load16(from + at));
#endif
  }

  /* Stores the oldest piece. */
  __device__ void store_oldest(const exchange &e, const received &r) {
#if MOE_FETCH == 2
    uint32_t done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(pieces::in_shared(own->barriers + oldest)), "r"(parity)
          : "memory");
    }
#elif MOE_FETCH == 1
    if (queued > lag) asm volatile("cp.async.wait_group %0;" ::"n"(lag) : "memory");
    else asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
#else
    __syncwarp();
#endif
    const piece_note &n = own->notes[oldest];
    const unsigned char *from = own->room[oldest];
    const placed &to = own->rows[n.row];
    const uint32_t data = n.data, beside = n.bytes - n.data;
#pragma unroll 1
    for (uint32_t i = 0; i < to.copies; ++i) {
      const size_t place = to.places[i];
      if (data != 0) copy_out(r.x + place * e.data_bytes + n.at, from, data);
      if (beside != 0) copy_out(r.side + place * e.side_bytes + (n.at + data - e.data_bytes), from + data, beside);
    }
#if MOE_FETCH == 2
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
    __syncwarp();
#endif
    if (++oldest == rooms) {
      oldest = 0;
      parity ^= 1;
    }
    --queued;
  }

  __device__ void fetch(const unsigned char *from, const piece_note &n) {
#if MOE_FETCH == 2
    /* Of the stores since those from this room, all may be under way. */
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(rooms - 1 - lag) : "memory");
    own->notes[next] = n;
    const uint32_t bar = pieces::in_shared(own->barriers + next), to = pieces::in_shared(own->room[next]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n.bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(n.bytes), "r"(bar)
                 : "memory");
#else
    if (lane_of() == 0) own->notes[next] = n;
    for (uint32_t at = 16 * lane_of(); at < n.bytes; at += 16 * lanes) {
#if MOE_FETCH == 1
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<uint32_t>(__cvta_generic_to_shared(own->room[next] + at))),
                   "l"(from + at)
                   : "memory");
#else
      store16(own->room[next] + at, load16(from + at));
#endif
    }
#if MOE_FETCH == 1
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
#endif
    if (++next == rooms) next = 0;
    ++queued;
  }

  /* Moves the bytes of a row from `at` to `end`, multiples of 16, to the places at hand; those from
   * e.data_bytes on are what lies beside it. */
  __device__ void move(const exchange &e, const received &r, const unsigned char *from, uint32_t at, uint32_t end) {
    if (MOE_FETCH == 2 && lane_of() != 0) return;
#pragma unroll 1
    for (; at < end; at += room_bytes) {
      const uint32_t bytes = end - at < room_bytes ? end - at : room_bytes;
      const uint32_t data = at >= e.data_bytes ? 0 : e.data_bytes - at < bytes ? e.data_bytes - at : bytes;
      fetch(from + at, piece_note{at, bytes, data, row});
      if (queued > lag) store_oldest(e, r);
    }
  }

  /* Stores all that has been fetched. */
  __device__ void drain(const exchange &e, const received &r) {
    if (MOE_FETCH == 2 && lane_of() != 0) return;
#pragma unroll 1
    while (queued != 0) store_oldest(e, r);
  }

  __device__ void end(const exchange &e, const received &r) {
    drain(e, r);
#if MOE_FETCH == 2
    if (lane_of() == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    __syncwarp();
  }
};

}  // namespace moe
