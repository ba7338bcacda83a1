// Write and signal: PE 0's kernel writes `bytes` bytes into PE 1's memory and then signals, as one thread,
// one warp or a whole block; PE 1's kernel waits for the signal and checks every byte. Each iteration's data
// is new.
//
//   initiator (PE 0)                          target (PE 1)
//   fill the data; signal `ready`      --->   wait for it, start the clock
//   wait for it, start the clock       <---   signal `go`: the last data is checked and may be overwritten
//   write, then signal `arrived`       --->   wait for it, stop the clock
//   wait for it, stop the clock        <---   signal `seen`
//   ...                                       check every byte
//
// So each side times a round trip by its own clock, with filling and checking outside of it.
#include <rushmem/rushmem.cuh>

using namespace rushmem;

enum { initiator = 0, target = 1 };                      // PEs
enum { ready = 0, go = 1, arrived = 2, seen = 3 };       // signals
enum { first_wrong = 0, wrong = 1, checked = 2, got = 3 };  // the report

// Nanoseconds by this device's clock.
__device__ inline uint64_t now_ns() {
#if defined(RUSHMEM_CPU)
  return (uint64_t)clock64();
#else
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

// Eight bytes of an iteration's data. write_signal.rs says the same in Rust.
__device__ inline uint64_t pattern(uint64_t seed, uint64_t iteration, uint64_t word) {
  uint64_t x = seed + iteration * 0x9e3779b97f4a7c15ull + word * 0xd1342543de82ef95ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <typename Scope>
__device__ void initiate(uint64_t *data, uint64_t bytes, uint64_t *signals, uint64_t *times, uint64_t iterations,
                         uint64_t seed, uint64_t corrupt) {
  for (uint64_t i = 1; i <= iterations; ++i) {
    // One word more than is sent: a write that goes too far will show.
    for (uint64_t word = threadIdx.x; word <= bytes / 8; word += blockDim.x) data[word] = pattern(seed, i, word);
    __syncthreads();
    if (threadIdx.x == 0) {
      if (i == iterations && corrupt < bytes) data[corrupt / 8] ^= uint64_t(1) << (corrupt % 8 * 8);
      signal_op(signals + ready, i, signal::set, target);
      signal_wait_until(signals + go, cmp::ge, i);
    }
    __syncthreads();

    uint64_t start = threadIdx.x == 0 ? now_ns() : 0;
    __syncthreads();  // nobody writes before the clock runs
    if (threadIdx.x < Scope::size()) {
      unsigned char *first = reinterpret_cast<unsigned char *>(data);
      put_signal<Scope>(first, first, bytes, signals + arrived, i, signal::set, target);
    }

    if (threadIdx.x == 0) {
      signal_wait_until(signals + seen, cmp::ge, i);
      times[i - 1] = now_ns() - start;
    }
    __syncthreads();
  }
}

// Compares all bytes with what they must be, and those up to a whole word after them with zero, which they
// still are. What is reported is the position in all the iterations' data, one after the other, in whole
// words.
__device__ inline void check(const uint64_t *data, uint64_t bytes, uint64_t iteration, uint64_t seed,
                             unsigned long long *report) {
  const uint64_t words = bytes / 8 + 1;
  uint64_t compared = 0;
  for (uint64_t word = threadIdx.x; word < words; word += blockDim.x) {
    uint64_t sent = bytes - word * 8 < 8 ? bytes - word * 8 : 8;
    uint64_t expected = sent == 0 ? 0 : pattern(seed, iteration, word) & (~uint64_t(0) >> (64 - sent * 8));
    uint64_t difference = data[word] ^ expected;
    if (difference != 0) {
      uint64_t byte = uint64_t(__ffsll((long long)difference) - 1) / 8;
      atomicMin(report + first_wrong, (unsigned long long)(((iteration - 1) * words + word) * 8 + byte));
      for (; byte < 8; ++byte) {
        if (difference >> (byte * 8) & 0xff) atomicAdd(report + wrong, 1ull);
      }
    }
    compared += sent;
  }
  atomicAdd(report + checked, (unsigned long long)compared);
}

__device__ inline void answer(const uint64_t *data, uint64_t bytes, uint64_t *signals, uint64_t *times,
                              uint64_t iterations, uint64_t seed, unsigned long long *report) {
  for (uint64_t i = 1; i <= iterations; ++i) {
    if (threadIdx.x == 0) {
      signal_wait_until(signals + ready, cmp::ge, i);
      fence();  // what was checked has been read
      uint64_t start = now_ns();
      signal_op(signals + go, i, signal::set, initiator);
      signal_wait_until(signals + arrived, cmp::ge, i);
      times[i - 1] = now_ns() - start;
      signal_op(signals + seen, i, signal::set, initiator);
    }
    __syncthreads();  // the data is here, for every thread

    check(data, bytes, i, seed, report);
    __syncthreads();
    const uint64_t stride = (bytes / 8 + 1) * 8;
    if (threadIdx.x == 0 && report[first_wrong] / stride == i - 1) {
      report[got] = reinterpret_cast<const unsigned char *>(data)[report[first_wrong] % stride];
    }
  }
}

template <typename Scope>
__device__ void write_signal(uint64_t *data, uint64_t bytes, uint64_t *signals, uint64_t *times, uint64_t iterations,
                             uint64_t seed, uint64_t corrupt, unsigned long long *report) {
  if (my_pe() == initiator) initiate<Scope>(data, bytes, signals, times, iterations, seed, corrupt);
  else answer(data, bytes, signals, times, iterations, seed, report);
}

#define WRITE_SIGNAL_AT(Scope)                                                                                        \
  extern "C" __global__ void write_signal_##Scope(uint64_t *data, uint64_t bytes, uint64_t *signals, uint64_t *times, \
                                                  uint64_t iterations, uint64_t seed, uint64_t corrupt,               \
                                                  unsigned long long *report) {                                       \
    write_signal<Scope>(data, bytes, signals, times, iterations, seed, corrupt, report);                              \
  }

WRITE_SIGNAL_AT(thread)
WRITE_SIGNAL_AT(warp)
WRITE_SIGNAL_AT(block)
