// `clock64()`, `clock()`, `__nanosleep`, `__isShared`, `__cvta_generic_to_shared`; neither
// `__isGlobal` nor `__isLocal`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  __shared__ unsigned word;
  const long long began = clock64();
  __nanosleep(1000);
  if (threadIdx.x == 0) word = random[0];
  __syncthreads();
  good[threadIdx.x] = clock64() > began && __isShared(&word) && !__isShared(random) &&
                      *static_cast<unsigned *>(__cvta_shared_to_generic(__cvta_generic_to_shared(&word))) == random[0];
}
