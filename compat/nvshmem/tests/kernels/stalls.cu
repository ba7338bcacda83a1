/* A wait for what never comes, on all PEs: one that waits for another one's end would give up, too. */
#include "check.h"

KERNEL(stalls) {
  NEIGHBOURS;
  UNUSED;
  if (threadIdx.x == 0) nvshmem_signal_wait_until(sig + 3, NVSHMEM_CMP_GE, 41);
}
