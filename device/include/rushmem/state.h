/* Who am I: this PE's number, how many there are, and the rest of what the runtime tells a kernel (abi.h). */
#ifndef RUSHMEM_STATE_H
#define RUSHMEM_STATE_H

#include <rushmem/impl/platform.h>

namespace rushmem {

/* What the runtime gave this PE's device. Constant for the life of a launch. For those who must; the
 * functions below and elsewhere say most of it better.
 * Order: none. Cost: local. */
RUSHMEM_DEVICE const rushmem_device_state &state() { return impl::device_state(); }

/* This PE's number, 0 .. n_pes() - 1. (OpenSHMEM 1.5, 9.1 shmem_my_pe)
 * Order: none. Cost: local. */
RUSHMEM_DEVICE int my_pe() { return state().my_pe; }

/* The number of PEs in the world. (OpenSHMEM 1.5, 9.1 shmem_n_pes)
 * Order: none. Cost: local. */
RUSHMEM_DEVICE int n_pes() { return state().n_pes; }

}  // namespace rushmem

#endif
