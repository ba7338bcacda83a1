/* <cooperative_groups.h> for the CPU device: groups of a kernel's threads that synchronise and exchange
 * values (CUDA C++ Programming Guide, "Cooperative Groups"). What differs from a GPU:
 *   coalesced_threads() is the calling thread alone, as __activemask() is: every lane runs by itself.
 *   Tiles have 32 threads at most. A launch has no clusters: this_cluster() is the block.
 *   Every launch may call this_grid().sync() but one whose blocks take turns. */
#ifndef RUSHMEM_CPU_COOPERATIVE_GROUPS_H
#define RUSHMEM_CPU_COOPERATIVE_GROUPS_H

#include <string.h>
#include <type_traits>
#include <utility>

#include "rushmem_cpu/sync.h"
#include "rushmem_cpu/warp.h"

namespace cooperative_groups {
namespace rushmem_cpu_groups {

inline unsigned threads_of_block() {
  const dim3 &block = rushmem_cpu_self->block->block_dim;
  return block.x * block.y * block.z;
}
inline unsigned long long block_of_grid() {
  const rushmem_cpu_block &block = *rushmem_cpu_self->block;
  return block.block_idx.x +
         block.grid_dim.x * (block.block_idx.y + (unsigned long long)block.grid_dim.y * block.block_idx.z);
}
inline unsigned long long blocks_of_grid() {
  const dim3 &grid = rushmem_cpu_self->block->grid_dim;
  return (unsigned long long)grid.x * grid.y * grid.z;
}

/* All blocks of the launch: one word counts arrivals in its lower half and barriers in its upper one. */
inline void meet_blocks(const char *file, uint32_t line) {
  rushmem_cpu_barrier("grid_group::sync()", false, 0, file, line);
  const uint64_t blocks = blocks_of_grid();
  if (blocks > 1 && !rushmem_cpu_self->block->grid_barrier)
    rushmem_cpu_die("grid_group::sync(): the blocks of this launch take turns, so they cannot meet: launch no more than "
                    "max_blocks says, without in_turns");
  if (rushmem_cpu_self->linear == 0 && blocks > 1) {
    uint64_t *const arrived = rushmem_cpu_self->block->grid_barrier;
    const uint64_t barrier = __atomic_load_n(arrived, __ATOMIC_RELAXED) >> 32;
    const uint64_t now = __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    if ((now & 0xffffffffu) == blocks) {
      __atomic_store_n(arrived, (barrier + 1) << 32, __ATOMIC_RELEASE);
    } else {
      while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) >> 32 == barrier) rushmem_cpu_spin();
    }
    rushmem_cpu_woke();
  }
  rushmem_cpu_barrier("grid_group::sync()", false, 0, file, line);
}

/* Lanes of one warp: their mask, and one's place among them. */
struct lanes {
  unsigned mask;

  unsigned size() const { return (unsigned)__builtin_popcount(mask); }
  unsigned rank() const { return (unsigned)__builtin_popcount(mask & ((1u << rushmem_cpu_lane()) - 1u)); }
  /* The lane of that rank. */
  unsigned lane(unsigned rank) const {
    unsigned rest = mask;
    while (rank-- > 0 && rest) rest &= rest - 1;
    return rest ? (unsigned)__builtin_ctz(rest) : rushmem_cpu_lane();
  }
  /* Bits of lanes as bits of ranks. */
  unsigned ranks(unsigned bits) const {
    unsigned out = 0, rank = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1, ++rank)
      out |= (bits >> __builtin_ctz(rest) & 1u) << rank;
    return out;
  }
  /* What the thread of that rank hands in: any type that bytes make up, a word at a time. */
  template <class T> T take(const T &value, unsigned from, const char *file, uint32_t line) const {
    static_assert(std::is_trivially_copyable<T>::value, "groups exchange trivially copyable types");
    T out;
    for (size_t at = 0; at < sizeof(T); at += sizeof(uint64_t)) {
      const size_t bytes = sizeof(T) - at < sizeof(uint64_t) ? sizeof(T) - at : sizeof(uint64_t);
      uint64_t word = 0;
      memcpy(&word, (const char *)&value + at, bytes);
      word = __shfl_sync(mask, word, (int)lane(from), 32, file, line);
      memcpy((char *)&out + at, &word, bytes);
    }
    return out;
  }
};

enum class kind { block, lanes, grid };

}  // namespace rushmem_cpu_groups

/* Any group, as functions take it that work for every kind. */
class thread_group {
 public:
  unsigned long long num_threads() const {
    switch (kind_) {
      case rushmem_cpu_groups::kind::lanes: return lanes_.size();
      case rushmem_cpu_groups::kind::grid:
        return rushmem_cpu_groups::blocks_of_grid() * rushmem_cpu_groups::threads_of_block();
      default: return rushmem_cpu_groups::threads_of_block();
    }
  }
  unsigned long long size() const { return num_threads(); }
  unsigned long long thread_rank() const {
    switch (kind_) {
      case rushmem_cpu_groups::kind::lanes: return lanes_.rank();
      case rushmem_cpu_groups::kind::grid:
        return rushmem_cpu_groups::block_of_grid() * rushmem_cpu_groups::threads_of_block() +
               rushmem_cpu_self->linear;
      default: return rushmem_cpu_self->linear;
    }
  }
  void sync(RUSHMEM_CPU_HERE) const {
    switch (kind_) {
      case rushmem_cpu_groups::kind::lanes: __syncwarp(lanes_.mask, file, line); return;
      case rushmem_cpu_groups::kind::grid: rushmem_cpu_groups::meet_blocks(file, line); return;
      default: __syncthreads(file, line);
    }
  }
  bool is_valid() const {
    return kind_ != rushmem_cpu_groups::kind::grid || rushmem_cpu_self->block->grid_barrier != nullptr;
  }

 protected:
  thread_group(rushmem_cpu_groups::kind kind, unsigned mask) : kind_(kind), lanes_{mask} {}

  rushmem_cpu_groups::kind kind_;
  rushmem_cpu_groups::lanes lanes_;

  friend thread_group tiled_partition(const thread_group &, unsigned);
};

/* The block. */
class thread_block : public thread_group {
 public:
  /* Nothing is open between an arrival and its wait: the wait is the whole barrier. */
  struct arrival_token {};

  static unsigned size() { return rushmem_cpu_groups::threads_of_block(); }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return rushmem_cpu_self->linear; }
  static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
  static void sync(RUSHMEM_CPU_HERE) { __syncthreads(file, line); }
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token &&, RUSHMEM_CPU_HERE) { __syncthreads(file, line); }

 private:
  thread_block() : thread_group(rushmem_cpu_groups::kind::block, 0) {}
  friend thread_block this_thread_block();
};
inline thread_block this_thread_block() { return thread_block(); }

/* All blocks of the launch. */
class grid_group : public thread_group {
 public:
  struct arrival_token {};

  static unsigned long long num_blocks() { return rushmem_cpu_groups::blocks_of_grid(); }
  static unsigned long long block_rank() { return rushmem_cpu_groups::block_of_grid(); }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token &&, RUSHMEM_CPU_HERE) {
    rushmem_cpu_groups::meet_blocks(file, line);
  }

 private:
  grid_group() : thread_group(rushmem_cpu_groups::kind::grid, 0) {}
  friend grid_group this_grid();
};
inline grid_group this_grid() { return grid_group(); }

/* The cluster, which has one block. */
class cluster_group : public thread_group {
 public:
  struct arrival_token {};

  static unsigned num_blocks() { return 1; }
  static unsigned block_rank() { return 0; }
  static dim3 dim_blocks() { return dim3(1, 1, 1); }
  static dim3 block_index() { return dim3(0, 0, 0); }
  static dim3 dim_threads() { return blockDim; }
  static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(RUSHMEM_CPU_HERE) { __syncthreads(file, line); }
  static void barrier_wait(arrival_token &&, RUSHMEM_CPU_HERE) { __syncthreads(file, line); }
  template <class T> static T *map_shared_rank(T *at, int) { return at; }
  static unsigned query_shared_rank(const void *) { return 0; }

 private:
  cluster_group() : thread_group(rushmem_cpu_groups::kind::block, 0) {}
  friend cluster_group this_cluster();
};
inline cluster_group this_cluster() { return cluster_group(); }

namespace rushmem_cpu_groups {

/* What groups of lanes have in common. */
class lane_group : public thread_group {
 public:
  unsigned num_threads() const { return lanes_.size(); }
  unsigned size() const { return lanes_.size(); }
  unsigned thread_rank() const { return lanes_.rank(); }
  void sync(RUSHMEM_CPU_HERE) const { __syncwarp(lanes_.mask, file, line); }

  template <class T> T shfl(T value, int from, RUSHMEM_CPU_HERE) const {
    return lanes_.take(value, (unsigned)from % size(), file, line);
  }
  template <class T> T shfl_up(T value, unsigned delta, RUSHMEM_CPU_HERE) const {
    const unsigned rank = thread_rank();
    return lanes_.take(value, delta > rank ? rank : rank - delta, file, line);
  }
  template <class T> T shfl_down(T value, unsigned delta, RUSHMEM_CPU_HERE) const {
    const unsigned rank = thread_rank();
    return lanes_.take(value, delta >= size() - rank ? rank : rank + delta, file, line);
  }
  int any(int predicate, RUSHMEM_CPU_HERE) const { return __any_sync(lanes_.mask, predicate, file, line); }
  int all(int predicate, RUSHMEM_CPU_HERE) const { return __all_sync(lanes_.mask, predicate, file, line); }
  unsigned ballot(int predicate, RUSHMEM_CPU_HERE) const {
    return lanes_.ranks(__ballot_sync(lanes_.mask, predicate, file, line));
  }
  template <class T> unsigned match_any(T value, RUSHMEM_CPU_HERE) const {
    return lanes_.ranks(__match_any_sync(lanes_.mask, value, file, line));
  }
  template <class T> unsigned match_all(T value, int &predicate, RUSHMEM_CPU_HERE) const {
    return lanes_.ranks(__match_all_sync(lanes_.mask, value, &predicate, file, line));
  }
  /* The lanes, for what is made of them. */
  unsigned rushmem_cpu_mask() const { return lanes_.mask; }

 protected:
  explicit lane_group(unsigned mask) : thread_group(kind::lanes, mask) {}
};

/* The lanes of one tile of `threads` threads. */
inline unsigned tile_mask(unsigned threads) {
  const unsigned all = threads == 32 ? 0xffffffffu : (1u << threads) - 1u;
  return all << (rushmem_cpu_lane() & ~(threads - 1u));
}

}  // namespace rushmem_cpu_groups

/* Some threads of a warp. */
class coalesced_group : public rushmem_cpu_groups::lane_group {
 public:
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

 private:
  explicit coalesced_group(unsigned mask, unsigned meta_rank = 0, unsigned meta_size = 1)
      : lane_group(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}
  unsigned meta_rank_, meta_size_;

  friend coalesced_group coalesced_threads();
  friend coalesced_group tiled_partition(const coalesced_group &, unsigned);
  template <class G, class L> friend coalesced_group labeled_partition(const G &, L);
  template <class G> friend coalesced_group binary_partition(const G &, bool);
};

inline coalesced_group coalesced_threads() { return coalesced_group(1u << rushmem_cpu_lane()); }

/* A tile of 1, 2, 4, 8, 16 or 32 threads in a row. */
template <unsigned Size, class Parent = void>
class thread_block_tile : public rushmem_cpu_groups::lane_group {
  static_assert(Size >= 1 && (Size & (Size - 1)) == 0, "a tile's size is a power of two");
  static_assert(Size <= 32,
                "on the CPU device tiles have 32 threads at most: use the block and shared memory");

 public:
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned thread_rank() const { return rushmem_cpu_self->linear & (Size - 1); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }
  template <class T> T shfl_xor(T value, unsigned mask, RUSHMEM_CPU_HERE) const {
    const unsigned from = thread_rank() ^ mask;
    return lanes_.take(value, from < Size ? from : thread_rank(), file, line);
  }
  /* Of every tile; what it is a part of is known to the compiler alone. */
  operator thread_block_tile<Size, void>() const {
    return thread_block_tile<Size, void>(meta_rank_, meta_size_);
  }

 private:
  thread_block_tile(unsigned meta_rank, unsigned meta_size)
      : lane_group(rushmem_cpu_groups::tile_mask(Size)), meta_rank_(meta_rank), meta_size_(meta_size) {}
  unsigned meta_rank_, meta_size_;

  template <unsigned S, class P> friend class thread_block_tile;
  template <unsigned S, class P> friend thread_block_tile<S, P> tiled_partition(const P &);
};

/* Divides a block or a tile into tiles. */
template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent &parent) {
  const unsigned threads = (unsigned)parent.num_threads(), rank = (unsigned)parent.thread_rank();
  return thread_block_tile<Size, Parent>(rank / Size, (threads + Size - 1) / Size);
}
inline thread_group tiled_partition(const thread_group &parent, unsigned size) {
  if (parent.kind_ == rushmem_cpu_groups::kind::lanes) {
    /* Every `size` of its threads, by rank. */
    const unsigned rank = parent.lanes_.rank();
    unsigned mask = 0;
    for (unsigned r = rank / size * size; r < rank / size * size + size && r < parent.lanes_.size(); ++r)
      mask |= 1u << parent.lanes_.lane(r);
    return thread_group(rushmem_cpu_groups::kind::lanes, mask);
  }
  if (size == 0 || size > 32 || (size & (size - 1)) != 0)
    rushmem_cpu_die("tiled_partition(): a tile's size is a power of two up to 32");
  return thread_group(rushmem_cpu_groups::kind::lanes, rushmem_cpu_groups::tile_mask(size));
}
inline coalesced_group tiled_partition(const coalesced_group &parent, unsigned size) {
  const rushmem_cpu_groups::lanes all = {parent.rushmem_cpu_mask()};
  const unsigned rank = all.rank();
  unsigned mask = 0;
  for (unsigned r = rank / size * size; r < rank / size * size + size && r < all.size(); ++r)
    mask |= 1u << all.lane(r);
  return coalesced_group(mask, rank / size, (all.size() + size - 1) / size);
}

/* The threads of a group that have the same label. */
template <class Group, class Label>
inline coalesced_group labeled_partition(const Group &group, Label label) {
  static_assert(std::is_integral<Label>::value, "a label is an integer");
  const unsigned all = group.rushmem_cpu_mask(), own = __match_any_sync(all, label);
  /* Groups are numbered in the order of their lowest lanes. */
  const unsigned leaders = __ballot_sync(all, (int)rushmem_cpu_lane() == __builtin_ctz(own));
  const unsigned before = leaders & ((1u << __builtin_ctz(own)) - 1u);
  return coalesced_group(own, (unsigned)__builtin_popcount(before), (unsigned)__builtin_popcount(leaders));
}
template <class Group> inline coalesced_group binary_partition(const Group &group, bool predicate) {
  const unsigned all = group.rushmem_cpu_mask(), those = __ballot_sync(all, predicate);
  return coalesced_group(predicate ? those : all & ~those, predicate ? 1 : 0, 2);
}

/* The same as functions. */
template <class Group> inline void sync(const Group &group, RUSHMEM_CPU_HERE) { group.sync(file, line); }
template <class Group> inline auto thread_rank(const Group &group) { return group.thread_rank(); }
template <class Group> inline auto group_size(const Group &group) { return group.num_threads(); }

/* One thread of the group calls it; with `_broadcast`, all of them get what it gives. */
template <class Group, class F, class... A>
inline void invoke_one(const Group &group, F &&call, A &&...args) {
  if (group.thread_rank() == 0) std::forward<F>(call)(std::forward<A>(args)...);
}
template <class Group, class F, class... A>
inline auto invoke_one_broadcast(const Group &group, F &&call, A &&...args) {
  decltype(std::forward<F>(call)(std::forward<A>(args)...)) value{};
  if (group.thread_rank() == 0) value = std::forward<F>(call)(std::forward<A>(args)...);
  return group.shfl(value, 0);
}

}  // namespace cooperative_groups

#endif
