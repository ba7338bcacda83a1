/* A kernel from C: compiled from source, launched on all PEs, seen from the host. */
#include "check.h"

static const char source[] =
    "#include <rushmem/rushmem.cuh>\n"
    "extern \"C\" __global__ void pass(int *slots, uint64_t *sig, int value)\n"
    "{\n"
    "  const int me = rushmem::my_pe(), n = rushmem::n_pes();\n"
    "  const int right = (me + 1) % n;\n"
    "  rushmem::p(slots + threadIdx.x, value + (int)threadIdx.x, right);\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x == 0) {\n"
    "    rushmem::fence();\n"
    "    rushmem::signal_op(sig, 1, RUSHMEM_SIGNAL_SET, right);\n"
    "    rushmem::signal_wait_until(sig, RUSHMEM_CMP_EQ, 1);\n"
    "  }\n"
    "}\n";

static const char counts[] =
    "extern \"C\" __global__ void count(int *total) { atomicAdd(total, BY); }\n";

int main(void)
{
  enum { THREADS = 64 };
  rushmem_world_t *w = start();
  rushmem_module_t *module = NULL;
  rushmem_kernel_t *kernel = NULL;
  FAILS(rushmem_module_load(w, "nonsense", 8, "bad.cu", NULL, 0, &module), RUSHMEM_ERR_COMPILE, "bad.cu");
  OK(rushmem_module_load(w, source, sizeof source - 1, "pass.cu", NULL, 0, &module));
  FAILS(rushmem_module_kernel(module, "fail", &kernel), RUSHMEM_ERR_LAUNCH, "fail");
  OK(rushmem_module_kernel(module, "pass", &kernel));
  const char *name = NULL;
  OK(rushmem_module_kernel_names(module, 0, &name));
  CHECK(!strcmp(name, "pass"));
  FAILS(rushmem_module_kernel_names(module, 1, &name), RUSHMEM_ERR_INVALID_ARGUMENT, "1");
  rushmem_arg_type_t types[8];
  size_t count = 0;
  OK(rushmem_kernel_params(kernel, types, 8, &count));
  CHECK(count == 3 && types[0].kind == RUSHMEM_ARG_POINTER && types[2].kind == RUSHMEM_ARG_INT && types[2].size == 4);

  int *slots;
  uint64_t *sig;
  OK(rushmem_alloc(w, THREADS * sizeof *slots, 0, (void **)&slots));
  OK(rushmem_alloc(w, sizeof *sig, 0, (void **)&sig));
  int value = 100 * me;
  const void *args[] = {&slots, &sig, &value};
  rushmem_launch_t launch;
  memset(&launch, 0, sizeof launch);
  launch.size = sizeof launch;
  launch.grid[0] = launch.grid[1] = launch.grid[2] = 1;
  launch.block[0] = THREADS;
  launch.block[1] = launch.block[2] = 1;
  FAILS(rushmem_launch(kernel, &launch, args, NULL, 2), RUSHMEM_ERR_LAUNCH, "3");
  const uint32_t block[3] = {THREADS, 1, 1};
  uint64_t most = 0;
  OK(rushmem_kernel_max_blocks(kernel, block, 0, &most));
  CHECK(most >= 1);
  OK(rushmem_launch(kernel, &launch, args, NULL, 3));
  value = -1; /* arguments were copied */
  OK(rushmem_synchronize(w));
  const int left = (me + n - 1) % n;
  int seen[THREADS];
  look(w, seen, slots, sizeof seen);
  for (int i = 0; i < THREADS; i++) CHECK(seen[i] == 100 * left + i);
  OK(rushmem_barrier_all(w));
  /* More blocks than can be resident: in turns, where they may be. */
  OK(rushmem_module_unload(module));
  /* Neither compiler knows the other one's options. */
  const char *options[] = {"-DHALF=3", "--nvrtc=--fmad=false", "--nvrtc=-DBY=HALF+HALF", "--cxx=-O1",
                           "--cxx=-DBY=HALF+HALF"};
  OK(rushmem_module_load(w, counts, sizeof counts - 1, "counts.cu", options, 5, &module));
  OK(rushmem_module_kernel(module, "count", &kernel));
  launch.grid[0] = 65000;
  launch.block[0] = 2;
  memset(seen, 0, sizeof seen);
  const void *count_args[] = {&slots};
  FAILS(rushmem_launch(kernel, &launch, count_args, NULL, 1), RUSHMEM_ERR_LAUNCH, "resident");
  launch.flags = RUSHMEM_LAUNCH_IN_TURNS | 4;
  FAILS(rushmem_launch(kernel, &launch, count_args, NULL, 1), RUSHMEM_ERR_INVALID_ARGUMENT, "flags");
  launch.flags = RUSHMEM_LAUNCH_IN_TURNS;
  look(w, seen, slots, sizeof *seen);
  const int before = seen[0];
  OK(rushmem_launch(kernel, &launch, count_args, NULL, 1));
  OK(rushmem_synchronize(w));
  look(w, seen, slots, sizeof *seen);
  CHECK(seen[0] == before + 6 * 130000);
  OK(rushmem_barrier_all(w));
  OK(rushmem_module_unload(module));
  OK(rushmem_free(w, sig));
  OK(rushmem_free(w, slots));
  return finish(w);
}
