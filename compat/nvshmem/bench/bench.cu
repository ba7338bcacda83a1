/* What nvshmem.h's functions cost inside kernels, on PEs of one host: a program that builds against rushmem's
 * library or NVIDIA's, as it is, so that both are measured by the same loops on the same machine.
 *
 *   bench [--csv FILE] [--sizes 8,64] [--blocks 1,4] [--threads N] [--pes N] [--budget MS] [--samples N]
 *         [--limit SECONDS] [MEASURE ...]
 *
 * It starts its own PEs, a GPU each, by unique ID. Measures, sizes and rows are those of
 * `rushmem-perf device`; the CSV has the columns of rushmem-perf's summaries, which its --compare and
 * ./compare read. All that arrives is looked at; a wrong word ends the run with exit code 1. */
#include <algorithm>
#include <cstring>

#include "job.h"
#include "kernels.cuh"

processes job_of;

/* Bounds as rushmem-perf has them: a narrow scope may use more registers. */
#define KERNELS(name, wide)                                                                        \
  static __global__ void __launch_bounds__(32) name##_thread(const __grid_constant__ job j) { name<thread>(j); } \
  static __global__ void __launch_bounds__(32) name##_warp(const __grid_constant__ job j) { name<warp>(j); }     \
  static __global__ void __launch_bounds__(wide, 1) name##_block(const __grid_constant__ job j) { name<block>(j); }
#define OF_ONE_THREAD(name) \
  static __global__ void __launch_bounds__(32) name##_thread(const __grid_constant__ job j) { name<thread>(j); }
#define OF_BLOCKS(name) \
  static __global__ void __launch_bounds__(1024, 1) name##_block(const __grid_constant__ job j) { name<block>(j); }
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
OF_ONE_THREAD(inc_latency)
OF_ONE_THREAD(fetch_inc_latency)
OF_ONE_THREAD(signal_pingpong)
OF_ONE_THREAD(atomic_pingpong)
OF_BLOCKS(put_bw)
OF_BLOCKS(get_bw)
OF_BLOCKS(p_bw)
OF_BLOCKS(g_bw)

using kernel = void (*)(job);
enum part_in { FIRST, PAIR, ALL };

struct measure {
  const char *name, *label;
  kernel of[3]; /* by a thread, a warp, a block */
  part_in part;
  arrives what;
  int first, last;      /* sizes as powers of two; 0: it has none */
  int short_of_threads; /* the last where one thread does it all, if that is another */
  bool gets, bandwidth;
};

#define THREE(name) {name##_thread, name##_warp, name##_block}
#define ONE(name) {name##_thread, nullptr, nullptr}
#define BLOCKS(name) {nullptr, nullptr, name##_block}
static const measure measures[] = {
    {"put-latency", "put + quiet", THREE(put_latency), FIRST, PATTERN, 3, 20, 0, false, false},
    {"get-latency", "get", THREE(get_latency), FIRST, PATTERN, 3, 20, 0, true, false},
    {"p-latency", "p + quiet", THREE(p_latency), FIRST, WORDS, 3, 20, 16, false, false},
    {"g-latency", "g", THREE(g_latency), FIRST, PATTERN, 3, 20, 16, true, false},
    {"signal-latency", "signal + quiet", ONE(signal_latency), FIRST, ROUNDS, 0, 0, 0, false, false},
    {"inc-latency", "inc + quiet", ONE(inc_latency), FIRST, ROUNDS, 0, 0, 0, false, false},
    {"fetch-inc-latency", "fetch_inc", ONE(fetch_inc_latency), FIRST, ROUNDS, 0, 0, 0, false, false},
    {"signal-pingpong", "signal ping-pong", ONE(signal_pingpong), PAIR, NOTHING, 0, 0, 0, false, false},
    {"put-signal-pingpong", "put_signal ping-pong", THREE(put_signal_pingpong), PAIR, PATTERN, 3, 16, 0, false, false},
    {"put-pingpong", "put + quiet ping-pong", THREE(put_pingpong), PAIR, PATTERN, 3, 16, 0, false, false},
    {"p-pingpong", "p + quiet ping-pong", THREE(p_pingpong), PAIR, WORDS, 3, 16, 16, false, false},
    {"atomic-pingpong", "atomic inc ping-pong", ONE(atomic_pingpong), PAIR, NOTHING, 0, 0, 0, false, false},
    {"put-bw", "put bandwidth", BLOCKS(put_bw), FIRST, PATTERN, 10, 25, 0, false, true},
    {"get-bw", "get bandwidth", BLOCKS(get_bw), FIRST, PATTERN, 10, 25, 0, true, true},
    {"p-bw", "p bandwidth", BLOCKS(p_bw), FIRST, WORDS, 10, 25, 0, false, true},
    {"g-bw", "g bandwidth", BLOCKS(g_bw), FIRST, PATTERN, 10, 24, 0, true, true},
    {"sync", "sync_all", THREE(sync_all), ALL, NOTHING, 0, 0, 0, false, false},
    {"barrier", "barrier_all", THREE(barrier_all), ALL, NOTHING, 0, 0, 0, false, false},
    {"team-sync", "team sync", THREE(team_sync), ALL, NOTHING, 0, 0, 0, false, false},
    {"team-barrier", "team barrier", THREE(team_barrier), ALL, NOTHING, 0, 0, 0, false, false},
    {"reduce", "reduce", THREE(reduce), ALL, SUM, 3, 20, 11, false, false},
};
static const char *const scopes[] = {"thread", "warp", "block"};

struct options {
  std::vector<std::string> names;
  std::vector<uint64_t> sizes, blocks = {1, 4, 32, 132};
  const char *csv = nullptr;
  unsigned threads = 1024, pes = 2, budget_ms = 30, samples = 10, limit = 300;
};

static std::vector<uint64_t> numbers(const char *text) {
  std::vector<uint64_t> all;
  for (char *end; *text; text = *end == ',' ? end + 1 : end) {
    all.push_back(std::strtoull(text, &end, 0));
    if (end == text || (*end && *end != ',')) fail(text, 0);
  }
  if (all.empty()) fail("a number is missing", 0);
  return all;
}

static options read(int argc, char **argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.compare(0, 2, "--") != 0) {
      const auto same = [&](const measure &m) { return word == m.name; };
      if (std::none_of(std::begin(measures), std::end(measures), same)) fail(argv[i], 0);
      o.names.push_back(word);
      continue;
    }
    if (++i == argc) fail(argv[i - 1], 0);
    if (word == "--csv") o.csv = argv[i];
    else if (word == "--sizes") o.sizes = numbers(argv[i]);
    else if (word == "--blocks") o.blocks = numbers(argv[i]);
    else if (word == "--threads") o.threads = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--pes") o.pes = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--budget") o.budget_ms = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--samples") o.samples = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--limit") o.limit = static_cast<unsigned>(numbers(argv[i])[0]);
    else fail(argv[i - 1], 0);
  }
  /* What is moved is words. */
  for (uint64_t bytes : o.sizes)
    if (bytes == 0 || bytes % 8) fail("sizes are multiples of 8", int(bytes));
  return o;
}

struct rounds {
  uint32_t iterations, batches, warm_up;
};

/* Bytes over which rounds go: more than the L1 caches of so many blocks hold. */
static uint64_t room_of(uint64_t blocks) { return std::max<uint64_t>(1 << 20, blocks << 19); }

/* One figure. */
struct bench {
  options o;
  job j = {};
  FILE *csv = nullptr;

  /* Nanoseconds of one operation, for each batch; on PEs without a part none. */
  std::vector<double> run(const measure &m, kernel what, unsigned blocks, unsigned threads, rounds r) {
    std::vector<double> times;
    j.iterations = r.iterations, j.batches = r.batches, j.warm_up = r.warm_up;
    j.parties = m.part == FIRST ? 1 : m.part == PAIR ? 2 : j.pes;
    const bool runs = j.me < j.parties;
    fill<<<132, 256>>>(j, m.what);
    FINE(cudaMemset(j.words, 0, static_cast<size_t>(CHECK + j.pes * LINE) * 8));
    FINE(cudaDeviceSynchronize());
    job_of.barrier();
    if (runs) {
      what<<<blocks, threads>>>(j);
      FINE(cudaGetLastError());
      FINE(cudaDeviceSynchronize());
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
    unsigned bad = 0;
    const bool here = m.part != FIRST || (j.me == 0) == m.gets;
    const uint64_t total = r.warm_up + uint64_t(r.iterations) * r.batches;
    /* An increment begins at ones. */
    const bool increments = std::strstr(m.name, "inc") != nullptr;
    if (m.what != NOTHING && here && (j.me < 2 || m.part == ALL)) {
      verify<<<132, 256>>>(j, m.what, j.peer, increments ? total - 1 : total);
      FINE(cudaDeviceSynchronize());
    }
    FINE(cudaMemcpy(&bad, j.bad, sizeof(bad), cudaMemcpyDeviceToHost));
    FINE(cudaMemset(j.bad, 0, sizeof(bad)));
    __atomic_add_fetch(&job_of.all->bad, bad, __ATOMIC_RELAXED);
    job_of.barrier();
    const uint64_t all = job_of.all->bad;
    job_of.barrier();
    if (j.me == 0) job_of.all->bad = 0;
    return all;
  }

  bool figure(const measure &m, int scope, unsigned blocks, uint64_t bytes) {
    unsigned threads = scope == 0 ? 1 : scope == 1 ? 32 : o.threads;
    if (scope == 2 && m.what == SUM) threads = std::min(threads, 512u);
    kernel what = m.of[scope];
    /* All blocks run at once, in as many threads as there are registers for; the same on all PEs. */
    int each = 0, processors = 0, gpu = 0;
    FINE(cudaGetDevice(&gpu));
    FINE(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
    for (;; threads /= 2) {
      if (threads == 0) return true;
      FINE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, what, int(threads), 0));
      if (each > 0) break;
    }
    blocks = std::min(blocks, unsigned(each) * unsigned(processors));
    j.bytes = bytes ? bytes : 8;
    /* A line lies between two places. */
    j.step = (j.bytes + 255) / 128 * 16, j.sources = j.targets = 0;
    uint32_t *places = m.gets ? &j.sources : m.bandwidth ? &j.targets : nullptr;
    while (places && (*places + 1) * j.step * 8 < room_of(blocks)) *places = 2 * *places + 1;
    j.salt = job_of.agree(j.salt * 6364136223846793005ull + 1442695040888963407ull);
    const std::vector<double> few = run(m, what, blocks, threads, {3, 1, 2});
    const double one = few.empty() ? 1.0 : std::max(few[0], 1.0), time = o.budget_ms * 1e6 / o.samples;
    const double wanted = std::min(std::max(200.0, 50000.0 / one), time / one);
    rounds r = {0, o.samples, 20};
    r.iterations = static_cast<uint32_t>(job_of.agree(uint64_t(std::min(std::max(wanted, 1.0), 1e6))));
    r.warm_up = std::min(r.warm_up, r.iterations);
    std::vector<double> times = run(m, what, blocks, threads, r);
    const uint64_t bad = wrong(m, r);
    if (j.me != 0) return bad == 0;
    std::sort(times.begin(), times.end());
    const size_t middle = times.size() / 2;
    const double median = times.size() % 2 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
    const double value = m.bandwidth ? double(bytes) / median : median / 1e3;
    const std::string size = bytes ? std::to_string(bytes) : "";
    const char *unit = m.bandwidth ? "GB/s" : "us";
    std::printf("%-22s %9s %-6s %3u x %4u  %10.4g %s%s\n", m.label, size.c_str(), scopes[scope], blocks, threads,
                value, unit, bad ? "  WRONG" : "");
    std::fflush(stdout);
    if (csv && !bad)
      std::fprintf(csv, "%s,%s,%d,%s,%u,%u,%s,%.5g,,,,,,\n", m.label, size.c_str(), j.pes, scopes[scope], blocks,
                   threads, unit, value);
    if (bad) std::fprintf(stderr, "bench: %s: %llu wrong words\n", m.label, static_cast<unsigned long long>(bad));
    return bad == 0;
  }

  /* Those that were asked for, else the measure's own; 0 where it has none. */
  std::vector<uint64_t> sizes(const measure &m, int scope) const {
    if (m.first == 0) return {0};
    if (!o.sizes.empty()) return o.sizes;
    std::vector<uint64_t> all;
    const int most = m.short_of_threads && scope == 0 ? m.short_of_threads : m.last;
    for (int power = m.first; power <= most; ++power) all.push_back(uint64_t(1) << power);
    return all;
  }

  bool all_of(const measure &m) {
    bool well = true;
    for (int scope = 0; scope < 3; ++scope) {
      if (!m.of[scope]) continue;
      for (uint64_t blocks : m.bandwidth ? o.blocks : std::vector<uint64_t>{1})
        for (uint64_t bytes : sizes(m, scope)) well = figure(m, scope, unsigned(blocks), bytes) && well;
    }
    return well;
  }
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
  std::fprintf(b.csv, "operation,bytes,pes,scope,blocks,threads,unit,median,reference,reference_median,limit,verdict,"
                      "peer,peer_value\n");
}

int main(int argc, char **argv) {
  bench b;
  b.o = read(argc, argv);
  /* Both sides of the largest bandwidth. */
  setenv("NVSHMEM_SYMMETRIC_SIZE", "1G", 0);
  job_of.start(int(b.o.pes), b.o.limit, argv);
  job_of.join();
  uint64_t most = 32 << 20, blocks = 1;
  for (uint64_t bytes : b.o.sizes) most = std::max(most, bytes);
  for (uint64_t n : b.o.blocks) blocks = std::max(blocks, n);
  b.j.me = job_of.me, b.j.pes = job_of.pes, b.j.peer = b.j.me == 0 ? 1 : 0;
  const uint64_t room = most + 2 * room_of(blocks) + 4096;
  b.j.to = static_cast<char *>(nvshmem_align(4096, room));
  b.j.from = static_cast<char *>(nvshmem_align(4096, room));
  b.j.words = static_cast<uint64_t *>(nvshmem_align(128, static_cast<size_t>(CHECK + b.j.pes * LINE) * 8));
  if (!b.j.to || !b.j.from || !b.j.words) fail("nvshmem_align", 0);
  FINE(cudaMalloc(&b.j.stamps, 16 * blocks * (b.o.samples + 1)));
  FINE(cudaMalloc(&b.j.bad, sizeof(unsigned)));
  FINE(cudaMemset(b.j.bad, 0, sizeof(unsigned)));
  b.j.salt = static_cast<uint64_t>(getpid()) * 0x9e3779b97f4a7c15ull;
  if (b.j.me == 0) {
    if (b.o.csv && !(b.csv = std::fopen(b.o.csv, "w"))) fail(b.o.csv, errno);
    heads(b, argv);
  }
  bool well = true;
  for (const measure &m : measures) {
    const bool chosen = b.o.names.empty() || std::count(b.o.names.begin(), b.o.names.end(), m.name);
    if (chosen) well = b.all_of(m) && well;
  }
  if (b.csv) std::fclose(b.csv);
  nvshmem_free(b.j.words);
  nvshmem_free(b.j.from);
  nvshmem_free(b.j.to);
  nvshmem_finalize();
  well = job_of.end() && well;
  return well ? 0 : 1;
}
