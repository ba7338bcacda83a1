/* Small messages whose data comes with its own flag: 8 bytes of data and an 8-byte sequence number are one
 * 16-byte store, so nothing has to be ordered before anything. A round trip is that of a bare flag (1.26 us
 * between two GPUs over NVLink), where data and a signal apart take 4.0 us: a release waits until the data
 * has been acknowledged.
 *
 *     rushmem::put_packed(slot, value, round, right);              // to the right neighbour
 *     uint64_t theirs = rushmem::wait_packed(slot, round);         // what the left one sent
 *
 * A `packet` is a place for one such message, in symmetric memory; longer messages take an array of them, 8
 * bytes in each (packets<T>(n) of them for n elements), and pay for it with twice the bytes: meant for up to
 * a few KiB.
 *
 * The protocol is the program's. A packet's sequence number is never sent twice in a row (count up from 1;
 * memory of a fresh allocation is zero), and the next message into a packet is sent only once the receiver
 * has taken the last: its own answer usually says so. A receiver that waits for a message which has been
 * overwritten waits for ever, and is reported like any wait.
 *
 * Ordering: none but of a packet's two halves. Where a message also announces other data, fence() before
 * put_packed and fence() after wait_packed order it like any flag.
 */
#ifndef RUSHMEM_PACKED_H
#define RUSHMEM_PACKED_H

#include <rushmem/rma.h>
#include <rushmem/wait.h>

namespace rushmem {

struct alignas(16) packet {
  uint64_t value;
  uint64_t sequence;
};

/* The same of 12 bytes, for which a sequence number of 32 bits must do: it is right as long as no number is
 * waited for in a packet that has not been written for 2^32 of them. */
struct alignas(16) slim_packet {
  uint32_t value[3];
  uint32_t sequence;
};

/* How many packets a message of n elements takes. */
template <typename T> __host__ __device__ constexpr size_t packets(size_t n) { return (n * sizeof(T) + 7) / 8; }

namespace impl {

/* 8 bytes, or the last few of a message, of memory of any alignment that a multiple of `unit` allows. Nothing
 * past them is read or written. Generic addresses: this side may be shared memory. */
template <size_t unit> RUSHMEM_DEVICE uint64_t gather_word(const char *from, size_t bytes) {
  if (bytes >= 8 && (unit >= 8 || (reinterpret_cast<uint64_t>(from) & 7) == 0)) return load_part<8>(from);
  uint64_t value = 0;
  RUSHMEM_UNROLL
  for (size_t i = 0; i < 8; i += unit) {
    if (i < bytes) value |= load_part<unit>(from + i) << (8 * i);
  }
  return value;
}

template <size_t unit> RUSHMEM_DEVICE void scatter_word(char *to, uint64_t value, size_t bytes) {
  if (bytes >= 8 && (unit >= 8 || (reinterpret_cast<uint64_t>(to) & 7) == 0)) return store_part<8>(to, value);
  RUSHMEM_UNROLL
  for (size_t i = 0; i < 8; i += unit) {
    if (i < bytes) store_part<unit>(to + i, value >> (8 * i));
  }
}

/* To a PE that is not mapped: a word and its signal, in one descriptor. */
RUSHMEM_DEVICE void far_packet(packet *slot, uint64_t value, uint64_t sequence, int pe) {
  const noted_nbi noted(noted_packet);
  far_put_word_signal(&slot->value, value, &slot->sequence, sequence, pe);
}

/* The widest part of a packet that every T* is aligned for. */
template <typename T> struct part_of {
  static constexpr size_t value = alignof(T) < 8 ? alignof(T) : 8;
};

/* Packets of one thread whose loads are in flight together. */
template <typename Scope> struct packets_polled {
  static constexpr int value = is_alone<Scope>::value ? 4 : 1;
};

}  // namespace impl

/* Sends 8 bytes to `pe`'s `*slot`. Complete, like any put, at the next quiet().
 * Order: the two halves of the packet. Cost: store. */
RUSHMEM_DEVICE void put_packed(packet *slot, uint64_t value, uint64_t sequence, int pe) {
  RUSHMEM_TRACED(RMA, "put_packed", true, pe, 8, &slot->sequence);
  const impl::route to = impl::route_to(pe);
  if (to.is_far()) return impl::far_packet(slot, value, sequence, pe);
  impl::store_packet(to.at(slot), value, sequence);
}

/* The same to a packet of another PE where ptr() says that it is: for loops over packets, which so ask once.
 * Order: the two parts of the packet. Cost: store. */
RUSHMEM_DEVICE void store_packed(packet *mapped, uint64_t value, uint64_t sequence) {
  impl::store_packet(mapped, value, sequence);
}
RUSHMEM_DEVICE void store_packed(slim_packet *mapped, const uint32_t (&value)[3], uint32_t sequence) {
  impl::store_packet(reinterpret_cast<packet *>(mapped), uint64_t(value[1]) << 32 | value[0], uint64_t(sequence) << 32 | value[2]);
}

/* Sends n elements to `pe`'s packets at `slots`, packets<T>(n) of them. On return `src`, any memory of this
 * PE, may be changed by any thread of the scope. Order: the two halves of each packet. Cost: copy, of twice
 * the bytes. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put_packed(packet *slots, const T *src, size_t n, uint64_t sequence, int pe) {
  RUSHMEM_TRACED(RMA, "put_packed", Scope::rank() == 0, pe, n * sizeof(T), &slots->sequence);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::route way = impl::route_to(pe);
  const bool far = way.is_far();
  packet *to = far ? slots : way.at(slots);
  const char *from = reinterpret_cast<const char *>(src);
  const size_t bytes = n * sizeof(T);
  for (size_t i = Scope::rank(); i * 8 < bytes; i += Scope::size()) {
    const uint64_t value = impl::gather_word<impl::part_of<T>::value>(from + i * 8, bytes - i * 8);
    if (far) impl::far_packet(to + i, value, sequence, pe);
    else impl::store_packet(to + i, value, sequence);
  }
  Scope::sync();
}

/* Whether the message with this number has come to this PE's `*slot`; then `value` is what it says.
 * Order: none but of the packet. Cost: local. */
RUSHMEM_DEVICE bool test_packed(const packet *slot, uint64_t sequence, uint64_t *value) {
  impl::breathe();
  const packet seen = impl::load_packet(slot);
  if (seen.sequence != sequence) return false;
  *value = seen.value;
  return true;
}

RUSHMEM_DEVICE bool test_packed(const slim_packet *slot, uint32_t sequence, uint32_t (&value)[3]) {
  impl::breathe();
  const packet seen = impl::load_packet(reinterpret_cast<const packet *>(slot));
  if (seen.sequence >> 32 != sequence) return false;
  value[0] = static_cast<uint32_t>(seen.value);
  value[1] = static_cast<uint32_t>(seen.value >> 32);
  value[2] = static_cast<uint32_t>(seen.sequence);
  return true;
}

/* Waits for the message with this number in this PE's `*slot`, and returns what it says.
 * Order: none but of the packet. Cost: wait. */
RUSHMEM_DEVICE uint64_t wait_packed(const packet *slot, uint64_t sequence) {
  RUSHMEM_TRACED(WAIT, "wait_packed", true, -1, 0, &slot->sequence);
  return impl::poll([=] { return impl::load_packet(slot); },
                    [=](const packet &seen) { return seen.sequence == sequence; },
                    [=](impl::stall_watch &watch, const packet &seen) {
                      watch.stop(&slot->sequence, RUSHMEM_CMP_EQ, sequence, seen.sequence);
                    })
      .value;
}

RUSHMEM_DEVICE void wait_packed(const slim_packet *slot, uint32_t sequence, uint32_t (&value)[3]) {
  RUSHMEM_TRACED(WAIT, "wait_packed", true, -1, 0, &slot->sequence);
  const packet seen = impl::poll([=] { return impl::load_packet(reinterpret_cast<const packet *>(slot)); },
                                 [=](const packet &one) { return one.sequence >> 32 == sequence; },
                                 [=](impl::stall_watch &watch, const packet &one) {
                                   watch.stop(&slot->sequence, RUSHMEM_CMP_EQ, sequence, static_cast<uint32_t>(one.sequence >> 32));
                                 });
  value[0] = static_cast<uint32_t>(seen.value);
  value[1] = static_cast<uint32_t>(seen.value >> 32);
  value[2] = static_cast<uint32_t>(seen.sequence);
}

/* Waits for all of a message of n elements in this PE's packets at `slots`, and leaves it at `dst`, any
 * memory of this PE, where every thread of the scope may read it on return. Order: none but of the packets.
 * Cost: wait. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void wait_packed(T *dst, const packet *slots, size_t n, uint64_t sequence) {
  RUSHMEM_TRACED(WAIT, "wait_packed", Scope::rank() == 0, -1, n * sizeof(T), &slots->sequence);
  RUSHMEM_ASSERT_ELEMENT(T);
  constexpr int U = impl::packets_polled<Scope>::value;
  char *to = reinterpret_cast<char *>(dst);
  const size_t bytes = n * sizeof(T), size = Scope::size(), count = packets<T>(n);
  for (size_t first = Scope::rank(); first < count; first += U * size) {
    impl::stall_watch watch;
    packet seen[U];
    for (;;) {
      RUSHMEM_UNROLL
      for (int u = 0; u < U; ++u) {
        seen[u] = packet{0, sequence};
        if (u == 0 || first + u * size < count) seen[u] = impl::load_packet(slots + first + u * size);
      }
      int late = -1;
      RUSHMEM_UNROLL
      for (int u = U; u-- > 0;) {
        if (seen[u].sequence != sequence) late = u;
      }
      if (late < 0) break;
      const packet &one = slots[first + static_cast<size_t>(late) * size];
      watch.unsatisfied(&one.sequence, RUSHMEM_CMP_EQ, sequence, seen[late == 0 ? 0 : U - 1].sequence);
    }
    RUSHMEM_UNROLL
    for (int u = 0; u < U; ++u) {
      const size_t at = (first + u * size) * 8;
      if (u == 0 || at < bytes) impl::scatter_word<impl::part_of<T>::value>(to + at, seen[u].value, bytes - at);
    }
  }
  Scope::sync();
}

}  // namespace rushmem

#endif
