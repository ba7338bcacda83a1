/* Every instance of the collectives on streams that the runtime may ask for. Nobody runs this: that it
 * compiles, without a warning, is the test (scripts/check-device). A test of the runtime says that no
 * element type or operator is missing (host/runtime/src/op/team_call_tests.rs).
 *
 * With BRIEF, those of one block and of several blocks one of each kind: half of them; and of the reductions
 * those of a third of the types, which BRIEF numbers from 0. */
#include "../../device/src/collectives.cu"

#ifdef BRIEF
#define SCOPES(instance, ...) instance(rushmem::block, __VA_ARGS__)
#else
#define SCOPES(instance, ...) instance(rushmem::block, __VA_ARGS__) instance(rushmem::grid_parts, __VA_ARGS__)
#endif

#define LIST(...) __VA_ARGS__
#define KERNEL(name, of, ...) template __global__ void rushmem_stream_##name<LIST of>(rushmem::team, __VA_ARGS__);
#define MEETING(Scope, ...) \
  template __global__ void rushmem_stream_sync<Scope>(rushmem::team); \
  template __global__ void rushmem_stream_barrier<Scope>(rushmem::team);
#define MOVES(Scope, T)                                              \
  KERNEL(broadcast, (Scope, T), T *, const T *, uint64_t, int)         \
  KERNEL(fcollect, (Scope, T), T *, const T *, uint64_t)               \
  KERNEL(alltoall, (Scope, T), T *, const T *, uint64_t)
#define ELEMENTS(Scope, T)                                            \
  KERNEL(collect, (Scope, T), T *, const T *, uint64_t)                 \
  KERNEL(alltoalls, (Scope, T), T *, const T *, uint64_t, uint64_t, uint64_t) \
  KERNEL(alltoallv, (Scope, T), T *, const size_t *, size_t *, const T *, const size_t *, const size_t *)
#define REDUCTION(Scope, T, Op)                                       \
  KERNEL(reduce, (Scope, T, rushmem::Op), T *, const T *, uint64_t)        \
  KERNEL(reducescatter, (Scope, T, rushmem::Op), T *, const T *, uint64_t) \
  KERNEL(inscan, (Scope, T, rushmem::Op), T *, const T *, uint64_t)        \
  KERNEL(exscan, (Scope, T, rushmem::Op), T *, const T *, uint64_t)
#define FLOATS(T) \
  SCOPES(REDUCTION, T, sum) SCOPES(REDUCTION, T, prod) SCOPES(REDUCTION, T, min) SCOPES(REDUCTION, T, max)
#define INTEGERS(T) FLOATS(T) SCOPES(REDUCTION, T, and_) SCOPES(REDUCTION, T, or_) SCOPES(REDUCTION, T, xor_)

using element_16 = rushmem_element<16, 16>;
using element_4 = rushmem_element<4, 4>;
using element_1 = rushmem_element<1, 1>;
using element_12 = rushmem_element<12, 4>;
using element_12_askew = rushmem_element<12, 1>;

SCOPES(MEETING, )
SCOPES(MOVES, element_16)
SCOPES(MOVES, element_4)
SCOPES(MOVES, element_1)
SCOPES(ELEMENTS, element_16)
SCOPES(ELEMENTS, element_12)
SCOPES(ELEMENTS, element_12_askew)
SCOPES(ELEMENTS, element_1)
#if !defined(BRIEF) || BRIEF == 0
INTEGERS(int8_t)
INTEGERS(uint32_t)
INTEGERS(int64_t)
FLOATS(__half)
SCOPES(REDUCTION, rushmem::complex<float>, sum)
SCOPES(REDUCTION, rushmem::complex<float>, prod)
#endif
#if !defined(BRIEF) || BRIEF == 1
INTEGERS(uint8_t)
INTEGERS(int16_t)
INTEGERS(uint64_t)
FLOATS(float)
#endif
#if !defined(BRIEF) || BRIEF == 2
INTEGERS(uint16_t)
INTEGERS(int32_t)
FLOATS(double)
FLOATS(__nv_bfloat16)
#endif
#ifdef BRIEF
MEETING(rushmem::grid_parts, )
MOVES(rushmem::grid_parts, element_16)
ELEMENTS(rushmem::grid_parts, element_12_askew)
REDUCTION(rushmem::grid_parts, int64_t, max)
REDUCTION(rushmem::grid_parts, __nv_bfloat16, sum)
#endif
