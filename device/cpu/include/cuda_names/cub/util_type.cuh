/* CUB on the CPU device: types that several primitives take, and shared memory that nothing constructs.
 * (CUB's documentation says what each primitive does.) */
#ifndef RUSHMEM_CPU_CUB_UTIL_TYPE_CUH
#define RUSHMEM_CPU_CUB_UTIL_TYPE_CUH

#include <stddef.h>
#include <type_traits>

#include "rushmem_cpu/sync.h"
#include "rushmem_cpu/warp.h"

namespace cub {

struct NullType {};

template <class Key, class Value> struct KeyValuePair {
  Key key;
  Value value;
};

/* Room for `N` values, as members of TempStorage have it: usable in unions and in __shared__ variables. */
template <class T, int N> struct rushmem_cpu_room {
  static_assert(std::is_trivially_copyable<T>::value, "on the CPU device CUB's types can be copied as bytes");
  alignas(T) unsigned char bytes[sizeof(T) * (N > 0 ? N : 1)];
  T &operator[](size_t i) { return reinterpret_cast<T *>(bytes)[i]; }
};

/* A TempStorage of the primitive's own, for its constructor without one. */
template <class Storage> inline Storage &rushmem_cpu_private_storage() {
  static thread_local Storage storage;
  return storage;
}

static inline unsigned rushmem_cpu_rank() { return rushmem_cpu_self->linear; }
static inline unsigned LaneId() { return rushmem_cpu_lane(); }

}  // namespace cub

#endif
