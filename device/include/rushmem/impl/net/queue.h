/* The back end `queue`: kernels write work requests into the network card's send queues and ring its
 * doorbell; no processor of the host is on the way. net.h says what each function has to do; send_queue.h has
 * one queue, abi_queue.h the memory, mlx5.h the card's formats.
 *
 * What goes by a queue: puts, gets, p, g, signals that are set, put_signal with such a signal; and atomics on
 * words that the program declares to be the cards' (card.h). What does not goes by the proxy (proxy.h),
 * whole: other atomics and signals that add, which the target carries out, because a card's are atomic with
 * nobody else's; strided operations; and memory that the card does not reach (a source that is neither small
 * nor symmetric memory).
 *
 * Contexts. There are one or several queues to each PE, all of them alike (RUSHMEM_QUEUE_CONTEXTS). A block
 * posts to one of them, in the launch's life the same for each PE (own_queue), so that what one thread posts,
 * and what the threads of a block do, is in one queue. All blocks share the places for answers.
 *
 * Order. What the network gives (InfiniBand Architecture Specification 1.4, volume 1, 9.5 and table 79): the
 * peer carries out a queue's WRITEs in their order, a READ after the WRITEs before it, and completions come
 * in the order of requests. A later WRITE may overtake a READ, unless it has the fence. Between queues, those
 * of two contexts to one PE among them, and between a queue and the proxy, nothing has an order. From that:
 *
 *   put_signal   WRITE, then a WRITE of the signal word, side by side in a queue: they arrive in that order.
 *                Memory regions are registered without relaxed ordering, so that it is the order in memory.
 *                A word of 8 bytes, aligned, is one PCIe transaction, which nobody sees in parts.
 *   get, then put  A WRITE behind a READ that nobody has waited for (`last_read`) has the fence: it changes
 *                nothing that an earlier get_nbi of that queue still reads.
 *   fence        With one context: operations before it in a queue come before those after it by the queue's
 *                own order. For the two ways that have none:
 *                  proxy, then queue: fence waits until all that was posted to the proxy is settled.
 *                  queue, then proxy: fence counts itself in `fences`. An operation that goes by the proxy to
 *                  a PE with a queue compares that with the queue's own `fences`; where they differ, it first
 *                  waits until all requests of that queue are settled. A thread that comes after the fence
 *                  (by program order, or by a barrier) sees its count and the indices taken before it,
 *                  because both are released by the fence's own fence at system scope.
 *                For atomics by the card (card.h) it waits until they are answered.
 *                With several contexts what comes before the fence may be in any of them, as other blocks
 *                post there, and so may what comes after it: a block that waits for this one goes on in a
 *                context of its own. So the fence is a quiet: it waits until all requests that come before it
 *                are settled, in the queues of all contexts, its own among them. It finds them by the queues'
 *                `tail`: whatever lets the fence come after an operation (program order, a barrier, a flag
 *                that is released and acquired) lets it see the index that the operation took. What comes
 *                after the fence is posted once they are settled, so it comes after them whichever way it
 *                takes, the proxy's included. A queue in which nothing is unsettled costs it a look. A
 *                completion would not do: the peer's card may have acknowledged one queue's WRITE, and put
 *                another's into memory before it.
 *   quiet        All requests of all queues are settled, and the proxy is quiet.
 *   settled      A completion of a WRITE says that the peer's card has it, not that it is in memory. So the
 *                last request is a probe: a READ of 8 bytes from the peer's memory. The peer's card carries
 *                it out behind the WRITEs before it, and over PCIe a read does not pass posted writes (PCI
 *                Express Base Specification, 2.4.1). When it is complete, everything before it is in memory.
 *   signals      A waiting PE sees with a signal what was before it in its queue, or settled by a fence or
 *                quiet before it. A put_signal and a packet are WRITEs of one thread, and so of one queue.
 *   collectives  and syncs rest on fences, on packets, and on what PEs tell each other: a packet's place, and
 *                memory for staging, is written again once its reader has said that it has read it; a count
 *                that only grows (a sync's line) goes out behind a fence, which covers the count before it,
 *                whichever block wrote that. None rests on the order of two requests with no fence between.
 *   a kernel's end  The host's quiet and fence wait for queues that have requests under way (net/queue).
 *
 * Functions with C names are never inlined; in relocatable code they are the device library's. Where no queue
 * leads to the PE, or the card does not reach what is named, they call the proxy.
 */
#ifndef RUSHMEM_IMPL_NET_QUEUE_H
#define RUSHMEM_IMPL_NET_QUEUE_H

#include <rushmem/impl/net/send_queue.h>

namespace rushmem {
namespace impl {

/* How far a put of one word is (rushmem_queue_p). */
enum : uint32_t { queue_word_takes, queue_word_places, queue_word_tells };
constexpr uint64_t queue_word_over = ~uint64_t(0);

/* A put or a get, in memory of the caller's own. */
struct queue_transfer {
  uint64_t dst, src, bytes, sig, value;
  uint32_t flags;
  int pe, sig_op;
};

#if defined(RUSHMEM_COLD_IN_LIBRARY)

extern "C" {
RUSHMEM_COLD bool rushmem_queue_get(const volatile queue_transfer *t);
RUSHMEM_COLD uint64_t rushmem_queue_g(uint64_t src, uint32_t width, int pe);
RUSHMEM_COLD uint64_t rushmem_queue_p(uint64_t at, uint64_t dst, uint64_t word_, uint32_t width, int pe);
RUSHMEM_COLD uint64_t rushmem_queue_p_pause(uint64_t since, uint64_t at, int pe);
RUSHMEM_COLD void rushmem_queue_words(uint64_t dst, uint64_t word_, uint32_t width, uint64_t sig, uint64_t value,
                                      int pe);
RUSHMEM_COLD bool rushmem_queue_put(const volatile queue_transfer *t);
RUSHMEM_COLD void rushmem_queue_signal(uint64_t sig, uint64_t value, int sig_op, int pe);
RUSHMEM_COLD uint64_t rushmem_queue_atomic(uint32_t code, uint32_t width, uint64_t target, uint64_t value,
                                           uint64_t compare, int pe, uint32_t flags);
RUSHMEM_COLD void rushmem_queue_before_proxy(int pe);
RUSHMEM_COLD void rushmem_queue_fence();
RUSHMEM_COLD void rushmem_queue_quiet();
}

#else

/* The rest of what is asked, when the requests are made: of the block's own queue to `pe`. */
RUSHMEM_DEVICE void queue_ask(queue_posting &what, uint32_t n, uint32_t how, int pe, uint64_t to = 0,
                              uint64_t bytes = 0) {
  what.queue = own_queue(pe);
  what.to = to;
  what.bytes = bytes;
  what.n = n;
  what.how = how;
  what.pe = pe;
}
RUSHMEM_DEVICE uint64_t queue_post(queue_posting &what, uint32_t n, uint32_t how, int pe, uint64_t to = 0,
                                   uint64_t bytes = 0) {
  queue_ask(what, n, how, pe, to, bytes);
  return queue_run(&what);
}

/* ---- order ---- */

/* A probe in a queue to `pe`, behind all that was posted there. */
RUSHMEM_DEVICE void queue_probe(rushmem_queue *q, int pe) {
  const queue_piece piece = queue_piece_at(0, pe);
  queue_posting what;
  queue_request &r = what.requests[0];
  r = queue_request{0, 0, 0, 0, 0, piece.rkey, RUSHMEM_MLX5_READ, 3, 0};
  /* Into a place of its own behind those for answers, which nobody reads. */
  const rushmem_queues *all = state().queues;
  queue_name(r, 8, all->sink_lkey, all->sink_address + RUSHMEM_QUEUE_SINKS * RUSHMEM_QUEUE_SINK_BYTES);
  queue_ask(what, 1, queue_probes, pe);
  what.queue = q;
  queue_run(&what);
}

/* Waits until the requests of a queue to `pe` below `end` are complete. */
RUSHMEM_DEVICE void queue_await(rushmem_queue *q, int pe, uint64_t end) {
  queue_posting what;
  queue_ask(what, 0, queue_waits, pe, end);
  what.queue = q;
  queue_run(&what);
}

RUSHMEM_DEVICE bool queue_is_settled(rushmem_queue *q) {
  return static_cast<int64_t>(load_acquire_word(&q->settled) - load_relaxed_word(&q->tail)) >= 0;
}

/* Waits until what was probed is settled. */
RUSHMEM_DEVICE void queue_await_probe(rushmem_queue *q, int pe) {
  const uint64_t end = load_acquire_word(&q->probed);
  if (static_cast<int64_t>(load_acquire_word(&q->settled) - end) >= 0) return;
  queue_await(q, pe, end);
  fence_acq_rel();
  queue_raise(&q->settled, end);
}

/* Before an operation on `pe` that goes by the proxy: what is in its queue from before a fence is settled.
 * (With several contexts the fence has waited for that.) */
extern "C" RUSHMEM_COLD void rushmem_queue_before_proxy(int pe) {
  if (!has_queue(pe)) return;
  rushmem_queues *all = state().queues;
  if (all->contexts > 1) return;
  rushmem_queue *q = all->queues + pe;
  const uint64_t fences = load_acquire_word(&all->fences);
  if (load_acquire_word(&q->fences) == fences) return;
  if (!queue_is_settled(q)) {
    queue_probe(q, pe);
    queue_await_probe(q, pe);
  }
  store_release_word(&q->fences, fences);
}

/* Waits for the answers to atomics that nobody has waited for: by each PE's queue to the last that was posted
 * there before it was counted. */
RUSHMEM_COLD void queue_await_atomics() {
  rushmem_queues *all = state().queues;
  const uint64_t posted = load_acquire_word(&all->atomics);
  if (static_cast<int64_t>(posted - load_acquire_word(&all->atomics_over)) <= 0) return;
  each_queue([](rushmem_queue *q, int pe) {
    const uint64_t end = load_relaxed_word(&q->last_atomic);
    if (!queue_is_complete(q, end)) queue_await(q, pe, end);
  });
  fence_acq_rel();
  queue_raise(&all->atomics_over, posted);
}

/* The probes of all queues are on their way at once. */
extern "C" RUSHMEM_COLD void rushmem_queue_quiet() {
  if (!state().queues) return rushmem_far_quiet();
  each_queue([](rushmem_queue *q, int pe) {
    if (!queue_is_settled(q)) queue_probe(q, pe);
  });
  rushmem_far_quiet();
  each_queue([](rushmem_queue *q, int pe) { queue_await_probe(q, pe); });
}

extern "C" RUSHMEM_COLD void rushmem_queue_fence() {
  rushmem_queues *all = state().queues;
  if (!all) return rushmem_far_fence();
  if (all->contexts > 1) return rushmem_queue_quiet();
  rushmem_far_quiet();
  queue_await_atomics();
  fence_acq_rel();
  fetch_add_word(&all->fences, uint64_t(1));
}

/* ---- bytes ---- */

/* A request that carries the first of `most` bytes; how many. */
RUSHMEM_COLD uint64_t queue_inline(queue_request &r, uint64_t remote, uint64_t src, uint64_t most, int pe) {
  const queue_piece there = queue_piece_at(remote, pe);
  if (most > RUSHMEM_QUEUE_INLINE_BYTES) most = RUSHMEM_QUEUE_INLINE_BYTES;
  if (most > there.bytes) most = there.bytes;
  const uint32_t bytes = static_cast<uint32_t>(most);
  const uint64_t w0 = proxy_load(src, bytes), w1 = proxy_load(src + 8, bytes > 8 ? bytes - 8 : 0),
                 w2 = proxy_load(src + 16, bytes > 16 ? bytes - 16 : 0),
                 w3 = proxy_load(src + 24, bytes > 24 ? bytes - 24 : 0);
  /* Shifted by the 4 bytes of the length. */
  r = queue_request{remote, big_endian(RUSHMEM_MLX5_INLINE | bytes) | w0 << 32, w0 >> 32 | w1 << 32,
                    w1 >> 32 | w2 << 32, w2 >> 32 | w3 << 32, there.rkey, RUSHMEM_MLX5_WRITE, bytes > 12 ? 4u : 3u, 0};
  return bytes;
}

/* Most bytes that go inside requests where the card does not reach their source. */
constexpr uint64_t queue_most_inline = 16 * RUSHMEM_QUEUE_INLINE_BYTES;
/* Most bytes of one request. */
constexpr uint64_t queue_most_bytes = uint64_t(1) << 30;

/* A request for a copy between [remote, remote + bytes) of `pe` and this PE's [local, ...), offsets of the
 * stride: as much of it as is one piece on both sides. */
RUSHMEM_COLD uint64_t queue_copy(queue_request &r, uint64_t remote, uint64_t local, uint64_t bytes, uint32_t opcode,
                                 int pe) {
  const queue_piece there = queue_piece_at(remote, pe), here = queue_piece_at(local, pe);
  if (bytes > there.bytes) bytes = there.bytes;
  if (bytes > here.bytes) bytes = here.bytes;
  if (bytes > queue_most_bytes) bytes = queue_most_bytes;
  r = queue_request{remote, 0, 0, 0, 0, there.rkey, opcode, 3, 0};
  queue_name(r, static_cast<uint32_t>(bytes), here.lkey, local);
  return bytes;
}

RUSHMEM_COLD void queue_word(queue_request &r, uint64_t at, uint64_t word_, uint32_t width, int pe) {
  const uint64_t offset = at - state().heap_base;
  r = queue_request{offset, big_endian(RUSHMEM_MLX5_INLINE | width) | word_ << 32, word_ >> 32, 0, 0,
                    queue_piece_at(offset, pe).rkey, RUSHMEM_MLX5_WRITE, 3, 0};
}

/* A READ of as many bytes as are one piece, up to a place for answers; how many. */
RUSHMEM_COLD uint64_t queue_answer(queue_request &r, uint64_t offset, uint64_t bytes, int pe) {
  const queue_piece piece = queue_piece_at(offset, pe);
  if (bytes > piece.bytes) bytes = piece.bytes;
  r = queue_request{offset, 0, 0, 0, 0, piece.rkey, RUSHMEM_MLX5_READ, 3, 0};
  queue_name(r, static_cast<uint32_t>(bytes), state().queues->sink_lkey, 0);
  return bytes;
}

/* p, a signal that is set (no `dst`), and a word with such a signal. */
extern "C" RUSHMEM_COLD void rushmem_queue_words(uint64_t dst, uint64_t word_, uint32_t width, uint64_t sig,
                                                 uint64_t value, int pe) {
  if (!has_queue(pe) || (width != 0 && !queue_reaches(dst, width, pe)) || (sig != 0 && !queue_reaches(sig, 8, pe))) {
    rushmem_queue_before_proxy(pe);
    const uint32_t set = RUSHMEM_SIGNAL_SET;
    if (width == 0) return proxy_signal(sig, value, static_cast<int>(set), pe);
    if (sig != 0) return proxy_put_word_signal(dst, word_, sig, value, pe);
    ring_post(ring_head(RUSHMEM_RING_PUT_INLINE, 0, width, 0, pe), dst, word_, 0, 0, 0, 0);
    return;
  }
  queue_posting what;
  uint32_t n = 0;
  if (width != 0) queue_word(what.requests[n++], dst, word_, width, pe);
  if (sig != 0) queue_word(what.requests[n++], sig, value, 8, pe);
  queue_post(what, n, 0, pe);
}

/* One word, to a PE with a queue: brings it forward as far as it goes now. How far that is: 0 at first, then
 * its index, times 4, and its stage; `queue_word_over`.
 *
 * This and the next function call nothing, and the loop that calls them is the kernel's (queue_post_word):
 * what a function keeps over a call of its own is added to the registers of every kernel with a p, and a
 * block of 1024 threads has 64 for each. */
extern "C" RUSHMEM_COLD uint64_t rushmem_queue_p(uint64_t at, uint64_t dst, uint64_t word_, uint32_t width, int pe) {
  const uint64_t offset = dst - state().heap_base;
  rushmem_queue *q = own_queue(pe);
  uint64_t index = at / 4;
  uint32_t stage = at % 4;
  if (stage == queue_word_takes) {
    if (!queue_take(q, 1, index)) return at;
    stage = queue_word_places;
  }
  if (stage == queue_word_places && queue_has_room(q, index + 1)) {
    const queue_piece piece = queue_piece_at(offset, pe);
    const bool fenced = static_cast<int64_t>(load_relaxed_word(&q->last_read) - load_relaxed_word(&q->completed)) > 0;
    const queue_request r{offset, big_endian(RUSHMEM_MLX5_INLINE | width) | word_ << 32, word_ >> 32, 0, 0,
                          piece.rkey, RUSHMEM_MLX5_WRITE, 3, 0};
    /* Memory that the card does not know would be the proxy's, behind a probe, and cost registers again. */
    if (offset >= state().stride || piece.bytes < width) fail(RUSHMEM_DEVICE_FAIL_BAD_ADDRESS);
    queue_store(q, index, &r, fenced, true);
    queue_stamp(q, index, 1);
    stage = queue_word_tells;
  }
  if (stage == queue_word_tells && queue_ring(q, index + 1)) return queue_word_over;
  return index * 4 + stage;
}

/* Between two steps of it: queue_pause, with what stall_tick returned last. Without help for far PEs, which
 * nobody needs where a card is waited for. */
extern "C" RUSHMEM_COLD uint64_t rushmem_queue_p_pause(uint64_t since, uint64_t at, int pe) {
  rushmem_queue *q = own_queue(pe);
  const uint32_t syndrome = queue_look(q);
  if (RUSHMEM_UNLIKELY(syndrome != 0)) queue_failed(q, syndrome, pe);
  pause(since == 0);
  const int how = at % 4 == queue_word_takes ? RUSHMEM_STALL_ROOM : RUSHMEM_STALL_QUEUE;
  return stall_tick(since, reinterpret_cast<uint64_t>(&q->completed), 8, how, pe, at / 4 + 1,
                    load_relaxed_word(&q->completed));
}

/* What to post for it from byte `at` on: how far that comes. `reached`: the card reaches the source. Apart
 * from what posts it, as what calls that has its registers, too. */
RUSHMEM_COLD uint64_t queue_put_part(queue_posting &what, const volatile queue_transfer *t, uint64_t at,
                                     bool reached) {
  uint32_t n = 0;
  const uint64_t remote = t->dst + at - state().heap_base;
  uint64_t part = t->bytes - at;
  if (part != 0) {
    queue_request &r = what.requests[n++];
    if (reached) part = queue_copy(r, remote, t->src + at - state().heap_base, part, RUSHMEM_MLX5_WRITE, t->pe);
    else part = queue_inline(r, remote, t->src + at, part, t->pe);
    at += part;
  }
  const bool last = at == t->bytes;
  if (last && t->sig != 0) queue_word(what.requests[n++], t->sig, t->value, 8, t->pe);
  /* Completions come in order: the last says it of all. */
  const bool waits = last && reached && (t->flags & RUSHMEM_RING_REPLY) != 0;
  queue_ask(what, n, waits ? queue_waits : 0u, t->pe);
  return at;
}

/* False, and nothing done: the card does not reach all of it, or it ends with a signal that adds. */
RUSHMEM_DEVICE bool queue_put_to(const volatile queue_transfer *t) {
  if (!has_queue(t->pe) || !queue_reaches(t->dst, t->bytes, t->pe)) return false;
  if (t->sig != 0 && (t->sig_op == RUSHMEM_SIGNAL_ADD || !queue_reaches(t->sig, 8, t->pe))) return false;
  const bool small = t->bytes <= RUSHMEM_QUEUE_INLINE_BYTES, reached = !small && queue_reaches(t->src, t->bytes, t->pe);
  if (!reached && t->bytes > queue_most_inline) return false;
  uint64_t at = 0;
  queue_posting what;
  do {
    at = queue_put_part(what, t, at, reached);
    if (what.n != 0) queue_run(&what);
  } while (at < t->bytes);
  return true;
}

/* put and, without RUSHMEM_RING_REPLY, put_nbi; with a signal behind it unless `sig` is 0. False: the proxy
 * is to do it, and may. (It is called by the caller, as every call in here costs it registers.) */
extern "C" RUSHMEM_COLD bool rushmem_queue_put(const volatile queue_transfer *t) {
  if (queue_put_to(t)) return true;
  rushmem_queue_before_proxy(t->pe);
  return false;
}

/* The same for a get. `here`: the card reaches the destination. */
RUSHMEM_COLD uint64_t queue_get_part(queue_posting &what, const volatile queue_transfer *t, uint64_t at, bool here) {
  queue_request &r = what.requests[0];
  const uint64_t base = state().heap_base, remote = t->src + at - base, left = t->bytes - at;
  if (!here) {
    const uint64_t part = queue_answer(r, remote, left, t->pe);
    queue_ask(what, 1, queue_waits | queue_sinks, t->pe, t->dst + at, part);
    return at + part;
  }
  const uint64_t part = queue_copy(r, remote, t->dst + at - base, left, RUSHMEM_MLX5_READ, t->pe);
  const bool waits = part == left && (t->flags & RUSHMEM_RING_REPLY) != 0;
  queue_ask(what, 1, waits ? queue_waits : queue_reads, t->pe);
  return at + part;
}

/* False, and nothing done: the card does not reach one side. */
RUSHMEM_DEVICE bool queue_get_from(const volatile queue_transfer *t) {
  if (!has_queue(t->pe) || !queue_reaches(t->src, t->bytes, t->pe)) return false;
  const bool here = queue_reaches(t->dst, t->bytes, t->pe);
  if (!here && t->bytes > RUSHMEM_QUEUE_SINK_BYTES) return false;
  uint64_t at = 0;
  queue_posting what;
  do {
    at = queue_get_part(what, t, at, here);
    queue_run(&what);
  } while (at < t->bytes);
  return true;
}

/* get and, without RUSHMEM_RING_REPLY, get_nbi; likewise. */
extern "C" RUSHMEM_COLD bool rushmem_queue_get(const volatile queue_transfer *t) {
  if (t->bytes == 0 || queue_get_from(t)) return true;
  rushmem_queue_before_proxy(t->pe);
  return false;
}

extern "C" RUSHMEM_COLD uint64_t rushmem_queue_g(uint64_t src, uint32_t width, int pe) {
  const uint64_t offset = src - state().heap_base;
  if (!has_queue(pe) || !queue_reaches(src, width, pe)) {
    rushmem_queue_before_proxy(pe);
    return proxy_g(src, width, pe);
  }
  queue_posting what;
  queue_answer(what.requests[0], offset, width, pe);
  return queue_post(what, 1, queue_waits | queue_sinks, pe, 0, width);
}

/* A signal, whatever it does. */
extern "C" RUSHMEM_COLD void rushmem_queue_signal(uint64_t sig, uint64_t value, int sig_op, int pe) {
  if (sig_op != RUSHMEM_SIGNAL_ADD) return rushmem_queue_words(0, 0, 0, sig, value, pe);
  rushmem_queue_before_proxy(pe);
  proxy_signal(sig, value, sig_op, pe);
}

extern "C" RUSHMEM_COLD uint64_t rushmem_queue_atomic(uint32_t code, uint32_t width, uint64_t target, uint64_t value,
                                                      uint64_t compare, int pe, uint32_t flags) {
  rushmem_queue_before_proxy(pe);
  return proxy_atomic(code, width, target, value, compare, pe, flags);
}

#endif

/* ---- the set of functions that net.h calls ---- */

/* One word, to a PE with a queue, as GPUs post it: from registers. One loop as queue_run's. */
RUSHMEM_DEVICE void queue_post_word(uint64_t dst, uint64_t word_, uint32_t width, int pe) {
  uint64_t at = 0, since = 0;
  while ((at = rushmem_queue_p(at, dst, word_, width, pe)) != queue_word_over) {
    since = rushmem_queue_p_pause(since, at, pe);
  }
}

/* One word. (On the CPU device tests call the other.) */
template <typename T> RUSHMEM_DEVICE void queue_p(T *dst, const T &value, int pe) {
#if defined(RUSHMEM_CPU)
  rushmem_queue_words(reinterpret_cast<uint64_t>(dst), to_bits(value), sizeof(T), 0, 0, pe);
#else
  queue_post_word(reinterpret_cast<uint64_t>(dst), to_bits(value), sizeof(T), pe);
#endif
}

}  // namespace impl
}  // namespace rushmem

#endif
