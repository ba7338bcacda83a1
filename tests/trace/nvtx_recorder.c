/* A profiler as NVTX knows it: it writes what it gets to the file that RUSHMEM_TEST_NVTX names, with the
 * process's number behind it. A line is `thread domain push name category payload` or `thread domain pop`.
 * Written from the description of NVTX 3's tables, apart from the runtime's own declarations. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*function)(void);
struct callbacks {
  size_t size;
  int (*table)(int module, function ***table, unsigned *size);
};
struct event {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  union { uint64_t u; double d; } payload;
  int32_t message_type;
  union { const char *ascii; void *handle; } message;
};

static FILE *out;
static char domains[8][32], categories[64][32];

static int push(void *domain, const struct event *event) {
  const char *category = event->category < 64 ? categories[event->category] : "too many";
  if (event->version != 3 || event->size != sizeof *event || event->message_type != 1) return -1;
  fprintf(out, "%ld|%s|push|%s|%s|", syscall(SYS_gettid), (char *)domain, event->message.ascii, category);
  if (event->payload_type == 1) fprintf(out, "%llu", (unsigned long long)event->payload.u);
  fputs("\n", out);
  return 0;
}

static int pop(void *domain) {
  fprintf(out, "%ld|%s|pop|||\n", syscall(SYS_gettid), (char *)domain);
  return 0;
}

static void name_category(void *domain, uint32_t category, const char *name) {
  if (domain == domains[0] && category < 64) snprintf(categories[category], 32, "%s", name);
}

static void *create_domain(const char *name) {
  snprintf(domains[0], 32, "%s", name);
  return domains[0];
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const struct callbacks *callbacks = export_table(1);
  const char *given = getenv("RUSHMEM_TEST_NVTX");
  function **table = NULL;
  unsigned size = 0;
  char path[4096];
  if (given == NULL || callbacks == NULL || callbacks->size < sizeof *callbacks) return 0;
  if (export_table(2) != NULL || callbacks->table(99, &table, &size) != 0) return 0;
  if (callbacks->table(5, &table, &size) != 1 || size < 16) return 0;
  snprintf(path, sizeof path, "%s.%d", given, getpid());
  out = fopen(path, "w");
  if (out == NULL) return 0;
  setvbuf(out, NULL, _IOLBF, 1 << 16);
  *table[4] = (function)push;
  *table[5] = (function)pop;
  *table[8] = (function)name_category;
  *table[12] = (function)create_domain;
  return 1;
}
