/* rushmem for kernels: one include for all of it. Compiles with nvcc and NVRTC for GPUs, and with g++ or
 * clang++ for rushmem's CPU device.
 *
 *     __global__ void ring(uint64_t *sig, float *data, size_t n) {
 *       int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
 *       rushmem::put_signal<rushmem::block>(data + n, data, n, sig, 1, rushmem::signal::set, right);
 *       if (threadIdx.x == 0) rushmem::signal_wait_until(sig, rushmem::cmp::eq, 1);
 *       __syncthreads(); // data[n .. 2n) of this PE is here
 *     }
 */
#ifndef RUSHMEM_CUH
#define RUSHMEM_CUH

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "rushmem's device headers are C++17"
#endif

#include <rushmem/alltoall.h> // a block from every member of a team to every member
#include <rushmem/alltoallv.h> // the same of blocks of different sizes
#include <rushmem/atomic.h> // one word, updated atomically
#include <rushmem/barrier.h> // sync and barrier of a team
#include <rushmem/broadcast.h> // one member's array to all
#include <rushmem/card_word.h> // one word, updated by network cards
#include <rushmem/collect.h> // every member's array to all, of different sizes
#include <rushmem/fcollect.h> // every member's array to all
#include <rushmem/grid.h> // sync_grid
#include <rushmem/order.h> // fence, quiet
#include <rushmem/packed.h> // put_packed, wait_packed: data and flag in one
#include <rushmem/packed_row.h> // the same of 480 bytes, by a warp
#include <rushmem/reduce.h> // reduce, reducescatter, scans
#include <rushmem/rma.h> // p, g, put, get, ptr
#include <rushmem/scope.h> // thread, warp, block
#include <rushmem/shared.h> // dynamic shared memory on both kinds of device
#include <rushmem/signal.h> // put_signal, signal_op, signal_wait_until
#include <rushmem/stage.h> // put, get and put_signal through the caller's shared memory
#include <rushmem/state.h> // my_pe, n_pes
#include <rushmem/strided.h> // iput, iget
#include <rushmem/sync.h> // sync_all, barrier_all
#include <rushmem/team.h> // team, world
#include <rushmem/test.h> // test and its family
#include <rushmem/types.h> // cmp, signal
#include <rushmem/wait.h> // wait_until and its family

#endif
