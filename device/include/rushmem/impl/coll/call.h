/* One collective call of this PE on one slot set, and what keeps calls apart.
 *
 * A slot set counts *phases*: each exchange of packets, and each arrival at a sync, is one. All members go
 * through the same phases in the same order. Whatever is written for phase p carries p, so nothing is ever
 * reset. Packets have places for four phases in turn: what phase p writes may replace what phase p - 4 wrote
 * once its reader is done with that. So the rule is:
 *
 *     A member that sends packets of phase p knows that all members have ended phase p - 4.
 *
 * A member that has entered a call has ended all calls before it, and an exchange has received from every
 * member: after calls whose data goes both ways this PE is at most four phases `behind`. Where data goes one
 * way (broadcast) its readers receive from the root alone, which may have received nothing from some of them
 * for long. So members store the phase that they have ended into their line at every other member, and
 * whichever member sends packets next, the root or another, looks at the lines first where it is farther
 * `behind`. They nearly always say so already.
 * Who has received a packet of phase p knows what its sender knew, so nobody is ever more than five `behind`.
 *
 * A number that travels is `phase << 16 | tag`. The tag says which collective it is, of how much: members
 * whose calls differ end with an error instead of mixing them up.
 *
 * A grid. Each of its blocks is a *channel*: it has a part of every place's packets, the same at every
 * member, and block b of a member exchanges packets with block b of the others alone. Blocks need not wait
 * for one another, and each channel goes through all phases of all calls, with one packet at least in each
 * (in broadcasts, too), so that a block receives from all members in each phase and the rule holds for the
 * packets of its channel as it does for a call by one block. A PE makes one call at a time: when blocks of
 * another number begin, or one block alone, the last call has ended in all blocks of this PE, and whichever
 * block receives from a member in a new call knows that this one has ended the old call in all of its blocks.
 * So parts may be other ones then. All members have the same number of blocks, which the tag has in it.
 *
 * Which phase is next, a block keeps in a word of its own: with one word for all of them, a block could not
 * say whether the call that it is about to make is counted in it already. A block whose word is old, because
 * fewer blocks or one alone made the last calls, takes the largest of three: its own word, the phases by
 * calls of one block, and the phase at which calls by that many blocks began, which block 0 stores with the
 * phase that it has ended in 16 bytes that are seen whole. */
#ifndef RUSHMEM_IMPL_COLL_CALL_H
#define RUSHMEM_IMPL_COLL_CALL_H

#include <rushmem/impl/coll/grid.h>
#include <rushmem/impl/coll/slot_set.h>

namespace rushmem {
namespace impl {

template <typename Scope> struct call : slot_set<Scope> {
  using places = slot_set<Scope>;
  using typename places::group;
  using places::blocks, places::t, places::room, places::channels_of, places::room_of, places::channels;
  using places::is_idle, places::is_first, places::slots, places::lines, places::packets, places::grid_words;
  using places::ended_by_blocks, places::right, places::near_at;

  uint64_t next;   /* the phase to come */
  uint32_t behind; /* all members have ended the phase so many before it */
  uint32_t tag;
  /* In the first thread: what the slot set's word `busy` was as this call took it, and what it is while
   * nobody has taken it. The two are compared once the answer has come; before, they are the same. */
  uint64_t busy, idle;
  bool ask_lines = false; /* only lines say that the last call, by one block at most, has ended */

  /* What it has besides the team, for functions that are out of line. */
  struct state_of {
    uint64_t next;
    uint32_t behind, tag;
    uint64_t busy;
    uint32_t room;
    uint64_t idle;
  };
  RUSHMEM_DEVICE call(const team &team_, const state_of &s)
      : places{team_, s.room}, next(s.next), behind(s.behind), tag(s.tag), busy(s.busy), idle(s.idle) {}
  RUSHMEM_DEVICE state_of so_far() const { return {next, behind, tag, busy, room, idle}; }

  /* All threads of the scope enter, which synchronises them. A call that `meets` before all else
   * (meet_first) makes that meeting's release here, while the loads that say which phase it is are on their
   * way: nothing of it comes between the scope's barrier and the meeting. One by a block at most says what it
   * is behind that (tell). */
  RUSHMEM_DEVICE call(const team &team_, uint64_t tag_, bool meets = false)
      : places{team_, 0}, tag(static_cast<uint32_t>(tag_)), busy(0), idle(0) {
    if constexpr (blocks) {
      tag = tag_of_blocks(tag_);
      const phases_of_block answer = enter_by_blocks();
      if (meets) release_first();
      room = room_of(t);
      begin_by_blocks(answer);
      if (is_first()) take();
    } else {
      enter();
      room = room_of(t);
      const last_phases said = load_phases();
      if (meets) release_first();
      if (is_first()) occupy();
      begin(said, 0, true);
      if (is_first() && !meets) tell();
    }
  }

  /* All threads of the scope enter, which synchronises them. */
  RUSHMEM_DEVICE void enter() const {
    check_team();
    await_turn();
    sync();
  }

  /* The threads of a block of a grid enter, and its first one asks what the slot set says: hundreds of warps
   * would take their turns at one line of the L2 cache. In the first thread: the answer. */
  RUSHMEM_DEVICE phases_of_block enter_by_blocks() const {
    enter();
    /* Not set in the other threads: then no load of theirs waits for it. */
    phases_of_block answer;
    if (group::rank() == 0 && !is_idle()) answer = {load_phases(), load_relaxed_word(ended_by_blocks() + block_in_grid())};
    return answer;
  }
  /* All threads of the block, behind what they have asked for meanwhile: begins with what the first one has
   * found. */
  RUSHMEM_DEVICE void begin_by_blocks(const phases_of_block &answer) {
    __shared__ uint64_t found;
    if (group::rank() == 0) {
      begin(answer.last, answer.ended);
      found = next << 16 | behind << 1 | ask_lines;
    }
    group::sync();
    const uint64_t said = found;
    next = said >> 16;
    behind = static_cast<uint16_t>(said) >> 1;
    ask_lines = (said & 1) != 0;
  }

  /* A call that is one meeting and nothing else: what meet() and end() make of it, but with two barriers of
   * the scope for four, as nothing comes between the call's first one and the meeting, or between that and
   * the end; and with the loads that say which phase it is on their way while the fence waits, as in sync.h.
   * (Nothing else depends on what they find: that the slot set is in use, and by what, is for reports.)
   * `before` is what the first thread does in front of all that. */
  template <typename Before> RUSHMEM_DEVICE static void meet_only(const team &t, uint64_t tag, Before before) {
    if constexpr (blocks) {
      call c(t, tag);
      if (group::rank() == 0) before();
      c.meet();
      c.end();
    } else {
      call c(t, tag, meets_only{});
      /* What the first thread posts, and waits for, comes before the stores of all threads. */
      if (RUSHMEM_UNLIKELY(state().ring != nullptr)) {
        if (group::rank() == 0) {
          before();
          far_fence();
        }
        group::sync();
      }
      const uint64_t ended = load_plain_word(&c.slots()->ended);
      if (RUSHMEM_LIKELY(static_cast<int>(group::rank()) < t.raw.n_pes - 1)) {
        fence_release();
        c.next = (opaque(ended) >> 16) + 1;
        c.show(c.next);
        if (is_first()) {
          c.idle = ended;
          c.take();
        }
        c.check_busy();
        c.await_lines(c.next, true);
        fence_acquire();
      } else {
        c.next = (ended >> 16) + 1;
        if (is_first()) {
          c.idle = ended;
          c.take();
        }
        c.check_busy();
      }
      c.met();
      c.free_slots();
    }
  }
  struct meets_only {};
  RUSHMEM_DEVICE call(const team &team_, uint64_t tag_, meets_only)
      : places{team_, 0}, next(0), behind(0), tag(static_cast<uint32_t>(tag_)), busy(0), idle(0) {
    enter();
  }
  RUSHMEM_DEVICE void check_team() const {
    if (RUSHMEM_UNLIKELY(!t.raw.slots || t.raw.heap_base != state().heap_base)) fail(RUSHMEM_DEVICE_FAIL_TEAM);
  }

  RUSHMEM_DEVICE last_phases load_phases() const {
    if constexpr (blocks) {
      return {load_relaxed_word(&slots()->alone), load_packet(grid_words())};
    } else {
      return {load_plain_word(&slots()->ended), {}};
    }
  }

  /* All that has ended, as words of the slot set say: phases by calls of one block at most and which of them
   * all members have ended; what block 0 has left; what this block has. One block at most: of all calls.
   * `taken`: the slot set has been taken, which others do later. */
  RUSHMEM_DEVICE void begin(const last_phases &said, uint64_t own, bool taken = false) {
    const packet &of_grid = said.of_grid;
    const uint64_t alone = said.alone >> 16;
    uint64_t last = of_grid.sequence;
    if constexpr (blocks) {
      if ((of_grid.value & 0xffff) == channels()) last = of_grid.value >> 16;
      if (own > last) last = own;
    }
    behind = RUSHMEM_TEAM_PHASES;
    if (!blocks || alone >= last) {
      last = alone;
      behind = ended_ago(said.alone) + 1;
      ask_lines = behind > 2 && (said.alone & ended_by_grid) == 0;
    }
    if (!blocks && is_first()) {
      idle = said.alone;
      if (!taken) busy = idle;
    }
    next = last + 1;
  }

  /* By the first thread: the slot set is in use, and by what. */
  RUSHMEM_DEVICE void take() {
    occupy();
    tell();
  }
  RUSHMEM_DEVICE void occupy() { busy = swap_word(&slots()->busy, uint64_t(RUSHMEM_TEAM_BUSY)); }
  /* Whether the slot set was in use, or to one block: has been used since what this call has found. */
  RUSHMEM_DEVICE bool was_busy() const { return blocks ? busy == RUSHMEM_TEAM_BUSY : busy != idle; }
  RUSHMEM_DEVICE void tell() const {
    store_relaxed_word(&slots()->current, number(next));
    note_call(t.raw.slots - t.raw.heap_base, next, tag, t.world_pe(0));
  }

  /* What tells calls by other numbers of blocks apart. */
  RUSHMEM_DEVICE static uint32_t tag_of_blocks(uint64_t tag_) {
    return static_cast<uint32_t>(tag_) ^ (static_cast<uint32_t>(blocks_in_grid() * 0x9e3779b97f4a7c15u >> 52) | 1);
  }
  RUSHMEM_DEVICE uint64_t number(uint64_t phase) const { return phase << 16 | tag; }
  /* For reports: team and collective. */
  RUSHMEM_DEVICE uint32_t about() const { return t.raw.id << 8 | tag >> 12; }

  /* The threads of the scope meet; of blocks that do not wait for one another, those of each. */
  RUSHMEM_DEVICE void sync() const {
    if constexpr (has_blocks<Scope>::meet) meet_blocks(&slots()->arrived, about());
    else group::sync();
  }
  /* All of them. */
  RUSHMEM_DEVICE void sync_all_threads() const {
    if constexpr (blocks) meet_blocks(&slots()->arrived, about());
    else group::sync();
  }

  /* Once something is on its way to others: the answer has come meanwhile. */
  RUSHMEM_DEVICE void check_busy() {
    if (RUSHMEM_UNLIKELY(was_busy())) stop_for_good(RUSHMEM_STALL_BUSY, &slots()->busy, idle, busy, -1);
    busy = idle;
  }

  /* Ends the launch, with a report that says why. */
  RUSHMEM_DEVICE void stop_for_good(int why, const uint64_t *word_, uint64_t expected, uint64_t seen, int pe) const {
    rushmem_stall_stop(0, 0, reinterpret_cast<uint64_t>(word_), about(), why, pe, expected, seen);
  }

  /* Counts a poll of a word by which member `member` shows itself, and makes the stops. */
  struct patience {
    uint32_t polls = 0;
    stall_mark mark{0, polls_before_help};
    RUSHMEM_DEVICE void unsatisfied(const call &c, const uint64_t *word_, uint64_t expected, uint64_t seen, int member) {
      unsatisfied_by(c, word_, [expected] { return expected; }, seen, member);
    }
    /* `expected()`: worked out at stops alone. */
    template <typename Expected>
    RUSHMEM_DEVICE void unsatisfied_by(const call &c, const uint64_t *word_, Expected expected, uint64_t seen, int member) {
      pause(polls == 0);
      /* Of a call that has not asked yet (small.h): by now the answer is there. */
      if (RUSHMEM_UNLIKELY(c.was_busy())) c.stop_for_good(RUSHMEM_STALL_BUSY, &c.slots()->busy, c.idle, c.busy, -1);
      if (RUSHMEM_UNLIKELY(++polls == mark.next)) {
        const uint64_t *current = c.t.raw.all_near ? &c.slots()->current : nullptr;
        mark = stop_in_call(polls, mark.since, word_, c.about(), c.t.world_pe(member), expected(), seen, current);
      }
    }
  };

  /* `seen` has the phase that was waited for. */
  RUSHMEM_DEVICE void check_tag(const uint64_t *word_, uint64_t expected, uint64_t seen, int member) const {
    if (RUSHMEM_UNLIKELY(seen != expected)) {
      stop_for_good(RUSHMEM_STALL_MISMATCH, word_, expected, seen, t.world_pe(member));
    }
  }

  /* ---- lines, of calls by one block at most ---- */

  /* Stores a phase into this PE's line at the members from this thread's share. */
  RUSHMEM_DEVICE void show(uint64_t phase) {
    const int n = t.raw.n_pes;
    for (int s = static_cast<int>(group::rank()) + 1; s < n; s += static_cast<int>(group::size())) {
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
    for (int s = static_cast<int>(group::rank()) + 1; s < n; s += static_cast<int>(group::size())) {
      await_line(right(s), phase, exactly);
    }
  }
  RUSHMEM_DEVICE void await_line(int member, uint64_t phase, bool exactly) const {
    const uint64_t *line = &lines()[member].epoch;
    patience p;
    uint64_t seen = load_relaxed_word(line);
    for (; seen >> 16 < phase; seen = load_relaxed_word(line)) {
      p.unsatisfied_by(*this, line, [this, phase] { return number(opaque(phase)); }, seen, member);
    }
    if (exactly && seen >> 16 == phase && static_cast<uint16_t>(seen) != static_cast<uint16_t>(tag)) {
      check_tag(line, number(opaque(phase)), seen, member);
    }
  }

  /* All members are here, with what their scopes did before: a phase. What is not complete without quiet() is
   * not waited for. Blocks meet by a packet each: the release is cumulative, so that what the other blocks of
   * this PE did before a barrier of the grid goes with it. */
  RUSHMEM_DEVICE void meet() {
    if (is_idle()) return;
    if constexpr (blocks) make_room();
    if (group::rank() == 0 && state().ring != nullptr) far_fence();
    group::sync();
    if (static_cast<int>(group::rank()) < t.raw.n_pes - 1) {
      fence_release();
      meet_others();
    }
    met();
  }
  /* The same before all else, of a call that was entered so. */
  RUSHMEM_DEVICE void meet_first() {
    if (is_idle()) return;
    if constexpr (blocks) make_room();
    else if (is_first()) tell();
    if (static_cast<int>(group::rank()) < t.raw.n_pes - 1) meet_others();
    met();
  }
  RUSHMEM_DEVICE void release_first() const {
    if (RUSHMEM_UNLIKELY(state().ring != nullptr)) {
      if (group::rank() == 0) far_fence();
      group::sync();
    }
    if (static_cast<int>(group::rank()) < t.raw.n_pes - 1) fence_release();
  }
  /* By threads that have released. */
  RUSHMEM_DEVICE void meet_others() {
    if constexpr (blocks) {
      const int n = t.raw.n_pes, size = static_cast<int>(group::size()), first = static_cast<int>(group::rank()) + 1;
      packet *own = packets(next, t.raw.my_pe);
      for (int s = first; s < n; s += size) send(own, 0, next, right(s));
      check_busy();
      for (int s = first; s < n; s += size) receive(packets(next, right(s)), next, right(s));
      fence_acquire();
    } else {
      meet_lines();
    }
  }
  /* The same behind what this call has put, which is there for each member that has met: the first thread
   * of a scope puts to far members, and its fence in meet() orders that. The note is for checked runs;
   * meet() itself has none, as a program's own puts are in no order by a sync. */
  RUSHMEM_DEVICE void meet_behind_puts() {
    if (!t.raw.all_near) note(noted_fence);
    meet();
  }
  RUSHMEM_DEVICE void meet_lines() {
    show(next);
    check_busy();
    await_lines(next, true);
    fence_acquire();
  }
  RUSHMEM_DEVICE void met() {
    group::sync();
    heard_of_all();
    ++next;
    behind = 2;
  }

  /* In a phase whose packets go one way, behind those of `root`. Where it is all others, they have ended the
   * phase before, as after an exchange. */
  RUSHMEM_DEVICE void received_from(int root) {
    if (t.raw.n_pes == 2 && root != t.raw.my_pe) behind = 1;
  }

  /* The end of a phase whose packets went one way, once the whole scope is done with them. A member that is
   * not mapped must not see this phase's line after the next one's, hence the fence, as in meet(). */
  RUSHMEM_DEVICE void ended() {
    if (group::rank() == 0 && state().ring != nullptr) far_fence();
    group::sync();
    show(next);
    ++next;
    if (behind <= RUSHMEM_TEAM_PHASES) ++behind;
  }

  /* Before this PE sends packets. Where it is too far behind, the phase before this one was a broadcast's,
   * whose end all members show. */
  RUSHMEM_DEVICE void make_room() {
    if (RUSHMEM_LIKELY(behind <= RUSHMEM_TEAM_PHASES)) return;
    /* A line says that its member has entered that phase, or ended it. */
    await_lines(next - RUSHMEM_TEAM_PHASES + 1, false);
    group::sync();
    behind = RUSHMEM_TEAM_PHASES;
  }

  /* Before this PE sends wide packets, where `ask_lines`. */
  RUSHMEM_DEVICE void make_wide_room() {
    await_lines(next - RUSHMEM_TEAM_WIDE + 1, false);
    group::sync();
  }

  /* ---- packets ---- */

  RUSHMEM_DEVICE void send(packet *own, uint64_t value, uint64_t phase, int member) const {
    if (RUSHMEM_LIKELY(t.raw.all_near)) store_packet(near_at(own, member), value, number(phase));
    else store_packet_any(own, value, number(phase), t.world_pe(member));
  }

  /* Packets from a member, `apart` from one another, U at most, as many as begin among the next `left` ones;
   * `whole`: all of them. Their loads are in flight together, again and again until all have come. */
  template <uint32_t U> struct words {
    uint64_t at[U];
  };
  template <uint32_t U, bool whole = false>
  RUSHMEM_DEVICE words<U> receive_some(const packet *own, uint32_t apart, uint32_t left, uint64_t phase, int member) const {
    const uint64_t wanted = number(phase);
    patience p;
    for (;;) {
      words<U> got;
      uint64_t seen[U], differ = 0;
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        packet one{0, wanted};
        if (whole || u == 0 || u * apart < left) one = load_packet(own + u * apart);
        got.at[u] = one.value;
        seen[u] = one.sequence;
      }
      RUSHMEM_UNROLL
      for (uint32_t u = 0; u < U; ++u) differ |= seen[u] ^ wanted;
      if (RUSHMEM_LIKELY(differ == 0)) return got;
      uint32_t late = 0;
      uint64_t other = wanted;
      RUSHMEM_UNROLL
      for (uint32_t u = U; u-- > 0;) {
        if (seen[u] != wanted) {
          late = u;
          other = seen[u];
        }
      }
      const uint64_t *word_ = &own[static_cast<size_t>(late) * apart].sequence;
      if (RUSHMEM_UNLIKELY(other >> 16 == phase)) check_tag(word_, wanted, other, member);
      p.unsatisfied(*this, word_, wanted, other, member);
    }
  }
  RUSHMEM_DEVICE uint64_t receive(const packet *own, uint64_t phase, int member) const {
    return receive_some<1>(own, 0, 1, phase, member).at[0];
  }

  /* By the first thread of block 0, given what it has found: this call by all blocks has ended. */
  RUSHMEM_DEVICE void leave(uint64_t alone, packet of_grid) {
    if ((of_grid.value & 0xffff) != channels()) {
      alone >>= 16;
      of_grid.value = (alone > of_grid.sequence ? alone : of_grid.sequence) << 16 | channels();
    }
    store_packet(grid_words(), of_grid.value, next - 1);
    const uint64_t ended = ended_word(next - 1, RUSHMEM_TEAM_PHASES - 1) | ended_by_grid;
    store_plain_word(&slots()->ended, ended);
    store_relaxed_word(&slots()->busy, ended);
  }

  /* The end: what the scope's threads have written may be read by all of them, and the slot set is free. */
  RUSHMEM_DEVICE void end() {
    check_busy();
    group::sync();
    heard_of_all();
    free_slots();
    if constexpr (has_blocks<Scope>::meet) sync();
  }
  RUSHMEM_DEVICE void free_slots() {
    if (group::rank() != 0) return;
    if constexpr (blocks) {
      if (!is_idle()) store_relaxed_word(ended_by_blocks() + block_in_grid(), next - 1);
      if (block_in_grid() == 0) leave(load_relaxed_word(&slots()->alone), load_packet(grid_words()));
    } else {
      leave_alone(slots(), ended_word(next - 1, behind - 1));
    }
  }
  /* By the first thread: this call by one block at most has ended. */
  RUSHMEM_DEVICE static void leave_alone(rushmem_team_slots *set, uint64_t ended) {
    store_plain_word(&set->ended, ended);
    store_packet(reinterpret_cast<packet *>(&set->busy), ended, ended);
  }
};

}  // namespace impl
}  // namespace rushmem

#endif
