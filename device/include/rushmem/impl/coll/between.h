/* A direct call: two meetings of all members, and between them what moves the data (direct.h).
 *
 * A block keeps what it will need of the call in shared memory. An acquire drops the SM's L1 cache, and with
 * it what registers were saved to: each of them costs a trip to the L2 cache after the first meeting, and
 * behind a block's stores, which fill the way there, a microsecond (docs/performance-log.md, 33). So what
 * comes behind a copy takes nothing from registers that were live across it. */
#ifndef RUSHMEM_IMPL_COLL_BETWEEN_H
#define RUSHMEM_IMPL_COLL_BETWEEN_H

#include <rushmem/impl/coll/direct.h>

namespace rushmem {
namespace impl {

/* A call by one block, as it is between two steps of it. One at a time: its threads meet when a call begins
 * and when it ends. */
template <typename Scope> struct kept_call {
  team t;
  typename call<Scope>::state_of state;
  uint64_t said; /* what one member has said to all (pull.h) */
  int root;      /* which */
};
template <typename Scope> RUSHMEM_DEVICE kept_call<Scope> &keep_here() {
  __shared__ kept_call<Scope> kept;
  return *opaque(&kept);
}

/* Whether a scope keeps its calls so: one block. */
template <typename Scope> struct keeps_calls {
  using group = typename call<Scope>::group;
  static constexpr bool value = !call<Scope>::blocks && !is_alone<group>::value && !is_one_warp<group>::value;
};

/* By the first thread, in front of a barrier of the block: the call, as it will be `phases` on. */
template <typename Scope> RUSHMEM_DEVICE kept_call<Scope> &keep(const call<Scope> &c, uint32_t phases, uint32_t behind) {
  kept_call<Scope> &k = keep_here<Scope>();
  k.t = c.t;
  k.state = {c.next + phases, behind, c.tag, c.idle, c.room, c.idle};
  return k;
}

/* The call: `move(c)` between its meetings. */
template <typename Scope, typename Move> RUSHMEM_DEVICE void direct_call(const team &t, uint64_t tag, Move move) {
  const auto finish = [](call<Scope> &c) {
    c.meet_behind_puts();
    written(c);
    c.end();
  };
  call<Scope> c(t, tag, true);
  if constexpr (keeps_calls<Scope>::value) {
    if (call<Scope>::group::rank() == 0) keep(c, 1, 2);
    c.meet_first();
    const kept_call<Scope> &k = keep_here<Scope>();
    move(call<Scope>(k.t, k.state));
    call<Scope> rest(k.t, k.state);
    finish(rest);
  } else {
    c.meet_first();
    move(c);
    finish(c);
  }
}

}  // namespace impl
}  // namespace rushmem

#endif
