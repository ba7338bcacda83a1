/* Calls in which one member is held, while others go as far as they may: nothing that it has not read is
 * overwritten (impl/coll/call.h). */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* What each member sends to each in `collectives_held`: checked, and kept nowhere. */
struct as_sent {
  uint64_t *report;
  uint64_t base;
  int me;
  __device__ void take(int member, size_t, uint64_t word_) {
    CHECK_EQ(report, word_, base + static_cast<uint64_t>(member * 8 + me), static_cast<uint64_t>(member));
  }
  __device__ void done(size_t) {}
};

/* An exchange in which PE 1 is held between its packet for PE 2 and the one for PE 0, so that PE 0 does not
 * come to look at PE 2's. Meanwhile PE 2, which has heard from both, makes three broadcasts, for which there
 * is room, and then comes to an exchange whose packets take the places of the first one's. It must wait until
 * all have ended that. */
extern "C" __global__ void collectives_held(uint64_t *report, uint64_t *flag, uint64_t *data) {
  const rushmem::team t = rushmem::world();
  const int me = t.my_pe();
  for (int part = 0; part < 2; ++part) {
    rushmem::impl::call<rushmem::thread> c(t, rushmem::impl::tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, 77, part));
    if (part == 1 && me == 2) rushmem::p(flag, 1, 1);
    const uint64_t base = 100 * (static_cast<uint64_t>(part) + 1);
    const auto word = [=](int member, size_t) {
      if (part == 0 && me == 1 && member == 0) {
        rushmem::wait_until(flag, rushmem::cmp::ge, 1);
        const uint64_t since = rushmem::impl::now_ns();
        while (rushmem::impl::now_ns() - since < 200000000) rushmem::impl::pause(false);
      }
      return base + static_cast<uint64_t>(me * 8 + member);
    };
    rushmem::impl::exchange(c, 1, rushmem::impl::words_of_each(word), as_sent{report, base, me});
    c.end();
    for (uint64_t i = 1; part == 0 && i < 4; ++i) {
      if (me == 2) *data = i;
      rushmem::broadcast<rushmem::thread>(t, data, data, 1, 2);
      CHECK_EQ(report, *data, i, i);
    }
  }
}

/* Leaves words as they are sent; PE 1 is held behind its first row, until a word says that others go on, and
 * longer. */
struct held_sink {
  rushmem::impl::wide_array<16> dst;
  const uint64_t *flag;
  bool held;
  __device__ void take(int member, uint32_t row, const rushmem::impl::row_lane &l, const rushmem::impl::row_part &v) {
    if (held) {
      rushmem::wait_until(flag, rushmem::cmp::ge, 1);
      const uint64_t since = rushmem::impl::now_ns();
      while (rushmem::impl::now_ns() - since < 200000000) rushmem::impl::pause(false);
    }
    held = false;
    dst.store(member, row, l, v);
  }
  __device__ void done(uint32_t, const rushmem::impl::row_lane &) const {}
};

/* Three calls by wide packets. In the first PE 1 is held while it takes what has come. Meanwhile PE 0 makes a
 * broadcast, for which it needs nobody, and comes to the second call, whose data takes the places of the
 * first one's. It must wait until PE 1 has ended that. Before the third comes a call of one block in several
 * chunks. */
extern "C" __global__ void collectives_wide_held(uint64_t *report, uint64_t *flag, uint64_t *data, uint64_t *dst,
                                                   uint64_t *src, size_t n) {
  using namespace rushmem::impl;
  const rushmem::team t = rushmem::world();
  const int me = t.my_pe(), members = t.n_pes();
  const auto value = [](int part, int from, size_t i) { return mix(1000 * static_cast<uint64_t>(part * 8 + from), i); };
  for (int part = 0; part < 3; ++part) {
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) src[i] = value(part, me, i);
    __syncthreads();
    {
      const uint64_t tag = tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, 78, static_cast<uint64_t>(part));
      if (part == 1 && me == 0 && threadIdx.x == 0) rushmem::p(flag, 1, 1);
      const uint32_t bytes = static_cast<uint32_t>(n * 8);
      const wide_array<16> from{reinterpret_cast<char *>(src), 0, bytes}, to{reinterpret_cast<char *>(dst), bytes, bytes};
      exchange_wide<rushmem::grid_parts>(t, tag, from, held_sink{to, flag, part == 0 && me == 1}, -1);
    }
    for (int from = 0; from < members; ++from) {
      for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
        CHECK_EQ(report, dst[static_cast<size_t>(from) * n + i], value(part, from, i), i);
      }
    }
    __syncthreads();
    if (part == 0) {
      if (me == 0 && threadIdx.x == 0) *data = 7;
      __syncthreads();
      rushmem::broadcast<rushmem::block>(t, data, data, 1, 0);
      CHECK_EQ(report, *data, 7, 0);
    } else if (part == 1) {
      const uint64_t base = 500;
      call<rushmem::block> c(t, tag_of(RUSHMEM_COLLECTIVE_ALLTOALL, 79, 0));
      const auto word = [=](int member, size_t) { return base + static_cast<uint64_t>(me * 8 + member); };
      exchange(c, 3 * static_cast<size_t>(c.room), words_of_each(word), as_sent{report, base, me});
      c.end();
    }
  }
}
