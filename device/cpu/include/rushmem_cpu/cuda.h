/* Everything that nvcc gives a kernel without an #include, for a C++ compiler. The driver puts this before the
 * first line of the user's source. */
#ifndef RUSHMEM_CPU_CUDA_H
#define RUSHMEM_CPU_CUDA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rushmem_cpu/vector_types.h"
#include "rushmem_cpu/hooks.h"
#include "rushmem_cpu/sync.h"
#include "rushmem_cpu/warp.h"
#include "rushmem_cpu/atomic.h"
#include "rushmem_cpu/intrinsics.h"
#include "rushmem_cpu/kernel.h"

/* libc's assert() calls this; ours, hidden in the kernel's shared object, fails the launch and not the process. */
extern "C" __attribute__((visibility("hidden"), noreturn)) void __assert_fail(const char *expression, const char *file,
                                                                             unsigned int line,
                                                                             const char *function) noexcept {
  char text[512];
  snprintf(text, sizeof text, "%s:%u: %s: assertion `%s` failed", file, line, function, expression);
  rushmem_cpu_die(text);
}

/* Last: system headers come before CUDA's words are macros. */
#include "rushmem_cpu/qualifiers.h"

#endif
