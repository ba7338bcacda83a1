/* rushmem-perf's own kernels, beside bench's where nvshmem.h is rushmem's: the files that rushmem-perf
 * compiles where it runs, as they are, compiled here by the compiler of bench's kernels. They move the same
 * memory; so what differs between two figures of one row is what nvshmem.h's function costs.
 *
 * On a GPU they are templates, so that those are compiled that a launch names. */
#ifndef NVSHMEM_BENCH_OWN_H
#define NVSHMEM_BENCH_OWN_H

#include "kernels.cuh"

#if defined(RUSHMEM_CPU)
#define ENTRY __global__ void
#else
#define ENTRY template <int = 0> __global__ void
#endif

namespace own {

#include "../../../host/bin/src/perf/device/kernels/common.cuh"

#include "../../../host/bin/src/perf/device/kernels/copy.cuh"

#include "../../../host/bin/src/perf/device/kernels/latency.cu"

#include "../../../host/bin/src/perf/device/kernels/pingpong.cu"

#include "../../../host/bin/src/perf/device/kernels/bandwidth.cu"

#include "../../../host/bin/src/perf/device/kernels/atomic.cu"
#undef KERNELS

#include "../../../host/bin/src/perf/device/kernels/sync.cu"
#undef CHECKED

#include "../../../host/bin/src/perf/device/kernels/collective.cuh"

#include "../../../host/bin/src/perf/device/kernels/reduce.cu"

#include "../../../host/bin/src/perf/device/kernels/reducescatter.cu"

#include "../../../host/bin/src/perf/device/kernels/broadcast.cu"

#include "../../../host/bin/src/perf/device/kernels/fcollect.cu"

#include "../../../host/bin/src/perf/device/kernels/alltoall.cu"

/* The same work. Its stamps have HEAD words before the first. */
inline job same_as(const ::job &j) {
  job mine = {};
  mine.to = j.to, mine.from = j.from, mine.words = j.words, mine.stamps = j.stamps - HEAD;
  mine.bytes = j.bytes, mine.salt = j.salt, mine.step = j.step, mine.places = j.sources | j.targets;
  mine.iterations = j.iterations, mine.batches = j.batches, mine.warmup = j.warm_up;
  mine.peer = j.peer, mine.both = j.both;
  return mine;
}

}  // namespace own

#endif
