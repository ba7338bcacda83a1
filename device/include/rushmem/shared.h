/* Dynamic shared memory, said so that nvcc and a C++ compiler both take it:
 *
 *     RUSHMEM_DYNAMIC_SHARED(float, tile);   // in a kernel: tile is a float * to the launch's shared_bytes
 *
 * `extern __shared__ float tile[];` means the same to nvcc, but a C++ compiler has no word for it. All uses
 * in one kernel name the same memory, aligned to 128 bytes. */
#ifndef RUSHMEM_SHARED_H
#define RUSHMEM_SHARED_H

#if !defined(RUSHMEM_DYNAMIC_SHARED) /* on the CPU rushmem_cpu/cuda.h has it already */
#define RUSHMEM_DYNAMIC_SHARED(T, name)                                           \
  extern __shared__ __align__(128) unsigned char rushmem_dynamic_shared_memory[]; \
  T *const name = reinterpret_cast<T *>(rushmem_dynamic_shared_memory)
#endif

#endif
