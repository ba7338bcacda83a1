/* What bench.cu moves, and what has arrived. */
#ifndef NVSHMEM_BENCH_DATA_H
#define NVSHMEM_BENCH_DATA_H

#include "atomics.cuh"

/* What a PE's `from` holds; in 8-byte words, or in floats whose sums are exact. */
DEV uint64_t pattern(uint64_t salt, int pe, uint64_t i) {
  uint64_t x = salt + (uint64_t(pe) << 48) + i * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
  return x ^ (x >> 29);
}
DEV float number(uint64_t salt, int pe, uint64_t i) { return float(pattern(salt, pe, i) >> 48); }

/* From ROUNDS on: what atomic operations leave of a word (atomics.cuh). */
enum arrives { NOTHING, PATTERN, WORDS, SUM, ROUNDS, SET, ADD, AND, OR, XOR, KEEP };

/* A word before the first round. */
DEV uint64_t before(const job &j, int arrives) {
  if (arrives < ROUNDS || arrives == AND) return ~uint64_t(0);
  return arrives == KEEP ? j.salt : 0;
}

/* What so many rounds leave of word `i`. */
DEV uint64_t left_by(const job &j, int arrives, uint64_t i, uint64_t rounds) {
  const uint64_t bits = low_bits(rounds);
  switch (arrives) {
    case ROUNDS: return rounds;
    case SET: return j.salt + i;
    case ADD: return j.salt * rounds;
    case AND: return ~bits;
    case OR: return bits;
    case XOR: return rounds % 2 ? j.salt : 0;
    default: return j.salt;
  }
}

/* `from` is this PE's pattern; `to`, and 64 bytes behind each of its places, are ones. What atomic operations
 * change begins as they want it. */
__global__ void fill(const job j, int arrives) {
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  const uint64_t n = j.bytes / 8 + 8;
  uint64_t *from = reinterpret_cast<uint64_t *>(j.from);
  const uint64_t all = n + j.step / 8 * (j.sources | j.targets);
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    if (i < n + j.step / 8 * j.targets) to_of(j)[i] = i < j.bytes / 8 ? before(j, arrives) : ~uint64_t(0);
    from[i] = pattern(j.salt, j.me, i);
    if (arrives != SUM) continue;
    float *two = reinterpret_cast<float *>(from + i);
    for (int k = 0; k < 2; ++k) two[k] = number(j.salt, j.me, 2 * i + k);
  }
}

/* Counts wrong words of `to`, where PE `from`'s data of the last round is to be. */
__global__ void verify(const job j, int arrives, int from, uint64_t rounds) {
  const uint64_t *last = reinterpret_cast<const uint64_t *>(j.to + target(j, rounds - 1));
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < j.bytes / 8 + 8; i += step) {
    uint64_t wanted = ~uint64_t(0);
    if (i >= j.bytes / 8) {
    } else if (arrives == PATTERN) {
      wanted = pattern(j.salt, from, i + source(j, rounds - 1) / 8);
    } else if (arrives == WORDS) {
      wanted = j.salt + i;
    } else if (arrives >= ROUNDS) {
      wanted = left_by(j, arrives, i, rounds);
    } else if (arrives == SUM) {
      float two[2] = {0, 0};
      for (int pe = 0; pe < j.pes; ++pe) {
        for (int k = 0; k < 2; ++k) two[k] += number(j.salt, pe, 2 * i + k);
      }
      wanted = uint64_t(__float_as_uint(two[0])) | uint64_t(__float_as_uint(two[1])) << 32;
    }
    if (last[i] != wanted) atomicAdd(reinterpret_cast<unsigned long long *>(j.bad), 1ull);
  }
}

#endif
