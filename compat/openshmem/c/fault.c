/* A call that a wild pointer ends: an address of this PE alone that is not there, or not to be written to.
 *
 * A look at every such address would cost a put more than the put. So the call itself finds out: a handler of
 * SIGSEGV and SIGBUS sees that this thread is inside a call (inline.h notes that), and ends the job with the
 * call's text. Whatever else faults is the program's, and goes to the handler that it had before shmem_init,
 * or to the system. A handler that the program installs later takes the place of this one.
 *
 * What goes to a far PE may be read or written later, by other threads and by the network. Its memory is
 * touched here before the call begins, once a page.
 *
 * In the handler nothing is called that a signal may not call (signal-safety(7)); another thread, that of
 * watch.c, lets the other PEs know. */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "inline.h"

_Thread_local const struct inside *inside_call;

/* --- the text ------------------------------------------------------------------------------------------ */

struct text {
  char bytes[2048];
  size_t used;
};

static void add(struct text *text, const char *what, size_t length)
{
  const size_t room = sizeof text->bytes - 1 - text->used;
  if (length > room) length = room;
  memcpy(text->bytes + text->used, what, length);
  text->used += length;
}

static void say(struct text *text, const char *what)
{
  add(text, what, strlen(what));
}

static void say_number(struct text *text, uintptr_t number, unsigned base)
{
  char digits[24];
  size_t at = sizeof digits;
  do {
    digits[--at] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number);
  if (base == 16) say(text, "0x");
  add(text, digits + at, sizeof digits - at);
}

/* The process's programs and libraries as they were at the start, so that the handler asks no loader. */
enum { MODULES = 256 };
static struct module {
  uintptr_t base, start, end;
  const char *name;
} modules[MODULES];
static int n_modules;

static int note_module(struct dl_phdr_info *info, size_t size, void *first)
{
  (void) size;
  if (n_modules == MODULES) return 1;
  struct module *module = &modules[n_modules];
  *module = (struct module){.base = info->dlpi_addr, .start = UINTPTR_MAX};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    if (header->p_type != PT_LOAD) continue;
    const uintptr_t start = info->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
    if (start < module->start) module->start = start;
    if (end > module->end) module->end = end;
  }
  /* The main program comes first, and has no name; a fixed address counts from its segments, not from 0. */
  module->name = strdup(*(bool *) first ? program_invocation_name : info->dlpi_name);
  *(bool *) first = false;
  if (module->name) n_modules++;
  return 0;
}

/* As fail.c says it. */
static void say_place(struct text *text, const void *from)
{
  const uintptr_t at = (uintptr_t) from - 1;
  for (int i = 0; i < n_modules; i++) {
    const struct module *module = &modules[i];
    if (at < module->start || at >= module->end) continue;
    say(text, module->name);
    say(text, " (addr2line -e ");
    say(text, module->name);
    say(text, " ");
    say_number(text, at - module->base, 16);
    say(text, ")");
    return;
  }
  say_number(text, at, 16);
}

/* Addresses that no processor of this kind maps have no address in the report of their fault. */
static bool is_canonical(uintptr_t at)
{
  return at >> 47 == 0 || at >> 47 == UINTPTR_MAX >> 47;
}

/* The argument that leads to the fault: the last one before it; -1 where there is none. */
static int argument_at(const struct inside *call, int n, bool known, uintptr_t at)
{
  const uintptr_t far_away = (uintptr_t) 1 << 40;
  int found = -1;
  for (int i = 0; i < n; i++) {
    const uintptr_t pointer = (uintptr_t) call->arguments[i];
    if (!known) {
      if (!is_canonical(pointer)) return i;
      continue;
    }
    if (pointer > at || at - pointer > far_away) continue;
    if (found < 0 || pointer > (uintptr_t) call->arguments[found]) found = i;
  }
  return found;
}

/* Argument `i` of the list "dest, source". */
static void say_name(struct text *text, const char *names, int i)
{
  while (i-- > 0) names = strchr(names, ',') + 2;
  add(text, names, strcspn(names, ","));
}

static void say_fault(struct text *text, const struct inside *call, const siginfo_t *info, const char *how)
{
  const uintptr_t at = (uintptr_t) info->si_addr;
  const bool known = info->si_code != SI_KERNEL;
  const char *names = call->function->arguments;
  int n = *names ? 1 : 0;
  for (const char *comma = names; (comma = strchr(comma, ',')); comma++) n++;
  const int i = argument_at(call, n, known, at);
  if (i < 0) {
    say(text, "a fault at ");
    if (known)
      say_number(text, at, 16);
    else
      say(text, "an address that is none");
    say(text, ", to which none of its arguments leads");
    return;
  }
  const uintptr_t pointer = (uintptr_t) call->arguments[i];
  say_name(text, names, i);
  say(text, " ");
  say_number(text, pointer, 16);
  say(text, " leads to memory that cannot be ");
  say(text, how);
  if (known && at != pointer) {
    say(text, ", at ");
    say_number(text, at, 16);
    say(text, ", ");
    say_number(text, at - pointer, 10);
    say(text, " bytes into it");
  }
}

/* --- the handler --------------------------------------------------------------------------------------- */

static struct sigaction before[NSIG];

/* What the thread was about to do with the memory, and where its stack was. */
static const char *what_was_done(const ucontext_t *context, uintptr_t *stack)
{
#if defined(__x86_64__)
  *stack = (uintptr_t) context->uc_mcontext.gregs[REG_RSP];
  /* Intel SDM 3A, 4.7, "Page-Fault Exceptions": bit 1 of the error code. */
  return context->uc_mcontext.gregs[REG_TRAPNO] != 14      ? "reached"
         : context->uc_mcontext.gregs[REG_ERR] & 1 << 1 ? "written to"
                                                           : "read";
#elif defined(__aarch64__)
  *stack = (uintptr_t) context->uc_mcontext.sp;
  return "reached";
#else
  (void) context;
  *stack = 0;
  return "reached";
#endif
}

/* The program's handler as it was, with its mask; or the system's, by which a fault happens once more. */
static void hand_on(int number, siginfo_t *info, void *context)
{
  const struct sigaction to = before[number];
  const bool takes_info = to.sa_flags & SA_SIGINFO;
  if (!takes_info && (to.sa_handler == SIG_DFL || to.sa_handler == SIG_IGN)) {
    /* Someone's kill may be ignored; a fault may not. */
    const bool fault = info->si_code > 0;
    if (!fault && to.sa_handler == SIG_IGN) return;
    signal(number, SIG_DFL);
    if (!fault) raise(number);
    return;
  }
  if (to.sa_flags & (int) SA_RESETHAND) before[number] = (struct sigaction){.sa_handler = SIG_DFL};
  sigset_t old, own;
  pthread_sigmask(SIG_BLOCK, &to.sa_mask, &old);
  sigemptyset(&own);
  sigaddset(&own, number);
  if (to.sa_flags & SA_NODEFER) pthread_sigmask(SIG_UNBLOCK, &own, NULL);
  if (takes_info)
    to.sa_sigaction(number, info, context);
  else
    to.sa_handler(number);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
  const int error = errno;
  const struct inside *call = inside_call;
  uintptr_t stack;
  const char *how = what_was_done(context, &stack);
  /* Who has left a call by a jump is above it on the stack. */
  if (!call || info->si_code <= 0 || stack > (uintptr_t) call) {
    hand_on(number, info, context);
    errno = error;
    return;
  }
  static atomic_flag taken = ATOMIC_FLAG_INIT;
  end_begins(true);
  if (atomic_flag_test_and_set(&taken)) pause();
  static struct text text;
  text.used = 0;
  say(&text, "rushmem: ");
  if (job.world) {
    say(&text, "PE ");
    say_number(&text, (uintptr_t) job.me, 10);
    say(&text, ": ");
  }
  say(&text, call->function->name);
  say(&text, ": ");
  say_fault(&text, call, info, how);
  say(&text, "; called from ");
  say_place(&text, call->from);
  say(&text, "\n");
  const ssize_t written = write(STDERR_FILENO, text.bytes, text.used);
  (void) written;
  inside_call = NULL;
  text.bytes[text.used - 1] = 0;
  if (job.world) watch_abort(text.bytes);
  /* Only a test's _exit comes back. */
  atomic_flag_clear(&taken);
  _exit(1);
}

void fault_start(void)
{
  static bool done;
  if (done) return;
  done = true;
  bool first = true;
  dl_iterate_phdr(note_module, &first);
  struct sigaction own = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&own.sa_mask);
  const int numbers[] = {SIGSEGV, SIGBUS};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    /* Without it such a mistake ends the PE by the signal. */
    (void) sigaction(numbers[i], &own, &before[numbers[i]]);
}

/* --- what goes to far PEs ------------------------------------------------------------------------------ */

/* Once a page, the last byte among them; written to without changing it. */
static void touch(volatile char *first, size_t bytes, bool writes)
{
  if (bytes == 0) return;
  const uintptr_t page = 4096, end = (uintptr_t) first + bytes;
  for (uintptr_t at = (uintptr_t) first; at < end; at = (at / page + 1) * page) {
    volatile char *byte = (volatile char *) at;
    if (writes)
      __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
    else
      (void) *byte;
  }
}

static bool goes_far(int pe, const void *symmetric, size_t bytes)
{
  if (!job.world || !job.host || pe < 0 || pe >= job.n_pes || !team_is_far(pe)) return false;
  /* The runtime refuses it before it looks at local memory. */
  const char *first = symmetric;
  return memory_is_symmetric(first) && (bytes == 0 || memory_is_symmetric(first + bytes - 1));
}

void fault_source(const void *source, const void *dest, size_t bytes, int pe)
{
  if (goes_far(pe, dest, bytes)) touch((volatile char *) (uintptr_t) source, bytes, false);
}

void fault_dest(void *dest, const void *source, size_t bytes, int pe)
{
  if (goes_far(pe, source, bytes)) touch(dest, bytes, true);
}

void fault_rows(const void *local, ptrdiff_t stride, const void *symmetric, ptrdiff_t other, size_t bytes,
                size_t n, int pe, bool writes)
{
  size_t whole, far;
  if (n == 0 || stride < 1 || other < 1 || __builtin_mul_overflow((size_t) other * (n - 1), bytes, &far) ||
      __builtin_mul_overflow((size_t) stride * (n - 1), bytes, &whole) ||
      !goes_far(pe, symmetric, far + bytes))
    return;
  for (size_t i = 0; i < n; i++)
    touch((volatile char *) (uintptr_t) local + i * (size_t) stride * bytes, bytes, writes);
}
