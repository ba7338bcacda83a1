/* Everything that nvcc gives a kernel without an #include, for a C++ compiler. The driver puts this before
 * the first line of the user's source. */
#ifndef RUSHMEM_CPU_CUDA_H
#define RUSHMEM_CPU_CUDA_H

#include <asm/unistd.h>
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rushmem_cpu/vector_types.h"
#include "rushmem_cpu/hooks.h"
#if defined(RUSHMEM_CPU_CHECK)
#include "rushmem_cpu/check.h"
#endif
#if defined(RUSHMEM_CPU_TRACE)
#include "rushmem_cpu/trace.h"
#endif
#include "rushmem_cpu/sync.h"
#include "rushmem_cpu/warp.h"
#include "rushmem_cpu/atomic.h"
#include "rushmem_cpu/intrinsics.h"
#include "rushmem_cpu/math_functions.h"
#include "rushmem_cpu/simd.h"
#include "rushmem_cpu/address_space.h"
#include "rushmem_cpu/float16_bits.h"
#include "rushmem_cpu/kernel.h"

/* libc's assert() calls this; ours, hidden in the kernel's shared object, fails the launch and not the
 * process. */
extern "C" __attribute__((visibility("hidden"), noreturn)) void __assert_fail(const char *expression,
                                                                              const char *file,
                                                                              unsigned int line,
                                                                              const char *function) noexcept {
  char text[512];
  snprintf(text, sizeof text, "%s:%u: %s: assertion `%s` failed", file, line, function, expression);
  rushmem_cpu_die(text);
}

/* The same for what would end the process, in the middle of a CUDA thread and beside the program's own
 * threads. Where no CUDA thread runs (a static initialiser) the process ends. Compilers know some of these
 * functions and keep them from being hidden; the linker binds the kernel's calls to these ones all the same
 * (-Bsymbolic-functions). */
extern "C" long syscall(long number, ...) noexcept;
[[noreturn]] static inline void rushmem_cpu_end(const char *call, int code) {
  if (!rushmem_cpu_self) syscall(__NR_exit_group, (long)code);
  char text[160];
  snprintf(text, sizeof text,
           "called %s(%d), which would end the whole process: return from the kernel, or __trap() to fail "
           "the launch",
           call, code);
  rushmem_cpu_die(text);
}
/* With the exception specification of libc's header. */
#define RUSHMEM_CPU_ENDS(call, specification)                                                          \
  extern "C" [[noreturn]] void call(int code) specification {                                          \
    rushmem_cpu_end(#call, code);                                                                      \
  }
RUSHMEM_CPU_ENDS(exit, noexcept)
RUSHMEM_CPU_ENDS(_Exit, noexcept)
RUSHMEM_CPU_ENDS(quick_exit, noexcept)
RUSHMEM_CPU_ENDS(_exit, )
#undef RUSHMEM_CPU_ENDS
extern "C" [[noreturn]] void abort(void) noexcept {
  if (!rushmem_cpu_self) syscall(__NR_exit_group, 134L);
  rushmem_cpu_die("called abort(), which would end the whole process: __trap() fails the launch alone");
}

#if defined(RUSHMEM_CPU_CHECK)
/* Calls whatever the length is: what becomes instructions has no hook. */
#define __builtin_memcpy(to, from, bytes) memcpy(to, from, bytes)
#define __builtin_memmove(to, from, bytes) memmove(to, from, bytes)
#define __builtin_memset(to, value, bytes) memset(to, value, bytes)
#endif

/* Last: system headers come before CUDA's words are macros. */
#include "rushmem_cpu/qualifiers.h"

#endif
