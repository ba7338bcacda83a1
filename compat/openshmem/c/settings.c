/* The environment that the specification names: SHMEM_*, and the deprecated SMA_*. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

const char *setting(const char *name)
{
  char full[64];
  snprintf(full, sizeof full, "SHMEM_%s", name);
  const char *value = getenv(full);
  if (value) return value;
  snprintf(full, sizeof full, "SMA_%s", name);
  return getenv(full);
}

uint64_t setting_heap(struct call call)
{
  const char *value = setting("SYMMETRIC_SIZE");
  if (!value) return 0;
  char *end;
  double number = strtod(value, &end);
  const char *units = "kmgt";
  double scale = 1;
  if (end != value && *end) {
    const char *unit = strchr(units, *end | 0x20);
    if (unit) {
      scale = (double) (1ull << 10 * (unit - units + 1));
      end++;
    }
  }
  double bytes = ceil(number * scale);
  if (end == value || *end || !(bytes >= 0) || bytes > (double) (1ull << 46))
    refuse(call, "SHMEM_SYMMETRIC_SIZE=%s is no size: a number, and k, m, g or t behind it", value);
  /* 0 is a size, too, and not the same as none. */
  return bytes < 1 ? 1 : (uint64_t) bytes;
}

void settings_print(void)
{
  if (setting("VERSION"))
    printf("rushmem %s: OpenSHMEM %d.%d\n", rushmem_version(), SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION);
  if (setting("INFO"))
    printf("OpenSHMEM on rushmem %s. Environment (SMA_ in place of SHMEM_ is deprecated):\n"
           "  SHMEM_VERSION         if set: print the version at the start\n"
           "  SHMEM_INFO            if set: print this\n"
           "  SHMEM_SYMMETRIC_SIZE  limit of each PE's symmetric heap, which grows on demand: 512m, 1.5g\n"
           "  SHMEM_DEBUG           if set: trace each call, and check more closely\n"
           "Settings of the runtime begin with RUSHMEM_: man 7 rushmem.\n",
           rushmem_version());
  fflush(stdout);
}
