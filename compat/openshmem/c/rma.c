/* Blocks that are apart: a strided copy of blocks where the strides are whole blocks, else a copy each. */
#include "inline.h"

/* Refuses strides that overlap blocks. True where there is nothing to do. */
static bool nothing(struct call call, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks)
{
  in_job(call);
  if (bsize == 0 || nblocks == 0) return true;
  if (dst < 0 || (size_t) dst < bsize || sst < 0 || (size_t) sst < bsize)
    refuse(call, "strides %td and %td are to be at least bsize, %zu", dst, sst, bsize);
  return false;
}

static bool whole(ptrdiff_t dst, ptrdiff_t sst, size_t bsize)
{
  return (size_t) dst % bsize == 0 && (size_t) sst % bsize == 0;
}

/* Bytes from one block to the next where they are `stride` elements apart, from `array` on. Refuses blocks
 * that reach past the last address: their addresses would wrap around. */
static size_t step_of(struct call call, const void *array, ptrdiff_t stride, size_t bsize, size_t nblocks,
                      size_t bytes)
{
  size_t elements, reach, end;
  if (__builtin_mul_overflow(nblocks - 1, (size_t) stride, &elements) ||
      __builtin_add_overflow(elements, bsize, &elements) ||
      __builtin_mul_overflow(elements, bytes, &reach) ||
      __builtin_add_overflow((size_t) array, reach, &end))
    refuse(call, "%zu blocks of %zu elements of %zu bytes, %td elements apart, reach from %p past the last address",
           nblocks, bsize, bytes, stride, array);
  return (size_t) stride * bytes;
}

void rma_ibput(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
               ptrdiff_t sst,
               size_t bsize, size_t nblocks, size_t bytes, int pe)
{
  if (nothing(call, dst, sst, bsize, nblocks)) return;
  size_t block = bytes_of(call, bsize, bytes);
  if (whole(dst, sst, bsize)) {
    iput(call, ctx, dest, source, dst / (ptrdiff_t) bsize, sst / (ptrdiff_t) bsize, block, nblocks, pe);
    return;
  }
  const size_t to = step_of(call, dest, dst, bsize, nblocks, bytes);
  const size_t from = step_of(call, source, sst, bsize, nblocks, bytes);
  /* The last one first: arrays that end before it are refused as they were. */
  for (size_t i = nblocks; i-- > 0;)
    put(call, ctx, (char *) dest + i * to, (const char *) source + i * from, block, 1, pe);
}

void rma_ibget(struct call call, shmem_ctx_t ctx, void *dest, const void *source, ptrdiff_t dst,
               ptrdiff_t sst,
               size_t bsize, size_t nblocks, size_t bytes, int pe)
{
  if (nothing(call, dst, sst, bsize, nblocks)) return;
  size_t block = bytes_of(call, bsize, bytes);
  if (whole(dst, sst, bsize)) {
    iget(call, ctx, dest, source, dst / (ptrdiff_t) bsize, sst / (ptrdiff_t) bsize, block, nblocks, pe);
    return;
  }
  const size_t to = step_of(call, dest, dst, bsize, nblocks, bytes);
  const size_t from = step_of(call, source, sst, bsize, nblocks, bytes);
  /* The last one first: arrays that end before it are refused as they were. */
  for (size_t i = nblocks; i-- > 0;)
    get(call, ctx, (char *) dest + i * to, (const char *) source + i * from, block, 1, pe);
}
