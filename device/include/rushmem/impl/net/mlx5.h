/* Formats of mlx5 cards, as far as kernels write and read them: work requests, doorbells, completions. From
 * the "Mellanox Adapters Programmer's Reference Manual" (revision 0.40), chapters 7 to 9, and rdma-core's
 * mlx5dv.h, with which a test (host/runtime/src/net/queue/formats_tests.rs) compares every number here, those
 * of the host and those of the software card. Plain C.
 *
 * A request takes one block of 64 bytes, as segments of 16; all words are big-endian.
 *
 *   0   control   index (16 bits) << 8 | opcode; queue pair << 8 | segments; flags in byte 11
 *   16  address   remote address, remote key (WRITE, READ, atomics)
 *   32  data      bytes, local key, local address; or, with the inline bit, bytes and the data itself
 *       atomic    addend or value to swap in, value to compare with
 *   48  data      of an atomic: 8 bytes for what was there, which comes in the hosts' order of bytes, as the
 *                 word itself is read and written (`ibv_query_device` promises it: IBV_ATOMIC_HCA)
 *
 * Doorbell: word 1 of the record takes the number of requests written, modulo 2^16; then the register takes
 * the first 8 bytes of a control segment. The collapsed completion queue has one entry of 64 bytes, which
 * each completion overwrites: `wqe_counter` is the index of the last request that is complete.
 */
#ifndef RUSHMEM_IMPL_NET_MLX5_H
#define RUSHMEM_IMPL_NET_MLX5_H

/* Opcodes of requests. */
enum { RUSHMEM_MLX5_NOP = 0x00, RUSHMEM_MLX5_WRITE = 0x08, RUSHMEM_MLX5_READ = 0x10,
       RUSHMEM_MLX5_COMPARE_SWAP = 0x11, RUSHMEM_MLX5_FETCH_ADD = 0x12 };

/* Flags of the control segment. A request with the fence waits until earlier READs and atomics of its queue
 * have been answered. */
enum { RUSHMEM_MLX5_COMPLETE = 8, RUSHMEM_MLX5_FENCE = 0x80 };

/* Places. */
enum { RUSHMEM_MLX5_BLOCK = 64, RUSHMEM_MLX5_FLAGS_AT = 11, RUSHMEM_MLX5_ADDRESS_AT = 16,
       RUSHMEM_MLX5_DATA_AT = 32, RUSHMEM_MLX5_ANSWER_AT = 48, RUSHMEM_MLX5_RECORD_SEND = 1, RUSHMEM_MLX5_SYNDROME_AT = 55,
       RUSHMEM_MLX5_COUNTER_AT = 60, RUSHMEM_MLX5_OWNER_AT = 63 };

/* In the length of inline data. */
#define RUSHMEM_MLX5_INLINE 0x80000000u

/* Kinds of completions, in the upper half of the last byte. */
enum { RUSHMEM_MLX5_DONE = 0, RUSHMEM_MLX5_FAILED = 13, RUSHMEM_MLX5_NONE_YET = 15 };

/* Syndromes of a failure that are the network's, or follow from an earlier failure. All others are the
 * request's. */
enum { RUSHMEM_MLX5_FLUSHED = 0x05, RUSHMEM_MLX5_NO_ANSWER = 0x15, RUSHMEM_MLX5_NOT_READY = 0x16 };

#endif
