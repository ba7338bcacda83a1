//! Sources as people write them, and as macros leave them.

use super::{kernels, KernelForm};

fn names(source: &str) -> Vec<(String, KernelForm)> {
    kernels(source).into_iter().map(|kernel| (kernel.name, kernel.form)).collect()
}

fn functions(source: &str) -> Vec<String> {
    names(source)
        .into_iter()
        .filter(|(_, form)| *form == KernelForm::Function)
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn plain_definitions_in_every_order_of_words() {
    let source = r#"
        __global__ void a(int) {}
        static __global__ void b() { if (1) { for (;;) {} } }
        void __global__ c(float *x, int (*f)(int)) { x[0] = f(1); }
        extern "C" __global__ void d(void) {}
        extern "C" { __global__ void e() {} struct S { int x; }; __global__ void f(struct S s) {} }
        __global__ __launch_bounds__(256, 2) void g() {}
        __global__ void __launch_bounds__((1 << 8)) h() {}
        __attribute__((visibility("default"))) __global__ void __attribute__((noinline)) i() noexcept {}
        [[maybe_unused]] __global__ void j [[gnu::cold]] (int n = (1, 2)) {}
        inline __global__ auto k() -> void {}
        __global__ void
        l(int
          n)
        {
        }
    "#;
    assert_eq!(functions(source), ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]);
}

#[test]
fn what_is_no_definition_is_not_found() {
    let source = r#"
        // __global__ void a() {}
        /* __global__ void b() {} */
        const char *text = "__global__ void c() {}";
        const char *raw = R"x(__global__ void d() {})x";
        #define E __global__ void e() {}
        __global__ void f(int);
        struct T { int g() { return 1; } };
        int not_global(int x) { return x; }
        enum class H : int { one = 1, two = one << 1 };
        int array[] = {1, 2, 3};
        auto lambda = [](int x) { return x; };
    "#;
    assert_eq!(names(source), []);
}

#[test]
fn names_are_qualified() {
    let source = r#"
        namespace one { namespace two { __global__ void a() {} } __global__ void b() {} }
        namespace one::three { __global__ void c() {} }
        namespace { __global__ void d() {} namespace in { __global__ void e() {} } }
        inline namespace v1 { __global__ void f() {} }
        namespace alias = one::two;
        namespace [[deprecated]] old { __global__ void g() {} }
        namespace __attribute__((visibility("hidden"))) { __global__ void h() {} }
        namespace one { __global__ void declared(); }
        __global__ void one::declared() {}
        __global__ void i() {}
    "#;
    let expected = [
        "one::two::a",
        "one::b",
        "one::three::c",
        "d",
        "in::e",
        "v1::f",
        "old::g",
        "h",
        "one::declared",
        "i",
    ];
    assert_eq!(functions(source), expected);
}

#[test]
fn templates_and_their_instances() {
    let source = r#"
        template <class T, int N = (1 > 0), class U = Pair<T, Pair<T, T>>>
        __global__ void scale(T *x) {}
        template <typename T> struct Box { T value; };
        __global__ void after_box() {}
        template <class T> T twice(T x) { return x + x; }
        __global__ void after_twice() {}
        template <> __global__ void scale<int>(int *x) {}
        template __global__ void scale<float>(float *);
        namespace n { template <class A, class B> static __global__ void two() {}
          template __global__ void two<unsigned int, Box<float>>(); }
        template <class T> constexpr T pi = T(3);
        template <class T> using Ptr = T *;
        __global__ void last(Box<Box<int>> b) {}
    "#;
    let expected = [
        ("scale", KernelForm::Template),
        ("after_box", KernelForm::Function),
        ("after_twice", KernelForm::Function),
        ("scale<int>", KernelForm::Instance),
        ("scale<float>", KernelForm::Instance),
        ("n::two", KernelForm::Template),
        ("n::two<unsigned int, Box<float>>", KernelForm::Instance),
        ("last", KernelForm::Function),
    ];
    assert_eq!(names(source), expected.map(|(name, form)| (name.to_owned(), form)));
}

#[test]
fn places_are_the_source_s() {
    let found =
        kernels("# 1 \"ring.cu\"\n\n__global__ void a() {}\n# 90 \"x.h\" 1\n__global__ void b() {}\n");
    assert_eq!((found[0].file.as_str(), found[0].line), ("ring.cu", 2));
    assert_eq!((found[1].file.as_str(), found[1].line), ("x.h", 90));
}

#[test]
fn broken_text_ends() {
    for source in [
        "__global__",
        "__global__ void",
        "__global__ void k(",
        "__global__ void k() {",
        "template <",
        "}",
        "} } {",
        "namespace",
        "namespace a",
        "extern \"C\" {",
        "template < > __global__ > < ;",
        "[",
        "__global__ void k() }",
    ] {
        names(source);
    }
    // Every prefix of a real one, too.
    let source = "namespace a { template <class T> __global__ void k(T x) { \"}\"; } template __global__ void k<int>(int); }";
    for end in 0..source.len() {
        names(&source[..end]);
    }
}
