/* What bench.cu is asked for. */
#ifndef NVSHMEM_BENCH_OPTIONS_H
#define NVSHMEM_BENCH_OPTIONS_H

#include <cstring>

#include "job.h"

struct options {
  std::vector<std::string> names;
  std::vector<uint64_t> sizes, blocks = {1, 4, 32, 132};
  const char *csv = nullptr;
  unsigned threads = 1024, pes = 2, budget_ms = 30, samples = 10, limit = 300;
  bool both = false, curves = false;
  unsigned turns = 0; /* beside rushmem-perf's kernels; 0: without them */
  unsigned again = 0; /* for rows whose two are apart then */
};

inline std::vector<uint64_t> numbers(const char *text) {
  std::vector<uint64_t> all;
  for (char *end; *text; text = *end == ',' ? end + 1 : end) {
    all.push_back(std::strtoull(text, &end, 0));
    if (end == text || (*end && *end != ',')) fail(text, 0);
  }
  if (all.empty()) fail("a number is missing", 0);
  return all;
}

/* `known` says whether a word is a measure's name. */
template <typename Known> options read(int argc, char **argv, Known known) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.compare(0, 2, "--") != 0) {
      if (!known(word)) fail(argv[i], 0);
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
    else if (word == "--both") o.both = !std::strcmp(argv[i], "yes");
    else if (word == "--curves") o.curves = !std::strcmp(argv[i], "yes");
    else if (word == "--beside-own") o.turns = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--again") o.again = static_cast<unsigned>(numbers(argv[i])[0]);
    else if (word == "--limit") o.limit = static_cast<unsigned>(numbers(argv[i])[0]);
    else fail(argv[i - 1], 0);
  }
#if !defined(RUSHMEM_NVSHMEM_NVSHMEM_H)
  if (o.turns) fail("--beside-own: built without rushmem's headers", 0);
#endif
  /* What is moved is words. */
  for (uint64_t bytes : o.sizes)
    if (bytes == 0 || bytes % 8) fail("sizes are multiples of 8", int(bytes));
  return o;
}

#endif
