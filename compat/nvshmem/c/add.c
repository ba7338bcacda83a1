/* Additions of floats from the host, which the runtime does not have: compare and swap of the bits, until
 * nobody came between. Two halves share a word. */
#include "inline.h"

void add_float(struct call call, float *target, const float *value, int pe, float *before)
{
  uint64_t seen, found;
  amo(call, RUSHMEM_ATOMIC_FETCH, RUSHMEM_UINT32, target, 0, 0, pe, &seen);
  for (;; seen = found) {
    float old, sum;
    memcpy(&old, &seen, sizeof old);
    sum = old + *value;
    amo(call, RUSHMEM_ATOMIC_COMPARE_SWAP, RUSHMEM_UINT32, target, BITS(float, sum), seen, pe, &found);
    if (found != seen) continue;
    if (before) *before = old;
    return;
  }
}

void add_double(struct call call, double *target, const double *value, int pe, double *before)
{
  uint64_t seen, found;
  amo(call, RUSHMEM_ATOMIC_FETCH, RUSHMEM_UINT64, target, 0, 0, pe, &seen);
  for (;; seen = found) {
    double old, sum;
    memcpy(&old, &seen, sizeof old);
    sum = old + *value;
    amo(call, RUSHMEM_ATOMIC_COMPARE_SWAP, RUSHMEM_UINT64, target, BITS(double, sum), seen, pe, &found);
    if (found != seen) continue;
    if (before) *before = old;
    return;
  }
}

/* 16-bit floats of IEEE 754. */
static float widened(uint16_t half)
{
  const uint32_t sign = (uint32_t) (half & 0x8000) << 16, exponent = half >> 10 & 31, rest = half & 0x3ff;
  float value;
  if (exponent == 0) {
    value = (float) rest / (float) (1 << 24);
    return sign ? -value : value;
  }
  const uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | rest << 13;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds to the nearest, ties to even. */
static uint16_t narrowed(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t) (bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and more */
  if (bits < 0x38800000) {
    /* Below 2^-14: multiples of 2^-24, to which an addition rounds. */
    float positive;
    memcpy(&positive, &bits, sizeof positive);
    const float shifted = positive + 0.5f;
    uint32_t low;
    memcpy(&low, &shifted, sizeof low);
    return sign | (uint16_t) (low - 0x3f000000);
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | (uint16_t) ((bits >> 13) - (112 << 10));
}

/* What becomes of a half: the sum with `value`, or `value`. */
static void change_half(struct call call, __half *target, const __half *value, bool add, int pe, __half *before)
{
  const unsigned shift = (uintptr_t) target % 4 * 8;
  void *word = (void *) ((uintptr_t) target & ~(uintptr_t) 3);
  uint64_t seen, found;
  amo(call, RUSHMEM_ATOMIC_FETCH, RUSHMEM_UINT32, word, 0, 0, pe, &seen);
  for (;; seen = found) {
    const uint16_t old = (uint16_t) (seen >> shift);
    const uint64_t new = add ? narrowed(widened(old) + widened(value->x)) : value->x;
    const uint64_t wanted = (seen & ~(0xffffull << shift)) | new << shift;
    amo(call, RUSHMEM_ATOMIC_COMPARE_SWAP, RUSHMEM_UINT32, word, wanted, seen, pe, &found);
    if (found != seen) continue;
    if (before) before->x = old;
    return;
  }
}

void add_half(struct call call, __half *target, const __half *value, int pe, __half *before)
{
  change_half(call, target, value, true, pe, before);
}

void half_swap(struct call call, __half *target, const __half *value, int pe, __half *before)
{
  change_half(call, target, value, false, pe, before);
}

void half_fetch(struct call call, const __half *target, int pe, __half *seen)
{
  uint64_t word;
  amo(call, RUSHMEM_ATOMIC_FETCH, RUSHMEM_UINT32, (const void *) ((uintptr_t) target & ~(uintptr_t) 3), 0, 0, pe, &word);
  seen->x = (uint16_t) (word >> (uintptr_t) target % 4 * 8);
}
