/* The program's global and static variables are symmetric: data and bss of the main executable.
 *
 * The runtime makes the pages of each writable segment (`program.c`) shared in their place, and gives them a
 * symmetric address besides, at one offset on all PEs: so the segments may lie elsewhere on each PE (PIE and
 * ASLR), and what is in them keeps its value. Libraries' data is not touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

size_t static_bytes(void)
{
  const struct program program = program_of_process();
  size_t bytes = 0;
  for (int i = 0; i < program.n; i++) bytes += program.data[i].end - program.data[i].start;
  return bytes;
}

/* Whether all PEs run the same executable: only then do variables correspond (9.1, shmem_pe_accessible). */
static bool alike(struct call call, const struct program *program)
{
  uint64_t *all = calloc((size_t) job.n_pes, sizeof *all);
  if (!all) refuse(call, "there is no memory to compare the PEs' programs");
  check(call, rushmem_team_fcollect(job.team, all, &program->identity, sizeof *all));
  bool same = true;
  for (int pe = 0; pe < job.n_pes; pe++) same &= all[pe] == program->identity;
  free(all);
  return same;
}

void static_register(struct call call)
{
  rushmem_view_t view;
  check(call, rushmem_view(job.world, &view));
  /* With heaps in GPU memory host memory cannot be registered: docs/openshmem.md. */
  if (view.device != RUSHMEM_DEVICE_CPU) return;
  const struct program program = program_of_process();
  if (!alike(call, &program)) {
    if (job.me == 0)
      fprintf(stderr,
              "rushmem: the PEs run different programs: their variables are not symmetric\n");
    return;
  }
  for (int i = 0; i < program.n; i++) {
    const struct segment data = program.data[i];
    void *alias;
    check(call, rushmem_register(job.world, (void *) data.start, data.end - data.start, &alias));
  }
}

uint64_t static_offset(const void *address)
{
  const struct program program = program_of_process();
  uint64_t before = 1;
  for (int i = 0; i < program.n; i++) {
    const uintptr_t start = program.data[i].start, end = program.data[i].end;
    if ((uintptr_t) address >= start && (uintptr_t) address < end)
      return before + ((uintptr_t) address - start);
    before += end - start;
  }
  return 0;
}
