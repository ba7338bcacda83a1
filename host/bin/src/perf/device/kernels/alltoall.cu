/* A share of each member's array for each. `bytes` are a PE's shares together. */

template <typename Scope> DEV void alltoall(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of<float>(j), first = size_t(rushmem::my_pe()) * n;
  collective<Scope>(
      j, n * size_t(rushmem::n_pes()), [=](uint64_t) { rushmem::alltoall<Scope>(t, fresh(to), fresh(from), n); },
      [=](uint64_t, size_t i) { return rushmem::g(from + first + i % n, int(i / n)); });
}

OF_SCOPES(alltoall)
