/* What kernels of a traced run on a GPU note of their calls (RUSHMEM_TRACE), where the runtime compiles them
 * with -DRUSHMEM_GPU_TRACE; nothing otherwise. A call writes a record when it begins and one when it ends
 * into a ring of the host's (abi_trace.h). What the CPU device does instead is in impl/cpu.h. */
#ifndef RUSHMEM_IMPL_TRACE_H
#define RUSHMEM_IMPL_TRACE_H

#include <rushmem/impl/platform.h>

#if defined(RUSHMEM_GPU_TRACE) && !defined(RUSHMEM_CPU)

#include <rushmem/abi_trace.h>

/* Of this module: each is compiled by itself. The runtime fills it before the first launch. */
extern "C" {
__constant__ rushmem_trace_ring rushmem_gpu_trace = {nullptr, nullptr, 0, 0};
}

namespace rushmem {
namespace impl {

/* FNV-1a. */
RUSHMEM_DEVICE constexpr uint32_t hash_of_name(const char *name) {
  uint32_t hash = 0x811c9dc5u;
  for (; *name; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x01000193u;
  return hash;
}

/* Tells launches of one module apart for the host, which knows their shapes: blocks and threads. */
RUSHMEM_DEVICE constexpr uint64_t mix_of_shape(uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                                               uint32_t bz) {
  const uint64_t odd = 0x9e3779b97f4a7c15u;
  return (((((gx * odd + gy) * odd + gz) * odd + bx) * odd + by) * odd + bz) * odd >> 16;
}
RUSHMEM_DEVICE uint64_t shape_of_launch() {
  return mix_of_shape(gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z);
}

/* Out of line, once in a module, as are the two below: callers keep their registers for themselves, so that
 * blocks of 1024 threads can still be launched. */
RUSHMEM_OUTLINED void write_trace_record(uint32_t what, uint32_t name, int pe, uint64_t bytes, uint64_t offset,
                                         uint64_t last) {
  const uint64_t now = now_ns();
  uint64_t index, launch;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(launch));
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;"
               : "=l"(index)
               : "l"(rushmem_gpu_trace.claimed)
               : "memory");
  const uint64_t tag = (index / RUSHMEM_TRACE_SLOTS % 65535 + 1) << 48, most = (uint64_t(1) << 48) - 1;
  uint64_t *slot = rushmem_gpu_trace.records + index % RUSHMEM_TRACE_SLOTS * RUSHMEM_TRACE_WORDS;
  /* One pair after the other: few registers. */
  const auto pair_of_words = [=](int at, uint64_t a, uint64_t b) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(slot + at), "l"((a & most) | tag),
                 "l"((b & most) | tag)
                 : "memory");
  };
  constexpr int half = 32;
  pair_of_words(0, now, bytes < most ? bytes : most);
  pair_of_words(2, offset, blockIdx.x | uint64_t(blockIdx.y) << half);
  pair_of_words(4,
                blockIdx.z | uint64_t(threadIdx.x) << 16 | uint64_t(threadIdx.y) << 26 |
                    uint64_t(threadIdx.z) << 36 | uint64_t(what) << 42,
                name | (rushmem_gpu_trace.module & 0xffff) << half);
  pair_of_words(6, static_cast<uint32_t>(pe) | (launch & 0xffff) << half, last);
}

/* Whether this thread's call is recorded, where it is the first one of its scope: in the first blocks of a
 * launch; of threads of one warp that make a call each, side by side, the first one, but each that waits. */
RUSHMEM_DEVICE bool is_traced(uint32_t kind) {
  if (rushmem_gpu_trace.records == nullptr) return false;
  const uint64_t number = blockIdx.x + gridDim.x * (blockIdx.y + uint64_t(gridDim.y) * blockIdx.z);
  if (number >= rushmem_gpu_trace.blocks) return false;
  return kind == RUSHMEM_TRACE_WAIT || is_first_lane();
}

/* A call begins; whether that is recorded. */
RUSHMEM_OUTLINED bool begin_trace(uint32_t kind, uint32_t name, int pe, uint64_t bytes, const volatile void *word_) {
  if (!is_traced(kind)) return false;
  const uint64_t none = ~uint64_t(0);
  const uint64_t offset = word_ ? reinterpret_cast<uint64_t>(word_) - device_state().heap_base : none;
  write_trace_record(RUSHMEM_TRACE_BEGIN | kind << 2, name, pe, bytes,
                     offset < device_state().stride ? offset : none, shape_of_launch());
  return true;
}
RUSHMEM_OUTLINED void end_trace(uint32_t kind, uint32_t name) {
  write_trace_record(RUSHMEM_TRACE_END | kind << 2, name, -1, 0, ~uint64_t(0), 0);
}

/* A call, from here to the end of the function. */
template <uint32_t kind, uint32_t name> struct traced_call {
  bool noted;
  RUSHMEM_DEVICE traced_call(bool is_first, int pe, size_t bytes, const volatile void *word_)
      : noted(is_first && begin_trace(kind, name, pe, bytes, word_)) {}
  RUSHMEM_DEVICE ~traced_call() {
    if (noted) end_trace(kind, name);
  }
};

/* The innermost call that has begun is collective: in that phase of that slot set; of all PEs where `slots`
 * is 0. */
RUSHMEM_OUTLINED void trace_round(uint64_t slots, uint64_t phase) {
  if (!is_traced(RUSHMEM_TRACE_COLLECTIVE)) return;
  write_trace_record(RUSHMEM_TRACE_ROUND | RUSHMEM_TRACE_COLLECTIVE << 2, 0, -1, 0, slots, phase);
}

RUSHMEM_DEVICE void note_call(uint64_t slots, uint64_t phase, uint32_t, int) { trace_round(slots, phase); }

}  // namespace impl
}  // namespace rushmem

#define RUSHMEM_TRACED(kind, name, is_first, pe, bytes, word_)                                                  \
  const ::rushmem::impl::traced_call<RUSHMEM_TRACE_##kind, ::rushmem::impl::hash_of_name(name)> traced_here( \
      is_first, pe, bytes, word_)
#define RUSHMEM_TRACED_ROUND(is_first, slots, phase) \
  if (is_first) ::rushmem::impl::trace_round(slots, phase)

#endif

#endif
