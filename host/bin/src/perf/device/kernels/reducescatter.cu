/* Sums of all members' arrays, a share of them on each. `bytes` are what a PE contributes. */

template <typename Scope> DEV void reducescatter(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = share_of<float>(j), first = size_t(rushmem::my_pe()) * n;
  collective<Scope>(
      j, n, [=](uint64_t) { rushmem::reducescatter<Scope>(t, fresh(to), fresh(from), n, rushmem::sum{}); },
      [=](uint64_t, size_t i) { return total(from, first + i); });
}

OF_SCOPES(reducescatter)
