/* All members' arrays, one after the other, on all of them. `bytes` are what a PE receives. */

template <typename Scope> DEV void fcollect(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of<float>(j);
  collective<Scope>(
      j, n * size_t(rushmem::n_pes()), [=](uint64_t) { rushmem::fcollect<Scope>(t, fresh(to), fresh(from), n); },
      [=](uint64_t, size_t i) { return rushmem::g(from + i % n, int(i / n)); });
}

OF_SCOPES(fcollect)
