/* Messages of a warp whose data comes with its own flags: 480 bytes of data and four sequence numbers are
 * 512 bytes, which 32 lanes store by one instruction. So fifteen sixteenths of what crosses a link are data;
 * of packets (packed.h) half is.
 *
 *     rushmem::store_packed_row(rushmem::ptr(row, right), {low, high}, round);     // by all lanes of a warp
 *     rushmem::row_words theirs = rushmem::wait_packed_row(row, round);             // by all lanes of a warp
 *
 * What a row rests on: eight lanes' 128 aligned bytes, with one sequence number, are seen whole. (Such 128
 * bytes are what collectives have as *wide packets*, impl/coll/wide.h; a row is four of them.) PTX promises
 * that of each 16 bytes only. NVIDIA's own libraries suppose it of 128 within a GPU and between GPUs that
 * NVLink connects (NCCL's protocol LL128). So a program asks has_packed_rows(team) first: the host knows from
 * the driver how each two members' GPUs are connected. On the CPU device numbers are stored last, with
 * release, and loaded first.
 *
 * A lane has two words of a row, row_words; each eighth one (lane % 8 == 7) has but `low`, as the number is
 * in place of the other: owns_number(). The protocol is the program's, as of packets: a row's number is never
 * sent twice in a row, and the next message goes only once the receiver has taken the last.
 *
 * Ordering: none but of a row's parts.
 */
#ifndef RUSHMEM_PACKED_ROW_H
#define RUSHMEM_PACKED_ROW_H

#include <rushmem/packed.h>
#include <rushmem/team.h>

namespace rushmem {

/* A place for one such message, in symmetric memory. */
struct alignas(128) packed_row {
  packet of_lane[32];
};

/* What a lane has of a row. */
struct row_words {
  uint64_t low, high;
};

/* Whether rows may go between any two of the team's members: all are near, and NVLink connects the GPUs of
 * each node's PEs, or they share one. All members have the same answer.
 * Order: none. Cost: local. */
RUSHMEM_DEVICE bool has_packed_rows(const team &t) { return t.raw.packed_rows != 0; }

/* Whether this lane has a word and a number for two words.
 * Order: none. Cost: local. */
RUSHMEM_DEVICE bool owns_number() { return impl::thread_in_block() % 8 == 7; }

/* By all lanes of a warp: sends a row to another PE's `*mapped`, where ptr() says that it is.
 * Order: the parts of the row. Cost: store. */
RUSHMEM_DEVICE void store_packed_row(packed_row *mapped, row_words words, uint64_t sequence) {
  packet *const own = mapped->of_lane + impl::thread_in_block() % 32;
  const bool number = owns_number();
  __syncwarp();
#if defined(RUSHMEM_CPU)
  if (!number) impl::store_packet(own, words.low, words.high);
  __syncwarp();
  if (!number) return;
#endif
  impl::store_packet(own, words.low, number ? sequence : words.high);
}

/* By all lanes of a warp: looks which of n messages with this number have come to this PE's rows, but not at
 * those of which it `has` one; then `words` are what they say. All lanes get the same answers, and all have
 * read what has come when one returns. `rows` are addresses that can be read.
 * Order: none but of each row. Cost: local. */
template <int n>
RUSHMEM_DEVICE void test_packed_rows(const packed_row *const *rows, uint64_t sequence, bool *has, row_words *words) {
  const uint32_t lane = impl::thread_in_block() % 32;
  const bool number = owns_number();
  impl::breathe();
  /* All lanes of a row load it by one instruction, whatever they did before. */
  __syncwarp();
  packet seen[n];
  RUSHMEM_UNROLL
  for (int i = 0; i < n; ++i) {
    seen[i] = packet{0, sequence};
#if defined(RUSHMEM_CPU)
    if (!number) continue;
#endif
    if (!has[i]) seen[i] = impl::load_packet(rows[i]->of_lane + lane);
  }
  RUSHMEM_UNROLL
  for (int i = 0; i < n; ++i) {
    if (has[i]) continue;
    has[i] = __all_sync(0xffffffffu, !number || seen[i].sequence == sequence) != 0;
    if (!has[i]) continue;
#if defined(RUSHMEM_CPU)
    if (!number) seen[i] = impl::load_packet(rows[i]->of_lane + lane);
#endif
    words[i] = row_words{seen[i].value, number ? 0 : seen[i].sequence};
  }
#if defined(RUSHMEM_CPU)
  __syncwarp();
#endif
}

/* By all lanes of a warp: waits for the message with this number in this PE's `*row`, and returns what it
 * says, once all lanes have read it.
 * Order: none but of the row. Cost: wait. */
RUSHMEM_DEVICE row_words wait_packed_row(const packed_row *row, uint64_t sequence) {
  bool has = false;
  row_words words{0, 0};
  /* Again where a number has been replaced meanwhile, which is a fault of the program's: that is waited for,
   * and reported, and no words are made up. */
  do {
    if (owns_number()) wait_packed(row->of_lane + impl::thread_in_block() % 32, sequence);
    test_packed_rows<1>(&row, sequence, &has, &words);
  } while (!has);
  return words;
}

}  // namespace rushmem

#endif
