// One level of a breadth-first search. Vertex v belongs to PE v % n. The PE that finds a vertex first claims
// it at its owner by compare_swap of its parent, and appends it to the owner's next frontier: atomics and
// single values, to anywhere.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

constexpr uint32_t unseen = ~0u;

extern "C" __global__ void expand(const uint32_t *edges_of, const uint32_t *edges, uint32_t *parent,
                                  const uint32_t *frontier, uint32_t in_frontier, uint32_t *next,
                                  uint32_t *in_next) {
  const uint32_t n = n_pes();
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < in_frontier; i += gridDim.x * blockDim.x) {
    const uint32_t vertex = frontier[i];
    for (uint32_t edge = edges_of[vertex / n]; edge < edges_of[vertex / n + 1]; ++edge) {
      const uint32_t found = edges[edge];
      const int owner = found % n;
      if (atomic_compare_swap(parent + found / n, unseen, vertex, owner) != unseen) continue;
      const uint32_t place = atomic_fetch_inc(in_next, owner);
      p(next + place, found, owner);
    }
  }
}
