/* Signals: 8-byte words by which one PE notifies another, and puts that end with such a signal. (OpenSHMEM
 * 1.5, 9.8) A signal word is `uint64_t`, symmetric, and written by signal operations only.
 *
 * What orders data before its signal (PTX manual, "Causality Order"; the C++ model says the same on the CPU):
 *   1. each thread of the scope stores its share of the data, plainly;
 *   2. the scope synchronises. A barrier orders what its threads did before it before what they do after it,
 *      so the leader now comes after all of those stores;
 *   3. the leader alone updates the signal by a release at system scope. A release is cumulative: it orders
 *      all that happened before it, by whichever thread, not just the leader's own stores;
 *   4. the waiting thread sees the signal by an acquire (wait.h), and therewith the data.
 * One release for the whole scope; a fence by each thread would be right as well and cost each one a round
 * trip.
 *
 * To a PE that is not mapped the data and its signal are one descriptor, and the PE's own host delivers one
 * after the other.
 */
#ifndef RUSHMEM_SIGNAL_H
#define RUSHMEM_SIGNAL_H

#include <rushmem/rma.h>
#include <rushmem/wait.h>

namespace rushmem {
namespace impl {

RUSHMEM_DEVICE void signal_release(uint64_t *at, uint64_t value, int sig_op) {
  if (sig_op == RUSHMEM_SIGNAL_ADD) add_release_word(at, value);
  else store_release_word(at, value);
}

/* The data and its signal to a mapped PE; false, and nothing done, where it is not mapped. The scope has
 * synchronised after its last load of src. */
template <typename Scope, typename T>
RUSHMEM_DEVICE bool put_signal_near(T *dst, const T *src, size_t n, uint64_t *sig, uint64_t value, int sig_op, int pe) {
  if (!put_near<Scope, true>(dst, src, n, pe)) return false;
  Scope::sync();
  /* Looked for once more rather than kept in registers over the copy, where each counts. */
  if (Scope::rank() == 0) signal_release(route_to(opaque(pe)).at(sig), value, sig_op);
  return true;
}

}  // namespace impl

/* Copies n elements into `pe`'s `dst`, then updates `pe`'s `*sig` by `value` as `sig_op` says (signal::set or
 * signal::add): a thread that waits for the signal then sees the data. The data of *this call*: earlier puts
 * need a fence() before it, though those of this scope are in fact ordered too. Returns at once: `src` must
 * stay as it is until quiet(). (OpenSHMEM 1.5, 9.8 shmem_put_signal_nbi) Order: the data before its signal.
 * Cost: copy and release. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put_signal_nbi(T *dst, const T *src, size_t n, uint64_t *sig, uint64_t value, int sig_op,
                                   int pe) {
  RUSHMEM_TRACED(NBI, "put_signal_nbi", Scope::rank() == 0, pe, n * sizeof(T), sig);
  RUSHMEM_ASSERT_ELEMENT(T);
  const impl::noted_nbi noted(impl::noted_put_signal_nbi);
  if (!impl::put_signal_near<Scope>(dst, src, n, sig, value, sig_op, pe)) {
    impl::far_put_signal<Scope>(dst, src, n * sizeof(T), sig, value, sig_op, pe, 0);
  }
}

/* The same; on return `src` may be changed by any thread of the scope. (OpenSHMEM 1.5, 9.8 shmem_put_signal)
 * Order: the data before its signal. Cost: copy and release. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void put_signal(T *dst, const T *src, size_t n, uint64_t *sig, uint64_t value, int sig_op,
                               int pe) {
  RUSHMEM_TRACED(RMA, "put_signal", Scope::rank() == 0, pe, n * sizeof(T), sig);
  RUSHMEM_ASSERT_ELEMENT(T);
  if (!impl::put_signal_near<Scope>(dst, src, n, sig, value, sig_op, pe)) {
    impl::far_put_signal<Scope>(dst, src, n * sizeof(T), sig, value, sig_op, pe, RUSHMEM_RING_REPLY);
    Scope::sync();
  }
}

/* Updates `pe`'s `*sig` alone. Not ordered with anything before it: fence() first, or put_signal, where it
 * announces data. (As NVSHMEM's nvshmemx_signal_op)
 * Order: none. Cost: store. */
RUSHMEM_DEVICE void signal_op(uint64_t *sig, uint64_t value, int sig_op, int pe) {
  RUSHMEM_TRACED(RMA, "signal_op", true, pe, 8, sig);
  const impl::route to = impl::route_to(pe);
  if (to.is_far()) return impl::far_signal(sig, value, sig_op, pe);
  uint64_t *at = to.at(sig);
  impl::breathe();
  if (sig_op == RUSHMEM_SIGNAL_ADD) impl::add_word(at, value);
  else impl::store_relaxed_word(at, value);
}

/* This PE's signal word now. Orders what follows as a satisfied wait would. (OpenSHMEM 1.5, 9.8
 * shmem_signal_fetch)
 * Order: acquires: what the signal announces is visible. Cost: local. */
RUSHMEM_DEVICE uint64_t signal_fetch(const uint64_t *sig) {
  impl::breathe();
  return impl::load_acquire(sig);
}

/* Waits until `*sig how value` and returns the value that satisfied it; ordering as wait_until.
 * (OpenSHMEM 1.5, 9.10 shmem_signal_wait_until)
 * Order: acquires: what the signal announces is visible. Cost: wait. */
RUSHMEM_DEVICE uint64_t signal_wait_until(const uint64_t *sig, int how, uint64_t value) {
  RUSHMEM_TRACED(WAIT, "signal_wait_until", true, -1, 0, sig);
  uint64_t seen = impl::wait_for(sig, how, value);
  impl::acquire_seen<uint64_t>(sig, seen);
  return seen;
}

}  // namespace rushmem

#endif
