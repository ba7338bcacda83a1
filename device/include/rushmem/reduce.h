/* Reductions over a team: reduce (every member gets the result), reducescatter (each its block of it) and
 * scan. (OpenSHMEM 1.5, 9.9 shmem_sum_reduce and its family; 1.6 shmem_sum_inscan, shmem_sum_exscan)
 *
 *     rushmem::reduce<rushmem::block>(team, dst, src, n, rushmem::sum{});
 *
 * T is an integer or float of 1 to 8 bytes, __half or __nv_bfloat16, or a `rushmem::complex` of floats (sum
 * and prod) or doubles (sum). Results are the same bits on every member and in every run: members are
 * combined in the order of their numbers (impl/coll/operators.h). */
#ifndef RUSHMEM_REDUCE_H
#define RUSHMEM_REDUCE_H

#include <rushmem/impl/coll/between.h>
#include <rushmem/impl/coll/combine.h>
#include <rushmem/impl/coll/few.h>
#include <rushmem/impl/coll/wide.h>

#define RUSHMEM_ASSERT_REDUCIBLE(T) \
  static_assert(rushmem::impl::is_reducible<T>::value, "rushmem reduces numbers of 1, 2, 4 and 8 bytes and complex<float>")

namespace rushmem {
namespace impl {

/* Combines the members' words, and leaves the result. */
template <typename T, typename Op> struct reducing {
  T *dst;
  size_t n;
  accumulator<T, Op> so_far;
  RUSHMEM_DEVICE void take(int member, size_t, uint64_t word_) {
    if (member == 0) so_far.begin(word_);
    else so_far.add(word_);
  }
  RUSHMEM_DEVICE void done(size_t w) { set_word(dst, n, w, so_far.result()); }
  RUSHMEM_DEVICE void take_whole(int member, size_t w, uint32_t, uint64_t word_) { take(member, w, word_); }
  RUSHMEM_DEVICE void done_whole(size_t w, uint32_t past) { leave_whole(dst, w, past, so_far.result()); }
  RUSHMEM_DEVICE void take_both(bool second_half, uint64_t first, uint64_t second) {
    so_far.begin(first);
    so_far.add(second);
    leave_halves(dst, second_half, so_far.result());
  }
};

/* The same of the members up to this one, or before it. */
template <typename T, typename Op, bool inclusive> struct scanning {
  T *dst;
  size_t n;
  int me;
  accumulator<T, Op> so_far;
  RUSHMEM_DEVICE void take(int member, size_t, uint64_t word_) {
    if (inclusive ? member > me : member >= me) return;
    if (member == 0) so_far.begin(word_);
    else so_far.add(word_);
  }
  RUSHMEM_DEVICE uint64_t result() const { return inclusive || me > 0 ? so_far.result() : 0; }
  RUSHMEM_DEVICE void done(size_t w) { set_word(dst, n, w, result()); }
  RUSHMEM_DEVICE void take_whole(int member, size_t w, uint32_t, uint64_t word_) { take(member, w, word_); }
  RUSHMEM_DEVICE void done_whole(size_t w, uint32_t past) { leave_whole(dst, w, past, result()); }
};


/* The calls that are neither small nor of few words, out of line (small.h): those that read the other
 * members' arrays, and others. */
template <typename Scope, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reduce_direct(team t, T *dst, const T *src, size_t n) {
  direct_call<Scope>(t, tag_of(RUSHMEM_COLLECTIVE_REDUCE, n * sizeof(T), reduction<T, Op> + 1),
                     [=](const call<Scope> &c) { combine_share<Op>(c, dst, src, n); });
}
template <typename Scope, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reduce_any(team t, T *dst, const T *src, size_t n, bool direct, bool stores) {
  const uint64_t more = reduction<T, Op> + direct + (stores ? stores_alone : 0);
  call<Scope> c(t, tag_of(RUSHMEM_COLLECTIVE_REDUCE, n * sizeof(T), more), direct);
  if (stores) reduce_of_two<Op>(c, dst, src, n);
  else if (direct) reduce_by_puts<Op>(c, dst, src, n);
  else exchange<Scope>(c, words_of<T>(n), words_from<T, false>{src, n}, reducing<T, Op>{dst, n, {}});
  c.end();
}
template <typename Scope, typename T, typename Op>
RUSHMEM_DEVICE void reduce_large(const team &t, T *dst, const T *src, size_t n) {
  const size_t bytes = n * sizeof(T);
  const bool near = t.raw.all_near != 0;
  const bool direct = is_symmetric(dst, bytes) && (near ? is_large<Scope>(t, bytes) && is_symmetric(src, bytes)
                                                        : is_large_to_reduce_by_puts(t, bytes) && dst != src);
  const bool stores = direct && near && is_reduced_by_stores<Scope>(t, bytes, dst, src);
  if (direct && near && !stores) reduce_direct<Scope, T, Op>(t, dst, src, n);
  else reduce_any<Scope, T, Op>(t, dst, src, n, direct, stores);
}

template <typename Scope, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reducescatter_direct(team t, T *dst, const T *src, size_t n) {
  direct_call<Scope>(t, tag_of(RUSHMEM_COLLECTIVE_REDUCESCATTER, n * sizeof(T), reduction<T, Op> + 1),
                     [=](const call<Scope> &c) {
                       const T *block_ = src + static_cast<size_t>(c.t.raw.my_pe) * n;
                       combine<Op, false>(c, dst, block_, n, 0, n * sizeof(T));
                     });
}
template <typename Scope, typename T, typename Op>
RUSHMEM_OUTLINED_LARGE void reducescatter_any(team t, T *dst, const T *src, size_t n) {
  call<Scope> c(t, tag_of(RUSHMEM_COLLECTIVE_REDUCESCATTER, n * sizeof(T), reduction<T, Op>));
  exchange<Scope>(c, words_of<T>(n), words_from<T, true>{src, n}, reducing<T, Op>{dst, n, {}});
  c.end();
}

}  // namespace impl

/* Element i of `dst`, on every member, is that of all members' `src` combined by `Op`: sum, prod, min, max,
 * and_, or_ or xor_. `dst` and `src` are the same array, on all members alike, or do not overlap; each is
 * symmetric, or not for any member. On return `dst` may be read by every thread of the scope, and `src`
 * changed. (OpenSHMEM 1.5, 9.9 shmem_sum_reduce)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T, typename Op>
RUSHMEM_DEVICE void reduce(const team &t, T *dst, const T *src, size_t n, Op) {
  RUSHMEM_TRACED(COLLECTIVE, "reduce", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_REDUCIBLE(T);
  const impl::words_from<T, false> source{src, n};
  const impl::reducing<T, Op> sink{dst, n, {}};
  constexpr uint64_t more = impl::reduction<T, Op>;
  if (RUSHMEM_LIKELY((impl::is_of_pair<Scope>(t, n * sizeof(T), source, dst)))) {
    impl::pair_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCE, n * sizeof(T), more, source, sink);
    return;
  }
  if (n == 0) return;
  if (impl::wide_reduce<Scope, T, Op>(t, RUSHMEM_COLLECTIVE_REDUCE, dst, src, 0, n)) return;
  if (impl::small_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCE, n * sizeof(T), more, source, sink)) return;
  if (impl::few_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCE, n * sizeof(T), more, source, sink)) return;
  impl::reduce_large<Scope, T, Op>(t, dst, src, n);
}

/* Member j gets block j, of n elements, of the reduction of all members' `src`, which are n_pes() blocks.
 * `dst` may be the first block of `src`. `src` is symmetric, or not for any member. On return `dst` may be
 * read by every thread of the scope, and `src` changed. (NVSHMEM 3, nvshmem_sum_reducescatter) Order: the
 * data is here on return. Cost: collective. */
template <typename Scope = thread, typename T, typename Op>
RUSHMEM_DEVICE void reducescatter(const team &t, T *dst, const T *src, size_t n, Op) {
  RUSHMEM_TRACED(COLLECTIVE, "reducescatter", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_REDUCIBLE(T);
  const impl::words_from<T, true> source{src, n};
  const impl::reducing<T, Op> sink{dst, n, {}};
  constexpr uint64_t more = impl::reduction<T, Op>;
  if (RUSHMEM_LIKELY((impl::is_of_pair<Scope>(t, n * sizeof(T), source, dst)))) {
    impl::pair_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCESCATTER, n * sizeof(T), more, source, sink);
    return;
  }
  if (n == 0) return;
  if (impl::wide_reduce<Scope, T, Op>(t, RUSHMEM_COLLECTIVE_REDUCESCATTER, dst, src, n, n)) return;
  if (impl::small_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCESCATTER, n * sizeof(T), more, source, sink)) return;
  if (impl::few_exchange<Scope>(t, RUSHMEM_COLLECTIVE_REDUCESCATTER, n * sizeof(T), more, source, sink)) return;
  const size_t bytes = n * sizeof(T), count = static_cast<size_t>(t.raw.n_pes) * n;
  /* In place, a member's first block would change while others read it. */
  if (impl::is_large<Scope>(t, bytes) && t.raw.all_near && dst != src && impl::is_symmetric(src, count * sizeof(T))) {
    return impl::reducescatter_direct<Scope, T, Op>(t, dst, src, n);
  }
  impl::reducescatter_any<Scope, T, Op>(t, dst, src, n);
}

/* Element i of `dst` is that of the members' `src` up to this one, combined by `Op`. `dst` and `src` are the
 * same array or do not overlap. (OpenSHMEM 1.6 shmem_sum_inscan)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T, typename Op>
RUSHMEM_DEVICE void inscan(const team &t, T *dst, const T *src, size_t n, Op) {
  RUSHMEM_TRACED(COLLECTIVE, "inscan", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_REDUCIBLE(T);
  if (n == 0) return;
  impl::call<Scope> c(t, impl::tag_of(RUSHMEM_COLLECTIVE_SCAN, n * sizeof(T), Op::code * 16 + sizeof(T)));
  impl::exchange<Scope>(
      c, impl::words_of<T>(n), impl::words_from<T, false>{src, n},
      impl::scanning<T, Op, true>{dst, n, t.raw.my_pe, {}});
  c.end();
}

/* The same of the members before this one; zero on the first. (OpenSHMEM 1.6 shmem_sum_exscan)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T, typename Op>
RUSHMEM_DEVICE void exscan(const team &t, T *dst, const T *src, size_t n, Op) {
  RUSHMEM_TRACED(COLLECTIVE, "exscan", Scope::rank() == 0, -1, n * sizeof(T), nullptr);
  RUSHMEM_ASSERT_REDUCIBLE(T);
  if (n == 0) return;
  impl::call<Scope> c(t, impl::tag_of(RUSHMEM_COLLECTIVE_SCAN, n * sizeof(T), Op::code * 16 + sizeof(T) + 8192));
  impl::exchange<Scope>(
      c, impl::words_of<T>(n), impl::words_from<T, false>{src, n},
      impl::scanning<T, Op, false>{dst, n, t.raw.my_pe, {}});
  c.end();
}

}  // namespace rushmem

#include <rushmem/impl/coll/complex.h>

#endif
