/* A stand-in for CUDA's runtime, with which a program that nvcc has compiled runs on the CPU device: a launch
 * looks the kernel up by its name among those of the program's source, which rushmem compiles. KERNELS names
 * the source, of which all before the line "The host's part." is taken, and KERNELS_INCLUDE folders for it,
 * with colons between them. Of a template's instance the source has a function with the template's name.
 *
 * Streams are rushmem's, and memory is the host's. What nvcc's part of a program calls has CUDA 13's form. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <nvshmem.h>
#include <rushmem.h>

struct dim3 {
  unsigned x, y, z;
};
struct kernel {
  const void *entry;
  char name[128];
  rushmem_kernel_t *loaded;
};

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719 };
enum { KERNELS = 256, FOLDERS = 8, BLOCKS = 8 };

static struct kernel kernels[KERNELS];
static size_t count;
static rushmem_module_t *module;
static struct {
  void *at;
  size_t bytes;
} allocations[KERNELS];
static struct {
  struct dim3 grid, block;
  size_t shared;
  void *stream;
} next;
static int current;

static int result(int32_t code, const char *what)
{
  if (code == RUSHMEM_OK) return SUCCESS;
  fprintf(stderr, "stand-in of CUDA's runtime: %s: %s\n", what, rushmem_last_error());
  return LAUNCH_FAILED;
}

static rushmem_world_t *world(void)
{
  rushmem_world_t *w = NULL;
  if (rushmem_current(&w) != RUSHMEM_OK || !w) {
    fprintf(stderr, "stand-in of CUDA's runtime: no job is joined\n");
    abort();
  }
  return w;
}

/* ---- what nvcc makes ---- */

void **__cudaRegisterFatBinary(void *binary)
{
  static void *handle;
  handle = binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void) handle; }
void __cudaUnregisterFatBinary(void **handle) { (void) handle; }
char __cudaInitModule(void **handle)
{
  (void) handle;
  return 1;
}
void __cudaRegisterVar(void **handle, char *var, char *device, const char *name, int ext, size_t size,
                       int constant, int global)
{
  (void) handle, (void) var, (void) device, (void) name, (void) ext, (void) size;
  (void) constant, (void) global;
}

/* Of a name as C++ has it in symbols the part that the source has: shift of _Z5shiftPi, own::get of
 * _ZN3own3getILi0EEEvi. */
static void name_of(const char *symbol, char *to, size_t room)
{
  const int nested = !strncmp(symbol, "_ZN", 3);
  const char *at = symbol + 2 + nested;
  if (strncmp(symbol, "_Z", 2) || !isdigit((unsigned char) *at)) {
    snprintf(to, room, "%s", symbol);
    return;
  }
  size_t used = 0;
  do {
    char *name;
    const size_t length = strtoul(at, &name, 10);
    used += (size_t) snprintf(to + used, room - used, "%s%.*s", used ? "::" : "", (int) length, name);
    at = name + length;
  } while (nested && used < room && isdigit((unsigned char) *at));
}

void __cudaRegisterFunction(void **handle, const char *entry, char *device, const char *name, int limit,
                            void *tid, void *bid, void *block, void *grid, int *warp)
{
  (void) handle, (void) device, (void) limit, (void) tid, (void) bid;
  (void) block, (void) grid, (void) warp;
  if (count == KERNELS) abort();
  struct kernel *k = &kernels[count++];
  k->entry = entry;
  name_of(name, k->name, sizeof k->name);
}

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void *stream)
{
  next.grid = grid;
  next.block = block;
  next.shared = shared;
  next.stream = stream;
  return 0;
}
int __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream)
{
  *grid = next.grid;
  *block = next.block;
  *shared = next.shared;
  *(void **) stream = next.stream;
  return SUCCESS;
}

/* ---- launches ---- */

static int load(void)
{
  static char text[1 << 20], folders[FOLDERS][512];
  const char *path = getenv("KERNELS"), *include = getenv("KERNELS_INCLUDE");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file) {
    fprintf(stderr, "stand-in of CUDA's runtime: KERNELS=%s is no file\n", path ? path : "");
    return INVALID;
  }
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  char *host = strstr(text, "/* The host's part. */");
  if (host) *host = 0;
  const char *options[FOLDERS];
  size_t n = 0;
  while (include && *include && n < FOLDERS) {
    const size_t length = strcspn(include, ":");
    snprintf(folders[n], sizeof folders[n], "-I%.*s", (int) length, include);
    options[n] = folders[n];
    n++;
    include += length + (include[length] == ':');
  }
  const int32_t code = rushmem_module_load(world(), text, strlen(text), path, options, n, &module);
  return result(code, path);
}

static int find(const void *entry, struct kernel **out)
{
  for (size_t i = 0; i < count; i++) {
    struct kernel *k = &kernels[i];
    if (k->entry != entry) continue;
    if (!module && load() != SUCCESS) return LAUNCH_FAILED;
    if (!k->loaded && result(rushmem_module_kernel(module, k->name, &k->loaded), k->name) != SUCCESS)
      return LAUNCH_FAILED;
    *out = k;
    return SUCCESS;
  }
  return INVALID;
}

static int launch(struct kernel *k, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                  void *stream)
{
  size_t n = 0;
  int code = result(rushmem_kernel_params(k->loaded, NULL, 0, &n), k->name);
  if (code) return code;
  const rushmem_launch_t shape = {.size = sizeof shape,
                                  .grid = {grid.x, grid.y, grid.z},
                                  .block = {block.x, block.y, block.z},
                                  .shared_bytes = shared,
                                  .stream = stream};
  return result(rushmem_launch(k->loaded, &shape, (const void *const *) arguments, NULL, n), k->name);
}

int __cudaGetKernel(struct kernel **out, const void *entry) { return find(entry, out); }
int __cudaLaunchKernel(struct kernel *k, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                       void *stream)
{
  return launch(k, grid, block, arguments, shared, stream);
}
int cudaLaunchKernel(const void *entry, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                     void *stream)
{
  struct kernel *k;
  const int code = find(entry, &k);
  return code ? code : launch(k, grid, block, arguments, shared, stream);
}
int cudaLaunchCooperativeKernel(const void *entry, struct dim3 grid, struct dim3 block, void **arguments,
                                size_t shared, void *stream)
{
  return cudaLaunchKernel(entry, grid, block, arguments, shared, stream);
}
/* Of one processor, which stands for all. */
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *entry, int threads, size_t shared)
{
  struct kernel *k;
  uint64_t most = 0;
  const uint32_t block[3] = {(uint32_t) threads, 1, 1};
  int code = find(entry, &k);
  if (!code) code = result(rushmem_kernel_max_blocks(k->loaded, block, shared, &most), k->name);
  *blocks = most < BLOCKS ? (int) most : BLOCKS;
  return code;
}

/* ---- devices, streams, memory ---- */

int cudaGetDeviceCount(int *devices)
{
  *devices = 2;
  return SUCCESS;
}
int cudaSetDevice(int device)
{
  if (device < 0 || device > 1) return INVALID;
  current = device;
  return SUCCESS;
}
int cudaGetDevice(int *device)
{
  *device = current;
  return SUCCESS;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
  (void) attribute, (void) device;
  *value = 1;
  return SUCCESS;
}
/* What it is called, at the beginning. */
int cudaGetDeviceProperties(char *properties, int device)
{
  (void) device;
  strcpy(properties, "the CPU device");
  return SUCCESS;
}
const char *cudaGetErrorString(int code) { return code ? "an error" : "no error"; }
int cudaPeekAtLastError(void) { return SUCCESS; }
int cudaGetLastError(void) { return SUCCESS; }

int cudaStreamCreate(void **stream)
{
  return result(rushmem_stream_create(world(), stream), "cudaStreamCreate");
}
int cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
  (void) flags;
  return cudaStreamCreate(stream);
}
int cudaStreamDestroy(void *stream)
{
  return result(rushmem_stream_destroy(world(), stream), "cudaStreamDestroy");
}
int cudaStreamSynchronize(void *stream)
{
  return result(rushmem_stream_synchronize(world(), stream), "cudaStreamSynchronize");
}
int cudaDeviceSynchronize(void) { return result(rushmem_synchronize(world()), "cudaDeviceSynchronize"); }

int cudaMalloc(void **at, size_t bytes)
{
  for (size_t i = 0; i < KERNELS; i++) {
    if (allocations[i].at) continue;
    *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*at == MAP_FAILED) return OUT_OF_MEMORY;
    allocations[i].at = *at;
    allocations[i].bytes = bytes;
    return SUCCESS;
  }
  return OUT_OF_MEMORY;
}
int cudaFree(void *at)
{
  for (size_t i = 0; at && i < KERNELS; i++)
    if (allocations[i].at == at) {
      munmap(at, allocations[i].bytes);
      allocations[i].at = NULL;
      return SUCCESS;
    }
  return at ? INVALID : SUCCESS;
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
  (void) kind;
  const int code = cudaDeviceSynchronize();
  if (!code) memcpy(to, from, bytes);
  return code;
}
int cudaMemset(void *to, int value, size_t bytes)
{
  const int code = cudaDeviceSynchronize();
  if (!code) memset(to, value, bytes);
  return code;
}
/* In the stream's turn, and not asynchronously. */
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
  (void) kind;
  const int code = cudaStreamSynchronize(stream);
  if (!code) memcpy(to, from, bytes);
  return code;
}
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream)
{
  const int code = cudaStreamSynchronize(stream);
  if (!code) memset(to, value, bytes);
  return code;
}
int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int kind,
                            void *stream)
{
  (void) symbol, (void) from, (void) bytes, (void) offset, (void) kind, (void) stream;
  return SUCCESS;
}
