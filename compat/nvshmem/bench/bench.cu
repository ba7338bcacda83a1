/* What nvshmem.h's functions cost inside kernels, on PEs of one host: a program that builds against rushmem's
 * library or NVIDIA's, as it is, so that both are measured by the same loops on the same machine.
 *
 *   bench [--csv FILE] [--sizes 8,64] [--blocks 1,4] [--threads N] [--pes N] [--budget MS] [--samples N]
 *         [--limit SECONDS] [--both yes] [--curves yes] [--beside-own TURNS] [--again TURNS] [MEASURE ...]
 *
 * It starts its own PEs, a GPU each, by unique ID. Measures, sizes and rows are those of
 * `rushmem-perf device`; the CSV has the columns of rushmem-perf's summaries, which its --compare and
 * ./compare read. All that arrives is looked at; a wrong word ends the run with exit code 1.
 *
 * --both has bandwidths in both directions at once, too. --curves: the figures that stand beside those of
 * `rushmem-perf device curves`.
 *
 * --beside-own, with rushmem's library: each row's kernel and rushmem-perf's own take turns (ours, own, own,
 * ours, so many TURNS), and the least median of either counts. A row of which the two are more than 2 %
 * apart, either way, takes as many more turns as --again says, and all of them count. The CSV has
 * rushmem-perf's as the reference. */
#include "data.cuh"
#include "kernels.cuh"

/* Bounds as rushmem-perf has them: a narrow scope may use more registers. */
#define KERNEL_OF(name, scope, ...)                                                              \
  __global__ void __launch_bounds__(__VA_ARGS__) name##_##scope(const __grid_constant__ job j) { \
    name<scope>(j);                                                                              \
  }
#define KERNELS(name, wide)   \
  KERNEL_OF(name, thread, 32) \
  KERNEL_OF(name, warp, 32)   \
  KERNEL_OF(name, block, wide, 1)
#define OF_ONE_THREAD(name) KERNEL_OF(name, thread, 32)
#define OF_BLOCKS(name) KERNEL_OF(name, block, 1024, 1)
/* As rushmem-perf's: of any size. */
#define OF_PARTS(name)                                                                  \
  __global__ void name##_thread(const __grid_constant__ job j) { name<thread>(j); }     \
  __global__ void name##_warp(const __grid_constant__ job j) { name<warp>(j); }         \
  OF_BLOCKS(name)
KERNELS(put_latency, 1024)
KERNELS(get_latency, 1024)
KERNELS(p_latency, 1024)
KERNELS(g_latency, 1024)
KERNELS(put_signal_pingpong, 1024)
KERNELS(put_pingpong, 1024)
KERNELS(p_pingpong, 1024)
KERNELS(sync_all, 1024)
KERNELS(barrier_all, 1024)
KERNELS(team_sync, 1024)
KERNELS(team_barrier, 1024)
KERNELS(reduce, 512)
OF_ONE_THREAD(signal_latency)
OF_ONE_THREAD(signal_pingpong)
OF_ONE_THREAD(atomic_pingpong)
OF_PARTS(put_bw)
OF_PARTS(get_bw)
OF_BLOCKS(p_bw)
OF_BLOCKS(g_bw)
#undef KERNELS

/* rushmem-perf's kernels, where there are any. */
#if defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
#include "own.cuh"
#endif

/* The host's part. */
#include <algorithm>
#include <cmath>
#include <cstring>

#include "job.h"
#include "options.h"

processes job_of;

#if defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
#define OWN(name) own_kernel(own::name<0>)
static const void *own_kernel(void (*kernel)(own::job)) { return reinterpret_cast<const void *>(kernel); }
#else
#define OWN(name) nullptr
#endif

/* The kernels of a row: by nvshmem.h, and rushmem-perf's. */
struct kernels {
  const void *ours, *own;
};
enum part_in { FIRST, PAIR, ALL };

struct measure {
  const char *name, *label;
  kernels of[3]; /* by a thread, a warp, a block */
  part_in part;
  arrives what;
  int first, last;      /* sizes as powers of two; 0: it has none */
  int short_of_threads; /* the last where one thread does it all, if that is another */
  bool gets, bandwidth;
};

#define OURS(name) reinterpret_cast<const void *>(name)
#define ROW(name, own) {OURS(name), OWN(own)}
#define THREE(name, own) \
  {ROW(name##_thread, own##_thread), ROW(name##_warp, own##_warp), ROW(name##_block, own##_block)}
#define ONE(name, own) {ROW(name##_thread, own), {}, {}}
#define ATOMIC_LATENCY(word, label, name, leaves) \
  {word, label, {ROW(atomic_latency_##name, atomic_latency_##name), {}, {}}, FIRST, leaves}
/* Words that nobody else changes meanwhile, as many as all blocks have. */
#define ATOMIC_BW(word, label, name, leaves) \
  {word, label, {{}, {}, ROW(atomic_bw_##name, atomic_bw_##name)}, FIRST, leaves, 3, 16, 0, false, true}
static const measure measures[] = {
    {"put-latency", "put + quiet", THREE(put_latency, put_latency), FIRST, PATTERN, 3, 20},
    {"get-latency", "get", THREE(get_latency, get_latency), FIRST, PATTERN, 3, 20, 0, true},
    {"p-latency", "p + quiet", THREE(p_latency, p_latency), FIRST, WORDS, 3, 20, 16},
    {"g-latency", "g", THREE(g_latency, g_latency), FIRST, PATTERN, 3, 20, 16, true},
    {"signal-latency", "signal + quiet", ONE(signal_latency, signal_latency_thread), FIRST, ROUNDS},
    ATOMIC_LATENCY("set-latency", "set + quiet", set, SET),
    ATOMIC_LATENCY("inc-latency", "inc + quiet", inc, ROUNDS),
    ATOMIC_LATENCY("add-latency", "add + quiet", add, ADD),
    ATOMIC_LATENCY("and-latency", "and + quiet", and_, AND),
    ATOMIC_LATENCY("or-latency", "or + quiet", or_, OR),
    ATOMIC_LATENCY("xor-latency", "xor + quiet", xor_, XOR),
    ATOMIC_LATENCY("fetch-latency", "fetch", fetch, KEEP),
    ATOMIC_LATENCY("swap-latency", "swap", swap, SET),
    ATOMIC_LATENCY("compare-swap-latency", "compare_swap", compare_swap, ROUNDS),
    ATOMIC_LATENCY("fetch-inc-latency", "fetch_inc", fetch_inc, ROUNDS),
    ATOMIC_LATENCY("fetch-add-latency", "fetch_add", fetch_add, ADD),
    ATOMIC_LATENCY("fetch-and-latency", "fetch_and", fetch_and, AND),
    ATOMIC_LATENCY("fetch-or-latency", "fetch_or", fetch_or, OR),
    ATOMIC_LATENCY("fetch-xor-latency", "fetch_xor", fetch_xor, XOR),
    {"signal-pingpong", "signal ping-pong", ONE(signal_pingpong, signal_pingpong_thread), PAIR, NOTHING},
    {"put-signal-pingpong", "put_signal ping-pong", THREE(put_signal_pingpong, put_signal_pingpong),
     PAIR, PATTERN, 3, 16},
    {"put-pingpong", "put + quiet ping-pong", THREE(put_pingpong, put_pingpong), PAIR, PATTERN, 3, 16},
    {"p-pingpong", "p + quiet ping-pong", THREE(p_pingpong, p_pingpong), PAIR, WORDS, 3, 16, 16},
    {"atomic-pingpong", "atomic inc ping-pong", ONE(atomic_pingpong, atomic_pingpong_thread),
     PAIR, NOTHING},
    {"put-bw", "put bandwidth", THREE(put_bw, put_bw), FIRST, PATTERN, 10, 25, 0, false, true},
    {"get-bw", "get bandwidth", THREE(get_bw, get_bw), FIRST, PATTERN, 10, 25, 0, true, true},
    {"p-bw", "p bandwidth", {{}, {}, ROW(p_bw_block, p_bw_block)}, FIRST, WORDS, 10, 25, 0, false, true},
    {"g-bw", "g bandwidth", {{}, {}, ROW(g_bw_block, g_bw_block)}, FIRST, PATTERN, 10, 24, 0, true, true},
    ATOMIC_BW("set-bw", "set bandwidth", set, SET),
    ATOMIC_BW("inc-bw", "inc bandwidth", inc, ROUNDS),
    ATOMIC_BW("add-bw", "add bandwidth", add, ADD),
    ATOMIC_BW("and-bw", "and bandwidth", and_, AND),
    ATOMIC_BW("or-bw", "or bandwidth", or_, OR),
    ATOMIC_BW("xor-bw", "xor bandwidth", xor_, XOR),
    ATOMIC_BW("fetch-bw", "fetch bandwidth", fetch, KEEP),
    ATOMIC_BW("swap-bw", "swap bandwidth", swap, SET),
    ATOMIC_BW("compare-swap-bw", "compare_swap bandwidth", compare_swap, ROUNDS),
    ATOMIC_BW("fetch-inc-bw", "fetch_inc bandwidth", fetch_inc, ROUNDS),
    ATOMIC_BW("fetch-add-bw", "fetch_add bandwidth", fetch_add, ADD),
    ATOMIC_BW("fetch-and-bw", "fetch_and bandwidth", fetch_and, AND),
    ATOMIC_BW("fetch-or-bw", "fetch_or bandwidth", fetch_or, OR),
    ATOMIC_BW("fetch-xor-bw", "fetch_xor bandwidth", fetch_xor, XOR),
    {"sync", "sync_all", THREE(sync_all, sync), ALL, NOTHING},
    {"barrier", "barrier_all", THREE(barrier_all, barrier), ALL, NOTHING},
    {"team-sync", "team sync", THREE(team_sync, team_sync), ALL, NOTHING},
    {"team-barrier", "team barrier", THREE(team_barrier, team_barrier), ALL, NOTHING},
    {"reduce", "reduce", THREE(reduce, reduce), ALL, SUM, 3, 20, 11},
};
static const char *const scopes[] = {"thread", "warp", "block"};

struct rounds {
  uint32_t iterations, batches, warm_up;
};

/* Bytes that rounds walk through at most: more than the L1 caches of so many blocks hold. */
static uint64_t room_of(uint64_t blocks) { return std::max<uint64_t>(1 << 20, blocks << 19); }
/* How many places rounds go to: more than the L1 caches of the blocks that have a word hold, and no more, so
 * that the GPU's own cache has them (rushmem-perf's Spec::places). A power of two. */
static uint64_t places_of(uint64_t blocks, uint64_t bytes, uint64_t step) {
  blocks = std::max<uint64_t>(std::min(blocks, (bytes + 7) / 8), 1);
  const uint64_t lines = std::max(step, blocks * 128);
  uint64_t places = 1;
  while (places * lines < room_of(blocks)) places *= 2;
  return places;
}

static double middle(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const size_t half = times.size() / 2;
  return times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
}

/* One figure. */
struct bench {
  options o;
  bool both = false; /* bandwidth in both directions at once */
  job j = {};
  FILE *csv = nullptr;

  part_in part_in_it(const measure &m) const { return both ? PAIR : m.part; }

  /* Of a bandwidth both ways: in how long one PE would move what both move. */
  double of_both(double ns) {
    const double theirs = job_of.of_second(ns);
    return both ? ns * theirs / (ns + theirs) : ns;
  }

  void launch(const void *what, bool own, unsigned blocks, unsigned threads) {
    void *arguments[] = {&j};
#if defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
    own::job as_own = own::same_as(j);
    if (own) arguments[0] = &as_own;
    /* What a kernel of rushmem-perf's finds wrong. */
    FINE(cudaMemset(as_own.stamps, 0, 8));
#else
    static_cast<void>(own);
#endif
    FINE(cudaLaunchKernel(what, dim3(blocks), dim3(threads), arguments, 0, nullptr));
    FINE(cudaDeviceSynchronize());
#if defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
    uint64_t bad = 0;
    FINE(cudaMemcpy(&bad, as_own.stamps, 8, cudaMemcpyDeviceToHost));
    own_bad += bad;
#endif
  }

  /* Nanoseconds of one operation, for each batch; on PEs without a part none. */
  std::vector<double> run(const measure &m, const void *what, bool own, unsigned blocks, unsigned threads,
                          rounds r) {
    std::vector<double> times;
    j.iterations = r.iterations, j.batches = r.batches, j.warm_up = r.warm_up;
    j.both = part_in_it(m) == PAIR;
    const bool runs = j.me < (part_in_it(m) == FIRST ? 1 : part_in_it(m) == PAIR ? 2 : j.pes);
    unsigned fillers = 132, each = 256;
    fits(OURS(fill), fillers, each);
    fill<<<fillers, each>>>(j, m.what);
    FINE(cudaMemset(j.words, 0, static_cast<size_t>(CHECK + j.pes * LINE) * 8));
    FINE(cudaDeviceSynchronize());
    job_of.barrier();
    if (runs) {
      launch(what, own, blocks, threads);
      std::vector<uint64_t> stamps(2 * size_t(blocks) * (r.batches + 1));
      FINE(cudaMemcpy(stamps.data(), j.stamps, stamps.size() * 8, cudaMemcpyDeviceToHost));
      for (uint32_t batch = 1; batch <= r.batches; ++batch) {
        uint64_t begin = ~uint64_t(0), end = 0;
        for (size_t i = size_t(batch) * blocks; i < size_t(batch + 1) * blocks; ++i) {
          begin = std::min(begin, stamps[2 * i]);
          end = std::max(end, stamps[2 * i + 1]);
        }
        times.push_back(double(end - begin) / r.iterations);
      }
    }
    job_of.barrier();
    return times;
  }

  /* Wrong words on all PEs, after `r`. */
  uint64_t wrong(const measure &m, rounds r) {
    uint64_t bad = 0;
    const bool here = part_in_it(m) != FIRST || (j.me == 0) == m.gets;
    const uint64_t total = r.warm_up + uint64_t(r.iterations) * r.batches;
    if (m.what != NOTHING && here && (j.me < 2 || m.part == ALL)) {
      unsigned blocks = 132, threads = 256;
      fits(OURS(verify), blocks, threads);
      verify<<<blocks, threads>>>(j, m.what, j.peer, total);
      FINE(cudaDeviceSynchronize());
    }
    FINE(cudaMemcpy(&bad, j.bad, sizeof(bad), cudaMemcpyDeviceToHost));
    FINE(cudaMemset(j.bad, 0, sizeof(bad)));
    __atomic_add_fetch(&job_of.all->bad, bad + own_bad, __ATOMIC_RELAXED);
    own_bad = 0;
    job_of.barrier();
    const uint64_t all = job_of.all->bad;
    job_of.barrier();
    if (j.me == 0) job_of.all->bad = 0;
    return all;
  }

  /* Threads of a block, as many as there are registers for, and blocks that all run at once; the same on all
   * PEs. */
  bool fits(const void *what, unsigned &blocks, unsigned &threads) const {
    int each = 0, processors = 0, gpu = 0;
    FINE(cudaGetDevice(&gpu));
    FINE(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
    for (; threads > 0; threads /= 2) {
      FINE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, what, int(threads), 0));
      if (each == 0) continue;
      blocks = std::min(blocks, unsigned(each) * unsigned(processors));
      return true;
    }
    return false;
  }

  bool figure(const measure &m, int scope, unsigned blocks, uint64_t bytes) {
    unsigned threads = m.bandwidth ? o.threads : scope == 0 ? 1 : scope == 1 ? 32 : o.threads;
    if (scope == 2 && m.what == SUM) threads = std::min(threads, 512u);
    const kernels &of = m.of[scope];
    const void *const ours = of.ours;
    if (!fits(ours, blocks, threads) || (o.turns && !fits(of.own, blocks, threads))) return true;
    j.bytes = bytes ? bytes : 8;
    /* A line lies between two places. */
    j.step = (j.bytes + 255) / 128 * 128, j.sources = j.targets = 0;
    const bool moves = (m.bandwidth && m.what < SUM) || m.gets;
    uint32_t *places = moves ? (m.gets ? &j.sources : &j.targets) : nullptr;
    if (places) *places = static_cast<uint32_t>(places_of(blocks, j.bytes, j.step) - 1);
    j.salt = job_of.agree(j.salt * 6364136223846793005ull + 1442695040888963407ull);
    const std::vector<double> few = run(m, ours, false, blocks, threads, {3, 1, 2});
    const double one = few.empty() ? 1.0 : std::max(few[0], 1.0), time = o.budget_ms * 1e6 / o.samples;
    const double wanted = std::min(std::max(200.0, 50000.0 / one), time / one);
    rounds r = {0, o.samples, 20};
    r.iterations = static_cast<uint32_t>(job_of.agree(uint64_t(std::min(std::max(wanted, 1.0), 1e6))));
    r.warm_up = std::min(r.warm_up, r.iterations);
    /* The least of several launches' medians: what disturbs a launch is not the kernel's. */
    double least[] = {HUGE_VAL, HUGE_VAL};
    uint64_t bad = 0;
    const std::vector<bool> once = {false}, turn = {false, true, true, false};
    unsigned turns = std::max(o.turns, 1u);
    for (unsigned t = 0; t < turns; ++t) {
      for (const bool own : o.turns ? turn : once) {
        const std::vector<double> times = run(m, own ? of.own : ours, own, blocks, threads, r);
        bad += wrong(m, r);
        const double ns = of_both(times.empty() ? 1.0 : middle(times));
        if (j.me == 0) least[own] = std::min(least[own], ns);
      }
      const bool apart = std::fabs(least[0] / least[1] - 1) > 0.02;
      if (t + 1 == o.turns && o.again && job_of.agree(apart)) turns += o.again;
    }
    if (j.me == 0) report(m, scope, blocks, threads, bytes, least, bad);
    return bad == 0;
  }

  bool chosen(const measure &m) const {
    if (o.curves) return m.part == FIRST || (m.part == PAIR && m.what != WORDS && std::strcmp(m.name, "put-pingpong"));
    return o.names.empty() || std::count(o.names.begin(), o.names.end(), m.name);
  }

  void report(const measure &m, int scope, unsigned blocks, unsigned threads, uint64_t bytes,
              const double *least, uint64_t bad) {
    const auto value = [&](double ns) { return m.bandwidth ? double(bytes) / ns : ns / 1e3; };
    const std::string size = bytes ? std::to_string(bytes) : "";
    const char *unit = m.bandwidth ? "GB/s" : "us";
    const std::string label = m.label + std::string(both ? ", both ways" : "");
    std::printf("%-22s %9s %-6s %3u x %4u  %10.4g %s", label.c_str(), size.c_str(), scopes[scope], blocks, threads,
                value(least[0]), unit);
    if (o.turns) std::printf("  own %10.4g  ratio %.3f", value(least[1]), least[0] / least[1]);
    std::printf("%s\n", bad ? "  WRONG" : "");
    std::fflush(stdout);
    const unsigned long long words = bad;
    if (bad) std::fprintf(stderr, "bench: %s: %llu wrong words\n", m.label, words);
    if (!csv || bad) return;
    const char *quote = both ? "\"" : "";
    std::fprintf(csv, "%s%s%s,%s,%d,%s,%u,%u,%s,%.5g,", quote, label.c_str(), quote, size.c_str(), j.pes, scopes[scope], blocks,
                 threads, unit, value(least[0]));
    if (o.turns) std::fprintf(csv, "rushmem-perf's kernel,%.5g,,,,\n", value(least[1]));
    else std::fprintf(csv, ",,,,,\n");
  }

  /* Those that were asked for, else the measure's own; 0 where it has none. */
  std::vector<uint64_t> sizes(const measure &m, int scope, uint64_t blocks) const {
    if (m.first == 0) return {0};
    if (!o.sizes.empty()) return o.sizes;
    if (o.curves) return of_curves(m, scope, blocks);
    const int most = m.short_of_threads && scope == 0 ? m.short_of_threads : m.last;
    return powers(m.first, most);
  }

  /* Those that `rushmem-perf device curves` has (curves.rs). */
  std::vector<uint64_t> of_curves(const measure &m, int scope, uint64_t blocks) const {
    if (!m.bandwidth) return powers(3, 20 + 4 * scope - (m.short_of_threads ? 4 : 0));
    if (m.first == 3 && m.what != ADD) return blocks == 4 ? powers(m.last, m.last) : powers(1, 0);
    std::vector<uint64_t> all = m.first == 3 ? powers(3, m.last) : powers(10, 28, scope == 2 ? 1 : 6);
    const uint64_t least = scope == 2 ? (blocks == 1 ? 0 : 16 * blocks) : 16 * blocks * o.threads;
    all.erase(std::remove_if(all.begin(), all.end(), [&](uint64_t n) { return n < least; }), all.end());
    return all;
  }

  static std::vector<uint64_t> powers(int first, int last, int step = 1) {
    std::vector<uint64_t> all;
    for (int power = first; power <= last; power += step) all.push_back(uint64_t(1) << power);
    return all;
  }

  bool all_of(const measure &m) {
    bool well = true;
    for (int scope = 0; scope < 3; ++scope) {
      if (!m.of[scope].ours || (m.bandwidth && scope < 2 && !o.curves)) continue;
      for (uint64_t blocks : m.bandwidth ? o.blocks : std::vector<uint64_t>{1}) {
        for (uint64_t bytes : sizes(m, scope, blocks)) well = figure(m, scope, unsigned(blocks), bytes) && well;
      }
    }
    return well;
  }

 private:
  uint64_t own_bad = 0;
};

static void heads(const bench &b, char **argv) {
  cudaDeviceProp gpu;
  FINE(cudaGetDeviceProperties(&gpu, 0));
  /* NVIDIA's vendor string says its version. */
  std::string name = "NVSHMEM", command;
  if (std::strstr(NVSHMEM_VENDOR_STRING, "rushmem")) name = "rushmem's nvshmem.h";
  for (int part : {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION, NVSHMEM_VENDOR_PATCH_VERSION})
    name += (name.back() >= '0' && name.back() <= '9' ? "." : " ") + std::to_string(part);
  for (; *argv; ++argv) command += std::string(command.empty() ? "" : " ") + *argv;
  std::printf("%s on %s\n", name.c_str(), gpu.name);
  if (!b.csv) return;
  std::fprintf(b.csv, "# nvshmem.h by %s: %s\n# %d x %s\n", name.c_str(), command.c_str(), b.j.pes, gpu.name);
  std::fprintf(b.csv, "operation,bytes,pes,scope,blocks,threads,unit,median,reference,reference_median,"
                      "limit,verdict,peer,peer_value\n");
}

int main(int argc, char **argv) {
  bench b;
  b.o = read(argc, argv, [](const std::string &word) {
    const auto same = [&](const measure &m) { return word == m.name; };
    return std::any_of(std::begin(measures), std::end(measures), same);
  });
  /* Both sides of the largest bandwidth. */
  setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);
  job_of.start(int(b.o.pes), b.o.limit, argv);
  job_of.join();
  uint64_t most = b.o.curves ? 256 << 20 : 32 << 20, blocks = 1;
  for (uint64_t bytes : b.o.sizes) most = std::max(most, bytes);
  for (uint64_t n : b.o.blocks) blocks = std::max(blocks, n);
  b.j.me = job_of.me, b.j.pes = job_of.pes, b.j.peer = b.j.me == 0 ? 1 : 0;
  const uint64_t room = most + 2 * room_of(blocks) + 4096;
  b.j.to = static_cast<char *>(nvshmem_align(4096, room));
  b.j.from = static_cast<char *>(nvshmem_align(4096, room));
  b.j.words = static_cast<uint64_t *>(nvshmem_align(128, static_cast<size_t>(CHECK + b.j.pes * LINE) * 8));
  if (!b.j.to || !b.j.from || !b.j.words) fail("nvshmem_align", 0);
  /* Two words before the first are for rushmem-perf's kernels. */
  FINE(cudaMalloc(&b.j.stamps, 16 * (blocks * (b.o.samples + 1) + 1)));
  b.j.stamps += 2;
  FINE(cudaMalloc(&b.j.bad, sizeof(uint64_t)));
  FINE(cudaMemset(b.j.bad, 0, sizeof(uint64_t)));
  b.j.salt = static_cast<uint64_t>(getpid()) * 0x9e3779b97f4a7c15ull;
  if (b.j.me == 0) {
    if (b.o.csv && !(b.csv = std::fopen(b.o.csv, "w"))) fail(b.o.csv, errno);
    heads(b, argv);
  }
  bool well = true;
  for (const measure &m : measures) {
    if (!b.chosen(m)) continue;
    b.both = false;
    well = b.all_of(m) && well;
    b.both = m.bandwidth && (b.o.curves || b.o.both);
    if (b.both) well = b.all_of(m) && well;
  }
  if (b.csv) std::fclose(b.csv);
  nvshmem_free(b.j.words);
  nvshmem_free(b.j.from);
  nvshmem_free(b.j.to);
  nvshmem_finalize();
  well = job_of.end() && well;
  return well ? 0 : 1;
}
