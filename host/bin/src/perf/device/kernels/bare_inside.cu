/* Collectives of two PEs inside kernels by bare instructions (bare_forms.cuh), in the library's timed loop
 * and looked at as the library's are (collective.cuh). The best form at a size is what the machine allows. A
 * broadcast's root is another PE in each call. */

/* Element `at` of a PE's `from`. */
DEV float element_of(const job &j, int pe, size_t at) {
  const char *const from = pe == j.peer ? there(j, j.from) : j.from;
  return __uint_as_float(rushmem::impl::load_relaxed_word(reinterpret_cast<const uint32_t *>(from) + at));
}
/* What a call leaves as element i of `to`. */
DEV float expected(const job &j, bare_what what, int root, size_t i) {
  const size_t n = share_of<float>(j), first = size_t(1 - j.peer) * n;
  switch (what) {
    case bare_reduce: return element_of(j, 0, i) + element_of(j, 1, i);
    case bare_reducescatter: return element_of(j, 0, first + i) + element_of(j, 1, first + i);
    case bare_broadcast: return element_of(j, root, i);
    case bare_fcollect: return element_of(j, int(i / n), i % n);
    default: return element_of(j, int(i / n), first + i % n);
  }
}

/* All blocks of both PEs are here, for the `time`-th time. */
static __device__ __noinline__ void meet_all(const job &j, uint64_t time) {
  if (gridDim.x > 1) rushmem::sync_grid();
  meet_in(j, j.room + blockIdx.x * LINE, time);
}
/* `check` of collective.cuh with bare meetings: with the library's in each of these kernels NVRTC takes a
 * minute. */
template <bare_what what, typename Form>
static __device__ __noinline__ void check_form(const job &j, Form form, uint64_t number) {
  const size_t count = j.bytes / sizeof(float) / (what == bare_reducescatter ? 2 : 1);
  const size_t rank = size_t(blockIdx.x) * blockDim.x + threadIdx.x, size = size_t(gridDim.x) * blockDim.x;
  float *const to = reinterpret_cast<float *>(j.to);
  unsigned long long *const wrong = reinterpret_cast<unsigned long long *>(j.stamps);
  for (uint64_t time = 1; time <= CHECKED; ++time) {
    const int root = int(++number % 2);
    for (size_t i = rank; i < count; i += size) to[i] = -1.0f;
    meet_all(j, 2 * time - 1);
    form(bare_call<what>(j, number, root));
    if (gridDim.x > 1) rushmem::sync_grid();
    for (size_t i = rank; i < count; i += size) {
      if (!same(to[i], expected(j, what, root, i))) atomicAdd(wrong, 1ull);
    }
    meet_all(j, 2 * time);
  }
}

template <bare_what what, typename Form> DEV void inside(const job &j, Form form) {
  timed<false>(j, [&](uint64_t round) { form(bare_call<what>(j, round + 1, int((round + 1) % 2))); });
  check_form<what>(j, form, j.warmup + uint64_t(j.batches) * j.iterations);
}

#define FORM(what, scope, name, ...)                                                                     \
  HALF_KERNEL(bare_##what##_##scope##_##name) {                                                          \
    inside<bare_##what>(j, [&](const bare_call<bare_##what> &c) { __VA_ARGS__(j, c); });                 \
  }
#define PACKET_EACH(kernel, what, scope, name, threads, size)                                            \
  kernel(bare_##what##_##scope##_##name) {                                                               \
    const packet_each<rushmem::threads, size, bare_##what> form(j);                                      \
    inside<bare_##what>(j, [form](const bare_call<bare_##what> &c) { form(c); });                        \
  }
/* `packet` is one of each thread, `element` the same of 4 bytes, `packets` are several. */
#define OF_ALL(what, scope)                                      \
  PACKET_EACH(HALF_KERNEL, what, scope, packet, block, 8)        \
  FORM(what, scope, packets, by_packets<8>)                      \
  FORM(what, scope, rows, by_rows<3>)                            \
  FORM(what, scope, loads, by_loads)
#define OF_SHARES(what) PACKET_EACH(HALF_KERNEL, what, block, element, block, 4)

PACKET_EACH(SMALL_KERNEL, reduce, thread, packet, thread, 8)
PACKET_EACH(SMALL_KERNEL, reduce, warp, packet, warp, 8)
OF_ALL(reduce, block)
FORM(reduce, block, stores, by_stores)
FORM(reduce, block, halves, by_halves)
OF_ALL(reduce, grid_parts)
FORM(reduce, grid_parts, stores, by_stores)
FORM(reduce, grid_parts, halves, by_halves)
OF_ALL(reducescatter, block)
OF_SHARES(reducescatter)
OF_ALL(broadcast, block)
FORM(broadcast, block, stores, by_stores)
OF_ALL(fcollect, block)
OF_SHARES(fcollect)
FORM(fcollect, block, stores, by_stores)
OF_ALL(alltoall, block)
OF_SHARES(alltoall)
FORM(alltoall, block, stores, by_stores)
