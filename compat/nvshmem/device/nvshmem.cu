/* libnvshmem_device.a: what the headers declare in relocatable code and one program may hold only once, and
 * the way by which libnvshmem_host fills the device state in (rushmem_nvshmem/program.h). It holds rushmem's
 * own device library, so that a program links one of the two. device/library builds it. */
#if !defined(__CUDACC_RDC__)
#error "the device library is relocatable code: device/library builds it"
#endif

#define RUSHMEM_DEVICE_LIBRARY 1

#include <nvshmem.h>
