/* Large broadcasts of grids between three members and more that are near: each of them sends about as many
 * bytes as the array has, where the root alone would send n - 1 times as many.
 *
 * A channel's share of the array is cut into a part for each member but the root. The root writes part j to
 * member j, and member j passes it on to the others. Parts go in chunks: in step k the root writes chunk k
 * of each part, while member j passes on chunk k - 1 of its own. As every channel has its own share, the
 * blocks of a grid need not wait for one another: while one waits, others keep the link busy.
 *
 * A step begins a phase, and ends with a word to all that says so. It begins once the root has ended the
 * step before it, and the others the one before that: the root writes on while members pass on, and waits
 * for who is two steps behind. That keeps the rule of call.h. A member that says phase p has heard p - 2
 * from all, and those that said it had heard p - 4 from all. The first phase says that `dst` may be written,
 * and the last that all of it has been.
 *
 * Memory: a member's word releases what all threads of its group wrote, and the group's barrier lies before
 * it; the one that hears it acquires, and its group's barrier lies behind. What the root wrote is passed on
 * by loads that bypass the L1 cache. Arrays are written once, each byte by one member. */
#ifndef RUSHMEM_IMPL_COLL_RELAY_H
#define RUSHMEM_IMPL_COLL_RELAY_H

#include <rushmem/impl/coll/direct.h>

namespace rushmem {
namespace impl {

/* This member has ended a step: a phase. As the first half of call::meet(). */
template <typename Scope> RUSHMEM_DEVICE void end_step(call<Scope> &c) {
  using group = typename call<Scope>::group;
  const int n = c.t.raw.n_pes, size = static_cast<int>(group::size()), first = static_cast<int>(group::rank()) + 1;
  group::sync();
  if (first < n) {
    fence_release();
    packet *own = c.packets(c.next, c.t.raw.my_pe);
    for (int s = first; s < n; s += size) c.send(own, 0, c.next, c.right(s));
    c.check_busy();
  }
  ++c.next;
}

/* Waits until the root has said one phase, and the others another one. */
template <typename Scope>
RUSHMEM_DEVICE void await_steps(const call<Scope> &c, int root, uint64_t of_root, uint64_t of_others) {
  using group = typename call<Scope>::group;
  const int n = c.t.raw.n_pes, size = static_cast<int>(group::size()), first = static_cast<int>(group::rank()) + 1;
  if (first < n) {
    for (int s = first; s < n; s += size) {
      const int member = c.right(s);
      const uint64_t phase = member == root ? of_root : of_others;
      c.receive(c.packets(phase, member), phase, member);
    }
    fence_acquire();
  }
  group::sync();
}

/* How a channel's share is cut: bytes of a part and of a chunk of it, in whole lines, and how many chunks.
 * The same for all channels, as all of them go through the same phases. Parts are those of the members to
 * the right of the root, in this order. */
struct relay_parts {
  size_t part, chunk;
  uint32_t chunks;

  /* Chunk `k` of part `j` of a channel's share. */
  RUSHMEM_DEVICE span at(const span &share, int j, uint32_t k) const {
    const size_t begin = share.begin + static_cast<size_t>(j) * part, offset = k * chunk;
    const size_t count = offset >= part ? 0 : part - offset < chunk ? part - offset : chunk;
    return clipped(begin + offset, count, share.end);
  }
  /* As much of the share as step `k` brings, for what needs no parts. */
  RUSHMEM_DEVICE span slice(const span &share, int parts, uint32_t k) const {
    const size_t bytes = static_cast<size_t>(parts) * chunk;
    return clipped(share.begin + k * bytes, bytes, share.end);
  }
  RUSHMEM_DEVICE static span clipped(size_t begin, size_t count, size_t end) {
    if (begin >= end) return {end, end};
    return {begin, end - begin < count ? end : begin + count};
  }
};

/* From so many bytes on, a chunk is whole pages of so many: copies of odd sizes end in rounds of few
 * bytes. */
constexpr size_t relay_page = 4 << 10;

template <typename Scope> RUSHMEM_DEVICE relay_parts parts_of(const call<Scope> &c, size_t bytes) {
  const size_t channels = call<Scope>::channels_of(c.t), parts = static_cast<size_t>(c.t.raw.n_pes) - 1;
  const size_t share = ((bytes + 127) / 128 + channels - 1) / channels;
  const size_t part = (share + parts - 1) / parts * 128;
  const uint32_t wanted = chunks_of_relays(bytes);
  const size_t least = (part + wanted - 1) / wanted, whole = least < relay_page ? 128 : relay_page;
  const size_t chunk = (least + whole - 1) / whole * whole;
  return {part, chunk, static_cast<uint32_t>((part + chunk - 1) / chunk)};
}

/* What the steps of a call have in common, the team as well. It lies in memory: what was kept in registers
 * meanwhile would be added to what a copy keeps in flight, and a kernel of 512 threads has 128 in all. */
struct relay_work {
  team t;
  char *dst;
  const char *src;
  span share;
  relay_parts parts;
  int root, mine; /* the part of this member; the root: -1 */
};

RUSHMEM_DEVICE char *at_member(const relay_work &w, int steps) {
  const int to = w.t.raw.my_pe + steps, n = w.t.raw.n_pes;
  return run_address(w.dst, w.t.world_pe(to < n ? to : to - n));
}

/* Chunk `k` of each part to its member, by the threads of `Group`. Channels begin with different members, so
 * that together they write to all of them. */
template <typename Group, size_t unit> RUSHMEM_DEVICE void send_chunks(const relay_work &w, uint32_t k) {
  const int others = w.t.raw.n_pes - 1;
  int j = static_cast<int>(block_in_grid() % static_cast<uint32_t>(others));
  RUSHMEM_ROLLED
  for (int i = 0; i < others; ++i) {
    const span piece = w.parts.at(w.share, j, k);
    ++j;
    if (piece.begin != piece.end) {
      copy_apart<Group, unit>(at_member(w, j) + piece.begin, w.src + piece.begin, piece.end - piece.begin);
    }
    if (j == others) j = 0;
  }
}

/* As much to the root's own array. */
template <typename Group, size_t unit> RUSHMEM_DEVICE void keep_chunks(const relay_work &w, uint32_t k) {
  if (w.dst == w.src) return;
  const span own = w.parts.slice(w.share, w.t.raw.n_pes - 1, k);
  copy_apart<Group, unit>(w.dst + own.begin, w.src + own.begin, own.end - own.begin);
}

/* The lower or the upper half of a block's warps. */
template <bool upper> struct half_of_block {
  RUSHMEM_DEVICE static uint32_t first() { return upper ? block::size() / 64 * 32 : 0; }
  RUSHMEM_DEVICE static uint32_t rank() { return block::rank() - first(); }
  RUSHMEM_DEVICE static uint32_t size() { return upper ? block::size() - first() : block::size() / 64 * 32; }
};

/* A half block's copies hold as many vectors as a warp's: there is nothing else that would hide a latency. */
#if !defined(RUSHMEM_CPU)
template <bool upper, bool fresh, bool signals> struct vectors_held<half_of_block<upper>, fresh, signals> {
  static constexpr int value = 12;
};
#endif

/* The root's step. */
template <typename Group, size_t unit> RUSHMEM_DEVICE void send_step(const relay_work &w, uint32_t k) {
  if constexpr (!is_alone<Group>::value && !is_one_warp<Group>::value) {
    if (w.dst != w.src && Group::size() >= 64) {
      using lower = half_of_block<false>;
      if (lower::rank() < lower::size()) return send_chunks<lower, unit>(w, k);
      return keep_chunks<half_of_block<true>, unit>(w, k);
    }
  }
  send_chunks<Group, unit>(w, k);
  keep_chunks<Group, unit>(w, k);
}

/* Another member's step: chunk `k` of its part, which the root has written here, to the others. */
template <typename Group, size_t unit> RUSHMEM_DEVICE void pass_on(const relay_work &w, uint32_t k) {
  RUSHMEM_ROLLED
  for (int s = 1; s < w.t.raw.n_pes; ++s) {
    const span piece = w.parts.at(w.share, w.mine, k);
    if (piece.begin == piece.end || s == w.t.raw.n_pes - 1 - w.mine) continue;
    copy_fresh<Group, unit>(at_member(w, s) + piece.begin, w.dst + piece.begin, piece.end - piece.begin);
  }
}

/* `bytes` from `src` of member `root` to the symmetric `dst` of all: the whole call. Out of line, and
 * nothing comes after it where it is called, so that other protocols and this one need no registers for each
 * other. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED void broadcast_by_relays(team t, uint64_t tag, char *dst, const char *src, size_t bytes, int root) {
  using group = typename call<Scope>::group;
  relay_work kept{t, dst, src, {}, {}, root, (t.raw.my_pe < root ? t.raw.n_pes : 0) + t.raw.my_pe - root - 1};
  const relay_work &w = *opaque(&kept);
  call<Scope> made(w.t, tag);
  call<Scope> &c = *opaque(&made);
  if (!c.is_idle()) {
    kept.share = block_part(c, 0, bytes);
    kept.parts = parts_of(c, bytes);
    c.make_room();
    end_step(c);
    RUSHMEM_ROLLED
    for (uint32_t k = 0; k <= w.parts.chunks; ++k) {
      await_steps(c, w.root, c.next - 1, c.next - (k == 0 ? 1 : 2));
      if (w.mine >= 0 && k > 0) pass_on<group, unit>(w, k - 1);
      if (w.mine < 0 && k < w.parts.chunks) send_step<group, unit>(w, k);
      end_step(c);
    }
    await_steps(c, w.root, c.next - 1, c.next - 1);
    c.behind = 3;
  }
  c.end();
}

}  // namespace impl
}  // namespace rushmem

#endif
