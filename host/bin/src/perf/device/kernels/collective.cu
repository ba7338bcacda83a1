/* Collectives of the world's team by one thread, warp or block of each PE, or all of its blocks, on f32.
 * `bytes` are those of a PE's larger array: what a PE contributes to a reduction, a broadcast or an
 * all-to-all in all, what it receives from a collect in all. The root of a broadcast is another one in each
 * round, so that none can run ahead. After the timed batches: what is there when a call returns? */

#define CHECKED 2
/* Elements that are looked at, about. */
#define LOOKED_AT 1024

/* Elements of each member. */
DEV size_t share_of(const job &j) {
  const size_t n = j.bytes / sizeof(float) / size_t(rushmem::n_pes());
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
DEV float total(const float *from, size_t i) {
  float sum = rushmem::g(from + i, 0);
  for (int pe = 1; pe < rushmem::n_pes(); ++pe) sum += rushmem::g(from + i, pe);
  return sum;
}

/* Each call asks for its team once its arguments are known, as a function with a reduction in it does; so
 * compat/nvshmem/bench, whose calls cannot do otherwise, becomes the same instructions. */
template <typename Scope> DEV void reduce(const job &j) {
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = j.bytes / sizeof(float);
  const auto call = [=](uint64_t) {
    float *const dst = fresh(to), *const src = fresh(from);
    rushmem::reduce<Scope>(rushmem::world(), dst, src, n, rushmem::sum{});
  };
  collective<Scope>(j, n, call, [=](uint64_t, size_t i) { return total(from, i); });
}

template <typename Scope> DEV void reducescatter(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of(j), first = size_t(rushmem::my_pe()) * n;
  collective<Scope>(
      j, n, [=](uint64_t) { rushmem::reducescatter<Scope>(t, fresh(to), fresh(from), n, rushmem::sum{}); },
      [=](uint64_t, size_t i) { return total(from, first + i); });
}

template <typename Scope> DEV void broadcast(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = j.bytes / sizeof(float);
  const uint64_t members = uint64_t(rushmem::n_pes());
  collective<Scope>(
      j, n, [=](uint64_t round) { rushmem::broadcast<Scope>(t, fresh(to), fresh(from), n, int(round % members)); },
      [=](uint64_t round, size_t i) { return rushmem::g(from + i, int(round % members)); });
}

template <typename Scope> DEV void fcollect(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of(j);
  collective<Scope>(
      j, n * size_t(rushmem::n_pes()), [=](uint64_t) { rushmem::fcollect<Scope>(t, fresh(to), fresh(from), n); },
      [=](uint64_t, size_t i) { return rushmem::g(from + i % n, int(i / n)); });
}

template <typename Scope> DEV void alltoall(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of(j), first = size_t(rushmem::my_pe()) * n;
  collective<Scope>(
      j, n * size_t(rushmem::n_pes()), [=](uint64_t) { rushmem::alltoall<Scope>(t, fresh(to), fresh(from), n); },
      [=](uint64_t, size_t i) { return rushmem::g(from + first + i % n, int(i / n)); });
}

#define OF_SCOPES(name)                                             \
  SMALL_KERNEL(name##_thread) { name<rushmem::thread>(j); }         \
  SMALL_KERNEL(name##_warp) { name<rushmem::warp>(j); }             \
  HALF_KERNEL(name##_block) { name<rushmem::block>(j); }            \
  KERNEL(name##_large_block) { name<rushmem::block>(j); }           \
  HALF_KERNEL(name##_grid) { name<rushmem::grid>(j); }              \
  HALF_KERNEL(name##_grid_parts) { name<rushmem::grid_parts>(j); }

OF_SCOPES(reduce)
OF_SCOPES(reducescatter)
OF_SCOPES(broadcast)
OF_SCOPES(fcollect)
OF_SCOPES(alltoall)
