/* The back end `queue`: kernels write work requests into the network card's send queues and ring its doorbell;
 * no processor of the host is on the way. net.h says what each function has to do; abi_queue.h has the memory,
 * mlx5.h the card's formats.
 *
 * What goes by a queue: puts, gets, p, g, signals that are set, put_signal with such a signal. What does not
 * goes by the proxy (proxy.h), whole: atomics and signals that add, which the target carries out, because a
 * card's are atomic with nobody else's; strided operations; and memory that the card does not reach (a source
 * that is neither small nor symmetric memory).
 *
 * Posting. A thread takes the next indices of a queue, waits until the card has done with what their slots
 * held, writes its requests, and stamps each slot. Whoever holds `ringing` counts stamped slots from `rung`
 * on, and tells the card of all of them by one doorbell; a thread leaves when the card knows of its own. So
 * requests are published in order, many share a doorbell, and a thread that has written its requests leaves
 * no gap, whatever becomes of it. On the CPU device indices are taken once there is room, as in ring.h.
 *
 * Order. What the network gives (InfiniBand Architecture Specification 1.4, volume 1, 9.5 and table 79): the
 * peer carries out a queue's WRITEs in their order, a READ after the WRITEs before it, and completions come in
 * the order of requests. A later WRITE may overtake a READ, unless it has the fence. Between queues, and
 * between a queue and the proxy, nothing has an order. From that:
 *
 *   put_signal   WRITE, then a WRITE of the signal word, side by side in one queue: in that order at the peer.
 *                Memory regions are registered without relaxed ordering, so that it is the order in memory.
 *                A word of 8 bytes, aligned, is one PCIe transaction, which nobody sees in parts.
 *   get, then put  A WRITE behind a READ that nobody has waited for (`last_read`) has the fence: it changes
 *                nothing that an earlier get_nbi still reads.
 *   fence        Operations before it in a queue come before those after it by the queue's own order. For the
 *                two ways that have none:
 *                  proxy, then queue: fence waits until all that was posted to the proxy is settled.
 *                  queue, then proxy: fence counts itself in `fences`. An operation that goes by the proxy to
 *                  a PE with a queue compares that with the queue's own `fences`; where they differ, it first
 *                  waits until all requests of that queue are settled. A thread that comes after the fence
 *                  (by program order, or by a barrier) sees its count and the indices taken before it,
 *                  because both are released by the fence's own fence at system scope.
 *   quiet        All requests of all queues are settled, and the proxy is quiet.
 *   settled      A completion of a WRITE says that the peer's card has it, not that it is in memory. So the
 *                last request is a probe: a READ of 8 bytes from the peer's memory. It is carried out behind
 *                the WRITEs before it, and its answer pushes them before itself on their way over PCIe (PCI
 *                Express Base Specification, 2.4.1: a completion does not pass posted writes; the same for
 *                reads). When it is complete, everything before it is in memory.
 *   signals      What a waiting PE sees with a signal is what was before it in the same queue, or settled by a
 *                fence or quiet before it.
 *   a kernel's end  The host's quiet and fence wait for queues that have requests under way (net/queue).
 *
 * Functions with C names are never inlined; in relocatable code they are the device library's.
 */
#ifndef RUSHMEM_IMPL_NET_QUEUE_H
#define RUSHMEM_IMPL_NET_QUEUE_H

#include <rushmem/impl/net/mlx5.h>
#include <rushmem/impl/net/proxy.h>

static_assert(sizeof(rushmem_queue) == 512 && sizeof(rushmem_queues) == 384 && sizeof(rushmem_queue_segment) == 32,
              "rushmem/abi_queue.h");

namespace rushmem {
namespace impl {

/* Whether a queue leads to `pe`, a PE or none. */
RUSHMEM_DEVICE bool has_queue(int pe) {
  const rushmem_queues *all = state().queues;
  if (RUSHMEM_LIKELY(!all)) return false;
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(state().n_pes) && all->queues[pe].slots != nullptr;
}

/* ---- what differs between the two kinds of device ---- */

#if defined(RUSHMEM_CPU)
RUSHMEM_DEVICE uint32_t big_endian(uint32_t x) { return __builtin_bswap32(x); }
#else
RUSHMEM_DEVICE uint32_t big_endian(uint32_t x) { return __byte_perm(x, 0, 0x0123); }
#endif
RUSHMEM_DEVICE uint64_t big_endian(uint64_t x) {
  return static_cast<uint64_t>(big_endian(static_cast<uint32_t>(x))) << 32 |
         big_endian(static_cast<uint32_t>(x >> 32));
}

/* ---- requests ---- */

/* What a request says, but its index and its queue. `a` to `d` are the words from byte 32 on, as they lie in
 * memory. */
struct queue_request {
  uint64_t remote;   /* address */
  uint64_t a, b, c, d;
  uint32_t rkey;     /* big-endian, as all keys here */
  uint32_t opcode;
  uint32_t segments; /* of 16 bytes */
  uint32_t reserved;
};

/* Bytes at a local address. */
RUSHMEM_DEVICE void queue_name(queue_request &r, uint32_t bytes, uint32_t lkey, uint64_t address) {
  r.a = big_endian(bytes) | static_cast<uint64_t>(lkey) << 32;
  r.b = big_endian(address);
}

/* Writes a request into the slot of its index. `fenced`: there are earlier READs that nobody has waited for. */
RUSHMEM_DEVICE void queue_store(const rushmem_queue *q, uint64_t index, const volatile queue_request *r, bool fenced,
                                bool completes) {
  char *slot = static_cast<char *>(q->slots) + (index & q->mask) * RUSHMEM_MLX5_BLOCK;
  const uint32_t head = static_cast<uint32_t>(index & 0xffff) << 8 | r->opcode;
  const bool behind = fenced && r->opcode == RUSHMEM_MLX5_WRITE;
  const uint64_t flags = (behind ? RUSHMEM_MLX5_FENCE : 0) | (completes ? RUSHMEM_MLX5_COMPLETE : 0);
  ring_store_pair(slot, big_endian(head) | static_cast<uint64_t>(big_endian(q->number << 8 | r->segments)) << 32,
                  flags << 24);
  ring_store_pair(slot + 16, big_endian(r->remote), r->rkey);
  ring_store_pair(slot + 32, r->a, r->b);
  if (r->segments > 3) ring_store_pair(slot + 48, r->c, r->d);
}

/* ---- a queue ---- */

/* Raises a count that several threads raise. */
RUSHMEM_DEVICE void queue_raise(uint64_t *count, uint64_t to) {
  uint64_t seen = load_relaxed_word(count);
  while (static_cast<int64_t>(to - seen) > 0) {
    const uint64_t found = compare_swap_word(count, seen, to);
    if (found == seen) return;
    seen = found;
  }
}

RUSHMEM_DEVICE bool queue_is_complete(const rushmem_queue *q, uint64_t end) {
  return static_cast<int64_t>(load_acquire_word(&q->completed) - end) >= 0;
}

/* Looks at the completion queue. The syndrome of a failure, 0: there is none.
 *
 * `completed` is read first. The card's counter is then ahead of it by no more than there are slots, unless
 * another thread has raised `completed` meanwhile: then the exchange fails, and nothing is lost. */
RUSHMEM_DEVICE uint32_t queue_look(rushmem_queue *q) {
  const uint64_t before = load_relaxed_word(&q->completed);
  const uint64_t last = load_relaxed_word(q->completion + 7);
  const uint32_t kind = static_cast<uint32_t>(last >> 60);
  if (kind == RUSHMEM_MLX5_NONE_YET) return 0;
  if (kind != RUSHMEM_MLX5_DONE) return static_cast<uint32_t>(load_relaxed_word(q->completion + 6) >> 56);
  const uint32_t counter = static_cast<uint32_t>((last >> 32 & 0xff) << 8 | (last >> 40 & 0xff));
  const int16_t more = static_cast<int16_t>(static_cast<uint16_t>(counter + 1 - static_cast<uint32_t>(before)));
  if (more <= 0) return 0;
  /* What the card wrote before the completion, for whoever sees `completed`. */
  fence_acq_rel();
  compare_swap_word(&q->completed, before, before + static_cast<uint64_t>(more));
  return 0;
}

/* Whether the slots below `end` are free to be written. */
RUSHMEM_DEVICE bool queue_has_room(const rushmem_queue *q, uint64_t end) {
  return static_cast<int64_t>(end - load_acquire_word(&q->completed)) <= static_cast<int64_t>(q->mask) + 1;
}

/* Takes `n` indices, if there are any to be had. */
RUSHMEM_DEVICE bool queue_take(rushmem_queue *q, uint32_t n, uint64_t &first) {
#if defined(RUSHMEM_CPU)
  first = load_relaxed_word(&q->tail);
  while (queue_has_room(q, first + n)) {
    const uint64_t found = compare_swap_word(&q->tail, first, first + n);
    if (found == first) return true;
    first = found;
  }
  return false;
#else
  first = fetch_add_word(&q->tail, static_cast<uint64_t>(n));
  return true;
#endif
}

/* The slots' requests are written. */
RUSHMEM_DEVICE void queue_stamp(const rushmem_queue *q, uint64_t first, uint32_t n) {
  fence_acq_rel();
  for (uint32_t i = 0; i < n; ++i) {
    store_relaxed_word(q->stamps + ((first + i) & q->mask), static_cast<uint32_t>(first + i + 1));
  }
}

/* True once the card knows of the requests below `end`, which are stamped. */
RUSHMEM_DEVICE bool queue_ring(rushmem_queue *q, uint64_t end) {
  if (static_cast<int64_t>(load_acquire_word(&q->rung) - end) >= 0) return true;
  if (compare_swap_word(&q->ringing, uint64_t(0), uint64_t(1)) != 0) return false;
  fence_acq_rel();
  const uint64_t from = load_relaxed_word(&q->rung);
  uint64_t to = from;
  while (load_relaxed_word(q->stamps + (to & q->mask)) == static_cast<uint32_t>(to + 1)) ++to;
  if (to != from) {
    /* Requests, by whichever thread, before the record; the record before the register. */
    fence_acq_rel();
    store_relaxed_word(q->record + RUSHMEM_MLX5_RECORD_SEND, big_endian(static_cast<uint32_t>(to & 0xffff)));
    fence_acq_rel();
    const uint32_t head = static_cast<uint32_t>((to - 1) & 0xffff) << 8;
    store_relaxed_word(q->bell, big_endian(head) | static_cast<uint64_t>(big_endian(q->number << 8)) << 32);
    store_release_word(&q->rung, to);
  }
  store_release_word(&q->ringing, uint64_t(0));
  return static_cast<int64_t>(to - end) >= 0;
}

/* ---- symmetric memory, as the card knows it ---- */

/* A piece of it: how many bytes lie in one registered piece from there on, 0: none; and its keys. */
struct queue_piece {
  uint64_t bytes;
  uint32_t lkey, rkey;
};

/* At an offset of the stride, of this PE and of `pe`. */
RUSHMEM_DEVICE queue_piece queue_piece_at(uint64_t offset, int pe) {
  const rushmem_queues *all = state().queues;
  const uint64_t n = load_acquire_word(all->n_segments);
  for (uint64_t i = 0; i < n; ++i) {
    const rushmem_queue_segment *s = all->segments + i;
    const uint64_t inside = offset - s->offset, bytes = load_relaxed_word(&s->bytes);
    if (inside < bytes) return queue_piece{bytes - inside, s->lkey, load_relaxed_word(s->rkeys + pe)};
  }
  return queue_piece{0, 0, 0};
}

/* Whether the card reaches all of [at, at + bytes). */
RUSHMEM_DEVICE bool queue_reaches(uint64_t at, uint64_t bytes, int pe) {
  uint64_t offset = at - state().heap_base;
  if (offset >= state().stride || bytes > state().stride - offset) return false;
  while (bytes != 0) {
    const uint64_t here = queue_piece_at(offset, pe).bytes;
    if (here == 0) return false;
    if (here >= bytes) return true;
    offset += here;
    bytes -= here;
  }
  return true;
}

/* ---- posting ---- */

/* What queue_run does beside posting. */
enum : uint32_t {
  queue_waits = 1,    /* until the requests are complete */
  queue_sinks = 2,    /* the request is a READ into a place for answers, which it takes and frees */
  queue_reads = 4,    /* a READ that nobody waits for */
  queue_probes = 8    /* a probe that nobody waits for */
};

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" {
RUSHMEM_COLD uint64_t rushmem_queue_run(int pe, const volatile queue_request *what, uint32_t n, uint32_t how,
                                        uint64_t to, uint64_t bytes);
RUSHMEM_COLD void rushmem_queue_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_queue_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe, uint32_t flags);
RUSHMEM_COLD uint64_t rushmem_queue_g(uint64_t src, uint32_t width, int pe);
RUSHMEM_COLD void rushmem_queue_words(uint64_t dst, uint64_t word_, uint32_t width, uint64_t sig, uint64_t value,
                                      int pe);
RUSHMEM_COLD void rushmem_queue_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                           uint64_t value, int sig_op, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_queue_before_proxy(int pe);
RUSHMEM_COLD void rushmem_queue_fence();
RUSHMEM_COLD void rushmem_queue_quiet();
}

#else

/* A request of the queue to `pe` has failed. What the network does to all requests, the host makes the job's
 * end, and the caller waits for that; a request that the card refuses ends this launch. */
RUSHMEM_DEVICE void queue_failed(const rushmem_queue *q, uint32_t syndrome, uint64_t end, int pe) {
  if (syndrome == RUSHMEM_MLX5_FLUSHED || syndrome == RUSHMEM_MLX5_NO_ANSWER || syndrome == RUSHMEM_MLX5_NOT_READY) {
    return;
  }
  report_stall(reinterpret_cast<uint64_t>(q->completion), syndrome, RUSHMEM_STALL_QUEUE, pe, end,
               load_relaxed_word(&q->completed), 0);
  fail(RUSHMEM_DEVICE_FAIL_QUEUE);
}

/* Posts `n` requests, side by side, to the queue of `pe`, and does what `how` says; for queue_sinks `bytes` of
 * the answer go to `to`, or into the result where that is 0. Otherwise the result is one past the last index.
 *
 * One loop with a stage, as rushmem_far_post and for its reason: threads of a warp wait for one another. */
extern "C" RUSHMEM_COLD uint64_t rushmem_queue_run(int pe, const volatile queue_request *what, uint32_t n,
                                                   uint32_t how, uint64_t to, uint64_t bytes) {
  rushmem_queues *all = state().queues;
  rushmem_queue *q = all->queues + pe;
  enum : uint32_t { claiming, taking, placing, ringing, waiting };
  uint32_t stage = how & queue_sinks ? claiming : taking, claim = 0;
  uint64_t first = 0;
  stall_watch watch;
  for (;;) {
    if (stage == claiming) {
      claim = static_cast<uint32_t>(fetch_add_word(&all->sink_tail, uint64_t(1))) % RUSHMEM_QUEUE_SINKS;
      if (compare_swap_word(all->sink_busy + claim, uint64_t(0), uint64_t(1)) == 0) {
        fence_acq_rel();
        stage = taking;
      }
    }
    if (stage == taking && queue_take(q, n, first)) stage = placing;
    if (stage == placing && queue_has_room(q, first + n)) {
      const bool fenced = static_cast<int64_t>(load_relaxed_word(&q->last_read) - load_relaxed_word(&q->completed)) > 0;
      for (uint32_t i = 0; i < n; ++i) queue_store(q, first + i, what + i, fenced, i + 1 == n);
      if (how & queue_sinks) {
        /* The place that was taken, instead of the one that the request names. */
        char *slot = static_cast<char *>(q->slots) + (first & q->mask) * RUSHMEM_MLX5_BLOCK;
        const uint64_t at = all->sink_address + uint64_t(claim) * RUSHMEM_QUEUE_SINK_BYTES;
        ring_store_pair(slot + 32, what->a, big_endian(at));
      }
      if (how & queue_reads) queue_raise(&q->last_read, first + n);
      if (how & queue_probes) queue_raise(&q->probed, first + n);
      queue_stamp(q, first, n);
      stage = ringing;
    }
    if (stage == ringing && queue_ring(q, first + n)) {
      if (!(how & queue_waits)) return first + n;
      stage = waiting;
    }
    if (stage == waiting && queue_is_complete(q, first + n)) {
      if (!(how & queue_sinks)) return first + n;
      const uint64_t *sink = reinterpret_cast<const uint64_t *>(all->sinks + claim * RUSHMEM_QUEUE_SINK_BYTES);
      uint64_t got = 0;
      for (uint64_t at = 0; at < bytes; at += 8) {
        got = load_relaxed_word(sink + at / 8);
        if (to != 0) proxy_store(to + at, got, bytes - at < 8 ? bytes - at : 8);
      }
      store_release_word(all->sink_busy + claim, uint64_t(0));
      return bytes < 8 ? got & ((uint64_t(1) << 8 * bytes) - 1) : got;
    }
    const uint32_t syndrome = queue_look(q);
    if (RUSHMEM_UNLIKELY(syndrome != 0)) queue_failed(q, syndrome, first + n, pe);
    watch.unsatisfied(&q->completed, RUSHMEM_STALL_QUEUE, first + n, load_relaxed_word(&q->completed), pe);
  }
}

/* ---- order ---- */

/* A probe to the queue of `pe`, behind all that was posted there. */
RUSHMEM_DEVICE void queue_probe(int pe, uint32_t how) {
  const queue_piece piece = queue_piece_at(0, pe);
  queue_request r{0, 0, 0, 0, 0, piece.rkey, RUSHMEM_MLX5_READ, 3, 0};
  /* Into a place of its own behind those for answers, which nobody reads. */
  const rushmem_queues *all = state().queues;
  queue_name(r, 8, all->sink_lkey, all->sink_address + RUSHMEM_QUEUE_SINKS * RUSHMEM_QUEUE_SINK_BYTES);
  rushmem_queue_run(pe, &r, 1, how, 0, 0);
}

RUSHMEM_DEVICE bool queue_is_settled(rushmem_queue *q) {
  return static_cast<int64_t>(load_acquire_word(&q->settled) - load_relaxed_word(&q->tail)) >= 0;
}

/* Waits until what was probed is settled. */
RUSHMEM_DEVICE void queue_await_probe(rushmem_queue *q, int pe) {
  const uint64_t end = load_acquire_word(&q->probed);
  if (static_cast<int64_t>(load_acquire_word(&q->settled) - end) >= 0) return;
  stall_watch watch;
  while (!queue_is_complete(q, end)) {
    const uint32_t syndrome = queue_look(q);
    if (RUSHMEM_UNLIKELY(syndrome != 0)) queue_failed(q, syndrome, end, pe);
    watch.unsatisfied(&q->completed, RUSHMEM_STALL_QUEUE, end, load_relaxed_word(&q->completed), pe);
  }
  fence_acq_rel();
  queue_raise(&q->settled, end);
}

/* Before an operation on `pe` that goes by the proxy: what is in its queue from before a fence is settled. */
extern "C" RUSHMEM_COLD void rushmem_queue_before_proxy(int pe) {
  rushmem_queues *all = state().queues;
  rushmem_queue *q = all->queues + pe;
  const uint64_t fences = load_acquire_word(&all->fences);
  if (load_acquire_word(&q->fences) == fences) return;
  if (!queue_is_settled(q)) {
    queue_probe(pe, queue_probes);
    queue_await_probe(q, pe);
  }
  store_release_word(&q->fences, fences);
}

extern "C" RUSHMEM_COLD void rushmem_queue_fence() {
  rushmem_far_quiet();
  fence_acq_rel();
  fetch_add_word(&state().queues->fences, uint64_t(1));
}

/* The probes of all queues are on their way at once. */
extern "C" RUSHMEM_COLD void rushmem_queue_quiet() {
  rushmem_queues *all = state().queues;
  const int n = state().n_pes;
  for (int pe = 0; pe < n; ++pe) {
    rushmem_queue *q = all->queues + pe;
    if (q->slots && !queue_is_settled(q)) queue_probe(pe, queue_probes);
  }
  rushmem_far_quiet();
  for (int pe = 0; pe < n; ++pe) {
    rushmem_queue *q = all->queues + pe;
    if (q->slots) queue_await_probe(q, pe);
  }
}

/* ---- bytes ---- */

/* Bytes that a request carries. */
RUSHMEM_DEVICE queue_request queue_inline(uint64_t remote, uint32_t rkey, uint64_t src, uint32_t bytes) {
  const uint64_t w0 = proxy_load(src, bytes), w1 = proxy_load(src + 8, bytes > 8 ? bytes - 8 : 0),
                 w2 = proxy_load(src + 16, bytes > 16 ? bytes - 16 : 0),
                 w3 = proxy_load(src + 24, bytes > 24 ? bytes - 24 : 0);
  /* Shifted by the 4 bytes of the length. */
  return queue_request{remote, big_endian(RUSHMEM_MLX5_INLINE | bytes) | w0 << 32, w0 >> 32 | w1 << 32,
                       w1 >> 32 | w2 << 32, w2 >> 32 | w3 << 32, rkey, RUSHMEM_MLX5_WRITE,
                       bytes > 12 ? 4u : 3u, 0};
}

/* Most bytes that go inside requests where the card does not reach their source. */
constexpr uint64_t queue_most_inline = 16 * RUSHMEM_QUEUE_INLINE_BYTES;
/* Most bytes of one request. */
constexpr uint64_t queue_most_bytes = uint64_t(1) << 30;

/* A request for a copy between [remote, remote + bytes) of `pe` and this PE's [local, ...), offsets of the
 * stride: as much of it as is one piece on both sides. */
RUSHMEM_DEVICE uint64_t queue_copy(queue_request &r, uint64_t remote, uint64_t local, uint64_t bytes, uint32_t opcode,
                                   int pe) {
  const queue_piece there = queue_piece_at(remote, pe), here = queue_piece_at(local, pe);
  if (bytes > there.bytes) bytes = there.bytes;
  if (bytes > here.bytes) bytes = here.bytes;
  if (bytes > queue_most_bytes) bytes = queue_most_bytes;
  r = queue_request{remote, 0, 0, 0, 0, there.rkey, opcode, 3, 0};
  queue_name(r, static_cast<uint32_t>(bytes), here.lkey, local);
  return bytes;
}

RUSHMEM_DEVICE queue_request queue_word(uint64_t at, uint64_t word_, uint32_t width, int pe) {
  const uint64_t offset = at - state().heap_base;
  return queue_request{offset, big_endian(RUSHMEM_MLX5_INLINE | width) | word_ << 32, word_ >> 32, 0, 0,
                       queue_piece_at(offset, pe).rkey, RUSHMEM_MLX5_WRITE, 3, 0};
}

/* p, a signal that is set (no `dst`), and a word with such a signal. */
extern "C" RUSHMEM_COLD void rushmem_queue_words(uint64_t dst, uint64_t word_, uint32_t width, uint64_t sig,
                                                 uint64_t value, int pe) {
  if ((width != 0 && !queue_reaches(dst, width, pe)) || (sig != 0 && !queue_reaches(sig, 8, pe))) {
    rushmem_queue_before_proxy(pe);
    const uint32_t set = RUSHMEM_SIGNAL_SET;
    if (width == 0) return proxy_signal(sig, value, static_cast<int>(set), pe);
    if (sig != 0) return proxy_put_word_signal(dst, word_, sig, value, pe);
    ring_post(ring_head(RUSHMEM_RING_PUT_INLINE, 0, width, 0, pe), dst, word_, 0, 0, 0, 0);
    return;
  }
  queue_request r[2];
  uint32_t n = 0;
  if (width != 0) r[n++] = queue_word(dst, word_, width, pe);
  if (sig != 0) r[n++] = queue_word(sig, value, 8, pe);
  rushmem_queue_run(pe, r, n, 0, 0, 0);
}

/* put and, without RUSHMEM_RING_REPLY, put_nbi; and the signal that is set behind it, unless `sig` is 0. The
 * card reaches the destination and the signal. False, and nothing done: it does not reach the source. */
RUSHMEM_DEVICE bool queue_put_to(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig, uint64_t value, int pe,
                                 uint32_t flags) {
  const uint64_t base = state().heap_base;
  const bool small = bytes <= RUSHMEM_QUEUE_INLINE_BYTES, reached = !small && queue_reaches(src, bytes, pe);
  if (!reached && bytes > queue_most_inline) return false;
  uint64_t at = 0;
  bool more = true;
  while (more) {
    queue_request r[2];
    uint32_t n = 0;
    if (bytes != 0) {
      uint64_t part = bytes - at;
      if (reached) {
        part = queue_copy(r[0], dst + at - base, src + at - base, part, RUSHMEM_MLX5_WRITE, pe);
      } else {
        const uint64_t offset = dst + at - base;
        const queue_piece there = queue_piece_at(offset, pe);
        if (part > RUSHMEM_QUEUE_INLINE_BYTES) part = RUSHMEM_QUEUE_INLINE_BYTES;
        if (part > there.bytes) part = there.bytes;
        r[0] = queue_inline(offset, there.rkey, src + at, static_cast<uint32_t>(part));
      }
      n = 1;
      at += part;
    }
    more = at < bytes;
    if (!more && sig != 0) r[n++] = queue_word(sig, value, 8, pe);
    /* Completions come in order: the last says it of all. */
    const bool waits = !more && reached && (flags & RUSHMEM_RING_REPLY) != 0;
    if (n != 0) rushmem_queue_run(pe, r, n, waits ? queue_waits : 0u, 0, 0);
  }
  return true;
}

extern "C" RUSHMEM_COLD void rushmem_queue_put(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                               uint32_t flags) {
  if (queue_reaches(dst, bytes, pe) && queue_put_to(dst, src, bytes, 0, 0, pe, flags)) return;
  rushmem_queue_before_proxy(pe);
  rushmem_far_put(dst, src, bytes, pe, flags);
}

extern "C" RUSHMEM_COLD void rushmem_queue_put_signal(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t sig,
                                                      uint64_t value, int sig_op, int pe, uint32_t flags) {
  if (sig_op != RUSHMEM_SIGNAL_ADD && queue_reaches(dst, bytes, pe) && queue_reaches(sig, 8, pe) &&
      queue_put_to(dst, src, bytes, sig, value, pe, flags)) {
    return;
  }
  rushmem_queue_before_proxy(pe);
  rushmem_far_put_signal(dst, src, bytes, sig, value, sig_op, pe, flags);
}

/* get and, without RUSHMEM_RING_REPLY, get_nbi. */
extern "C" RUSHMEM_COLD void rushmem_queue_get(uint64_t dst, uint64_t src, uint64_t bytes, int pe,
                                               uint32_t flags) {
  if (bytes == 0) return;
  const uint64_t base = state().heap_base;
  const bool there = queue_reaches(src, bytes, pe), here = there && queue_reaches(dst, bytes, pe);
  if (!there || (!here && bytes > RUSHMEM_QUEUE_SINK_BYTES)) {
    rushmem_queue_before_proxy(pe);
    return rushmem_far_get(dst, src, bytes, pe, flags);
  }
  for (uint64_t at = 0; at < bytes;) {
    queue_request r;
    if (here) {
      const uint64_t part = queue_copy(r, src + at - base, dst + at - base, bytes - at, RUSHMEM_MLX5_READ, pe);
      at += part;
      const bool waits = at == bytes && (flags & RUSHMEM_RING_REPLY) != 0;
      rushmem_queue_run(pe, &r, 1, waits ? queue_waits : queue_reads, 0, 0);
    } else {
      const uint64_t offset = src + at - base;
      const queue_piece piece = queue_piece_at(offset, pe);
      const uint64_t part = bytes - at < piece.bytes ? bytes - at : piece.bytes;
      r = queue_request{offset, 0, 0, 0, 0, piece.rkey, RUSHMEM_MLX5_READ, 3, 0};
      queue_name(r, static_cast<uint32_t>(part), state().queues->sink_lkey, 0);
      rushmem_queue_run(pe, &r, 1, queue_waits | queue_sinks, dst + at, part);
      at += part;
    }
  }
}

extern "C" RUSHMEM_COLD uint64_t rushmem_queue_g(uint64_t src, uint32_t width, int pe) {
  const uint64_t offset = src - state().heap_base;
  if (!queue_reaches(src, width, pe)) {
    rushmem_queue_before_proxy(pe);
    return proxy_g(src, width, pe);
  }
  queue_request r{offset, 0, 0, 0, 0, queue_piece_at(offset, pe).rkey, RUSHMEM_MLX5_READ, 3, 0};
  queue_name(r, width, state().queues->sink_lkey, 0);
  return rushmem_queue_run(pe, &r, 1, queue_waits | queue_sinks, 0, width);
}

#endif

/* ---- the set of functions that net.h calls ---- */

/* One word. On a GPU without a call, as proxy_p, and for its reason: whole requests in registers. */
template <typename T> RUSHMEM_DEVICE void queue_p(T *dst, const T &value, int pe) {
#if defined(RUSHMEM_CPU)
  rushmem_queue_words(reinterpret_cast<uint64_t>(dst), to_bits(value), sizeof(T), 0, 0, pe);
#else
  const rushmem_device_state &s = state();
  const uint64_t offset = reinterpret_cast<uint64_t>(dst) - s.heap_base;
  const queue_piece piece = queue_piece_at(offset, pe);
  if (offset >= s.stride || piece.bytes < sizeof(T)) {
    /* No memory that the card knows, and none that the proxy could write a word of. */
    return fail(RUSHMEM_DEVICE_FAIL_BAD_ADDRESS);
  }
  rushmem_queue *q = s.queues->queues + pe;
  const uint64_t word_ = to_bits(value);
  const uint64_t index = fetch_add_word(&q->tail, uint64_t(1));
  for (bool written = false;;) {
    if (!written && queue_has_room(q, index + 1)) {
      const bool fenced = static_cast<int64_t>(load_relaxed_word(&q->last_read) - load_relaxed_word(&q->completed)) > 0;
      const queue_request r{offset, big_endian(RUSHMEM_MLX5_INLINE | uint32_t(sizeof(T))) | word_ << 32,
                            word_ >> 32, 0, 0, piece.rkey, RUSHMEM_MLX5_WRITE, 3, 0};
      queue_store(q, index, &r, fenced, true);
      queue_stamp(q, index, 1);
      written = true;
    }
    if (written && queue_ring(q, index + 1)) return;
    queue_look(q);
    if (load_relaxed_word(s.broken) != 0) fail(RUSHMEM_DEVICE_FAIL_BROKEN);
  }
#endif
}

}  // namespace impl
}  // namespace rushmem

#endif
