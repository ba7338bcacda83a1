//! The parameter types of `extern "C"` kernels. Their names in machine code say nothing of their types. So we
//! put a template behind the source, and ask the compiler for the name of its instance for each kernel's
//! type: that name holds the types.

use rushmem_device_cpu::function_kernels;

/// What is put behind a source. It makes no code, four bytes of data for each instance.
pub(super) const TEMPLATE: &str = "\ntemplate <class> __device__ int rushmem_signature_of;\n";

const BEFORE: &str = "&rushmem_signature_of<decltype(&";
const AFTER: &str = ")>";

/// The name expressions to ask for, one for each kernel of `source` that may be `extern "C"`. They are a
/// guess from the text as it is written: where compiling with them fails, the caller compiles without.
pub(super) fn expressions(source: &str) -> Vec<String> {
    if !source.contains("extern") {
        return Vec::new();
    }
    let mut names = function_kernels(&without_directives(source));
    names.sort();
    names.dedup();
    names.iter().map(|name| format!("{BEFORE}::{name}{AFTER}")).collect()
}

/// The symbol of the kernel whose signature `expression` asks for, if it is one of ours.
pub(super) fn kernel_of(expression: &str) -> Option<&str> {
    let name = expression.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    Some(name.rsplit("::").next().unwrap_or(name))
}

/// Directives are no code, and macros may hold half a pair of brackets.
fn without_directives(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut inside = false;
    for line in source.lines() {
        inside |= line.trim_start().starts_with('#');
        if !inside {
            out.push_str(line);
        }
        out.push('\n');
        inside &= line.ends_with('\\');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_in_plain_text() {
        let source = "#define OPEN {\n#define LONG \\\n  { {\nextern \"C\" __global__ void __launch_bounds__(64) ring(int *p) {}\n\
                      extern \"C\" { __global__ void two(); __global__ void two() { if (1) {} } }\n\
                      namespace a { __global__ void deep() {} }\ntemplate <class T> __global__ void t(T) {}\n";
        let found = expressions(source);
        assert_eq!(
            found,
            [
                "&rushmem_signature_of<decltype(&::a::deep)>",
                "&rushmem_signature_of<decltype(&::ring)>",
                "&rushmem_signature_of<decltype(&::two)>",
            ]
        );
        assert_eq!(found.iter().filter_map(|e| kernel_of(e)).collect::<Vec<_>>(), ["deep", "ring", "two"]);
        assert_eq!(kernel_of("scale<float>"), None);
        assert!(expressions("__global__ void mangled() {}").is_empty());
    }
}
