/* One collective call of this PE on one slot set, and what keeps calls apart.
 *
 * A slot set counts *phases*: each exchange of packets, and each arrival at a sync, is one. All members go
 * through the same phases in the same order. Whatever is written for phase p carries p, so nothing is ever
 * reset. Packets have places for four phases in turn: what phase p writes may replace what phase p - 4 wrote
 * once its reader is done with that. So the rule is:
 *
 *     Who sends packets of phase p knows that all members have ended phase p - 4.
 *
 * A member that has entered a call has ended all calls before it, and an exchange has heard from every
 * member: after calls whose data goes both ways `known` is at most three phases behind. Where data goes one
 * way (broadcast) its readers hear from the root alone, which may have heard from some of them long ago. So
 * members store the phase that they have ended into their line at every other member, and whichever member
 * sends packets next, the root or another, looks at the lines first where `known` is too old. They nearly
 * always say so already.
 *
 * A number that travels is `phase << 16 | tag`. The tag says which collective it is, of how much: members
 * whose calls differ end with an error instead of mixing them up. */
#ifndef RUSHMEM_IMPL_COLL_CALL_H
#define RUSHMEM_IMPL_COLL_CALL_H

#include <rushmem/impl/stall.h>
#include <rushmem/packed.h>
#include <rushmem/team.h>

namespace rushmem {
namespace impl {

/* 16 bits of what all members must have in common. */
RUSHMEM_DEVICE uint64_t tag_of(uint32_t collective, uint64_t size, uint64_t more = 0) {
  const uint64_t mixed = (size * 0x9e3779b97f4a7c15u) ^ (more * 0xc2b2ae3d27d4eb4fu);
  return static_cast<uint64_t>(collective) << 12 | (mixed >> 52);
}

/* Stores to a member that may not be in the run around this PE, or not mapped. Out of line, as nearly all
 * teams are near: their registers are not there for it. */
template <typename W> RUSHMEM_OUTLINED void store_line_any(W *line, uint64_t value, int pe) {
  const route to = route_to(pe);
  if (to.is_far()) far_p(line, value, pe);
  else store_relaxed_word(to.at(line), value);
}
template <typename P> RUSHMEM_OUTLINED void store_packet_any(P *slot, uint64_t value, uint64_t number, int pe) {
  const route to = route_to(pe);
  if (to.is_far()) far_packet(slot, value, number, pe);
  else store_packet(to.at(slot), value, number);
}

template <typename Scope> struct call {
  const team &t;
  rushmem_team_slots *slots;
  uint64_t next;  /* the phase to come */
  uint64_t known; /* a phase that all members have ended */
  uint64_t tag;
  uint64_t busy;  /* in the scope's first thread: whether the slot set was in use */
  uint32_t about; /* for reports: collective and team */

  /* All threads of the scope enter, which synchronises them. */
  RUSHMEM_DEVICE call(const team &team_, uint32_t collective, uint64_t tag_) : t(team_), tag(tag_), busy(0) {
    about = t.raw.id << 8 | collective;
    slots = reinterpret_cast<rushmem_team_slots *>(t.raw.slots);
    if (RUSHMEM_UNLIKELY(!slots || t.raw.heap_base != state().heap_base)) fail(RUSHMEM_DEVICE_FAIL_TEAM);
    Scope::sync();
    known = load_relaxed_word(&slots->known);
    next = load_relaxed_word(&slots->phase) + 1;
    if (Scope::rank() == 0) {
      busy = swap_word(&slots->busy, uint64_t(1));
      store_relaxed_word(&slots->current, number(next));
    }
  }

  RUSHMEM_DEVICE uint64_t number(uint64_t phase) const { return phase << 16 | tag; }

  /* Once something is on its way to others: the answer has come meanwhile. */
  RUSHMEM_DEVICE void check_busy() {
    if (RUSHMEM_UNLIKELY(busy != 0)) stop_for_good(RUSHMEM_STALL_BUSY, &slots->busy, 0, 1, -1);
    busy = 0;
  }

  /* What this PE alone has of the slot set, and what its members write. */
  RUSHMEM_DEVICE rushmem_sync_line *lines() const { return reinterpret_cast<rushmem_sync_line *>(slots + 1); }
  RUSHMEM_DEVICE packet *packets(uint64_t phase, int from) const {
    packet *all = reinterpret_cast<packet *>(lines() + t.raw.n_pes);
    const uint32_t place = static_cast<uint32_t>(phase % RUSHMEM_TEAM_PHASES) * static_cast<uint32_t>(t.raw.n_pes);
    return all + static_cast<size_t>(place + static_cast<uint32_t>(from)) * t.raw.packets;
  }

  /* The member `steps` to the right of this one, 0 < steps < n. */
  RUSHMEM_DEVICE int right(int steps) const {
    const int at = t.raw.my_pe + steps;
    return at < t.raw.n_pes ? at : at - t.raw.n_pes;
  }

  /* This PE's memory as `member` has it, where all members are near. */
  template <typename T> RUSHMEM_DEVICE T *near_at(T *local, int member) const {
    return run_address(local, t.world_pe(member));
  }

  /* Ends the launch, with a report that says why. */
  RUSHMEM_DEVICE void stop_for_good(int why, const uint64_t *word_, uint64_t expected, uint64_t seen, int pe) const {
    rushmem_stall_stop(0, 0, reinterpret_cast<uint64_t>(word_), about, why, pe, expected, seen);
  }

  /* `seen` has the phase that was waited for. */
  RUSHMEM_DEVICE void check_tag(const uint64_t *word_, uint64_t expected, uint64_t seen, int member) const {
    if (RUSHMEM_UNLIKELY(seen != expected)) {
      stop_for_good(RUSHMEM_STALL_MISMATCH, word_, expected, seen, t.world_pe(member));
    }
  }

  /* A member that is in the same phase, and in another call, may wait for this one. */
  RUSHMEM_DEVICE void check_call(int member) const {
    if (!t.raw.all_near) return;
    const uint64_t ours = load_relaxed_word(&slots->current), theirs = load_relaxed_word(near_at(&slots->current, member));
    if (ours >> 16 == theirs >> 16) check_tag(&slots->current, ours, theirs, member);
  }

  /* Counts a poll of a word by which member `member` shows itself, and makes the stops. */
  struct patience {
    uint32_t polls = 0;
    stall_mark mark{0, polls_before_help};
    RUSHMEM_DEVICE void unsatisfied(const call &c, const uint64_t *word_, uint64_t expected, uint64_t seen, int member) {
      pause(polls == 0);
      if (RUSHMEM_UNLIKELY(++polls == mark.next)) {
        c.check_call(member);
        mark = rushmem_stall_stop(polls, mark.since, reinterpret_cast<uint64_t>(word_), c.about,
                                  RUSHMEM_STALL_COLLECTIVE, c.t.world_pe(member), expected, seen);
      }
    }
  };

  /* ---- lines ---- */

  /* Stores a phase into this PE's line at the members from this thread's share. */
  RUSHMEM_DEVICE void show(uint64_t phase) {
    const int n = t.raw.n_pes;
    for (int s = static_cast<int>(Scope::rank()) + 1; s < n; s += static_cast<int>(Scope::size())) {
      const int member = right(s);
      uint64_t *line = &lines()[t.raw.my_pe].epoch;
      if (RUSHMEM_LIKELY(t.raw.all_near)) store_relaxed_word(near_at(line, member), number(phase));
      else store_line_any(line, number(phase), t.world_pe(member));
    }
  }

  /* Waits until the lines of this thread's share of the members show that phase or a later one. `exactly`:
   * that one is of this call, or the member is one ahead. */
  RUSHMEM_DEVICE void await_lines(uint64_t phase, bool exactly) {
    const int n = t.raw.n_pes;
    for (int s = static_cast<int>(Scope::rank()) + 1; s < n; s += static_cast<int>(Scope::size())) {
      const int member = right(s);
      const uint64_t *line = &lines()[member].epoch;
      patience p;
      uint64_t seen = load_relaxed_word(line);
      for (; seen >> 16 < phase; seen = load_relaxed_word(line)) p.unsatisfied(*this, line, number(phase), seen, member);
      if (exactly && seen >> 16 == phase) check_tag(line, number(phase), seen, member);
    }
  }

  /* All members are here, with what their scopes did before: a phase. What is not complete without quiet() is
   * not waited for. */
  RUSHMEM_DEVICE void meet() {
    if (Scope::rank() == 0 && state().ring != nullptr) far_fence();
    Scope::sync();
    if (static_cast<int>(Scope::rank()) < t.raw.n_pes - 1) {
      fence_release();
      show(next);
      check_busy();
      await_lines(next, true);
      fence_acquire();
    }
    Scope::sync();
    known = next - 1;
    ++next;
  }

  /* The end of a phase whose packets went one way, once the whole scope is done with them. A member that is
   * not mapped must not see this phase's line after the next one's, hence the fence, as in meet(). */
  RUSHMEM_DEVICE void ended() {
    if (Scope::rank() == 0 && state().ring != nullptr) far_fence();
    Scope::sync();
    show(next);
    ++next;
  }

  /* Before this PE sends packets. Where `known` is too old, the phase before this one was a broadcast's,
   * whose end all members show. */
  RUSHMEM_DEVICE void make_room() {
    if (RUSHMEM_LIKELY(known + RUSHMEM_TEAM_PHASES >= next)) return;
    /* A line says that its member has entered that phase, or ended it. */
    await_lines(next - RUSHMEM_TEAM_PHASES + 1, false);
    Scope::sync();
    known = next - RUSHMEM_TEAM_PHASES;
  }

  /* ---- packets ---- */

  RUSHMEM_DEVICE void send(packet *own, uint64_t value, uint64_t phase, int member) const {
    if (RUSHMEM_LIKELY(t.raw.all_near)) store_packet(near_at(own, member), value, number(phase));
    else store_packet_any(own, value, number(phase), t.world_pe(member));
  }

  RUSHMEM_DEVICE uint64_t receive(const packet *own, uint64_t phase, int member) const {
    packet seen = load_packet(own);
    patience p;
    for (; seen.sequence >> 16 != phase; seen = load_packet(own)) {
      p.unsatisfied(*this, &own->sequence, number(phase), seen.sequence, member);
    }
    check_tag(&own->sequence, number(phase), seen.sequence, member);
    return seen.value;
  }

  /* The end: what the scope's threads have written may be read by all of them, and the slot set is free. */
  RUSHMEM_DEVICE void end() {
    check_busy();
    Scope::sync();
    if (Scope::rank() == 0) {
      store_relaxed_word(&slots->phase, next - 1);
      store_relaxed_word(&slots->known, known);
      store_relaxed_word(&slots->busy, uint64_t(0));
    }
  }
};

}  // namespace impl
}  // namespace rushmem

#endif
