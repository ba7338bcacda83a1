/* Address spaces. There is one here: what `__cvta_generic_to_*` gives is the address itself, which needs all
 * bits of its size_t. `__isLocal`, `__isGlobal` and `__isConstant` are missing: stacks and constants are
 * ordinary memory, and none of them could be answered rightly. */
#ifndef RUSHMEM_CPU_ADDRESS_SPACE_H
#define RUSHMEM_CPU_ADDRESS_SPACE_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

#include "rushmem_cpu/hooks.h"

/* Where this OS thread has the kernel's `__shared__` variables, which are thread-local. */
struct rushmem_cpu_statics {
  uintptr_t begin, end;
};
static int rushmem_cpu_find_statics(struct dl_phdr_info *object, size_t, void *found) {
  const uintptr_t code = (uintptr_t)&rushmem_cpu_find_statics;
  bool is_ours = false;
  size_t bytes = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) &part = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && code >= begin && code < begin + part.p_memsz) is_ours = true;
    if (part.p_type == PT_TLS) bytes = part.p_memsz;
  }
  if (!is_ours) return 0;
  rushmem_cpu_statics *statics = (rushmem_cpu_statics *)found;
  statics->begin = (uintptr_t)object->dlpi_tls_data;
  statics->end = statics->begin ? statics->begin + bytes : 0;
  return 1;
}

static inline unsigned __isShared(const void *at) {
  const uintptr_t address = (uintptr_t)at, dynamic = (uintptr_t)rushmem_cpu_self->block->shared;
  if (address >= dynamic && address < dynamic + rushmem_cpu_self->block->shared_bytes) return 1;
  rushmem_cpu_statics statics = {0, 0};
  dl_iterate_phdr(rushmem_cpu_find_statics, &statics);
  return address >= statics.begin && address < statics.end;
}

#define RUSHMEM_CPU_SPACE(space)                                                                       \
  static inline size_t __cvta_generic_to_##space(const void *at) { return (size_t)at; }                \
  static inline void *__cvta_##space##_to_generic(size_t address) { return (void *)address; }
RUSHMEM_CPU_SPACE(global)
RUSHMEM_CPU_SPACE(shared)
RUSHMEM_CPU_SPACE(constant)
RUSHMEM_CPU_SPACE(local)
#undef RUSHMEM_CPU_SPACE

#endif
