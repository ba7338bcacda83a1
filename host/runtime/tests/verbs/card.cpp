/* The card itself: a thread that looks at doorbell registers, reads requests and carries them out. Another
 * process's memory is read and written by process_vm_readv and process_vm_writev. */
#include "stand_in.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

/* Bytes of this process, words of 8 in one piece where both sides are aligned. */
void copy_here(char *to, const char *from, size_t bytes) {
  std::atomic_thread_fence(std::memory_order_acq_rel);
  size_t i = 0;
  const auto words = (reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from));
  if (words % 8 == 0)
    for (; i + 8 <= bytes; i += 8)
      __atomic_store_n(reinterpret_cast<uint64_t *>(to + i), __atomic_load_n(reinterpret_cast<const uint64_t *>(from + i), __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  if (words % 4 == 0)
    for (; i + 4 <= bytes; i += 4)
      __atomic_store_n(reinterpret_cast<uint32_t *>(to + i), __atomic_load_n(reinterpret_cast<const uint32_t *>(from + i), __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  for (; i < bytes; ++i) to[i] = from[i];
  std::atomic_thread_fence(std::memory_order_acq_rel);
}

/* A place in a process's memory. */
struct place {
  uint64_t at;
  bool gpu;
};

/* Memory of a process. False: there is none such, or no such process, or it is a GPU's of another one. */
bool copy(int pid, place where, char *here, size_t bytes, bool write) {
  const uint64_t there = where.at;
  if (where.gpu) {
    const auto mine = reinterpret_cast<uint64_t>(here);
    if (pid != getpid()) tell(0x10a, "memory of a GPU in another process, which this stand-in does not reach");
    return pid == getpid() && copy_gpu(write ? there : mine, write ? mine : there, bytes, there);
  }
  if (pid == getpid()) {
    char *at = reinterpret_cast<char *>(there);
    write ? copy_here(at, here, bytes) : copy_here(here, at, bytes);
    return true;
  }
  iovec mine{here, bytes}, theirs{reinterpret_cast<void *>(there), bytes};
  const ssize_t moved = write ? process_vm_writev(pid, &mine, 1, &theirs, 1, 0) : process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
  return moved == ssize_t(bytes);
}

/* A syndrome; 0: done. */
using syndrome = uint8_t;

syndrome refuse(const object *of, uint8_t code, const std::string &why) {
  tell(code, "pair " + std::to_string(of->number) + ", request " + std::to_string(of->taken) + ": " + why);
  return code;
}

/* Where named bytes are in a process. False: nowhere; or it does not answer, as it and its pairs are gone. */
bool find(int pid, uint64_t at, uint32_t key, uint64_t address, uint64_t bytes, uint32_t access, place &where, bool &answers) {
  answers = true;
  region r;
  const uint32_t index = key >> 8;
  if (index >= regions) return false;
  const uint64_t entry = at + offsetof(table, all_regions) + index * sizeof(region);
  answers = copy(pid, {entry, false}, reinterpret_cast<char *>(&r), sizeof r, false);
  if (!answers) return false;
  if (key == 0 || r.key != key || (r.access & access) != access) return false;
  const uint64_t inside = address - r.iova;
  if (inside > r.bytes || bytes > r.bytes - inside) return false;
  where = {r.address + inside, r.gpu != 0};
  return true;
}

/* One card at a time, of all processes: by a lock on this library's file, which ends with its holder. */
class alone {
 public:
  alone() {
    static const int file = [] {
      Dl_info info;
      return dladdr(reinterpret_cast<const void *>(&shared), &info) ? open(info.dli_fname, O_RDONLY | O_CLOEXEC) : -1;
    }();
    file_ = file;
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0) {}
  }
  ~alone() {
    if (file_ >= 0) flock(file_, LOCK_UN);
  }

 private:
  int file_;
};

/* A word there is read, changed and written: whole to other cards, and to nobody else. */
syndrome update(object *of, uint8_t opcode, const unsigned char *block, int pid, uint64_t at, const peer_pair &peer) {
  mlx5_wqe_raddr_seg remote;
  memcpy(&remote, block + 16, sizeof remote);
  mlx5_wqe_atomic_seg operands;
  memcpy(&operands, block + 32, sizeof operands);
  mlx5_wqe_data_seg data;
  memcpy(&data, block + 48, sizeof data);
  if ((block[7] & 0x3f) != 4 || be32toh(data.byte_count) != 8) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, "the length of an atomic's answer");
  uint64_t mine;
  place local, where;
  int self;
  bool answers = true;
  unsigned char gid[16];
  make_gid(gid, false);
  read_gid(gid, self, mine);
  if (!find(self, mine, be32toh(data.lkey), be64toh(data.addr), 8, IBV_ACCESS_LOCAL_WRITE, local, answers))
    return refuse(of, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, "local memory that is not registered so");
  if (be64toh(remote.raddr) % 8 != 0) return refuse(of, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "an atomic on a word that is not aligned");
  if (!peer.atomics || !find(pid, at, be32toh(remote.rkey), be64toh(remote.raddr), 8, IBV_ACCESS_REMOTE_ATOMIC, where, answers))
    return refuse(of, answers ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
                  answers ? "remote memory that is not registered for atomics" : "the peer has died");
  alignas(8) uint64_t old, value = be64toh(operands.swap_add);
  {
    alone held;
    if (!copy(pid, where, reinterpret_cast<char *>(&old), 8, false)) return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
    if (opcode == MLX5_OPCODE_ATOMIC_FA) value += old;
    else if (old != be64toh(operands.compare)) value = old;
    if (!copy(pid, where, reinterpret_cast<char *>(&value), 8, true)) return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
  }
  return copy(self, local, reinterpret_cast<char *>(&old), 8, true) ? 0 : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
}

/* One request. */
syndrome carry_out(object *of, const unsigned char *block) {
  mlx5_wqe_ctrl_seg ctrl;
  memcpy(&ctrl, block, sizeof ctrl);
  const uint32_t head = be32toh(ctrl.opmod_idx_opcode), pair = be32toh(ctrl.qpn_ds);
  const uint8_t opcode = uint8_t(head);
  const uint32_t segments = pair & 0x3f;
  if (uint16_t(head >> 8) != uint16_t(of->taken)) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "its slot holds another, or none");
  if (head >> 24 != 0) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "a modifier");
  if (pair >> 8 != of->number) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "it names another pair");
  if (opcode == MLX5_OPCODE_NOP) return segments == 0 ? refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "nothing in it") : syndrome(0);
  const bool atomic = opcode == MLX5_OPCODE_ATOMIC_FA || opcode == MLX5_OPCODE_ATOMIC_CS;
  if (opcode != MLX5_OPCODE_RDMA_WRITE && opcode != MLX5_OPCODE_RDMA_READ && !atomic)
    return refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "opcode " + std::to_string(opcode));

  int pid;
  uint64_t at;
  if (!read_gid(of->gid, pid, at)) return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
  peer_pair peer;
  const uint64_t entry = at + offsetof(table, all_pairs) + (of->remote & 0xfff) * sizeof(peer_pair);
  if (!copy(pid, {entry, false}, reinterpret_cast<char *>(&peer), sizeof peer, false) || peer.number != of->remote ||
      peer.remote != of->number || (peer.state != rtr && peer.state != rts) || peer.next_receive != of->send_psn)
    return refuse(of, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, "the peer's pair does not answer");

  if (atomic) return update(of, opcode, block, pid, at, peer);
  const bool write = opcode == MLX5_OPCODE_RDMA_WRITE;
  mlx5_wqe_raddr_seg remote;
  memcpy(&remote, block + 16, sizeof remote);
  mlx5_wqe_data_seg data;
  memcpy(&data, block + 32, sizeof data);
  uint32_t bytes = be32toh(data.byte_count);
  std::vector<char> carried;
  place local = {0, false};
  bool answers = true;
  if (bytes & MLX5_INLINE_SEG) {
    bytes &= ~MLX5_INLINE_SEG;
    if (!write || bytes == 0 || bytes > 28 || segments != 2 + (4 + bytes + 15) / 16) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, "its data inside");
    carried.assign(block + 36, block + 36 + bytes);
  } else {
    if (segments != 3 || bytes == 0) return refuse(of, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, "its length");
    uint64_t mine;
    int self;
    unsigned char gid[16];
    make_gid(gid, false);
    read_gid(gid, self, mine);
    if (!find(self, mine, be32toh(data.lkey), be64toh(data.addr), bytes, write ? 0 : IBV_ACCESS_LOCAL_WRITE, local, answers))
      return refuse(of, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, "local memory that is not registered so");
    carried.resize(bytes);
    if (write && !copy(self, local, carried.data(), bytes, false)) return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  }
  place where = {0, false};
  const bool may = write ? peer.writes : peer.reads;
  if (!may || !find(pid, at, be32toh(remote.rkey), be64toh(remote.raddr), bytes, write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ, where, answers))
    return refuse(of, answers ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
                  answers ? "remote memory that is not registered so" : "the peer has died");
  if (write) {
    /* Words as they lie: the copy here keeps them whole where the target is aligned as the source was. */
    alignas(8) char small[32];
    char *from = carried.data();
    if (bytes <= sizeof small) memcpy(small, from, bytes), from = small;
    return copy(pid, where, from, bytes, true) ? 0 : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
  }
  if (!copy(pid, where, carried.data(), bytes, false)) return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
  return copy(getpid(), local, carried.data(), bytes, true) ? 0 : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
}

void complete(object *of, uint64_t index, uint8_t code) {
  object *cq = of->completions;
  union {
    mlx5_cqe64 done;
    mlx5_err_cqe failed;
    uint64_t words[8];
  } entry;
  memset(&entry, 0, sizeof entry);
  const uint8_t owner = cq->produced / cq->size & 1;
  if (code == 0) {
    entry.done.sop_drop_qpn = htobe32(of->number);
    entry.done.wqe_counter = htobe16(uint16_t(index));
    entry.done.op_own = uint8_t(MLX5_CQE_REQ << 4 | owner);
  } else {
    entry.failed.s_wqe_opcode_qpn = htobe32(of->number);
    entry.failed.wqe_counter = htobe16(uint16_t(index));
    entry.failed.syndrome = code;
    entry.failed.op_own = uint8_t(MLX5_CQE_REQ_ERR << 4 | owner);
  }
  auto *to = reinterpret_cast<uint64_t *>(cq->entries + (cq->collapsed ? 0 : cq->produced % cq->size * 64));
  ++cq->produced;
  for (int i = 0; i < 7; ++i) __atomic_store_n(to + i, entry.words[i], __ATOMIC_RELAXED);
  __atomic_store_n(to + 7, entry.words[7], __ATOMIC_RELEASE);
}

/* What the doorbell of a pair tells of. True: there was something. */
bool step(object *of) {
  auto *bell = static_cast<uint64_t *>(of->page->reg_addr);
  if (__atomic_load_n(bell, __ATOMIC_RELAXED) == 0) return false;
  const uint64_t rung = __atomic_exchange_n(bell, 0, __ATOMIC_ACQUIRE);
  uint32_t words[2];
  memcpy(words, &rung, 8);
  const uint32_t head = be32toh(words[0]), pair = be32toh(words[1]) >> 8;
  const uint32_t count = be32toh(__atomic_load_n(reinterpret_cast<uint32_t *>(of->record) + MLX5_SND_DBR, __ATOMIC_ACQUIRE));
  const uint16_t more = uint16_t(count - of->taken), ahead = uint16_t(count - 1 - (head >> 8));
  uint8_t code = 0;
  if (of->state != rts) {
    /* Before it sends, a pair hears no doorbell; after a failure it flushes. */
    if (of->state == err && more != 0) {
      of->taken += more;
      complete(of, of->taken - 1, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    }
    return true;
  }
  if (pair != of->number || count > 0xffff || more > of->count || ahead >= 0x8000)
    code = refuse(of, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "a doorbell that does not fit its record, " + std::to_string(count));
  for (const uint64_t end = of->taken + more; code == 0 && of->taken != end; ++of->taken) {
    auto *slot = reinterpret_cast<uint64_t *>(of->slots + of->taken % of->count * 64);
    alignas(8) unsigned char block[64];
    for (int i = 0; i < 8; ++i) {
      /* Poison shows who reads too early. */
      const uint64_t word = __atomic_exchange_n(slot + i, 0xdbdbdbdbdbdbdbdbull, __ATOMIC_RELAXED);
      memcpy(block + 8 * i, &word, 8);
    }
    code = carry_out(of, block);
    if (code == 0 && (block[11] & MLX5_WQE_CTRL_CQ_UPDATE)) complete(of, of->taken, 0);
    if (code != 0) break;
  }
  if (code != 0) {
    complete(of, of->taken, code);
    of->state = err;
    publish(of);
  }
  return true;
}

void run() {
  auto last = clock_type::now();
  for (;;) {
    bool worked = false;
    {
      std::lock_guard<std::mutex> hold(everything);
      for (object *of : objects)
        if (of->what == kind::qp) worked |= step(of);
    }
    const auto now = clock_type::now();
    if (worked) last = now;
    if (now - last < std::chrono::microseconds(100)) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(now - last < std::chrono::milliseconds(50) ? 50 : 500));
  }
}

}  // namespace

void start_card() {
  static const bool once = [] {
    std::thread(run).detach();
    return true;
  }();
  (void)once;
}
