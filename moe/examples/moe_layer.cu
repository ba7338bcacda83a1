// The parts of a mixture-of-experts layer that are the program's own: the router, which chooses each token's
// experts, and the experts, each a matrix, whose tokens dispatch has put side by side.
#include <rushmem/rushmem.cuh>

// A thread for each token: the `top_k` experts with the highest scores, of equal ones the first. The best has
// a weight of 1/2, the next of 1/4, and so on.
extern "C" __global__ void route(const float *x, const float *router, int32_t *experts, float *weights, uint32_t n,
                                 uint32_t hidden, uint32_t n_experts, uint32_t top_k) {
  for (uint32_t token = blockIdx.x * blockDim.x + threadIdx.x; token < n; token += gridDim.x * blockDim.x) {
    float weight = 1, above = 0;
    int32_t last = -1;
    for (uint32_t k = 0; k < top_k; ++k) {
      int32_t best = -1;
      float most = 0;
      for (uint32_t e = 0; e < n_experts; ++e) {
        float score = 0;
        for (uint32_t h = 0; h < hidden; ++h) score += x[token * hidden + h] * router[h * n_experts + e];
        // In the order of choice: lower scores, and equal ones further on.
        const bool left = last < 0 || score < above || (score == above && static_cast<int32_t>(e) > last);
        if (left && (best < 0 || score > most)) best = static_cast<int32_t>(e), most = score;
      }
      weight /= 2;
      experts[token * top_k + k] = best;
      weights[token * top_k + k] = weight;
      last = best;
      above = most;
    }
  }
}

// A block for each of this rank's experts in turn: its tokens times its matrix. `x` and `y` are
// [experts][capacity][hidden], as dispatch leaves tokens and combine takes results.
extern "C" __global__ void product(const float *x, const int32_t *counts, const float *w, float *y, uint32_t experts,
                                   uint32_t capacity, uint32_t hidden) {
  for (uint32_t e = blockIdx.x; e < experts; e += gridDim.x) {
    const uint32_t n = static_cast<uint32_t>(counts[e]);
    for (uint32_t i = threadIdx.x; i < n * hidden; i += blockDim.x) {
      const uint32_t row = e * capacity + i / hidden, column = i % hidden;
      float sum = 0;
      for (uint32_t h = 0; h < hidden; ++h) sum += x[row * hidden + h] * w[(e * hidden + h) * hidden + column];
      y[row * hidden + column] = sum;
    }
  }
}
