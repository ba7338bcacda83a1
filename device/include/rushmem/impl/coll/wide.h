/* Collectives of middling size by a grid, between members that are near: each sends what it has for the
 * others in *wide packets* and takes what comes, as with packets of 16 bytes (exchange.h). A wide packet is
 * 120 bytes of data and the 8 of its number: an eighth of the overhead of a packet, and as little to wait
 * for. Nobody releases or acquires anything, and nobody meets.
 *
 * What it rests on. Eight lanes of a warp store a wide packet by one instruction, 16 bytes each, and eight
 * lanes load it so; who sees the number takes the rest of the same load for data. PTX promises so much
 * of each 16 bytes only. Of 128 aligned bytes NVIDIA's own libraries suppose it between GPUs that NVLink
 * connects, and within one (NCCL's protocol LL128; its manual says of NCCL_PROTO that on other ways it
 * corrupts data). So a team has wide packets only where the host has asked the driver of each two members'
 * GPUs (RawTeam::wide, docs/guide/collectives.md), and `wide_packets_are_whole` looks for one that is torn.
 * On the CPU device a number is stored last, with release, and loaded first.
 *
 * Where they lie. For each of RUSHMEM_TEAM_WIDE phases in turn and for each member there are
 * `rushmem_team::wide` bytes. Rows lie in the order of the array, and are dealt out to the channels in
 * turn, so that each channel has a part of them, as of the packets (call.h). What a member writes in phase p
 * replaces what it wrote in phase p - 2. So the rule is:
 *
 *     A member that sends wide packets in phase p knows that all members have ended phase p - 2.
 *
 * A block that has received from all members in phase p - 1 knows it, and in each call of a grid each block
 * receives from all. A call by one block may not say as much (a broadcast, an exchange of several chunks);
 * behind it each member's line says that it has ended that call. */
#ifndef RUSHMEM_IMPL_COLL_WIDE_H
#define RUSHMEM_IMPL_COLL_WIDE_H

#include <rushmem/impl/coll/combine.h>
#include <rushmem/impl/coll/small.h>

namespace rushmem {
namespace impl {

/* A warp's wide packets are a row: lane l has 16 bytes of packet l / 8, and of packet 4 + l / 8. Vectors of
 * data go to the lanes that have no number in their order; each of the other four lanes has one more, a half
 * of it in either packet. */
struct row_lane {
  uint32_t lane;
  RUSHMEM_DEVICE row_lane() : lane(thread_in_block() % 32) {}
  explicit RUSHMEM_DEVICE row_lane(uint32_t lane_) : lane(lane_) {}
  RUSHMEM_DEVICE bool has_numbers() const { return lane % 8 == 7; }
  /* Which vectors of its row a lane has; one that has numbers has the same twice. */
  RUSHMEM_DEVICE uint32_t first() const { return has_numbers() ? 56 + lane / 8 : lane / 8 * 7 + lane % 8; }
  RUSHMEM_DEVICE uint32_t second() const { return has_numbers() ? first() : 28 + first(); }
};

/* What a lane has of a row. */
struct row_part {
  pair first, second;
};

/* Vectors of an array that need not be aligned, or whose last one is not whole. */
template <size_t unit> RUSHMEM_OUTLINED pair gather_pair(const char *from, size_t bytes) {
  return {gather_word<unit>(from, bytes), bytes > 8 ? gather_word<unit>(from + 8, bytes - 8) : 0};
}
template <size_t unit> RUSHMEM_OUTLINED void scatter_pair(char *to, uint64_t a, uint64_t b, size_t bytes) {
  scatter_word<unit>(to, a, bytes);
  if (bytes > 8) scatter_word<unit>(to + 8, b, bytes - 8);
}

/* `bytes` for each member, `apart` bytes from one another; 0: the same to all. `unit` is what all addresses
 * and sizes are multiples of: from 16 on vectors are moved as they are. */
template <size_t unit> struct wide_array {
  static constexpr bool whole = unit >= 16;
  char *at;
  size_t apart;
  uint32_t bytes;

  RUSHMEM_DEVICE char *of(int member) const { return at + static_cast<size_t>(member) * apart; }
  /* Behind the end: anything. */
  RUSHMEM_DEVICE pair load(const char *from, uint32_t offset) const {
    if constexpr (whole) return load_pair(from + (offset < bytes ? offset : 0));
    else return offset < bytes ? gather_pair<unit>(from + offset, bytes - offset) : pair{0, 0};
  }
  RUSHMEM_DEVICE void store(char *to, uint32_t offset, pair v) const {
    if (offset >= bytes) return;
    if constexpr (whole) store_pair(to + offset, v);
    else scatter_pair<unit>(to + offset, v.a, v.b, bytes - offset);
  }
  RUSHMEM_DEVICE row_part load(int member, uint32_t row, const row_lane &l) const {
    const uint32_t begin = row * row_vectors;
    return {load(of(member), 16 * (begin + l.first())), load(of(member), 16 * (begin + l.second()))};
  }
  RUSHMEM_DEVICE void store(int member, uint32_t row, const row_lane &l, const row_part &v) const {
    const uint32_t begin = row * row_vectors;
    store(of(member), 16 * (begin + l.first()), v.first);
    if (!l.has_numbers()) store(of(member), 16 * (begin + l.second()), v.second);
  }
};

/* Sinks: what a lane takes of each member's row, in the order of the members, this one's own among them. */
template <size_t unit> struct wide_blocks {
  wide_array<unit> dst;
  RUSHMEM_DEVICE void take(int member, uint32_t row, const row_lane &l, const row_part &v) const {
    dst.store(member, row, l, v);
  }
  RUSHMEM_DEVICE void done(uint32_t, const row_lane &) const {}
};
template <size_t unit, typename T, typename Op> struct wide_reducing {
  wide_array<unit> dst;
  accumulator<T, Op> so_far[4];
  RUSHMEM_DEVICE void take(int member, uint32_t, const row_lane &, const row_part &v) {
    const uint64_t words[4] = {v.first.a, v.first.b, v.second.a, v.second.b};
    RUSHMEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (member == 0) so_far[i].begin(words[i]);
      else so_far[i].add(words[i]);
    }
  }
  RUSHMEM_DEVICE void done(uint32_t row, const row_lane &l) const {
    dst.store(0, row, l, {{so_far[0].result(), so_far[1].result()}, {so_far[2].result(), so_far[3].result()}});
  }
};

/* Where member `from` writes in a phase. */
template <typename Scope> RUSHMEM_DEVICE char *wide_packets(const call<Scope> &c, uint64_t phase, int from) {
  const rushmem_team &raw = c.t.raw;
  const uint32_t place = static_cast<uint32_t>(phase % RUSHMEM_TEAM_WIDE) * static_cast<uint32_t>(raw.n_pes);
  return c.wide() + static_cast<size_t>(place + static_cast<uint32_t>(from)) * raw.wide;
}

/* By a whole warp: its row goes there. */
RUSHMEM_DEVICE void store_row(char *to, const row_lane &l, const row_part &v, uint64_t number) {
  packet *const low = reinterpret_cast<packet *>(to) + l.lane;
  __syncwarp();
#if defined(RUSHMEM_CPU)
  if (!l.has_numbers()) {
    store_packet(low, v.first.a, v.first.b);
    store_packet(low + 32, v.second.a, v.second.b);
  }
  __syncwarp();
  if (!l.has_numbers()) return;
#endif
  store_packet(low, v.first.a, l.has_numbers() ? number : v.first.b);
  store_packet(low + 32, l.has_numbers() ? v.second.b : v.second.a, l.has_numbers() ? number : v.second.b);
}

/* Rows of a warp that are in flight together: one, or two. */
struct two_rows {
  row_part at[2];
};

/* Loads row `row` of what goes to that member, and the one `apart` rows behind it if `second`. */
template <size_t unit>
RUSHMEM_DEVICE void load_rows(two_rows &to, const wide_array<unit> &from, int member, uint32_t row, uint32_t apart,
                              bool second, const row_lane &l) {
  to.at[0] = from.load(member, row, l);
  if (second) to.at[1] = from.load(member, row + apart, l);
}

/* By a whole warp: rows go there, the second one `apart` bytes behind the first. */
RUSHMEM_DEVICE void store_rows(char *to, size_t apart, bool second, const row_lane &l, const two_rows &v, uint64_t number) {
  store_row(to, l, v.at[0], number);
  if (second) store_row(to + apart, l, v.at[1], number);
}

/* By a whole warp: rows of the phase to come of that member, once they are here. */
template <typename Scope>
RUSHMEM_DEVICE two_rows receive_rows(const call<Scope> &c, const char *from, size_t apart, bool second, const row_lane &l,
                                     int member) {
  const uint64_t wanted = c.number(c.next);
  const bool numbers = l.has_numbers();
  const auto place = [=](uint32_t u) {
    return reinterpret_cast<const packet *>(from + u / 2 * apart) + l.lane + u % 2 * 32;
  };
  typename call<Scope>::patience p;
  for (;;) {
    packet part[4];
    uint64_t differ = 0;
    /* All lanes of a packet load it by one instruction, whatever they did before. */
    __syncwarp();
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < 4; ++u) {
      part[u] = {0, wanted};
      if (u >= 2 && !second) continue;
#if defined(RUSHMEM_CPU)
      if (!numbers) continue;
#endif
      part[u] = load_packet(place(u));
    }
    RUSHMEM_UNROLL
    for (uint32_t u = 0; u < 4; ++u) differ |= part[u].sequence ^ wanted;
    const bool here = !numbers || differ == 0;
    if (RUSHMEM_LIKELY(__all_sync(0xffffffffu, here))) {
      two_rows got;
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < 2; ++u) {
        if (u == 1 && !second) break;
        packet &low = part[2 * u], &high = part[2 * u + 1];
#if defined(RUSHMEM_CPU)
        if (!numbers) {
          low = load_packet(place(2 * u));
          high = load_packet(place(2 * u + 1));
        }
#endif
        const pair first{low.value, numbers ? high.value : low.sequence};
        got.at[u] = {first, numbers ? first : pair{high.value, high.sequence}};
      }
      return got;
    }
    if (!here) {
      uint32_t late = 0;
      uint64_t other = wanted;
      RUSHMEM_UNROLL
      for (uint32_t u = 4; u-- > 0;) {
        if (part[u].sequence != wanted) {
          late = u;
          other = part[u].sequence;
        }
      }
      const uint64_t *const word_ = &place(late)->sequence;
      if (RUSHMEM_UNLIKELY(other >> 16 == c.next)) c.check_tag(word_, wanted, other, member);
      p.unsatisfied(c, word_, wanted, other, member);
    }
  }
}

/* What few calls need, out of line: instructions in between would have to be fetched, too. */
template <typename Scope> RUSHMEM_OUTLINED void await_wide_room(team t, typename call<Scope>::state_of so_far) {
  call<Scope>(t, so_far).make_wide_room();
}
template <typename Scope> RUSHMEM_OUTLINED void say_here_apart(team t, typename call<Scope>::state_of so_far) {
  so_far.room = call<Scope>::room_of(t);
  say_here(call<Scope>(t, so_far));
}
template <typename Scope> RUSHMEM_OUTLINED void hear_all_apart(team t, typename call<Scope>::state_of so_far, int but) {
  so_far.room = call<Scope>::room_of(t);
  hear_all(call<Scope>(t, so_far), so_far.next, but);
}

/* A warp's way through what it sends: two rows to each member in turn, or to all of them where they are the
 * same, and then the next two. */
struct rows_to_send {
  bool same;
  uint32_t row, step, end;
  int s, n;

  RUSHMEM_DEVICE bool any() const { return row < end; }
  RUSHMEM_DEVICE bool has_second() const { return row + step < end; }
  RUSHMEM_DEVICE bool last() const { return same || s + 1 == n; }
  RUSHMEM_DEVICE void go_on() {
    if (last()) {
      row += 2 * step;
      s = 1;
    } else {
      ++s;
    }
  }
};

/* A call: `source` of each member to the others and to `sink`; of member `root` alone where that is one. Rows
 * are loaded, stored and polled two at a time: the next ones are loaded before these are stored, behind which
 * their loads would wait. What does not depend on the phase is worked out before that is known, in kernels on
 * streams before their turn, and no load waits for another one. */
template <typename Scope, size_t unit, typename Sink>
RUSHMEM_DEVICE void exchange_wide(const team &t, uint64_t tag, const wide_array<unit> &source, Sink sink, int root) {
  call<Scope> c(t, {0, 0, opaque(call<Scope>::tag_of_blocks(tag)), 0, 0, 0});
  /* In front of all that is read of the team: the table of another world's need not be mapped here. */
  c.check_team();
  const uint32_t rows = rows_of(source.bytes), channels = c.channels(), warps = block::size() / 32, rank = block::rank();
  const uint32_t first = opaque(block_in_grid() + rank / 32 * channels), step = opaque(warps * channels);
  const uint32_t end = opaque(rank / 32 < warps ? rows : 0);
  const int n = t.raw.n_pes, me = t.raw.my_pe;
  const bool sends = root < 0 || root == me, none = block_in_grid() >= rows;
  const row_lane l;
  /* This warp's rows: here of member 0, and what this member sends to the first one to the right, in phases
   * that are multiples of RUSHMEM_TEAM_WIDE. */
  const uint32_t apart = step * row_bytes, phases_apart = opaque(static_cast<uint32_t>(n) * t.raw.wide);
  char *const here = wide_packets(c, 0, 0) + first * row_bytes;
  char *const own = here + static_cast<uint32_t>(me) * t.raw.wide;
  char *const right = opaque(c.near_at(own, c.right(1)));
  const phases_of_block answer = c.enter_by_blocks();
  if (c.is_idle()) {
    if constexpr (has_blocks<Scope>::meet) c.sync();
    return;
  }
  rows_to_send at{source.apart == 0, first, step, sends ? end : 0, 1, n};
  two_rows even, odd;
  if (at.any()) load_rows(even, source, c.right(1), first, step, at.has_second(), l);
  c.begin_by_blocks(answer);
  if (RUSHMEM_UNLIKELY(c.ask_lines)) {
    await_wide_room<Scope>(t, c.so_far());
    c.behind = RUSHMEM_TEAM_WIDE;
  }
  if (RUSHMEM_UNLIKELY((!sends || none) && rank == 0)) say_here_apart<Scope>(t, c.so_far());
  const uint32_t of_phase = static_cast<uint32_t>(c.next % RUSHMEM_TEAM_WIDE) * phases_apart;
  if (at.any()) {
    const uint64_t number = c.number(c.next);
    size_t offset = of_phase;
    /* One step: these rows go, and the next ones come. */
    const auto send = [&](const two_rows &now, two_rows &next) {
      rows_to_send then = at;
      then.go_on();
      if (then.any()) load_rows(next, source, c.right(then.s), then.row, step, then.has_second(), l);
      const bool second = at.has_second();
      if (RUSHMEM_LIKELY(at.s == 1)) store_rows(right + offset, apart, second, l, now, number);
      else store_rows(c.near_at(own, c.right(at.s)) + offset, apart, second, l, now, number);
      if (at.same) {
        RUSHMEM_ROLLED
        for (int s = 2; s < n; ++s) store_rows(c.near_at(own, c.right(s)) + offset, apart, second, l, now, number);
      }
      if (at.last()) offset += 2 * apart;
      at = then;
      return at.any();
    };
    RUSHMEM_ROLLED
    while (send(even, odd) && send(odd, even)) {
    }
  }
  if (call<Scope>::is_first()) c.take();
  const char *from = here + of_phase;
  Sink sinks[2] = {sink, sink};
  RUSHMEM_ROLLED
  for (uint32_t row = first; row < end; row += 2 * step) {
    const bool second = row + step < end;
    two_rows mine;
    if (sends) load_rows(mine, source, me, row, step, second, l);
    const char *theirs = from;
    RUSHMEM_ROLLED
    for (int member = 0; member < n; ++member) {
      if (root < 0 || member == root) {
        const two_rows got = member == me ? mine : receive_rows(c, theirs, apart, second, l, member);
        sinks[0].take(member, row, l, got.at[0]);
        if (second) sinks[1].take(member, row + step, l, got.at[1]);
      }
      theirs += t.raw.wide;
    }
    if (root < 0) heard_of_all();
    sinks[0].done(row, l);
    if (second) sinks[1].done(row + step, l);
    from += 2 * apart;
  }
  if (RUSHMEM_UNLIKELY((root >= 0 || none) && rank == 0)) {
    hear_all_apart<Scope>(t, c.so_far(), none ? me : root);
    heard_of_all();
  }
  loads_before_later();
  if (call<Scope>::is_first()) c.check_busy();
  block::sync();
  if (rank == 0) {
    store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
    ++c.next;
    if (block_in_grid() == 0) c.leave(answer.last.alone, answer.last.of_grid);
  }
  if constexpr (has_blocks<Scope>::meet) c.sync();
}

/* Of a tag: that the call goes by wide packets. */
constexpr uint64_t wide_call = uint64_t(1) << 40;

/* Arrays whose addresses or sizes are not those of whole vectors, out of line. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED_LARGE void move_wide(team t, uint64_t tag, wide_array<unit> from, wide_array<unit> to, int root) {
  exchange_wide<Scope>(t, tag, from, wide_blocks<unit>{to}, root);
}
template <typename Scope, size_t unit, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reduce_wide(team t, uint64_t tag, wide_array<unit> from, wide_array<unit> to) {
  exchange_wide<Scope>(t, tag, from, wide_reducing<unit, T, Op>{to, {}}, -1);
}

/* The whole call if it goes by wide packets: n elements of each member to each, of blocks that lie `apart`
 * elements from one another (0: the same to all), as they are or combined. `more` is tag_of()'s. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool wide_move(const team &t, uint32_t collective, uint64_t more, T *dst, size_t dst_apart, const T *src,
                              size_t src_apart, size_t n, int root) {
  if constexpr (call<Scope>::blocks) {
    if (!is_wide<Scope>(t, n * sizeof(T))) return false;
    const uint32_t bytes = static_cast<uint32_t>(n * sizeof(T));
    const uint64_t tag = tag_of(collective, bytes, more + wide_call);
    char *const from = reinterpret_cast<char *>(const_cast<T *>(src)), *const to = reinterpret_cast<char *>(dst);
    if (RUSHMEM_LIKELY(whole_vectors(from, to) && bytes % 16 == 0)) {
      const wide_array<16> sent{from, src_apart * sizeof(T), bytes}, got{to, dst_apart * sizeof(T), bytes};
      exchange_wide<Scope>(t, tag, sent, wide_blocks<16>{got}, root);
    } else {
      constexpr size_t unit = part_of<T>::value;
      move_wide<Scope, unit>(t, tag, {from, src_apart * sizeof(T), bytes}, {to, dst_apart * sizeof(T), bytes}, root);
    }
    return true;
  }
  return false;
}
template <typename Scope, typename T, typename Op>
RUSHMEM_DEVICE bool wide_reduce(const team &t, uint32_t collective, T *dst, const T *src, size_t apart, size_t n) {
  if constexpr (call<Scope>::blocks) {
    if (!is_wide<Scope>(t, n * sizeof(T))) return false;
    const uint32_t bytes = static_cast<uint32_t>(n * sizeof(T));
    const uint64_t tag = tag_of(collective, bytes, reduction<T, Op> + wide_call);
    char *const from = reinterpret_cast<char *>(const_cast<T *>(src)), *const to = reinterpret_cast<char *>(dst);
    if (RUSHMEM_LIKELY(whole_vectors(from, to) && bytes % 16 == 0)) {
      const wide_array<16> sent{from, apart * sizeof(T), bytes}, got{to, 0, bytes};
      exchange_wide<Scope>(t, tag, sent, wide_reducing<16, T, Op>{got, {}}, -1);
    } else {
      constexpr size_t unit = part_of<T>::value;
      reduce_wide<Scope, unit, T, Op>(t, tag, {from, apart * sizeof(T), bytes}, {to, 0, bytes});
    }
    return true;
  }
  return false;
}

}  // namespace impl
}  // namespace rushmem

#endif
