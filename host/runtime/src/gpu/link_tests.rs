//! Tests of the two ways to machine code, for which NVRTC, nvJitLink and a runtime built with nvcc are
//! enough; whether kernels then do the same, the tests on GPUs show.

use super::tests::{compiler, contains, walk, RING};
use super::*;
use rushmem_abi::device::{RawState, RUSHMEM_DEVICE_ABI_VERSION};
use std::fs;

/// A compiler as in the other tests, if the runtime carries a library, and there is an nvJitLink that takes
/// it.
fn linking(test: &str, cache: &Path) -> Option<Compiler> {
    let compiler = compiler(test, cache)?;
    let nvrtc = Nvrtc::load(compiler.nvrtc.as_deref()).unwrap();
    let options = compiler.arguments(&nvrtc, "k.cu").unwrap();
    match compiler.way(&nvrtc, &options, embedded::LIBRARY) {
        Ok(_) => Some(compiler),
        Err(why) => {
            eprintln!("SKIP {test}: {why}");
            None
        }
    }
}

/// Links, and does not go the other way where that fails.
fn link(compiler: &Compiler, source: &str, library: Library) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::load(compiler.nvrtc.as_deref()).unwrap();
    let options = compiler.arguments(&nvrtc, "k.cu").unwrap();
    let CodeFrom::Linked { linker, library, options: linking } =
        compiler.way(&nvrtc, &options, library).unwrap()
    else {
        panic!("another way");
    };
    let (headers, instances) = (compiler.all_headers(), compiler.instances());
    let job = Compilation {
        name: "k.cu",
        source,
        headers: &headers,
        options: &options,
        instances: &instances,
        made: Product::Cubin,
    };
    linked(&nvrtc, &job, &linker, &library, &linking).map(|output| output.code)
}

/// A symbol of a cubin: its name, and its bytes where it is an object that the file has bytes of.
struct Symbol {
    name: String,
    defined: bool,
    bytes: Vec<u8>,
}

/// The symbol table of an ELF file.
fn symbols(elf: &[u8]) -> Vec<Symbol> {
    let number = |at: usize, len: usize| elf[at..at + len].iter().rev().fold(0, |n, b| n << 8 | *b as usize);
    let section = |index: usize| number(0x28, 8) + index * number(0x3a, 2);
    let (offset, size) =
        (|section: usize| number(section + 0x18, 8), |section: usize| number(section + 0x20, 8));
    let table = (0..number(0x3c, 2)).map(section).find(|at| number(at + 4, 4) == 2).expect("a symbol table");
    let names = offset(section(number(table + 0x28, 4)));
    let symbol = |at: usize| {
        let name = elf[names + number(at, 4)..].split(|b| *b == 0).next().unwrap();
        let (home, kind) = (number(at + 6, 2), elf[at + 4] & 15);
        let from = offset(section(home)) + number(at + 8, 8);
        // Objects only: what a section symbol's "bytes" are is of no interest here.
        let len = if kind == 1 && home != 0 { number(at + 16, 8) } else { 0 };
        let bytes = elf.get(from..from + len).unwrap_or_default().to_vec();
        Symbol { name: String::from_utf8_lossy(name).into_owned(), defined: home != 0, bytes }
    };
    (offset(table)..offset(table) + size(table)).step_by(24).skip(1).map(symbol).collect()
}

#[test]
fn both_ways_make_whole_kernels() {
    let test = "both_ways_make_whole_kernels";
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = linking(test, temp.path()) else { return };
    compiler.options = ["--kernel=scale<float>", "--kernel=scale<uint64_t>"].map(String::from).into();
    // One of each generation of which the library has code, and others which run that.
    for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)] {
        compiler.capability = capability;
        let linked =
            link(&compiler, RING, embedded::LIBRARY).unwrap_or_else(|e| panic!("{capability:?}: {e}"));
        let ours = compiler.compile("ring.cu", RING).unwrap();
        let whole = compiler.compile_with("ring.cu", RING, Library::NONE).unwrap();
        assert_eq!(ours.instances, whole.instances);
        assert_eq!(ours.instances.len(), 2);
        assert!(ours.code != whole.code);
        for code in [&linked, &ours.code, &whole.code] {
            let symbols = symbols(code);
            // What is named so is the driver's to give.
            let undefined: Vec<_> = symbols
                .iter()
                .filter(|s| !s.defined && !s.name.starts_with(".nv."))
                .map(|s| &s.name)
                .collect();
            assert!(undefined.is_empty(), "{undefined:?}");
            for kernel in ["_ZN4deep4ringEPyPfm", "_Z5scaleIfEvPT_S0_", "_Z5scaleIyEvPT_S0_"] {
                assert!(symbols.iter().any(|s| s.name == kernel), "{kernel}");
            }
            // Until the runtime tells more, the state says what it is.
            let state = symbols.iter().find(|s| s.name == "rushmem_state").expect("a device state");
            let ours =
                [RUSHMEM_DEVICE_ABI_VERSION, size_of::<RawState>() as u32].map(u32::to_le_bytes).concat();
            assert_eq!(state.bytes.len(), size_of::<RawState>());
            assert!(state.bytes.starts_with(&ours) && state.bytes[8..].iter().all(|b| *b == 0));
        }
    }
}

#[test]
fn what_everyday_kernels_use_links_too() {
    let test = "what_everyday_kernels_use_links_too";
    let temp = tempfile::tempdir().unwrap();
    let Some(mut compiler) = linking(test, temp.path()) else { return };
    let source = r#"
        #include <cassert>
        #include <cstdio>
        #include <rushmem/rushmem.cuh>
        __device__ int table[4] = {1, 2, 3, 4};
        __constant__ float factor = 2.5f;
        __device__ __noinline__ float far(float x) { return sinf(x) * factor; }
        struct Base { __device__ virtual float at(int i) = 0; };
        struct Twice : Base { __device__ float at(int i) override { return 2.0f * i; } };
        template <int N> __global__ void many(float *out, Base *base) {
            extern __shared__ float tile[];
            assert(N > 0);
            tile[threadIdx.x] = far(out[threadIdx.x]) / table[threadIdx.x % 4] + base->at(N);
            __syncthreads();
            if (rushmem::my_pe() == 0) printf("%f\n", tile[0]);
            *out = tile[blockDim.x - 1 - threadIdx.x] + (new Twice)->at(1);
        }
    "#;
    compiler.options = vec!["--kernel=many<3>".into(), "-use_fast_math".into(), "--maxrregcount=64".into()];
    link(&compiler, source, embedded::LIBRARY).unwrap();
    compiler.options = vec!["-G".into()];
    // Nothing is optimised for a debugger, so nothing is linked either.
    let nvrtc = Nvrtc::load(compiler.nvrtc.as_deref()).unwrap();
    let options = compiler.arguments(&nvrtc, "k.cu").unwrap();
    assert!(compiler.way(&nvrtc, &options, embedded::LIBRARY).err().unwrap().contains("-G"));
    compiler.compile("debug.cu", "__global__ void k() {}").unwrap();
}

#[test]
fn what_cannot_be_linked_is_compiled_whole() {
    let test = "what_cannot_be_linked_is_compiled_whole";
    let temp = tempfile::tempdir().unwrap();
    let Some(compiler) = linking(test, temp.path()) else { return };
    let whole = compiler.compile_with("ring.cu", RING, Library::NONE).unwrap();
    // No nvJitLink there, or something else.
    let rubbish = temp.path().join("libnvJitLink.so.13");
    for asked in [temp.path(), &rubbish] {
        let compiler = Compiler { nvjitlink: Some(asked.to_owned()), ..compiler.clone() };
        assert!(compiler.compile("ring.cu", RING).unwrap() == whole);
        fs::write(&rubbish, "rubbish").unwrap();
    }
    // A library that nvJitLink does not take, and one of a toolkit that is newer than it.
    let rubbish = Library { code: b"not a library, and long enough to tell", ..embedded::LIBRARY };
    let e = link(&compiler, RING, rubbish).map(|_| ()).unwrap_err();
    assert!(e.message.contains("rushmem's device library"), "{e}");
    assert!(compiler.compile_with("ring.cu", RING, rubbish).unwrap() == whole);
    let newer = Library { toolkit: "99.0", ..embedded::LIBRARY };
    assert!(compiler.compile_with("ring.cu", RING, newer).unwrap() == whole);
    // A source that has its own idea of the state; the module will be refused.
    let alien = "extern \"C\" { __constant__ unsigned int rushmem_state[40]; }\n\
                 __global__ void k(int *p) { *p = rushmem_state[1]; }";
    let e = link(&compiler, alien, embedded::LIBRARY).map(|_| ()).unwrap_err();
    assert!(e.message.contains("rushmem_state"), "{e}");
    let symbols = symbols(&compiler.compile("alien.cu", alien).unwrap().code);
    assert_eq!(symbols.iter().find(|s| s.name == "rushmem_state").unwrap().bytes.len(), 160);
    // A function that nobody has: NVRTC says so, by its name.
    let lost = "extern \"C\" __device__ int nowhere(int);\n__global__ void k(int *p) { *p = nowhere(1); }";
    let e = compiler.compile("lost.cu", lost).unwrap_err();
    assert!(e.code == crate::error::code::COMPILE && e.message.contains("nowhere"), "{e}");
}

#[test]
fn each_way_has_its_own_place_in_the_cache() {
    let test = "each_way_has_its_own_place_in_the_cache";
    let temp = tempfile::tempdir().unwrap();
    let Some(compiler) = linking(test, temp.path()) else { return };
    let entries =
        || walk(&temp.path().join("cache")).iter().filter(|path| path.ends_with("kernel.cubin")).count();
    let source = "__global__ void k(int *p) { *p = 1; }";
    let other: &'static [u8] = [embedded::LIBRARY.code, &[0; 16]].concat().leak();
    let other = Library { code: other, ..embedded::LIBRARY };
    for _ in 0..2 {
        for (count, library) in [embedded::LIBRARY, Library::NONE, other].into_iter().enumerate() {
            compiler.compile_with("k.cu", source, library).unwrap();
            assert!(entries() > count);
        }
        assert_eq!(entries(), 3);
    }
}

/// The runtime's own kernels, which NVRTC must take as nvcc does.
#[test]
fn the_runtimes_own_kernels() {
    let test = "the_runtimes_own_kernels";
    let temp = tempfile::tempdir().unwrap();
    let Some(compiler) = compiler(test, temp.path()) else { return };
    let ours = compiler.compile("service.cu", embedded::SERVICE_SOURCE).unwrap();
    let whole = compiler.compile_with("service.cu", embedded::SERVICE_SOURCE, Library::NONE).unwrap();
    for name in ["atomic", "store", "load", "signal", "put_signal", "copy_strided", "wait", "sync"] {
        let symbol = format!("rushmem_service_{name}");
        for code in [&ours.code, &whole.code] {
            assert!(symbols(code).iter().any(|s| s.name == symbol && s.defined), "{symbol}");
        }
        assert!(embedded::SERVICE.is_empty() || contains(embedded::SERVICE_SOURCE.as_bytes(), &symbol));
    }
    let nvcc = embedded::LIBRARY.version();
    assert_eq!(nvcc.is_some(), !embedded::SERVICE.is_empty());
    assert_eq!(nvcc.is_some(), !embedded::LIBRARY.code.is_empty());
}
