/* The program's global and static variables are symmetric: data and bss of the main executable.
 *
 * Its writable segments are known from the program headers, as the loader mapped them. What the loader has
 * made read-only again (RELRO) is left out. The runtime then makes each segment's pages shared in their
 * place, and gives them a symmetric address besides, at one offset on all PEs: so the segments may lie
 * elsewhere on each PE (PIE and ASLR), and what is in them keeps its value. Libraries' data is not
 * touched. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

enum { SEGMENTS = 16 };

struct segment {
  uintptr_t start, end;
};

struct program {
  struct segment data[SEGMENTS];
  int n;
  struct segment relro;
  uint64_t identity; /* the same for the same executable file */
};

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv. */
static void mix(uint64_t *hash, const void *bytes, size_t n)
{
  for (size_t i = 0; i < n; i++) *hash = (*hash ^ ((const uint8_t *) bytes)[i]) * 0x100000001b3ull;
}

static bool is_mapped(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    if (header->p_type == PT_LOAD && header->p_flags & PF_R && part->p_vaddr >= header->p_vaddr &&
        part->p_vaddr - header->p_vaddr + part->p_filesz <= header->p_filesz)
      return true;
  }
  return false;
}

/* Sizes and places of all segments, and the linker's build ID, which is a note. */
static uint64_t identity_of(const struct dl_phdr_info *info)
{
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    const uint64_t words[] = {header->p_type, header->p_flags, header->p_vaddr, header->p_filesz,
                              header->p_memsz};
    mix(&hash, words, sizeof words);
    if (header->p_type == PT_NOTE && is_mapped(info, header))
      mix(&hash, (const void *) (info->dlpi_addr + header->p_vaddr), header->p_filesz);
  }
  return hash;
}

static int look(struct dl_phdr_info *info, size_t size, void *argument)
{
  (void) size;
  struct program *program = argument;
  const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
  program->identity = identity_of(info);
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    if (header->p_type != PT_GNU_RELRO) continue;
    uintptr_t start = info->dlpi_addr + header->p_vaddr;
    /* As the loader does: whole pages alone. */
    program->relro = (struct segment){start, (start + header->p_memsz) / page * page};
  }
  for (int i = 0; i < info->dlpi_phnum && program->n < SEGMENTS; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    if (header->p_type != PT_LOAD || !(header->p_flags & PF_W)) continue;
    uintptr_t start = (info->dlpi_addr + header->p_vaddr) / page * page;
    uintptr_t end = (info->dlpi_addr + header->p_vaddr + header->p_memsz + page - 1) / page * page;
    const struct segment relro = program->relro;
    if (relro.start < end && start < relro.end) start = relro.end;
    if (start < end) program->data[program->n++] = (struct segment){start, end};
  }
  return 1; /* the main program comes first, and is enough */
}

static struct program program_of_process(void)
{
  struct program program = {.n = 0};
  dl_iterate_phdr(look, &program);
  return program;
}

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

const char *static_why(const void *address)
{
  const struct program program = program_of_process();
  const uintptr_t at = (uintptr_t) address;
  if (at >= program.relro.start && at < program.relro.end)
    return "it is in the part of the program's data that the loader has made read-only (RELRO), such as a "
           "constant with addresses in it";
  for (int i = 0; i < program.n; i++)
    if (at >= program.data[i].start && at < program.data[i].end)
      return "it is a variable of the program, but variables are not symmetric here: the heap is in GPU "
             "memory, or the PEs run different programs";
  return NULL;
}
