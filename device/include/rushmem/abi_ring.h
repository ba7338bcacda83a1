/* The device ring: how kernels hand operations on PEs that are not mapped to the host. Part of abi.h; plain
 * C, mirrored by host/ring (the protocol, modelled with loom) and host/abi/src/device/ring.rs (the layout,
 * with a test). impl/net/ring.h is the kernels' side.
 *
 * Many producers, any threads of any kernels of the PE, and one consumer, the PE's proxy thread.
 *
 *   slots      pinned host memory, a power of two of them. Slot t % slots holds the descriptor with ticket t.
 *   tickets    A producer takes the next ticket from `tail` (fetch_add), waits until its slot is free (ticket
 *              - consumed < slots), writes the descriptor's first seven words, and publishes it by storing
 *              ticket + 1 to the last one, behind a fence at system scope. That fence is cumulative: with the
 *              descriptor the consumer sees what the thread, and by a barrier before it its scope, wrote to a
 *              put's source. Tickets are never reset: 64 bits last, and no slot of an earlier lap looks
 *              published. On the CPU device the ticket is taken by compare-and-swap once its slot is free: a
 *              thread that waits there may be abandoned with its launch, and must not leave a hole for ever.
 *              (On a GPU a compare-and-swap of all threads on one word would succeed once a round, and what
 *              ends a kernel ends the context.)
 *   consumer   loads the next slot's last word (acquire), copies the descriptor, and stores how many it has
 *              taken to `consumed` (release): slots are free as soon as they have been copied.
 *   room       `consumed` is in host memory, a PCIe read away, so producers look at `consumed_seen`, a copy
 *              in device memory that lags behind. Only the producer that is first in line by that copy
 *              (ticket == consumed_seen + slots) reads `consumed` itself, and passes on what it found: load
 *              acquire, store release, load acquire, so that a slot is rewritten after it was read.
 *   replies    An operation that has something to say (RUSHMEM_RING_REPLY) names a reply slot, claimed before
 *              the ticket is taken: a number from `reply_tail`, then `busy` of that slot from 0 to 1, else
 *              the next number. The host stores the value, then state = ticket + 1 (release), which no
 *              earlier use of the slot can have left there. The claimer reads both and then frees the slot
 *              (`busy` = 0, release). A thread holds one reply slot at most, and a thread with a ticket waits
 *              for nobody but the consumer and holders of earlier tickets: there is no circle.
 *   order      Happens-before between two threads' operations is order of their tickets: both are updates of
 *              `tail`. The consumer sees them in that order and must keep
 *              no other order than FENCE and QUIET ask for.
 *
 * Threads of a warp share a ring, so one may wait for another. Everything a thread does for others,
 * publishing and freeing, happens inside the loop in which it waits, and no thread leaves another behind at a
 * point where the compiler joins them. */
#ifndef RUSHMEM_ABI_RING_H
#define RUSHMEM_ABI_RING_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#endif

/* As RUSHMEM_CMP_EQ in abi.h: rushmem.h has these as macros. */
#ifndef RUSHMEM_ATOMIC_FETCH
enum { RUSHMEM_ATOMIC_FETCH = 0, RUSHMEM_ATOMIC_SET = 1, RUSHMEM_ATOMIC_SWAP = 2,
       RUSHMEM_ATOMIC_COMPARE_SWAP = 3, RUSHMEM_ATOMIC_ADD = 4, RUSHMEM_ATOMIC_FETCH_ADD = 5,
       RUSHMEM_ATOMIC_AND = 6, RUSHMEM_ATOMIC_FETCH_AND = 7, RUSHMEM_ATOMIC_OR = 8,
       RUSHMEM_ATOMIC_FETCH_OR = 9, RUSHMEM_ATOMIC_XOR = 10, RUSHMEM_ATOMIC_FETCH_XOR = 11 };
#endif

/* Operations. `dst` of puts, `src` of gets, targets of atomics and signals are symmetric, and travel as this
 * PE's own addresses. No order among them, but what FENCE and QUIET say. Not empty: n and bytes are at least
 * 1. */
enum {
  /* `bytes` from src to pe's dst. Replies, where asked to, when the source may be reused. */
  RUSHMEM_RING_PUT = 1,
  /* `width` bytes, 1 to 32, from this descriptor's four words src to value. In one piece where they are 1, 2,
   * 4 or 8 and dst is aligned to that. */
  RUSHMEM_RING_PUT_INLINE = 2,
  /* `bytes` from pe's src to dst. Replies, where asked to, when the data is there. */
  RUSHMEM_RING_GET = 3,
  /* `width` bytes, 1 to 8, at any alignment, from pe's src into the reply's value, above them zeros. In one
   * piece where PUT_INLINE would be. Always replies. */
  RUSHMEM_RING_G = 4,
  /* `bytes` elements (here a count) of `element` bytes: element i from src + i * value * element to dst + i *
   * sig * element. sig and value are signed and may be negative. Reply as PUT and GET. */
  RUSHMEM_RING_IPUT = 5,
  RUSHMEM_RING_IGET = 6,
  /* sub = RUSHMEM_ATOMIC_* on the word of `width` bytes (4 or 8) at pe's dst: value the operand, sig what
   * compare_swap compares with, both zero above the width. With RUSHMEM_RING_FLOAT, ADD and FETCH_ADD take
   * the word for a float or double. Replies with the old value where the operation fetches; else never. */
  RUSHMEM_RING_ATOMIC = 7,
  /* sub = RUSHMEM_SIGNAL_*: pe's word at sig by value. */
  RUSHMEM_RING_SIGNAL = 8,
  /* PUT, and SIGNAL when the data is there. */
  RUSHMEM_RING_PUT_SIGNAL = 9,
  /* The same with `width` bytes, 1 to 8, from this descriptor's word src. */
  RUSHMEM_RING_PUT_SIGNAL_INLINE = 10,
  /* All descriptors before it take effect, at each PE, before those after it. pe is nobody. */
  RUSHMEM_RING_FENCE = 11,
  /* Replies when all descriptors before it are complete: delivered, and destinations of gets written. It is
   * no fence: descriptors after it do not wait for those before it. */
  RUSHMEM_RING_QUIET = 12
};

/* Flags. */
enum { RUSHMEM_RING_REPLY = 1, RUSHMEM_RING_FLOAT = 2 };

typedef struct rushmem_descriptor {
  uint8_t  op;           /* RUSHMEM_RING_* */
  uint8_t  sub;
  uint8_t  width;
  uint8_t  flags;
  int32_t  pe;
  uint64_t dst;
  uint64_t src;          /* also the first of the words that carry data */
  uint64_t bytes;
  uint64_t sig;
  uint64_t value;
  uint32_t reply;        /* which reply slot, with RUSHMEM_RING_REPLY */
  uint32_t element;
  uint64_t ticket;       /* its own + 1, once published */
} rushmem_descriptor;    /* 64 bytes, aligned to that */

#define RUSHMEM_RING_INLINE_BYTES 32

typedef struct rushmem_reply {
  uint64_t value;
  uint64_t state;        /* the ticket it answers, + 1 */
  uint64_t reserved[2];
} rushmem_reply;         /* 32 bytes: a sector of a GPU's each */

typedef struct rushmem_ring_line {
  uint64_t value;
  uint64_t pad[15];
} rushmem_ring_line;     /* 128 bytes */

/* In device-local memory: read by every post. */
typedef struct rushmem_ring {
  rushmem_descriptor *slots;
  rushmem_reply *replies;
  const uint64_t *consumed;        /* in host memory, a line of its own */
  uint64_t *busy;                  /* in device memory, one for each reply slot */
  uint64_t mask;                   /* slots - 1 */
  uint64_t reply_mask;             /* reply slots - 1 */
  uint64_t reserved[10];
  /* Written by kernels only. */
  rushmem_ring_line tail;          /* the next ticket */
  rushmem_ring_line consumed_seen; /* at most *consumed */
  rushmem_ring_line reply_tail;
  rushmem_ring_line fenced;        /* one past the ticket of some FENCE: no need for another if it is tail */
  rushmem_ring_line quieted;       /* every ticket below it is complete */
} rushmem_ring;                    /* 768 bytes; `busy` follows */

#endif
