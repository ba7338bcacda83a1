/* Staging memory of a slot set: where it lies, and when it may be written.
 *
 * For each of RUSHMEM_TEAM_STAGES phases in turn and for each member there are `rushmem_team::stage` bytes.
 * A grid's channels have a part of them each, as of the packets (call.h). What a member writes in phase p
 * replaces what it wrote in phase p - 2. So the rule is:
 *
 *     A member that writes to staging memory in phase p knows that all members have ended phase p - 2.
 *
 * A block that has received from all members in phase p - 1 knows it, and in each call of a grid each block
 * receives from all. A call by one block may not say as much (a broadcast, an exchange of several chunks);
 * behind it each member's line says that it has ended that call. */
#ifndef RUSHMEM_IMPL_COLL_STAGING_H
#define RUSHMEM_IMPL_COLL_STAGING_H

#include <rushmem/impl/coll/call.h>

namespace rushmem {
namespace impl {

/* Bytes for each channel from one member in one phase: whole lines. */
template <typename Scope> RUSHMEM_DEVICE size_t stage_of_channel(const team &t) {
  if constexpr (call<Scope>::blocks) return t.raw.stage / call<Scope>::channels_of(t) / 128 * 128;
  return t.raw.stage;
}
/* And for all channels. */
template <typename Scope> RUSHMEM_DEVICE size_t stage_of_call(const team &t) {
  if constexpr (call<Scope>::blocks) return stage_of_channel<Scope>(t) * call<Scope>::channels_of(t);
  return t.raw.stage;
}

/* Where member `from` writes for this channel in a phase. */
template <typename Scope> RUSHMEM_DEVICE char *stage_at(const call<Scope> &c, uint64_t phase, int from) {
  const rushmem_team &raw = c.t.raw;
  const uint32_t place = static_cast<uint32_t>(phase % RUSHMEM_TEAM_STAGES) * static_cast<uint32_t>(raw.n_pes);
  char *at = c.staging() + static_cast<size_t>(place + static_cast<uint32_t>(from)) * raw.stage;
  if constexpr (call<Scope>::blocks) at += block_in_grid() * stage_of_channel<Scope>(c.t);
  return at;
}

/* Before this PE writes to staging memory. */
template <typename Scope> RUSHMEM_DEVICE void make_stage_room(call<Scope> &c) {
  if (RUSHMEM_LIKELY(!c.ask_lines)) return;
  c.await_lines(c.next - RUSHMEM_TEAM_STAGES + 1, false);
  call<Scope>::group::sync();
  c.ask_lines = false;
  c.behind = RUSHMEM_TEAM_STAGES;
}

}  // namespace impl
}  // namespace rushmem

#endif
