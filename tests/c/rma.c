/* Memory and remote memory access from C: heap, put, get, p, g, strides, nbi, ptr, peers, typed forms. */
#include "check.h"

enum { COUNT = 1000 };

static void untyped(rushmem_world_t *w)
{
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  unsigned char *heap = NULL;
  OK(rushmem_alloc(w, COUNT, 0, (void **)&heap));
  CHECK(heap && (uintptr_t)heap % 64 == 0);
  unsigned char local[COUNT], back[COUNT];
  look(w, back, heap, COUNT);
  for (int i = 0; i < COUNT; i++) CHECK(back[i] == 0);
  OK(rushmem_barrier_all(w)); /* everybody has looked before anybody writes */

  for (int i = 0; i < COUNT; i++) local[i] = (unsigned char)(i * 7 + me);
  OK(rushmem_put(w, heap + 1, local + 1, COUNT - 1, right));
  OK(rushmem_barrier_all(w));
  look(w, back, heap, COUNT);
  CHECK(back[0] == 0);
  for (int i = 1; i < COUNT; i++) CHECK(back[i] == (unsigned char)(i * 7 + left));
  OK(rushmem_get(w, back, heap, COUNT, right));
  CHECK(back[0] == 0 && !memcmp(back + 1, local + 1, COUNT - 1));
  OK(rushmem_barrier_all(w));

  OK(rushmem_put_nbi(w, heap, local, 100, left));
  OK(rushmem_quiet(w));
  memset(back, 0, sizeof back);
  OK(rushmem_get_nbi(w, back, heap, 100, left));
  OK(rushmem_quiet(w));
  CHECK(!memcmp(back, local, 100));
  OK(rushmem_put(w, NULL, NULL, 0, right)); /* nothing may go anywhere */

  void *peer = NULL;
  OK(rushmem_ptr(w, heap, me, &peer));
  CHECK(peer == heap);
  OK(rushmem_ptr(w, heap + 5, right, &peer));
  rushmem_view_t view;
  OK(rushmem_view(w, &view));
  CHECK(view.my_pe == me && view.n_pes == n && *view.broken == 0);
  if (right >= view.near_first && right < view.near_first + view.near_count)
    CHECK((uintptr_t)peer == (uintptr_t)(heap + 5) + (uintptr_t)(right - me) * view.stride);
  rushmem_near_t near;
  OK(rushmem_near(w, &near));
  int found = 0;
  for (int pe = 0; pe < n; ++pe) {
    const uint32_t times = ((uint32_t)pe - (uint32_t)near.first) * near.inverse;
    const uint32_t i = times >> near.shift | times << (-near.shift & 31);
    const uint64_t distance = near.shape == RUSHMEM_NEAR_TABLE ? near.distances[pe]
                              : i < (uint32_t)near.count      ? (uint64_t)(int64_t)(pe - me) * near.apart
                                                              : RUSHMEM_NEAR_NOT;
    void *there = NULL;
    OK(rushmem_ptr(w, heap, pe, &there));
    if (view.near_count > 0) CHECK((there != NULL) == (distance != RUSHMEM_NEAR_NOT));
    if (there != NULL) CHECK((uintptr_t)there == (uintptr_t)heap + distance);
    if (distance != RUSHMEM_NEAR_NOT && near.shape != RUSHMEM_NEAR_TABLE) CHECK(pe == near.first + (int)i * near.step);
    found += distance != RUSHMEM_NEAR_NOT;
  }
  CHECK(found == near.count);
  FAILS(rushmem_near(w, NULL), RUSHMEM_ERR_INVALID_ARGUMENT, "out");

  rushmem_peer_t about;
  OK(rushmem_peer(w, right, &about));
  CHECK(about.pe == right && about.pid > 0 && *about.host && *about.transport && *about.reason);
  CHECK(!strcmp(about.transport, "direct") == (peer != NULL));

  rushmem_heap_info_t info;
  OK(rushmem_heap_info(w, &info));
  CHECK(info.used >= COUNT && info.committed >= info.used && info.max >= info.committed && info.allocations == 1);
  OK(rushmem_free(w, heap));
  OK(rushmem_free(w, NULL));
  void *none = heap;
  OK(rushmem_alloc(w, 0, 0, &none));
  CHECK(none == NULL);
}

/* One type: whole arrays, strides, single values, an array with its signal. */
#define RMA_OF(NAME, T)                                                                                       \
  static void rma_of_##NAME(rushmem_world_t *w, void *heap, uint64_t *sig, uint64_t turn)                     \
  {                                                                                                           \
    const int right = (me + 1) % n, left = (me + n - 1) % n;                                                  \
    T *sym = (T *)heap, local[12], back[12], one;                                                             \
    for (int i = 0; i < 12; i++) local[i] = (T)(10 * me + i + 1), back[i] = (T)0;                             \
    OK(rushmem_##NAME##_put(w, sym, local, 12, right));                                                       \
    OK(rushmem_barrier_all(w));                                                                               \
    look(w, back, sym, sizeof back);                                                                          \
    for (int i = 0; i < 12; i++) CHECK(back[i] == (T)(10 * left + i + 1));                                    \
    OK(rushmem_##NAME##_get(w, back, sym, 12, right));                                                        \
    CHECK(!memcmp(back, local, sizeof local));                                                                \
    OK(rushmem_##NAME##_put_nbi(w, sym, local, 1, right));                                                    \
    OK(rushmem_##NAME##_get_nbi(w, back, sym, 12, right));                                                    \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_p(w, &sym[3], (T)-1, right));                                                         \
    OK(rushmem_##NAME##_g(w, &sym[3], right, &one));                                                          \
    CHECK(one == (T)-1);                                                                                      \
    OK(rushmem_barrier_all(w));                                                                               \
    look(w, back, sym, sizeof back);                                                                          \
    CHECK(back[3] == (T)-1 && back[2] == (T)(10 * left + 3) && back[4] == (T)(10 * left + 5));                \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_iput(w, sym, local, 3, 2, 4, right));                                                 \
    OK(rushmem_##NAME##_iget(w, back, sym, 1, 3, 4, right));                                                  \
    for (int i = 0; i < 4; i++) CHECK(back[i] == local[2 * i]);                                               \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_put_signal(w, sym, local, 11, sig, turn, RUSHMEM_SIGNAL_SET, right));                 \
    OK(rushmem_signal_wait_until(w, sig, RUSHMEM_CMP_EQ, turn, NULL));                                        \
    look(w, &one, sym + 10, sizeof one);                                                                      \
    CHECK(one == (T)(10 * left + 11));                                                                        \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_##NAME##_iput_signal(w, sym, local, 3, 2, 4, sig, 4, RUSHMEM_SIGNAL_ADD, right));              \
    OK(rushmem_signal_wait_until(w, sig, RUSHMEM_CMP_EQ, turn + 4, NULL));                                    \
    look(w, back, sym, sizeof back);                                                                          \
    for (int i = 0; i < 4; i++) CHECK(back[3 * i] == (T)(10 * left + 2 * i + 1));                             \
    OK(rushmem_barrier_all(w));                                                                               \
    OK(rushmem_iput_signal_on_stream(w, sym, local, 1, 3, sizeof(T), 4, sig, 9, RUSHMEM_SIGNAL_ADD, right,    \
                                     NULL));                                                                  \
    OK(rushmem_signal_wait_until(w, sig, RUSHMEM_CMP_EQ, turn + 13, NULL));                                   \
    OK(rushmem_synchronize(w));                                                                               \
    look(w, back, sym, sizeof back);                                                                          \
    for (int i = 0; i < 4; i++) CHECK(back[i] == (T)(10 * left + 3 * i + 1));                                 \
    FAILS(rushmem_##NAME##_put(w, sym, local, SIZE_MAX, right), RUSHMEM_ERR_OUT_OF_BOUNDS, "past");           \
    OK(rushmem_barrier_all(w));                                                                               \
  }
RUSHMEM_RMA_TYPES(RMA_OF)

int main(void)
{
  rushmem_world_t *w = start();
  untyped(w);
  void *heap;
  uint64_t *sig, turn = 0;
  OK(rushmem_alloc(w, 16 * sizeof(uint64_t), 0, &heap));
  OK(rushmem_alloc(w, sizeof *sig, 0, (void **)&sig));
#define RUN(NAME, T) rma_of_##NAME(w, heap, sig, ++turn);
  RUSHMEM_RMA_TYPES(RUN)
  OK(rushmem_free(w, sig));
  OK(rushmem_free(w, heap));
  return finish(w);
}
