//! `extern __shared__ float tile[];` inside a function is CUDA's way to name dynamic shared memory, and the
//! one line of ordinary CUDA C++ that no macro can turn into C++. So it is rewritten in the source before it
//! is compiled, without changing any line's number. (`RUSHMEM_DYNAMIC_SHARED(float, tile)` says the same with
//! no rewriting, also in headers.) Nor does C++ have an `alignas` behind `__shared__`, which is
//! `static thread_local`, or a `static` before it: the one is put before it, the other left out.

use crate::token::{tokenize, Token, TokenKind};

/// `source` with each such declaration replaced; others are left for the compiler to complain about.
pub(crate) fn rewrite(source: &str) -> String {
    if !source.contains("__shared__") {
        return source.to_owned();
    }
    let tokens = tokenize(source).list;
    let mut out = String::with_capacity(source.len() + 256);
    let (mut copied, mut at) = (0, 0);
    while at < tokens.len() {
        let Some((kind, name, end)) = declaration(&tokens, at) else {
            if let Some((alignment, end)) = misplaced(&tokens, at) {
                let stop = tokens[end].at;
                let alignment = source[alignment..stop].trim_end();
                out += &source[copied..tokens[at].at];
                out += &format!("{alignment} __shared__ ");
                let lines =
                    source[tokens[at].at..stop].matches('\n').count() - alignment.matches('\n').count();
                out.extend(std::iter::repeat_n('\n', lines));
                (copied, at) = (stop, end);
            } else {
                at += 1;
            }
            continue;
        };
        let start = tokens[at].at;
        let stop = tokens[end].at;
        out += &source[copied..start];
        out += &format!("{kind} *const {name} = static_cast<{kind} *>(rushmem_cpu_dynamic_shared())");
        // A declaration may spread over lines.
        out.extend(source[start..stop].chars().filter(|&c| c == '\n'));
        (copied, at) = (stop, end);
    }
    out + &source[copied..]
}

/// The type, the name and the index of the semicolon of `extern __shared__ … name[];` at token `at`.
fn declaration<'a>(tokens: &[Token<'a>], at: usize) -> Option<(String, &'a str, usize)> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    if !(is(at, "extern") && is(at + 1, "__shared__")) {
        return None;
    }
    let mut words: Vec<&str> = Vec::new();
    let mut next = at + 2;
    loop {
        let token = tokens.get(next)?;
        match token.text {
            "[" if is(next + 1, "]") && is(next + 2, ";") => {
                let name = words.pop()?;
                return (!words.is_empty()).then(|| (words.join(" "), name, next + 2));
            }
            "__align__" | "__attribute__" | "alignas" => next = skip_round(tokens, next + 1)?,
            "<" | ">" | "::" | "," | "*" => {
                words.push(token.text);
                next += 1;
            }
            text if token.kind != TokenKind::Punct => {
                words.push(text);
                next += 1;
            }
            _ => return None,
        }
    }
}

/// Where the alignment begins, and the token behind it, of `static __shared__` or `__shared__ alignas(…)`
/// at token `at`.
fn misplaced(tokens: &[Token<'_>], at: usize) -> Option<(usize, usize)> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    let is_static = is(at, "static") && is(at + 1, "__shared__");
    if !is_static && (!is(at, "__shared__") || at > 0 && is(at - 1, "extern")) {
        return None;
    }
    let after = at + 1 + usize::from(is_static);
    let end = match tokens.get(after)? {
        token if token.is("alignas") => skip_round(tokens, after + 1)?,
        _ if is_static => after,
        _ => return None,
    };
    (end < tokens.len()).then(|| (tokens[after].at, end))
}

/// After the bracket that closes the one at `at`.
fn skip_round(tokens: &[Token<'_>], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match tokens.get(at)?.text {
            "(" => depth += 1,
            ")" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn declarations_become_pointers() {
        let call = "(rushmem_cpu_dynamic_shared())";
        for (from, kind) in [
            ("extern __shared__ float x[];", "float"),
            ("extern __shared__ __align__(16) unsigned char x[];", "unsigned char"),
            ("extern __shared__ alignas(alignof(int4)) char x [ ] ;", "char"),
            ("extern  __shared__ __attribute__((aligned(8))) Pair<int, 3> x[];", "Pair < int , 3 >"),
            ("extern /* c */ __shared__ ns::T x[];", "ns :: T"),
        ] {
            let to = rewrite(from);
            assert_eq!(to, format!("{kind} *const x = static_cast<{kind} *>{call};"), "{from}");
        }
    }

    #[test]
    fn alignments_go_before() {
        for (from, to) in [
            ("__shared__ alignas(16) char x[4];", "alignas(16) __shared__ char x[4];"),
            ("{ static __shared__ int x; }", "{  __shared__ int x; }"),
            ("static __shared__ alignas(alignof(T)) T x;", "alignas(alignof(T)) __shared__ T x;"),
            ("a\n__shared__\nalignas(8)\nint x;\nb", "a\nalignas(8) __shared__ \n\nint x;\nb"),
        ] {
            assert_eq!(rewrite(from), to);
        }
    }

    #[test]
    fn everything_else_stays() {
        for source in [
            "__shared__ float x[4];",
            "// extern __shared__ float x[];\n",
            "\"extern __shared__ float x[];\"",
            "extern __shared__ float x[4];",
            "extern __shared__",
            "static __shared__",
            "__shared__ alignas(",
            "__shared__ alignas(8)",
            "alignas(8) __shared__ int x;",
            "extern __shared__ __align__(",
            "extern __shared__ x[];",
        ] {
            assert_eq!(rewrite(source), source);
        }
        let source = "a\nextern __shared__\nfloat\nx[];\nb extern __shared__ int y[]; c\n";
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&rewrite(source)), lines(source));
        assert!(rewrite(source).ends_with("; c\n"));
    }
}
