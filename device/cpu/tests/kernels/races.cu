// Small programs, each with one mistake, and beside it the same program without. Lines whose accesses race
// are marked. (tests/races.rs)
__device__ int cells[4096];
__device__ unsigned flags[64];  // each kernel's own: a launch leaves them set
__device__ int results[64];

#define KERNEL extern "C" __global__ void

// ---- one block, __syncthreads ----

KERNEL missing_syncthreads_bad() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;         // race
  cells[threadIdx.x] = values[63 - threadIdx.x];  // race
}
KERNEL missing_syncthreads_good() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  cells[threadIdx.x] = values[63 - threadIdx.x];
}

KERNEL shared_reused_bad() {
  __shared__ int value;
  for (int round = 0; round < 4; ++round) {
    if (threadIdx.x == 0) value = round;     // race
    __syncthreads();
    cells[threadIdx.x] += value;             // race
  }
}
KERNEL shared_reused_good() {
  __shared__ int value;
  for (int round = 0; round < 4; ++round) {
    if (threadIdx.x == 0) value = round;
    __syncthreads();
    cells[threadIdx.x] += value;
    __syncthreads();
  }
}

KERNEL tree_reduction_bad() {
  __shared__ int sums[64];
  sums[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (unsigned half = 32; half; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];  // race
  }
  if (threadIdx.x == 0) results[0] = sums[0];
}
KERNEL tree_reduction_good() {
  __shared__ int sums[64];
  sums[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (unsigned half = 32; half; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) results[0] = sums[0];
}

KERNEL same_word_bad() {
  results[1] = threadIdx.x;                  // race
}
KERNEL same_word_good() {
  if (threadIdx.x == 5) results[1] = threadIdx.x;
}

KERNEL counter_bad() {
  results[2] += 1;                           // race
}
KERNEL counter_good() {
  atomicAdd(&results[2], 1);
}

KERNEL atomic_and_plain_bad() {
  atomicAdd(&results[3], 1);                 // race
  if (threadIdx.x == 0) results[4] = results[3];  // race
}
KERNEL atomic_and_plain_good() {
  atomicAdd(&results[3], 1);
  __syncthreads();
  if (threadIdx.x == 0) results[4] = results[3];
}

KERNEL bytes_bad() {
  unsigned char *bytes = reinterpret_cast<unsigned char *>(cells);
  bytes[threadIdx.x / 2] = 1;                // race
}
KERNEL bytes_good() {
  unsigned char *bytes = reinterpret_cast<unsigned char *>(cells);
  bytes[threadIdx.x] = 1;
}

KERNEL overlapping_copies_bad() {
  char *bytes = reinterpret_cast<char *>(cells);
  const size_t n = 24 + (blockDim.x & 1);
  memset(bytes + 20 * threadIdx.x, 7, n);    // race
}
KERNEL overlapping_copies_good() {
  char *bytes = reinterpret_cast<char *>(cells);
  const size_t n = 20 + (blockDim.x & 1);
  memset(bytes + 20 * threadIdx.x, 7, n);
}

KERNEL dynamic_shared_bad() {
  RUSHMEM_DYNAMIC_SHARED(int, values);
  values[threadIdx.x] = 1;                   // race
  if (threadIdx.x == 7) values[8] = 2;       // race
}
KERNEL dynamic_shared_good() {
  RUSHMEM_DYNAMIC_SHARED(int, values);
  values[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 7) values[8] = 2;
}

// ---- warps ----

KERNEL missing_syncwarp_bad() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;         // race
  cells[threadIdx.x] = values[threadIdx.x ^ 1];  // race
}
KERNEL missing_syncwarp_good() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  __syncwarp();
  cells[threadIdx.x] = values[threadIdx.x ^ 1];
}

KERNEL syncwarp_for_block_bad() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;         // race
  __syncwarp();
  cells[threadIdx.x] = values[threadIdx.x ^ 32];  // race
}
KERNEL syncwarp_for_block_good() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  cells[threadIdx.x] = values[threadIdx.x ^ 32];
}

KERNEL half_a_warp_bad() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;         // race
  __syncwarp(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u);
  cells[threadIdx.x] = values[threadIdx.x ^ 16];  // race
}
KERNEL half_a_warp_good() {
  __shared__ int values[64];
  values[threadIdx.x] = threadIdx.x;
  __syncwarp(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u);
  cells[threadIdx.x] = values[threadIdx.x ^ 8];
}

// ---- blocks ----

KERNEL blocks_same_word_bad() {
  if (threadIdx.x == 0) results[5] = blockIdx.x;  // race
}
KERNEL blocks_same_word_good() {
  if (threadIdx.x == 0) results[5 + blockIdx.x] = blockIdx.x;
}

KERNEL relaxed_flag_bad() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[100] = 42;                         // race
    atomicExch(&flags[0], 1u);
  } else if (blockIdx.x == 1) {
    while (atomicAdd(&flags[0], 0u) == 0) {}
    results[10] = cells[100];                // race
  }
}
KERNEL relaxed_flag_good() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[100] = 42;
    __threadfence();
    atomicExch(&flags[16], 1u);
  } else if (blockIdx.x == 1) {
    while (atomicAdd(&flags[16], 0u) == 0) {}
    __threadfence();
    results[10] = cells[100];
  }
}

KERNEL one_fence_bad() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[101] = 42;                         // race
    __threadfence();
    atomicExch(&flags[1], 1u);
  } else if (blockIdx.x == 1) {
    while (atomicAdd(&flags[1], 0u) == 0) {}
    results[11] = cells[101];                // race
  }
}
KERNEL one_fence_good() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[101] = 42;
    __threadfence();
    atomicExch(&flags[17], 1u);
  } else if (blockIdx.x == 1) {
    while (*(volatile unsigned *)&flags[17] == 0) {}
    __threadfence();
    results[11] = cells[101];
  }
}

KERNEL fence_behind_the_flag_bad() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[102] = 42;                         // race
    *(volatile unsigned *)&flags[2] = 1;
    __threadfence();
  } else if (blockIdx.x == 1) {
    while (*(volatile unsigned *)&flags[2] == 0) __nanosleep(100);
    __threadfence();
    results[12] = cells[102];                // race
  }
}
KERNEL fence_behind_the_flag_good() {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    cells[102] = 42;
    __threadfence();
    *(volatile unsigned *)&flags[18] = 1;
  } else if (blockIdx.x == 1) {
    while (*(volatile unsigned *)&flags[18] == 0) __nanosleep(100);
    __threadfence();
    results[12] = cells[102];
  }
}

KERNEL last_block_bad() {
  __shared__ bool last;
  cells[threadIdx.x + blockDim.x * blockIdx.x] = 1;  // race
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&flags[3], 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) results[13 + threadIdx.x % 2] = cells[threadIdx.x * gridDim.x];  // race
}
KERNEL last_block_good() {
  __shared__ bool last;
  cells[threadIdx.x + blockDim.x * blockIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&flags[19], 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) atomicAdd(&results[13], cells[threadIdx.x * gridDim.x]);
}

// A function of its own, which is named with its caller.
__attribute__((noinline)) __device__ void store(int *at, int value) {
  *at = value;                               // helper
}
KERNEL in_a_function_bad() {
  store(&results[20], threadIdx.x);          // called
}
KERNEL in_a_function_good() {
  if (threadIdx.x < 16) store(&results[20 + 16 * blockIdx.x + threadIdx.x], 1);
}
