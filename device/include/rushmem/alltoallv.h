/* Blocks of different sizes from every member to every member. (MPI 4.1, 6.8 MPI_Alltoallv) */
#ifndef RUSHMEM_ALLTOALLV_H
#define RUSHMEM_ALLTOALLV_H

#include <rushmem/impl/coll/sizes.h>

namespace rushmem {
namespace impl {

/* Word w of member m goes to where this PE wants m's block. */
template <typename T> struct block_where_wanted {
  T *dst;
  const size_t *dst_at;
  const rushmem_sync_line *lines;
  RUSHMEM_DEVICE void take(int member, size_t w, uint64_t word_) {
    const size_t n = lines[member].said[0];
    if (w < words_of<T>(n)) set_word(dst + dst_at[member], n, w, word_);
  }
  RUSHMEM_DEVICE void done(size_t) {}
};

}  // namespace impl

/* n[j] elements at `src + src_at[j]` go to member j, and what comes from member i lies at `dst + dst_at[i]`:
 * `received[i]` elements, where `received` is not null. Only senders need to know sizes. `dst_at`,
 * `received`, `src_at` and `n` have an entry for each member, in any memory of this PE that the scope's
 * threads can reach; `received` is none of the others. Parts of `dst` do not overlap one another or `src`.
 * `dst` is symmetric, or not for any member. On return `dst` and `received` may be read by every thread of
 * the scope, and the rest changed. Small blocks travel as if each was as large as the largest.
 * (MPI 4.1, 6.8 MPI_Alltoallv)
 * Order: the data is here on return. Cost: collective. */
template <typename Scope = thread, typename T>
RUSHMEM_DEVICE void alltoallv(const team &t, T *dst, const size_t *dst_at, size_t *received, const T *src,
                              const size_t *src_at, const size_t *n) {
  RUSHMEM_TRACED(COLLECTIVE, "alltoallv", Scope::rank() == 0, -1, 0, nullptr);
  RUSHMEM_ASSERT_ELEMENT(T);
  const int members = t.raw.n_pes, me = t.raw.my_pe;
  const bool symmetric = impl::is_symmetric(dst, sizeof(T));
  impl::call<Scope> c(t, impl::tag_of(RUSHMEM_COLLECTIVE_ALLTOALLV, sizeof(T), symmetric));
  size_t most = 0;
  RUSHMEM_ROLLED
  for (int member = 0; member < members; ++member) most = n[member] > most ? n[member] : most;
  /* How much comes, where it is wanted, and the largest block that this PE sends. */
  impl::tell(c, 3, [=](int member, size_t w) {
    return static_cast<uint64_t>(w == 0 ? n[member] : w == 1 ? dst_at[member] : most);
  });
  RUSHMEM_ROLLED
  for (int member = 0; member < members; ++member) {
    const size_t theirs = c.lines()[member].said[2];
    most = theirs > most ? theirs : most;
  }
  if (symmetric && impl::is_large_to_write<Scope>(t, most * sizeof(T))) {
    c.meet();
    RUSHMEM_ROLLED
    for (int s = 1; s < members; ++s) {
      const int to = c.right(s);
      impl::copy_to_member(c, dst + c.lines()[to].said[1], src + src_at[to], n[to], to);
    }
    impl::copy_own(c, dst + dst_at[me], src + src_at[me], n[me]);
    c.meet_behind_puts();
    impl::written(c);
  } else if (most != 0) {
    impl::exchange<Scope>(
        c, impl::words_of<T>(most),
        impl::words_of_each([=](int member, size_t w) { return impl::word_or_zero(src + src_at[member], n[member], w); }),
        impl::block_where_wanted<T>{dst, dst_at, c.lines()});
  }
  if (received != nullptr) {
    for (int i = static_cast<int>(Scope::rank()); i < members; i += static_cast<int>(Scope::size())) {
      received[i] = c.lines()[i].said[0];
    }
  }
  impl::forget_said(c);
  c.end();
}

}  // namespace rushmem

#endif
