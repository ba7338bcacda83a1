/* Collective launches by name, as bindings of other languages find them: without headers, and with a CUDA
 * runtime that this program plays; with NO_RUNTIME there is none. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct size3 {
  unsigned x, y, z;
};
struct attribute {
  int id;
  char padding[4];
  int value[16];
};
struct config {
  struct size3 grid, block;
  size_t shared;
  void *stream;
  struct attribute *attributes;
  unsigned count;
};

void nvshmem_init(void);
void nvshmem_finalize(void);
int nvshmem_my_pe(void);
int nvshmem_n_pes(void);
void nvshmem_global_exit(int status);
int nvshmemx_collective_launch(const void *, struct size3, struct size3, void **, size_t, void *);
int nvshmemx_collective_launch_attr(const struct config *, const void *, void **);
int nvshmemx_collective_launch_query_gridsize(const void *, struct size3, void **, size_t, int *);

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      nvshmem_global_exit(3);                                               \
    }                                                                       \
  } while (0)

static int kernel, answer;
static void *arguments[1];
static struct config seen;
static struct attribute attributes_seen[3];

#ifndef NO_RUNTIME
int cudaGetDevice(int *device)
{
  *device = 3;
  return 0;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
  *value = attribute == 16 && device == 3 ? 7 : -1;
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *of, int threads, size_t shared)
{
  *blocks = of == &kernel && threads == 96 && shared == 512 ? 5 : 0;
  return 0;
}

int cudaLaunchCooperativeKernel(const void *of, struct size3 grid, struct size3 block, void **with, size_t shared,
                                void *stream)
{
  CHECK(of == &kernel && with == arguments);
  seen = (struct config){grid, block, shared, stream, NULL, 0};
  return answer;
}

int cudaLaunchKernelExC(const struct config *config, const void *of, void **with)
{
  CHECK(of == &kernel && with == arguments && config->count <= 3);
  seen = *config;
  memcpy(attributes_seen, config->attributes, config->count * sizeof *attributes_seen);
  return answer;
}
#endif

static int is(struct size3 size, unsigned x, unsigned y, unsigned z)
{
  return size.x == x && size.y == y && size.z == z;
}

int main(void)
{
  const struct size3 none = {0, 0, 0}, grid = {2, 3, 4}, block = {32, 3, 1};
  void *const stream = &answer;
  nvshmem_init();
  int blocks = -1;
#ifdef NO_RUNTIME
  CHECK(nvshmemx_collective_launch_query_gridsize(&kernel, block, arguments, 512, &blocks) == 3 && blocks == -1);
  CHECK(nvshmemx_collective_launch(&kernel, grid, block, arguments, 512, stream) == 3);
  (void) none, (void) seen, (void) attributes_seen, (void) is;
#else
  CHECK(nvshmemx_collective_launch_query_gridsize(&kernel, block, arguments, 512, &blocks) == 0 && blocks == 35);
  CHECK(nvshmemx_collective_launch_query_gridsize(NULL, block, arguments, 512, &blocks) == 1);
  CHECK(nvshmemx_collective_launch(&kernel, grid, block, arguments, 512, stream) == 0);
  CHECK(is(seen.grid, 2, 3, 4) && is(seen.block, 32, 3, 1) && seen.shared == 512 && seen.stream == stream);
  /* The largest grid. */
  CHECK(nvshmemx_collective_launch(&kernel, none, block, arguments, 512, NULL) == 0);
  CHECK(is(seen.grid, 35, 1, 1) && seen.stream == NULL);
  /* CUDA's attributes, and one more. */
  struct attribute own[2] = {{.id = 4, .value = {1, 2}}, {.id = 9, .value = {5}}};
  const struct config config = {grid, block, 64, stream, own, 2};
  CHECK(nvshmemx_collective_launch_attr(&config, &kernel, arguments) == 0);
  CHECK(seen.count == 3 && is(seen.grid, 2, 3, 4) && seen.shared == 64 && seen.stream == stream);
  CHECK(!memcmp(attributes_seen, own, sizeof own) && attributes_seen[2].id == 2 && attributes_seen[2].value[0] == 1);
  CHECK(nvshmemx_collective_launch_attr(NULL, &kernel, arguments) == 1);
  answer = 98;
  CHECK(nvshmemx_collective_launch(&kernel, grid, block, arguments, 512, stream) == 6);
  CHECK(nvshmemx_collective_launch_attr(&config, &kernel, arguments) == 6);
#endif
  printf("PE %d of %d: all well\n", nvshmem_my_pe(), nvshmem_n_pes());
  fflush(stdout);
  nvshmem_finalize();
  return 0;
}
