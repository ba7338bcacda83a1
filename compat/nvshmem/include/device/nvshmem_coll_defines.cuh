/* A name that programs include. */
#include <nvshmem.h>
