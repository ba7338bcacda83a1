/* `__half` and `__half2` on the CPU: rushmem_cpu/float16.h. */
#ifndef RUSHMEM_CPU_CUDA_FP16_H
#define RUSHMEM_CPU_CUDA_FP16_H

#define RUSHMEM_CPU_F __half
#define RUSHMEM_CPU_F2 __half2
#define RUSHMEM_CPU_F_RAW __half_raw
#define RUSHMEM_CPU_F2_RAW __half2_raw
#define RUSHMEM_CPU_F_NAME half
#define RUSHMEM_CPU_F_FORMAT rushmem_cpu_half_format
#include "rushmem_cpu/float16.h"

typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half nv_half;
typedef __half2 nv_half2;
static inline __half2 __half2half2(__half a) { return {a, a}; }

#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00)
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fff)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001)

#endif
