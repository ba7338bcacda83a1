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
 * `rushmem_team::wide` bytes. Every channel has a part of them, as of the packets (call.h). What a member
 * writes in phase p replaces what it wrote in phase p - 2. So the rule is:
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
  RUSHMEM_DEVICE pair load(const char *from, uint32_t offset) const {
    if (offset >= bytes) return {0, 0};
    if constexpr (whole) return load_pair(from + offset);
    else return gather_pair<unit>(from + offset, bytes - offset);
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

/* Where member `from` writes for this channel in a phase: `rows` at most. */
template <typename Scope> RUSHMEM_DEVICE char *wide_packets(const call<Scope> &c, uint64_t phase, int from, uint32_t rows) {
  const rushmem_team &raw = c.t.raw;
  const uint32_t place = static_cast<uint32_t>(phase % RUSHMEM_TEAM_WIDE) * static_cast<uint32_t>(raw.n_pes);
  return c.wide() + static_cast<size_t>(place + static_cast<uint32_t>(from)) * raw.wide +
         static_cast<size_t>(block_in_grid() * rows) * row_bytes;
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

/* By a whole warp: its row of the phase to come, once it is here. */
template <typename Scope>
RUSHMEM_DEVICE row_part receive_row(const call<Scope> &c, const char *from, const row_lane &l, int member) {
  const packet *const low = reinterpret_cast<const packet *>(from) + l.lane;
  const uint64_t wanted = c.number(c.next);
  const bool numbers = l.has_numbers();
  typename call<Scope>::patience p;
  for (;;) {
    packet first{0, wanted}, second{0, wanted};
#if defined(RUSHMEM_CPU)
    if (numbers)
#endif
    {
      first = load_packet(low);
      second = load_packet(low + 32);
    }
    const bool here = !numbers || (first.sequence == wanted && second.sequence == wanted);
    if (RUSHMEM_LIKELY(__all_sync(0xffffffffu, here))) {
#if defined(RUSHMEM_CPU)
      if (!numbers) {
        first = load_packet(low);
        second = load_packet(low + 32);
      }
#endif
      if (numbers) return {{first.value, second.value}, {first.value, second.value}};
      return {{first.value, first.sequence}, {second.value, second.sequence}};
    }
    if (!here) {
      const packet *late = first.sequence != wanted ? low : low + 32;
      const uint64_t other = first.sequence != wanted ? first.sequence : second.sequence;
      if (RUSHMEM_UNLIKELY(other >> 16 == c.next)) c.check_tag(&late->sequence, wanted, other, member);
      p.unsatisfied(c, &late->sequence, wanted, other, member);
    }
    __syncwarp();
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

/* A call: `source` of each member to the others and to `sink`; of member `root` alone where that is one. Rows
 * are dealt out to the channels in turn, of which each has room for `room`. */
template <typename Scope, size_t unit, typename Sink>
RUSHMEM_DEVICE void exchange_wide(const team &t, uint64_t tag, uint32_t room, const wide_array<unit> &source, Sink sink,
                                  int root) {
  call<Scope> c(t, {0, 0, call<Scope>::tag_of_blocks(tag), 0, 0});
  const phases_of_block answer = c.enter_by_blocks();
  if (c.is_idle()) {
    if constexpr (has_blocks<Scope>::meet) c.sync();
    return;
  }
  const uint32_t rows = rows_of(source.bytes), channels = c.channels(), warps = block::size() / 32, rank = block::rank();
  const uint32_t first = block_in_grid() + rank / 32 * channels, step = warps * channels;
  const uint32_t end = rank / 32 < warps ? rows : 0;
  const int n = t.raw.n_pes, me = t.raw.my_pe;
  const bool sends = root < 0 || root == me, none = block_in_grid() >= rows;
  const row_lane l;
  row_part v{};
  if (sends && first < end) v = source.load(c.right(1), first, l);
  const phases_of_block found = c.tell_block(answer);
  c.begin(found.last, found.ended);
  if (RUSHMEM_UNLIKELY(c.ask_lines)) {
    await_wide_room<Scope>(t, c.so_far());
    c.behind = RUSHMEM_TEAM_WIDE;
  }
  if (RUSHMEM_UNLIKELY((!sends || none) && rank == 0)) say_here_apart<Scope>(t, c.so_far());
  const uint32_t place = rank / 32 * row_bytes;
  char *own = wide_packets(c, c.next, me, room) + place;
  RUSHMEM_ROLLED
  for (uint32_t row = first, s = 1; sends && row < end;) {
    /* The next one is loaded before this one is stored, behind which its load would wait. */
    const bool last = s + 1 == static_cast<uint32_t>(n);
    const uint32_t next_s = last ? 1 : s + 1, next_row = last ? row + step : row;
    row_part ahead = v;
    if (next_row < end && (source.apart != 0 || last)) ahead = source.load(c.right(static_cast<int>(next_s)), next_row, l);
    store_row(c.near_at(own, c.right(static_cast<int>(s))), l, v, c.number(c.next));
    if (last) own += warps * row_bytes;
    v = ahead;
    s = next_s;
    row = next_row;
  }
  if (call<Scope>::is_first()) c.take();
  const char *from = wide_packets(c, c.next, 0, room) + place;
  RUSHMEM_ROLLED
  for (uint32_t row = first; row < end; row += step) {
    if (sends) v = source.load(me, row, l);
    const char *theirs = from;
    RUSHMEM_ROLLED
    for (int member = 0; member < n; ++member) {
      if (root < 0 || member == root) sink.take(member, row, l, member == me ? v : receive_row(c, theirs, l, member));
      theirs += t.raw.wide;
    }
    sink.done(row, l);
    from += warps * row_bytes;
  }
  if (RUSHMEM_UNLIKELY((root >= 0 || none) && rank == 0)) hear_all_apart<Scope>(t, c.so_far(), none ? me : root);
  loads_before_later();
  if (call<Scope>::is_first()) c.check_busy();
  block::sync();
  if (rank == 0) {
    store_relaxed_word(c.ended_by_blocks() + block_in_grid(), c.next);
    ++c.next;
    if (block_in_grid() == 0) c.leave(found.last.alone.value, found.last.of_grid);
  }
  if constexpr (has_blocks<Scope>::meet) c.sync();
}

/* Of a tag: that the call goes by wide packets. */
constexpr uint64_t wide_call = uint64_t(1) << 40;

/* Arrays whose addresses or sizes are not those of whole vectors, out of line. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED_LARGE void move_wide(team t, uint64_t tag, uint32_t room, wide_array<unit> from, wide_array<unit> to, int root) {
  exchange_wide<Scope>(t, tag, room, from, wide_blocks<unit>{to}, root);
}
template <typename Scope, size_t unit, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reduce_wide(team t, uint64_t tag, uint32_t room, wide_array<unit> from, wide_array<unit> to) {
  exchange_wide<Scope>(t, tag, room, from, wide_reducing<unit, T, Op>{to, {}}, -1);
}

/* The whole call if it goes by wide packets: n elements of each member to each, of blocks that lie `apart`
 * elements from one another (0: the same to all), as they are or combined. `more` is tag_of()'s. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool wide_move(const team &t, uint32_t collective, uint64_t more, T *dst, size_t dst_apart, const T *src,
                              size_t src_apart, size_t n, int root) {
  if constexpr (call<Scope>::blocks) {
    const uint32_t room = wide_rows<Scope>(t, n * sizeof(T)), bytes = static_cast<uint32_t>(n * sizeof(T));
    if (room == 0) return false;
    const uint64_t tag = tag_of(collective, bytes, more + wide_call);
    char *const from = reinterpret_cast<char *>(const_cast<T *>(src)), *const to = reinterpret_cast<char *>(dst);
    if (RUSHMEM_LIKELY(whole_vectors(from, to) && bytes % 16 == 0)) {
      const wide_array<16> sent{from, src_apart * sizeof(T), bytes}, got{to, dst_apart * sizeof(T), bytes};
      exchange_wide<Scope>(t, tag, room, sent, wide_blocks<16>{got}, root);
    } else {
      constexpr size_t unit = part_of<T>::value;
      move_wide<Scope, unit>(t, tag, room, {from, src_apart * sizeof(T), bytes}, {to, dst_apart * sizeof(T), bytes}, root);
    }
    return true;
  }
  return false;
}
template <typename Scope, typename T, typename Op>
RUSHMEM_DEVICE bool wide_reduce(const team &t, uint32_t collective, T *dst, const T *src, size_t apart, size_t n) {
  if constexpr (call<Scope>::blocks) {
    const uint32_t room = wide_rows<Scope>(t, n * sizeof(T)), bytes = static_cast<uint32_t>(n * sizeof(T));
    if (room == 0) return false;
    const uint64_t tag = tag_of(collective, bytes, reduction<T, Op> + wide_call);
    char *const from = reinterpret_cast<char *>(const_cast<T *>(src)), *const to = reinterpret_cast<char *>(dst);
    if (RUSHMEM_LIKELY(whole_vectors(from, to) && bytes % 16 == 0)) {
      const wide_array<16> sent{from, apart * sizeof(T), bytes}, got{to, 0, bytes};
      exchange_wide<Scope>(t, tag, room, sent, wide_reducing<16, T, Op>{got, {}}, -1);
    } else {
      constexpr size_t unit = part_of<T>::value;
      reduce_wide<Scope, unit, T, Op>(t, tag, room, {from, apart * sizeof(T), bytes}, {to, 0, bytes});
    }
    return true;
  }
  return false;
}

}  // namespace impl
}  // namespace rushmem

#endif
