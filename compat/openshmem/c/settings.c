/* The environment that the specification names: SHMEM_*, and the deprecated SMA_*. */
#include <locale.h>
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
  /* A program may have chosen a language whose decimal point is a comma. */
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t) 0), own = uselocale(plain);
  const double number = strtod(value, &end);
  uselocale(own);
  freelocale(plain);
  const char *units = "kmgt", *unit = *end ? strchr(units, *end | 0x20) : NULL;
  /* What stands behind the suffix is ignored (chapter 8). */
  const double bytes = ceil(unit ? number * (double) (1ull << 10 * (unit - units + 1)) : number);
  if (end == value || (*end && !unit) || !(bytes >= 0) || bytes > (double) (1ull << 46))
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
