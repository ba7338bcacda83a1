/* A name that programs include. */
#include <rushmem_nvshmem/types.h>
