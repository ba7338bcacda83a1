/* The device library, librushmem_device.a: what the headers declare in relocatable code and one program may
 * hold only once, the device state, and what is too rarely run to be worth inlining, the cold path of waits.
 *
 * The text is the headers' own, so that the library and a program that was compiled without it do the same;
 * RUSHMEM_DEVICE_LIBRARY turns their declarations into definitions. device/library builds it. */
#if !defined(__CUDACC_RDC__)
#error "the device library is relocatable code: device/library builds it"
#endif

#define RUSHMEM_DEVICE_LIBRARY 1

#include <rushmem/rushmem.cuh>
