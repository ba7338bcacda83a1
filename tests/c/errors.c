/* Mistakes from C: each has its code and its text, writes nothing, and leaves the job usable. */
#include "check.h"

static void without_a_world(void)
{
  CHECK(rushmem_abi_version() == RUSHMEM_ABI_VERSION);
  CHECK(strchr(rushmem_version(), '.'));
  CHECK(strstr(rushmem_library_path(), "librushmem_host.so"));
  CHECK(!strcmp(rushmem_error_name(RUSHMEM_OK), "RUSHMEM_OK"));
  CHECK(!strcmp(rushmem_error_name(RUSHMEM_ERR_BAD_PE), "RUSHMEM_ERR_BAD_PE"));
  CHECK(!strcmp(rushmem_error_name(4711), "RUSHMEM_ERR_?"));
  CHECK(*rushmem_last_error() == '\0');
  int64_t private_memory[4] = {0};
  FAILS(rushmem_barrier_all(NULL), RUSHMEM_ERR_BAD_HANDLE, "world");
  FAILS(rushmem_my_pe(NULL), RUSHMEM_ERR_BAD_HANDLE, "null");
  FAILS(rushmem_put(NULL, private_memory, private_memory, 8, 0), RUSHMEM_ERR_BAD_HANDLE, "world");
  FAILS(rushmem_init(NULL, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
}

/* Pointers that are no handles: numbers, this program's own memory (mapped, not mapped, read-only, code),
 * handles of another kind, places within and beside handles. */
static void garbage(rushmem_world_t *w)
{
  static const char text[] = "a text of this program, long enough to be anything";
  char local[64] = "rushmemWrushmemMrushmemKrushmemE";
  rushmem_event_t *event;
  OK(rushmem_event_record(w, NULL, &event));
  const uintptr_t own = (uintptr_t)w;
  const uintptr_t wrong[] = {1, 2, 7, 8, 32, 4096, UINTPTR_MAX, UINTPTR_MAX - 7, (uintptr_t)1 << 47, (uintptr_t)text,
                             (uintptr_t)local, (uintptr_t)local + 8, (uintptr_t)&garbage, own + 1, own + 8, own + 31,
                             own - 32, own + (1 << 20), own + ((uintptr_t)1 << 40)};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    void *p = (void *)wrong[i];
    int64_t word = 0;
    int32_t done;
    size_t count;
    rushmem_kernel_t *kernel;
    FAILS(rushmem_put(p, &word, &word, 8, 0), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_barrier_all(p), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_my_pe(p), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_finalize(p), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_abort(p, NULL), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_break(p, NULL), RUSHMEM_ERR_BAD_HANDLE, "world");
    FAILS(rushmem_module_unload(p), RUSHMEM_ERR_BAD_HANDLE, "module");
    FAILS(rushmem_module_kernel(p, "k", &kernel), RUSHMEM_ERR_BAD_HANDLE, "module");
    FAILS(rushmem_kernel_params(p, NULL, 0, &count), RUSHMEM_ERR_BAD_HANDLE, "kernel");
    FAILS(rushmem_event_test(p, &done), RUSHMEM_ERR_BAD_HANDLE, "event");
    FAILS(rushmem_event_wait(p), RUSHMEM_ERR_BAD_HANDLE, "event");
    FAILS(rushmem_event_free(p), RUSHMEM_ERR_BAD_HANDLE, "event");
    rushmem_view_t view;
    OK(rushmem_view(w, &view));
    if (view.device == RUSHMEM_DEVICE_CPU) {
      FAILS(rushmem_stream_destroy(w, p), RUSHMEM_ERR_BAD_HANDLE, "stream");
      FAILS(rushmem_stream_synchronize(w, p), RUSHMEM_ERR_BAD_HANDLE, "stream");
      FAILS(rushmem_quiet_on_stream(w, p), RUSHMEM_ERR_BAD_HANDLE, "stream");
    }
  }
  int32_t done;
  FAILS(rushmem_event_wait((rushmem_event_t *)w), RUSHMEM_ERR_BAD_HANDLE, "event");
  FAILS(rushmem_barrier_all((rushmem_world_t *)event), RUSHMEM_ERR_BAD_HANDLE, "world");
  OK(rushmem_event_wait(event));
  OK(rushmem_event_free(event));
  FAILS(rushmem_event_test(event, &done), RUSHMEM_ERR_BAD_HANDLE, "event");
}

static void with_a_world(rushmem_world_t *w)
{
  int64_t mine[8] = {0}, out = 55;
  uint64_t bits = 55;
  size_t index = 55;
  int64_t *sym, *freed;
  OK(rushmem_alloc(w, 64, 0, (void **)&sym));
  OK(rushmem_alloc(w, 64, 0, (void **)&freed));
  OK(rushmem_free(w, freed));

  FAILS(rushmem_put(w, sym, mine, 8, n), RUSHMEM_ERR_BAD_PE, "PE 4");
  FAILS(rushmem_put(w, sym, mine, 8, -1), RUSHMEM_ERR_BAD_PE, "PE -1");
  FAILS(rushmem_get(w, mine, sym, 8, 1000000), RUSHMEM_ERR_BAD_PE, "PE 1000000");
  FAILS(rushmem_put(w, mine, mine, 8, 0), RUSHMEM_ERR_BAD_ADDRESS, "symmetric");
  FAILS(rushmem_put(w, freed, mine, 8, 0), RUSHMEM_ERR_BAD_ADDRESS, "freed");
  FAILS(rushmem_put(w, sym + 7, mine, 16, 0), RUSHMEM_ERR_OUT_OF_BOUNDS, "past its end");
  FAILS(rushmem_put(w, sym, NULL, 16, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_iput(w, sym, mine, 0, 1, 8, 2, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "stride");
  FAILS(rushmem_iget(w, mine, sym, 1, 8, 8, 2, 0), RUSHMEM_ERR_OUT_OF_BOUNDS, "past its end");
  FAILS(rushmem_p(w, sym, 1, 5, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "1, 2, 4 or 8");
  FAILS(rushmem_g(w, sym, NULL, 8, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_int64_g(w, sym, 0, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "null");
  FAILS(rushmem_int64_g(w, sym, n, &out), RUSHMEM_ERR_BAD_PE, "PE 4");
  CHECK(out == 55);
  FAILS(rushmem_atomic(w, 99, RUSHMEM_INT64, sym, 1, 0, 0, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "99");
  FAILS(rushmem_atomic(w, RUSHMEM_ATOMIC_ADD, 9, sym, 1, 0, 0, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "9");
  FAILS(rushmem_atomic(w, RUSHMEM_ATOMIC_FETCH_ADD, RUSHMEM_INT64, sym, 1, 0, 0, NULL),
        RUSHMEM_ERR_INVALID_ARGUMENT, "fetch");
  FAILS(rushmem_int64_atomic_fetch_add(w, sym, 1, 0, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "fetch");
  FAILS(rushmem_atomic(w, RUSHMEM_ATOMIC_ADD, RUSHMEM_INT64, (char *)sym + 4, 1, 0, 0, NULL),
        RUSHMEM_ERR_INVALID_ARGUMENT, "aligned");
  FAILS(rushmem_put_signal(w, sym, mine, 8, (uint64_t *)sym + 1, 1, 7, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "7");
  FAILS(rushmem_put_signal(w, sym, mine, 8, (uint64_t *)freed, 1, RUSHMEM_SIGNAL_SET, 0), RUSHMEM_ERR_BAD_ADDRESS,
        "freed");
  FAILS(rushmem_signal_fetch(w, (uint64_t *)mine, &bits), RUSHMEM_ERR_BAD_ADDRESS, "symmetric");
  FAILS(rushmem_wait_until(w, RUSHMEM_DOUBLE, sym, RUSHMEM_CMP_EQ, 0, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "integers");
  FAILS(rushmem_wait_until(w, RUSHMEM_INT64, sym, 6, 0, 0), RUSHMEM_ERR_INVALID_ARGUMENT, "6");
  FAILS(rushmem_wait_until_any(w, RUSHMEM_INT64, sym, 9, NULL, RUSHMEM_CMP_EQ, 0, 0, &index),
        RUSHMEM_ERR_OUT_OF_BOUNDS, "past its end");
  FAILS(rushmem_test_any(w, RUSHMEM_INT64, sym, 8, NULL, RUSHMEM_CMP_EQ, 0, NULL), RUSHMEM_ERR_INVALID_ARGUMENT,
        "index");
  CHECK(index == 55 && bits == 55);
  FAILS(rushmem_wait_until(w, RUSHMEM_INT64, sym + 1, RUSHMEM_CMP_GT, 41, 20 * 1000 * 1000), RUSHMEM_ERR_TIMEOUT,
        "int64 > 41");
  FAILS(rushmem_alloc(w, 100 + (size_t)me, 0, (void **)&freed), RUSHMEM_ERR_MISMATCH, "PE");
  FAILS(rushmem_alloc(w, SIZE_MAX / 2, 0, (void **)&freed), RUSHMEM_ERR_HEAP_EXHAUSTED, "heap");
  FAILS(rushmem_alloc(w, 64, 48, (void **)&freed), RUSHMEM_ERR_INVALID_ARGUMENT, "48");
  FAILS(rushmem_free(w, mine), RUSHMEM_ERR_BAD_ADDRESS, "alloc");
  FAILS(me ? rushmem_sync_all(w) : rushmem_barrier_all(w), RUSHMEM_ERR_MISMATCH, "PE 0");

  FAILS(rushmem_module_load(w, "x", SIZE_MAX, NULL, NULL, 0, (rushmem_module_t **)&out), RUSHMEM_ERR_INVALID_ARGUMENT,
        "parts");

  OK(rushmem_barrier_all(w));
  /* The stride of a single element is not used. */
  OK(rushmem_iget(w, mine, sym, PTRDIFF_MAX, PTRDIFF_MAX, 8, 1, 0));
  int64_t seen[8];
  look(w, seen, sym, sizeof seen);
  for (int i = 0; i < 8; i++) CHECK(seen[i] == 0);
  OK(rushmem_barrier_all(w)); /* everybody has looked before anybody writes */
  OK(rushmem_int64_p(w, sym, me + 1, (me + 1) % n));
  OK(rushmem_barrier_all(w));
  look(w, seen, sym, sizeof seen[0]);
  CHECK(seen[0] == (me + n - 1) % n + 1);
  OK(rushmem_free(w, sym));
}

int main(void)
{
  without_a_world();
  rushmem_world_t *w = start();
  CHECK(n == 4);
  garbage(w);
  with_a_world(w);
  return finish(w);
}
