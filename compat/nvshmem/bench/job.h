/* The processes of bench.cu: PE 0 starts the others, on this host, and hands them the unique ID through a
 * page that all share. Neither library has a part in that, so that both are started the same. */
#ifndef NVSHMEM_BENCH_JOB_H
#define NVSHMEM_BENCH_JOB_H

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#define FINE(call)                           \
  do {                                       \
    const int code = static_cast<int>(call); \
    if (code != 0) fail(#call, code);        \
  } while (0)

[[noreturn]] void fail(const char *what, int code);

/* What all PEs see. */
struct page {
  nvshmemx_uniqueid_t id;
  pid_t first; /* PE 0 */
  uint32_t has_id, arrived, turn, failed;
  uint64_t word; /* of PE 0, for the others */
  uint64_t bad;  /* wrong words, of all PEs */
  double number; /* of PE 1, for the first */
};

class processes {
 public:
  page *all = nullptr;
  int me = 0, pes = 2;

  /* On PE 0 starts the others by the same command line. */
  void start(int n, unsigned seconds, char **argv) {
    const char *rank = std::getenv("BENCH_PE"), *file = std::getenv("BENCH_PAGE");
    int fd = file ? std::atoi(file) : memfd_create("bench", 0);
    pes = n;
    me = rank ? std::atoi(rank) : 0;
    alarm(seconds);
    if (fd < 0 || (!rank && ftruncate(fd, sizeof(page)) != 0)) fail("memfd_create", errno);
    void *at = mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail("mmap", errno);
    all = static_cast<page *>(at);
    if (rank) {
      /* No PE outlives the first. */
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != all->first) _exit(1);
    } else {
      all->first = getpid();
    }
    for (int pe = 1; !rank && pe < n; ++pe) {
      const pid_t child = fork();
      if (child < 0) fail("fork", errno);
      if (child == 0) {
        setenv("BENCH_PE", std::to_string(pe).c_str(), 1);
        setenv("BENCH_PAGE", std::to_string(fd).c_str(), 1);
        execv("/proc/self/exe", argv);
        _exit(127);
      }
      children.push_back(child);
    }
  }

  /* Joins the library's job, on a GPU each. */
  void join() {
    int gpus = 0;
    FINE(cudaGetDeviceCount(&gpus));
    FINE(cudaSetDevice(me % gpus));
    if (me == 0) {
      FINE(nvshmemx_get_uniqueid(&all->id));
      __atomic_store_n(&all->has_id, 1u, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&all->has_id, __ATOMIC_ACQUIRE) == 0) rest();
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmemx_uniqueid_t id = all->id;
    FINE(nvshmemx_set_attr_uniqueid_args(me, pes, &id, &attr));
    FINE(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr));
    if (nvshmem_my_pe() != me || nvshmem_n_pes() != pes) fail("nvshmem_my_pe", nvshmem_my_pe());
  }

  /* All are here. */
  void barrier() {
    const uint32_t turn = __atomic_load_n(&all->turn, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&all->arrived, 1, __ATOMIC_ACQ_REL) == static_cast<uint32_t>(pes)) {
      __atomic_store_n(&all->arrived, 0u, __ATOMIC_RELAXED);
      __atomic_store_n(&all->turn, turn + 1, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&all->turn, __ATOMIC_ACQUIRE) == turn) rest();
  }

  /* PE 0's number, on all. */
  uint64_t agree(uint64_t number) {
    if (me == 0) all->word = number;
    barrier();
    number = all->word;
    barrier();
    return number;
  }

  /* PE 1's number, on PE 0; on others their own. */
  double of_second(double number) {
    if (me == 1) all->number = number;
    barrier();
    if (me == 0) number = all->number;
    barrier();
    return number;
  }

  /* Waits for the others; whether all ended well. */
  bool end() {
    bool well = true;
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      well = well && status == 0;
    }
    return well;
  }

 private:
  std::vector<pid_t> children;

  void rest() const {
    if (__atomic_load_n(&all->failed, __ATOMIC_RELAXED)) _exit(1);
    for (pid_t child : children) {
      if (waitpid(child, nullptr, WNOHANG) > 0) fail("a PE has ended", static_cast<int>(child));
    }
    sched_yield();
  }
};

extern processes job_of;

/* Says it, and ends the other PEs, too. */
[[noreturn]] inline void fail(const char *what, int code) {
  std::fprintf(stderr, "bench: PE %d: %s: %d (%s)\n", job_of.me, what, code, cudaGetErrorString(cudaPeekAtLastError()));
  if (job_of.all) __atomic_store_n(&job_of.all->failed, 1u, __ATOMIC_RELAXED);
  _exit(1);
}

#endif
