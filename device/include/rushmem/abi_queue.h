/* Send queues of a network card that kernels write themselves: what the host lays out and kernels use. Part
 * of abi.h; plain C, mirrored by host/abi/src/device/queue.rs. The requests and completions in this memory
 * have the card's formats (impl/net/mlx5.h); impl/net/queue.h is the kernels' side, and has the argument for
 * their order.
 *
 * One reliable connection for each context and PE, this one among them: near PEs and this one are reached so
 * by atomics on words that are the cards' alone (card_word.h). A block posts to one context, which its number
 * in the grid says, whatever the PE. To the card, symmetric memory is addressed by its offset in the stride
 * (memory regions are registered with that as their virtual address), so that one number names both sides of
 * a copy.
 */
#ifndef RUSHMEM_ABI_QUEUE_H
#define RUSHMEM_ABI_QUEUE_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#endif

/* Pieces of symmetric memory that kernels can name to the card: growths of the heap, registered regions. What
 * is in none of them goes by the ring. */
#define RUSHMEM_QUEUE_SEGMENTS 256
/* Places for answers: words of g, and gets whose destination the card does not reach. */
#define RUSHMEM_QUEUE_SINKS 256
#define RUSHMEM_QUEUE_SINK_BYTES 64
/* Bytes of a request that carry data where it has an address of its own (mlx5.h: one block of 64 bytes, less
 * the control and the address segment and the length). */
#define RUSHMEM_QUEUE_INLINE_BYTES 28
/* Most contexts. */
#define RUSHMEM_QUEUE_CONTEXTS 64

typedef struct rushmem_queue_segment {
  uint64_t offset;         /* in the stride */
  uint64_t bytes;          /* 0: memory that is gone */
  const uint32_t *rkeys;   /* by PE, as requests have them: big-endian */
  uint32_t lkey;           /* likewise */
  uint32_t reserved;
} rushmem_queue_segment;   /* 32 bytes */

/* The queue of one context to one PE. Indices count requests, and never wrap; the card has their lowest 16
 * bits. In memory of the device; what its pointers lead to is the card's. */
typedef struct rushmem_queue {
  void *slots;             /* 64 bytes each, a power of two of them; null: no queue leads to that PE */
  uint32_t *record;        /* the doorbell record: word 1 is the send queue's */
  uint64_t *bell;          /* the doorbell register */
  const uint64_t *completion; /* the one entry of the collapsed completion queue: 8 words */
  uint32_t *stamps;        /* for each slot: its request's index + 1, once it is written; in device memory */
  uint32_t mask;           /* slots - 1 */
  uint32_t number;         /* the queue pair's */
  uint64_t reserved[10];
  /* Written by kernels only. */
  uint64_t tail;           /* the next index */
  uint64_t last_read;      /* one past the index of the last READ that nobody may have waited for */
  uint64_t last_atomic;    /* the same of the last atomic */
  uint64_t pad_tail[13];
  uint64_t rung;           /* the card knows of requests below this */
  uint64_t ringing;        /* 1: a thread is ringing */
  uint64_t pad_rung[14];
  uint64_t completed;      /* requests below this are complete */
  uint64_t probed;         /* one past the index of the last probe (queue.h) that was posted */
  uint64_t settled;        /* requests below this are settled: in the peer's memory */
  uint64_t fences;         /* what `fences` below was when all before was settled last */
  uint64_t pad_completed[12];
} rushmem_queue;           /* 512 bytes */

typedef struct rushmem_queues {
  rushmem_queue *queues;   /* one for each PE, context after context: a PE has them in all or in none */
  const rushmem_queue_segment *segments; /* RUSHMEM_QUEUE_SEGMENTS of them, in device memory */
  const uint64_t *n_segments; /* how many are filled: behind them */
  unsigned char *sinks;    /* RUSHMEM_QUEUE_SINKS of RUSHMEM_QUEUE_SINK_BYTES */
  uint64_t *sink_busy;     /* for each: whether a thread has it */
  uint64_t sink_address;   /* of the first, to the card */
  uint32_t sink_lkey;      /* big-endian */
  uint32_t reserved_key;
  uint64_t card_words;     /* 1: cards update `card_word`s (card_word.h), those of near PEs and this one's,
                            * too; alike on all PEs of the job */
  uint32_t contexts;       /* at least 1, RUSHMEM_QUEUE_CONTEXTS at most; alike on all PEs of the job */
  uint32_t context_step;   /* 2^32 / contexts, rounded up, modulo 2^32: how a block finds its own */
  uint64_t reserved[7];
  /* Written by kernels only. */
  uint64_t sink_tail;      /* where the next thread looks for one first */
  uint64_t pad_sink[15];
  uint64_t fences;         /* counts calls of fence */
  uint64_t atomics;        /* counts atomics that were posted and not waited for */
  uint64_t atomics_over;   /* what `atomics` was when all before was answered last */
  uint64_t pad_fences[13];
} rushmem_queues;          /* 384 bytes */

#endif
