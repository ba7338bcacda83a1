/* The runtime's types of C's, by the names that they have in the functions of OpenSHMEM and NVSHMEM. */
#ifndef RUSHMEM_COMPAT_KINDS_H
#define RUSHMEM_COMPAT_KINDS_H

#include "rushmem.h"

/* Of words: atomics, waits and tests. */
#define KIND_short RUSHMEM_INT16
#define KIND_ushort RUSHMEM_UINT16
#define KIND_int RUSHMEM_INT32
#define KIND_long RUSHMEM_INT64
#define KIND_longlong RUSHMEM_INT64
#define KIND_uint RUSHMEM_UINT32
#define KIND_ulong RUSHMEM_UINT64
#define KIND_ulonglong RUSHMEM_UINT64
#define KIND_int32 RUSHMEM_INT32
#define KIND_int64 RUSHMEM_INT64
#define KIND_uint32 RUSHMEM_UINT32
#define KIND_uint64 RUSHMEM_UINT64
#define KIND_size RUSHMEM_UINT64
#define KIND_ptrdiff RUSHMEM_INT64
#define KIND_float RUSHMEM_FLOAT
#define KIND_double RUSHMEM_DOUBLE
_Static_assert(sizeof(int) == 4 && sizeof(long) == 8 && sizeof(void *) == 8, "a 64-bit Unix");

/* Of reductions, which have more. */
#define NUMBER_char ((char) -1 < 0 ? RUSHMEM_INT8 : RUSHMEM_UINT8)
#define NUMBER_schar RUSHMEM_INT8
#define NUMBER_short RUSHMEM_INT16
#define NUMBER_uchar RUSHMEM_UINT8
#define NUMBER_ushort RUSHMEM_UINT16
#define NUMBER_int8 RUSHMEM_INT8
#define NUMBER_int16 RUSHMEM_INT16
#define NUMBER_uint8 RUSHMEM_UINT8
#define NUMBER_uint16 RUSHMEM_UINT16
#define NUMBER_int KIND_int
#define NUMBER_long KIND_long
#define NUMBER_longlong KIND_longlong
#define NUMBER_uint KIND_uint
#define NUMBER_ulong KIND_ulong
#define NUMBER_ulonglong KIND_ulonglong
#define NUMBER_int32 KIND_int32
#define NUMBER_int64 KIND_int64
#define NUMBER_uint32 KIND_uint32
#define NUMBER_uint64 KIND_uint64
#define NUMBER_size KIND_size
#define NUMBER_ptrdiff KIND_ptrdiff
#define NUMBER_float RUSHMEM_FLOAT
#define NUMBER_double RUSHMEM_DOUBLE

#endif
