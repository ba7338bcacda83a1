/* What the kernels of collectives share: the team, its members, and calls by the threads of a scope. */
#ifndef NVSHMEM_TESTS_MEMBERS_H
#define NVSHMEM_TESTS_MEMBERS_H

#include "check.h"

#define OF_TEAM(t)                                                               \
  const nvshmem_team_t t_ = t;                                                   \
  const int mine = nvshmem_team_my_pe(t_), size = nvshmem_team_n_pes(t_);        \
  (void) mine
#define WORLD_PE(i) nvshmem_team_translate_pe(t_, i, NVSHMEM_TEAM_WORLD)
#define CALLED(S, CALL)                                                          \
  if (IN##S) CHECK((CALL) == 0);                                                 \
  __syncthreads()

#endif
