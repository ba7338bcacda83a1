/* Which protocol a collective takes, and when: all thresholds in one place. Members choose alike, because the
 * choice rests on what all of them have in common: the team, the size, the scope's width, and that an array
 * is symmetric for all or for none (a call in which that differs ends with a mismatch).
 *
 * Packets take twice the bytes, wide packets a fifteenth more, and a reduction by either sends all of its
 * data to every member; the direct protocol has two meetings of all members, about 3.5 us between two H200s.
 * One block moves 46 GB/s over NVLink, so it gains by packets up to some 64 KiB (two members up to 100, but
 * more members reduce less data each by the direct one), and a root by being read beyond; a grid moves eight
 * times as much, and gains up to some 300 KiB, and by wide packets, of which a lane has 16 bytes at least,
 * from 16 KiB to megabytes (docs/performance.md). */
#ifndef RUSHMEM_IMPL_COLL_LIMITS_H
#define RUSHMEM_IMPL_COLL_LIMITS_H

#include <rushmem/impl/coll/call.h>
#include <rushmem/scope.h>
#include <rushmem/team.h>

namespace rushmem {
namespace impl {

/* Bytes to all other members together up to which a call is made by packets, by a block (or less) and by a
 * grid, where it could be direct; of a block's calls whose data goes one way, more. */
constexpr size_t most_by_packets = 64 << 10;
constexpr size_t most_by_packets_one_way = 96 << 10;
constexpr size_t most_by_packets_of_grid = 320 << 10;

/* Bytes to one member up to which a call is made by packets where members are on other nodes: there each
 * packet of 8 bytes is a message, and a put is one, whatever its size. */
constexpr size_t most_by_messages = 4 << 10;

/* Phases of packets that a grid may take before a call is direct where it can be; one where there are wide
 * packets. */
constexpr uint32_t most_phases_of_grid = 4;

/* Whether a call that moves so many bytes to or from one member is direct where it can be. */
template <typename Scope, size_t most_of_block = most_by_packets>
RUSHMEM_DEVICE bool is_large(const team &t, size_t bytes) {
  constexpr bool blocks = has_blocks<Scope>::value;
  constexpr size_t most = blocks ? most_by_packets_of_grid : most_of_block;
  /* 32 bits are fewer instructions. */
  if (bytes > most) return true;
  const uint32_t few = static_cast<uint32_t>(bytes), others = static_cast<uint32_t>(t.raw.n_pes - 1);
  const uint32_t room = (blocks && t.raw.wide == 0 ? most_phases_of_grid : 1) * 8 * t.raw.packets;
  return few > room || uint64_t(few) * others > most;
}

/* Wide packets (wide.h). A warp's are a row: so many vectors of 16 bytes of data, so many bytes in all. */
constexpr uint32_t row_vectors = 60, row_bytes = 1024;
RUSHMEM_DEVICE uint32_t rows_of(uint32_t bytes) { return (bytes + 16 * row_vectors - 1) / (16 * row_vectors); }

/* Bytes to one member from which on a grid's call goes by wide packets, and to all others together up to
 * which it does. */
constexpr size_t least_wide = 16 << 10;
constexpr size_t most_wide = 2 << 20;

/* The same of a broadcast by a block, a warp or a thread, which are alike in this: members may call at
 * different ones. */
constexpr size_t least_wide_of_block = 16 << 10;
constexpr size_t most_wide_of_block = 192 << 10;

/* Whether it goes by wide packets. */
RUSHMEM_DEVICE bool is_wide_broadcast(const team &t, size_t bytes) {
  if (bytes < least_wide_of_block || bytes > most_wide_of_block) return false;
  if (t.raw.wide == 0 || !t.raw.all_near || t.raw.n_pes < 2) return false;
  if (bytes * static_cast<size_t>(t.raw.n_pes - 1) > most_wide_of_block) return false;
  return rows_of(static_cast<uint32_t>(bytes)) <= t.raw.wide / row_bytes;
}

/* Words of a block up to which calls of a grid between two members go by packets and not by wide ones: a
 * thread has one of them at most (pair_parts.h). */
constexpr uint32_t most_words_of_part = 128;
template <typename Scope> RUSHMEM_DEVICE bool is_by_words(const team &t, size_t bytes) {
  const uint32_t channels = call<Scope>::channels_of(t);
  if (t.raw.n_pes != 2 || channels * most_words_of_part > t.raw.packets) return false;
  return bytes <= 8 * most_words_of_part * channels;
}

/* Whether a call that moves so many bytes between every two members goes by wide packets. Blocks of less than
 * a warp have none: that is no different on any member. */
template <typename Scope> RUSHMEM_DEVICE bool is_wide(const team &t, size_t bytes) {
  if constexpr (!has_blocks<Scope>::value) return false;
  if (bytes < least_wide || bytes > most_wide) return false;
  if (!t.raw.all_near || t.raw.n_pes < 2 || block::size() < 32 || is_by_words<Scope>(t, bytes)) return false;
  const uint32_t few = static_cast<uint32_t>(bytes);
  return uint64_t(few) * static_cast<uint32_t>(t.raw.n_pes - 1) <= most_wide && rows_of(few) * row_bytes <= t.raw.wide;
}

/* The same for data that is written to members, as it can be to all of them; reading takes members that are
 * near. */
template <typename Scope, size_t most_of_block = most_by_packets>
RUSHMEM_DEVICE bool is_large_to_write(const team &t, size_t bytes) {
  return t.raw.all_near ? is_large<Scope, most_of_block>(t, bytes) : bytes > most_by_messages;
}

/* Whether a broadcast that goes neither by wide packets nor by others is read by the others (pull.h), by a
 * block, a warp or a thread. */
template <typename Scope> RUSHMEM_DEVICE bool is_pulled(const team &t, size_t bytes) {
  if constexpr (has_blocks<Scope>::value) return false;
  return t.raw.all_near && t.raw.n_pes > 1 && is_large<Scope, most_by_packets_one_way>(t, bytes);
}

/* A large broadcast of a grid goes by relays (relay.h) where that saves more than its meetings cost. The root
 * alone sends each byte n - 1 times; by relays the busiest link carries it once, and the end of a broadcast
 * waits for one chunk more. So what is saved is about n - 2 times the array. The link has 370 GB/s and a
 * meeting takes some 2.6 us, which is 1 MiB. Between four H100s relays take 27 us for 26 at 2 MiB, and 35 for
 * 43 at 4 MiB (docs/performance-log.md). One block and less have no relays: members may call at different
 * ones of these scopes, and a thread's would take more than 128 registers. */
constexpr size_t least_relayed = 6 << 20;

/* Bytes of each channel for each member below which most of a chunk's time would be latency. */
constexpr size_t least_relayed_part = 1 << 10;

/* Into how many chunks an array is cut. With k of them the end comes by 1/k of the array's time later than
 * without relays, and there are k meetings, of which a part is waited for (relay.h): both cost the same where
 * k * k times what the link moves meanwhile, 1 MiB, are the array's bytes. */
constexpr size_t bytes_of_chunks = 1 << 20;
constexpr uint32_t most_chunks = 16;

/* Whether a broadcast of so many bytes that is direct goes by relays. */
template <typename Scope> RUSHMEM_DEVICE bool is_relayed(const team &t, size_t bytes) {
  const size_t members = static_cast<size_t>(t.raw.n_pes);
  if (!t.raw.all_near || members < 3 || bytes < least_relayed / (members - 2)) return false;
  return bytes / (members - 1) >= least_relayed_part * call<Scope>::channels_of(t);
}

/* The most chunks that are not too many. */
RUSHMEM_DEVICE uint32_t chunks_of_relays(size_t bytes) {
  uint32_t chunks = 1;
  RUSHMEM_ROLLED
  while (chunks < most_chunks && (chunks + 1) * (chunks + 1) * bytes_of_chunks <= bytes) ++chunks;
  return chunks;
}

/* Bytes from which on a grid's reduction of two members goes by stores alone (combine.h): it has a third
 * meeting, and the link moves stores faster than loads (docs/performance-log.md, 27). */
constexpr size_t least_reduced_by_stores = 6 << 20;

/* A reduction by puts has four meetings, and keeps pieces of all other members in the destination, in whole
 * lines. */
RUSHMEM_DEVICE bool is_large_to_reduce_by_puts(const team &t, size_t bytes) {
  const size_t members = static_cast<size_t>(t.raw.n_pes);
  return bytes > 4 * most_by_messages && bytes >= 128 * members * (members - 1);
}

}  // namespace impl
}  // namespace rushmem

#endif
