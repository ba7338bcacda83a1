/* One exchange of tokens between the ranks of a team: what a launch is given, the memory that it has, and why
 * nobody overwrites what another still reads.
 *
 * A *round* is one dispatch and the combine that answers it. Rounds are counted in device memory, so that a
 * CUDA graph that holds a round can be launched again. All that is sent carries its round's number, so
 * nothing is reset.
 *
 * Dispatch, in round n, from rank s to rank d, into the set n % 2 of d's memory:
 *   1. routing: packets (data and round in one 16-byte store) that say how many tokens s has, and for each
 *      token its experts and weights. They go to all ranks, also where s has no token for d, and also where
 *      it has none at all. So each rank knows all tokens, and computes the same places, counts and errors.
 *   2. a row for each token that has an expert at d, once, whatever number of experts that is. Row t of
 *      source s has a place of its own: no slot is asked for, and nothing is counted at the sender. A small
 *      round sends a row as packets. Otherwise a warp stores the row, or its part of it, plainly, its lanes
 *      meet, and one of them stores the flag, which is the round, with release. Where rows are not cast, a
 *      dispatch of one launch does not send those for s itself, which takes them from where its tokens lie;
 *      by halves it does, as tokens may be changed once they are sent.
 * d computes the place of each token from the routing, in the order of sources and tokens, while the rows
 * travel. So the result has the same bits in every run.
 *
 * Combine, in round n, from rank d to the token's home s: d adds up the results of its own experts, in f32
 * and in the order of the token's experts, and pushes the sum into the token's place at s; s adds the sums up
 * in the order of ranks. Where d has one expert of the token, the sum is that expert's row, which travels as
 * it is, and s multiplies it: the same bits in half of the bytes.
 *
 * Order. On each rank the parts of rounds follow one another: send n, receive n, combine n, send n + 1 ...,
 * each a kernel of its own or a part of one, on one stream (all_to_all.rs checks that).
 *   - Rows and routing of round n replace those of round n - 2. s sends in round n after it has received in
 *     round n - 1, which means routing of every rank, d's too. d has sent that after it had received in round
 *     n - 2 and combined. So d has read what s replaces. The acknowledgement is d's routing of round n - 1,
 *     and comes with traffic; with one set it would have to be waited for.
 *   - Results of round n replace those of round n - 1, in one set. d pushes to s in the combine of round n,
 *     after it has received in round n, which means s's routing of round n. s has sent that after its combine
 *     of round n - 1, in which it has read the results.
 * A peer that is slow holds this rank up for one round, and nothing of it is lost. Reads that are followed by
 * such an acknowledgement have returned before it: a kernel's loads have, before the next kernel of the
 * stream begins, and in one kernel those of a warp before its lanes meet.
 * So send n and receive n may be side by side, too: a dispatch of many tokens has blocks for each.
 *
 * Exchanges for few tokens have kernels of their own (few.h), which keep to all of this: they send everything
 * as packets.
 *
 * Ranks that are absent (`absent`, the same on all) are neither sent to nor waited for; their experts get
 * nothing.
 *
 * Errors. What is wrong with a round is in its routing or follows from it, so all ranks find the same error:
 * a rank with more tokens than `max_tokens`, an expert that does not exist, more tokens for an expert than
 * its capacity. They note it, write nothing but counts of 0, and skip the round's combine. Later rounds are
 * as usual. */
#include <rushmem/rushmem.cuh>

namespace moe {

using rushmem::packet;

/* The most of each, for arrays in shared memory (config.rs refuses more). */
constexpr uint32_t most_top_k = 32, most_ranks = 256;
/* An expert's number that stands for none, and for one that does not exist. */
constexpr uint32_t nowhere = 0xffff, unheard = 0xfffe;
/* Columns that share a scale. */
constexpr uint32_t group_columns = 128;

/* Where a launch finds what it needs (memory.rs has the same). Addresses of symmetric memory are this rank's
 * own. */
struct exchange {
  packet *routing;         /* [2][ranks][1 + max_tokens * routing_words] */
  unsigned char *rows;     /* [2][ranks][max_tokens][row_bytes] */
  uint64_t *row_flags;     /* [2][ranks][max_tokens][parts] */
  packet *row_packets;     /* [2][ranks][few][row_words] */
  unsigned char *results;  /* [max_tokens][units][unit_bytes] */
  uint64_t *result_flags;  /* [max_tokens][units][parts] */
  packet *result_packets;  /* [few_back][units][unit_bytes / 8] */
  /* This rank's alone. */
  unsigned char *scratch;  /* a row or sum for each warp, where a rank is far; else null */
  int32_t *positions;      /* [ranks][max_tokens][top_k]: where dispatch left them */
  uint64_t *records;       /* [ranks + 1][max_tokens][1 + top_k]: what few.h says of each token */
  uint64_t *sent;          /* rounds sent: a word for each block, as its neighbours may be ahead of it */
  uint64_t *received;
  uint64_t *combined;
  uint64_t *failure;       /* failure_words */
  uint64_t absent[most_ranks / 64];
  uint32_t words;          /* of `sent` and its like */
  uint32_t max_tokens, hidden, experts, experts_a_rank, top_k;
  uint32_t capacity;       /* rows of an expert; of all experts, in the flat layout */
  uint32_t align;          /* rows to which an expert's part is rounded up in the flat layout */
  uint32_t few, few_back;  /* tokens of a source up to which rows and sums are packets; 0: a rank is far */
  uint32_t parts;          /* the most parts of a row; 1 where a rank is far */
  uint32_t data_bytes;     /* of a row, a multiple of 16; behind it */
  uint32_t side_bytes;     /* the scales or what the caller sends beside it, so many bytes for each token */
  uint32_t row_bytes;      /* both, each rounded up to 16 */
  uint32_t row_words;      /* packets of a row */
  uint32_t routing_words;  /* packets of a token's routing */
  uint32_t units;          /* places of a token's results */
  uint32_t unit_bytes;     /* a row of what experts produce */
  uint32_t rounded;        /* whether sums travel as the type that experts produce, not as f32 */
  uint32_t weighted;       /* whether there are weights */
  uint32_t wide;           /* whether the experts' numbers are 64 bits wide */
  float experts_a_rank_reciprocal;
};

/* What is wrong: the first round with an error, until the host has read it; then the last such round. */
enum { failure_kind, failure_round, failure_rank, failure_about, failure_count, failure_last, failure_words };
enum { over_capacity = 1, too_many_tokens = 2, no_such_expert = 3, combined_twice = 4 };

/* The tokens of this rank. */
struct tokens {
  const unsigned char *x;    /* [count][hidden] */
  const unsigned char *side; /* [count][side_bytes], where the caller sends something beside them */
  const void *experts;       /* [count][top_k] of int32_t, or int64_t */
  const float *weights;      /* [count][top_k] */
  const uint32_t *count_at;  /* where the count is, if not null */
  uint64_t count;
};

/* Where this rank's experts find theirs. Null: not wanted. */
struct received {
  unsigned char *x;          /* [rows][data_bytes] */
  unsigned char *side;       /* [rows][side_bytes] */
  int32_t *counts;           /* of each local expert; of each source, in the rank-major layout */
  int32_t *sources;          /* [rows]: source * max_tokens + token */
  int32_t *experts;          /* [ranks][max_tokens][top_k], rank-major: local numbers, or -1 */
  float *weights;            /* the same of weights */
};

/* What experts produce, in the places of `received`, and where their sums go. */
struct products {
  const unsigned char *y;
  unsigned char *out;        /* [count][hidden] */
};

__device__ inline bool is_absent(const exchange &e, uint32_t rank) { return e.absent[rank / 64] >> (rank % 64) & 1; }

/* ---- places in memory ---- */

__device__ inline packet *routing_of(const exchange &e, uint32_t ranks, uint32_t set, uint32_t source) {
  return e.routing + size_t(set * ranks + source) * (1 + size_t(e.max_tokens) * e.routing_words);
}
__device__ inline size_t row_index(const exchange &e, uint32_t ranks, uint32_t set, uint32_t source, uint32_t token) {
  return size_t(set * ranks + source) * e.max_tokens + token;
}
__device__ inline packet *packets_of(const exchange &e, uint32_t ranks, uint32_t set, uint32_t source, uint32_t token) {
  return e.row_packets + (size_t(set * ranks + source) * e.few + token) * e.row_words;
}
__device__ inline uint32_t id_words(const exchange &e) { return (e.top_k + 3) / 4; }

/* ---- how work is shared out ---- */

/* The threads that work on one thing: a warp, of which a block has so many. */
constexpr uint32_t lanes = 32, warps = MOE_THREADS / lanes, all_lanes = 0xffffffffu;
__device__ inline uint32_t lane_of() { return threadIdx.x % lanes; }
__device__ inline uint32_t warp_of() { return threadIdx.x / lanes; }

/* This warp's room for a row or a sum on its way to a rank that is far. */
__device__ inline unsigned char *scratch_of(const exchange &e) {
  const uint32_t each = e.row_bytes > 2 * e.unit_bytes ? e.row_bytes : 2 * e.unit_bytes;
  return e.scratch + size_t(blockIdx.x * warps + warp_of()) * each;
}

/* Parts of a row, each of which has a flag of its own, so that several warps share it. Sender and receiver
 * know it from the number of the source's tokens. */
__device__ inline uint32_t flags_of(const exchange &e, uint32_t tokens) {
  const uint32_t wanted = tokens <= 64 ? 16 : tokens <= 128 ? 8 : tokens <= 512 ? 2 : 1;
  return wanted < e.parts ? wanted : e.parts;
}

/* The part of `all` that part `part` of `parts` has. 32-bit division: one of 64 bits takes a fifth of a
 * microsecond. */
struct range {
  uint32_t begin, end;
};
__device__ inline range part_of(uint32_t all, uint32_t part, uint32_t parts) {
  if (parts == 1) return {0, all};
  const uint32_t each = (all + parts - 1) / parts, begin = each * part, end = begin + each;
  return {begin < all ? begin : all, end < all ? end : all};
}

/* The blocks that do one thing: this one's number among them, and how many they are; and how many warps of
 * each do it, the first ones. */
struct crew {
  uint32_t block, blocks, warps;
};
__device__ inline crew all_hands() { return {blockIdx.x, gridDim.x, warps}; }

/* Items are dealt out to the warps of all blocks: evenly to blocks, and to a block as many side by side. */
struct dealt {
  uint32_t first, step; /* the block's first item of all, and from one turn to the next */
  uint32_t each;        /* items of a turn */
};
__device__ inline dealt deal(uint32_t items, const crew &c) {
  uint32_t each = 1;
  if (items > c.blocks) each = items >= c.blocks * c.warps ? c.warps : (items + c.blocks - 1) / c.blocks;
  return {c.block * each, c.blocks * each, each};
}

/* Parts of rows that come as packets, which need no agreement: as many as give every block one. */
__device__ inline uint32_t parts_of(uint32_t rows, uint32_t most) {
  if (rows * most <= gridDim.x) return most;
  const uint32_t all = gridDim.x * warps;
  if (rows >= all) return 1;
  return all / rows < most ? all / rows : most;
}

/* id / d for numbers of 16 bits, by a factor that is nearly 1 / d: the half keeps it off whole numbers. */
__device__ inline uint32_t divided(uint32_t id, float reciprocal) {
  return static_cast<uint32_t>((static_cast<float>(id) + 0.5f) * reciprocal);
}
__device__ inline uint32_t rank_of(const exchange &e, uint32_t id) { return divided(id, e.experts_a_rank_reciprocal); }

/* This block's word, of which the number of blocks may be another at the next launch. */
__device__ inline void count_round(const exchange &e, uint64_t *words, uint64_t round) {
  __syncthreads();
  for (uint32_t i = blockIdx.x + threadIdx.x * gridDim.x; i < e.words; i += blockDim.x * gridDim.x) words[i] = round;
}

/* By one thread: for the host. */
__device__ inline void tell_failure(const exchange &e, uint64_t round, int kind, uint64_t rank, uint64_t about, uint64_t count) {
  if (e.failure[failure_kind] != 0) return;
  e.failure[failure_round] = round;
  e.failure[failure_rank] = rank;
  e.failure[failure_about] = about;
  e.failure[failure_count] = count;
  e.failure[failure_kind] = static_cast<uint64_t>(kind);
}
/* And this round has no combine, on any rank. */
__device__ inline void note_failure(const exchange &e, uint64_t round, int kind, uint64_t rank, uint64_t about, uint64_t count) {
  tell_failure(e, round, kind, rank, about, count);
  e.failure[failure_last] = round;
}

/* Where an expert has room for every token once, and tokens name it several times, it may still get more than
 * that. The rows past the end replace the last one, the host gets the error, and combine is made: nothing
 * else is overwritten, and nobody waits for a rank that has stopped. */
__device__ inline uint32_t within(const exchange &e, uint32_t local, uint32_t row) {
  const uint32_t last = local * e.capacity + e.capacity - 1;
  return row < last ? row : last;
}

/* Whether this round's combine has anything to do: not where the round failed, nor twice. */
__device__ inline bool may_combine(const exchange &e, uint64_t round) {
  /* Volatile: both are asked for at once, and the second is not put behind what is found in the first. */
  const uint64_t combined = *static_cast<const volatile uint64_t *>(e.combined + blockIdx.x);
  const uint64_t failed = *static_cast<const volatile uint64_t *>(e.failure + failure_last);
  if (combined < round) return failed != round;
  if (blockIdx.x == 0 && threadIdx.x == 0 && e.failure[failure_kind] == 0) {
    e.failure[failure_round] = round;
    e.failure[failure_kind] = combined_twice;
  }
  return false;
}

/* ---- 16 bytes ---- */

__device__ inline uint4 load16(const unsigned char *from) { return *reinterpret_cast<const uint4 *>(from); }
__device__ inline void store16(unsigned char *to, uint4 v) { *reinterpret_cast<uint4 *>(to) = v; }
__device__ inline uint64_t load8(const unsigned char *from) { return *reinterpret_cast<const uint64_t *>(from); }
__device__ inline void store8(unsigned char *to, uint64_t v) { *reinterpret_cast<uint64_t *>(to) = v; }
__device__ inline uint32_t load4(const unsigned char *from) { return *reinterpret_cast<const uint32_t *>(from); }
__device__ inline void store4(unsigned char *to, uint32_t v) { *reinterpret_cast<uint32_t *>(to) = v; }

__device__ inline uint4 *as_quads(unsigned char *p) { return reinterpret_cast<uint4 *>(p); }

/* By one lane, behind a meeting of the warp: a mapped PE that sees the flag sees what the warp has stored. */
__device__ inline void announce(unsigned char *data, uint64_t *flag, uint64_t round, int pe) {
  rushmem::put_signal(as_quads(data), as_quads(data), 0, flag, round, rushmem::signal::set, pe);
}

}  // namespace moe
