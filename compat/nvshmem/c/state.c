/* The job that this process is in, as all of the library sees it. `job.c`, which begins and ends it, stands
 * above what looks at it here. */
#include "library.h"

struct job job;
