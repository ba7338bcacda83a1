/* A name that programs include. */
#include <nvshmem_host.h>
