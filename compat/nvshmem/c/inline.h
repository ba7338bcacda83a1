/* What the generated functions are made of. It is inlined into each of them, so that a put is one call of the
 * runtime behind a comparison or two. */
#ifndef RUSHMEM_NVSHMEM_INLINE_H
#define RUSHMEM_NVSHMEM_INLINE_H

#include <stdlib.h>
#include <string.h>

#include "kinds.h"
#include "values.h"
#include "library.h"

#define INLINE static inline __attribute__((always_inline))

/* At the head of every function. */
#define CALL(function)                                                                                       \
  const struct call call = {function, __builtin_return_address(0)};                                          \
  if (!LIKELY(!__atomic_load_n(&module_pending, __ATOMIC_RELAXED))) module_fill(call);                       \
  (void) call

/* Of reductions alone. */
#define NUMBER_half RUSHMEM_HALF
#define NUMBER_bfloat16 RUSHMEM_BFLOAT16

#define AMO(type, name, op, dest, value)                                                                     \
  amo(call, RUSHMEM_ATOMIC_##op, KIND_##name, dest, BITS(type, value), 0, pe, NULL)
#define AMO_GET(type, name, op, dest, value, compare)                                                        \
  RESULT(type, ({                                                                                            \
           uint64_t fetched;                                                                                 \
           amo(call, RUSHMEM_ATOMIC_##op, KIND_##name, dest, BITS(type, value), BITS(type, compare), pe,     \
               &fetched);                                                                                    \
           memcpy(&result, &fetched, sizeof result);                                                         \
         }))
#define WAIT(type, name, ivar, cmp, value) wait_all(call, KIND_##name, ivar, 1, NULL, cmp, BITS(type, value))
#define TEST(type, name, ivar, cmp, value) test_all(call, KIND_##name, ivar, 1, NULL, cmp, BITS(type, value))

/* ---- remote memory access ---- */

#define RMA(name, runtime, dest_type, source_type)                                                           \
  INLINE void name(struct call call, dest_type *dest, source_type *source, size_t n, size_t bytes, int pe)   \
  {                                                                                                          \
    check(call, runtime(job.world, dest, source, bytes_of(call, n, bytes), pe));                             \
  }
RMA(put, rushmem_put, void, const void)
RMA(put_nbi, rushmem_put_nbi, void, const void)
RMA(get, rushmem_get, void, const void)
RMA(get_nbi, rushmem_get_nbi, void, const void)
#undef RMA

/* CUDA's null stream waits for the other streams that block; the runtime's is one of its own. */
INLINE void *stream_of(cudaStream_t stream)
{
  return stream || job.gpu < 0 ? (void *) stream : (void *) 1; /* CU_STREAM_LEGACY */
}

INLINE void put_on_stream(struct call call, void *dest, const void *source, size_t n, size_t bytes, int pe,
                          cudaStream_t stream)
{
  check(call, rushmem_put_on_stream(job.world, dest, source, bytes_of(call, n, bytes), pe, stream_of(stream)));
}

INLINE void get_on_stream(struct call call, void *dest, const void *source, size_t n, size_t bytes, int pe,
                          cudaStream_t stream)
{
  check(call, rushmem_get_on_stream(job.world, dest, source, bytes_of(call, n, bytes), pe, stream_of(stream)));
}

INLINE void iput(struct call call, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bytes,
                 size_t n, int pe)
{
  check(call, rushmem_iput(job.world, dest, source, dst, sst, bytes, n, pe));
}

INLINE void iget(struct call call, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bytes,
                 size_t n, int pe)
{
  check(call, rushmem_iget(job.world, dest, source, dst, sst, bytes, n, pe));
}

INLINE void iput_on_stream(struct call call, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,
                           size_t bytes, size_t n, int pe, cudaStream_t stream)
{
  check(call, rushmem_iput_on_stream(job.world, dest, source, dst, sst, bytes, n, pe, stream_of(stream)));
}

INLINE void iget_on_stream(struct call call, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,
                           size_t bytes, size_t n, int pe, cudaStream_t stream)
{
  check(call, rushmem_iget_on_stream(job.world, dest, source, dst, sst, bytes, n, pe, stream_of(stream)));
}

INLINE void put_value(struct call call, void *dest, const void *value, size_t bytes, int pe)
{
  uint64_t bits = 0;
  memcpy(&bits, value, bytes);
  check(call, rushmem_p(job.world, dest, bits, bytes, pe));
}

INLINE void put_value_on_stream(struct call call, void *dest, const void *value, size_t bytes, int pe,
                                cudaStream_t stream)
{
  uint64_t bits = 0;
  memcpy(&bits, value, bytes);
  check(call, rushmem_p_on_stream(job.world, dest, bits, bytes, pe, stream_of(stream)));
}

INLINE void get_value(struct call call, void *value, const void *source, size_t bytes, int pe)
{
  uint64_t bits;
  check(call, rushmem_g(job.world, source, &bits, bytes, pe));
  memcpy(value, &bits, bytes);
}

/* The value is returned, so the stream is waited for. */
INLINE void get_value_on_stream(struct call call, void *value, const void *source, size_t bytes, int pe,
                                cudaStream_t stream)
{
  check(call, rushmem_get_on_stream(job.world, value, source, bytes, pe, stream_of(stream)));
  check(call, rushmem_stream_synchronize(job.world, stream_of(stream)));
}

/* ---- signals ---- */

INLINE int signal_code(struct call call, int op)
{
  if (!LIKELY(op == NVSHMEM_SIGNAL_SET || op == NVSHMEM_SIGNAL_ADD))
    refuse(call, "sig_op is %d: neither NVSHMEM_SIGNAL_SET nor NVSHMEM_SIGNAL_ADD", op);
  return op == NVSHMEM_SIGNAL_ADD ? RUSHMEM_SIGNAL_ADD : RUSHMEM_SIGNAL_SET;
}

INLINE int compare_code(struct call call, int cmp)
{
  static const signed char codes[] = {
      [NVSHMEM_CMP_EQ] = RUSHMEM_CMP_EQ, [NVSHMEM_CMP_NE] = RUSHMEM_CMP_NE, [NVSHMEM_CMP_GT] = RUSHMEM_CMP_GT,
      [NVSHMEM_CMP_LE] = RUSHMEM_CMP_LE, [NVSHMEM_CMP_LT] = RUSHMEM_CMP_LT, [NVSHMEM_CMP_GE] = RUSHMEM_CMP_GE};
  if (!LIKELY((unsigned) cmp < sizeof codes)) refuse(call, "cmp is %d, which is none of NVSHMEM_CMP_*", cmp);
  return codes[cmp];
}

INLINE void put_signal(struct call call, void *dest, const void *source, size_t n, size_t bytes, uint64_t *sig,
                       uint64_t value, int op, int pe)
{
  check(call, rushmem_put_signal(job.world, dest, source, bytes_of(call, n, bytes), sig, value,
                                 signal_code(call, op), pe));
}

INLINE void put_signal_nbi(struct call call, void *dest, const void *source, size_t n, size_t bytes,
                           uint64_t *sig, uint64_t value, int op, int pe)
{
  check(call, rushmem_put_signal_nbi(job.world, dest, source, bytes_of(call, n, bytes), sig, value,
                                     signal_code(call, op), pe));
}

INLINE void put_signal_on_stream(struct call call, void *dest, const void *source, size_t n, size_t bytes,
                                 uint64_t *sig, uint64_t value, int op, int pe, cudaStream_t stream)
{
  check(call, rushmem_put_signal_on_stream(job.world, dest, source, bytes_of(call, n, bytes), sig, value,
                                           signal_code(call, op), pe, stream_of(stream)));
}

INLINE void signal_op(struct call call, uint64_t *sig, uint64_t value, int op, int pe)
{
  check(call, rushmem_signal_op(job.world, sig, value, signal_code(call, op), pe));
}

INLINE void signal_op_on_stream(struct call call, uint64_t *sig, uint64_t value, int op, int pe,
                                cudaStream_t stream)
{
  check(call, rushmem_signal_op_on_stream(job.world, sig, value, signal_code(call, op), pe, stream_of(stream)));
}

INLINE uint64_t signal_fetch(struct call call, const uint64_t *sig)
{
  uint64_t value;
  check(call, rushmem_signal_fetch(job.world, sig, &value));
  return value;
}

INLINE uint64_t signal_wait(struct call call, const uint64_t *sig, int cmp, uint64_t value)
{
  uint64_t seen;
  check(call, rushmem_signal_wait_until(job.world, sig, compare_code(call, cmp), value, &seen));
  return seen;
}

INLINE void signal_wait_on_stream(struct call call, const uint64_t *sig, int cmp, uint64_t value,
                                  cudaStream_t stream)
{
  check(call, rushmem_signal_wait_until_on_stream(job.world, sig, compare_code(call, cmp), value,
                                                  stream_of(stream)));
}

/* ---- atomics ---- */

INLINE void amo(struct call call, int op, int kind, const void *dest, uint64_t value, uint64_t compare, int pe,
                uint64_t *fetched)
{
  check(call, rushmem_atomic(job.world, op, kind, (void *) dest, value, compare, pe, fetched));
}

/* Additions of floats: the runtime has none on the host. */
void add_float(struct call call, float *target, const float *value, int pe, float *before);
void add_double(struct call call, double *target, const double *value, int pe, double *before);
void add_half(struct call call, __half *target, const __half *value, int pe, __half *before);
/* Halves, which are half of a word that atomics know. */
void half_fetch(struct call call, const __half *target, int pe, __half *seen);
void half_swap(struct call call, __half *target, const __half *value, int pe, __half *before);

/* ---- ordering ---- */

INLINE void order_fence(struct call call)
{
  check(call, rushmem_fence(job.world));
}
INLINE void order_quiet(struct call call)
{
  check(call, rushmem_quiet(job.world));
}
INLINE void order_quiet_on_stream(struct call call, cudaStream_t stream)
{
  check(call, rushmem_quiet_on_stream(job.world, stream_of(stream)));
}

/* ---- wait.c: sets of words ---- */

void wait_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value);
size_t wait_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                uint64_t value);
size_t wait_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value);
int test_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value);
size_t test_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                uint64_t value);
size_t test_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value);
void wait_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                     const void *values);
size_t wait_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values);
size_t wait_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values);
int test_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                    const void *values);
size_t test_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values);
size_t test_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values);
void wait_on_stream(struct call call, int kind, const void *ivar, int cmp, uint64_t value, cudaStream_t stream);
void wait_all_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                        uint64_t value, cudaStream_t stream);
void wait_all_vector_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status,
                               int cmp, const void *values, cudaStream_t stream);

/* ---- collectives ---- */

INLINE void collective_barrier_all(struct call call)
{
  check(call, rushmem_barrier_all(job.world));
}
INLINE void collective_sync_all(struct call call)
{
  check(call, rushmem_sync_all(job.world));
}
INLINE void collective_barrier_all_on_stream(struct call call, cudaStream_t stream)
{
  check(call, rushmem_barrier_all_on_stream(job.world, stream_of(stream)));
}
INLINE void collective_sync_all_on_stream(struct call call, cudaStream_t stream)
{
  check(call, rushmem_sync_all_on_stream(job.world, stream_of(stream)));
}

/* Each with its form on a stream: the arguments in front of the slot set are the same. */
#define COLLECTIVE(name, parameters, ...)                                                                    \
  INLINE int collective_##name parameters                                                                    \
  {                                                                                                          \
    check(call, rushmem_team_##name(__VA_ARGS__));                                                           \
    return 0;                                                                                                \
  }
#define ON_STREAM(name, parameters, ...)                                                                     \
  INLINE int collective_##name##_on_stream parameters                                                        \
  {                                                                                                          \
    check(call, rushmem_team_##name##_on_stream(__VA_ARGS__, 0, stream_of(stream)));                         \
    return 0;                                                                                                \
  }
#define ARRAYS void *dest, const void *source, size_t n, size_t bytes
COLLECTIVE(barrier, (struct call call, nvshmem_team_t t), team_of(call, t))
ON_STREAM(barrier, (struct call call, nvshmem_team_t t, cudaStream_t stream), team_of(call, t))
COLLECTIVE(sync, (struct call call, nvshmem_team_t t), team_of(call, t))
ON_STREAM(sync, (struct call call, nvshmem_team_t t, cudaStream_t stream), team_of(call, t))
COLLECTIVE(broadcast, (struct call call, nvshmem_team_t t, ARRAYS, int root), team_of(call, t), dest, source,
           bytes_of(call, n, bytes), root)
ON_STREAM(broadcast, (struct call call, nvshmem_team_t t, ARRAYS, int root, cudaStream_t stream), team_of(call, t),
          dest, source, bytes_of(call, n, bytes), root)
COLLECTIVE(fcollect, (struct call call, nvshmem_team_t t, ARRAYS), team_of(call, t), dest, source,
           bytes_of(call, n, bytes))
ON_STREAM(fcollect, (struct call call, nvshmem_team_t t, ARRAYS, cudaStream_t stream), team_of(call, t), dest,
          source, bytes_of(call, n, bytes))
COLLECTIVE(alltoall, (struct call call, nvshmem_team_t t, ARRAYS), team_of(call, t), dest, source,
           bytes_of(call, n, bytes))
ON_STREAM(alltoall, (struct call call, nvshmem_team_t t, ARRAYS, cudaStream_t stream), team_of(call, t), dest,
          source, bytes_of(call, n, bytes))
#define NUMBERS void *dest, const void *source, size_t n, int type, int op
COLLECTIVE(reduce, (struct call call, nvshmem_team_t t, NUMBERS), team_of(call, t), dest, source, n, type, op)
ON_STREAM(reduce, (struct call call, nvshmem_team_t t, NUMBERS, cudaStream_t stream), team_of(call, t), dest, source,
          n, type, op)
COLLECTIVE(reducescatter, (struct call call, nvshmem_team_t t, NUMBERS), team_of(call, t), dest, source, n, type, op)
ON_STREAM(reducescatter, (struct call call, nvshmem_team_t t, NUMBERS, cudaStream_t stream), team_of(call, t), dest,
          source, n, type, op)
#undef COLLECTIVE
#undef ON_STREAM
#undef ARRAYS
#undef NUMBERS

#endif
