/* The ring of a traced run: what kernels on a GPU write of their calls, and the host reads meanwhile
 * (impl/trace.h, host/runtime/src/trace/ring.rs). Plain C, mirrored in host/abi/src/device/trace.rs; a test
 * there compares the two.
 *
 * Record number i, from 0, is in slot i % RUSHMEM_TRACE_SLOTS: RUSHMEM_TRACE_WORDS words, each of which has
 * 16 bits that say in which round of the ring it was written, i / RUSHMEM_TRACE_SLOTS % 65535 + 1, above 48
 * bits of the record. So no word of one record passes for a word of another, whatever has been written of
 * either and in whatever order it arrives: no fence is needed, and nobody waits for the host. What it has not
 * read before the ring comes round is lost, and it sees how much. In this order:
 *
 *   time     of the GPU's clock, in nanoseconds (%globaltimer)
 *   bytes    that are moved
 *   word     that is waited for, or that tells the peer of the data: an offset in the heap, or all ones. Of a
 *            round: the slot set's, 0 of all PEs
 *   block    x | y << 32
 *   thread   z of the block | x << 16 | y << 26 | z << 36 of the thread, then RUSHMEM_TRACE_BEGIN and so on
 *            (2 bits), then what the call is: RUSHMEM_TRACE_RMA and so on (3 bits)
 *   name     FNV-1a of the function's name | number of the module << 32
 *   peer     or -1, in 32 bits | the launch, from %gridid, << 32
 *   last     of a beginning: the shape of the launch, mixed; of a round: its phase */
#ifndef RUSHMEM_ABI_TRACE_H
#define RUSHMEM_ABI_TRACE_H

#include <rushmem/abi.h>

/* A power of two. */
#define RUSHMEM_TRACE_SLOTS 65536
#define RUSHMEM_TRACE_WORDS 8

/* What a record says of a call. */
enum { RUSHMEM_TRACE_BEGIN = 0, RUSHMEM_TRACE_ROUND = 1, RUSHMEM_TRACE_END = 2 };

/* What a call is. */
enum {
  RUSHMEM_TRACE_RMA = 0,
  RUSHMEM_TRACE_NBI = 1,
  RUSHMEM_TRACE_ORDER = 2,
  RUSHMEM_TRACE_WAIT = 3,
  RUSHMEM_TRACE_COLLECTIVE = 4
};

/* What the runtime gives a module that it has loaded in a traced run, as the variable `rushmem_gpu_trace`. */
typedef struct rushmem_trace_ring {
  uint64_t *records; /* in pinned host memory; null: nothing is recorded */
  uint64_t *claimed; /* records so far, in this GPU's memory */
  uint64_t blocks;   /* the blocks of a launch that record, from its first one */
  uint64_t module;   /* its number */
} rushmem_trace_ring;

#endif
