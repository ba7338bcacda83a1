/* A stand-in for libibverbs.so.1 and libmlx5.so.1, for tests: cards that are a thread of the process. It
 * checks each call and each command to the firmware, carries out what is written to queues between PEs of
 * one host, and knows nothing of what writes them. Written from rdma-core's headers, against which it is
 * compiled, and the published layouts of commands (Linux' mlx5_ifc.h, DPDK's mlx5_prm.h), apart from the
 * writer.
 *
 * verbs.cpp has devices, domains, memory; firmware.cpp the commands; card.cpp carries requests out, gpu.cpp
 * on a GPU's memory. */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

struct model : ibv_device {
  bool mlx5, devx, ethernet, v2;
  bool atomics; /* fetch-and-add and compare-and-swap of 8 bytes */
  int active_port; /* 0: none */
  int ports;
  int pairs; /* as many as its firmware has; then no more */
};

/* What other processes read of this one: plain words. */
struct region {
  uint32_t key, access; /* key 0: none */
  uint64_t iova, bytes, address, gpu;
};
struct peer_pair {
  uint32_t number, state, remote, reads, writes, atomics, next_receive;
};
constexpr int regions = 1024, pairs = 4096;
struct table {
  alignas(4096) region all_regions[regions];
  peer_pair all_pairs[pairs];
};
extern table shared;

struct umem : mlx5dv_devx_umem {
  struct context *owner;
  char *start;
  size_t bytes;
  int users;
};
struct uar : mlx5dv_devx_uar {
  struct context *owner;
  int users;
};
struct domain : ibv_pd {
  uint32_t number;
  int users;
};
struct memory_region : ibv_mr {
  void *mapped; /* a descriptor's pages, where it was one */
  size_t mapped_bytes;
};

enum class kind { cq, qp };
struct object {
  context *owner;
  kind what;
  uint32_t number;
  umem *memory;
  uar *page;
  int users; /* of a completion queue: pairs */
  char *record;
  /* A completion queue. */
  char *entries;
  uint32_t size, produced;
  bool collapsed;
  /* A pair. */
  object *completions;
  domain *pd;
  char *slots;
  uint32_t count, state, remote, send_psn;
  uint64_t taken;
  bool failed;
  unsigned char gid[16];
  peer_pair *seen; /* by others */
};

struct context : ibv_context {
  model *card;
  std::set<void *> alive; /* what was made of it, and is not freed; and of that: */
  std::set<umem *> umems;
  std::set<uar *> uars;
  std::set<domain *> domains;
};

extern std::mutex everything;
extern std::set<object *> &objects;

/* Notes what was wrong. `code` tells checks apart, as a syndrome. */
void tell(uint32_t code, const std::string &text);

constexpr uint32_t rst = 0, init = 1, rtr = 2, rts = 3, err = 6;

/* Of a GID: which process's table. And the MAC that the network finds for it. */
void make_gid(unsigned char gid[16], bool v2);
bool read_gid(const unsigned char gid[16], int &pid, uint64_t &at);
void mac_of(const unsigned char gid[16], unsigned char mac[6]);

/* Whether the address is a GPU's; and a copy to or from such memory. */
bool is_gpu(uint64_t at);
bool copy_gpu(uint64_t to, uint64_t from, size_t bytes, uint64_t of_gpu);

/* Begins the thread, once. */
void start_card();
/* A pair's state as others see it. */
void publish(object *pair);

/* The firmware: a status, and a syndrome. */
struct verdict {
  uint8_t status;
  uint32_t syndrome;
};
verdict create(context *owner, const void *in, size_t bytes, object *&made);
verdict modify(object *pair, const void *in, size_t bytes);

#endif
