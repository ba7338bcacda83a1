/* Collective launches where there is no CUDA runtime. */
#define NO_RUNTIME
#include "launches.c"
