// `<cuda/std/...>`: what the compiler's C++ library has, and `span` and `bit`
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/cmath>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned x = random[threadIdx.x];
  cuda::std::array<unsigned, 3> values = {x, x + 1, x + 2};
  unsigned sum = 0;
  for (unsigned value : cuda::std::span<const unsigned>(values)) sum += value;
  cuda::std::optional<unsigned> maybe;
  const cuda::std::tuple<int, float> pair(2, 0.5f);
  static_assert(cuda::std::is_same<cuda::std::decay_t<const int &>, int>::value, "");
  good[threadIdx.x] = sum == 3 * x + 3 && maybe.value_or(x) == x && cuda::std::get<1>(pair) == 0.5f &&
                      cuda::std::popcount(x) == __popc(x) && cuda::std::sqrt(4.0f) == 2.0f &&
                      cuda::std::numeric_limits<cuda::std::uint8_t>::max() == 255;
}
