/* What members say of a call before its data goes: how much each of them has. */
#ifndef RUSHMEM_IMPL_COLL_SIZES_H
#define RUSHMEM_IMPL_COLL_SIZES_H

#include <rushmem/impl/coll/direct.h>
#include <rushmem/impl/coll/exchange.h>

namespace rushmem {
namespace impl {

/* Keeps them where every thread of the scope finds them until the call ends: in this PE's line of the member,
 * behind the word that the member writes. */
struct keep_said {
  rushmem_sync_line *lines;
  RUSHMEM_DEVICE void take(int member, size_t w, uint64_t word_) { lines[member].said[w] = word_; }
  RUSHMEM_DEVICE void done(size_t) {}
};

/* `source(member, w)`, w < words <= 3, to each member: then `c.lines()[m].said` is what member m says to this
 * one. */
template <typename Scope, typename Source> RUSHMEM_DEVICE void tell(call<Scope> &c, size_t words, Source source) {
  exchange<Scope>(c, words, words_of_each(source), keep_said{c.lines()});
  c.sync_all_threads();
}

/* When no thread of the scope needs them any more, and before the next call writes other ones. */
template <typename Scope> RUSHMEM_DEVICE void forget_said(const call<Scope> &c) {
  if constexpr (call<Scope>::blocks) c.sync_all_threads();
}

/* Word w of n elements, and zero behind them: blocks of different sizes are exchanged as if each was as large
 * as the largest, because a phase of packets receives from every member (call.h). */
template <typename T> RUSHMEM_DEVICE uint64_t word_or_zero(const T *from, size_t n, size_t w) {
  return w < words_of<T>(n) ? word_at(from, n, w) : 0;
}

}  // namespace impl
}  // namespace rushmem

#endif
