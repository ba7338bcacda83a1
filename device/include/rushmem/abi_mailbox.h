/* The mailbox: updates that far PEs ask for of words in this PE's GPU memory. Only this GPU can make them
 * atomic with its own threads. So the host writes requests into pinned memory and rings the doorbell, and a
 * thread that has an SM carries them out (impl/help.h). Plain C, mirrored in host/abi/src/device/mailbox.rs;
 * a test there compares the two.
 *
 * Requests are numbered from 0 and carried out in that order, each once. Number i is in slot i %
 * RUSHMEM_MAILBOX_SLOTS; the host uses a slot again when it has taken the result. */
#ifndef RUSHMEM_ABI_MAILBOX_H
#define RUSHMEM_ABI_MAILBOX_H

#include <rushmem/abi.h>

/* A power of two. */
#define RUSHMEM_MAILBOX_SLOTS 256

/* The type of the word. All operations take bits; additions also take floats (of 4 and 8 bytes, on GPUs also
 * of 2) and, on GPUs, bfloat16. */
enum { RUSHMEM_WORD_BITS = 0, RUSHMEM_WORD_FLOAT = 1, RUSHMEM_WORD_BFLOAT16 = 2 };

typedef struct rushmem_mailbox_request {
  uint64_t address;   /* of the word, as this GPU maps it; aligned */
  uint64_t value;     /* bit patterns */
  uint64_t compare;   /* of a compare-and-swap */
  /* RUSHMEM_ATOMIC_* (signals that add are additions), | RUSHMEM_WORD_* << 8, | bytes of the word << 16 */
  uint64_t what;
} rushmem_mailbox_request; /* 32 bytes */

/* In pinned host memory. */
typedef struct rushmem_mailbox_queue {
  uint64_t done;      /* requests carried out, whose results are here; by a release at system scope */
  uint64_t pad[15];
  rushmem_mailbox_request requests[RUSHMEM_MAILBOX_SLOTS];
  uint64_t results[RUSHMEM_MAILBOX_SLOTS]; /* what was in the word before, above its bytes zeros */
} rushmem_mailbox_queue;

/* In this GPU's memory, for its own threads. */
struct rushmem_mailbox {
  uint64_t bell;      /* requests posted, as the GPU's front end last saw them */
  uint64_t turn;      /* requests carried out, times two; plus one while a thread carries out more */
  rushmem_mailbox_queue *queue;
  uint64_t pad[13];
};                    /* 128 bytes */

#endif
