/* The runtime's own kernels: what the host asks a GPU to do on GPU heaps, for host atomics, single words,
 * strided copies and the operations on streams. Whole-program code over the device headers, so that nvcc
 * makes a fatbin of it when the runtime is built and NVRTC makes the same when it was built without nvcc.
 * Nobody else launches these; arguments are the runtime's and not checked again.
 *
 * Every address is mapped by this GPU: the runtime has translated symmetric ones to the PE's copy. Words are
 * naturally aligned. `result` and `done` are in pinned host memory: what a host thread that spins on them may
 * see before the kernel has ended. `*result` is written before `*done` becomes `ticket` by a release at
 * system scope. Either may be null.
 *
 * One block of one thread, where nothing else is said. */
#include <rushmem/rushmem.cuh>

using namespace rushmem;

namespace {

RUSHMEM_DEVICE void answer(uint64_t *result, uint64_t value, uint64_t ticket, uint64_t *done) {
  if (result) impl::store_relaxed_word(result, value);
  if (done) impl::store_release_word(done, ticket);
}

template <typename T> RUSHMEM_DEVICE void wait(const void *at, int how, uint64_t value) {
  if constexpr (sizeof(T) < 4) {
    impl::wait_for(static_cast<const T *>(at), how, static_cast<T>(value));
    impl::fence_acquire();
  } else {
    wait_until(static_cast<const T *>(at), how, static_cast<T>(value));
  }
}

/* Elements in units of `unit` bytes, shared out among all threads of the grid: consecutive threads take
 * consecutive units, also where an element has many. */
template <size_t unit>
RUSHMEM_DEVICE void strided(char *to, const char *from, int64_t to_step, int64_t from_step,
                            uint64_t elem_bytes, uint64_t n) {
  using piece = impl::access<unit>;
  const uint64_t each = elem_bytes / unit, count = n * each;
  const uint64_t size = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += size) {
    uint64_t element = i, at = 0;
    if (each != 1) {
      element = i / each;
      at = (i - element * each) * unit;
    }
    const char *source = from + static_cast<int64_t>(element) * from_step + at;
    piece::template store<true>(to + static_cast<int64_t>(element) * to_step + at, piece::template load<true>(source));
  }
}

}  // namespace

/* Does `op` on the word of `bytes` (4 or 8) at `target`; the old value goes to *result, for the forms that
 * fetch none too. Acquires and releases at system scope, as host operations do. */
extern "C" __global__ void rushmem_service_atomic(uint64_t op, uint64_t bytes, void *target, uint64_t value,
                                                  uint64_t compare, uint64_t *result, uint64_t ticket,
                                                  uint64_t *done) {
  uint64_t old;
  impl::fence_acq_rel();
  if (bytes == 4) {
    old = impl::update_word(op, static_cast<uint32_t *>(target), static_cast<uint32_t>(value),
                            static_cast<uint32_t>(compare));
  } else {
    old = impl::update_word(op, static_cast<uint64_t *>(target), value, compare);
  }
  impl::fence_acq_rel();
  answer(result, old, ticket, done);
}

/* Stores the low `bytes` (1, 2, 4 or 8) of `value`. */
extern "C" __global__ void rushmem_service_store(void *target, uint64_t bytes, uint64_t value) {
  switch (bytes) {
    case 1:
      impl::store_relaxed_word(static_cast<unsigned char *>(target), static_cast<unsigned char>(value));
      break;
    case 2:
      impl::store_relaxed_word(static_cast<unsigned short *>(target), static_cast<unsigned short>(value));
      break;
    case 4: impl::store_relaxed_word(static_cast<uint32_t *>(target), static_cast<uint32_t>(value)); break;
    default: impl::store_relaxed_word(static_cast<uint64_t *>(target), value);
  }
}

/* Loads `bytes` (1, 2, 4 or 8) into *result, above them zeros. */
extern "C" __global__ void rushmem_service_load(const void *from, uint64_t bytes, uint64_t *result,
                                                uint64_t ticket, uint64_t *done) {
  uint64_t value;
  switch (bytes) {
    case 1: value = impl::load_relaxed_word(static_cast<const unsigned char *>(from)); break;
    case 2: value = impl::load_relaxed_word(static_cast<const unsigned short *>(from)); break;
    case 4: value = impl::load_relaxed_word(static_cast<const uint32_t *>(from)); break;
    default: value = impl::load_relaxed_word(static_cast<const uint64_t *>(from));
  }
  answer(result, value, ticket, done);
}

/* Updates a signal word as `sig_op` says (RUSHMEM_SIGNAL_*), by a release at system scope: what the stream
 * did before is seen by every thread that sees it. */
extern "C" __global__ void rushmem_service_signal(uint64_t *sig, uint64_t value, int sig_op) {
  impl::signal_release(sig, value, sig_op);
}

/* Copies `bytes`, any number at any alignment, then updates the signal as above; without one where `sig` is
 * null. One block of any number of threads. */
extern "C" __global__ void __launch_bounds__(1024)
    rushmem_service_put_signal(void *dst, const void *src, uint64_t bytes, uint64_t *sig, uint64_t value,
                               int sig_op) {
  impl::copy<block, 1, false>(dst, src, bytes);
  block::sync();
  if (sig && block::rank() == 0) impl::signal_release(sig, value, sig_op);
}

/* Copies n elements of `elem_bytes` (any), element i from src + i * src_stride to dst + i * dst_stride;
 * strides are in elements. Any one-dimensional grid and block. */
extern "C" __global__ void __launch_bounds__(1024)
    rushmem_service_copy_strided(void *dst, const void *src, int64_t dst_stride, int64_t src_stride,
                                 uint64_t elem_bytes, uint64_t n) {
  char *to = static_cast<char *>(dst);
  const char *from = static_cast<const char *>(src);
  const int64_t to_step = dst_stride * static_cast<int64_t>(elem_bytes);
  const int64_t from_step = src_stride * static_cast<int64_t>(elem_bytes);
  /* The widest access that every element allows. */
  const uint64_t bits = reinterpret_cast<uint64_t>(dst) | reinterpret_cast<uint64_t>(src) | elem_bytes;
  if (bits % 16 == 0) strided<16>(to, from, to_step, from_step, elem_bytes, n);
  else if (bits % 8 == 0) strided<8>(to, from, to_step, from_step, elem_bytes, n);
  else if (bits % 4 == 0) strided<4>(to, from, to_step, from_step, elem_bytes, n);
  else if (bits % 2 == 0) strided<2>(to, from, to_step, from_step, elem_bytes, n);
  else strided<1>(to, from, to_step, from_step, elem_bytes, n);
}

/* Waits until the word of `bytes` (2, 4 or 8) at `word_` compares with `value` as `how` says (RUSHMEM_CMP_*);
 * what it announces is visible to all that follows on the stream. Reported when it stalls; ends with the job,
 * or at the limit of waits. */
extern "C" __global__ void rushmem_service_wait(const void *word_, uint64_t bytes, int is_signed, int how,
                                                uint64_t value) {
  if (bytes == 2 && is_signed) wait<int16_t>(word_, how, value);
  else if (bytes == 2) wait<uint16_t>(word_, how, value);
  else if (bytes == 4 && is_signed) wait<int32_t>(word_, how, value);
  else if (bytes == 4) wait<uint32_t>(word_, how, value);
  else if (is_signed) wait<int64_t>(word_, how, value);
  else wait<uint64_t>(word_, how, value);
}

/* The device's sync of all PEs (sync.h), which for mapped PEs is barrier_all too. One block of 32 or more
 * threads. */
extern "C" __global__ void __launch_bounds__(1024) rushmem_service_sync() { barrier_all<block>(); }

/* Carries out what is in the mailbox, up to number `upto`, or sees to it that others have: for when no thread
 * of this GPU waits and could help (impl/help.h). Ends early with the job. */
extern "C" __global__ void rushmem_service_mailbox(rushmem_mailbox *box, uint64_t upto) {
  for (;;) {
    const uint64_t turn = impl::load_relaxed_word(&box->turn);
    if (turn / 2 >= upto) return;
    if ((turn & 1) == 0) impl::serve(box, turn, upto);
    else if (state().broken && impl::load_relaxed_word(state().broken) != 0) return;
  }
}
