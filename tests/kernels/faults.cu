/* Kernels that must not end well: each leads to one error of the launch. */
#if !defined(RUSHMEM_TEST_CHECK_H)
#include "check.h"
#endif

/* Thread 0 of block 0 addresses a PE that is none. */
extern "C" __global__ void faults_bad_pe(uint64_t *word, int pe) {
  if (threadIdx.x == 0 && blockIdx.x == 0) rushmem::p(word, 1, pe);
}

/* PE `missing` never comes to the sync. */
extern "C" __global__ void faults_missing_in_sync(int missing) {
  if (rushmem::my_pe() != missing) rushmem::sync_all<rushmem::block>();
}

/* Nobody ever sets this word. */
extern "C" __global__ void faults_wait_for_ever(uint64_t *word) {
  if (threadIdx.x == 0) rushmem::signal_wait_until(word, rushmem::cmp::eq, 42);
}
