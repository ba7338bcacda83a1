/* Teams, addresses, ordering, hints. */
#include "check.h"

KERNEL(team_numbers) {
  NEIGHBOURS;
  UNUSED;
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == me && nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == n_pes);
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_INVALID) == -1 && nvshmem_team_n_pes(63) == -1);
  /* Every other PE. */
  CHECK(nvshmem_team_my_pe(team) == me / 2 && nvshmem_team_n_pes(team) == (n_pes + 1 - me % 2) / 2);
  CHECK(nvshmem_team_translate_pe(team, me / 2, NVSHMEM_TEAM_WORLD) == me);
  CHECK(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, me, team) == me / 2);
  if (n_pes > 1) CHECK(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, me ^ 1, team) == -1 || (me ^ 1) >= n_pes);
  CHECK(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, n_pes, team) == -1);
  CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) >= 1 && nvshmem_team_my_pe(NVSHMEM_TEAM_SHARED) >= 0);
  CHECK(nvshmem_team_translate_pe(NVSHMEMX_TEAM_NODE, nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE), NVSHMEM_TEAM_WORLD) == me);
  CHECK(nvshmem_team_n_pes(NVSHMEMX_TEAM_SAME_MYPE_NODE) >= 1);
  int major = 0, minor = 0, patch = 0;
  nvshmem_info_get_version(&major, &minor);
  CHECK(major == NVSHMEM_MAJOR_VERSION && minor == NVSHMEM_MINOR_VERSION);
  nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  CHECK(major == 3);
  char name[NVSHMEM_MAX_NAME_LEN];
  nvshmem_info_get_name(name);
  CHECK(name[0] == 'r' && name[7] == 0);
}

KERNEL(team_addresses) {
  NEIGHBOURS;
  UNUSED;
  CHECK(nvshmem_ptr(a, me) == a && nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, a) == nullptr);
  int *there = static_cast<int *>(nvshmem_ptr(a, right));
  if (there && threadIdx.x == 0) *there = me + 5;
  nvshmem_fence();
  nvshmemx_barrier_all_block();
  if (there || n_pes == 1) CHECK(*reinterpret_cast<int *>(a) == left + 5 || !nvshmem_ptr(a, left));
}

/* What a member puts before it is there after it. */
#define MEETS(IN_IT, CALL)                                                       \
  {                                                                              \
    ++round;                                                                     \
    if (threadIdx.x == 0) nvshmem_int_p(word, me * 100 + round, next);           \
    __syncthreads();                                                             \
    if (IN_IT) CALL;                                                             \
    __syncthreads();                                                             \
    CHECK(*const_cast<volatile int *>(word) == before * 100 + round);            \
    nvshmemx_barrier_all_block();                                                \
  }
KERNEL(team_barriers) {
  NEIGHBOURS;
  UNUSED;
  int *word = reinterpret_cast<int *>(a), round = 0;
  int next = right, before = left;
  MEETS(IN, nvshmem_barrier_all())
  MEETS(IN_warp, nvshmemx_barrier_all_warp())
  MEETS(true, nvshmemx_barrier_all_block())
  MEETS(IN, (nvshmem_quiet(), nvshmem_sync_all()))
  MEETS(IN_warp, (nvshmem_quiet(), nvshmemx_sync_all_warp()))
  MEETS(true, (nvshmem_quiet(), nvshmemx_sync_all_block()))
  const nvshmem_team_t teams[] = {NVSHMEM_TEAM_WORLD, team};
  for (int i = 0; i < 2; ++i) {
    const nvshmem_team_t t = teams[i];
    const int mine = nvshmem_team_my_pe(t), size = nvshmem_team_n_pes(t);
    next = nvshmem_team_translate_pe(t, (mine + 1) % size, NVSHMEM_TEAM_WORLD);
    before = nvshmem_team_translate_pe(t, (mine + size - 1) % size, NVSHMEM_TEAM_WORLD);
    MEETS(IN, nvshmem_barrier(t))
    MEETS(IN_warp, nvshmemx_barrier_warp(t))
    MEETS(true, nvshmemx_barrier_block(t))
    MEETS(true, nvshmemx_barrier_warpgroup(t))
    MEETS(IN, (nvshmem_quiet(), nvshmem_team_sync(t)))
    MEETS(IN_warp, (nvshmem_quiet(), nvshmemx_team_sync_warp(t)))
    MEETS(true, (nvshmem_quiet(), nvshmemx_team_sync_block(t)))
  }
}

KERNEL(team_signals) {
  NEIGHBOURS;
  UNUSED;
  if (threadIdx.x == 0) {
    nvshmemx_signal_op(sig, 4, NVSHMEM_SIGNAL_SET, right);
    nvshmem_signal_wait_until(sig, NVSHMEM_CMP_EQ, 4);
  }
  nvshmemx_barrier_all_block();
  if (threadIdx.x == 0) {
    nvshmemx_qp_signal_op(sig, 3, NVSHMEM_SIGNAL_ADD, right, NVSHMEMX_QP_DEFAULT);
    CHECK(nvshmem_signal_wait_until(sig, NVSHMEM_CMP_GT, 4) == 7);
    nvshmemx_uint64_signal(sig + 1, salt + 1, right);
    CHECK(nvshmem_signal_wait_until(sig + 1, NVSHMEM_CMP_NE, 0) == salt + 1);
    nvshmemx_signal_counted_reset(sig + 1);
    CHECK(nvshmem_signal_fetch(sig + 1) == 0);
  }
  nvshmemx_flush_block();
  nvshmemx_flush_warp();
  nvshmemx_flush();
  nvshmemx_qp_fence(right, nullptr, 0);
  nvshmemx_region_handle_t region = 1;
  nvshmemx_region_attrs_t attrs = NVSHMEMX_REGION_ATTRS_INITIALIZER;
  CHECK(nvshmemx_region_start(&region, &attrs) == 0 && nvshmemx_region_stop(region) == 0);
  CHECK(nvshmemx_region_start_block(&region, &attrs) == 0 && nvshmemx_region_stop_block(region) == 0);
  CHECK(nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED) == 0);
  nvshmemx_give_smem(nullptr, 0);
  nvshmemx_release_smem();
  nvshmemx_barrier_all_block();
}

KERNEL(team_maxloc) {
  NEIGHBOURS;
  UNUSED;
  double2 *from = reinterpret_cast<double2 *>(a), *to = reinterpret_cast<double2 *>(b);
  for (unsigned i = threadIdx.x; i < 70; i += blockDim.x) {
    from[i].x = (me * 7 + i) % 5;
    from[i].y = me;
  }
  nvshmemx_double2_maxloc_reduce_block(NVSHMEM_TEAM_WORLD, to, from, 70);
  for (unsigned i = threadIdx.x; i < 70; i += blockDim.x) {
    double best = -1, place = -1;
    for (int pe = 0; pe < n_pes; ++pe) {
      if ((pe * 7 + i) % 5 > best) best = (pe * 7 + i) % 5, place = pe;
    }
    CHECK(to[i].x == best && to[i].y == place);
  }
  nvshmemx_barrier_all_block();
}

#define KERNELS_OF_TEAMS(X) X(team_numbers) X(team_addresses) X(team_barriers) X(team_signals) X(team_maxloc)
