// Programs of two PEs for RUSHMEM_CHECK=1, each with one mistake, and beside it the same program without. PE
// 0 sends, unless both do. `data` and `src` are 1000 symmetric ints, `flag` 16 words, all zero, and each
// program's own; `gone` is memory that was given back, 1000 ints. A launch is one block of 64 threads with
// 256 bytes of dynamic shared memory. Lines with a mistake are marked with its kind. (tests/checked.rs)
#include <rushmem/rushmem.cuh>

using namespace rushmem;

#define KERNEL extern "C" __global__ void
#define ARGS int *data, int *src, uint64_t *flag, int *gone
#define SENDER (threadIdx.x == 0 && my_pe() == 0)
__device__ volatile int sink[64];
static __device__ void use(int value) { sink[threadIdx.x] = value; }
template <typename T> static __device__ T *odd(T *at) {
  return reinterpret_cast<T *>(reinterpret_cast<char *>(at) + sizeof(T) / 2);
}

// ---- bounds ----

KERNEL load_past_the_end_bad(ARGS) {
  if (SENDER) use(data[1000]);  // bounds
}
KERNEL load_past_the_end_good(ARGS) {
  if (SENDER) use(data[999]);
}
KERNEL store_past_the_end_bad(ARGS) {
  if (SENDER) src[1000] = 1;  // bounds
}
KERNEL store_past_the_end_good(ARGS) {
  if (SENDER) src[999] = 1;
}
KERNEL load_before_the_beginning_bad(ARGS) {
  if (SENDER) use(data[-1]);  // bounds
}
KERNEL load_before_the_beginning_good(ARGS) {
  if (SENDER) use(data[0]);
}
KERNEL byte_past_the_end_bad(ARGS) {
  if (SENDER) reinterpret_cast<char *>(data)[4000] = 1;  // bounds
}
KERNEL byte_past_the_end_good(ARGS) {
  if (SENDER) reinterpret_cast<char *>(data)[3999] = 1;
}
KERNEL atomic_past_the_end_bad(ARGS) {
  if (SENDER) atomicAdd(data + 1000, 1);  // bounds
}
KERNEL atomic_past_the_end_good(ARGS) {
  if (SENDER) atomicAdd(data + 999, 1);
}
KERNEL put_too_long_bad(ARGS) {
  if (SENDER) put(data + 990, src, 11, 1);  // bounds
}
KERNEL put_too_long_good(ARGS) {
  if (SENDER) put(data + 990, src, 10, 1);
}
KERNEL put_of_too_long_a_source_bad(ARGS) {
  if (SENDER) put(data, src + 990, 11, 1);  // bounds
}
KERNEL put_of_too_long_a_source_good(ARGS) {
  if (SENDER) put(data, src + 990, 10, 1);
}
KERNEL get_too_long_bad(ARGS) {
  if (SENDER) get(src, data + 500, 501, 1);  // bounds
}
KERNEL get_too_long_good(ARGS) {
  if (SENDER) get(src, data + 500, 500, 1);
}
KERNEL get_into_too_little_bad(ARGS) {
  if (SENDER) get(src + 500, data, 501, 1);  // bounds
}
KERNEL get_into_too_little_good(ARGS) {
  if (SENDER) get(src + 500, data, 500, 1);
}
KERNEL p_past_the_end_bad(ARGS) {
  if (SENDER) p(data + 1000, 1, 1);  // bounds
}
KERNEL p_past_the_end_good(ARGS) {
  if (SENDER) p(data + 999, 1, 1);
}
KERNEL g_past_the_end_bad(ARGS) {
  if (SENDER) use(g(data + 1001, 1));  // bounds
}
KERNEL g_past_the_end_good(ARGS) {
  if (SENDER) use(g(data + 998, 1));
}
KERNEL remote_atomic_past_the_end_bad(ARGS) {
  if (SENDER) atomic_add(data + 1000, 1, 1);  // bounds
}
KERNEL remote_atomic_past_the_end_good(ARGS) {
  if (SENDER) atomic_add(data + 999, 1, 1);
}
KERNEL fetch_past_the_end_bad(ARGS) {
  if (SENDER) use(atomic_fetch(data + 1000, 1));  // bounds
}
KERNEL fetch_past_the_end_good(ARGS) {
  if (SENDER) use(atomic_fetch(data + 999, 1));
}
KERNEL signal_past_the_end_bad(ARGS) {
  if (SENDER) signal_op(flag + 16, 1, signal::add, 1);  // bounds
}
KERNEL signal_past_the_end_good(ARGS) {
  if (SENDER) signal_op(flag + 15, 1, signal::add, 1);
}
KERNEL put_signal_too_long_bad(ARGS) {
  if (SENDER) put_signal(data + 900, src, 101, flag, 1, signal::set, 1);  // bounds
}
KERNEL put_signal_too_long_good(ARGS) {
  if (SENDER) put_signal(data + 900, src, 100, flag, 1, signal::set, 1);
}
KERNEL test_past_the_end_bad(ARGS) {
  if (SENDER) use(test(flag + 17, cmp::eq, 7));  // bounds
}
KERNEL test_past_the_end_good(ARGS) {
  if (SENDER) use(test(flag + 15, cmp::eq, 7));
}
KERNEL wait_past_the_end_bad(ARGS) {
  if (SENDER) wait_until(flag + 16, cmp::ne, 77);  // bounds
}
KERNEL wait_past_the_end_good(ARGS) {
  if (SENDER) wait_until(flag + 15, cmp::ne, 77);
}
KERNEL strided_put_too_far_bad(ARGS) {
  if (SENDER) iput(data + 1, src, 333, 1, 4, 1);  // bounds
}
KERNEL strided_put_too_far_good(ARGS) {
  if (SENDER) iput(data, src, 333, 1, 4, 1);
}

KERNEL block_puts_too_much_bad(ARGS) { put<block>(data, src, 1001, 1 - my_pe()); }  // bounds
KERNEL block_puts_too_much_good(ARGS) { put<block>(data, src, 1000, 1 - my_pe()); }

KERNEL broadcast_of_too_much_bad(ARGS) { broadcast<block>(world(), data, src, 1001, 0); }  // bounds
KERNEL broadcast_of_too_much_good(ARGS) { broadcast<block>(world(), data, src, 1000, 0); }

KERNEL reduce_past_the_end_bad(ARGS) { reduce<block>(world(), data + 999, src, 2, sum{}); }  // bounds
KERNEL reduce_past_the_end_good(ARGS) { reduce<block>(world(), data + 998, src, 2, sum{}); }

KERNEL loop_by_threads_too_long_bad(ARGS) {
  for (int i = threadIdx.x; i < 1024; i += 64) data[i] = i;  // bounds
}
KERNEL loop_by_threads_too_long_good(ARGS) {
  for (int i = threadIdx.x; i < 1000; i += 64) data[i] = i;
}

// ---- shared memory ----

KERNEL shared_past_the_end_bad(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  room[threadIdx.x + 1] = 1;  // bounds
}
KERNEL shared_past_the_end_good(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  room[threadIdx.x] = 1;
}

KERNEL shared_before_the_beginning_bad(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  room[static_cast<int>(threadIdx.x) - 1] = 1;  // bounds
}
KERNEL shared_before_the_beginning_good(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  room[63 - static_cast<int>(threadIdx.x)] = 1;
}

__device__ int table[16], table_behind[16];
// `flag` is zero, which compilers do not know.
KERNEL static_shared_past_the_end_bad(ARGS) {
  __shared__ int counts[64], others[64];
  counts[threadIdx.x] = others[threadIdx.x] = 1;
  __syncthreads();
  if (SENDER) use(counts[64 + flag[0]]);  // bounds
  use(others[threadIdx.x]);
}
KERNEL static_shared_past_the_end_good(ARGS) {
  __shared__ int counts[64], others[64];
  counts[threadIdx.x] = others[threadIdx.x] = 1;
  __syncthreads();
  if (SENDER) use(counts[63 + flag[0]]);
  use(others[threadIdx.x]);
}
KERNEL static_shared_before_the_beginning_bad(ARGS) {
  __shared__ int counts[64], others[64];
  counts[threadIdx.x] = others[threadIdx.x] = 1;
  if (SENDER) counts[flag[0] - 1] = 3;  // bounds
  if (SENDER) others[flag[0]] = 3;
  __syncthreads();
  use(counts[threadIdx.x] + others[threadIdx.x]);
}
KERNEL static_shared_before_the_beginning_good(ARGS) {
  __shared__ int counts[64], others[64];
  counts[threadIdx.x] = others[threadIdx.x] = 1;
  if (SENDER) counts[flag[0]] = 3;
  if (SENDER) others[flag[0]] = 3;
  __syncthreads();
  use(counts[threadIdx.x] + others[threadIdx.x]);
}
KERNEL static_shared_row_past_the_end_bad(ARGS) {
  __shared__ int rows[8][8];
  rows[threadIdx.x / 8][threadIdx.x % 8] = 1;
  if (SENDER) rows[8 + flag[0]][0] = 3;  // bounds
  __syncthreads();
  use(rows[threadIdx.x % 8][threadIdx.x / 8]);
}
KERNEL static_shared_row_past_the_end_good(ARGS) {
  __shared__ int rows[8][8];
  rows[threadIdx.x / 8][threadIdx.x % 8] = 1;
  if (SENDER) rows[7 + flag[0]][0] = 3;
  __syncthreads();
  use(rows[threadIdx.x % 8][threadIdx.x / 8]);
}
KERNEL device_variable_past_the_end_bad(ARGS) {
  if (SENDER) table[16 + flag[0]] = 1;  // bounds
  if (SENDER) table_behind[flag[0]] = 1;
}
KERNEL device_variable_past_the_end_good(ARGS) {
  if (SENDER) table[15 + flag[0]] = 1;
  if (SENDER) table_behind[flag[0]] = 1;
}
__constant__ int constants[16] = {1}, constants_behind[16] = {2};
KERNEL constant_past_the_end_bad(ARGS) {
  if (SENDER) use(constants[16 + flag[0]] + constants_behind[flag[0]]);  // bounds
}
KERNEL constant_past_the_end_good(ARGS) {
  if (SENDER) use(constants[15 + flag[0]] + constants_behind[flag[0]]);
}
KERNEL constant_before_the_beginning_bad(ARGS) {
  if (SENDER) use(constants_behind[flag[0] - 1]);  // bounds
}
KERNEL constant_before_the_beginning_good(ARGS) {
  if (SENDER) use(constants_behind[flag[0]]);
}

KERNEL shared_never_written_bad(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  if (threadIdx.x < 32) room[threadIdx.x] = 1;
  __syncthreads();
  use(room[threadIdx.x]);  // unwritten
}
KERNEL shared_never_written_good(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  if (threadIdx.x < 32) room[threadIdx.x] = 1;
  __syncthreads();
  use(room[threadIdx.x % 32]);
}

KERNEL static_never_written_bad(ARGS) {
  __shared__ int counts[64];
  atomicAdd(counts + threadIdx.x, 1);  // unwritten
}
KERNEL static_never_written_good(ARGS) {
  __shared__ int counts[64];
  counts[threadIdx.x] = 0;
  atomicAdd(counts + threadIdx.x, 1);
}

KERNEL put_of_what_was_never_written_bad(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  if (SENDER) put(data, room, 4, 1);  // unwritten
}
KERNEL put_of_what_was_never_written_good(ARGS) {
  RUSHMEM_DYNAMIC_SHARED(int, room);
  if (SENDER) {
    get(room, src, 4, 1);
    put(data, room, 4, 1);
  }
}

// ---- freed memory ----

KERNEL load_after_free_bad(ARGS) {
  if (SENDER) use(gone[5]);  // freed
}
KERNEL load_after_free_good(ARGS) {
  if (SENDER) use(data[5]);
}
KERNEL store_after_free_bad(ARGS) {
  if (SENDER) gone[5] = 1;  // freed
}
KERNEL store_after_free_good(ARGS) {
  if (SENDER) data[5] = 1;
}
KERNEL put_after_free_bad(ARGS) {
  if (SENDER) put(gone, src, 8, 1);  // freed
}
KERNEL put_after_free_good(ARGS) {
  if (SENDER) put(data, src, 8, 1);
}
KERNEL get_after_free_bad(ARGS) {
  if (SENDER) get(src, gone, 8, 1);  // freed
}
KERNEL get_after_free_good(ARGS) {
  if (SENDER) get(src, data, 8, 1);
}
KERNEL atomic_after_free_bad(ARGS) {
  if (SENDER) atomic_add(gone, 1, 1);  // freed
}
KERNEL atomic_after_free_good(ARGS) {
  if (SENDER) atomic_add(data, 1, 1);
}

// ---- alignment ----

KERNEL atomic_on_half_a_word_bad(ARGS) {
  if (SENDER) atomicAdd(odd(data), 1);  // misaligned
}
KERNEL atomic_on_half_a_word_good(ARGS) {
  if (SENDER) atomicAdd(data, 1);
}
KERNEL remote_atomic_on_half_a_word_bad(ARGS) {
  if (SENDER) atomic_add(odd(data), 1, 1);  // misaligned
}
KERNEL remote_atomic_on_half_a_word_good(ARGS) {
  if (SENDER) atomic_add(data, 1, 1);
}
KERNEL signal_on_half_a_word_bad(ARGS) {
  if (SENDER) signal_op(odd(flag), 1, signal::add, 1);  // misaligned
}
KERNEL signal_on_half_a_word_good(ARGS) {
  if (SENDER) signal_op(flag, 1, signal::add, 1);
}
KERNEL wait_for_half_a_word_bad(ARGS) {
  if (SENDER) signal_wait_until(odd(flag), cmp::ne, 77);  // misaligned
}
KERNEL wait_for_half_a_word_good(ARGS) {
  if (SENDER) signal_wait_until(flag, cmp::ne, 77);
}

// ---- scopes ----

KERNEL two_barriers_for_one_bad(ARGS) {
  if (threadIdx.x < 32) {
    __syncthreads();  // scope
  } else {
    __syncthreads();
  }
}
KERNEL two_barriers_for_one_good(ARGS) { __syncthreads(); }

KERNEL barrier_after_exits_bad(ARGS) {
  if (threadIdx.x >= 40) return;
  __syncthreads();  // scope
}
KERNEL barrier_after_exits_good(ARGS) {
  __syncthreads();
  if (threadIdx.x >= 40) return;
}

KERNEL half_a_block_puts_bad(ARGS) {
  if (threadIdx.x >= 32) return;
  put<block>(data, src, 640, 1 - my_pe());  // scope
}
KERNEL half_a_block_puts_good(ARGS) {
  put<block>(data, src, 640, 1 - my_pe());
  if (threadIdx.x >= 32) return;
}

KERNEL shuffle_without_some_bad(ARGS) {
  if (threadIdx.x % 32 >= 16) return;
  use(__shfl_down_sync(0xffffffffu, threadIdx.x, 8));  // scope
}
KERNEL shuffle_without_some_good(ARGS) {
  if (threadIdx.x % 32 >= 16) return;
  use(__shfl_down_sync(0x0000ffffu, threadIdx.x, 8));
}
KERNEL shuffle_from_outside_the_mask_bad(ARGS) {
  if (threadIdx.x < 16) use(__shfl_sync(0x0000ffffu, threadIdx.x, 16));  // lane
}
KERNEL shuffle_from_outside_the_mask_good(ARGS) {
  if (threadIdx.x < 16) use(__shfl_sync(0x0000ffffu, threadIdx.x, 15));
}
// Segments of the width: lane 1 of each is another one.
KERNEL shuffle_within_a_width_bad(ARGS) {
  if (threadIdx.x % 2 == 0) use(__shfl_sync(0x55555555u, threadIdx.x, 1, 8));  // lane
}
KERNEL shuffle_within_a_width_good(ARGS) {
  if (threadIdx.x % 2 == 0) use(__shfl_sync(0x55555555u, threadIdx.x, 2, 8));
}
// A reduction's last step asks beyond the mask, for what it does not use.
KERNEL shuffle_from_one_that_has_exited_bad(ARGS) {
  if (threadIdx.x % 32 == 31) return;
  use(__shfl_sync(0x7fffffffu, threadIdx.x, 31));  // lane
}
KERNEL shuffle_from_one_that_has_exited_good(ARGS) {
  if (threadIdx.x % 32 == 31) return;
  const int sum = threadIdx.x + __shfl_down_sync(0x7fffffffu, threadIdx.x, 16);
  use(__shfl_sync(0x7fffffffu, sum, 0));
}

KERNEL ballot_without_some_bad(ARGS) {
  if (threadIdx.x % 32 == 7) return;
  use(__ballot_sync(0xffffffffu, threadIdx.x > 4));  // scope
}
KERNEL ballot_without_some_good(ARGS) {
  use(__ballot_sync(0xffffffffu, threadIdx.x > 4));
  if (threadIdx.x % 32 == 7) return;
}

// ---- buffers of operations that are not complete ----

KERNEL source_changed_before_quiet_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // reused
    src[3] = 1;  // reused
    quiet();
  }
}
KERNEL source_changed_before_quiet_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);
    quiet();
    src[3] = 1;
  }
}

KERNEL nbi_source_filled_and_changed_bad(ARGS) {
  if (SENDER) {
    for (int i = 0; i < 16; ++i) src[i] = i;
    put_nbi(data, src, 16, 1);  // reused
    src[3] = 7;  // reused
    quiet();
  }
}
KERNEL nbi_source_filled_and_changed_good(ARGS) {
  if (SENDER) {
    for (int i = 0; i < 16; ++i) src[i] = i;
    put_nbi(data, src, 16, 1);
    quiet();
    src[3] = 7;
  }
}

KERNEL target_read_before_quiet_bad(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);  // reused
    use(src[3]);  // reused
    quiet();
  }
}
KERNEL target_read_before_quiet_good(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);
    quiet();
    use(src[3]);
  }
}

KERNEL source_changed_after_a_fence_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // reused
    fence();
    src[3] = 1;  // reused
    quiet();
  }
}
KERNEL source_changed_after_a_fence_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);
    fence();
    quiet();
    src[3] = 1;
  }
}

// ---- collectives that members call otherwise, which end the launch: each in a job of its own ----

extern "C" __global__ void unequal_size(ARGS) {
  broadcast<block>(world(), data, src, my_pe() == 0 ? 8 : 9, 0);  // unequal
}
extern "C" __global__ void unequal_root(ARGS) {
  broadcast<block>(world(), data, src, 8, my_pe());  // unequal
}
extern "C" __global__ void unequal_operator(ARGS) {
  if (my_pe() == 0) reduce<block>(world(), data, src, 8, sum{});  // unequal
  else reduce<block>(world(), data, src, 8, rushmem::max{});  // unequal
}
extern "C" __global__ void unequal_order(ARGS) {
  if (my_pe() == 0) fcollect<block>(world(), data, src, 8);  // unequal
  else alltoall<block>(world(), data, src, 8);  // unequal
}
extern "C" __global__ void equal_arguments(ARGS) {
  broadcast<block>(world(), data, src, 8, 0);
  broadcast<block>(world(), data, src, 900, 1);
  reduce<block>(world(), data, src, 8, sum{});
  alltoall<block>(world(), data, src, 8);
  fcollect<block>(world(), data, src, 500);
  sync<block>(world());
  barrier<block>(world());
}
