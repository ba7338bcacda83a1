//! libcu++ on the CPU: `cuda::atomic`, `atomic_ref`, barriers, latches and semaphores among threads of one
//! block and of several, copies, and `cuda::std`, beside serial models.

use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

const SOURCE: &str = r#"
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/semaphore>
#include <cuda/std/atomic>

/* Each thread folds its value into the cells; what fetch_add saw stays in `seen`. */
template <class T> __device__ void fold(T *cells, const T *in, T *seen) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::atomic_ref<T, cuda::thread_scope_device> sum(cells[0]), less(cells[1]), least(cells[2]), most(cells[3]);
  seen[i] = sum.fetch_add(in[i]);
  less -= in[i];
  least.fetch_min(in[i], cuda::memory_order_relaxed);
  most.fetch_max(in[i], cuda::std::memory_order_acq_rel);
  cuda::atomic_ref<T> by_loop(cells[4]);
  T old = by_loop.load(), wanted;
  do wanted = (T)(old + in[i]);
  while (!by_loop.compare_exchange_weak(old, wanted));
}
#define FOLD(name, T) \
  __global__ void name(T *cells, const T *in, T *seen) { fold(cells, in, seen); }
FOLD(fold_u8, unsigned char)
FOLD(fold_i16, short)
FOLD(fold_i32, int)
FOLD(fold_u64, unsigned long long)
FOLD(fold_f32, float)
FOLD(fold_f64, double)
__global__ void bits(unsigned *cells, const unsigned *in) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  auto *own = reinterpret_cast<cuda::atomic<unsigned, cuda::thread_scope_device> *>(cells);
  own[0] &= in[i];
  own[1] |= in[i];
  own[2] ^= in[i];
  own[3]++;
  --own[4];
  auto *pointer = reinterpret_cast<cuda::std::atomic<const unsigned *> *>(cells + 6);
  pointer->fetch_add(1);
}
/* A ring of blocks hands a number on, `rounds` times; each adds its own. */
__device__ cuda::atomic<unsigned, cuda::thread_scope_device> turn;
__global__ void ring(unsigned *data, unsigned rounds, const unsigned *in) {
  if (threadIdx.x != 0) return;
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned mine = round * gridDim.x + blockIdx.x;
    for (unsigned now; (now = turn.load(cuda::memory_order_acquire)) != mine;) turn.wait(now);
    *data = *data * 31 + in[blockIdx.x];
    turn.store(mine + 1, cuda::memory_order_release);
    turn.notify_all();
  }
}
struct counts {
  int *phases;
  __device__ void operator()() const { ++*phases; }
};
/* Threads pass values to the left by a barrier; from round i on, thread i alone is gone. */
__global__ void barriers(unsigned *out, const unsigned *in, unsigned rounds, int *phases) {
  __shared__ cuda::barrier<cuda::thread_scope_block, counts> meet;
  __shared__ unsigned values[2][64];
  const unsigned i = threadIdx.x, n = blockDim.x;
  if (i == 0) init(&meet, n, counts{phases + blockIdx.x});
  __syncthreads();
  unsigned value = in[blockIdx.x * n + i];
  for (unsigned round = 0; round < rounds; ++round) {
    values[round & 1][i] = value;
    if (round == i) {
      meet.arrive_and_drop();
      break;
    }
    if (round % 3 == 0) meet.arrive_and_wait();
    else if (round % 3 == 1) meet.wait(meet.arrive());
    else meet.wait(meet.arrive(1));
    value = values[round & 1][(i + 1) % n] * 3 + value;
  }
  out[blockIdx.x * n + i] = value;
}
/* A block copies in and out again, asynchronously. */
__global__ void copies(unsigned char *out, const unsigned char *in, unsigned bytes) {
  __shared__ unsigned char room[5000];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  const auto block = cooperative_groups::this_thread_block();
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  block.sync();
  cuda::memcpy_async(block, room, in, bytes, bar);
  (void)bar.arrive();
  bar.wait_parity(false);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = room[bytes - 1 - i];
}
/* Three at most are inside at once: `most` of them were. */
__global__ void inside(int *most) {
  __shared__ cuda::counting_semaphore<cuda::thread_scope_block, 3> room;
  __shared__ cuda::atomic<int, cuda::thread_scope_block> within;
  __shared__ cuda::latch<cuda::thread_scope_block> *all;
  alignas(8) __shared__ unsigned char place[sizeof(*all)];
  if (threadIdx.x == 0) {
    new (&room) cuda::counting_semaphore<cuda::thread_scope_block, 3>(3);
    within.store(0);
    all = new (place) cuda::latch<cuda::thread_scope_block>(blockDim.x);
  }
  __syncthreads();
  room.acquire();
  cuda::atomic_ref<int, cuda::thread_scope_block>(*most).fetch_max(++within);
  for (int i = 0; i < 40; ++i) __nanosleep(10);
  --within;
  room.release();
  all->arrive_and_wait();
  if (within != 0) *most = 1000;
}
"#;

/// What folds are checked with.
trait Number: Copy + PartialOrd + std::fmt::Debug + Default {
    const FROM: &'static str;
    fn of(x: u64) -> Self;
    fn sum(self, other: Self) -> Self;
    fn less(self, other: Self) -> Self;
}
macro_rules! numbers {
    ($($type:ty: $kernel:literal, $sum:expr, $less:expr, $of:expr;)*) => {
        $(impl Number for $type {
            const FROM: &'static str = $kernel;
            fn of(x: u64) -> Self { $of(x) }
            fn sum(self, other: Self) -> Self { $sum(self, other) }
            fn less(self, other: Self) -> Self { $less(self, other) }
        })*
    };
}
numbers! {
    u8: "fold_u8", u8::wrapping_add, u8::wrapping_sub, |x| x as u8;
    i16: "fold_i16", i16::wrapping_add, i16::wrapping_sub, |x| x as i16;
    i32: "fold_i32", i32::wrapping_add, i32::wrapping_sub, |x| x as i32;
    u64: "fold_u64", u64::wrapping_add, u64::wrapping_sub, |x| x;
    // Whole numbers whose sums a float holds exactly in whatever order.
    f32: "fold_f32", |a, b| a + b, |a, b| a - b, |x| f32::from(x as i16);
    f64: "fold_f64", |a, b| a + b, |a, b| a - b, |x| f64::from(x as i32);
}

fn folds<T: Number>(bench: &Bench, random: &mut Random) {
    let (grid, block) = (1 + random.below(4) as u32, 1 + random.below(100) as u32);
    let n = (grid * block) as usize;
    let input = random.list(n, T::of);
    let mut cells = [T::default(), T::default(), input[0], input[0], T::default()];
    let mut seen = vec![T::default(); n];
    let (to, from, saw) = (cells.as_mut_ptr(), input.as_ptr(), seen.as_mut_ptr());
    let kernel = bench.module(SOURCE).kernel(T::FROM).expect("defined");
    run(&kernel, &shape(grid, block), &[arg(&to), arg(&from), arg(&saw)]).expect("runs");
    let zero = T::default();
    let pick = |better: fn(&T, &T) -> bool| {
        input.iter().copied().fold(input[0], |a, b| if better(&b, &a) { b } else { a })
    };
    let sum = input.iter().fold(zero, |a, b| a.sum(*b));
    assert_eq!(
        cells,
        [sum, input.iter().fold(zero, |a, b| a.less(*b)), pick(|a, b| a < b), pick(|a, b| a > b), sum]
    );
    // The additions are one after another: each saw what another left, the first of them nothing.
    let mut left: Vec<T> = seen.iter().zip(&input).map(|(saw, added)| saw.sum(*added)).collect();
    left.push(zero);
    seen.push(sum);
    for list in [&mut left, &mut seen] {
        list.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    }
    assert_eq!(left, seen, "{}", T::FROM);
}

#[test]
fn atomics_lose_nothing() {
    let (bench, mut random) = (Bench::new(), Random::new());
    for _ in 0..3 {
        folds::<u8>(&bench, &mut random);
        folds::<i16>(&bench, &mut random);
        folds::<i32>(&bench, &mut random);
        folds::<u64>(&bench, &mut random);
        folds::<f32>(&bench, &mut random);
        folds::<f64>(&bench, &mut random);
    }
}

#[test]
fn atomics_of_bits_and_pointers() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let input = random.list(2 * 33, |x| (x | x >> 7 | 1 << 9) as u32);
    let mut cells = [u32::MAX, 0, 0, 0, 0, 0, 0, 0];
    let (to, from) = (cells.as_mut_ptr(), input.as_ptr());
    assert_eq!(to as usize % 4, 0);
    let mut aligned = [0u64; 4];
    // SAFETY: both have 32 bytes, and are apart.
    unsafe { std::ptr::copy_nonoverlapping(to.cast::<u8>(), aligned.as_mut_ptr().cast(), 32) };
    let to = aligned.as_mut_ptr();
    run(&bench.module(SOURCE).kernel("bits").expect("defined"), &shape(2, 33), &[arg(&to), arg(&from)])
        .expect("runs");
    let words: Vec<u32> = aligned.iter().flat_map(|x| [*x as u32, (*x >> 32) as u32]).collect();
    let fold = |start: u32, f: fn(u32, u32) -> u32| input.iter().fold(start, |a, b| f(a, *b));
    let want = [
        fold(u32::MAX, |a, b| a & b),
        fold(0, |a, b| a | b),
        fold(0, |a, b| a ^ b),
        66,
        0u32.wrapping_sub(66),
    ];
    assert_eq!(words[..5], want);
    assert_eq!(aligned[3], 66 * 4, "a pointer to words, moved by one each");
}

#[test]
fn blocks_hand_a_number_round() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let (blocks, rounds) = (2 + random.below(5) as u32, 1 + random.below(40) as u32);
    let input = random.list(blocks as usize, |x| x as u32);
    let mut data = 7u32;
    let (to, from) = (&raw mut data, input.as_ptr());
    let module = bench.module(SOURCE);
    run(&module.kernel("ring").expect("defined"), &shape(blocks, 32), &[arg(&to), arg(&rounds), arg(&from)])
        .expect("runs");
    let want = (0..rounds).flat_map(|_| &input).fold(7u32, |a, b| a.wrapping_mul(31).wrapping_add(*b));
    assert_eq!(data, want, "{blocks} blocks, {rounds} rounds");
}

#[test]
fn barriers_have_phases() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let kernel = bench.module(SOURCE).kernel("barriers").expect("defined");
    for _ in 0..6 {
        let (threads, blocks) = (1 + random.below(64) as u32, 1 + random.below(3) as u32);
        // Not more rounds than threads: one stays to the end.
        let rounds = random.below(u64::from(threads)) as u32;
        let input = random.list((threads * blocks) as usize, |x| x as u32);
        let (mut out, mut phases) = (vec![0u32; input.len()], vec![0i32; blocks as usize]);
        let (to, from, count) = (out.as_mut_ptr(), input.as_ptr(), phases.as_mut_ptr());
        run(&kernel, &shape(blocks, threads), &[arg(&to), arg(&from), arg(&rounds), arg(&count)])
            .expect("runs");
        for (b, own) in input.chunks(threads as usize).enumerate() {
            let n = threads as usize;
            let mut values = own.to_vec();
            // Who is gone left in its slot what it wrote last: slots alternate.
            let mut slots = [vec![0u32; n], vec![0u32; n]];
            for round in 0..rounds as usize {
                for i in (0..n).filter(|i| *i >= round) {
                    slots[round & 1][i] = values[i];
                }
                let before = slots[round & 1].clone();
                for i in (0..n).filter(|i| *i > round) {
                    values[i] = before[(i + 1) % n].wrapping_mul(3).wrapping_add(values[i]);
                }
            }
            assert_eq!(out[b * n..(b + 1) * n], values, "{threads} threads, {rounds} rounds");
        }
        assert_eq!(phases, vec![rounds as i32; blocks as usize], "the completion runs once a phase");
    }
}

#[test]
fn too_many_arrivals_are_named() {
    let bench = Bench::new();
    let module = bench.module(
        "#include <cuda/barrier>\n__global__ void k() {
           cuda::barrier<cuda::thread_scope_block> bar(1);
           (void)bar.arrive(2);
         }",
    );
    let result = run(&module.kernel("k").expect("defined"), &shape(1, 1), &[]);
    let (text, _) = rushmem_device_cpu_test_support::failure(result);
    assert!(text.contains("cuda::barrier: more arrivals"), "{text}");
}

#[test]
fn copies_of_a_group_are_whole() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let kernel = bench.module(SOURCE).kernel("copies").expect("defined");
    for bytes in [0, 1, 15, 16, 17, 5000, random.below(5000) as u32, random.below(500) as u32] {
        let input = random.list(5000, |x| x as u8);
        let mut out = vec![0u8; 5000];
        let (to, from, threads) = (out.as_mut_ptr(), input.as_ptr(), 1 + random.below(96) as u32);
        run(&kernel, &shape(1, threads), &[arg(&to), arg(&from), arg(&bytes)]).expect("runs");
        let mut want = input[..bytes as usize].to_vec();
        want.reverse();
        want.resize(5000, 0);
        assert!(out == want, "{bytes} bytes by {threads} threads");
    }
}

#[test]
fn a_semaphore_lets_so_many_in() {
    let bench = Bench::new();
    let mut most = 0i32;
    let to = &raw mut most;
    run(&bench.module(SOURCE).kernel("inside").expect("defined"), &shape(1, 40), &[arg(&to)]).expect("runs");
    assert_eq!(most, 3, "of 40 threads that nap inside");
}

/// What the headers of `cuda::std` have is what the standard's have; what C++17 lacks is our own.
#[test]
fn the_standard_library_in_cuda_std() {
    let bench = Bench::new();
    let module = bench.module(
        r#"
        #include <cuda/cmath>
        #include <cuda/functional>
        #include <cuda/std/algorithm>
        #include <cuda/std/array>
        #include <cuda/std/bit>
        #include <cuda/std/cassert>
        #include <cuda/std/cfloat>
        #include <cuda/std/chrono>
        #include <cuda/std/climits>
        #include <cuda/std/cmath>
        #include <cuda/std/complex>
        #include <cuda/std/cstddef>
        #include <cuda/std/cstdint>
        #include <cuda/std/cstdlib>
        #include <cuda/std/cstring>
        #include <cuda/std/functional>
        #include <cuda/std/initializer_list>
        #include <cuda/std/iterator>
        #include <cuda/std/limits>
        #include <cuda/std/memory>
        #include <cuda/std/numeric>
        #include <cuda/std/optional>
        #include <cuda/std/ratio>
        #include <cuda/std/span>
        #include <cuda/std/string_view>
        #include <cuda/std/tuple>
        #include <cuda/std/type_traits>
        #include <cuda/std/utility>
        #include <cuda/std/variant>
        #include <cuda/std/version>
        __device__ int total(cuda::std::span<const int> of) {
          int sum = 0;
          for (int x : of) sum += x;
          return sum;
        }
        __global__ void bits(const unsigned *in, int *out) {
          const unsigned x = in[threadIdx.x];
          int *to = out + 10 * threadIdx.x;
          to[0] = cuda::std::popcount(x);
          to[1] = cuda::std::countl_zero(x);
          to[2] = cuda::std::countr_zero(x);
          to[3] = (int)cuda::std::rotl(x, (int)(x % 40));
          to[4] = (int)cuda::std::bit_floor(x);
          to[5] = (int)cuda::std::bit_ceil((unsigned short)(x & 0x7fff));
          to[6] = cuda::std::bit_width((unsigned char)x);
          to[7] = cuda::std::has_single_bit(x);
          to[8] = (int)cuda::std::bit_cast<unsigned>(cuda::std::bit_cast<float>(x & 0x3fffffff));
          to[9] = (int)cuda::std::rotr((unsigned short)x, (int)(x % 20));
        }
        __global__ void rest(int *out) {
          cuda::std::array<int, 4> values = {4, 1, 3, 2};
          cuda::std::sort(values.begin(), values.end());
          out[0] = values[0] == 1 && values[3] == 4;
          out[1] = total(values) + total(cuda::std::span<int>(values.data(), 4).subspan(1, 2));
          cuda::std::optional<int> maybe;
          out[2] = maybe.value_or(7);
          const auto [a, b] = cuda::std::make_tuple(2, 3.5f);
          out[3] = a + (int)cuda::std::ceil(b);
          static_assert(cuda::std::is_same_v<cuda::std::remove_cv_t<const int>, int>);
          out[4] = cuda::std::numeric_limits<unsigned char>::max();
          out[5] = cuda::maximum<>{}(cuda::ceil_div(7, 2), cuda::minimum<int>{}(3, 9));
          out[6] = cuda::std::get<float>(cuda::std::variant<int, float>(6.0f));
          out[7] = (int)cuda::std::abs(cuda::std::complex<float>(3, 4));
        }
        "#,
    );
    let mut random = Random::new();
    let input: Vec<u32> = random.list(64, |x| match x % 4 {
        0 => 0,
        1 => 1 << (x >> 32 & 31),
        _ => (x >> 8) as u32,
    });
    let mut out = [[0u32; 10]; 64];
    let (from, to) = (input.as_ptr(), out.as_mut_ptr());
    run(&module.kernel("bits").expect("defined"), &shape(1, 64), &[arg(&from), arg(&to)]).expect("runs");
    for (x, got) in input.into_iter().zip(out) {
        let want = [
            x.count_ones(),
            x.leading_zeros(),
            x.trailing_zeros(),
            x.rotate_left(x % 40),
            x.checked_ilog2().map_or(0, |log| 1 << log),
            (x & 0x7fff).next_power_of_two(),
            8 - (x as u8).leading_zeros(),
            x.is_power_of_two().into(),
            x & 0x3fff_ffff,
            (x as u16).rotate_right(x % 20).into(),
        ];
        assert_eq!(got, want, "{x:#x}");
    }
    let mut out = [0i32; 8];
    let to = out.as_mut_ptr();
    run(&module.kernel("rest").expect("defined"), &shape(1, 1), &[arg(&to)]).expect("runs");
    assert_eq!(out, [1, 10 + 5, 7, 6, 255, 4, 6, 5]);
}
