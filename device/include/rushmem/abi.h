/* The layout that host and device share: one versioned struct that a kernel reads, the records it writes,
 * and the constants of the public interface. Plain C, included by kernels and mirrored by `#[repr(C)]` in
 * host/abi/src/device/state.rs; a test there compares the two. */
#ifndef RUSHMEM_ABI_H
#define RUSHMEM_ABI_H

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#include <stddef.h>
#endif

#include <rushmem/abi_queue.h>
#include <rushmem/abi_ring.h>

#define RUSHMEM_DEVICE_ABI_VERSION 12u

/* rushmem.h, the host's C ABI, has these as macros; a translation unit may include both, in either order. */
#ifndef RUSHMEM_CMP_EQ
enum { RUSHMEM_CMP_EQ = 0, RUSHMEM_CMP_NE = 1, RUSHMEM_CMP_GT = 2,
       RUSHMEM_CMP_GE = 3, RUSHMEM_CMP_LT = 4, RUSHMEM_CMP_LE = 5 };
#endif
#ifndef RUSHMEM_SIGNAL_SET
enum { RUSHMEM_SIGNAL_SET = 0, RUSHMEM_SIGNAL_ADD = 1 };
#endif

/* A wait that has lasted longer than `stall_ns` fills one of these once; the host prints it. `state` goes
 * 0 (free) -> 1 (being written) -> 2 (ready) -> 0 (printed). `cmp` is RUSHMEM_CMP_* of a wait for a word, or:
 *
 *   RUSHMEM_STALL_SYNC        a sync: `expected` is the epoch, `from_pe` the late PE
 *   RUSHMEM_STALL_ANSWER      an operation on `from_pe`, which is not mapped, is not answered
 *   RUSHMEM_STALL_ROOM        the ring to the PEs that are not mapped is full; with a `from_pe`, the queue to
 *                             that PE, of which `seen` requests are complete
 *   RUSHMEM_STALL_COLLECTIVE  member `from_pe` of a team has not come to a phase of a collective
 *   RUSHMEM_STALL_GRID        not all blocks of the launch have come to a collective of the grid: `expected`
 *                             is their number, `seen` how many have come
 *   RUSHMEM_STALL_QUEUE       a request in the queue to `from_pe` is not complete: `expected` is one past
 *                             its index, `seen` how many are complete
 *
 * These are no stalls, and end the launch:
 *
 *   RUSHMEM_STALL_ADDRESS     `address` is not symmetric memory
 *   RUSHMEM_STALL_MISMATCH    member `from_pe` makes another call
 *   RUSHMEM_STALL_BUSY        the slot set is in use: `seen` is RUSHMEM_TEAM_BUSY; or has been used since
 *                             what the call has found of it, in no order: the two are `seen` and `expected`
 *   RUSHMEM_STALL_REFUSED     a request in the queue to `from_pe` failed: `width` is the syndrome, `seen` how
 *                             many are complete
 *   RUSHMEM_STALL_UNREACHED   `address` is symmetric memory that the cards have not taken
 *
 * Records of collectives: `width` is team << 8 | RUSHMEM_COLLECTIVE_*; but for GRID, `expected` and `seen`
 * are phase << 16 | tag. */
typedef struct rushmem_stall_record {
  uint32_t state;
  int32_t  cmp;          /* RUSHMEM_CMP_* or RUSHMEM_STALL_* */
  int32_t  from_pe;      /* the PE waited for where that is known, else -1 */
  uint32_t width;        /* bytes of the word: 4 or 8 */
  uint64_t address;      /* of the word, in the waiting PE's address space */
  uint64_t expected;     /* bit pattern */
  uint64_t seen;         /* bit pattern of the last poll */
  uint64_t waited_ns;
  uint32_t block[3];
  uint32_t thread[3];
  uint64_t reserved;
} rushmem_stall_record;  /* 80 bytes */

#define RUSHMEM_STALL_RECORDS 8
#define RUSHMEM_STALL_SYNC (-1)
#define RUSHMEM_STALL_ANSWER (-2)
#define RUSHMEM_STALL_ROOM (-3)
#define RUSHMEM_STALL_ADDRESS (-4)
#define RUSHMEM_STALL_COLLECTIVE (-5)
#define RUSHMEM_STALL_MISMATCH (-6)
#define RUSHMEM_STALL_BUSY (-7)
#define RUSHMEM_STALL_GRID (-8)
#define RUSHMEM_STALL_QUEUE (-9)
#define RUSHMEM_STALL_REFUSED (-10)
#define RUSHMEM_STALL_UNREACHED (-11)

/* Collectives, in tags and reports. */
enum { RUSHMEM_COLLECTIVE_SYNC = 1, RUSHMEM_COLLECTIVE_BROADCAST = 2, RUSHMEM_COLLECTIVE_FCOLLECT = 3,
       RUSHMEM_COLLECTIVE_ALLTOALL = 4, RUSHMEM_COLLECTIVE_REDUCE = 5, RUSHMEM_COLLECTIVE_REDUCESCATTER = 6,
       RUSHMEM_COLLECTIVE_SCAN = 7, RUSHMEM_COLLECTIVE_COLLECT = 8, RUSHMEM_COLLECTIVE_ALLTOALLV = 9,
       RUSHMEM_COLLECTIVE_ALLTOALLS = 10, RUSHMEM_COLLECTIVE_SYNC_GRID = 11 };

/* One cache line (two sectors of a GPU's) for each PE, so that no two writers share one. */
typedef struct rushmem_sync_line {
  uint64_t epoch;
  uint64_t said[3]; /* of a slot set: what that PE says of a call, written by this PE */
  uint64_t pad[12];
} rushmem_sync_line;     /* 128 bytes */

/* Why and where a kernel gave up, in one 16-byte store: a RUSHMEM_DEVICE_FAIL_*; blockIdx.x; blockIdx.y << 16
 * | blockIdx.z; threadIdx.z << 20 | threadIdx.y << 10 | threadIdx.x. */
#define RUSHMEM_FAILURE_WORDS 4

/* What others ask this PE's threads to do (abi_mailbox.h). */
typedef struct rushmem_mailbox rushmem_mailbox;

/* What a PE knows of a team that it is a member of. The host makes it, and a kernel takes it by value. Slot
 * sets lie in symmetric memory, at one heap offset on every member (rushmem_team_slots). */
typedef struct rushmem_team {
  int32_t  my_pe;        /* this PE's number in the team */
  int32_t  n_pes;
  int32_t  start;        /* member i is PE start + i * stride of the world, where there is no table */
  int32_t  stride;
  const int32_t *table;  /* the members' numbers in the world, in the memory of this PE's device; or null */
  uint64_t slots;        /* address in this PE's heap of slot set 0; 0: no team */
  uint64_t slot_bytes;   /* from one slot set to the next, but for the first */
  uint32_t slot_sets;
  uint32_t packets;      /* this slot set's packets from one member in one phase: a power of 2 */
  uint32_t id;           /* the team's number, for texts; 0: the world */
  uint32_t all_near;     /* not 0: every member is near, and addressed as in a run */
  uint64_t heap_base;    /* of its world */
  uint64_t first_bytes;  /* from this slot set to the next */
  uint32_t next_packets; /* packets of the slot sets behind this one */
  uint32_t wide;         /* this slot set's bytes of wide packets from one member in one phase; 0: none */
  uint64_t right;        /* where all members are near: from this PE's memory to that of the next member, the
                          * first one's behind the last, modulo 2^64 */
  uint32_t pair_bytes;   /* of two near members: what a slot set's packets carry in a phase; else 0 */
  uint32_t packed_rows;  /* not 0: packed rows may go between any two members (packed_row.h) */
} rushmem_team;          /* 96 bytes */

/* A slot set begins with this: words that this PE alone writes. Behind it lie a rushmem_sync_line
 * for each member; then packets: RUSHMEM_TEAM_PHASES times n_pes times `packets` of 16 bytes; then
 * `packets` words, for each block of a grid the last phase that it has ended (impl/coll/call.h); then, from
 * the next multiple of 128 bytes on, RUSHMEM_TEAM_WIDE times n_pes times `wide` bytes (impl/coll/wide.h). */
typedef struct rushmem_team_slots {
  /* A line of its own, which calls by one block at most load as any other memory of theirs: in a row of calls
   * it is in the L1 cache. The last phase that has ended here, of all calls, << 16, and how many phases ago
   * the last one was of which this PE knows that all members have ended it (impl/coll/words.h). */
  uint64_t ended;
  uint64_t pad_ended[15];
  uint64_t busy;         /* `ended`; or RUSHMEM_TEAM_BUSY: a collective uses this slot set */
  uint64_t alone;        /* as `ended`, of calls by one block at most, for those by a grid */
  uint64_t grid[2];      /* of calls by a grid: from which phase on it has how many blocks; phases ended */
  uint64_t current;      /* the first phase of the last call, and its tag: for members whose wait lasts */
  uint64_t arrived;      /* blocks of a grid that have come to a barrier (impl/coll/grid.h) */
  uint64_t pad[10];
} rushmem_team_slots;    /* 256 bytes */

#define RUSHMEM_TEAM_BUSY 0xffffffffffffffffull

/* Phases whose packets have places of their own: what phase p writes has been read in phase p + 4. And those
 * whose wide packets have. */
#define RUSHMEM_TEAM_PHASES 4
#define RUSHMEM_TEAM_WIDE 2

typedef struct rushmem_device_state {
  uint32_t version;      /* RUSHMEM_DEVICE_ABI_VERSION */
  uint32_t bytes;        /* sizeof(rushmem_device_state) */
  int32_t  my_pe;
  int32_t  n_pes;
  int32_t  near_first;   /* consecutive near (mapped) PEs around this one: near_count of them */
  int32_t  near_count;
  uint64_t heap_base;    /* this PE's heap */
  uint64_t stride;       /* bytes of each PE's part of the addresses: its heap and its registered regions */
  uint32_t *broken;      /* non-zero once the job is broken: waits end */
  /* All PEs' arrival lines for the device's sync, at the same heap offset on every PE:
   * sync_lines[q].epoch in this PE's heap is written by PE q. n_pes of them. */
  rushmem_sync_line *sync_lines;
  /* How many syncs this PE has entered: n_pes - 1 words (at least one), all the same between two syncs
   * (sync.h). */
  uint64_t *sync_epoch;
  uint64_t stall_ns;     /* report a wait after this long; 0: never */
  uint64_t wait_limit_ns;/* end a wait with an error after this long; 0: never */
  rushmem_stall_record *stalls; /* RUSHMEM_STALL_RECORDS of them, host-visible */
  uint32_t *failure;     /* host-visible: RUSHMEM_FAILURE_WORDS words, written when a GPU's kernel gives up */
  uint64_t trap_delay_ns;/* how long a GPU's kernel whose wait is to end goes on before it traps */
  rushmem_ring *ring;    /* where operations on PEs that are not mapped are posted; null: there are none */
  rushmem_mailbox *mailbox; /* updates of this PE's memory for others; null: the host does them itself */
  /* Near PE q's copy of p is at p + (q - my_pe) * near_apart modulo 2^64, unless near_table says
   * otherwise. A multiple of RUSHMEM_NEAR_UNIT. */
  uint64_t near_apart;
  /* Every k-th PE is near: step_count of them from step_first. 0: none outside the run (impl/route.h). */
  int32_t  step_first;
  uint32_t step_count;
  uint32_t step_inverse; /* of k's odd part, modulo 2^32 */
  uint32_t step_shift;   /* how often 2 divides k */
  /* Near PEs that are neither: for each PE the distance of its copy from this PE's, or RUSHMEM_NOT_NEAR. In
   * the memory of this PE's device; null: there are none. */
  const uint64_t *near_table;
  rushmem_team world;    /* all PEs, as a team */
  /* Teams that kernels find by number (rushmem_team_number): RUSHMEM_NUMBERED_TEAMS entries, in the memory of
   * this PE's device. No team: `slots` is 0. */
  const rushmem_team *teams;
  rushmem_queues *queues; /* the card's queues, which kernels write; null: there are none */
} rushmem_device_state;  /* 264 bytes */

#define RUSHMEM_NUMBERED_TEAMS 64

/* A distance that no two windows have: they lie pages apart. */
#define RUSHMEM_NOT_NEAR 1u
/* What distances by multiplication are multiples of, so that it takes 32 bits. */
#define RUSHMEM_NEAR_UNIT 4294967296u

enum { RUSHMEM_DEVICE_FAIL_BROKEN = 1, RUSHMEM_DEVICE_FAIL_TIMEOUT = 2, RUSHMEM_DEVICE_FAIL_BAD_PE = 3,
       RUSHMEM_DEVICE_FAIL_UNMAPPED = 4, RUSHMEM_DEVICE_FAIL_BAD_ADDRESS = 5, RUSHMEM_DEVICE_FAIL_TEAM = 6,
       RUSHMEM_DEVICE_FAIL_MISMATCH = 7, RUSHMEM_DEVICE_FAIL_BUSY = 8,
       RUSHMEM_DEVICE_FAIL_QUEUE = 9, RUSHMEM_DEVICE_FAIL_TURNS = 10,
       RUSHMEM_DEVICE_FAIL_CARD_WORD = 11 };

#endif
