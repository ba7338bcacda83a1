// Warps: shuffles, votes, `__match_*_sync`, `__reduce_*_sync`, of arithmetic types
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x, v = random[i] % 4, first = i / 32 * 32;
  unsigned same = 0, sum = 0, odd = 0;
  for (unsigned k = 0; k < 32; ++k) {
    const unsigned other = random[first + k] % 4;
    same |= (other == v ? 1u : 0u) << k;
    odd |= (other & 1) << k;
    sum += other;
  }
  int all;
  const unsigned matched = __match_all_sync(~0u, 5, &all);
  good[i] = __match_any_sync(~0u, v) == same && __ballot_sync(~0u, v & 1) == odd && __reduce_add_sync(~0u, v) == sum &&
            __shfl_xor_sync(~0u, v, 5) == random[i ^ 5] % 4 && matched == ~0u && all && !__any_sync(~0u, v > 3);
}
