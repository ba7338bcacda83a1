// The head of races*.cu: programs of two PEs, each with one mistake in its order, and beside it the same
// program without. PE 0 sends, PE 1 receives, unless it says otherwise. `data`, `src` and `flag` are
// symmetric, 1024 ints, 1024 ints and 16 words, zero, and each program's own. Lines whose accesses race are
// marked. (tests/races)
#include <rushmem/rushmem.cuh>

using namespace rushmem;

#define KERNEL extern "C" __global__ void
#define ARGS int *data, int *src, uint64_t *flag
#define FIRST (threadIdx.x == 0 && blockIdx.x == 0)
#define SECOND (threadIdx.x == 0 && blockIdx.x == 1)
#define SENDER (FIRST && my_pe() == 0)
#define RECEIVER (FIRST && my_pe() == 1)
#define SLOT (reinterpret_cast<packet *>(flag) + 1)
__device__ int sink[4096];
static __device__ void use(int value) { sink[threadIdx.x + 64 * blockIdx.x] = value; }
