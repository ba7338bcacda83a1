/* Extensions of OpenSHMEM on rushmem: there are none. The specification (1.6, chapter 5) wants the header. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include "shmem.h"

#endif /* SHMEMX_H */
