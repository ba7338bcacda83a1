/* The main program as the loader mapped it: its writable segments, from the program headers, without what the
 * loader has made read-only again (RELRO). */
#include <link.h>
#include <unistd.h>

#include "library.h"

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

struct program program_of_process(void)
{
  struct program program = {.n = 0};
  dl_iterate_phdr(look, &program);
  return program;
}

const char *program_why(const void *address)
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
