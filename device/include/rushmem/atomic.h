/* Atomic updates of one word at any PE. (OpenSHMEM 1.5, 9.7)
 *
 * `target` is symmetric and naturally aligned. T is a 4- or 8-byte integer; fetch, set, swap, add and
 * fetch_add take float and double too; add and fetch_add also take __half and __nv_bfloat16 (the program
 * includes cuda_fp16.h or cuda_bf16.h). Always in T's own width. Atomic with one another from every PE,
 * device and host; not with plain stores or p to the same word while they go on. Fetching forms return the
 * word's value before the update.
 *
 * None orders anything else: fence() before one that announces data (wait.h is the other side).
 */
#ifndef RUSHMEM_ATOMIC_H
#define RUSHMEM_ATOMIC_H

#include <rushmem/impl/net/net.h>
#include <rushmem/impl/route.h>

namespace rushmem {
namespace impl {

template <typename T> struct atomic_check {
  static constexpr bool integer = is_word_integer<T>::value && (sizeof(T) == 4 || sizeof(T) == 8);
  static constexpr bool number = integer || is_floating<T>::value;
  static constexpr bool addable = number || is_half<T>::value || is_bfloat16<T>::value;
};

#define RUSHMEM_ASSERT_ATOMIC(T, kind, text) static_assert(rushmem::impl::atomic_check<T>::kind, text)
#define RUSHMEM_ADDABLE(name) \
  name " takes 4- and 8-byte integers, float, double, __half and __nv_bfloat16"

/* Where the word of a PE that is near is, and as what. */
template <typename T> RUSHMEM_DEVICE word<T> *atomic_near(T *target, const route &to) {
  breathe();
  return reinterpret_cast<word<T> *>(to.at(target));
}

/* Updates that return nothing, of PEs outside the run around this one: one call, out of line, so that a loop
 * of updates asks once whether the PE is in the run (as p_apart, rma.h). Not for adding to floats. */
template <typename T> RUSHMEM_OUTLINED void update_apart(uint32_t code, T *target, T value, int pe) {
  const route to = route_apart(pe, affine_distance(pe));
  if (to.is_far()) return far_update<T>(code, target, value, pe);
  word<T> *const at = atomic_near(target, to);
  const word<T> bits = to_bits(value);
  switch (code) {
    case RUSHMEM_ATOMIC_SET: return write_word(at, bits);
    case RUSHMEM_ATOMIC_ADD: return add_word(at, bits);
    case RUSHMEM_ATOMIC_AND: return and_word(at, bits);
    case RUSHMEM_ATOMIC_OR: return or_word(at, bits);
    default: return xor_word(at, bits);
  }
}

/* The same of operations that return what was there. Not for 16-bit floats. */
template <typename T> RUSHMEM_OUTLINED T fetch_apart(uint32_t code, const T *target, T value, T compare, int pe) {
  const route to = route_apart(pe, affine_distance(pe));
  if (to.is_far()) return far_fetch<T>(code, target, value, compare, pe);
  if constexpr (is_floating<T>::value) {
    if (code == RUSHMEM_ATOMIC_FETCH_ADD) return fetch_add_float(to.at(const_cast<T *>(target)), value);
  }
  word<T> *const at = atomic_near(const_cast<T *>(target), to);
  const word<T> bits = to_bits(value);
  switch (code) {
    case RUSHMEM_ATOMIC_FETCH: return from_bits<T>(fetch_word(at));
    case RUSHMEM_ATOMIC_SWAP: return from_bits<T>(swap_word(at, bits));
    case RUSHMEM_ATOMIC_COMPARE_SWAP: return from_bits<T>(compare_swap_word(at, to_bits(compare), bits));
    case RUSHMEM_ATOMIC_FETCH_ADD: return from_bits<T>(fetch_add_word(at, bits));
    case RUSHMEM_ATOMIC_FETCH_AND: return from_bits<T>(fetch_and_word(at, bits));
    case RUSHMEM_ATOMIC_FETCH_OR: return from_bits<T>(fetch_or_word(at, bits));
    default: return from_bits<T>(fetch_xor_word(at, bits));
  }
}

/* Where the word of a PE of the run is, and as what. The lower half of near_apart is 0, of which the compiler
 * does not know: in front of a loop it keeps the sum in a register, where it would multiply again in each
 * round with a constant that it loads (performance-log.md, 41). */
template <typename T> RUSHMEM_DEVICE word<T> *atomic_in_run(T *target, int pe) {
  breathe();
  const uint32_t upper = affine_upper(pe) + static_cast<uint32_t>(state().near_apart);
  return reinterpret_cast<word<T> *>(address_in_run(target, upper));
}
/* An update that returns nothing. That of a PE of the run comes last, under a predicate: of a loop the
 * compiler then lays the way to other PEs in front, and no round jumps over it. What the predicate is in that
 * way is said once more, or loops for PEs of the run would ask for it (performance-log.md, 44). */
template <uint32_t code, typename T> RUSHMEM_DEVICE void update(T *target, T value, int pe) {
  uint32_t near = is_in_run(pe);
  if (RUSHMEM_UNLIKELY(near == 0)) {
    update_apart<T>(code, target, value, pe);
    near = 0;
  }
  word<T> *const at = atomic_in_run(target, pe);
  const word<T> bits = to_bits(value);
  if constexpr (code == RUSHMEM_ATOMIC_SET) write_word_if(near, at, bits);
  else if constexpr (code == RUSHMEM_ATOMIC_ADD) add_word_if(near, at, bits);
  else if constexpr (code == RUSHMEM_ATOMIC_AND) and_word_if(near, at, bits);
  else if constexpr (code == RUSHMEM_ATOMIC_OR) or_word_if(near, at, bits);
  else xor_word_if(near, at, bits);
}
template <typename T> RUSHMEM_DEVICE T fetch_add_in_run(T *target, T value, int pe) {
  if constexpr (is_floating<T>::value) {
    breathe();
    return fetch_add_float(run_address(target, pe), value);
  } else {
    return from_bits<T>(fetch_add_word(atomic_in_run(target, pe), to_bits(value)));
  }
}

}  // namespace impl

/* The value of `pe`'s `*target`. (shmem_atomic_fetch)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T atomic_fetch(const T *target, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_fetch", true, pe, sizeof(T), nullptr);
  RUSHMEM_ASSERT_ATOMIC(T, number, "atomic_fetch takes 4- and 8-byte integers, float and double");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(impl::fetch_word(impl::atomic_in_run(const_cast<T *>(target), pe)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_FETCH, target, T{}, T{}, pe);
}

/* Sets it. (shmem_atomic_set)
 * Order: none. Cost: store. */
template <typename T> RUSHMEM_DEVICE void atomic_set(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_set", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, number, "atomic_set takes 4- and 8-byte integers, float and double");
  impl::update<RUSHMEM_ATOMIC_SET, T>(target, value, pe);
}

/* Sets it and returns what was there. (shmem_atomic_swap)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T atomic_swap(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_swap", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, number, "atomic_swap takes 4- and 8-byte integers, float and double");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(impl::swap_word(impl::atomic_in_run(target, pe), impl::to_bits(value)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_SWAP, target, value, T{}, pe);
}

/* Sets it to `value` if it equals `cond`; returns what was there, `cond` exactly where it was set.
 * (shmem_atomic_compare_swap)
 * Order: none. Cost: round trip. */
template <typename T>
RUSHMEM_DEVICE T atomic_compare_swap(T *target, impl::same<T> cond, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_compare_swap", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_compare_swap takes 4- and 8-byte integers");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(
        impl::compare_swap_word(impl::atomic_in_run(target, pe), impl::to_bits(cond), impl::to_bits(value)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_COMPARE_SWAP, target, value, cond, pe);
}

/* Adds and returns what was there; integers wrap, floats round to nearest. (shmem_atomic_fetch_add)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T atomic_fetch_add(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_fetch_add", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, addable, RUSHMEM_ADDABLE("atomic_fetch_add"));
  if constexpr (impl::is_half<T>::value || impl::is_bfloat16<T>::value) {
    const impl::route to = impl::route_to(pe);
    if (to.is_far()) return impl::far_fetch_add_small<T>(target, value, pe);
    impl::word<T> *const at = impl::atomic_near(target, to);
    if constexpr (impl::is_half<T>::value) return impl::from_bits<T>(impl::fetch_add_half(at, impl::to_bits(value)));
    else return impl::from_bits<T>(impl::fetch_add_bfloat16(at, impl::to_bits(value)));
  } else {
    if (RUSHMEM_LIKELY(impl::is_in_run(pe))) return impl::fetch_add_in_run<T>(target, value, pe);
    return impl::fetch_apart<T>(RUSHMEM_ATOMIC_FETCH_ADD, target, value, T{}, pe);
  }
}

/* Adds; as atomic_fetch_add. (shmem_atomic_add)
 * Order: none. Cost: store. */
template <typename T> RUSHMEM_DEVICE void atomic_add(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_add", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, addable, RUSHMEM_ADDABLE("atomic_add"));
  if constexpr (impl::is_floating<T>::value) {
    const impl::route to = impl::route_to(pe);
    if (to.is_far()) return impl::far_update<T>(RUSHMEM_ATOMIC_ADD, target, value, pe);
    impl::breathe();
    impl::add_float(to.at(target), value);
  } else if constexpr (impl::atomic_check<T>::integer) {
    impl::update<RUSHMEM_ATOMIC_ADD, T>(target, value, pe);
  } else {
    static_cast<void>(atomic_fetch_add(target, value, pe));
  }
}

/* Adds one and returns what was there. (shmem_atomic_fetch_inc)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T atomic_fetch_inc(T *target, int pe) {
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_fetch_inc takes 4- and 8-byte integers");
  return atomic_fetch_add(target, T(1), pe);
}

/* Adds one. (shmem_atomic_inc)
 * Order: none. Cost: store. */
template <typename T> RUSHMEM_DEVICE void atomic_inc(T *target, int pe) {
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_inc takes 4- and 8-byte integers");
  atomic_add(target, T(1), pe);
}

/* Bitwise and, or, exclusive or; these return what was there. (shmem_atomic_fetch_and, _or, _xor)
 * Order: none. Cost: round trip. */
template <typename T> RUSHMEM_DEVICE T atomic_fetch_and(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_fetch_and", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_fetch_and takes 4- and 8-byte integers");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(impl::fetch_and_word(impl::atomic_in_run(target, pe), impl::to_bits(value)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_FETCH_AND, target, value, T{}, pe);
}
template <typename T> RUSHMEM_DEVICE T atomic_fetch_or(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_fetch_or", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_fetch_or takes 4- and 8-byte integers");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(impl::fetch_or_word(impl::atomic_in_run(target, pe), impl::to_bits(value)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_FETCH_OR, target, value, T{}, pe);
}
template <typename T> RUSHMEM_DEVICE T atomic_fetch_xor(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_fetch_xor", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_fetch_xor takes 4- and 8-byte integers");
  if (RUSHMEM_LIKELY(impl::is_in_run(pe))) {
    return impl::from_bits<T>(impl::fetch_xor_word(impl::atomic_in_run(target, pe), impl::to_bits(value)));
  }
  return impl::fetch_apart<T>(RUSHMEM_ATOMIC_FETCH_XOR, target, value, T{}, pe);
}

/* The same without a result. (shmem_atomic_and, _or, _xor)
 * Order: none. Cost: store. */
template <typename T> RUSHMEM_DEVICE void atomic_and(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_and", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_and takes 4- and 8-byte integers");
  impl::update<RUSHMEM_ATOMIC_AND, T>(target, value, pe);
}
template <typename T> RUSHMEM_DEVICE void atomic_or(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_or", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_or takes 4- and 8-byte integers");
  impl::update<RUSHMEM_ATOMIC_OR, T>(target, value, pe);
}
template <typename T> RUSHMEM_DEVICE void atomic_xor(T *target, impl::same<T> value, int pe) {
  RUSHMEM_TRACED(RMA, "atomic_xor", true, pe, sizeof(T), target);
  RUSHMEM_ASSERT_ATOMIC(T, integer, "atomic_xor takes 4- and 8-byte integers");
  impl::update<RUSHMEM_ATOMIC_XOR, T>(target, value, pe);
}

}  // namespace rushmem

#endif
