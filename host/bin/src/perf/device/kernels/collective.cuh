/* What all collectives share. Each is one of the world's team by one thread, warp or block of each PE, or by
 * all of its blocks, on f32. `bytes` are those of a PE's larger array. After the timed batches: what is there
 * when a call returns? The host puts this text before that of one collective: as one module, all of them keep
 * NVRTC busy for over 100 s. */

#define CHECKED 2
/* Elements that are looked at, about. */
#define LOOKED_AT 1024

/* Elements of each member. */
template <typename T> DEV size_t share_of(const job &j) {
  const size_t n = j.bytes / sizeof(T) / size_t(rushmem::n_pes());
  return n == 0 ? 1 : n;
}

/* Data is any bits, so that some of it is no number. */
DEV bool same(float a, float b) { return a == b || (a != a && b != b); }

/* Where all threads meet that look at what a call has left. */
template <typename Scope> struct meeting {
  using scope = Scope;
};
template <> struct meeting<rushmem::grid_parts> {
  using scope = rushmem::grid;
};

/* A function of its own: its registers are not the timed loop's. */
template <typename Scope, typename Call, typename Expected>
static __device__ __noinline__ void check(const job &j, size_t count, Call call, Expected expected) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to);
  for (uint64_t round = 0; round < CHECKED; ++round) {
    for (size_t i = Scope::rank(); i < count; i += Scope::size()) to[i] = -1.0f;
    rushmem::sync<typename meeting<Scope>::scope>(t);
    call(round);
    if (rushmem::impl::has_blocks<Scope>::value) rushmem::sync<typename meeting<Scope>::scope>(t);
    const size_t step = count < LOOKED_AT ? 1 : count / LOOKED_AT;
    for (size_t i = Scope::rank() * step; i < count; i += Scope::size() * step) {
      if (!same(to[i], expected(round, i))) atomicAdd(reinterpret_cast<unsigned long long *>(j.stamps), 1ull);
    }
    rushmem::sync<typename meeting<Scope>::scope>(t);
  }
}

/* `call(round)`, which leaves `expected(round, i)` as element i < count of `to`. */
template <typename Scope, typename Call, typename Expected>
DEV void collective(const job &j, size_t count, Call call, Expected expected) {
  timed<false>(j, call);
  check<Scope>(j, count, call, expected);
}

/* Element i of all members' `from`, added in their order. */
template <typename T> DEV T total(const T *from, size_t i) {
  T sum = rushmem::g(from + i, 0);
  for (int pe = 1; pe < rushmem::n_pes(); ++pe) sum += rushmem::g(from + i, pe);
  return sum;
}

/* The kernels of a collective: of each scope one, of a block two. */
#define OF_SCOPES(name)                                             \
  SMALL_KERNEL(name##_thread) { name<rushmem::thread>(j); }         \
  SMALL_KERNEL(name##_warp) { name<rushmem::warp>(j); }             \
  HALF_KERNEL(name##_block) { name<rushmem::block>(j); }            \
  KERNEL(name##_large_block) { name<rushmem::block>(j); }           \
  HALF_KERNEL(name##_grid) { name<rushmem::grid>(j); }              \
  HALF_KERNEL(name##_grid_parts) { name<rushmem::grid_parts>(j); }
