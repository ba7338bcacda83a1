/* What the generated functions are made of. It is inlined into each of them, so that a put is one call of the
 * runtime behind a comparison or two; whatever is rare is a call of one of the other files. */
#ifndef RUSHMEM_OPENSHMEM_INLINE_H
#define RUSHMEM_OPENSHMEM_INLINE_H

#include <stdatomic.h>
#include <string.h>

#include "kinds.h"
#include "values.h"
#include "library.h"

#define INLINE static inline __attribute__((always_inline))
/* A symbol of the library's. */
#define PUBLIC __attribute__((visibility("default")))
/* The specification's name of pNAME, which a profiler may define itself. */
#define WEAK(name)                                                                                           \
  extern __typeof__(p##name) name __attribute__((weak, alias("p" #name), visibility("default")))

/* At the head of every function, with its arguments that are pointers: it says where this thread is. */
#define CALL(name, ...)                                                                                      \
  static const struct function function = {name, #__VA_ARGS__};                                              \
  const struct call call = {name, __builtin_return_address(0)};                                              \
  const volatile void *const arguments[] = {__VA_ARGS__ __VA_OPT__(,) NULL};                                 \
  const struct inside inside __attribute__((cleanup(leave_call))) =                                          \
      {&function, call.from, inside_call, arguments};                                                        \
  inside_call = &inside;                                                                                     \
  atomic_signal_fence(memory_order_seq_cst);                                                                 \
  if (!LIKELY(!job.debug)) trace(call);                                                                      \
  (void) call
/* In functions of a context's operation on a PE; `may_last`: it may be under way when they return. */
#define IN_CONTEXT(may_last)                                                                                 \
  const struct use use __attribute__((cleanup(end_use))) = begin_use(call, ctx, pe, may_last);               \
  (void) use
#define WITHOUT_CONTEXT                                                                                      \
  const shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;                                                                 \
  (void) ctx

/* Of reductions alone. */
#define NUMBER_longdouble LONG_DOUBLE
#define NUMBER_complexf RUSHMEM_COMPLEX_FLOAT
#define NUMBER_complexd RUSHMEM_COMPLEX_DOUBLE

#define AMO(type, name, op, dest, value)                                                                     \
  amo(call, ctx, RUSHMEM_ATOMIC_##op, KIND_##name, dest, BITS(type, value), 0, pe, NULL)
#define AMO_GET(type, name, op, dest, value, compare)                                                        \
  RESULT(type, amo_into(call, ctx, RUSHMEM_ATOMIC_##op, KIND_##name, dest, BITS(type, value),                \
                        BITS(type, compare), pe, &result, sizeof result))
#define AMO_INTO(type, name, op, dest, value, compare)                                                       \
  amo_into(call, ctx, RUSHMEM_ATOMIC_##op, KIND_##name, dest, BITS(type, value), BITS(type, compare), pe,    \
           fetch, sizeof(type))
#define WAIT(type, name, ivar, cmp, value) wait_until(call, KIND_##name, ivar, cmp, BITS(type, value))
#define TEST(type, name, ivar, cmp, value) test(call, KIND_##name, ivar, cmp, BITS(type, value))
#define REDUCE(name, op) collective_reduce(call, team, dest, source, nreduce, NUMBER_##name, RUSHMEM_##op)
#define SCAN(name, which) collective_scan(call, team, dest, source, nelems, NUMBER_##name, SCAN_##which)
#define SCAN_in true
#define SCAN_ex false
#define ACTIVE_SET ((struct active_set){PE_start, logPE_stride, PE_size})
#define TO_ALL(name, op)                                                                                     \
  ((void) pWrk, active_reduce(call, ACTIVE_SET, pSync, dest, source, nreduce, NUMBER_##name, RUSHMEM_##op))

INLINE void leave_call(const struct inside *inside)
{
  /* What the call has written comes before, for the handler: an address may be wild. */
  atomic_signal_fence(memory_order_seq_cst);
  inside_call = inside->outer;
}

/* An operation in a context; `entered`: on a far PE, so that the thread is in the runtime's. */
struct use {
  shmem_ctx_t ctx;
  bool entered, may_last;
};
INLINE struct use begin_use(struct call call, shmem_ctx_t ctx, int pe, bool may_last)
{
  const bool near = ctx == SHMEM_CTX_DEFAULT || job.all_near;
  return (struct use){ctx, !LIKELY(near) && context_enter(call, ctx, pe), may_last};
}
INLINE void end_use(const struct use *use)
{
  if (!LIKELY(!use->entered)) context_leave(use->ctx, use->may_last);
}

/* The world's number of the PE that a call names. */
INLINE int target(struct call call, shmem_ctx_t ctx, int pe)
{
  return LIKELY(ctx == SHMEM_CTX_DEFAULT) ? pe : context_target(call, ctx, pe);
}

/* Refuses what overlaps, with SHMEM_DEBUG. */
INLINE void apart(struct call call, shmem_ctx_t ctx, const void *dest, const void *source, size_t n,
                  size_t bytes, int pe)
{
  if (!LIKELY(!job.debug) && job.world)
    check_apart(call, dest, source, bytes_of(call, n, bytes), target(call, ctx, pe));
}

/* Local memory of an operation on a far PE is there. */
INLINE void reads(struct call call, shmem_ctx_t ctx, const void *source, const void *dest, size_t n,
                  size_t bytes, int pe)
{
  if (!LIKELY(job.all_near)) fault_source(source, dest, bytes_of(call, n, bytes), target(call, ctx, pe));
}
INLINE void writes(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n,
                   size_t bytes, int pe)
{
  if (!LIKELY(job.all_near)) fault_dest(dest, source, bytes_of(call, n, bytes), target(call, ctx, pe));
}

INLINE void put(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n, size_t bytes,
                int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  reads(call, ctx, source, dest, n, bytes, pe);
  check_at(call, rushmem_put(job.world, dest, source, bytes_of(call, n, bytes), target(call, ctx, pe)), dest);
}

INLINE void put_nbi(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n,
                    size_t bytes, int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  reads(call, ctx, source, dest, n, bytes, pe);
  check_at(call, rushmem_put_nbi(job.world, dest, source, bytes_of(call, n, bytes), target(call, ctx, pe)),
           dest);
}

INLINE void get(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n, size_t bytes,
                int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  writes(call, ctx, dest, source, n, bytes, pe);
  check_at(call, rushmem_get(job.world, dest, source, bytes_of(call, n, bytes), target(call, ctx, pe)),
           source);
}

INLINE void get_nbi(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n,
                    size_t bytes, int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  writes(call, ctx, dest, source, n, bytes, pe);
  check_at(call, rushmem_get_nbi(job.world, dest, source, bytes_of(call, n, bytes), target(call, ctx, pe)),
           source);
}

/* Long doubles are wider than what rushmem_p takes. */
INLINE void put_value(struct call call, shmem_ctx_t ctx, void *dest, const void *value, size_t bytes, int pe)
{
  if (bytes > sizeof(uint64_t)) {
    put(call, ctx, dest, value, 1, bytes, pe);
    return;
  }
  uint64_t bits = 0;
  memcpy(&bits, value, bytes <= sizeof bits ? bytes : 0);
  check_at(call, rushmem_p(job.world, dest, bits, bytes, target(call, ctx, pe)), dest);
}

INLINE void get_value(struct call call, shmem_ctx_t ctx, void *value, const void *source, size_t bytes,
                      int pe)
{
  if (bytes > sizeof(uint64_t)) {
    get(call, ctx, value, source, 1, bytes, pe);
    return;
  }
  uint64_t bits;
  check_at(call, rushmem_g(job.world, source, &bits, bytes, target(call, ctx, pe)), source);
  memcpy(value, &bits, bytes <= sizeof bits ? bytes : 0);
}

INLINE void iput(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
                 ptrdiff_t sst,
                 size_t bytes, size_t n, int pe)
{
  if (!LIKELY(job.all_near)) fault_rows(source, sst, dest, dst, bytes, n, target(call, ctx, pe), false);
  check_at(call, rushmem_iput(job.world, dest, source, dst, sst, bytes, n, target(call, ctx, pe)), dest);
}

INLINE void iget(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
                 ptrdiff_t sst,
                 size_t bytes, size_t n, int pe)
{
  if (!LIKELY(job.all_near)) fault_rows(dest, dst, source, sst, bytes, n, target(call, ctx, pe), true);
  check_at(call, rushmem_iget(job.world, dest, source, dst, sst, bytes, n, target(call, ctx, pe)), source);
}

INLINE void put_signal(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n,
                       size_t bytes,
                       uint64_t *sig, uint64_t value, int op, int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  reads(call, ctx, source, dest, n, bytes, pe);
  check_at(call,
           rushmem_put_signal(job.world, dest, source, bytes_of(call, n, bytes), sig, value, op,
                              target(call, ctx, pe)),
           dest);
}

INLINE void put_signal_nbi(struct call call, shmem_ctx_t ctx, void *dest, const void *source, size_t n,
                           size_t bytes,
                           uint64_t *sig, uint64_t value, int op, int pe)
{
  apart(call, ctx, dest, source, n, bytes, pe);
  reads(call, ctx, source, dest, n, bytes, pe);
  check_at(
      call,
      rushmem_put_signal_nbi(job.world, dest, source, bytes_of(call, n, bytes), sig, value, op, target(call,
                             ctx, pe)),
      dest);
}

INLINE void signal_op(struct call call, shmem_ctx_t ctx, uint64_t *sig, uint64_t value, int op, int pe)
{
  check_at(call, rushmem_signal_op(job.world, sig, value, op, target(call, ctx, pe)), sig);
}

INLINE uint64_t signal_fetch(struct call call, const uint64_t *sig)
{
  uint64_t value;
  check_at(call, rushmem_signal_fetch(job.world, sig, &value), sig);
  return value;
}

INLINE uint64_t signal_wait(struct call call, const uint64_t *sig, int cmp, uint64_t value)
{
  uint64_t seen;
  check_at(call, rushmem_signal_wait_until(job.world, sig, cmp, value, &seen), sig);
  return seen;
}

INLINE void amo(struct call call, shmem_ctx_t ctx, int op, int kind, const void *dest, uint64_t value,
                uint64_t compare,
                int pe, uint64_t *fetched)
{
  check_at(call,
           rushmem_atomic(job.world, op, kind, (void *) dest, value, compare, target(call, ctx, pe),
                          fetched), dest);
}

INLINE void amo_into(struct call call, shmem_ctx_t ctx, int op, int kind, const void *dest, uint64_t value,
                     uint64_t compare, int pe, void *fetch, size_t bytes)
{
  if (!LIKELY(fetch != NULL)) refuse(call, "fetch is null");
  uint64_t fetched;
  amo(call, ctx, op, kind, dest, value, compare, pe, &fetched);
  memcpy(fetch, &fetched, bytes);
}

INLINE void wait_until(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  check_at(call, rushmem_wait_until(job.world, kind, ivar, cmp, value, 0), ivar);
}

INLINE int test(struct call call, int kind, const void *ivar, int cmp, uint64_t value)
{
  int32_t result;
  check_at(call, rushmem_test(job.world, kind, ivar, cmp, value, &result), ivar);
  return result;
}

INLINE void wait_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                     uint64_t value)
{
  check_at(call, rushmem_wait_until_all(job.world, kind, ivars, n, status, cmp, value, 0), ivars);
}

INLINE size_t wait_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       uint64_t value)
{
  size_t index;
  check_at(call, rushmem_wait_until_any(job.world, kind, ivars, n, status, cmp, value, 0, &index), ivars);
  return index;
}

INLINE size_t wait_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status,
                        int cmp, uint64_t value)
{
  size_t count;
  check_at(call, rushmem_wait_until_some(job.world, kind, ivars, n, status, cmp, value, 0, indices, &count),
           ivars);
  return count;
}

INLINE void wait_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status,
                            int cmp,
                            const void *values)
{
  check_at(call, rushmem_wait_until_all_vector(job.world, kind, ivars, n, status, cmp, values, 0), ivars);
}

INLINE size_t wait_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status,
                              int cmp,
                              const void *values)
{
  size_t index;
  check_at(call, rushmem_wait_until_any_vector(job.world, kind, ivars, n, status, cmp, values, 0, &index),
           ivars);
  return index;
}

INLINE size_t wait_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                               const int *status, int cmp, const void *values)
{
  size_t count;
  check_at(call, rushmem_wait_until_some_vector(job.world, kind, ivars, n, status, cmp, values, 0, indices,
           &count),
           ivars);
  return count;
}

INLINE int test_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                    uint64_t value)
{
  int32_t result;
  check_at(call, rushmem_test_all(job.world, kind, ivars, n, status, cmp, value, &result), ivars);
  return result;
}

INLINE size_t test_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       uint64_t value)
{
  size_t index;
  check_at(call, rushmem_test_any(job.world, kind, ivars, n, status, cmp, value, &index), ivars);
  return index;
}

INLINE size_t test_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status,
                        int cmp, uint64_t value)
{
  size_t count;
  check_at(call, rushmem_test_some(job.world, kind, ivars, n, status, cmp, value, indices, &count), ivars);
  return count;
}

INLINE int test_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status,
                           int cmp,
                           const void *values)
{
  int32_t result;
  check_at(call, rushmem_test_all_vector(job.world, kind, ivars, n, status, cmp, values, &result), ivars);
  return result;
}

INLINE size_t test_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status,
                              int cmp,
                              const void *values)
{
  size_t index;
  check_at(call, rushmem_test_any_vector(job.world, kind, ivars, n, status, cmp, values, &index), ivars);
  return index;
}

INLINE size_t test_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                               const int *status, int cmp, const void *values)
{
  size_t count;
  check_at(call, rushmem_test_some_vector(job.world, kind, ivars, n, status, cmp, values, indices, &count),
           ivars);
  return count;
}

#endif
