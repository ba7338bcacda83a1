/* Rows on their way through shared memory, a warp's own: pieces of them are fetched some ahead of those at
 * hand, so that many bytes are in flight and few instructions are spent on them. From sm_90 on the SM's copy
 * engine fetches a piece (cp.async.bulk), and a barrier in shared memory counts its bytes; before it the
 * lanes do (cp.async), in groups; on the CPU device the piece is copied.
 *
 * Rows that other threads have stored in this launch, this GPU's or a peer's, are fetched behind the acquire
 * of their flag and then `pieces::behind_flags`: the copy engine reads by another way than they were stored,
 * which takes a fence between the two.
 *
 * MOE_PIECES: how many of a warp's are under way. */
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

struct pieces {
  unsigned char *room;
  uint32_t next, oldest; /* which is fetched next, and which comes next */
  uint32_t parity;       /* of the oldest's barrier */

#if MOE_FETCH == 2
  __device__ static uint32_t in_shared(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
  __device__ uint32_t barrier_of(uint32_t i) const { return in_shared(room) + MOE_PIECES * piece_bytes + 8 * i; }
#endif

  /* By the warp, which has `shared` for itself. */
  __device__ void begin(unsigned char *shared) {
    room = shared;
    next = oldest = parity = 0;
#if MOE_FETCH == 2
    if (lane_of() == 0) {
      for (uint32_t i = 0; i < MOE_PIECES; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_of(i)) : "memory");
      asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncwarp();
#endif
  }

  /* By the warp: begins to fetch a piece, of a multiple of 16 bytes, into the place of the one taken last,
   * which all lanes have read. Of no bytes: there is none, but it counts for take(). */
  __device__ void fetch(const unsigned char *from, uint32_t bytes) {
#if MOE_FETCH == 2
    if (bytes == 0) return;
    if (lane_of() == 0) {
      const uint32_t bar = barrier_of(next), to = in_shared(room) + next * piece_bytes;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                   "l"(from), "r"(bytes), "r"(bar)
                   : "memory");
    }
#else
    unsigned char *to = room + next * piece_bytes;
    for (uint32_t at = 16 * lane_of(); at < bytes; at += 16 * lanes) {
#if MOE_FETCH == 1
      const uint32_t in_shared = static_cast<uint32_t>(__cvta_generic_to_shared(to + at));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(in_shared), "l"(from + at) : "memory");
#else
      store16(to + at, load16(from + at));
#endif
    }
#if MOE_FETCH == 1
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    if (bytes == 0) return;
#endif
    if (++next == MOE_PIECES) next = 0;
  }

  /* By the warp: the oldest piece, once it has come. Of a series of pieces MOE_PIECES have been fetched
   * before the first is taken, and one after each that was taken; those past the end are of no bytes. */
  __device__ const unsigned char *take() {
    const unsigned char *piece = room + oldest * piece_bytes;
#if MOE_FETCH == 2
    const uint32_t bar = barrier_of(oldest);
    uint32_t done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(bar), "r"(parity)
          : "memory");
    }
#elif MOE_FETCH == 1
    asm volatile("cp.async.wait_group %0;" ::"n"(MOE_PIECES - 1) : "memory");
    __syncwarp();
#else
    __syncwarp();
#endif
    if (++oldest == MOE_PIECES) {
      oldest = 0;
      parity ^= 1;
    }
    return piece;
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
