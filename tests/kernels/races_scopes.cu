// Fences and atomics between PEs, of scopes that include both or do not. (races.h)
#include <cuda/atomic>

#include "races.h"

static __device__ int *word(uint64_t *flag) { return reinterpret_cast<int *>(flag); }

// ---- between PEs ----

KERNEL device_fence_before_p_bad(ARGS) {
  if (SENDER) {
    p(data + 3, 5, 1);  // race
    __threadfence();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL device_fence_before_p_good(ARGS) {
  if (SENDER) {
    p(data + 3, 5, 1);
    fence();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL device_fence_behind_poll_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    while (*(volatile uint64_t *)flag == 0) __nanosleep(100);
    __threadfence();
    use(data[3]);  // race
  }
}
// The narrower fence is another one's.
KERNEL device_fence_behind_poll_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    while (*(volatile uint64_t *)flag == 0) __nanosleep(100);
    __threadfence_block();
    __threadfence_system();
    use(data[3]);
  }
}

KERNEL acquire_of_device_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    cuda::atomic_ref<uint64_t, cuda::thread_scope_device> word_(*flag);
    while (word_.load(cuda::memory_order_acquire) == 0) {}
    use(data[3]);  // race
  }
}
KERNEL acquire_of_device_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    cuda::atomic_ref<uint64_t, cuda::thread_scope_system> word_(*flag);
    while (word_.load(cuda::memory_order_acquire) == 0) {}
    use(data[3]);
  }
}

// One counts in its own device, the other one from elsewhere.
KERNEL counts_of_two_scopes_bad(ARGS) {
  if (SENDER) atomic_add(word(flag), 1, 1);  // race
  if (RECEIVER) atomicAdd(word(flag), 1);  // race
}
KERNEL counts_of_two_scopes_good(ARGS) {
  if (SENDER) atomic_add(word(flag), 1, 1);
  if (RECEIVER) atomicAdd_system(word(flag), 1);
}

// What was acquired in a narrow scope is handed on in a wide one: causality is transitive.
KERNEL handed_on_by_block_bad(ARGS) {
  if (my_pe() == 0 && threadIdx.x == 0) {
    if (blockIdx.x == 0) {
      p(data + 3, 5, 1);  // race
      __threadfence_block();
      atomicExch_block(word(flag + 1), 1);
    } else {
      while (*(volatile int *)word(flag + 1) == 0) {}
      fence();
      p(flag, 1, 1);
    }
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL handed_on_by_block_good(ARGS) {
  if (my_pe() == 0 && threadIdx.x == 0) {
    if (blockIdx.x == 0) {
      p(data + 3, 5, 1);
      __threadfence();
      atomicExch(word(flag + 1), 1);
    } else {
      while (*(volatile int *)word(flag + 1) == 0) {}
      fence();
      p(flag, 1, 1);
    }
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

// A narrow release that follows a wide one takes nothing back.
KERNEL wide_then_narrow_bad(ARGS) {
  if (SENDER) {
    p(data + 3, 5, 1);
    fence();
    p(data + 4, 6, 1);  // race
    __threadfence();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[4]);  // race
  }
}
KERNEL wide_then_narrow_good(ARGS) {
  if (SENDER) {
    p(data + 3, 5, 1);
    fence();
    p(data + 4, 6, 1);
    __threadfence();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}
