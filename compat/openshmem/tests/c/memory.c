/* The symmetric heap against a model: random mallocs, callocs, aligned ones, reallocs and frees, alike on all
 * PEs, with blocks that are never one over the other, keep what they hold, and lie alike on all PEs; then
 * sizes around each boundary, and a heap that is full. */
#include "check.h"

enum { MOST = 60, STEPS = 400 };
struct block {
  unsigned char *at;
  size_t bytes;
  int salt;
};
static struct block blocks[MOST];
static int used;
static unsigned long long state;

static unsigned draw(unsigned below)
{
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned) (state >> 33) % below;
}

static unsigned char byte_of(int pe, int salt, size_t i)
{
  return (unsigned char) ((unsigned) pe * 97 + (unsigned) salt * 31 + i * 7 + (i >> 8));
}
static void fill(const struct block *b)
{
  for (size_t i = 0; i < b->bytes; i++) b->at[i] = byte_of(me, b->salt, i);
}
static void look(const struct block *b, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    CHECK(b->at[i] == byte_of(me, b->salt, i), "byte %zu of %zu at %p", i, b->bytes, (void *) b->at);
}

static size_t size(void)
{
  static const size_t some[] = {1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65536, 70001, 1 << 20, (2 << 20) + 1};
  return draw(4) ? some[draw(sizeof some / sizeof *some)] : draw(5000) + 1;
}

static void add(void *at, size_t bytes, int zeroed)
{
  CHECK(at, "no %zu bytes", bytes);
  struct block new = {at, bytes, (int) draw(250)};
  for (int i = 0; i < used; i++)
    CHECK(new.at + bytes <= blocks[i].at || blocks[i].at + blocks[i].bytes <= new.at, "%p is in block %d", at,
          i);
  for (size_t i = 0; zeroed && i < bytes; i++) CHECK(new.at[i] == 0, "byte %zu of a new block", i);
  blocks[used++] = new;
  fill(&new);
}

static void step(void)
{
  const unsigned what = used == MOST ? 5 : used == 0 ? 0 : draw(7);
  const size_t bytes = size();
  struct block *b = &blocks[used ? draw((unsigned) used) : 0];
  switch (what) {
  case 0: add(shmem_malloc(bytes), bytes, 0); break;
  case 1: {
    const size_t count = draw(30) + 1;
    add(shmem_calloc(count, bytes % 1000 + 1), count * (bytes % 1000 + 1), 1);
    break;
  }
  case 2: {
    const size_t align = (size_t) 8 << draw(19);
    void *at = shmem_align(align, bytes);
    CHECK((uintptr_t) at % align == 0, "%p is not at a multiple of %zu", at, align);
    add(at, bytes, 0);
    break;
  }
  case 3: add(shmem_malloc_with_hints(bytes, (long) draw(4)), bytes, 0); break;
  case 4: {
    const struct block old = *b;
    look(b, b->bytes);
    *b = blocks[--used];
    void *at = shmem_realloc(old.at, bytes);
    CHECK(at, "no %zu bytes", bytes);
    const struct block new = {at, bytes, old.salt};
    look(&new, bytes < old.bytes ? bytes : old.bytes);
    add(at, bytes, 0);
    break;
  }
  default:
    look(b, b->bytes);
    shmem_free(b->at);
    *b = blocks[--used];
  }
}

/* What the next PE has at this address is its part of the block. */
static void compare(void)
{
  shmem_barrier_all();
  for (int i = 0; i < used; i++) {
    const struct block *b = &blocks[i];
    const size_t at = draw((unsigned) b->bytes);
    CHECK(shmem_uchar_g(b->at + at, next) == byte_of(next, b->salt, at), "block %d, byte %zu", i, at);
  }
  shmem_barrier_all();
}

static void boundaries(void)
{
  long *block = shmem_malloc(64);
  for (int i = 0; i < 8; i++) block[i] = me + i;
  CHECK(!shmem_malloc(0) && !shmem_calloc(0, 1) && !shmem_calloc(1, 0) && !shmem_align(64, 0), "nothing");
  CHECK(!shmem_malloc(SIZE_MAX) && !shmem_malloc(SIZE_MAX - 63) && !shmem_malloc(SIZE_MAX / 2 + 1),
        "too much");
  CHECK(!shmem_malloc((size_t) 1 << 46) && !shmem_malloc_with_hints(SIZE_MAX, 0), "too much");
  CHECK(!shmem_calloc(SIZE_MAX, SIZE_MAX) && !shmem_calloc(SIZE_MAX / 2, 3), "too much");
  CHECK(!shmem_calloc(2, SIZE_MAX / 2 + 1), "too much");
  CHECK(!shmem_align(0, 8) && !shmem_align(3, 8) && !shmem_align(4, 8) && !shmem_align(48, 8),
        "no alignment");
  CHECK(!shmem_align(64, SIZE_MAX - 32) && !shmem_align((size_t) 1 << 63, 8), "too much");
  CHECK(!shmem_realloc(block, SIZE_MAX) && !shmem_realloc(block, (size_t) 1 << 46), "too much");
  for (int i = 0; i < 8; i++) CHECK(block[i] == me + i, "a block that could not grow");
  CHECK(shmem_realloc(block, 64) == block, "the same size");
  CHECK(!shmem_realloc(block, 0), "freed");
  CHECK(!shmem_realloc(NULL, 0) && !shmem_realloc(NULL, SIZE_MAX), "of none");
  long *again = shmem_realloc(NULL, 8);
  CHECK(again, "of none");
  shmem_free(again);
}

/* A heap that is full says so, on all PEs, and is all there again when it is empty. */
static void exhaust(void)
{
  enum { BLOCKS = 4096, BYTES = 256 << 10 };
  static void *all[BLOCKS];
  int before = -1;
  for (int turn = 0; turn < 3; turn++) {
    int n_blocks = 0;
    while (n_blocks < BLOCKS && (all[n_blocks] = shmem_malloc(BYTES))) n_blocks++;
    CHECK(n_blocks > 8 && n_blocks < BLOCKS, "%d blocks", n_blocks);
    CHECK(before < 0 || n_blocks == before, "%d blocks, and before that %d", n_blocks, before);
    before = n_blocks;
    CHECK(!shmem_realloc(all[0], BYTES + 1), "room in a full heap");
    for (int i = turn % 2; i < n_blocks; i += 2) shmem_free(all[i]);
    for (int i = 1 - turn % 2; i < n_blocks; i += 2) shmem_free(all[i]);
  }
}

int main(void)
{
  begin();
  state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int i = 0; i < STEPS; i++) {
    step();
    if (i % 50 == 0) compare();
  }
  compare();
  while (used > 0) shmem_free(blocks[--used].at);
  boundaries();
  if (getenv("SHMEM_SYMMETRIC_SIZE")) exhaust();
  return end();
}
