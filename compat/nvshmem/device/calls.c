/* Of libnvshmem.a: each function of the host's jumps to libnvshmem_host's, which is loaded before the
 * program's own constructors run. names.h, which build.rs makes of the table, has the functions. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A tail call through the table: the callee sees the program's own arguments and return address. */
#define HEAD(name) ".globl " name "\n.type " name ", @function\n" name ":\n"
#if defined(__x86_64__)
#define CALL_OF(name, at) HEAD(name) "endbr64\n jmp *nvshmem_calls+" at "(%rip)\n"
#elif defined(__aarch64__)
#define CALL_OF(name, at)                                                                          \
  HEAD(name) "hint 34\n adrp x16, nvshmem_calls+" at "\n ldr x16, [x16, :lo12:nvshmem_calls+" at "]\n br x16\n"
#else
#error "libnvshmem.a is for x86-64 and 64-bit Arm: link with -lnvshmem_host -lnvshmem_device"
#endif

#include "names.h"

enum { COUNT = sizeof names / sizeof *names };
__attribute__((visibility("hidden"))) void *nvshmem_calls[COUNT];

static void *load(void)
{
  static const char name[] = "libnvshmem_host.so.3";
  const char *const homes[] = {getenv("NVSHMEM_HOME"), getenv("NVSHMEM_PREFIX")};
  char path[4096];
  void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  for (size_t i = 0; !library && i < sizeof homes / sizeof *homes; i++) {
    if (!homes[i]) continue;
    snprintf(path, sizeof path, "%s/lib/%s", homes[i], name);
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  }
  if (library) return library;
  snprintf(path, sizeof path, "%s/%s", FOLDER, name);
  return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

__attribute__((constructor(101))) static void find(void)
{
  void *library = load();
  if (!library) {
    fprintf(stderr, "rushmem: %s; put its folder into LD_LIBRARY_PATH\n", dlerror());
    _Exit(127);
  }
  for (size_t i = 0; i < COUNT; i++) {
    nvshmem_calls[i] = dlsym(library, names[i]);
    if (nvshmem_calls[i]) continue;
    fprintf(stderr, "rushmem: libnvshmem_host.so.3 has no %s: it is of another rushmem than libnvshmem.a\n", names[i]);
    _Exit(127);
  }
}
