// Packets, which order nothing but their own bytes, and collectives that are made of them. (races.h)
#include "races.h"

KERNEL packet_for_data_bad(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // race
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(data[3]);  // race
    use(wait_packed(SLOT, 1));
  }
}
// A receiver polls a packet before it has come.
KERNEL packet_for_data_good(ARGS) {
  if (SENDER) {
    for (int i = 0; i < 20; ++i) __nanosleep(100);
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
  }
}

KERNEL packet_as_signal_bad(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // race
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    use(data[3]);  // race
  }
}
KERNEL packet_as_signal_good(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);
    fence();
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    fence();
    use(data[3]);
  }
}

KERNEL only_the_sender_fences_bad(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);  // race
    fence();
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    use(data[3]);  // race
  }
}
KERNEL only_the_sender_fences_good(ARGS) {
  if (SENDER) {
    put(data, src, 16, 1);
    quiet();
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    uint64_t value = 0;
    while (!test_packed(SLOT, 1, &value)) {}
    fence();
    use(data[3]);
  }
}

KERNEL only_the_receiver_fences_bad(ARGS) {
  if (my_pe() == 0 && threadIdx.x == 1) put(data, src, 16, 1);  // race
  __syncthreads();
  if (SENDER) {
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    fence();
    use(data[3]);  // race
  }
}
KERNEL only_the_receiver_fences_good(ARGS) {
  if (my_pe() == 0 && threadIdx.x == 1) put(data, src, 16, 1);
  __syncthreads();
  if (SENDER) {
    fence();
    put_packed(SLOT, 5, 1, 1);
  } else if (RECEIVER) {
    use(wait_packed(SLOT, 1));
    fence();
    use(data[3]);
  }
}

// What it says may be read again by all that know that it was waited for.
KERNEL packet_for_one_bad(ARGS) {
  if (SENDER) put_packed(SLOT, 5, 1, 1);  // race
  if (my_pe() != 1) return;
  if (threadIdx.x == 0) use(wait_packed(SLOT, 1));
  else use(SLOT->value);  // race
}
KERNEL packet_for_one_good(ARGS) {
  if (SENDER) put_packed(SLOT, 5, 1, 1);
  if (my_pe() != 1) return;
  if (threadIdx.x == 0) use(wait_packed(SLOT, 1));
  __syncthreads();
  use(SLOT->value);
}

KERNEL packet_for_all_bad(ARGS) {
  if (SENDER) put_packed(SLOT, 5, 1, 1);  // race
  if (my_pe() != 1) return;
  use(SLOT->value);  // race
  use(wait_packed(SLOT, 1));
}
KERNEL packet_for_all_good(ARGS) {
  if (SENDER) put_packed(SLOT, 5, 1, 1);
  if (my_pe() != 1) return;
  use(wait_packed(SLOT, 1));
  use(SLOT->value);
}

KERNEL reduce_as_barrier_bad(ARGS) {
  if (SENDER) put(data, src, 16, 1);  // race
  reduce<block>(world(), src + 512, src, 8, sum{});
  if (RECEIVER) use(data[3]);  // race
}
KERNEL reduce_as_barrier_good(ARGS) {
  if (SENDER) put(data, src, 16, 1);
  reduce<block>(world(), src + 512, src, 8, sum{});
  barrier_all<block>();
  if (RECEIVER) use(data[3]);
}

KERNEL broadcast_as_signal_bad(ARGS) {
  if (SENDER) put(data, src, 16, 1);  // race
  broadcast<block>(world(), src + 512, src, 300, 0);
  if (RECEIVER) use(data[3]);  // race
}
KERNEL broadcast_as_signal_good(ARGS) {
  if (SENDER) put_signal(data, src, 16, flag, 1, signal::set, 1);
  broadcast<block>(world(), src + 512, src, 300, 0);
  if (!RECEIVER) return;
  signal_wait_until(flag, cmp::eq, 1);
  use(data[3]);
}
