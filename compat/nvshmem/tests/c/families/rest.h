/* Teams, and what is left of the interface. */
#ifndef NVSHMEM_TESTS_FAMILIES_REST_H
#define NVSHMEM_TESTS_FAMILIES_REST_H

#include <sys/mman.h>

#include "host.h"

static void teams(void)
{
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == me && nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == n);
  CHECK(nvshmem_team_my_pe(NVSHMEM_TEAM_INVALID) == -1);
  nvshmem_team_config_t config = NVSHMEM_TEAM_CONFIG_INITIALIZER, said;
  config.num_contexts = 3;
  nvshmem_team_t team, row, column;
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, n - 1, -1, n, &config, NVSHMEM_TEAM_NUM_CONTEXTS, &team) == 0);
  CHECK(nvshmem_team_my_pe(team) == n - 1 - me && nvshmem_team_translate_pe(team, 0, NVSHMEM_TEAM_WORLD) == n - 1);
  nvshmem_team_get_config(team, &said);
  CHECK(said.num_contexts == 3);
  CHECK(nvshmem_barrier(team) == 0 && nvshmem_team_sync(team) == 0);
  CHECK(nvshmemx_barrier_on_stream(team, stream) == 0 && nvshmemx_team_sync_on_stream(team, stream) == 0);
  meet();
  nvshmem_team_destroy(team);
  CHECK(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0);
  CHECK(nvshmem_team_my_pe(row) == me % 2 && nvshmem_team_my_pe(column) == me / 2);
  nvshmem_team_destroy(row);
  nvshmem_team_destroy(column);
  CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &team) != 0 && team == NVSHMEM_TEAM_INVALID);
  nvshmemx_team_uniqueid_t id = 0;
  if (me == 0) CHECK(nvshmemx_team_get_uniqueid(&id) == 0 && id != 0);
  nvshmem_uint64_broadcast(NVSHMEM_TEAM_WORLD, &id, &id, 1, 0);
  config.uniqueid = id;
  CHECK(nvshmemx_team_init(&team, &config, NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID, n, right) == 0);
  CHECK(nvshmem_team_my_pe(team) == right && nvshmem_team_n_pes(team) == n);
  nvshmem_team_destroy(team);
  say("teams", "again and again");
  /* Numbers are used again. */
  nvshmem_team_t first = NVSHMEM_TEAM_INVALID;
  for (int i = 0; i < 100; i++) {
    CHECK(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0 && team >= NVSHMEM_TEAMS_MIN);
    if (i == 0) first = team;
    CHECK(team == first);
    nvshmem_team_destroy(team);
  }
}

/* Memory of the program's own becomes symmetric; on heaps in GPU memory it is CUDA's, and kernels/modules.cu
 * registers that. */
static void registration(void)
{
  enum { BYTES = 1 << 16 };
  rushmem_view_t view;
  CHECK(rushmem_view(world(), &view) == RUSHMEM_OK);
  if (view.device != RUSHMEM_DEVICE_CPU) return;
  for (int turn = 0; turn < 2; turn++) {
    int *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    own[5] = me + 70;
    int *alias = turn ? nvshmemx_buffer_register_symmetric_at_preferred_address(own, BYTES, own, 0)
                      : nvshmemx_buffer_register_symmetric(own, BYTES, 0);
    CHECK(alias && nvshmem_int_g(alias + 5, right) == right + 70);
    nvshmem_int_p(alias + 6, me + 7, right);
    nvshmem_barrier_all();
    CHECK(own[6] == left + 7 && alias[6] == left + 7);
    nvshmem_barrier_all();
    CHECK(nvshmemx_buffer_unregister_symmetric(alias, BYTES) == 0);
    CHECK(own[6] == left + 7 && munmap(own, BYTES) == 0);
  }
  CHECK(nvshmemx_buffer_register_symmetric(NULL, BYTES, 1) == NULL);
}

static void rest(char *a)
{
  int major, minor, patch;
  char name[NVSHMEM_MAX_NAME_LEN];
  nvshmem_info_get_version(&major, &minor);
  CHECK(major == NVSHMEM_MAJOR_VERSION && minor == NVSHMEM_MINOR_VERSION);
  nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  CHECK(major == 3);
  nvshmem_info_get_name(name);
  CHECK(!strcmp(name, NVSHMEM_VENDOR_STRING));
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED);
  nvshmem_query_thread(&major);
  CHECK(major == NVSHMEM_THREAD_MULTIPLE);
  CHECK(nvshmem_ptr(a, me) == a && nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, a) == NULL);
  CHECK(nvshmem_ptr(&major, me) == NULL && nvshmem_malloc(0) == NULL);
  char *aligned = nvshmem_align(4096, 100);
  CHECK(aligned && (uintptr_t) aligned % 4096 == 0);
  nvshmem_free(aligned);
  char local[64] = "";
  CHECK(nvshmemx_buffer_register(local, sizeof local) == 0 && nvshmemx_buffer_unregister(local) == 0);
  nvshmemx_buffer_unregister_all();
  CHECK(nvshmemx_buffer_register(NULL, 0) != 0);
  nvshmemx_qp_handle_t *queues = NULL;
  CHECK(nvshmemx_qp_create(2, &queues) == 0 && queues);
  free(queues);
  nvshmemx_region_handle_t region;
  CHECK(nvshmemx_region_start(&region, NULL) == 0 && nvshmemx_region_stop(region) == 0);
  int active = 1;
  CHECK(nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_BATCH_RMA, &active) == 0 && active == 0);
  CHECK(nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_NONE, NULL) != 0);
  CHECK(nvshmemx_cumodule_init(NULL) != 0 && nvshmemx_cumodule_finalize(NULL) != 0);
  CHECK(nvshmemx_culibrary_init(NULL) != 0 && nvshmemx_culibrary_finalize(NULL) != 0);
  /* The host's library alone: counted with the others. */
  CHECK(nvshmemx_hostlib_init_attr(0, NULL) == 0);
  nvshmemx_hostlib_finalize();
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED && nvshmem_my_pe() == me);
  CHECK(!strcmp(nvshmemx_status_string(NVSHMEMX_SUCCESS), "success"));
  nvshmem_fence();
  nvshmemx_flush();
  nvshmemx_flush_on_stream(stream);
  nvshmemx_sync_all_on_stream(stream);
  nvshmemx_barrier_all_on_stream(stream);
  meet();
  nvshmem_sync_all();
  registration();
}

#endif
