//! Tests of compiling, for which NVRTC is enough and no GPU is needed.

use std::fs;
use std::path::Path;

use super::*;
use crate::error::code;
use crate::kernel::headers::DEVICE_HEADERS;

/// A compiler with an empty cache, if there is an NVRTC: RUSHMEM_NVRTC's, the one that scripts/cuda-toolchain
/// fetched, or the machine's.
pub(super) fn compiler(test: &str, cache: &Path) -> Option<Compiler> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.build/cuda/nvidia/cu13/lib");
    let asked = std::env::var_os("RUSHMEM_NVRTC").map(PathBuf::from).or(fetched.is_dir().then_some(fetched));
    if let Err(e) = Nvrtc::load(asked.as_deref()) {
        eprintln!("SKIP {test}: {e}");
        return None;
    }
    Some(Compiler {
        nvrtc: asked,
        nvjitlink: std::env::var_os("RUSHMEM_NVJITLINK").map(PathBuf::from),
        cache_dir: Some(cache.join("cache")),
        capability: (9, 0),
        options: Vec::new(),
        headers: DEVICE_HEADERS,
    })
}

pub(super) const RING: &str = r#"
#include <rushmem/rushmem.cuh>
#include <cstdint>
#include <cuda_runtime.h>
namespace deep {
__global__ void ring(uint64_t *sig, float *data, size_t n) {
  int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  rushmem::put_signal<rushmem::block>(data + n, data, n, sig, 1, rushmem::signal::set, right);
  if (threadIdx.x == 0) rushmem::signal_wait_until(sig, rushmem::cmp::eq, 1);
}
}
template <class T> __global__ void scale(T *at, T by) { at[threadIdx.x] *= by; }
"#;

pub(super) fn contains(code: &[u8], text: &str) -> bool {
    code.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_kernel_with_the_whole_device_library() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("a_kernel_with_the_whole_device_library", temp.path()) else { return };
    compiler.options = ["--kernel=scale<float>", "--kernel=scale<uint64_t>"].map(String::from).into();
    let first = compiler.compile("ring.cu", RING).unwrap();
    assert!(first.code.starts_with(b"\x7fELF"));
    for symbol in ["_ZN4deep4ringEPyPfm", "_Z5scaleIfEvPT_S0_", "_Z5scaleIyEvPT_S0_", "rushmem_state"] {
        assert!(contains(&first.code, symbol), "{symbol}");
    }
    let instances = [("scale<float>", "_Z5scaleIfEvPT_S0_"), ("scale<uint64_t>", "_Z5scaleIyEvPT_S0_")];
    assert_eq!(first.instances, instances.map(|(asked, symbol)| (asked.to_owned(), symbol.to_owned())));
    // From the cache now, which a compiler that cannot work shows.
    let again = || {
        let start = std::time::Instant::now();
        assert_eq!(compiler.compile("ring.cu", RING).unwrap(), first);
        start.elapsed()
    };
    let cached = (0..3).map(|_| again()).min().unwrap();
    assert!(cached < std::time::Duration::from_secs(2), "{cached:?}");
    // A damaged entry is made again.
    let cubin = walk(&temp.path().join("cache")).into_iter().find(|p| p.ends_with("kernel.cubin")).unwrap();
    fs::write(&cubin, "rubbish").unwrap();
    assert_eq!(compiler.compile("ring.cu", RING).unwrap().instances, first.instances);
    assert!(fs::read(&cubin).unwrap().starts_with(b"\x7fELF"));
    // Another architecture is another entry.
    compiler.capability = (10, 0);
    assert_ne!(compiler.compile("ring.cu", RING).unwrap().code, first.code);
}

pub(super) fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(walk(&path));
        } else {
            all.push(path);
        }
    }
    all
}

#[test]
fn messages_have_the_sources_own_lines() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("messages_have_the_sources_own_lines", temp.path()) else { return };
    let source = "#include <rushmem/rushmem.cuh>\n__global__ void k(int *p) {\n  *p = nonsense;\n}\n";
    let e = compiler.compile("broken.cu", source).unwrap_err();
    assert_eq!(e.code, code::COMPILE);
    assert!(e.message.contains("broken.cu(3)") && e.message.contains("nonsense"), "{e}");
    compiler.options = vec!["--no-such-option".into()];
    let e = compiler.compile("fine.cu", "__global__ void k() {}").unwrap_err();
    assert!(e.code == code::COMPILE && e.message.contains("no-such-option"), "{e}");
    compiler.options = vec!["--kernel=missing<int>".into()];
    let e = compiler.compile("fine.cu", "__global__ void k() {}").unwrap_err();
    assert!(e.code == code::COMPILE && e.message.contains("missing"), "{e}");
    compiler.options = vec![];
    let e = compiler.compile("zero.cu", "__global__ void k() {}\0").unwrap_err();
    assert_eq!(e.code, code::INVALID_ARGUMENT);
    // No warning, no error: what everyday sources include.
    let plain = "#include <cassert>\n#include <cstdio>\n#include <cstddef>\n#include <stdint.h>\n#include <stddef.h>\n\
                 __global__ void k(std::size_t n, uint8_t *p) { assert(n > 0); if (!p) printf(\"%d\\n\", 1); }\n";
    compiler.compile("plain.cu", plain).unwrap();
}

#[test]
fn a_changed_header_or_option_is_another_kernel() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("a_changed_header_or_option_is_another_kernel", temp.path()) else {
        return;
    };
    let dir = temp.path().join("include");
    fs::create_dir(&dir).unwrap();
    let source = "#include <mine.h>\n#include \"beside.h\"\nextern \"C\" __global__ void k(int *p) { *p = MINE + BESIDE + GIVEN; }\n";
    let name = temp.path().join("source.cu").to_string_lossy().into_owned();
    let write = |mine: &str, beside: &str| {
        fs::write(dir.join("mine.h"), format!("#define MINE {mine}\n")).unwrap();
        fs::write(temp.path().join("beside.h"), format!("#define BESIDE {beside}\n")).unwrap();
    };
    write("1", "1");
    compiler.options = vec![format!("-I{}", dir.display()), "-DGIVEN=1".into()];
    let first = compiler.compile(&name, source).unwrap();
    assert_eq!(compiler.compile(&name, source).unwrap(), first);
    write("12345", "1");
    let second = compiler.compile(&name, source).unwrap();
    assert_ne!(second, first);
    write("1", "12345");
    let third = compiler.compile(&name, source).unwrap();
    assert_eq!(third.code, second.code, "the same sum");
    write("1", "1");
    compiler.options[1] = "-DGIVEN=12345".into();
    assert_eq!(compiler.compile(&name, source).unwrap().code, second.code, "the same sum");
}

#[test]
fn a_bare_name_includes_from_the_working_directory() {
    let compiler = Compiler {
        nvrtc: None,
        nvjitlink: None,
        cache_dir: None,
        capability: (9, 0),
        options: Vec::new(),
        headers: &[],
    };
    let beside = [std::env::current_dir().unwrap().join("Cargo.toml")];
    assert_eq!(compiler.includes("kernel.cu", "#include \"Cargo.toml\"\n", &[]), beside);
    assert!(compiler.includes("kernel.cu", "#include <Cargo.toml>\n", &[]).is_empty());
    assert!(compiler.includes("/nowhere/kernel.cu", "#include \"Cargo.toml\"\n", &[]).is_empty());
}

#[test]
fn an_absent_nvrtc_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let e = Nvrtc::load(Some(temp.path())).err().unwrap();
    assert_eq!(e.code, code::UNSUPPORTED);
    for part in
        ["RUSHMEM_NVRTC", "libnvrtc.so.13", "pip install nvidia-cuda-nvrtc", &*temp.path().to_string_lossy()]
    {
        assert!(e.message.contains(part), "{e}");
    }
    let rubbish = temp.path().join("libnvrtc.so.13");
    fs::write(&rubbish, "rubbish").unwrap();
    let e = Nvrtc::load(Some(&rubbish)).err().unwrap();
    assert!(e.message.contains("libnvrtc.so.13") && e.message.contains("too short"), "{e}");
}

#[test]
fn a_gpu_that_nvrtc_does_not_know() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("a_gpu_that_nvrtc_does_not_know", temp.path()) else { return };
    let nvrtc = Nvrtc::load(compiler.nvrtc.as_deref()).unwrap();
    assert_eq!(nvrtc.target((9, 0)).unwrap(), "sm_90");
    // The code of a lower minor number runs.
    assert_eq!(nvrtc.target((9, 5)).unwrap(), "sm_90");
    compiler.capability = (77, 0);
    let e = compiler.compile("k.cu", "__global__ void k() {}").unwrap_err();
    assert!(e.code == code::UNSUPPORTED && e.message.contains("77.0") && e.message.contains("9.0"), "{e}");
}

/// The sources of the tests that need a GPU, so that a fault in one shows where there is none.
#[test]
fn the_kernels_of_the_gpu_tests() {
    use crate::gpu::tests::{far_mailbox, graphs, kernels, pes, service};
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("the_kernels_of_the_gpu_tests", temp.path()) else { return };
    for capability in [(9, 0), (10, 0), (8, 0)] {
        compiler.capability = capability;
        compiler.options = vec!["--kernel=scale<float>".into()];
        let cubin = compiler.compile("kernels.cu", kernels::SOURCE).unwrap();
        for symbol in ["_ZN4deep2er3mixEPyh4PairPKfb", "_Z5scaleIfEvPT_S0_i", "plain", "_Z5ranksPj"] {
            assert!(contains(&cubin.code, symbol), "{symbol}");
        }
        compiler.options = vec![];
        let cubin = compiler.compile("pes.cu", pes::SOURCE).unwrap();
        for symbol in ["rushmem_state", "_Z3whoPi", "_Z4ringPyPfPKfmy", "_Z5countPyS_i", "_Z4lostPy"] {
            assert!(contains(&cubin.code, symbol), "{symbol}");
        }
        compiler.compile("graphs.cu", graphs::SOURCE).unwrap();
        compiler.compile("early.cu", graphs::EARLY).unwrap();
        compiler.compile("mailbox.cu", far_mailbox::SOURCE).unwrap();
    }
    let nvrtc = Nvrtc::load(compiler.nvrtc.as_deref()).unwrap();
    let include = nvrtc.path.parent().unwrap().join("../include");
    if include.join("cuda_fp16.h").is_file() {
        compiler.options = ["", "/cccl"].map(|sub| format!("-I{}{sub}", include.display())).into();
        compiler.compile("halves.cu", service::HALVES).unwrap();
    } else {
        eprintln!("SKIP the_kernels_of_the_gpu_tests, halves.cu: no cuda_fp16.h beside NVRTC");
    }
}

#[test]
fn the_types_of_extern_c_kernels_are_told() {
    let temp = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler("the_types_of_extern_c_kernels_are_told", temp.path()) else { return };
    let source = "extern \"C\" __global__ void ring(float *x, const int n, double d) {}\n\
                  namespace a { extern \"C\" __global__ void deep(unsigned char *) {} }\n";
    let cubin = compiler.compile("k.cu", source).unwrap();
    let mut signatures: Vec<_> =
        cubin.instances.iter().map(|(asked, symbol)| (signatures::kernel_of(asked), symbol)).collect();
    signatures.sort();
    assert_eq!(
        signatures.iter().map(|(kernel, _)| *kernel).collect::<Vec<_>>(),
        [Some("deep"), Some("ring")]
    );
    let kinds: Vec<_> = crate::gpu::names::params_of_type(signatures[1].1, &[8, 4, 8])
        .iter()
        .map(|p| (p.kind, p.size, p.pointee_kind, p.pointee_size))
        .collect();
    use rushmem_abi::c::*;
    let (none, float) = (RUSHMEM_ARG_UNKNOWN, RUSHMEM_ARG_FLOAT);
    let expected = [(RUSHMEM_ARG_POINTER, 8, float, 4), (RUSHMEM_ARG_INT, 4, none, 0), (float, 8, none, 0)];
    assert_eq!(kinds, expected, "{signatures:?}");
    // What looks like a kernel and is none does no harm.
    let odd = "#if 0\n__global__ void gone() {}\n#endif\nextern \"C\" __global__ void k(int) {}\n";
    assert!(compiler.compile("odd.cu", odd).unwrap().instances.is_empty());
}

/// With the hooks a kernel is another one, has the variable that the runtime fills, and names and shapes as
/// the runtime computes them; without them nothing of that is in it.
#[test]
fn a_kernel_of_a_traced_run_has_the_hooks_and_another_key() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = compiler("a_kernel_of_a_traced_run_has_the_hooks_and_another_key", temp.path())
    else {
        return;
    };
    let plain = compiler.compile("ring.cu", RING).unwrap();
    compiler.options = vec!["-DRUSHMEM_GPU_TRACE".into()];
    let traced = compiler.compile("ring.cu", RING).unwrap();
    for (cubin, has) in [(&plain, false), (&traced, true)] {
        assert!(cubin.code.starts_with(b"\x7fELF") && contains(&cubin.code, "rushmem_state"));
        assert_eq!(contains(&cubin.code, "rushmem_gpu_trace"), has);
    }
    assert_eq!(walk(&temp.path().join("cache")).iter().filter(|p| p.ends_with("kernel.cubin")).count(), 2);
    let (hash, shape) = crate::trace::gpu_kernels::for_headers("foobar", [4, 5, 6], [7, 8, 9]);
    let asserts = format!(
        "#include <rushmem/rushmem.cuh>\n\
         static_assert(rushmem::impl::hash_of_name(\"foobar\") == {hash}u, \"names\");\n\
         static_assert(rushmem::impl::mix_of_shape(4, 5, 6, 7, 8, 9) == {shape}u, \"shapes\");\n\
         __global__ void k(uint64_t *at) {{ rushmem::wait_until(at, rushmem::cmp::eq, 1); }}\n"
    );
    compiler.compile("asserts.cu", &asserts).unwrap();
    // The kernel that reads the clock has no headers of rushmem's.
    let clock = compiler.compile("trace_clock.cu", rushmem_device::TRACE_CLOCK).unwrap();
    assert!(contains(&clock.code, "rushmem_trace_clock"));
}
