// Several threads of a PE, barriers, collectives, and kernels for the host's programs. (races.h)
#include <cooperative_groups.h>

#include "races.h"

// ---- threads of the sender and the receiver ----

KERNEL unready_source_bad(ARGS) {
  if (my_pe() == 0) {
    src[threadIdx.x] = threadIdx.x;  // race
    if (threadIdx.x == 0) put_signal(data, src, 64, flag, 1, signal::set, 1);  // race
  }
}
KERNEL unready_source_good(ARGS) {
  if (my_pe() == 0) {
    src[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) put_signal(data, src, 64, flag, 1, signal::set, 1);
  }
}

KERNEL one_waits_for_all_bad(ARGS) {
  if (my_pe() == 0) {
    put_signal<block>(data, src, 64, flag, 1, signal::set, 1);  // race
  } else {
    if (threadIdx.x == 0) signal_wait_until(flag, cmp::eq, 1);
    use(data[threadIdx.x]);  // race
  }
}
KERNEL one_waits_for_all_good(ARGS) {
  if (my_pe() == 0) {
    put_signal<block>(data, src, 64, flag, 1, signal::set, 1);
  } else {
    if (threadIdx.x == 0) signal_wait_until(flag, cmp::eq, 1);
    __syncthreads();
    use(data[threadIdx.x]);
  }
}

KERNEL one_fences_for_all_bad(ARGS) {
  if (my_pe() == 0) {
    put_nbi<block>(data, src, 640, 1);  // race
    if (threadIdx.x == 0) {
      fence();
      signal_op(flag, 1, signal::set, 1);
    }
    quiet();
  } else {
    if (threadIdx.x == 0) signal_wait_until(flag, cmp::eq, 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 640; i += blockDim.x) use(data[i]);  // race
  }
}
KERNEL one_fences_for_all_good(ARGS) {
  if (my_pe() == 0) {
    put_nbi<block>(data, src, 640, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      fence();
      signal_op(flag, 1, signal::set, 1);
    }
    quiet();
  } else {
    if (threadIdx.x == 0) signal_wait_until(flag, cmp::eq, 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 640; i += blockDim.x) use(data[i]);
  }
}

KERNEL other_lane_signals_bad(ARGS) {
  if (my_pe() == 0) {
    if (threadIdx.x == 1) put(data, src, 16, 1);  // race
    if (threadIdx.x == 0) {
      fence();
      signal_op(flag, 1, signal::set, 1);
    }
  } else if (threadIdx.x == 0) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL other_lane_signals_good(ARGS) {
  if (my_pe() == 0) {
    if (threadIdx.x == 1) put(data, src, 16, 1);
    __syncwarp();
    if (threadIdx.x == 0) {
      fence();
      signal_op(flag, 1, signal::set, 1);
    }
  } else if (threadIdx.x == 0) {
    signal_wait_until(flag, cmp::eq, 1);
    use(data[3]);
  }
}

KERNEL other_block_reads_bad(ARGS) {
  if (SENDER) put_signal(data, src, 16, flag, 1, signal::set, 1);  // race
  if (my_pe() != 1 || threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    signal_wait_until(flag, cmp::eq, 1);
    atomic_set(flag + 1, 1, 1);
  } else {
    wait_until(flag + 1, cmp::eq, 1);
    use(data[3]);  // race
  }
}
KERNEL other_block_reads_good(ARGS) {
  if (SENDER) put_signal(data, src, 16, flag, 1, signal::set, 1);
  if (my_pe() != 1 || threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    signal_wait_until(flag, cmp::eq, 1);
    fence();
    atomic_set(flag + 1, 1, 1);
  } else {
    wait_until(flag + 1, cmp::eq, 1);
    use(data[3]);
  }
}

// ---- barriers ----

KERNEL missing_barrier_bad(ARGS) {
  if (SENDER || RECEIVER) {
    put(data, src, 16, 1 - my_pe());  // race
    use(data[3]);  // race
  }
}
KERNEL missing_barrier_good(ARGS) {
  if (SENDER || RECEIVER) {
    put(data, src, 16, 1 - my_pe());
    barrier_all();
    use(data[3]);
  }
}

KERNEL barrier_too_early_bad(ARGS) {
  if (SENDER || RECEIVER) {
    barrier_all();
    put(data, src, 16, 1 - my_pe());  // race
    use(data[3]);  // race
  }
}
KERNEL barrier_too_early_good(ARGS) {
  if (SENDER || RECEIVER) {
    barrier_all();
    put(data, src, 16, 1 - my_pe());
    barrier_all();
    use(data[3]);
  }
}

KERNEL next_round_bad(ARGS) {
  for (int round = 0; round < 2; ++round) {
    put<block>(data, src, 64, 1 - my_pe());  // race
    barrier_all<block>();
    if (threadIdx.x == 0) {
      use(data[3]);  // race
      // As it may happen: the other one has read when this one goes on.
      atomic_set(flag, round + 1, 1 - my_pe());
      while (atomic_fetch(flag, my_pe()) < static_cast<uint64_t>(round + 1)) {}
    }
  }
  barrier_all<block>();
}
KERNEL next_round_good(ARGS) {
  for (int round = 0; round < 2; ++round) {
    put<block>(data, src, 64, 1 - my_pe());
    barrier_all<block>();
    use(data[threadIdx.x]);
    barrier_all<block>();
  }
}

KERNEL double_writer_bad(ARGS) {
  if (SENDER || RECEIVER) put(data, src, 16, 0);  // race
  barrier_all<block>();
}
KERNEL double_writer_good(ARGS) {
  if (SENDER || RECEIVER) put(data + 16 * my_pe(), src, 16, 0);
  barrier_all<block>();
}

KERNEL atomic_and_load_bad(ARGS) {
  if (FIRST) atomic_add(data, 1, 0);  // race
  if (SENDER) use(data[0]);  // race
}
KERNEL atomic_and_load_good(ARGS) {
  if (FIRST) atomic_add(data, 1, 0);
  if (SENDER) use(atomic_fetch(data, 0));
}

KERNEL lock_without_fences_bad(ARGS) {
  if (!FIRST) return;
  while (atomic_compare_swap(flag, 0, 1, 0) != 0) {}
  int value;
  get(&value, data, 1, 0);  // race
  ++value;
  put(data, &value, 1, 0);  // race
  atomic_set(flag, 0, 0);
}
KERNEL lock_without_fences_good(ARGS) {
  if (!FIRST) return;
  while (atomic_compare_swap(flag, 0, 1, 0) != 0) {}
  quiet();
  int value;
  get(&value, data, 1, 0);
  ++value;
  put(data, &value, 1, 0);
  quiet();
  atomic_set(flag, 0, 0);
}

// ---- blocks of a launch ----

KERNEL blocks_meet_too_early_bad(ARGS) {
  sync_grid();
  if (SECOND) data[0] = 1;  // race
  if (FIRST) use(data[0]);  // race
}
KERNEL blocks_meet_too_early_good(ARGS) {
  if (SECOND) data[0] = 1;
  sync_grid();
  if (FIRST) use(data[0]);
}

KERNEL blocks_meet_once_a_round_bad(ARGS) {
  for (int round = 1; round <= 3; ++round) {
    if (threadIdx.x == 63) data[blockIdx.x] = round;  // race
    sync_grid();
    if (threadIdx.x == 0) use(data[1 - blockIdx.x]);  // race
  }
}
KERNEL blocks_meet_once_a_round_good(ARGS) {
  for (int round = 1; round <= 3; ++round) {
    if (threadIdx.x == 63) data[blockIdx.x] = round;
    sync_grid();
    if (threadIdx.x == 0) use(data[1 - blockIdx.x]);
    sync_grid();
  }
}

KERNEL blocks_sync_alone_bad(ARGS) {
  if (SECOND) data[0] = 1;  // race
  cooperative_groups::this_thread_block().sync();
  if (FIRST) use(data[0]);  // race
}
KERNEL blocks_sync_alone_good(ARGS) {
  if (SECOND) data[0] = 1;
  cooperative_groups::this_grid().sync();
  if (FIRST) use(data[0]);
}

// ---- collectives ----

KERNEL reduce_unready_bad(ARGS) {
  if (my_pe() == 0) put<block>(src, sink, 64, 1);  // race
  reduce<block>(world(), data, src, 64, sum{});  // race
}
KERNEL reduce_unready_good(ARGS) {
  if (my_pe() == 0) put<block>(src, sink, 64, 1);
  barrier_all<block>();
  reduce<block>(world(), data, src, 64, sum{});
}

KERNEL result_of_another_bad(ARGS) {
  fcollect<block>(world(), data, src, 300);  // race
  if (SENDER) get(sink, data, 600, 1);  // race
}
KERNEL result_of_another_good(ARGS) {
  fcollect<block>(world(), data, src, 300);
  barrier_all<block>();
  if (SENDER) get(sink, data, 600, 1);
}

KERNEL broadcast_overwritten_bad(ARGS) {
  broadcast<block>(world(), data, src, 64, 0);
  if (SENDER) put(data, src + 64, 64, 1);  // race
  if (my_pe() == 1) use(data[threadIdx.x]);  // race
}
KERNEL broadcast_overwritten_good(ARGS) {
  broadcast<block>(world(), data, src, 64, 0);
  if (my_pe() == 1) use(data[threadIdx.x]);
  barrier_all<block>();
  if (SENDER) put(data, src + 64, 64, 1);
}

// ---- for the host's programs ----

KERNEL reads(ARGS) { use(data[threadIdx.x]); }  // reads
KERNEL writes(ARGS) { data[threadIdx.x] = 1; }  // writes
KERNEL writes_behind(ARGS) { data[threadIdx.x] = 1; }  // writes behind
KERNEL sends(ARGS) { put<block>(data, src, 64, 1 - my_pe()); }  // sends
KERNEL touches_nothing(ARGS) {}
KERNEL writes_early(ARGS) {
  data[threadIdx.x] = 1;  // writes early
  await_stream();
}
KERNEL waits_and_writes(ARGS) {
  await_stream();
  data[threadIdx.x] = 1;  // waits and writes
}
KERNEL reads_early(ARGS) {
  const int seen = data[threadIdx.x];  // reads early
  await_stream();
  use(seen);
}
KERNEL waits_and_reads(ARGS) {
  await_stream();
  use(data[threadIdx.x]);
}
KERNEL one_waits(ARGS) {
  if (threadIdx.x == 0) await_stream();
  data[threadIdx.x] = 1;  // writes behind one
}
KERNEL one_waits_for_all(ARGS) {
  if (threadIdx.x == 0) await_stream();
  __syncthreads();
  data[threadIdx.x] = 1;
}
KERNEL meets(ARGS) {
  if (SECOND) data[0] = 1;  // is written
  sync_grid();
  if (FIRST) use(data[0]);
}
KERNEL puts_first(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // puts first
    quiet();
  }
}
KERNEL tells(ARGS) {
  if (SENDER) put_packed(SLOT, 5, 1, 1);
}
KERNEL puts_and_tells(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // puts and tells
    put_packed(SLOT, 5, 1, 1);
  }
}
KERNEL hears(ARGS) {
  if (RECEIVER) use(wait_packed(SLOT, 1));
}
KERNEL takes(ARGS) {
  if (RECEIVER) use(data[3]);  // takes
}
KERNEL hears_and_takes(ARGS) {
  if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    use(data[3]);  // hears and takes
  }
}
