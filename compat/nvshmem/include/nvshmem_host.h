/* The host's part of nvshmem.h alone. */
#ifndef RUSHMEM_NVSHMEM_NVSHMEM_HOST_H
#define RUSHMEM_NVSHMEM_NVSHMEM_HOST_H

#ifdef __CUDACC__
#include <nvshmem.h>
#else
#include <rushmem_nvshmem/host.h>
#include <rushmem_nvshmem/program.h>
#endif

#endif
