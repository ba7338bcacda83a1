// A histogram from C++, its bins dealt out to the PEs: each block counts its part in shared memory, and then
// adds what it has to the bins at their owners by atomics. Each PE compares its bins with a serial count of
// all PEs' values.
//
//     c++ -std=c++17 histogram.cpp -o histogram $(pkg-config --cflags --libs rushmem)
//     rushmem-run -n 4 -- ./histogram 1000000 1000
#include <rushmem.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

const char source[] = R"cuda(
#include <rushmem/rushmem.cuh>

extern "C" __global__ void histogram(const uint32_t *values, uint64_t n, uint32_t *bins, uint32_t n_bins) {
  RUSHMEM_DYNAMIC_SHARED(uint32_t, counts);
  for (uint32_t bin = threadIdx.x; bin < n_bins; bin += blockDim.x) counts[bin] = 0;
  __syncthreads();
  const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(counts + values[i] % n_bins, 1u);
  }
  __syncthreads();
  // Bin b is number b / n of PE b % n. One atomic for each bin that this block has seen, wherever it is.
  for (uint32_t bin = threadIdx.x; bin < n_bins; bin += blockDim.x) {
    const int n = rushmem::n_pes();
    if (counts[bin] != 0) rushmem::atomic_add(bins + bin / n, counts[bin], bin % n);
  }
}
)cuda";

void ok(int32_t code) {
  if (code != RUSHMEM_OK) throw std::runtime_error(rushmem_last_error());
}

// One PE's membership of the job. Left in good order by `finalize`; else, when an exception ends the program,
// at once, so that the others learn why and do not wait.
class World {
 public:
  World() { ok(rushmem_init(nullptr, &raw_)); }
  ~World() {
    if (raw_) rushmem_abort(raw_, "an exception ended this PE");
  }
  World(const World &) = delete;
  World &operator=(const World &) = delete;
  rushmem_world_t *raw() const { return raw_; }
  void finalize() { ok(rushmem_finalize(std::exchange(raw_, nullptr))); }

 private:
  rushmem_world_t *raw_ = nullptr;
};

template <typename T> T *alloc(const World &world, size_t n) {
  void *memory = nullptr;
  ok(rushmem_alloc(world.raw(), n * sizeof(T), 0, &memory));
  return static_cast<T *>(memory);
}

uint64_t number(int argc, char **argv, int at, uint64_t otherwise, uint64_t least, uint64_t most) {
  const uint64_t value = argc > at ? std::stoull(argv[at]) : otherwise;
  if (value < least || value > most)
    throw std::invalid_argument(std::string(argv[at]) + " makes no sense here");
  return value;
}

// Value number i of all PEs: some bins get far more than others.
uint32_t value(uint64_t i) {
  uint64_t x = i * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  const uint32_t a = static_cast<uint32_t>(x >> 40), b = static_cast<uint32_t>(x >> 16) & 0xffffff;
  return a < b ? a : b;
}

void run(int argc, char **argv) {
  const uint64_t total = number(argc, argv, 1, 1000000, 0, 1ull << 32);
  const uint32_t n_bins = static_cast<uint32_t>(number(argc, argv, 2, 1000, 1, 50000));
  const uint32_t blocks = static_cast<uint32_t>(number(argc, argv, 3, 2, 1, 1024));
  const uint32_t threads = static_cast<uint32_t>(number(argc, argv, 4, 64, 1, 1024));

  World world;
  const auto me = static_cast<uint64_t>(rushmem_my_pe(world.raw())),
             n = static_cast<uint64_t>(rushmem_n_pes(world.raw()));
  const uint64_t begin = total * me / n, end = total * (me + 1) / n;
  std::vector<uint32_t> mine(end - begin);
  for (uint64_t i = begin; i < end; ++i) mine[i - begin] = value(i);

  auto *values = alloc<uint32_t>(world, total / n + 1);
  auto *bins = alloc<uint32_t>(world, n_bins / n + 1);  // zero when they are fresh
  const int32_t self = rushmem_my_pe(world.raw());
  ok(rushmem_uint32_put(world.raw(), values, mine.data(), mine.size(), self));

  rushmem_module_t *module = nullptr;
  rushmem_kernel_t *kernel = nullptr;
  ok(rushmem_module_load(world.raw(), source, sizeof source - 1, "histogram.cu", nullptr, 0, &module));
  ok(rushmem_module_kernel(module, "histogram", &kernel));
  rushmem_launch_t launch{};
  launch.size = sizeof launch;
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.grid[1] = launch.grid[2] = launch.block[1] = launch.block[2] = 1;
  launch.shared_bytes = n_bins * sizeof(uint32_t);
  uint64_t count = mine.size();
  uint32_t bins_in_all = n_bins;
  const void *args[] = {&values, &count, &bins, &bins_in_all};
  ok(rushmem_barrier_all(world.raw()));
  ok(rushmem_launch(kernel, &launch, args, nullptr, 4));
  ok(rushmem_synchronize(world.raw()));
  ok(rushmem_barrier_all(world.raw()));  // all PEs' atomics have been carried out

  std::vector<uint32_t> right(n_bins), seen(n_bins / n + 1);
  for (uint64_t i = 0; i < total; ++i) ++right[value(i) % n_bins];
  ok(rushmem_uint32_get(world.raw(), seen.data(), bins, seen.size(), self));
  for (uint64_t bin = me; bin < n_bins; bin += n) {
    if (seen[bin / n] == right[bin]) continue;
    throw std::runtime_error("bin " + std::to_string(bin) + " has " + std::to_string(seen[bin / n]) +
                             " values, not " + std::to_string(right[bin]));
  }
  ok(rushmem_barrier_all(world.raw()));  // nobody has found anything wrong

  const char *device = nullptr;
  ok(rushmem_device_name(world.raw(), &device));
  if (me == 0) {
    std::printf("histogram: %llu values in %u bins on %d PEs x %u blocks, every bin as in a serial run\n",
                static_cast<unsigned long long>(total), n_bins, static_cast<int>(n), blocks);
    std::printf("histogram: device: %s (%u threads a block)\n",
                std::strcmp(device, "the CPU") ? device : "CPU", threads);
  }
  world.finalize();
}

}  // namespace

int main(int argc, char **argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "histogram: %s\n", error.what());
    return 1;
  }
}
