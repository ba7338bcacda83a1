/* Collectives of middling size, between members that are near, by staging memory: one meeting instead of two.
 *
 * A call is one phase: each member writes what it has for the others into their staging memory (staging.h),
 * all meet, and each takes its part out. No member waits until another's arrays may be written. A member
 * takes out what has come before it sends anything of the next phase.
 *
 * Data goes once over the link, as in the direct protocol, and once more through this GPU's memory. */
#ifndef RUSHMEM_IMPL_COLL_STAGED_H
#define RUSHMEM_IMPL_COLL_STAGED_H

#include <rushmem/impl/coll/combine.h>
#include <rushmem/impl/coll/staging.h>

namespace rushmem {
namespace impl {

/* This channel's bytes of those for each member. */
template <typename Scope> RUSHMEM_DEVICE span staged_part(const call<Scope> &c, size_t bytes) {
  return block_part(c, 0, bytes);
}

/* This block's part to all other members' staging memory: each gets what lies `apart` bytes behind what goes
 * to the one before it. Where `own` is not null, this member's goes there as well. */
template <size_t unit, typename Scope>
RUSHMEM_DEVICE void send_staged(call<Scope> &c, const char *src, size_t apart, size_t bytes, char *own) {
  using group = typename call<Scope>::group;
  const span mine = staged_part(c, bytes);
  const size_t count = mine.end - mine.begin;
  make_stage_room(c);
  if (count == 0) return;
  const int n = c.t.raw.n_pes, me = c.t.raw.my_pe;
  char *const stage = stage_at(c, c.next, me);
  const char *from_own = src + static_cast<size_t>(me) * apart + mine.begin;
  if (own != nullptr) own += mine.begin;
  if (own == from_own) own = nullptr;
  if constexpr (!is_alone<group>::value && !is_one_warp<group>::value) {
    if (own != nullptr && n > 1 && group::size() >= 64) {
      using lower = half_of_block<false>;
      using upper = half_of_block<true>;
      if (lower::rank() >= lower::size()) return copy_apart<upper, unit>(own, from_own, count);
      RUSHMEM_ROLLED
      for (int s = 1; s < n; ++s) {
        const int to = c.right(s);
        copy_apart<lower, unit>(c.near_at(stage, to), src + static_cast<size_t>(to) * apart + mine.begin, count);
      }
      return;
    }
  }
  RUSHMEM_ROLLED
  for (int s = 1; s < n; ++s) {
    const int to = c.right(s);
    copy_apart<group, unit>(c.near_at(stage, to), src + static_cast<size_t>(to) * apart + mine.begin, count);
  }
  if (own != nullptr) copy_apart<group, unit>(own, from_own, count);
}

/* What has come from a member in a phase goes to `dst`: this block's part. */
template <size_t unit, typename Scope>
RUSHMEM_DEVICE void take_staged(const call<Scope> &c, char *dst, uint64_t phase, int member, size_t bytes) {
  const span mine = staged_part(c, bytes);
  if (mine.begin == mine.end) return;
  copy_fresh<typename call<Scope>::group, unit>(dst + mine.begin, stage_at(c, phase, member), mine.end - mine.begin);
}

/* A block of each member to each: member j's lies `apart` bytes times j behind `src`, and what comes from
 * member j goes to `dst` + j * `bytes`. In place, too: arrays are written once all has left. */
template <size_t unit, typename Scope>
RUSHMEM_DEVICE void exchange_staged(call<Scope> &c, char *dst, const char *src, size_t apart, size_t bytes) {
  if (c.is_idle()) return;
  const int n = c.t.raw.n_pes, me = c.t.raw.my_pe;
  const uint64_t phase = c.next;
  send_staged<unit>(c, src, apart, bytes, dst + static_cast<size_t>(me) * bytes);
  c.meet();
  RUSHMEM_ROLLED
  for (int s = 1; s < n; ++s) {
    const int from = c.right(s);
    take_staged<unit>(c, dst + static_cast<size_t>(from) * bytes, phase, from, bytes);
  }
  loads_before_later();
}

/* `bytes` from `src` of member `root` to `dst` of all. */
template <size_t unit, typename Scope>
RUSHMEM_DEVICE void broadcast_staged(call<Scope> &c, char *dst, const char *src, size_t bytes, int root) {
  if (c.is_idle()) return;
  const uint64_t phase = c.next;
  const bool is_root = c.t.raw.my_pe == root;
  if (is_root) send_staged<unit>(c, src, 0, bytes, dst);
  c.meet();
  if (!is_root) take_staged<unit>(c, dst, phase, root, bytes);
  loads_before_later();
}

/* Members' parts of a reduction: this one's own, and the others' in its staging memory. `own` is where this
 * block's part begins. */
struct staged_members {
  const char *own, *stage; /* of member 0 */
  size_t apart;
  int me;
  RUSHMEM_DEVICE const char *at(size_t offset, int member) const {
    return (member == me ? own : stage + static_cast<size_t>(member) * apart) + offset;
  }
};

/* Words [0, words) of parts of `bytes` bytes, one at a time. Out of line: for what has no whole vectors. */
template <typename Group, typename T, typename Op>
RUSHMEM_OUTLINED void combine_staged_words(staged_members from, int members, T *dst, size_t first, size_t bytes) {
  const auto part = [=](int m) { return reinterpret_cast<const T *>(from.at(0, m)); };
  const size_t n = bytes / sizeof(T), words = (bytes + 7) / 8;
  for (size_t w = first + Group::rank(); w < words; w += Group::size()) {
    accumulator<T, Op> so_far;
    so_far.begin(word_at(part(0), n, w));
    for (int m = 1; m < members; ++m) so_far.add(word_at(part(m), n, w));
    set_word(dst, n, w, so_far.result());
  }
}

/* Reduces what the members have for each other: member j's lies `apart` bytes times j behind `src`, or the
 * same goes to all (0). `dst` is this member's result. */
template <typename Op, typename Scope, typename T>
RUSHMEM_DEVICE void reduce_staged(call<Scope> &c, T *dst, const T *src, size_t apart, size_t bytes) {
  using group = typename call<Scope>::group;
  if (c.is_idle()) return;
  const uint64_t phase = c.next;
  send_staged<unit_of<T>::value>(c, reinterpret_cast<const char *>(src), apart, bytes, nullptr);
  c.meet();
  const span mine = staged_part(c, bytes);
  const size_t count = mine.end - mine.begin;
  const char *own = reinterpret_cast<const char *>(src) + static_cast<size_t>(c.t.raw.my_pe) * apart + mine.begin;
  char *to = reinterpret_cast<char *>(dst) + mine.begin;
  const staged_members from{own, stage_at(c, phase, 0), c.t.raw.stage, c.t.raw.my_pe};
  size_t done = 0;
  if (count != 0 && RUSHMEM_LIKELY(whole_vectors(to, own))) {
    combine_whole<Op, false, T>(c, to, from, count / 16);
    done = count / 16 * 16;
  }
  if (done < count) {
    combine_staged_words<group, T, Op>(from, c.t.raw.n_pes, reinterpret_cast<T *>(to), done / 8, count);
  }
  loads_before_later();
}

}  // namespace impl
}  // namespace rushmem

#endif
