/* <math_constants.h>: the constants of it that kernels use, each the nearest number of its type. */
#ifndef RUSHMEM_CPU_MATH_CONSTANTS_H
#define RUSHMEM_CPU_MATH_CONSTANTS_H

#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_MIN_DENORM_F __int_as_float(0x00000001)
#define CUDART_MAX_NORMAL_F __int_as_float(0x7f7fffff)
#define CUDART_NEG_ZERO_F __int_as_float((int)0x80000000)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_SQRT_HALF_F 0.707106781186547524f
#define CUDART_SQRT_TWO_F 1.41421356237309505f
#define CUDART_PI_F 3.14159265358979324f
#define CUDART_PIO2_F 1.57079632679489662f
#define CUDART_LN2_F 0.693147180559945309f
#define CUDART_L2E_F 1.44269504088896341f
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double((long long)0xfff8000000000000ull)
#define CUDART_ZERO 0.0
#define CUDART_ONE 1.0
#define CUDART_PI 3.14159265358979324
#define CUDART_PIO2 1.57079632679489662
#define CUDART_LN2 0.693147180559945309
#define CUDART_L2E 1.44269504088896341
#define CUDART_SQRT_TWO 1.41421356237309505
#define CUDART_SQRT_HALF 0.707106781186547524

#endif
