/* One of a card's send queues, as a kernel writes it: requests, slots, doorbell, completions; and where
 * symmetric memory is to the card. queue.h has what goes by it, and the argument for its order; abi_queue.h
 * the memory, mlx5.h the formats.
 *
 * Posting. A thread takes the next indices of a queue, waits until the card has done with what their slots
 * held, writes its requests, and stamps each slot. The thread that holds `ringing` counts stamped slots from
 * `rung` on, and tells the card of all of them by one doorbell; a thread leaves when the card knows of its
 * own. So requests are published in order, many share a doorbell, and a thread that has written its requests
 * leaves no gap, whatever becomes of it. On the CPU device indices are taken once there is room, as in
 * ring.h.
 *
 * Functions with C names are never inlined; in relocatable code they are the device library's.
 */
#ifndef RUSHMEM_IMPL_NET_SEND_QUEUE_H
#define RUSHMEM_IMPL_NET_SEND_QUEUE_H

#include <rushmem/impl/net/mlx5.h>
#include <rushmem/impl/net/proxy.h>
#include <rushmem/scope.h>

static_assert(sizeof(rushmem_queue) == 512 && sizeof(rushmem_queues) == 384 && sizeof(rushmem_queue_segment) == 32,
              "rushmem/abi_queue.h");

namespace rushmem {
namespace impl {

/* Whether a queue leads to `pe`, a PE or none: of each context, or of none. */
RUSHMEM_DEVICE bool has_queue(int pe) {
  const rushmem_queues *all = state().queues;
  if (RUSHMEM_LIKELY(!all)) return false;
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(state().n_pes) && all->queues[pe].slots != nullptr;
}

/* The queue to `pe` to which this thread's block posts, in the launch's life always the same: of the context
 * that is the block's number modulo their count. (The remainder by two products: Lemire, Kaser and Kurz,
 * "Faster remainder by direct computation", 3. It is exact for the first 2^26 blocks at least, and a context
 * for all.) */
RUSHMEM_DEVICE rushmem_queue *own_queue(int pe) {
  const rushmem_queues *all = state().queues;
  const uint32_t share = block_in_grid() * all->context_step;
  const uint32_t context = static_cast<uint32_t>(static_cast<uint64_t>(share) * all->contexts >> 32);
  return all->queues + (context * static_cast<uint32_t>(state().n_pes) + static_cast<uint32_t>(pe));
}

/* Calls `f(queue, pe)` for the queues of all contexts. */
template <typename F> RUSHMEM_DEVICE void each_queue(F f) {
  const rushmem_queues *all = state().queues;
  const int n = state().n_pes;
  rushmem_queue *q = all->queues;
  RUSHMEM_ROLLED
  for (uint32_t context = 0; context < all->contexts; ++context) {
    RUSHMEM_ROLLED
    for (int pe = 0; pe < n; ++pe, ++q) {
      if (q->slots) f(q, pe);
    }
  }
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

/* Writes a request into the slot of its index. `fenced`: there are earlier READs that nobody has waited
 * for. */
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
 * `completed` is read first, and acquires: the counter read behind it is none from before what raised it. The
 * card's counter is then ahead of it by no more than there are slots, unless another thread has raised
 * `completed` meanwhile: then the exchange fails, and nothing is lost. (host/ring has a model of all this,
 * which a test compares with these functions step by step.) */
RUSHMEM_DEVICE uint32_t queue_look(rushmem_queue *q) {
  const uint64_t before = load_acquire_word(&q->completed);
  const uint64_t last = load_relaxed_word(q->completion + 7);
  const uint32_t kind = static_cast<uint32_t>(last >> 60);
  if (kind == RUSHMEM_MLX5_NONE_YET) return 0;
  if (kind != RUSHMEM_MLX5_DONE) return static_cast<uint32_t>(load_relaxed_word(q->completion + 6) >> 56);
  const uint32_t counter = static_cast<uint32_t>((last >> 32 & 0xff) << 8 | (last >> 40 & 0xff));
  const int16_t more = static_cast<int16_t>(static_cast<uint16_t>(counter + 1 - static_cast<uint32_t>(before)));
  if (more <= 0) return 0;
  /* What the card wrote before the completion, for every thread that sees `completed`. */
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

/* The slots' requests are written: for threads of this device, one of which tells the card. */
RUSHMEM_DEVICE void queue_stamp(const rushmem_queue *q, uint64_t first, uint32_t n) {
  fence_acq_rel_gpu();
  for (uint32_t i = 0; i < n; ++i) {
    store_relaxed_word(q->stamps + ((first + i) & q->mask), static_cast<uint32_t>(first + i + 1));
  }
}

/* True once the card knows of the requests below `end`, which are stamped. */
RUSHMEM_DEVICE bool queue_ring(rushmem_queue *q, uint64_t end) {
  if (static_cast<int64_t>(load_acquire_word(&q->rung) - end) >= 0) return true;
  if (compare_swap_word(&q->ringing, uint64_t(0), uint64_t(1)) != 0) return false;
  fence_acq_rel_gpu();
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
    store_release_word_gpu(&q->rung, to);
  }
  store_release_word_gpu(&q->ringing, uint64_t(0));
  return static_cast<int64_t>(to - end) >= 0;
}

/* ---- symmetric memory, as the card knows it ---- */

/* A piece of it: how many bytes lie in one registered piece from there on, 0: none; and its keys. */
struct queue_piece {
  uint64_t bytes;
  uint32_t lkey, rkey;
};

/* At an offset of the stride, of this PE and of `pe`. The host changes entries meanwhile: one that is given
 * to other memory has no bytes before it has another offset. */
RUSHMEM_DEVICE queue_piece queue_piece_at(uint64_t offset, int pe) {
  const rushmem_queues *all = state().queues;
  const uint64_t n = load_relaxed_word(all->n_segments);
  for (uint64_t i = 0; i < n; ++i) {
    const rushmem_queue_segment *s = all->segments + i;
    const uint64_t at = load_acquire_word(&s->offset), bytes = load_acquire_word(&s->bytes), inside = offset - at;
    if (inside >= bytes || load_relaxed_word(&s->offset) != at) continue;
    return queue_piece{bytes - inside, s->lkey, load_relaxed_word(s->rkeys + pe)};
  }
  return queue_piece{0, 0, 0};
}

/* ---- posting ---- */

/* What a thread asks of a queue. In memory of its own, as every register of it would be one more in the
 * kernel. */
struct queue_posting {
  queue_request requests[2];
  rushmem_queue *queue;
  uint64_t to, bytes; /* of queue_sinks: where so many bytes of the answer go; 0: into the result */
  uint32_t n, how;    /* no requests: waits for those below `to` */
  int pe;             /* the queue's */
  /* How far it is. */
  uint32_t stage, claim;
  uint64_t first, result;
};

/* What queue_run does beside posting. */
enum : uint32_t {
  queue_waits = 1,    /* until the requests are complete */
  queue_sinks = 2,    /* the request is a READ or an atomic, answered into a place that it takes and frees */
  queue_reads = 4,    /* a READ that nobody waits for */
  queue_probes = 8,   /* a probe that nobody waits for */
  queue_updates = 16  /* an atomic that nobody waits for */
};

#if !defined(RUSHMEM_COLD_IN_LIBRARY)

/* Functions of their own, as what they inline would cost every kernel registers. */

/* Whether the card reaches all of [at, at + bytes). */
RUSHMEM_COLD bool queue_reaches(uint64_t at, uint64_t bytes, int pe) {
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

/* A request of the queue to `pe` has failed, perhaps another thread's. What the network does to all requests,
 * the host makes the job's end, and the caller waits for that; one that the card refuses ends this launch. */
RUSHMEM_DEVICE void queue_failed(const rushmem_queue *q, uint32_t syndrome, int pe) {
  if (syndrome == RUSHMEM_MLX5_FLUSHED || syndrome == RUSHMEM_MLX5_NO_ANSWER || syndrome == RUSHMEM_MLX5_NOT_READY) {
    return;
  }
  report_stall(reinterpret_cast<uint64_t>(q->completion), syndrome, RUSHMEM_STALL_REFUSED, pe, 0,
               load_relaxed_word(&q->completed), 0);
  fail(RUSHMEM_DEVICE_FAIL_QUEUE);
}

/* Writes requests into their slots, which are free, and stamps them. */
RUSHMEM_DEVICE void queue_write(rushmem_queue *q, uint64_t first, const volatile queue_posting *what, uint32_t claim) {
  const uint32_t n = what->n, how = what->how;
  const bool fenced = static_cast<int64_t>(load_relaxed_word(&q->last_read) - load_relaxed_word(&q->completed)) > 0;
  RUSHMEM_ROLLED
  for (uint32_t i = 0; i < n; ++i) queue_store(q, first + i, what->requests + i, fenced, i + 1 == n);
  if (how & queue_sinks) {
    /* The place that was taken, instead of the one that the request names; behind an atomic's operands. */
    const volatile queue_request *r = what->requests;
    char *slot = static_cast<char *>(q->slots) + (first & q->mask) * RUSHMEM_MLX5_BLOCK;
    const uint64_t at = state().queues->sink_address + uint64_t(claim) * RUSHMEM_QUEUE_SINK_BYTES;
    const bool atomic = r->segments > 3;
    ring_store_pair(slot + (atomic ? RUSHMEM_MLX5_ANSWER_AT : RUSHMEM_MLX5_DATA_AT), atomic ? r->c : r->a,
                    big_endian(at));
  }
  if (how & queue_reads) queue_raise(&q->last_read, first + n);
  if (how & queue_updates) queue_raise(&q->last_atomic, first + n);
  if (how & queue_probes) queue_raise(&q->probed, first + n);
  queue_stamp(q, first, n);
}

/* What has come to a place for answers, which is free then. */
RUSHMEM_DEVICE uint64_t queue_take_answer(const volatile queue_posting *what, uint32_t claim) {
  rushmem_queues *all = state().queues;
  const uint64_t *sink = reinterpret_cast<const uint64_t *>(all->sinks + claim * RUSHMEM_QUEUE_SINK_BYTES);
  const uint64_t bytes = what->bytes, to = what->to;
  uint64_t got = 0;
  RUSHMEM_ROLLED
  for (uint64_t at = 0; at < bytes; at += 8) {
    got = load_relaxed_word(sink + at / 8);
    if (to != 0) proxy_store(to + at, got, bytes - at < 8 ? bytes - at : 8);
  }
  store_release_word(all->sink_busy + claim, uint64_t(0));
  return bytes < 8 ? got & ((uint64_t(1) << 8 * bytes) - 1) : got;
}

enum : uint32_t { queue_claims, queue_takes, queue_places, queue_tells, queue_awaits };

/* Brings it forward as far as it goes now. True: it is over. */
RUSHMEM_COLD bool queue_step(queue_posting *what) {
  rushmem_queue *q = what->queue;
  if (what->stage == queue_claims) {
    rushmem_queues *all = state().queues;
    what->claim = static_cast<uint32_t>(fetch_add_word(&all->sink_tail, uint64_t(1))) % RUSHMEM_QUEUE_SINKS;
    if (compare_swap_word(all->sink_busy + what->claim, uint64_t(0), uint64_t(1)) == 0) {
      fence_acq_rel();
      what->stage = queue_takes;
    }
  }
  if (what->stage == queue_takes) {
    uint64_t first = 0;
    if (queue_take(q, what->n, first)) {
      what->first = first;
      what->stage = queue_places;
    }
  }
  const uint64_t end = what->first + what->n;
  if (what->stage == queue_places && queue_has_room(q, end)) {
    queue_write(q, what->first, what, what->claim);
    what->stage = queue_tells;
  }
  if (what->stage == queue_tells && queue_ring(q, end)) {
    if (!(what->how & queue_waits)) return true;
    what->stage = queue_awaits;
  }
  if (what->stage == queue_awaits && queue_is_complete(q, end)) {
    if (what->how & queue_sinks) what->result = queue_take_answer(what, what->claim);
    return true;
  }
  return false;
}

/* What a wait for a queue is for. Before a request has a place in the queue it has no number. */
RUSHMEM_DEVICE int queue_stall(uint32_t stage) {
  return stage < queue_places ? RUSHMEM_STALL_ROOM : RUSHMEM_STALL_QUEUE;
}

/* Between two steps. */
RUSHMEM_COLD void queue_pause(stall_watch *watch, const queue_posting *what) {
  rushmem_queue *q = what->queue;
  const uint64_t end = what->first + what->n;
  const uint32_t syndrome = queue_look(q);
  if (RUSHMEM_UNLIKELY(syndrome != 0)) queue_failed(q, syndrome, what->pe);
  watch->unsatisfied(&q->completed, queue_stall(what->stage), end, load_relaxed_word(&q->completed), what->pe);
}

/* Posts requests, side by side, to a queue, and does what `how` says. The result is the answer's
 * last word for queue_sinks. One loop, as in rushmem_far_post and for its reason: threads of a warp wait for
 * one another. What it keeps from step to step is in memory: registers would be the kernel's. */
RUSHMEM_DEVICE uint64_t queue_run(queue_posting *what) {
  what->stage = what->n == 0 ? queue_awaits : what->how & queue_sinks ? queue_claims : queue_takes;
  what->first = what->to;
  stall_watch watch;
  while (!queue_step(what)) queue_pause(&watch, what);
  return what->result;
}

#endif

}  // namespace impl
}  // namespace rushmem

#endif
