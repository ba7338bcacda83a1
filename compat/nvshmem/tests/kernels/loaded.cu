/* Machine code that modules.cu loads. */
#include <nvshmem.h>

extern "C" __global__ void loaded(int *dest) {
  const int me = nvshmem_my_pe();
  nvshmem_int_p(dest, me + 3, (me + 1) % nvshmem_n_pes());
}
