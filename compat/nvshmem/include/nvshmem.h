/* NVSHMEM's interface on rushmem, for C, C++ and CUDA C++: all of nvshmem.h and nvshmemx.h.
 *
 * What nvcc compiles for the host calls libnvshmem_host, what it compiles for a GPU becomes rushmem's device
 * functions, inlined. NVRTC and rushmem's CPU device take the functions of kernels alone.
 * NVSHMEM_HOSTLIB_ONLY leaves those out. */
#ifndef RUSHMEM_NVSHMEM_NVSHMEM_H
#define RUSHMEM_NVSHMEM_NVSHMEM_H

#include <rushmem_nvshmem/types.h>

#if !defined(__CUDACC_RTC__) && !defined(RUSHMEM_CPU)
#include <rushmem_nvshmem/host.h>
#endif
#if (defined(__CUDACC__) || defined(RUSHMEM_CPU)) && !defined(NVSHMEM_HOSTLIB_ONLY)
#include <rushmem_nvshmem/device.h>
#endif
#if !defined(__CUDACC_RTC__) && !defined(RUSHMEM_CPU)
#include <rushmem_nvshmem/program.h>
#endif

#endif
