/* The sum of all members' arrays, on all of them. `bytes` are a PE's array. */

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

OF_SCOPES(reduce)
