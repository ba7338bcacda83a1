/* The root's array on all members. The root is another one in each round, so that none can run ahead. */

template <typename Scope> DEV void broadcast(const job &j) {
  const rushmem::team t = rushmem::world();
  float *const to = reinterpret_cast<float *>(j.to), *const from = reinterpret_cast<float *>(j.from);
  const size_t n = j.bytes / sizeof(float);
  const uint64_t members = uint64_t(rushmem::n_pes());
  collective<Scope>(
      j, n, [=](uint64_t round) { rushmem::broadcast<Scope>(t, fresh(to), fresh(from), n, int(round % members)); },
      [=](uint64_t round, size_t i) { return rushmem::g(from + i, int(round % members)); });
}

OF_SCOPES(broadcast)
