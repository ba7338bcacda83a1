/* Large broadcasts of a block, a warp or a thread between near members: the root says where its array is, and
 * all others read it. An SM stores 48 GB/s, wherever to (docs/performance-log.md, 24): a root that writes to
 * n - 1 members and to its own `dst` takes n times as long as one member that reads.
 *
 * It is one phase of the protocol in call.h, whose packets, one for each member, go from the root to the
 * others. Each has the array's offset in the heap, and the root's release before it. A member that has read
 * says so in its lines, as after any phase whose packets go one way; the root waits for these, as its array
 * may change once it returns. So there is one way to hear of the array and one to say that it is read, where
 * a direct call has two meetings of all. The others' `dst` is written by themselves alone.
 *
 * A root whose array is not symmetric says that instead, and the data goes another way, in a call behind this
 * one: members do not know of one another's sources. */
#ifndef RUSHMEM_IMPL_COLL_PULL_H
#define RUSHMEM_IMPL_COLL_PULL_H

#include <rushmem/impl/coll/between.h>
#include <rushmem/impl/coll/small.h>

namespace rushmem {
namespace impl {

#if !defined(RUSHMEM_CPU)
/* Vectors that a lane of a block has in flight on their way from a member: two GPUs' blocks of 512 threads
 * move 45 GB/s with 8 and 46.6 with 12 (docs/performance-log.md, 33). */
constexpr int vectors_read = 12;

/* What is less than a round of `held` vectors of each thread: in rounds of fewer, as each of them takes a way
 * there and back. */
template <int held> RUSHMEM_DEVICE void read_rest(char *to, const char *there, uint32_t bytes, uint32_t rank, uint32_t each) {
  if constexpr (held > 1) {
    constexpr int V = less_than<held>::value;
    if (bytes >= V * each) {
      const uint32_t mine = rank / 32 * (V * 512) + rank % 32 * 16;
      tile<32, V, 16, true, false> t;
      t.load(there + mine, 0);
      t.store(to + mine, 0, 0);
      if (bytes == V * each) return;
      there += V * each;
      to += V * each;
      bytes -= V * each;
    }
    read_rest<V>(to, there, bytes, rank, each);
  } else if (rank * 16 < bytes) {
    copy_vector<16, true, false>(to + rank * 16, there + rank * 16, 0);
  }
}

/* Whole vectors of a member to this PE's memory, by full warps of a block. Out of line, as copy_apart. */
template <int held> RUSHMEM_OUTLINED void read_rounds(char *to, const char *there, size_t bytes) {
  const uint32_t rank = block::rank(), each = block::size() * 16, round = held * each;
  const uint32_t mine = rank / 32 * (held * 512) + rank % 32 * 16;
  RUSHMEM_ROLLED
  for (; bytes >= round; bytes -= round) {
    tile<32, held, 16, true, false> t;
    t.load(there + mine, 0);
    t.store(to + mine, 0, 0);
    there += round;
    to += round;
  }
  read_rest<held>(to, there, static_cast<uint32_t>(bytes), rank, each);
}
#endif

/* `bytes` of a near member, which has released them. */
template <size_t unit, typename Group> RUSHMEM_DEVICE void read_from_one(char *to, const char *there, size_t bytes) {
#if !defined(RUSHMEM_CPU)
  if constexpr (!is_alone<Group>::value && !is_one_warp<Group>::value) {
    if (RUSHMEM_LIKELY(Group::size() % 32 == 0 && are_vectors(to, there, bytes))) {
      return read_rounds<vectors_read>(to, there, bytes);
    }
  }
#endif
  copy_fresh<Group, unit>(to, there, bytes);
}

/* What the tag of such a call has besides. */
constexpr uint64_t pulled_call = uint64_t(1) << 42;

/* What the root says of its array: where it is, or that it is nowhere that others can read. */
constexpr uint64_t not_symmetric = ~uint64_t(0);

/* The root says it. */
template <typename Scope> RUSHMEM_DEVICE uint64_t say_where(call<Scope> &c, const char *src, size_t bytes) {
  using group = typename call<Scope>::group;
  const int n = c.t.raw.n_pes, size = static_cast<int>(group::size()), first = static_cast<int>(group::rank()) + 1;
  const uint64_t said = is_symmetric(src, bytes) ? reinterpret_cast<uint64_t>(src) - state().heap_base : not_symmetric;
  c.make_room();
  packet *const own = c.packets(c.next, c.t.raw.my_pe);
  for (int s = first; s < n; s += size) c.send(own, said, c.next, c.right(s));
  c.check_busy();
  return said;
}

/* A thread of another member hears it. */
template <typename Scope> RUSHMEM_DEVICE uint64_t hear_where(call<Scope> &c, int root) {
  c.check_busy();
  const uint64_t said = c.receive(c.packets(c.next, root), c.next, root);
  fence_acquire();
  return said;
}

/* The root's array is copied to its own `dst`, and read by the others. */
template <typename Group, size_t unit>
RUSHMEM_DEVICE void take_array(const team &t, char *dst, const char *src, size_t bytes, int root, uint64_t said) {
  if (said == not_symmetric) return;
  if (t.raw.my_pe != root) {
    const char *const at = reinterpret_cast<const char *>(state().heap_base + said);
    read_from_one<unit, Group>(dst, run_address(at, t.world_pe(root)), bytes);
  } else if (dst != src) {
    write_to_one<unit, Group>(dst, src, bytes);
  }
}

/* The end of the phase, and of the call. */
template <typename Scope> RUSHMEM_DEVICE void end_pull(call<Scope> &c, int root) {
  loads_before_later();
  c.ended();
  if (c.t.raw.my_pe == root) {
    c.await_lines(c.next - 1, true);
    fence_acquire();
    call<Scope>::group::sync();
    c.behind = 1;
  }
  c.end();
}

/* The whole call; or, where the root's array is not symmetric, one that has said so. Whether it was all. */
template <typename Scope, size_t unit>
RUSHMEM_OUTLINED_LARGE bool broadcast_pulled(team t, uint64_t tag, char *dst, const char *src, size_t bytes, int root) {
  using group = typename call<Scope>::group;
  constexpr bool keeps = keeps_calls<Scope>::value;
  call<Scope> c(t, tag, true);
  if (call<Scope>::is_first()) c.tell();
  uint64_t said = 0;
  if (t.raw.my_pe == root) said = say_where(c, src, bytes);
  else if (!keeps || group::rank() == 0) said = hear_where(c, root);
  c.received_from(root);
  if constexpr (keeps) {
    if (group::rank() == 0) {
      kept_call<Scope> &k = keep(c, 0, c.behind);
      k.said = said;
      k.root = root;
    }
    group::sync();
    const kept_call<Scope> &k = keep_here<Scope>();
    take_array<group, unit>(k.t, dst, src, bytes, root, k.said);
    call<Scope> rest(k.t, k.state);
    end_pull(rest, k.root);
    return k.said != not_symmetric;
  } else {
    take_array<group, unit>(t, dst, src, bytes, root, said);
    end_pull(c, root);
    return said != not_symmetric;
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
