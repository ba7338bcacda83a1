/* Waits and tests of words. */
#include "inline.h"

void wait_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  check(call, rushmem_wait_until_all(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0));
}

void wait_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                     const void *values)
{
  check(call, rushmem_wait_until_all_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0));
}

size_t wait_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  size_t index;
  check(call, rushmem_wait_until_any(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0, &index));
  return index;
}

size_t wait_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values)
{
  size_t index;
  check(call, rushmem_wait_until_any_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0,
                                            &index));
  return index;
}

size_t wait_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value)
{
  size_t count;
  check(call, rushmem_wait_until_some(job.world, kind, ivars, n, status, compare_code(call, cmp), value, 0, indices,
                                      &count));
  return count;
}

size_t wait_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values)
{
  size_t count;
  check(call, rushmem_wait_until_some_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, 0,
                                             indices, &count));
  return count;
}

int test_all(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  int32_t result;
  check(call, rushmem_test_all(job.world, kind, ivars, n, status, compare_code(call, cmp), value, &result));
  return result;
}

int test_all_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                    const void *values)
{
  int32_t result;
  check(call, rushmem_test_all_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, &result));
  return result;
}

size_t test_any(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp, uint64_t value)
{
  size_t index;
  check(call, rushmem_test_any(job.world, kind, ivars, n, status, compare_code(call, cmp), value, &index));
  return index;
}

size_t test_any_vector(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                       const void *values)
{
  size_t index;
  check(call, rushmem_test_any_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, &index));
  return index;
}

size_t test_some(struct call call, int kind, const void *ivars, size_t n, size_t *indices, const int *status,
                 int cmp, uint64_t value)
{
  size_t count;
  check(call, rushmem_test_some(job.world, kind, ivars, n, status, compare_code(call, cmp), value, indices, &count));
  return count;
}

size_t test_some_vector(struct call call, int kind, const void *ivars, size_t n, size_t *indices,
                        const int *status, int cmp, const void *values)
{
  size_t count;
  check(call, rushmem_test_some_vector(job.world, kind, ivars, n, status, compare_code(call, cmp), values, indices,
                                       &count));
  return count;
}

void wait_on_stream(struct call call, int kind, const void *ivar, int cmp, uint64_t value, cudaStream_t stream)
{
  check(call, rushmem_wait_until_on_stream(job.world, kind, ivar, compare_code(call, cmp), value, stream_of(stream)));
}

static size_t width_of(int kind)
{
  return kind == RUSHMEM_INT16 || kind == RUSHMEM_UINT16 ? 2 : kind == RUSHMEM_INT32 || kind == RUSHMEM_UINT32 ? 4 : 8;
}

/* Refuses words that are not all there, before the arrays beside them are read as far: the last one first, as
 * what is too many ends where nothing is. */
static void check_words(struct call call, const void *ivars, size_t n, size_t width)
{
  in_job(call);
  if (n == 0) return;
  const size_t bytes = bytes_of(call, n, width);
  if ((uintptr_t) ivars > UINTPTR_MAX - bytes) refuse(call, "%zu words at %p run past the last address", n, ivars);
  void *mapped;
  for (size_t i = n; i-- > 0;)
    check(call, rushmem_ptr(job.world, (const char *) ivars + i * width, job.me, &mapped));
}

/* One wait for each word. `status` and the values are read now. */
static void each_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status, int cmp,
                           const void *values, size_t step, cudaStream_t stream)
{
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
  check_words(call, ivars, n, width_of(kind));
  each_on_stream(call, kind, ivars, n, status, cmp, &value, 0, stream);
}

void wait_all_vector_on_stream(struct call call, int kind, const void *ivars, size_t n, const int *status,
                               int cmp, const void *values, cudaStream_t stream)
{
  const size_t bytes = width_of(kind);
  check_words(call, ivars, n, bytes);
  void *copy = malloc(bytes_of(call, n + 1, bytes));
  if (!copy) refuse(call, "there is no memory for the values of %zu words", n);
  if (n) module_copy(call, copy, values, n * bytes);
  each_on_stream(call, kind, ivars, n, status, cmp, copy, bytes, stream);
  free(copy);
}
