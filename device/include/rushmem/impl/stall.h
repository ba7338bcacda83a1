/* What a wait does while it is not satisfied: it reports a stall, and it carries out far PEs' requests
 * meanwhile. The wait's own loop is a load, a comparison and a count; at certain polls it calls
 * `rushmem_stall_stop`, which is out of line. There, where there are far PEs, it helps them every
 * `polls_per_help` polls (help.h); and every `polls_per_tick` it learns that the job is broken, is reported
 * to the host once it has lasted, and ends at its limit; on the CPU device at every poll, once waits nap
 * between two. In relocatable code that function is the device library's (device/src/device.cu).
 */
#ifndef RUSHMEM_IMPL_STALL_H
#define RUSHMEM_IMPL_STALL_H

#include <rushmem/impl/help.h>
#include <rushmem/state.h>

namespace rushmem {
namespace impl {

/* What a wait keeps from one stop to the next. By value, so that its loop stays in registers. */
struct stall_mark {
  uint64_t since;    /* 0, then the time of the first look at the clock; its lowest bit: it is reported */
  uint32_t next;     /* the poll of the next stop */
};

#if defined(RUSHMEM_COLD_IN_LIBRARY)

/* By a C name, as uint64_t is another type to NVRTC than to nvcc, and both link with one library. */
extern "C" RUSHMEM_COLD stall_mark rushmem_stall_stop(uint32_t polls, uint64_t since, uint64_t address,
                                                      uint32_t width, int how, int from_pe, uint64_t expected,
                                                      uint64_t seen);

#else

/* Takes a free record of this PE's, fills it, and hands it to the host. If none is free, the others say
 * enough. */
RUSHMEM_DEVICE void report_stall(uint64_t address, uint32_t width, int how, int from_pe, uint64_t expected,
                                 uint64_t seen, uint64_t waited_ns) {
  rushmem_stall_record *records = state().stalls;
  if (!records) return;
  for (int i = 0; i < RUSHMEM_STALL_RECORDS; ++i) {
    rushmem_stall_record &r = records[i];
    if (compare_swap_word(&r.state, uint32_t(0), uint32_t(1)) != 0) continue;
    r.cmp = how;
    r.from_pe = from_pe;
    r.width = width;
    r.address = address;
    r.expected = expected;
    r.seen = seen;
    r.waited_ns = waited_ns;
    r.block[0] = blockIdx.x;
    r.block[1] = blockIdx.y;
    r.block[2] = blockIdx.z;
    r.thread[0] = threadIdx.x;
    r.thread[1] = threadIdx.y;
    r.thread[2] = threadIdx.z;
    fence_acq_rel();
    store_relaxed_word(&r.state, uint32_t(2));
    return;
  }
}

/* Ends the launch. Where several processes share a GPU each waits for a time of its own first: traps at one
 * moment may go unreported (docs/gpu-findings.md). */
RUSHMEM_DEVICE void give_up(uint32_t why, uint64_t now) {
  while (now_ns() - now < state().trap_delay_ns) pause(false);
  fail(why);
}

/* One look at the clock and at the job; the new `since`. Does not return once the job is broken or the wait's
 * limit has passed. */
RUSHMEM_DEVICE uint64_t stall_tick(uint64_t since, uint64_t address, uint32_t width, int how, int from_pe,
                                   uint64_t expected, uint64_t seen) {
  const rushmem_device_state &s = state();
  uint64_t now = now_ns();
  if (s.broken && load_relaxed_word(s.broken) != 0) give_up(RUSHMEM_DEVICE_FAIL_BROKEN, now);
  if (since == 0) return now & ~uint64_t(1);
  uint64_t start = since & ~uint64_t(1), waited = now > start ? now - start : 0;
  bool over = s.wait_limit_ns != 0 && waited >= s.wait_limit_ns;
  if (!(since & 1) && (over || (s.stall_ns != 0 && waited >= s.stall_ns))) {
    report_stall(address, width, how, from_pe, expected, seen, waited);
    note_stall();
    since |= 1;
  }
  if (over) give_up(RUSHMEM_DEVICE_FAIL_TIMEOUT, now);
  return since;
}

/* What a wait does at poll number `polls`, the `next` that the last stop asked for. */
extern "C" RUSHMEM_COLD stall_mark rushmem_stall_stop(uint32_t polls, uint64_t since, uint64_t address,
                                                      uint32_t width, int how, int from_pe, uint64_t expected,
                                                      uint64_t seen) {
  if (RUSHMEM_UNLIKELY(how == RUSHMEM_STALL_MISMATCH || how == RUSHMEM_STALL_BUSY)) {
    report_stall(address, width, how, from_pe, expected, seen, 0);
    give_up(how == RUSHMEM_STALL_BUSY ? RUSHMEM_DEVICE_FAIL_BUSY : RUSHMEM_DEVICE_FAIL_MISMATCH, now_ns());
  }
  const bool naps = naps_after_ns != 0 && since != 0 && now_ns() - (since & ~uint64_t(1)) >= naps_after_ns;
  if (naps || polls % polls_per_tick == 0) {
    since = stall_tick(since, address, width, how, from_pe, expected, seen);
  }
  rushmem_mailbox *box = state().mailbox;
  if (naps) {
    if (box) help(box);
    return stall_mark{since, polls + 1};
  }
  if (!box) return stall_mark{since, (polls | (polls_per_tick - 1)) + 1};
  if (help(box)) return stall_mark{since, polls + 1};
  return stall_mark{since, (polls | (polls_per_help - 1)) + 1};
}

#endif

/* The part of it that lives in the wait's loop. The first stop comes long before the first tick: far PEs'
 * requests are urgent, and it is where a wait learns whether there are any far PEs. */
struct stall_watch {
  uint32_t polls = 0;
  stall_mark mark{0, polls_before_help};

  /* Counts a poll. Whether it is one at which to stop. */
  RUSHMEM_DEVICE bool counts() { return ++polls == mark.next; }

  /* The stop, after an unsatisfied poll of `word`, for which `how expected` was wanted. */
  template <typename T>
  RUSHMEM_DEVICE void stop(const volatile T *word_, int how, T expected, T seen, int from_pe = -1) {
    mark = rushmem_stall_stop(polls, mark.since, reinterpret_cast<uint64_t>(word_), sizeof(T), how, from_pe,
                              to_bits(expected), to_bits(seen));
  }

  /* After each unsatisfied poll. */
  template <typename T>
  RUSHMEM_DEVICE void unsatisfied(const volatile T *word_, int how, T expected, T seen, int from_pe = -1) {
    pause(polls == 0);
    if (RUSHMEM_UNLIKELY(counts())) stop(word_, how, expected, seen, from_pe);
  }
};

/* Loads until `satisfied(load())`, and returns what was seen then; `stop(watch, seen)` makes a stop. A poll
 * is counted while its load is on the way: what stands between the load's return and the next load, or the
 * end of the wait, is time that every wait pays. */
template <typename Load, typename Satisfied, typename Stop>
RUSHMEM_DEVICE auto poll(Load load, Satisfied satisfied, Stop stop) -> decltype(load()) {
  stall_watch watch;
  for (;;) {
    decltype(load()) seen;
    bool stops;
    do {
      seen = load();
      stops = watch.counts();
      if (satisfied(seen)) return seen;
      pause(watch.polls == 1);
    } while (RUSHMEM_LIKELY(!stops));
    stop(watch, seen);
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
