/* Broadcasts of a block, a warp or a thread by wide packets (wide.h), between members that are near: one
 * phase of the protocol in call.h, in which the root sends rows and the others receive them. Of the bytes
 * that a block has on its way over NVLink nearly all are data, where packets of 16 bytes have half. (Where
 * all members send, a block is no faster by them: performance-log.md, 24.)
 *
 * - A warp has two rows in flight: it loads, stores and polls them together.
 * - What the slot set says and the first rows to send are loaded together; the word that says that the slot
 *   set is in use is taken while the rows are on their way (few.h).
 * - Members may call at different ones of these scopes. Fewer threads than a warp store a row in two parts,
 *   with a release between its data and its numbers, and load it in two, with an acquire between its numbers
 *   and its data. A whole warp loads and stores both at once, and relies on what wide.h says. */
#ifndef RUSHMEM_IMPL_COLL_ROWS_H
#define RUSHMEM_IMPL_COLL_ROWS_H

#include <rushmem/impl/coll/wide.h>

namespace rushmem {
namespace impl {

RUSHMEM_DEVICE bool has_second(uint32_t row, uint32_t apart, uint32_t end) { return row + apart < end; }

template <size_t unit>
RUSHMEM_DEVICE void leave_rows(const two_rows &v, const wide_array<unit> &to, uint32_t row, uint32_t apart, bool second,
                               const row_lane &l) {
  to.store(0, row, l, v.at[0]);
  if (second) to.store(0, row + apart, l, v.at[1]);
}

/* All threads of the root's scope, before it sends. */
template <typename Scope> RUSHMEM_DEVICE void make_room_for_rows(call<Scope> &c) {
  if (RUSHMEM_LIKELY(!c.ask_lines)) return;
  await_wide_room<Scope>(c.t, c.so_far());
  c.behind = RUSHMEM_TEAM_WIDE;
}

/* The call's phase, for a scope that has whole warps. */
template <typename Scope, size_t unit>
RUSHMEM_DEVICE void broadcast_by_warps(call<Scope> &c, const wide_array<unit> &source, const wide_array<unit> &dst,
                                       const last_phases &last, int root) {
  using group = typename call<Scope>::group;
  const uint32_t warps = group::size() / 32, mine = group::rank() / 32, rows = rows_of(source.bytes);
  const uint32_t first = mine < warps ? mine : rows;
  const size_t apart = static_cast<size_t>(warps) * row_bytes;
  const row_lane l;
  two_rows v{};
  if (c.t.raw.my_pe == root) {
    if (first < rows) load_rows(v, source, 0, first, warps, has_second(first, warps, rows), l);
    c.begin(last, 0);
    make_room_for_rows(c);
    char *const own = wide_packets(c, c.next, root);
    RUSHMEM_ROLLED
    for (uint32_t row = first; row < rows; row += 2 * warps) {
      const bool second = has_second(row, warps, rows);
      if (row != first) load_rows(v, source, 0, row, warps, second, l);
      RUSHMEM_ROLLED
      for (int s = 1; s < c.t.raw.n_pes; ++s) {
        char *const to = c.near_at(own, c.right(s)) + static_cast<size_t>(row) * row_bytes;
        store_rows(to, apart, second, l, v, c.number(c.next));
      }
      if (source.at != dst.at) leave_rows(v, dst, row, warps, second, l);
    }
    if (call<Scope>::is_first()) c.take();
  } else {
    c.begin(last, 0);
    if (call<Scope>::is_first()) c.take();
    const char *const from = wide_packets(c, c.next, root);
    RUSHMEM_ROLLED
    for (uint32_t row = first; row < rows; row += 2 * warps) {
      const bool second = has_second(row, warps, rows);
      const two_rows got = receive_rows(c, from + static_cast<size_t>(row) * row_bytes, apart, second, l, root);
      leave_rows(got, dst, row, warps, second, l);
    }
  }
}

/* The same by one thread, the first of a scope that has less than a warp: it goes through a row as 32 lanes,
 * four of them together, of which none or all have numbers. Out of line; what the call has come to. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED typename call<Scope>::state_of broadcast_alone(team t, typename call<Scope>::state_of so_far,
                                                                wide_array<unit> source, wide_array<unit> dst, int root) {
  constexpr uint32_t L = 4, turns = 32 / L;
  call<Scope> c(t, so_far);
  c.take();
  const uint32_t rows = rows_of(source.bytes);
  const uint64_t number = c.number(c.next);
  if (t.raw.my_pe == root) {
    char *const own = wide_packets(c, c.next, root);
    /* Data of all rows, and then their numbers, each with the half of a vector that is beside it. */
    const uint32_t data = rows * (turns - 1);
    RUSHMEM_ROLLED
    for (uint32_t i = 0; i < rows * turns; ++i) {
      if (i == data) fence_release();
      const bool numbers = i >= data;
      const uint32_t row = numbers ? i - data : i / (turns - 1), lane = numbers ? turns - 1 : i % (turns - 1);
      row_part v[L];
      RUSHMEM_UNROLL
      for (uint32_t k = 0; k < L; ++k) v[k] = source.load(0, row, row_lane(lane + k * turns));
      RUSHMEM_ROLLED
      for (int s = 1; s < t.raw.n_pes; ++s) {
        packet *const at = reinterpret_cast<packet *>(c.near_at(own, c.right(s)) + static_cast<size_t>(row) * row_bytes) + lane;
        RUSHMEM_UNROLL
        for (uint32_t k = 0; k < L; ++k) {
          store_packet(at + k * turns, v[k].first.a, numbers ? number : v[k].first.b);
          store_packet(at + k * turns + 32, numbers ? v[k].first.b : v[k].second.a, numbers ? number : v[k].second.b);
        }
      }
      if (source.at == dst.at) continue;
      RUSHMEM_UNROLL
      for (uint32_t k = 0; k < L; ++k) dst.store(0, row, row_lane(lane + k * turns), v[k]);
    }
    return c.so_far();
  }
  const char *const from = wide_packets(c, c.next, root);
  RUSHMEM_ROLLED
  for (uint32_t row = 0; row < rows; ++row) {
    const packet *const place = reinterpret_cast<const packet *>(from + static_cast<size_t>(row) * row_bytes);
    c.template receive_some<turns, true>(place + 7, turns, 0, c.next, root);
    fence_acquire();
    RUSHMEM_ROLLED
    for (uint32_t lane = 0; lane < turns; ++lane) {
      const bool numbers = lane == turns - 1;
      RUSHMEM_UNROLL
      for (uint32_t k = 0; k < L; ++k) {
        const packet low = load_packet(place + lane + k * turns), high = load_packet(place + lane + k * turns + 32);
        const pair first{low.value, numbers ? high.value : low.sequence};
        dst.store(0, row, row_lane(lane + k * turns), {first, numbers ? first : pair{high.value, high.sequence}});
      }
    }
  }
  return c.so_far();
}

/* The whole call. */
template <typename Scope, size_t unit>
RUSHMEM_DEVICE void broadcast_rows(const team &t, uint64_t tag, const wide_array<unit> &source, const wide_array<unit> &dst,
                                   int root) {
  using group = typename call<Scope>::group;
  call<Scope> c(t, {0, 0, static_cast<uint32_t>(tag), 0, t.raw.packets, 0});
  c.enter();
  const last_phases last = c.load_phases();
  bool whole = false;
  if constexpr (!is_alone<group>::value) whole = group::size() >= 32;
  if (RUSHMEM_LIKELY(whole)) {
    if constexpr (!is_alone<group>::value) broadcast_by_warps(c, source, dst, last, root);
  } else {
    c.begin(last, 0);
    if (t.raw.my_pe == root) make_room_for_rows(c);
    if (group::rank() == 0) c.busy = broadcast_alone<Scope>(t, c.so_far(), source, dst, root).busy;
  }
  if (t.raw.my_pe != root) c.received_from(root);
  end_broadcast(c);
}

/* In line for a block whose arrays are whole vectors, else out of line. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED_LARGE void broadcast_rows_apart(team t, uint64_t tag, wide_array<unit> source, wide_array<unit> dst,
                                                 int root) {
  broadcast_rows<Scope>(t, tag, source, dst, root);
}

/* The whole call if it goes by wide packets. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool rows_broadcast(const team &t, T *dst, const T *src, size_t n, int root) {
  if constexpr (!call<Scope>::blocks) {
    using group = typename call<Scope>::group;
    if (!is_wide_broadcast(t, n * sizeof(T))) return false;
    const uint32_t bytes = static_cast<uint32_t>(n * sizeof(T));
    const uint64_t tag = tag_of(RUSHMEM_COLLECTIVE_BROADCAST, bytes, static_cast<uint64_t>(root) * 2 + wide_call);
    char *const from = reinterpret_cast<char *>(const_cast<T *>(src)), *const to = reinterpret_cast<char *>(dst);
    if (RUSHMEM_LIKELY(whole_vectors(from, to) && bytes % 16 == 0)) {
      const wide_array<16> source{from, 0, bytes}, there{to, 0, bytes};
      constexpr bool apart = is_alone<group>::value || is_one_warp<group>::value;
      if constexpr (apart) broadcast_rows_apart<Scope>(t, tag, source, there, root);
      else broadcast_rows<Scope>(t, tag, source, there, root);
    } else {
      constexpr size_t unit = part_of<T>::value;
      broadcast_rows_apart<Scope, unit>(t, tag, {from, 0, bytes}, {to, 0, bytes}, root);
    }
    return true;
  }
  return false;
}

}  // namespace impl
}  // namespace rushmem

#endif
