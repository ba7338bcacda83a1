/* The hooks of traced runs (RUSHMEM_TRACE, device/cpu/src/trace_hooks.rs): a kernel that is compiled for one
 * says when its threads' calls of rushmem begin and end. Any other kernel has none of this. */
#ifndef RUSHMEM_CPU_TRACE_H
#define RUSHMEM_CPU_TRACE_H

#include "rushmem_cpu/hooks.h"

/* What a call is. */
enum rushmem_cpu_traced_kind : uint32_t {
  RUSHMEM_CPU_TRACED_RMA = 0, /* asks `peer`, for `bytes` */
  RUSHMEM_CPU_TRACED_NBI = 1,
  RUSHMEM_CPU_TRACED_ORDER = 2,
  RUSHMEM_CPU_TRACED_WAIT = 3, /* for `word` of this PE's */
  RUSHMEM_CPU_TRACED_COLLECTIVE = 4
};

struct rushmem_cpu_traced_call {
  const char *name;
  uint64_t bytes;
  uint64_t word;     /* that is waited for, or tells `peer` of the data: a symmetric address, or 0 */
  const void *frame; /* the frame pointer of the hook's own frame */
  int32_t peer;      /* -1: none */
  uint32_t kind;
};

struct rushmem_cpu_tracer {
  uint32_t bytes;
  void (*begin)(rushmem_cpu_thread *self, const rushmem_cpu_traced_call *call);
  void (*round)(rushmem_cpu_thread *self, uint64_t slots, uint64_t phase);
  void (*end)(rushmem_cpu_thread *self);
};

static const rushmem_cpu_tracer *rushmem_cpu_trace_table;

RUSHMEM_CPU_EXPORT uint32_t rushmem_cpu_trace_attach(const rushmem_cpu_tracer *tracer) {
  if (tracer->bytes != sizeof(rushmem_cpu_tracer)) return 0;
  rushmem_cpu_trace_table = tracer;
  return 1;
}

#define RUSHMEM_CPU_TRACED_HOOK __attribute__((no_sanitize("thread"), noinline, used)) static void

RUSHMEM_CPU_TRACED_HOOK rushmem_cpu_trace_begin(uint32_t kind, const char *name, int peer, uint64_t bytes,
                                                uint64_t word) {
  const rushmem_cpu_traced_call call = {name, bytes, word, __builtin_frame_address(0), peer, kind};
  rushmem_cpu_trace_table->begin(rushmem_cpu_self, &call);
}
/* The innermost call that has begun is collective: in that phase of that slot set; of all PEs where `slots`
 * is 0. */
RUSHMEM_CPU_TRACED_HOOK rushmem_cpu_trace_round(uint64_t slots, uint64_t phase) {
  rushmem_cpu_trace_table->round(rushmem_cpu_self, slots, phase);
}
RUSHMEM_CPU_TRACED_HOOK rushmem_cpu_trace_end() { rushmem_cpu_trace_table->end(rushmem_cpu_self); }

#endif
