// Programs of two PEs, each with one mistake in its order, and beside it the same program without. PE 0
// sends, PE 1 receives, unless it says otherwise. `data`, `src` and `flag` are symmetric, 1024 ints, 1024
// ints and 16 words, zero, and each program's own. Lines whose accesses race are marked. (tests/races.rs)
#include <rushmem/rushmem.cuh>

using namespace rushmem;

#define KERNEL extern "C" __global__ void
#define ARGS int *data, int *src, uint64_t *flag
#define FIRST (threadIdx.x == 0 && blockIdx.x == 0)
#define SENDER (FIRST && my_pe() == 0)
#define RECEIVER (FIRST && my_pe() == 1)
__device__ int sink[4096];
static __device__ void use(int value) { sink[threadIdx.x + 64 * blockIdx.x] = value; }

// ---- signals, fences ----

KERNEL signal_before_data_bad(ARGS) {
  if (SENDER) {
    signal_op(flag, 1, signal::set, 1);
    put(data, src, 16, 1);  // race
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL signal_before_data_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL missing_fence_bad(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // race
    signal_op(flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL missing_fence_good(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);
    fence();
    signal_op(flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL fence_too_early_bad(ARGS) {
  if (SENDER) {
    fence();
    put(data, src, 16, 1);  // race
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL fence_too_early_good(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);
    fence();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL p_and_flag_bad(ARGS) {
  if (SENDER) {
    p(data, 5, 1);  // race
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[0]);  // race
  }
}
KERNEL p_and_flag_good(ARGS) {
  if (SENDER) {
    p(data, 5, 1);
    quiet();
    p(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::eq, 1);
    use(data[0]);
  }
}

KERNEL relaxed_atomic_bad(ARGS) {
  if (SENDER) {
    put(data, src, 4, 1);  // race
    atomic_add(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::ge, 1);
    use(data[2]);  // race
  }
}
KERNEL relaxed_atomic_good(ARGS) {
  if (SENDER) {
    put(data, src, 4, 1);
    fence();
    atomic_add(flag, 1, 1);
  } else if (RECEIVER) {
    wait_until(flag, cmp::ge, 1);
    use(data[2]);
  }
}

KERNEL no_wait_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    use(data[3]);  // race
  }
}
KERNEL no_wait_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL wrong_signal_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
    signal_op(flag + 1, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag + 1, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL wrong_signal_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
    signal_op(flag + 1, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL signal_reused_bad(ARGS) {
  for (uint64_t round = 1; round <= 2; ++round) {
    if (SENDER) {
      put_signal(data, src, 16, flag, round, signal::set, 1);  // race
      while (atomic_fetch(flag + 1, 0) < round) {}
    } else if (RECEIVER) {
      signal_wait_until(flag, cmp::ge, round);
      use(data[3]);  // race
      atomic_set(flag + 1, round, 0);
    }
  }
}
KERNEL signal_reused_good(ARGS) {
  for (uint64_t round = 1; round <= 2; ++round) {
    if (SENDER) {
      put_signal(data, src, 16, flag, round, signal::set, 1);
      signal_wait_until(flag + 1, cmp::ge, round);
    } else if (RECEIVER) {
      signal_wait_until(flag, cmp::ge, round);
      use(data[3]);
      fence();
      signal_op(flag + 1, round, signal::set, 0);
    }
  }
}

KERNEL relaxed_poll_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    while (atomic_fetch(flag, 1) == 0) {}
    use(data[3]);  // race
  }
}
KERNEL relaxed_poll_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    while (!test(flag, cmp::eq, 1)) {}
    use(data[3]);
  }
}

KERNEL volatile_poll_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    while (*(volatile uint64_t *)flag == 0) __nanosleep(100);
    use(data[3]);  // race
  }
}
KERNEL volatile_poll_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    while (*(volatile uint64_t *)flag == 0) __nanosleep(100);
    __threadfence_system();
    use(data[3]);
  }
}

KERNEL any_for_all_bad(ARGS) {
  if (SENDER) {
    for (int i = 0; i < 2; ++i) {
      while (i == 1 && atomic_fetch(flag + 2, 0) == 0) {}
      put_signal(data + 16 * i, src, 16, flag + i, 1, signal::set, 1);  // race
    }
  } else if (RECEIVER) {
    wait_until_any(flag, 2, nullptr, cmp::eq, 1);
    use(data[3] + data[19]);  // race
    atomic_set(flag + 2, 1, 0);
  }
}
KERNEL any_for_all_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
    put_signal(data + 16, src, 16, flag + 1, 1, signal::set, 1);
  } else if (RECEIVER) {
    wait_until_all(flag, 2, nullptr, cmp::eq, 1);
    use(data[3] + data[19]);
  }
}

KERNEL second_of_two_bad(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
    put_signal(data + 16, src, 16, flag + 1, 1, signal::set, 1);  // race
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[19]);  // race
  }
}
KERNEL second_of_two_good(ARGS) {
  if (SENDER) {
    put_signal(data, src, 16, flag, 1, signal::set, 1);
    put_signal(data + 16, src, 16, flag + 1, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag + 1, cmp::eq, 1);
    use(data[19]);
  }
}

KERNEL strided_bad(ARGS) {
  if (SENDER) {
    iput(data, src, 2, 1, 8, 1);  // race
    signal_op(flag, 1, signal::add, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::ge, 1);
    use(data[4]);  // race
  }
}
KERNEL strided_good(ARGS) {
  if (SENDER) {
    iput_signal(data, src, 2, 1, 8, flag, 1, signal::add, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::ge, 1);
    use(data[4]);
  }
}

KERNEL store_through_ptr_bad(ARGS) {
  if (SENDER) {
    if (int *there = ptr(data, 1)) *there = 5;  // race
    else put(data, src, 1, 1);                  // otherwise
    signal_op(flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[0]);  // race
  }
}
KERNEL store_through_ptr_good(ARGS) {
  if (SENDER) {
    if (int *there = ptr(data, 1)) *there = 5;
    else put(data, src, 1, 1);
    fence();
    signal_op(flag, 1, signal::set, 1);
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[0]);
  }
}

// ---- nbi ----

KERNEL nbi_source_changed_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // race
    src[0] = 7;  // race
    quiet();
  }
}
KERNEL nbi_source_changed_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);
    quiet();
    src[0] = 7;
  }
}

KERNEL nbi_source_filled_and_changed_bad(ARGS) {
  if (SENDER) {
    for (int i = 0; i < 16; ++i) src[i] = i;
    put_nbi(data, src, 16, 1);  // race
    src[3] = 7;  // race
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

KERNEL nbi_source_and_fence_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // race
    fence();
    src[0] = 7;  // race
    quiet();
  }
}
KERNEL nbi_source_and_fence_good(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);
    fence();
    src[0] = 7;
    quiet();
  }
}

KERNEL get_nbi_read_bad(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);  // race
    use(src[0]);  // race
    quiet();
  }
}
KERNEL get_nbi_read_good(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);
    quiet();
    use(src[0]);
  }
}

KERNEL nbi_and_sync_bad(ARGS) {
  if (SENDER) put_nbi(data, src, 16, 1);  // race
  if (FIRST) sync_all();
  if (RECEIVER) use(data[3]);  // race
  if (FIRST) quiet();
}
KERNEL nbi_and_sync_good(ARGS) {
  if (SENDER) put_nbi(data, src, 16, 1);
  if (FIRST) barrier_all();
  if (RECEIVER) use(data[3]);
}

KERNEL nbi_before_signal_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // race
    put_signal(data + 16, src, 16, flag, 1, signal::set, 1);
    quiet();
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL nbi_before_signal_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);
    fence();
    put_signal(data + 16, src, 16, flag, 1, signal::set, 1);
    quiet();
  } else if (RECEIVER) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL put_signal_nbi_source_bad(ARGS) {
  if (SENDER) {
    put_signal_nbi(data, src, 16, flag, 1, signal::set, 1);  // race
    src[1] = 3;  // race
    quiet();
  }
}
KERNEL put_signal_nbi_source_good(ARGS) {
  if (SENDER) {
    put_signal_nbi(data, src, 16, flag, 1, signal::set, 1);
    signal_wait_until(flag + 1, cmp::eq, 0);
    quiet();
    src[1] = 3;
  }
}

// Two nbi operations of one thread on the same bytes have no order.
KERNEL nbi_puts_to_one_place_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);  // race
    put_nbi(data + 8, src + 32, 16, 1);  // race
    quiet();
  }
}
KERNEL nbi_puts_to_one_place_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 16, 1);
    put_nbi(data + 16, src, 16, 1);
    fence();
    put_nbi(data + 8, src + 32, 16, 1);
    quiet();
  }
}

KERNEL nbi_get_passed_on_bad(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);  // race
    put_nbi(data + 64, src, 16, 1);  // race
    quiet();
  }
}
KERNEL nbi_get_passed_on_good(ARGS) {
  if (SENDER) {
    get_nbi(src, data, 16, 1);
    quiet();
    put_nbi(data + 64, src, 16, 1);
    put_nbi(data + 80, src, 16, 1);
    quiet();
  }
}

// Blocking puts to one place are not compared.
KERNEL nbi_puts_by_all_to_one_place_bad(ARGS) {
  if (my_pe() == 0) {
    put_nbi<block>(data, src, 64, 1);  // race
    put_nbi<block>(data, src + 64, 64, 1);  // race
    quiet();
  }
}
KERNEL nbi_puts_by_all_to_one_place_good(ARGS) {
  if (my_pe() == 0) {
    put_nbi<block>(data, src, 64, 1);
    quiet();
    __syncthreads();
    put<block>(data, src + 64, 64, 1);
    put<block>(data, src, 64, 1);
  }
}
