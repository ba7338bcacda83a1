// Operations that are under way when they return. (races.h)
#include "races.h"

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
  }
}

// Nor have two puts to a far PE, which may be on their way when they return.
KERNEL puts_to_one_place_bad(ARGS) {
  if (SENDER) {
    put(data, src, 256, 1);  // race
    put(data + 128, src + 512, 256, 1);  // race
  }
}
KERNEL puts_to_one_place_good(ARGS) {
  if (SENDER) {
    put(data, src, 256, 1);
    put(data + 256, src, 256, 1);
    fence();
    put(data + 128, src + 512, 256, 1);
  }
}

KERNEL put_behind_nbi_put_bad(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 256, 1);  // race
    put(data + 128, src + 512, 256, 1);  // race
    quiet();
  }
}
KERNEL put_behind_nbi_put_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 256, 1);
    fence();
    put(data + 128, src + 512, 256, 1);
    quiet();
  }
}

KERNEL strided_put_over_put_bad(ARGS) {
  if (SENDER) {
    put(data, src, 256, 1);  // race
    iput(data + 1, src + 512, 2, 1, 100, 1);  // race
  }
}
KERNEL strided_put_over_put_good(ARGS) {
  if (SENDER) {
    put(data, src, 256, 1);
    quiet();
    iput(data + 1, src + 512, 2, 1, 100, 1);
  }
}

// A member that has come to a collective call has not completed what it has put.
KERNEL nbi_and_collective_bad(ARGS) {
  if (SENDER) put_nbi(data, src, 256, 1);  // race
  __syncthreads();
  broadcast<block>(world(), data + 512, src + 512, 64, 0);
  if (my_pe() == 1) use(data[threadIdx.x]);  // race
  quiet();
}
KERNEL nbi_and_collective_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 256, 1);
    quiet();
  }
  barrier_all<block>();
  broadcast<block>(world(), data + 512, src + 512, 64, 0);
  if (my_pe() == 1) use(data[threadIdx.x]);
}

// As above, with a call so large that far members send it by puts.
KERNEL nbi_and_large_collective_bad(ARGS) {
  if (SENDER) put_nbi(data, src, 8, 1);  // race
  __syncthreads();
  broadcast<block>(world(), data + 16, src + 16, 1000, 0);
  if (RECEIVER) use(data[3]);  // race
  quiet();
}
KERNEL nbi_and_large_collective_good(ARGS) {
  if (SENDER) {
    put_nbi(data, src, 8, 1);
    quiet();
  }
  barrier_all<block>();
  broadcast<block>(world(), data + 16, src + 16, 1000, 0);
  if (RECEIVER) use(data[3]);
}
