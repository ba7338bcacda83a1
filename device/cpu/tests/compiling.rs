//! From source to module: names, parameters, messages with the source's own lines, the cache.

use std::fs;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rushmem_device_cpu::{Error, Param};
use rushmem_device_cpu_test_support::{arg, best_of, compiler, run, shape, Bench};

#[test]
fn kernels_are_found_with_their_parameters() {
    let mut bench = Bench::new();
    bench.compiler.options =
        vec!["--kernel=ns::scale<double, 3>".into(), "-DWANTED=1".into(), "-DSHIFT=WANTED".into()];
    let module = bench.module(
        r#"
        enum class Small : short { one };
        struct Pair { int a; double b; };
        struct Unknown;
        using Callback = void (*)(int);
        extern "C" __global__ void every(bool b, char c, unsigned short s, int i, unsigned long u, long long l, float f,
            double d, Small e, Pair p, const int n);
        extern "C" __global__ void every(bool b, char c, unsigned short s, int i, unsigned long u, long long l, float f,
            double d, Small e, Pair p, const int n) {}
        __global__ void pointers(const float *__restrict__ a, void *v, unsigned char *c, Pair *p, Unknown *u, int **pp,
            double *const d, Callback f, volatile long *w, Small *e) {}
        namespace ns {
          template <class T, int N> __global__ void scale(T *x, T by) { for (int i = 0; i < N; ++i) x[i] *= by; }
          template __global__ void scale<float, 2>(float *, float);
          namespace { __global__ void hidden() {} }
          __global__ void same() {}
        }
        namespace other { static __global__ void same() {} }
        #define MAKE(name) __global__ void name##_made(int) {}
        MAKE(macro)
        #if WANTED && SHIFT == 1
        __global__ void wanted() {}
        #else
        __global__ void unwanted(not a type) {}
        #endif
        "#,
    );
    let names: Vec<&str> = module.kernel_names().collect();
    let expected = [
        "every",
        "pointers",
        "ns::scale<float, 2>",
        "ns::hidden",
        "ns::same",
        "other::same",
        "macro_made",
        "wanted",
        "ns::scale<double, 3>",
    ];
    assert_eq!(names, expected);
    assert_eq!(module.template_names(), ["ns::scale"]);
    let plain = |kind, size| Param { kind, size, pointee_kind: 5, pointee_size: 0 };
    let every = [(2, 1), (1, 1), (2, 2), (1, 4), (2, 8), (1, 8), (3, 4), (3, 8), (1, 2), (4, 16), (1, 4)];
    assert_eq!(module.kernel("every").expect("there").params(), every.map(|(kind, size)| plain(kind, size)));
    let pointer = |pointee_kind, pointee_size| Param { kind: 0, size: 8, pointee_kind, pointee_size };
    let pointers = [(3, 4), (5, 0), (2, 1), (5, 16), (5, 0), (0, 8), (3, 8), (5, 0), (1, 8), (1, 2)];
    assert_eq!(
        module.kernel("pointers").expect("there").params(),
        pointers.map(|(kind, size)| pointer(kind, size))
    );
    assert_eq!(module.kernel("hidden").expect("its last part is unique").name(), "ns::hidden");
    assert!(module.kernel("same").is_none() && module.kernel("other::same").is_some());
    assert!(
        module.kernel("scale").is_none() && module.kernel("nothing").is_none() && module.kernel("").is_none()
    );

    let (mut x, by) = ([1.5f64, 2.0, 3.0], 2.0f64);
    let pointer = x.as_mut_ptr();
    run(&module.kernel("ns::scale<double, 3>").expect("asked for"), &shape(1, 1), &[arg(&pointer), arg(&by)])
        .expect("runs");
    assert_eq!(x, [3.0, 4.0, 6.0]);
}

#[test]
fn a_source_without_kernels_is_a_module() {
    let bench = Bench::new();
    for source in ["", "\n", "int x;", "// no newline at the end"] {
        assert_eq!(bench.module(source).kernel_names().len(), 0);
    }
}

#[test]
fn messages_have_the_source_s_own_lines() {
    let bench = Bench::new();
    let text = bench.complaint("\n__global__ void k(int *p) {\n  p[threadIdx.x] = missing;\n}\n");
    assert!(text.starts_with("test.cu:") && text.contains("test.cu:3:20: error: "), "{text}");
    assert!(text.contains("p[threadIdx.x] = missing;"), "the line is quoted: {text}");

    let text = bench.complaint("#include \"no such file.h\"\n");
    assert!(text.starts_with("test.cu:1:10: fatal error: ") && text.contains("no such file.h"), "{text}");
    let text = bench.complaint("__global__ void k() {\n\n  if (1) {\n}\n");
    assert!(text.contains("test.cu:") && text.contains("error: expected '}'"), "{text}");
    let text = bench.complaint("__global__ void k(int) {}\nnamespace n {}\n\n__global__ void k(float) {}\n");
    assert_eq!(
        text,
        "test.cu:4: error: kernel `k` is overloaded (first at test.cu:1): a kernel is found by its name, so give each its \
         own\n"
    );
    let text = bench.complaint("\n__global__ int k() { return 1; }\n");
    assert!(text.contains("test.cu: error: kernel `k` cannot be taken by its name"), "{text}");
    let text = bench.complaint("__device__ int far();\n\n__global__ void k(int *p) { *p = far(); }\n");
    // Some linkers put the place in the object file between the two.
    assert!(text.contains("test.cu:3:") && text.contains("undefined reference to `far()'"), "{text}");
    let text =
        bench.complaint("__shared__ int tile[4]; extern __shared__ int more[4];\n__global__ void k() {}\n");
    assert!(text.contains("test.cu:1:") && !text.contains("unit.cpp"), "{text}");
    for text in [text, bench.complaint("#error \"no\"\n")] {
        assert!(!text.contains(&*bench.dir.path().to_string_lossy()), "{text}");
    }

    let mut options = Bench::new();
    options.compiler.options = vec!["--kernel=scale<int>".into()];
    let text = options.complaint("template <class T> __global__ void twice(T *x) {}\n");
    assert!(text.contains("kernel `scale<int>` cannot be taken by its name"), "{text}");
}

#[test]
fn warnings_and_odd_names_do_no_harm() {
    let bench = Bench::new();
    for name in ["", "a b.cu", "dir/k.cu", "\"quoted\\.cu", "lock", "kernel.so", "é.cu", "a=b.cu"] {
        let source = "#warning \"careful\"\n__global__ void k(char *out) { strcpy(out, __FILE__); }";
        let module = bench.compiler.compile(name, source).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(module.name(), name);
        let mut out = [0u8; 400];
        let pointer = out.as_mut_ptr();
        run(&module.kernel("k").expect("defined"), &shape(1, 1), &[arg(&pointer)]).expect("runs");
        if !name.contains(['=', '"']) {
            assert_eq!(std::ffi::CStr::from_bytes_until_nul(&out).expect("terminated").to_str(), Ok(name));
        }
    }
}

#[test]
fn a_second_load_is_quick() {
    let bench = Bench::new();
    let source = "__global__ void k(int *p) { *p = 1; }";
    let start = Instant::now();
    let first = bench.module(source);
    let cold = start.elapsed();
    let warm = best_of(20, || drop(bench.module(source)));
    drop(first);
    println!("cold {cold:?}, warm {warm:?}");
    assert!(warm < Duration::from_millis(5), "{warm:?}");
}

#[test]
fn what_the_key_covers_is_compiled_anew() {
    let mut bench = Bench::new();
    let entries = |bench: &Bench| {
        let cache = fs::read_dir(bench.cache()).expect("the cache");
        cache
            .filter(|entry| !entry.as_ref().expect("readable").path().to_string_lossy().contains("include-"))
            .count()
    };
    let source = "#ifndef N\n#define N 1\n#endif\n__global__ void k(int *p) { *p = N; }";
    let value = |bench: &Bench, source: &str| {
        let mut out = 0;
        let pointer = &raw mut out;
        run(&bench.module(source).kernel("k").expect("defined"), &shape(1, 1), &[arg(&pointer)])
            .expect("runs");
        out
    };
    assert_eq!((value(&bench, source), value(&bench, source), entries(&bench)), (1, 1, 1));
    bench.compiler.options = vec!["-DN=2".into()];
    assert_eq!((value(&bench, source), value(&bench, source), entries(&bench)), (2, 2, 2));

    // A header of the user's own, found through -I: not in the key, but looked at.
    let headers = tempfile::tempdir().expect("a temporary directory");
    bench.compiler.options = vec![format!("-I{}", headers.path().display())];
    let source = "#include \"n.h\"\n__global__ void k(int *p) { *p = N; }";
    for n in [3, 44, 555] {
        fs::write(headers.path().join("n.h"), format!("#define N {n}\n")).expect("writing");
        assert_eq!((value(&bench, source), entries(&bench)), (n, 3));
    }
    // Headers that the host offers are in the key.
    bench.compiler.options.clear();
    bench.compiler.headers = &[("sub/n.h", "#define N 66\n")];
    let source = "#include <sub/n.h>\n__global__ void k(int *p) { *p = N; }";
    assert_eq!(value(&bench, source), 66);
    bench.compiler.headers = &[("sub/n.h", "#define N 77\n")];
    assert_eq!((value(&bench, source), entries(&bench)), (77, 5));
}

/// The one entry of a cache.
fn entry(bench: &Bench) -> PathBuf {
    let mut entries = fs::read_dir(bench.cache()).expect("the cache").map(|entry| entry.expect("readable"));
    entries.find(|entry| !entry.file_name().to_string_lossy().starts_with("include-")).expect("one").path()
}

#[test]
fn damage_is_found_and_mended() {
    let bench = Bench::new();
    // A number that the object holds in one place, which a damaged one that is loaded all the same would
    // show.
    let source = "__device__ volatile int number = 0x5eed1234; __global__ void k(int *p) { *p = number; }";
    let check = |what: &str| {
        let mut out = 0;
        let pointer = &raw mut out;
        let module =
            bench.compiler.compile("test.cu", source).unwrap_or_else(|error| panic!("{what}: {error}"));
        run(&module.kernel("k").expect("defined"), &shape(1, 1), &[arg(&pointer)]).expect("runs");
        assert_eq!(out, 0x5eed1234, "{what}");
    };
    check("fresh");
    let object = entry(&bench).join("kernel.so");
    let whole = fs::read(&object).expect("reading");
    let number =
        whole.windows(4).position(|bytes| bytes == 0x5eed1234_u32.to_le_bytes()).expect("the number");
    let damage: [(&str, &dyn Fn()); 5] = [
        // Most of an object is for debuggers: half of it would run.
        ("truncated", &|| fs::write(&object, &whole[..2000]).expect("writing")),
        ("flipped", &|| {
            let mut bytes = whole.clone();
            bytes[number] ^= 1;
            fs::remove_file(&object).expect("removing");
            fs::write(&object, bytes).expect("writing");
        }),
        ("removed", &|| fs::remove_file(&object).expect("removing")),
        ("no record", &|| fs::remove_file(entry(&bench).join("kernel.record")).expect("removing")),
        ("half-built", &|| {
            fs::remove_file(&object).expect("removing");
            fs::create_dir(entry(&bench).join("build-1-0")).expect("making");
            fs::write(entry(&bench).join("build-1-0/kernel.so"), "half").expect("writing");
        }),
    ];
    for (what, harm) in damage {
        harm();
        check(what);
    }
    assert!(!entry(&bench).join("build-1-0").exists());
    // A header of ours damaged in the cache is mended before the next compilation.
    let include = fs::read_dir(bench.cache())
        .expect("the cache")
        .map(|entry| entry.expect("readable").path())
        .find(|path| path.to_string_lossy().contains("include-"))
        .expect("the headers");
    fs::write(include.join("rushmem_cpu/cuda.h"), "#error damaged").expect("writing");
    bench.module("__global__ void another() {}");
}

#[test]
fn many_threads_compile_one_source_once() {
    let bench = Bench::new();
    // A compiler that counts its runs.
    let (log, script) = (bench.dir.path().join("runs"), bench.dir.path().join("counting-c++"));
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) ;; *-shared*) echo run >> {} ;; esac\nexec c++ \"$@\"\n",
        log.display()
    );
    fs::write(&script, text).expect("writing");
    std::process::Command::new("chmod").arg("+x").arg(&script).status().expect("chmod");
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut compiler = compiler(bench.dir.path());
                compiler.cxx = Some(script.clone());
                start.wait();
                let module =
                    compiler.compile("test.cu", "__global__ void k(int *p) { *p = 5; }").expect("compiles");
                let mut out = 0;
                let pointer = &raw mut out;
                run(&module.kernel("k").expect("defined"), &shape(1, 1), &[arg(&pointer)]).expect("runs");
                assert_eq!(out, 5);
            });
        }
    });
    assert_eq!(fs::read_to_string(&log).expect("the compiler ran"), "run\n");
}

#[test]
fn a_missing_compiler_is_told_and_a_cache_not_needed() {
    let mut bench = Bench::new();
    bench.compiler.cxx = Some("/nowhere/c++".into());
    let error = bench.compiler.compile("test.cu", "").expect_err("no compiler");
    assert!(
        matches!(&error, Error::NoCompiler { text } if text.contains("RUSHMEM_CXX=/nowhere/c++")),
        "{error}"
    );
    let mut bench = Bench::new();
    let file = bench.dir.path().join("file");
    fs::write(&file, "").expect("writing");
    // Without a cache there is a folder of the process's own.
    bench.compiler.cache_dir = Some(file.join("cache"));
    assert_eq!(bench.module("__global__ void k() {}").kernel_names().len(), 1);
}

#[test]
fn inline_ptx_is_named_with_what_to_write_instead() {
    let bench = Bench::new();
    let complaint = bench.complaint(
        "__global__ void clean(int *x) { *x = 1; }
__device__ unsigned long long now() {
  unsigned long long ns;
  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(ns));
  return ns;
}
__global__ void flag(int *x, unsigned long long *at) {
  *at = now();
  asm volatile(\"st.release.sys.global.s32 [%0], %1;\" ::\"l\"(x), \"r\"(1) : \"memory\");
}
",
    );
    let lines: Vec<&str> = complaint.lines().collect();
    for (line, place, instruction, instead) in [
        (0, "test.cu:4: error: PTX", "`mov.u64`", "clock64()"),
        (1, "test.cu:9: error: PTX", "`st.release.sys.global.s32`", "memory_order_release"),
    ] {
        assert!(lines[line].starts_with(place), "{complaint}");
        assert!(lines[line].contains(instruction) && lines[line].contains(instead), "{complaint}");
    }
    // What is not compiled is no fault, nor is a template of which there is no instance.
    let kernel = "
#if !defined(RUSHMEM_CPU)
__device__ void f() { asm volatile(\"fence.acq_rel.sys;\" ::: \"memory\"); }
#endif
__global__ void k(int *p) { *p = 123; }
";
    bench.module(kernel);
}
