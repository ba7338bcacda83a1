// Signals, fences, waits and atomics of single threads. (races.h)
#include "races.h"

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
