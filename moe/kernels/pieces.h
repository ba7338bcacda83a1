/* Rows on their way through shared memory, a warp's own: pieces of them are fetched some ahead of those at
 * hand, so that many bytes are in flight and few instructions are spent on them. From sm_90 on the SM's copy
 * engine fetches a piece (cp.async.bulk), and a barrier in shared memory counts its bytes; before it the
 * lanes do (cp.async), in groups; on the CPU device the piece is copied.
 *
 * Rows that other threads have stored in this launch, this GPU's or a peer's, are fetched behind the acquire
 * of their flag and then `pieces::behind_flags`: the copy engine reads by another way than they were stored,
 * which takes a fence between the two.
 *
 * MOE_PIECES: how many of a warp's are under way. Where blocks are few lanes fetch for themselves
 * (by_lanes.h). */
#ifndef MOE_PIECES
#define MOE_PIECES 4
#endif

#if defined(RUSHMEM_CPU)
#define MOE_FETCH 0
#elif __CUDA_ARCH__ >= 900
#define MOE_FETCH 2
#else
#define MOE_FETCH 1
#endif

namespace moe {

/* Bytes of a piece; what a warp has of shared memory: its pieces, and barriers (plan.rs has its size). */
constexpr uint32_t piece_bytes = 2048, room_of_pieces = MOE_PIECES * piece_bytes + 128;
static_assert(MOE_PIECES <= 16, "a barrier for each piece");

/* The piece to fetch next: from where, and of how many bytes, a multiple of 16. If the series has no `more`,
 * the rest means nothing. */
struct coming {
  bool more;
  const unsigned char *from;
  uint32_t bytes;
};

/* A series of pieces: the warp fetches the first MOE_PIECES, and then, in turns, waits for the oldest and
 * replaces it. It does so past the end of the series, too, where there is no `more`: cp.async.wait_group
 * counts the groups that follow the one it waits for, so each place needs a group, if an empty one. */
struct pieces {
  unsigned char *room;
  uint32_t oldest;
  uint32_t parity; /* of the oldest's barrier */

#if MOE_FETCH != 0
  __device__ static uint32_t in_shared(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
#endif
#if MOE_FETCH == 2
  __device__ uint32_t barrier_of(uint32_t i) const { return in_shared(room) + MOE_PIECES * piece_bytes + 8 * i; }
#endif

  /* By the warp, which has `shared` for itself. */
  __device__ void begin(unsigned char *shared) {
    room = shared;
    oldest = parity = 0;
#if MOE_FETCH == 2
    if (lane_of() == 0) {
      for (uint32_t i = 0; i < MOE_PIECES; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_of(i)) : "memory");
      asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncwarp();
#endif
  }

  /* By the warp: begins to fetch a piece to place `i`, which all lanes have read. */
  __device__ void fill(uint32_t i, const coming &c) {
#if MOE_FETCH == 2
    if (!c.more) return;
    /* One lane does it, whichever: of several lanes the copies would be asked for one after the other. */
    asm volatile(
        "{\n.reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
        "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%2], [%3], %1, [%0];\n}" ::
            "r"(barrier_of(i)), "r"(c.bytes), "r"(in_shared(room) + i * piece_bytes), "l"(c.from)
        : "memory");
#else
    unsigned char *to = room + i * piece_bytes;
    for (uint32_t at = 16 * lane_of(); c.more && at < c.bytes; at += 16 * lanes) {
#if MOE_FETCH == 1
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(in_shared(to + at)), "l"(c.from + at)
                   : "memory");
#else
      store16(to + at, load16(c.from + at));
#endif
    }
#if MOE_FETCH == 1
    /* The group is empty where there is no more. */
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    /* What lies past the end is added, and not used: a checked run would report it. */
    for (uint32_t at = c.bytes + 16 * lane_of(); c.more && at < piece_bytes; at += 16 * lanes) store16(to + at, {});
#endif
#endif
  }

  /* By the warp: begins to fetch number `i` of the first MOE_PIECES of a series. */
  __device__ void fetch(uint32_t i, const coming &c) {
    const uint32_t at = oldest + i;
    fill(at < MOE_PIECES ? at : at - MOE_PIECES, c);
  }

  /* By the warp: the oldest piece, once it has come. */
  __device__ const unsigned char *wait() const {
#if MOE_FETCH == 2
    asm volatile(
        "{\n.reg .pred p;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra come;\n"
        "bra again;\n"
        "come:\n}" ::"r"(barrier_of(oldest)),
        "r"(parity)
        : "memory");
#else
#if MOE_FETCH == 1
    /* All groups but those of the pieces behind it. */
    asm volatile("cp.async.wait_group %0;" ::"n"(MOE_PIECES - 1) : "memory");
#endif
    __syncwarp();
#endif
    return room + oldest * piece_bytes;
  }

  /* By the warp, which has read the oldest piece: begins to fetch another in its place. */
  __device__ void replace(const coming &c) {
    __syncwarp();
    fill(oldest, c);
    if (++oldest == MOE_PIECES) {
      oldest = 0;
      parity ^= 1;
    }
  }

  /* By the warp, behind its acquire: what it has acquired may be fetched. */
  __device__ static void behind_flags() {
#if MOE_FETCH == 2
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
    __syncwarp();
  }
};

}  // namespace moe
