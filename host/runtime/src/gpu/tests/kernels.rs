//! Kernels: compiled, loaded, described, launched, refused. They need NVRTC beside the GPU.

use std::ffi::c_void;

use super::*;
use crate::gpu::compile::Compiler;
use crate::gpu::launch::Shape;
use crate::gpu::module::{Kernel, Module};
use crate::kernel::headers::DEVICE_HEADERS;
use rushmem_abi::c::*;

/// Compiles and loads a source for a test's GPU, or `None` after saying why not.
pub(super) fn load(test: &str, t: &Turn, source: &str, options: &[&str]) -> Option<Arc<Module>> {
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler {
        nvrtc: std::env::var_os("RUSHMEM_NVRTC").map(Into::into),
        nvjitlink: std::env::var_os("RUSHMEM_NVJITLINK").map(Into::into),
        cache_dir: Some(cache.path().join("cache")),
        capability: t.cuda.facts().capability,
        options: options.iter().map(|option| option.to_string()).collect(),
        headers: DEVICE_HEADERS,
    };
    match compiler.compile("test.cu", source) {
        Ok(cubin) => Some(Module::load(&t.cuda, None, "test.cu", &cubin.code, &cubin.instances).unwrap()),
        Err(e) if e.code == code::UNSUPPORTED => {
            eprintln!("SKIP {test}: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A plain shape.
pub(super) fn shape(grid: u32, block: u32) -> Shape {
    Shape {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared: 0,
        cooperative: false,
        cluster: None,
        early: false,
    }
}

/// `arg(&value)`: where an argument's value is.
pub(super) fn arg<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

pub(in crate::gpu) const SOURCE: &str = r#"
struct Pair { int a; double b; };
template <class T> __global__ void scale(T *at, T by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) at[i] = at[i] * by;
}
namespace deep { namespace er {
__global__ void mix(unsigned long long *out, unsigned char a, Pair b, const float *c, bool d) {
  *out = a + 1000ull * b.a + 1000000ull * (unsigned long long)b.b + (unsigned long long)*c * 1000000000ull + (d ? 5 : 0);
}
} }
extern "C" __global__ void plain(int *at, int n) { for (int i = 0; i < n; ++i) at[i] = i * i; }

__device__ unsigned int arrived;
__global__ void meet(unsigned int *all) {
  if (threadIdx.x == 0) {
    atomicAdd(&arrived, 1);
    while (*(volatile unsigned int *)&arrived < gridDim.x) {}
    atomicAdd(all, 1);
  }
  __syncthreads();
}
__global__ void __launch_bounds__(256) bounded() {}
__global__ void shared(unsigned int *out, int words) {
  extern __shared__ unsigned int mine[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) mine[i] = i * 3 + blockIdx.x;
  __syncthreads();
  unsigned int sum = 0;
  for (int i = threadIdx.x; i < words; i += blockDim.x) sum += mine[words - 1 - i];
  atomicAdd(out + blockIdx.x, sum);
}
__global__ void ranks(unsigned int *out) {
  unsigned int rank = 0, size = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = rank * 100 + size;
}
"#;

fn kernel(module: &Arc<Module>, name: &str) -> Kernel {
    module.kernel(name).unwrap_or_else(|| panic!("{name} of {:?}", module.kernel_names().collect::<Vec<_>>()))
}

#[test]
fn kernels_are_found_and_described() {
    let name = "kernels_are_found_and_described";
    let Some(t) = turn(name) else { return };
    let options = ["--kernel=scale<float>", "--kernel=scale<unsigned long>"];
    let Some(module) = load(name, &t, SOURCE, &options) else { return };
    let names: Vec<_> = module.kernel_names().collect();
    let expected = [
        "bounded",
        "deep::er::mix",
        "meet",
        "plain",
        "ranks",
        "scale<float>",
        "scale<unsigned long>",
        "shared",
    ];
    assert_eq!(names, expected);
    assert!(module.kernel("mix").is_some() && module.kernel("er::mix").is_some());
    assert!(module.kernel("::deep::er::mix").is_some() && module.kernel("scale< float >").is_some());
    assert!(module.kernel("_Z5scaleIfEvPT_S0_i").is_some());
    for absent in ["ix", "scale", "scale<double>", "", "::"] {
        assert!(module.kernel(absent).is_none(), "{absent}");
    }
    assert_eq!(module.name(), "test.cu");
    let kinds = |name: &str| -> Vec<_> {
        kernel(&module, name)
            .params()
            .iter()
            .map(|p| (p.kind, p.size, p.pointee_kind, p.pointee_size))
            .collect()
    };
    let (p, u, f, x) = (RUSHMEM_ARG_POINTER, RUSHMEM_ARG_UINT, RUSHMEM_ARG_FLOAT, RUSHMEM_ARG_UNKNOWN);
    assert_eq!(kinds("mix"), [(p, 8, u, 8), (u, 1, x, 0), (x, 16, x, 0), (p, 8, f, 4), (u, 1, x, 0)]);
    assert_eq!(kinds("scale<float>"), [(p, 8, f, 4), (f, 4, x, 0), (RUSHMEM_ARG_INT, 4, x, 0)]);
    let int = RUSHMEM_ARG_INT;
    assert_eq!(kinds("plain"), [(p, 8, int, 4), (int, 4, x, 0)], "extern \"C\", known by its signature");
    assert_eq!(kinds("bounded"), []);
    assert_eq!(kernel(&module, "mix").layout(), [(0, 8), (8, 1), (16, 16), (32, 8), (40, 1)]);
}

#[test]
fn launches_compute() {
    let name = "launches_compute";
    let Some(mut t) = turn(name) else { return };
    let Some(module) = load(name, &t, SOURCE, &["--kernel=scale<float>"]) else { return };
    let memory = t.memory(1 << 20);
    let n = 1 + t.random.below(100_000);
    let values: Vec<f32> = (0..n).map(|_| t.random.below(1 << 20) as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    t.write(memory.base(), &bytes);
    let (at, by, count) = (memory.base() as u64, 1.5f32, n as i32);
    let scale = kernel(&module, "scale<float>");
    // SAFETY: arguments of the parameters' types; waited for by `read`.
    unsafe {
        scale.launch(&shape(n.div_ceil(256) as u32, 256), &[arg(&at), arg(&by), arg(&count)], &t.stream)
    }
    .unwrap();
    let expected: Vec<u8> = values.iter().flat_map(|v| (v * 1.5).to_le_bytes()).collect();
    assert!(t.read(memory.base(), bytes.len()) == expected);

    #[repr(C)]
    struct Pair(i32, f64);
    t.write(memory.base() + 64, &7f32.to_le_bytes());
    let (a, b, c, d) = (200u8, Pair(3, 4.0), memory.base() as u64 + 64, true);
    let mix = kernel(&module, "mix");
    // SAFETY: arguments of the parameters' types; waited for by `read`.
    unsafe { mix.launch(&shape(1, 1), &[arg(&at), arg(&a), arg(&b), arg(&c), arg(&d)], &t.stream) }.unwrap();
    assert_eq!(t.read(memory.base(), 8), (200 + 3000 + 4_000_000 + 7_000_000_000u64 + 5).to_le_bytes());
}

/// One kernel waits for what another one does, whose stack is larger than any before.
const STACKED: &str = r#"
__device__ unsigned long long now() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
extern "C" __global__ void waits(volatile unsigned int *flag, unsigned int *saw) {
  const unsigned long long begin = now();
  while (*flag == 0 && now() - begin < 5000000000ull) {}
  *saw = *flag;
}
extern "C" __global__ void stacked(unsigned int *flag, unsigned int *out, int n) {
  unsigned int room[1500];
  for (int i = 0; i < 1500; ++i) room[i] = i * n;
  unsigned int sum = 0;
  for (int i = 0; i < n; ++i) sum += room[(i * 7919u + n) % 1500u];
  *out = sum;
  __threadfence();
  *(volatile unsigned int *)flag = 1;
}
"#;

#[test]
fn a_launch_with_a_larger_stack_waits_for_no_kernel() {
    let name = "a_launch_with_a_larger_stack_waits_for_no_kernel";
    let Some(mut t) = turn(name) else { return };
    let Some(module) = load(name, &t, STACKED, &[]) else { return };
    let memory = t.memory(1 << 20);
    t.write(memory.base(), &[0; 12]);
    let (flag, saw, out) = (memory.base() as u64, memory.base() as u64 + 4, memory.base() as u64 + 8);
    let n = 1 + t.random.below(1000) as i32;
    let other = Stream::new(&t.cuda, Priority::Normal).unwrap();
    let (waits, stacked) = (kernel(&module, "waits"), kernel(&module, "stacked"));
    // SAFETY: arguments of the parameters' types; waited for by `read`.
    unsafe { waits.launch(&shape(1, 1), &[arg(&flag), arg(&saw)], &t.stream) }.unwrap();
    // SAFETY: arguments of the parameters' types; waited for by `finish`.
    unsafe { stacked.launch(&shape(1, 1), &[arg(&flag), arg(&out), arg(&n)], &other) }.unwrap();
    other.finish().unwrap();
    let found = t.read(memory.base(), 12);
    let sum = (0..n as u32).map(|i| (i * 7919 + n as u32) % 1500 * n as u32).fold(0, u32::wrapping_add);
    let word = |at: usize| u32::from_le_bytes(found[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(8)), (1, sum));
    assert_eq!(word(4), 1, "the launch was held back until the kernel that waits for it had given up");
}

#[test]
fn launches_that_cannot_be_are_refused() {
    let name = "launches_that_cannot_be_are_refused";
    let Some(t) = turn(name) else { return };
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    let (plain, bounded) = (kernel(&module, "plain"), kernel(&module, "bounded"));
    let at = 0u64;
    // SAFETY: all are refused.
    let refused = |kernel: &Kernel, shape: Shape, args: &[*const c_void]| unsafe {
        kernel.launch(&shape, args, &t.stream).unwrap_err()
    };
    let e = refused(&plain, shape(1, 1), &[arg(&at)]);
    assert_eq!((e.code, e.message.as_str()), (code::LAUNCH, "kernel `plain` takes 2 arguments, got 1"));
    let e = refused(&plain, shape(1, 1), &[arg(&at), std::ptr::null()]);
    assert_eq!(e.code, code::INVALID_ARGUMENT);
    for odd in
        [shape(0, 1), shape(1, 0), shape(1, 257), shape(1, 1025), Shape { block: [16, 16, 2], ..shape(1, 1) }]
    {
        assert_eq!(refused(&bounded, odd, &[]).code, code::LAUNCH, "{odd:?}");
    }
    let most = t.cuda.facts().shared_most;
    let e = refused(&bounded, Shape { shared: most + 1, ..shape(1, 1) }, &[]);
    assert!(e.code == code::LAUNCH && e.message.contains(&most.to_string()), "{e}");
    assert!(refused(&bounded, Shape { grid: [1, 70_000, 1], ..shape(1, 1) }, &[])
        .message
        .contains("cuLaunchKernelEx"));
    // Nothing of this harmed.
    // SAFETY: no parameters.
    unsafe { bounded.launch(&shape(1, 256), &[], &t.stream) }.unwrap();
    t.finish();
}

#[test]
fn collective_launches_are_resident_or_refused() {
    let name = "collective_launches_are_resident_or_refused";
    let Some(t) = turn(name) else { return };
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    let meet = kernel(&module, "meet");
    let memory = t.memory(8);
    let most = meet.max_blocks([256, 1, 1], 0, None).unwrap();
    assert!(most >= u64::from(t.cuda.facts().sms) && most < 1 << 20);
    assert_eq!(meet.max_blocks([0, 1, 1], 0, None).unwrap(), 0);
    assert_eq!(meet.max_blocks([2000, 1, 1], 0, None).unwrap(), 0);
    assert_eq!(meet.max_blocks([1, 1, 1], 1 << 30, None).unwrap(), 0);
    let at = memory.base() as u64;
    let collective = |blocks: u64| Shape { cooperative: true, ..shape(blocks as u32, 256) };
    // SAFETY: refused before it starts.
    let e = unsafe { meet.launch(&collective(most + 1), &[arg(&at)], &t.stream) }.unwrap_err();
    assert_eq!(e.code, code::LAUNCH);
    assert!(
        e.message.contains(&format!("{} blocks", most + 1))
            && e.message.contains(&format!("{most} resident")),
        "{e}"
    );
    t.write(memory.base(), &[0; 8]);
    // Each block waits for all others.
    // SAFETY: the argument's type is the parameter's; `read` waits.
    unsafe { meet.launch(&collective(most), &[arg(&at)], &t.stream) }.unwrap();
    assert_eq!(t.read(memory.base(), 4), (most as u32).to_le_bytes());
}

#[test]
fn much_shared_memory() {
    let name = "much_shared_memory";
    let Some(t) = turn(name) else { return };
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    let (shared, memory) = (kernel(&module, "shared"), t.memory(64));
    let facts = t.cuda.facts();
    let at = memory.base() as u64;
    for bytes in [4, facts.shared_default, facts.shared_default + 4, facts.shared_most] {
        let words = (bytes / 4) as u32;
        t.write(memory.base(), &[0; 64]);
        let shape = Shape { shared: bytes, ..shape(3, 128) };
        // SAFETY: arguments of the parameters' types; `read` waits.
        unsafe { shared.launch(&shape, &[arg(&at), arg(&words)], &t.stream) }.unwrap();
        let sums = t.read(memory.base(), 12);
        for block in 0..3u32 {
            let expected = (0..words).fold(0u32, |sum, i| sum.wrapping_add(i * 3 + block));
            assert_eq!(
                sums[4 * block as usize..][..4],
                expected.to_le_bytes(),
                "{bytes} bytes, block {block}"
            );
        }
    }
    let one = shared.max_blocks([128, 1, 1], facts.shared_most, None).unwrap();
    assert_eq!(one, u64::from(facts.sms));
}

#[test]
fn clusters() {
    let name = "clusters";
    let Some(t) = turn(name) else { return };
    if !t.cuda.facts().clusters {
        eprintln!("SKIP {name}: {} has none", t.cuda);
        return;
    }
    let Some(module) = load(name, &t, SOURCE, &[]) else { return };
    let (ranks, memory) = (kernel(&module, "ranks"), t.memory(4 * 64));
    let at = memory.base() as u64;
    for (size, cooperative) in [(1u32, false), (2, false), (8, false), (4, true), (16, false)] {
        let cluster = [size, 1, 1];
        let most = ranks.max_blocks([64, 1, 1], 0, Some(cluster)).unwrap();
        eprintln!("clusters of {size}: {most} blocks resident on {}", t.cuda);
        assert!(most >= u64::from(size) && most % u64::from(size) == 0);
        let shape = Shape { cluster: Some(cluster), cooperative, ..shape(32, 64) };
        // SAFETY: the argument's type is the parameter's; `read` waits.
        unsafe { ranks.launch(&shape, &[arg(&at)], &t.stream) }.unwrap();
        let expected: Vec<u8> = (0..32u32).flat_map(|i| (i % size * 100 + size).to_le_bytes()).collect();
        assert_eq!(t.read(memory.base(), 128), expected, "{size}");
    }
    for odd in [[0, 1, 1], [17, 1, 1], [3, 1, 1]] {
        let shape = Shape { cluster: Some(odd), ..shape(32, 64) };
        // SAFETY: refused.
        assert!(unsafe { ranks.launch(&shape, &[arg(&at)], &t.stream) }.is_err(), "{odd:?}");
    }
}

#[test]
fn code_that_does_not_fit() {
    let name = "code_that_does_not_fit";
    let Some(t) = turn(name) else { return };
    let e = Module::load(&t.cuda, None, "rubbish", b"no code at all", &[]).unwrap_err();
    assert!(e.code == code::COMPILE && e.message.starts_with("rubbish"), "{e}");
    let ptx = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
    let module = Module::load(&t.cuda, None, "k.ptx", ptx, &[]).unwrap();
    assert_eq!(module.kernel_names().collect::<Vec<_>>(), ["k"]);
    let e =
        Module::load(&t.cuda, None, "bad.ptx", b".version 7.0\n.target sm_75\nrubbish\n", &[]).unwrap_err();
    assert!(e.message.starts_with("bad.ptx: cuModuleLoadData: CUDA_ERROR_INVALID_PTX"), "{e}");
    // Another architecture.
    let other = if t.cuda.facts().capability.0 == 9 { "-arch=sm_80" } else { "-arch=sm_90" };
    let source = "__global__ void k() {}";
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler {
        nvrtc: std::env::var_os("RUSHMEM_NVRTC").map(Into::into),
        nvjitlink: std::env::var_os("RUSHMEM_NVJITLINK").map(Into::into),
        cache_dir: Some(cache.path().join("cache")),
        capability: t.cuda.facts().capability,
        options: vec![other.into()],
        headers: &[],
    };
    match compiler.compile("other.cu", source) {
        Ok(cubin) => {
            let e = Module::load(&t.cuda, None, "other.cu", &cubin.code, &[]).unwrap_err();
            assert!(e.code == code::UNSUPPORTED && e.message.contains("no code for GPU 0"), "{e}");
        }
        Err(e) => eprintln!("SKIP {name}, another architecture: {e}"),
    }
    // A device state that is not ours.
    let alien = "extern \"C\" { __constant__ unsigned int rushmem_state[40]; }\n__global__ void k(int *p) { *p = rushmem_state[1]; }";
    let cubin = Compiler { options: vec![], ..compiler }.compile("alien.cu", alien);
    match cubin {
        Ok(cubin) => {
            let e = Module::load(&t.cuda, None, "alien.cu", &cubin.code, &[]).unwrap_err();
            assert!(e.code == code::VERSION && e.message.contains("160 bytes"), "{e}");
        }
        Err(e) => eprintln!("SKIP {name}, alien state: {e}"),
    }
}
