/* Waits and tests of words. Those of 16 bits the runtime does not have: they are read again and again. */
#include <sched.h>

#include "inline.h"

static bool is_short(int kind)
{
  return kind < 0;
}

/* Of words of 16 bits: how many of them satisfy, with their indices, unless `indices` is null. */
static size_t satisfied(struct call call, int kind, const uint16_t *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values, size_t step, size_t *wanted)
{
  size_t count = 0;
  *wanted = 0;
  for (size_t i = 0; i < n; i++) {
    if (status && status[i]) continue;
    ++*wanted;
    uint64_t bits;
    uint16_t right;
    /* It says whether the address is this PE's own symmetric memory. */
    check(call, rushmem_g(job.world, ivars + i, &bits, sizeof *ivars, job.me));
    memcpy(&right, (const char *) values + i * step, sizeof right);
    const int a = kind == KIND_short ? (int16_t) bits : (int) (uint16_t) bits;
    const int b = kind == KIND_short ? (int16_t) right : (int) right;
    bool is = false;
    switch (cmp) {
    case NVSHMEM_CMP_EQ: is = a == b; break;
    case NVSHMEM_CMP_NE: is = a != b; break;
    case NVSHMEM_CMP_GT: is = a > b; break;
    case NVSHMEM_CMP_GE: is = a >= b; break;
    case NVSHMEM_CMP_LT: is = a < b; break;
    case NVSHMEM_CMP_LE: is = a <= b; break;
    default: compare_code(call, cmp);
    }
    if (!is) continue;
    if (indices) indices[count] = i;
    count++;
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return count;
}

/* Once more, or once the job is broken no more. */
static void again(struct call call)
{
  check(call, rushmem_check(job.world));
  sched_yield();
}

static void short_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                      const void *values, size_t step)
{
  /* Not necessarily all at one moment. */
  size_t wanted;
  for (size_t i = 0; i < n; i++) {
    if (status && status[i]) continue;
    const char *value = (const char *) values + i * step;
    while (!satisfied(call, kind, (const uint16_t *) ivars + i, 1, NULL, NULL, cmp, value, 0, &wanted)) again(call);
  }
}

static size_t short_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                         const int *status, int cmp, const void *values, size_t step)
{
  for (;; again(call)) {
    size_t wanted;
    const size_t count = satisfied(call, kind, ivars, n, indices, status, cmp, values, step, &wanted);
    if (count || !wanted) return count;
  }
}

static size_t short_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                        const void *values, size_t step, bool wait)
{
  for (;; again(call)) {
    bool wanted = false;
    for (size_t i = 0; i < n; i++) {
      if (status && status[i]) continue;
      wanted = true;
      size_t one;
      const char *value = (const char *) values + i * step;
      if (satisfied(call, kind, (const uint16_t *) ivars + i, 1, NULL, NULL, cmp, value, 0, &one)) return i;
    }
    if (!wanted || !wait) return SIZE_MAX;
  }
}

void wait_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  if (is_short(kind)) short_all(call, kind, ivars, n, status, cmp, &value, 0);
  else check(call, rushmem_wait_until_all(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0));
}

void wait_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                     const void *values, size_t bytes)
{
  if (is_short(kind)) short_all(call, kind, ivars, n, status, cmp, values, bytes);
  else
    check(call, rushmem_wait_until_all_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0));
}

size_t wait_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  if (is_short(kind)) return short_any(call, kind, ivars, n, status, cmp, &value, 0, true);
  size_t index;
  check(call, rushmem_wait_until_any(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0, &index));
  return index;
}

size_t wait_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values, size_t bytes)
{
  if (is_short(kind)) return short_any(call, kind, ivars, n, status, cmp, values, bytes, true);
  size_t index;
  check(call, rushmem_wait_until_any_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0,
                                            &index));
  return index;
}

size_t wait_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value)
{
  if (is_short(kind)) return short_some(call, kind, ivars, n, indices, status, cmp, &value, 0);
  size_t count;
  check(call, rushmem_wait_until_some(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0, indices,
                                      &count));
  return count;
}

size_t wait_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values, size_t bytes)
{
  if (is_short(kind)) return short_some(call, kind, ivars, n, indices, status, cmp, values, bytes);
  size_t count;
  check(call, rushmem_wait_until_some_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0,
                                             indices, &count));
  return count;
}

int test_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  if (is_short(kind)) {
    size_t wanted;
    return satisfied(call, kind, ivars, n, NULL, status, cmp, &value, 0, &wanted) == wanted;
  }
  int32_t result;
  check(call, rushmem_test_all(job.world, kind, ivars, n, status, compare_code(call, cmp), value, &result));
  return result;
}

int test_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                    const void *values, size_t bytes)
{
  if (is_short(kind)) {
    size_t wanted;
    return satisfied(call, kind, ivars, n, NULL, status, cmp, values, bytes, &wanted) == wanted;
  }
  int32_t result;
  check(call, rushmem_test_all_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, &result));
  return result;
}

size_t test_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  if (is_short(kind)) return short_any(call, kind, ivars, n, status, cmp, &value, 0, false);
  size_t index;
  check(call, rushmem_test_any(job.world, kind, ivars, n, status, compare_code(call, cmp), value, &index));
  return index;
}

size_t test_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values, size_t bytes)
{
  if (is_short(kind)) return short_any(call, kind, ivars, n, status, cmp, values, bytes, false);
  size_t index;
  check(call, rushmem_test_any_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, &index));
  return index;
}

size_t test_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value)
{
  size_t count;
  if (is_short(kind)) return satisfied(call, kind, ivars, n, indices, status, cmp, &value, 0, &count);
  check(call, rushmem_test_some(job.world, kind, ivars, n, status, compare_code(call, cmp), value, indices, &count));
  return count;
}

size_t test_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values, size_t bytes)
{
  size_t count;
  if (is_short(kind)) return satisfied(call, kind, ivars, n, indices, status, cmp, values, bytes, &count);
  check(call, rushmem_test_some_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, indices,
                                       &count));
  return count;
}

void wait_on_stream(struct call call, int kind, const void *ivar, int cmp, uint64_t value, cudaStream_t stream)
{
  if (is_short(kind)) refuse(call, "streams wait for words of 32 and 64 bits, not for one of 16");
  check(call, rushmem_wait_until_on_stream(job.world, kind, ivar, compare_code(call, cmp), value, stream_of(stream)));
}

static size_t width_of(int kind)
{
  return is_short(kind) ? 2 : kind == RUSHMEM_INT32 || kind == RUSHMEM_UINT32 ? 4 : 8;
}

/* One wait for each word. `status` and the values are read now. */
static void each_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                           const void *values, size_t step, cudaStream_t stream)
{
  in_job(call);
  int *left_out = NULL;
  if (status && n) {
    left_out = malloc(bytes_of(call, n, sizeof *left_out));
    if (!left_out) refuse(call, "there is no memory for the status of %zu words", n);
    module_copy(call, left_out, status, n * sizeof *left_out);
  }
  for (size_t i = 0; i < n; i++) {
    uint64_t value = 0;
    if (left_out && left_out[i]) continue;
    memcpy(&value, (const char *) values + i * step, width_of(kind));
    wait_on_stream(call, kind, (const char *) ivars + i * width_of(kind), cmp, value, stream);
  }
  free(left_out);
}

void wait_all_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                        uint64_t value, cudaStream_t stream)
{
  each_on_stream(call, kind, ivars, n, status, cmp, &value, 0, stream);
}

void wait_all_vector_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status,
                               int cmp, const void *values, size_t bytes, cudaStream_t stream)
{
  in_job(call);
  void *copy = malloc(bytes_of(call, n + 1, bytes));
  if (!copy) refuse(call, "there is no memory for the values of %zu words", n);
  if (n) module_copy(call, copy, values, n * bytes);
  each_on_stream(call, kind, ivars, n, status, cmp, copy, bytes, stream);
  free(copy);
}
