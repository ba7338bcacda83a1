/* The environment: NVSHMEM_*. What means something here is honoured, the rest is named in one line. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "library.h"

extern char **environ;

uint64_t setting_heap(struct call call)
{
  const char *value = getenv("NVSHMEM_SYMMETRIC_SIZE");
  if (!value) return 0;
  char *end;
  double number = strtod(value, &end);
  const bool is_number = end != value;
  const char *units = "kmgt", *unit = *end ? strchr(units, tolower((unsigned char) *end)) : NULL;
  if (is_number && unit) {
    number *= (double) (1ull << 10 * (unit - units + 1));
    end++;
    if (*end == 'b' || *end == 'B') end++;
  }
  if (!is_number || *end || !(number >= 1) || number > (double) (1ull << 46))
    refuse(call, "NVSHMEM_SYMMETRIC_SIZE=%s is no size: a number, and K, M, G or T behind it", value);
  return (uint64_t) number;
}

void settings_before(void)
{
  /* A list of prefixes, or behind a ^ of what is not to be taken: the runtime's is the same. A = in front
   * asks for whole names, which are prefixes of themselves. */
  const char *interfaces = getenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"), *debug = getenv("NVSHMEM_DEBUG");
  if (interfaces) setenv("RUSHMEM_UID_IFNAME", interfaces + (*interfaces == '='), 0);
  if (!debug || getenv("RUSHMEM_LOG")) return;
  const bool more = !strcmp(debug, "TRACE") || !strcmp(debug, "trace");
  const bool none = !strcmp(debug, "NONE") || !strcmp(debug, "none") || !strcmp(debug, "VERSION");
  if (!none) setenv("RUSHMEM_LOG", more ? "debug" : "info", 0);
}

static bool is_set(const char *name)
{
  const char *value = getenv(name);
  return value && *value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

/* Settings that this library or libnvshmem.a reads, or that say what is so anyway. */
static bool means_something(const char *name)
{
  static const char *const known[] = {"SYMMETRIC_SIZE", "DEBUG", "INFO", "VERSION", "BOOTSTRAP_UID_SOCK_IFNAME",
                                      "HOME", "PREFIX", "MAX_TEAMS"};
  static const char *const ways[] = {"PMI", "MPI", "SHMEM", "UID"};
  /* Other ways to meet, as by a plug-in, are reported as not supported. */
  if (!strncmp(name, "BOOTSTRAP=", 10)) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
      if (!strcasecmp(name + 10, ways[i])) return true;
    return false;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strncmp(name, known[i], strlen(known[i])) && name[strlen(known[i])] == '=') return true;
  return false;
}

void settings_print(void)
{
  char others[1024] = "";
  for (char **entry = environ; *entry; entry++) {
    if (strncmp(*entry, "NVSHMEM_", 8) || means_something(*entry + 8)) continue;
    const size_t used = strlen(others), length = strcspn(*entry, "=");
    if (used + length + 3 < sizeof others)
      snprintf(others + used, sizeof others - used, "%s%.*s", used ? ", " : "", (int) length, *entry);
  }
  const char *teams = getenv("NVSHMEM_MAX_TEAMS");
  if (teams && strtol(teams, NULL, 0) > TEAMS)
    fprintf(stderr,
            "rushmem: NVSHMEM_MAX_TEAMS=%s: a PE is in %d teams at most here, the %d predefined ones included; a split "
            "beyond them returns an error\n",
            teams, (int) TEAMS, (int) NVSHMEM_TEAMS_MIN);
  if (others[0]) fprintf(stderr, "rushmem: not needed here, and not read: %s\n", others);
  if (is_set("NVSHMEM_VERSION"))
    printf("rushmem %s: NVSHMEM's interface %d.%d.%d\n", rushmem_version(), NVSHMEM_VENDOR_MAJOR_VERSION,
           NVSHMEM_VENDOR_MINOR_VERSION, NVSHMEM_VENDOR_PATCH_VERSION);
  if (is_set("NVSHMEM_INFO"))
    printf("NVSHMEM's interface on rushmem %s. Environment:\n"
           "  NVSHMEM_SYMMETRIC_SIZE  limit of each PE's symmetric heap, which grows on demand: 512M, 1.5G\n"
           "  NVSHMEM_BOOTSTRAP       how the PEs meet: PMI (the launcher's environment), MPI, SHMEM or UID; they do so\n"
           "                          by what the program and its launcher give\n"
           "  NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME\n"
           "                          the network interface over which they meet\n"
           "  NVSHMEM_MAX_TEAMS       there is room for 64 in any case, and for no more\n"
           "  NVSHMEM_DEBUG           if set: log lines (INFO, TRACE)\n"
           "  NVSHMEM_VERSION         if set: print the version at the start\n"
           "  NVSHMEM_INFO            if set: print this\n"
           "Settings of the runtime begin with RUSHMEM_: man 7 rushmem.\n",
           rushmem_version());
  fflush(stdout);
}
