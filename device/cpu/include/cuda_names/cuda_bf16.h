/* `__nv_bfloat16` and `__nv_bfloat162` on the CPU: rushmem_cpu/float16.h. */
#ifndef RUSHMEM_CPU_CUDA_BF16_H
#define RUSHMEM_CPU_CUDA_BF16_H

#include <cuda_fp16.h> /* as CUDA's does */

#define RUSHMEM_CPU_F __nv_bfloat16
#define RUSHMEM_CPU_F2 __nv_bfloat162
#define RUSHMEM_CPU_F_RAW __nv_bfloat16_raw
#define RUSHMEM_CPU_F2_RAW __nv_bfloat162_raw
#define RUSHMEM_CPU_F_NAME bfloat16
#define RUSHMEM_CPU_F_FORMAT rushmem_cpu_bfloat16_format
#include "rushmem_cpu/float16.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }

#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80)
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fff)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7f)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001)

#endif
