/* Litmus test of wide packets (impl/coll/wide.h): each is seen whole. Warps of each PE store rows to its
 * right neighbour again and again, without waiting for anyone; others load what comes and compare every word
 * with what belongs to the number beside it. In the weak form a packet's number is stored before its data, by
 * another instruction: how often that is seen shows whether the test could see a torn packet. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* `stats`, added up by all warps: rows whose packets were of different rounds, so that stores and loads met;
 * torn packets of the weak form; rows looked at. */
enum { STAT_MET = 0, STAT_WEAK = 1, STAT_ROWS = 2 };

namespace {

using rushmem::impl::row_lane;
using rushmem::impl::row_part;

__device__ void add(uint64_t *stats, int which, uint64_t n) {
  atomicAdd(reinterpret_cast<unsigned long long *>(stats) + which, static_cast<unsigned long long>(n));
}

__device__ uint64_t word_of(uint64_t round, uint32_t lane, uint32_t word) { return mix(round, lane * 4 + word); }

__device__ void send_rows(char *to, uint64_t rounds, bool weak) {
  const row_lane l;
  for (uint64_t round = 1; round <= rounds; ++round) {
    row_part v;
    v.first = {word_of(round, l.lane, 0), word_of(round, l.lane, 1)};
    v.second = {word_of(round, l.lane, 2), word_of(round, l.lane, 3)};
    if (l.has_numbers()) v.first.b = v.second.b;
    if (!weak) {
      rushmem::impl::store_row(to, l, v, round);
      continue;
    }
    rushmem::packet *const low = reinterpret_cast<rushmem::packet *>(to) + l.lane;
    for (int data = 0; data < 2; ++data) {
      __syncwarp();
      if (l.has_numbers() == (data != 0)) continue;
      rushmem::impl::store_packet(low, v.first.a, data ? v.first.b : round);
      rushmem::impl::store_packet(low + 32, data ? v.second.a : v.second.b, data ? v.second.b : round);
    }
  }
}

__device__ void look_at_rows(uint64_t *report, uint64_t *stats, const char *from, uint64_t rounds, bool weak) {
  const row_lane l;
  const rushmem::packet *const low = reinterpret_cast<const rushmem::packet *>(from) + l.lane;
  uint64_t met = 0, torn = 0, rows = 0;
  for (bool over = false; !over; ++rows) {
    __syncwarp();
    const rushmem::packet got[2] = {rushmem::impl::load_packet<rushmem::packet>(low),
                                    rushmem::impl::load_packet<rushmem::packet>(low + 32)};
    bool last = true, alike = true;
    for (int half = 0; half < 2; ++half) {
      const uint64_t round = __shfl_sync(0xffffffffu, got[half].sequence, static_cast<int>(l.lane | 7));
      const uint64_t any = __shfl_sync(0xffffffffu, got[0].sequence, 7);
      last = last && round == rounds;
      alike = alike && round == any;
      if (round == 0) continue;
      /* A lane with a number has the first word of the one half and the last of the other. */
      const uint32_t first = half == 0 ? 0 : l.has_numbers() ? 3 : 2;
      bool whole = got[half].value == word_of(round, l.lane, first);
      if (!l.has_numbers()) whole = whole && got[half].sequence == word_of(round, l.lane, first + 1);
      if (weak) torn += whole ? 0 : 1;
      else CHECK(report, whole, round);
    }
    over = __all_sync(0xffffffffu, last) != 0;
    met += __all_sync(0xffffffffu, alike) ? 0 : 1;
  }
  add(stats, STAT_WEAK, torn);
  if (l.lane == 0) {
    add(stats, STAT_MET, met);
    add(stats, STAT_ROWS, rows);
  }
}

}  // namespace

/* `rows`: 1 KiB for every second warp of a launch. */
extern "C" __global__ void litmus_wide(uint64_t *report, uint64_t *stats, char *rows, uint64_t rounds, int32_t weak) {
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  char *const row = rows + static_cast<size_t>(warp / 2) * rushmem::impl::row_bytes;
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  if (warp % 2 == 0) send_rows(rushmem::ptr(row, right), rounds, weak != 0);
  else look_at_rows(report, stats, row, rounds, weak != 0);
}
