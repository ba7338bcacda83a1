//! Warp operations against a scalar model, over random masks, widths and lanes that have left.

use rushmem_device_cpu_test_support::{arg, run, shape, Bench, Random};

const SOURCE: &str = r#"
template <class T> __device__ void shuffles(unsigned mask, int width, const T *in, const int *by, T *out) {
  unsigned lane = threadIdx.x % 32;
  T v = in[threadIdx.x], *mine = out + 4 * threadIdx.x;
  if (!(mask >> lane & 1u)) return;
  mine[0] = __shfl_sync(mask, v, by[threadIdx.x], width);
  mine[1] = __shfl_up_sync(mask, v, (unsigned)by[blockDim.x], width);
  mine[2] = __shfl_down_sync(mask, v, (unsigned)by[blockDim.x], width);
  mine[3] = __shfl_xor_sync(mask, v, by[blockDim.x], width);
}
#define SHUFFLES(name, T)                                                                              \
  __global__ void name(unsigned mask, int width, const T *in, const int *by, T *out) {                 \
    shuffles(mask, width, in, by, out);                                                                \
  }
SHUFFLES(shuffle_i8, signed char)
SHUFFLES(shuffle_u16, unsigned short)
SHUFFLES(shuffle_i32, int)
SHUFFLES(shuffle_f32, float)
SHUFFLES(shuffle_u64, unsigned long long)
SHUFFLES(shuffle_f64, double)

__global__ void votes(unsigned mask, unsigned gone, const unsigned *in, unsigned *out) {
  unsigned lane = threadIdx.x % 32, v = in[threadIdx.x], *mine = out + 16 * threadIdx.x;
  if ((gone >> lane & 1u) || !(mask >> lane & 1u)) return;
  mine[0] = __ballot_sync(mask, v & 1);
  mine[1] = __any_sync(mask, (v & 6) == 6);
  mine[2] = __all_sync(mask, v & 24);
  mine[3] = __match_any_sync(mask, v % 3);
  int same;
  mine[4] = __match_all_sync(mask, (double)(v >> 31), &same);
  mine[5] = same;
  mine[6] = __reduce_add_sync(mask, v);
  mine[7] = (unsigned)__reduce_add_sync(mask, (int)v);
  mine[8] = __reduce_min_sync(mask, v);
  mine[9] = (unsigned)__reduce_min_sync(mask, (int)v);
  mine[10] = __reduce_max_sync(mask, v);
  mine[11] = (unsigned)__reduce_max_sync(mask, (int)v);
  mine[12] = __reduce_and_sync(mask, v);
  mine[13] = __reduce_or_sync(mask, v);
  mine[14] = __reduce_xor_sync(mask, v);
  mine[15] = __activemask();
}

// Each half of each warp goes its own way, one much longer than the other, and they meet in the end.
__global__ void halves(const unsigned *in, unsigned *out) {
  unsigned lane = threadIdx.x % 32, sum = 0;
  if (lane < 16) {
    for (int round = 0; round < 50; ++round) sum += __shfl_xor_sync(0x0000ffffu, in[threadIdx.x] + round, round % 16);
  } else {
    sum = __reduce_add_sync(0xffff0000u, in[threadIdx.x]);
  }
  __syncwarp();
  out[threadIdx.x] = __shfl_sync(0xffffffffu, sum, 31 - (int)lane);
}
"#;

/// What PTX says of `shfl.sync`, for one warp of `lanes` values. `None`: undefined, as the source takes no
/// part.
fn shuffle(kind: usize, lane: u32, by: i32, width: u32, mask: u32, lanes: usize) -> Option<usize> {
    let segment = lane & !(width - 1);
    let last = segment + width - 1;
    let source = match kind {
        0 => segment + by.rem_euclid(width as i32) as u32,
        1 if lane >= segment + by as u32 => lane - by as u32,
        2 if lane + by as u32 <= last => lane + by as u32,
        3 if (lane ^ by as u32) <= last => lane ^ by as u32,
        _ => lane,
    };
    (mask >> source & 1 == 1 && (source as usize) < lanes).then_some(source as usize)
}

fn check_shuffles<T: Copy + PartialEq + std::fmt::Debug>(name: &str, bench: &Bench, make: impl Fn(u64) -> T) {
    let module = bench.module(SOURCE);
    let kernel = module.kernel(name).expect("defined");
    let mut random = Random::new();
    for round in 0..30 {
        let threads = 1 + random.below(100) as usize;
        let mask = if round % 3 == 0 { u32::MAX } else { random.next() as u32 };
        let width = 1u32 << random.below(6);
        let input = random.list(threads, &make);
        let mut by: Vec<i32> = random.list(threads, |bits| (bits % 64) as i32);
        by.push(random.below(32) as i32);
        let nothing = make(0);
        let mut out = vec![nothing; 4 * threads];
        let (from, lanes, to) = (input.as_ptr(), by.as_ptr(), out.as_mut_ptr());
        let args = [arg(&mask), arg(&width), arg(&from), arg(&lanes), arg(&to)];
        run(&kernel, &shape(1, threads as u32), &args).expect("runs");
        for thread in 0..threads {
            let (warp, lane) = (thread / 32 * 32, thread as u32 % 32);
            for kind in 0..4 {
                let got = out[4 * thread + kind];
                if mask >> lane & 1 == 0 {
                    assert_eq!(got, nothing);
                    continue;
                }
                let offset = if kind == 0 { by[thread] } else { by[threads] };
                if let Some(source) = shuffle(kind, lane, offset, width, mask, threads - warp) {
                    let place = format!(
                        "{name} kind {kind} thread {thread} by {offset} width {width} mask {mask:#x}"
                    );
                    assert_eq!(got, input[warp + source], "{place}");
                }
            }
        }
    }
}

#[test]
fn shuffles_of_every_size() {
    let bench = Bench::new();
    check_shuffles("shuffle_i8", &bench, |bits| bits as i8);
    check_shuffles("shuffle_u16", &bench, |bits| bits as u16);
    check_shuffles("shuffle_i32", &bench, |bits| bits as i32);
    check_shuffles("shuffle_f32", &bench, |bits| (bits >> 40) as f32);
    check_shuffles("shuffle_u64", &bench, |bits| bits);
    check_shuffles("shuffle_f64", &bench, |bits| bits as f64);
}

#[test]
fn votes_matches_and_reductions() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let kernel = module.kernel("votes").expect("defined");
    let mut random = Random::new();
    for round in 0..60 {
        let threads = 1 + random.below(130) as usize;
        let mask = if round % 4 == 0 { u32::MAX } else { random.next() as u32 | random.next() as u32 };
        let gone = if round % 3 == 0 { 0 } else { random.next() as u32 & random.next() as u32 };
        let bits = if round % 5 == 0 { 3 } else { u32::MAX };
        let input = random.list(threads, |value| (value >> 20) as u32 & bits);
        let mut out = vec![7u32; 16 * threads];
        let (from, to) = (input.as_ptr(), out.as_mut_ptr());
        run(&kernel, &shape(1, threads as u32), &[arg(&mask), arg(&gone), arg(&from), arg(&to)])
            .expect("runs");
        for (warp, values) in input.chunks(32).enumerate() {
            let lanes: Vec<u32> =
                (0..values.len() as u32).filter(|lane| (mask & !gone) >> lane & 1 == 1).collect();
            let of = |lane: &u32| values[*lane as usize];
            let bits = |test: &dyn Fn(u32) -> bool| {
                lanes.iter().filter(|lane| test(of(lane))).fold(0u32, |all, lane| all | 1 << lane)
            };
            let all = bits(&|_| true);
            let same = lanes.iter().all(|lane| of(lane) >> 31 == of(&lanes[0]) >> 31);
            for lane in &lanes {
                let mine = of(lane);
                let signed = || lanes.iter().map(|lane| of(lane) as i32);
                let plain = || lanes.iter().map(of);
                let expected = [
                    bits(&|v| v & 1 == 1),
                    u32::from(bits(&|v| v & 6 == 6) != 0),
                    u32::from(bits(&|v| v & 24 != 0) == all),
                    bits(&|v| v % 3 == mine % 3),
                    if same { all } else { 0 },
                    u32::from(same),
                    plain().fold(0, u32::wrapping_add),
                    plain().fold(0, u32::wrapping_add),
                    plain().min().expect("some"),
                    signed().min().expect("some") as u32,
                    plain().max().expect("some"),
                    signed().max().expect("some") as u32,
                    plain().fold(u32::MAX, |a, b| a & b),
                    plain().fold(0, |a, b| a | b),
                    plain().fold(0, |a, b| a ^ b),
                    1 << lane,
                ];
                let at = 16 * (32 * warp + *lane as usize);
                assert_eq!(
                    out[at..at + 16],
                    expected,
                    "lane {lane} of warp {warp}, mask {mask:#x}, gone {gone:#x}"
                );
            }
        }
    }
}

#[test]
fn halves_of_a_warp_go_their_own_ways() {
    let bench = Bench::new();
    let module = bench.module(SOURCE);
    let mut random = Random::new();
    let input = random.list(64, |bits| bits as u32);
    let mut out = vec![0u32; 64];
    let (from, to) = (input.as_ptr(), out.as_mut_ptr());
    run(&module.kernel("halves").expect("defined"), &shape(1, 64), &[arg(&from), arg(&to)]).expect("runs");
    for (warp, values) in input.chunks(32).enumerate() {
        for lane in 0..32 {
            let source = 31 - lane;
            let expected = if source < 16 {
                (0..50u32).fold(0u32, |sum, round| {
                    sum.wrapping_add(values[source ^ (round % 16) as usize].wrapping_add(round))
                })
            } else {
                values[16..].iter().fold(0u32, |sum, &v| sum.wrapping_add(v))
            };
            assert_eq!(out[32 * warp + lane], expected, "lane {lane}");
        }
    }
}
