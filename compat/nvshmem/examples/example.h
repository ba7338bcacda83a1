/* What the examples share on the host: the start, a stream, fresh data, and the end. */
#ifndef NVSHMEM_EXAMPLE_H
#define NVSHMEM_EXAMPLE_H

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

/* A call that gives 0 when it went well, of CUDA's or NVSHMEM's. */
#define FINE(call)                                                                                     \
  do {                                                                                                 \
    const int code_ = static_cast<int>(call);                                                          \
    if (code_ != 0) {                                                                                  \
      std::fprintf(stderr, "%s:%d: PE %d: %s: %d\n", __FILE__, __LINE__, nvshmem_my_pe(), #call, code_); \
      nvshmem_global_exit(3);                                                                          \
    }                                                                                                  \
  } while (0)

/* What arrived, compared with what had to. */
#define SAME(got, wanted)                                                                           \
  do {                                                                                              \
    const auto got_ = (got);                                                                        \
    const decltype(got_) wanted_ = (wanted);                                                        \
    if (got_ != wanted_) {                                                                          \
      const std::string is_ = std::to_string(got_), must_ = std::to_string(wanted_);                \
      std::fprintf(stderr, "%s:%d: PE %d: %s is %s, and not %s\n", __FILE__, __LINE__, nvshmem_my_pe(), \
                   #got, is_.c_str(), must_.c_str());                                               \
      nvshmem_global_exit(4);                                                                       \
    }                                                                                               \
  } while (0)

struct job {
  int me, n, right, left;
  uint64_t seed;
  cudaStream_t stream;
};

/* Word `i` of the data of a PE, below 2^20: sums of a few are exact in a float's 24 bits, too. */
inline int value_of(const job &j, int pe, size_t i) {
  uint64_t x = j.seed + static_cast<uint64_t>(pe) * 1000003 + i;
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
  return static_cast<int>(x >> 44);
}

template <typename T> std::vector<T> values_of(const job &j, int pe, size_t n) {
  std::vector<T> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = static_cast<T>(value_of(j, pe, i));
  return all;
}

/* Symmetric memory of n words, and copies of them to and from the GPU. */
template <typename T> T *symmetric(size_t n) {
  T *at = static_cast<T *>(nvshmem_calloc(n, sizeof(T)));
  if (!at) FINE(NVSHMEMX_ERROR_OUT_OF_MEMORY);
  return at;
}

template <typename T> void fill(const job &j, T *to, const std::vector<T> &from) {
  FINE(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, j.stream));
  FINE(cudaStreamSynchronize(j.stream));
}

template <typename T> std::vector<T> look(const job &j, const T *from, size_t n) {
  std::vector<T> all(n);
  FINE(cudaMemcpyAsync(all.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, j.stream));
  FINE(cudaStreamSynchronize(j.stream));
  return all;
}

/* Rank 0 leaves the job's unique ID in a file, the others read it: a start without a launcher. */
inline void start_by_id(int rank, int n, const std::string &file) {
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  FILE *at = nullptr;
  if (rank == 0) {
    if (nvshmemx_get_uniqueid(&id) != 0) std::exit(5);
    const std::string begun = file + ".new";
    at = std::fopen(begun.c_str(), "wb");
    if (!at || std::fwrite(&id, sizeof(id), 1, at) != 1 || std::fclose(at) != 0) std::exit(6);
    if (std::rename(begun.c_str(), file.c_str()) != 0) std::exit(6);
  } else {
    for (int turn = 0; turn < 6000 && !(at = std::fopen(file.c_str(), "rb")); ++turn) usleep(10000);
    if (!at || std::fread(&id, sizeof(id), 1, at) != 1) std::exit(7);
    std::fclose(at);
  }
  if (nvshmemx_set_attr_uniqueid_args(rank, n, &id, &attr) != 0) std::exit(8);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) != 0) std::exit(9);
}

/* After the start, whichever it was: a GPU, a stream and a seed that all PEs have. */
inline job joined() {
  job j = {};
  j.me = nvshmem_my_pe();
  j.n = nvshmem_n_pes();
  j.right = (j.me + 1) % j.n;
  j.left = (j.me + j.n - 1) % j.n;
  int gpus = 0;
  FINE(cudaGetDeviceCount(&gpus));
  FINE(cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % gpus));
  FINE(cudaStreamCreate(&j.stream));
  uint64_t *seed = symmetric<uint64_t>(1);
  const char *given = std::getenv("EXAMPLE_SEED");
  const uint64_t mine = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  for (int pe = 0; j.me == 0 && pe < j.n; ++pe) nvshmem_uint64_p(seed, mine, pe);
  nvshmem_barrier_all();
  j.seed = nvshmem_uint64_g(seed, j.me);
  nvshmem_free(seed);
  if (j.me == 0) std::printf("EXAMPLE_SEED=%llu\n", static_cast<unsigned long long>(j.seed));
  return j;
}

/* Without arguments under a launcher (mpirun, nvshmrun, Slurm's srun), which tells a PE who it is; with
 * `--id RANK PES FILE` by unique ID. */
inline job start(int argc, char **argv) {
  if (argc == 5 && std::strcmp(argv[1], "--id") == 0) {
    start_by_id(std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
  } else {
    nvshmem_init();
  }
  return joined();
}

inline void end(const job &j) {
  FINE(cudaStreamDestroy(j.stream));
  std::printf("PE %d of %d: all well\n", j.me, j.n);
  std::fflush(stdout);
  nvshmem_finalize();
}

#endif
