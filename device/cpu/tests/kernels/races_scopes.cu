// As races.cu: fences and atomics among the threads of one GPU, of scopes that include both or do not. All
// are launched as two blocks. (tests/races.rs)
#include <cuda/atomic>
#include <cuda/barrier>

__device__ int cells[4096];
__device__ unsigned flags[256];  // each kernel's own: a launch leaves them set
__device__ int results[64];

#define KERNEL extern "C" __global__ void
#define FIRST (threadIdx.x == 0 && blockIdx.x == 0)
#define SECOND (threadIdx.x == 0 && blockIdx.x == 1)
#define POLLED(flag) (*(volatile unsigned *)(flag))

// ---- blocks ----

KERNEL block_fence_of_the_writer_bad() {
  if (FIRST) {
    cells[0] = 42;  // race
    __threadfence_block();
    POLLED(&flags[0]) = 1;
  } else if (SECOND) {
    while (POLLED(&flags[0]) == 0) {}
    __threadfence();
    results[0] = cells[0];  // race
  }
}
KERNEL block_fence_of_the_writer_good() {
  if (FIRST) {
    cells[0] = 42;
    __threadfence();
    __threadfence_block();
    POLLED(&flags[1]) = 1;
  } else if (SECOND) {
    while (POLLED(&flags[1]) == 0) {}
    __threadfence_system();
    results[0] = cells[0];
  }
}

KERNEL block_fence_of_the_reader_bad() {
  if (FIRST) {
    cells[1] = 42;  // race
    __threadfence();
    POLLED(&flags[2]) = 1;
  } else if (SECOND) {
    while (POLLED(&flags[2]) == 0) {}
    __threadfence_block();
    results[1] = cells[1];  // race
  }
}
KERNEL block_fence_of_the_reader_good() {
  if (FIRST) {
    cells[1] = 42;
    __threadfence_system();
    POLLED(&flags[3]) = 1;
  } else if (SECOND) {
    while (POLLED(&flags[3]) == 0) {}
    __threadfence();
    results[1] = cells[1];
  }
}

// Within a block its scope is enough.
KERNEL block_scope_in_a_block_bad() {
  if (FIRST) {
    cells[2] = 42;  // race
    atomicExch_block(&flags[4], 1u);
    __threadfence_block();
  } else if (threadIdx.x == 32 && blockIdx.x == 0) {
    while (atomicAdd_block(&flags[4], 0u) == 0) {}
    __threadfence_block();
    results[2] = cells[2];  // race
  }
}
KERNEL block_scope_in_a_block_good() {
  if (FIRST) {
    cells[2] = 42;
    __threadfence_block();
    atomicExch_block(&flags[5], 1u);
  } else if (threadIdx.x == 32 && blockIdx.x == 0) {
    while (atomicAdd_block(&flags[5], 0u) == 0) {}
    __threadfence_block();
    results[2] = cells[2];
  }
}

KERNEL block_atomics_of_two_blocks_bad() {
  if (threadIdx.x == 0) atomicAdd_block(&flags[6], 1u);  // race
}
KERNEL block_atomics_of_two_blocks_good() {
  if (threadIdx.x == 0) atomicAdd(&flags[7], 1u);
  atomicAdd_block(&flags[8 + blockIdx.x], 1u);
}

KERNEL one_side_is_block_bad() {
  if (FIRST) atomicAdd(&flags[10], 1u);  // race
  if (SECOND) atomicMax_block(&flags[10], 7u);  // race
}
KERNEL one_side_is_block_good() {
  if (FIRST) atomicAdd(&flags[11], 1u);
  if (SECOND) atomicMax_system(&flags[11], 7u);
}

KERNEL release_of_block_bad() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_block> flag(flags[12]);
  if (FIRST) {
    cells[3] = 42;  // race
    flag.store(1, cuda::memory_order_release);
  } else if (SECOND) {
    while (POLLED(&flags[12]) == 0) {}
    __threadfence();
    results[3] = cells[3];  // race
  }
}
KERNEL release_of_block_good() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(flags[13]);
  if (FIRST) {
    cells[3] = 42;
    flag.store(1, cuda::memory_order_release);
  } else if (SECOND) {
    while (flag.load(cuda::memory_order_acquire) == 0) {}
    results[3] = cells[3];
  }
}

KERNEL fence_function_of_block_bad() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(flags[14]);
  if (FIRST) {
    cells[4] = 42;  // race
    cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_block);
    flag.store(1, cuda::memory_order_relaxed);
  } else if (SECOND) {
    while (flag.load(cuda::memory_order_acquire) == 0) {}
    results[4] = cells[4];  // race
  }
}
KERNEL fence_function_of_block_good() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(flags[15]);
  if (FIRST) {
    cells[4] = 42;
    cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_device);
    flag.store(1, cuda::memory_order_relaxed);
  } else if (SECOND) {
    while (flag.load(cuda::memory_order_acquire) == 0) {}
    results[4] = cells[4];
  }
}

// A lock in block scope, taken by threads of one block and by another block's.
KERNEL lock_of_block_bad() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_block> lock(flags[16]);
  if (threadIdx.x != 0) return;
  while (lock.exchange(1, cuda::memory_order_acquire) != 0) {}
  cells[5] += 1;  // race
  lock.store(0, cuda::memory_order_release);
}
KERNEL lock_of_block_good() {
  cuda::atomic_ref<unsigned, cuda::thread_scope_block> lock(flags[17 + blockIdx.x]);
  if (threadIdx.x % 32 != 0) return;
  while (lock.exchange(1, cuda::memory_order_acquire) != 0) {}
  cells[5 + blockIdx.x] += 1;
  lock.store(0, cuda::memory_order_release);
}

// Counts of all threads, each block's own by a narrow scope, and the last block's sum.
KERNEL last_block_of_two_scopes_bad() {
  __shared__ bool last;
  cells[64 + threadIdx.x + blockDim.x * blockIdx.x] = 1;  // race
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_block();
    last = atomicAdd(&flags[19], 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) atomicAdd(&results[5], cells[64 + threadIdx.x * gridDim.x]);  // race
}
KERNEL last_block_of_two_scopes_good() {
  __shared__ bool last;
  cells[64 + threadIdx.x + blockDim.x * blockIdx.x] = 1;
  __threadfence_block();
  atomicAdd_block(&flags[32 + blockIdx.x], 1u);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&flags[20], 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) atomicAdd(&results[5], cells[64 + threadIdx.x * gridDim.x]);
}

// A barrier of block scope in memory that both blocks have.
__device__ uint64_t room[8];
KERNEL barrier_of_block_bad() {
  auto *meet = reinterpret_cast<cuda::barrier<cuda::thread_scope_block> *>(room);
  if (FIRST) {
    init(meet, 2);
    cells[6] = 42;  // race
    __threadfence();
    POLLED(&flags[21]) = 1;
    meet->arrive_and_wait();
  } else if (SECOND) {
    while (POLLED(&flags[21]) == 0) {}
    meet->arrive_and_wait();
    results[6] = cells[6];  // race
  }
}
KERNEL barrier_of_block_good() {
  auto *meet = reinterpret_cast<cuda::barrier<cuda::thread_scope_device> *>(room + 4);
  if (FIRST) {
    init(meet, 2);
    __threadfence();
    POLLED(&flags[22]) = 1;
    cells[6] = 42;
    meet->arrive_and_wait();
  } else if (SECOND) {
    while (POLLED(&flags[22]) == 0) {}
    __threadfence();
    meet->arrive_and_wait();
    results[6] = cells[6];
  }
}
