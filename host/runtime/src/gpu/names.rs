//! What C++ calls a kernel. A GPU's binary knows mangled names and the sizes of parameters; demangled, the
//! name says what people write, and for C++ functions also the parameters' types.

use cpp_demangle::{DemangleOptions, Symbol};

use rushmem_abi::c::*;

/// `ns::ring` or `scale<float>` for a mangled name; any other name as it is.
pub(crate) fn readable(symbol: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    demangle(symbol, &options).unwrap_or_else(|| symbol.to_owned())
}

/// The parameters, whose sizes the binary says. Kinds are unknown where the name says nothing
/// (`extern "C"`), or only the name of a type.
pub(crate) fn params(symbol: &str, sizes: &[usize]) -> Vec<rushmem_arg_type_t> {
    let full = demangle(symbol, &DemangleOptions::new());
    described(full.as_deref().and_then(parameter_list), sizes)
}

/// The same from the name of a template's instance for the function's type: `name<void (*)(float*, int)>`.
pub(super) fn params_of_type(symbol: &str, sizes: &[usize]) -> Vec<rushmem_arg_type_t> {
    let full = demangle(symbol, &DemangleOptions::new());
    let list = full.as_deref().and_then(|full| full.trim_end().strip_suffix('>'));
    described(list.and_then(|list| parameter_list(list.trim_end())), sizes)
}

fn described(list: Option<&str>, sizes: &[usize]) -> Vec<rushmem_arg_type_t> {
    let types = list.map(split).unwrap_or_default();
    let of = |(i, size): (usize, &usize)| {
        let unknown = rushmem_arg_type_t {
            kind: RUSHMEM_ARG_UNKNOWN,
            size: *size as u32,
            pointee_kind: RUSHMEM_ARG_UNKNOWN,
            pointee_size: 0,
        };
        // A list that does not fit the sizes was not understood.
        let known = (types.len() == sizes.len()).then(|| parse(types[i])).flatten();
        known.filter(|ty| ty.size as usize == *size).unwrap_or(unknown)
    };
    sizes.iter().enumerate().map(of).collect()
}

fn demangle(symbol: &str, options: &DemangleOptions) -> Option<String> {
    Symbol::new(symbol).ok()?.demangle_with_options(options).ok()
}

/// What is in the last pair of parentheses.
fn parameter_list(full: &str) -> Option<&str> {
    let inner = full.strip_suffix(')')?;
    let mut depth = 0;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 => return Some(&inner[at + 1..]),
            '(' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The parts between commas that are in no brackets.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = list[start..].trim();
    if !parts.is_empty() || !matches!(last, "" | "void") {
        parts.push(last);
    }
    parts
}

fn parse(text: &str) -> Option<rushmem_arg_type_t> {
    let plain =
        |(kind, size)| rushmem_arg_type_t { kind, size, pointee_kind: RUSHMEM_ARG_UNKNOWN, pointee_size: 0 };
    let Some(pointee) = unqualified(text).strip_suffix(['*', '&']) else {
        return scalar(unqualified(text)).map(plain);
    };
    let pointee = unqualified(pointee);
    let (pointee_kind, pointee_size) = match pointee.ends_with('*') {
        true => (RUSHMEM_ARG_POINTER, 8),
        false => scalar(pointee).unwrap_or((RUSHMEM_ARG_UNKNOWN, 0)),
    };
    Some(rushmem_arg_type_t { kind: RUSHMEM_ARG_POINTER, size: 8, pointee_kind, pointee_size })
}

fn unqualified(text: &str) -> &str {
    let mut text = text.trim();
    for word in ["const", "volatile", "restrict", "__restrict__", "__restrict"].iter().cycle().take(15) {
        text = text.strip_suffix(word).unwrap_or(text).trim_end();
    }
    text
}

fn scalar(name: &str) -> Option<(i32, u32)> {
    use RUSHMEM_ARG_FLOAT as F;
    use RUSHMEM_ARG_INT as I;
    use RUSHMEM_ARG_UINT as U;
    Some(match name {
        "bool" | "unsigned char" => (U, 1),
        "char" | "signed char" => (I, 1),
        "short" => (I, 2),
        "unsigned short" => (U, 2),
        "int" => (I, 4),
        "unsigned int" | "unsigned" => (U, 4),
        "long" | "long long" => (I, 8),
        "unsigned long" | "unsigned long long" => (U, 8),
        "float" => (F, 4),
        "double" => (F, 8),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, size, pointee's kind and size of each.
    fn parsed(symbol: &str, sizes: &[usize]) -> Vec<(i32, u32, i32, u32)> {
        params(symbol, sizes).iter().map(|p| (p.kind, p.size, p.pointee_kind, p.pointee_size)).collect()
    }

    // The symbols are what nvcc and NVRTC make of the declarations beside them.
    #[test]
    fn names_that_people_write() {
        // __global__ void ring(uint64_t *, float *, size_t)
        assert_eq!(readable("_Z4ringPmPfm"), "ring");
        // namespace a { namespace b { __global__ void k(int); } }
        assert_eq!(readable("_ZN1a1b1kEi"), "a::b::k");
        // template <class T> __global__ void scale(T *, T); scale<float>
        assert_eq!(readable("_Z5scaleIfEvPT_S0_"), "scale<float>");
        // extern "C" __global__ void plain(int)
        assert_eq!(readable("plain"), "plain");
    }

    #[test]
    fn parameters_by_name_and_size() {
        use RUSHMEM_ARG_FLOAT as F;
        use RUSHMEM_ARG_INT as I;
        use RUSHMEM_ARG_POINTER as P;
        use RUSHMEM_ARG_UINT as U;
        use RUSHMEM_ARG_UNKNOWN as X;
        assert_eq!(parsed("_Z4ringPmPfm", &[8, 8, 8]), [(P, 8, U, 8), (P, 8, F, 4), (U, 8, X, 0)]);
        assert_eq!(parsed("_ZN1a1b1kEi", &[4]), [(I, 4, X, 0)]);
        assert_eq!(parsed("_Z5scaleIfEvPT_S0_", &[8, 4]), [(P, 8, F, 4), (F, 4, X, 0)]);
        // void q(const float *, const volatile void *, double **, bool, char, Pair)
        let symbol = "_Z1qPKfPVKvPPdbc4Pair";
        let expected = [(P, 8, F, 4), (P, 8, X, 0), (P, 8, P, 8), (U, 1, X, 0), (I, 1, X, 0), (X, 12, X, 0)];
        assert_eq!(parsed(symbol, &[8, 8, 8, 1, 1, 12]), expected);
        // void f(void (*)(int, float), std::pair<int, long>)
        assert_eq!(parsed("_Z1fPFvifESt4pairIilE", &[8, 16]), [(X, 8, X, 0), (X, 16, X, 0)]);
        // No parameters; unknown ones; a list that is not what the binary has.
        assert_eq!(parsed("_Z4nonev", &[]), []);
        assert_eq!(parsed("plain", &[4, 8]), [(X, 4, X, 0), (X, 8, X, 0)]);
        assert_eq!(parsed("_Z4ringPmPfm", &[8, 8]), [(X, 8, X, 0); 2]);
        assert_eq!(parsed("_ZN1a1b1kEi", &[8]), [(X, 8, X, 0)]);
    }
}
