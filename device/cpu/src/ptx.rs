//! Inline PTX: the C++ compiler refuses it in words of its own ("impossible constraint", "operand number
//! missing"). Where a source does not compile, each `asm` with PTX is named here with its line, and what to
//! write instead. (PTX ISA, "Instruction Set".)

use std::fmt::Write;

use crate::token::{tokenize, Token, TokenKind};

/// What an instruction begins with, and what does the same on both devices. The first that fits counts.
const INSTEAD: &[(&str, &str)] = &[
    ("ld.acquire", "cuda::atomic_ref<T, cuda::thread_scope_system>(*p).load(cuda::memory_order_acquire), or rushmem::wait_until"),
    ("ld.relaxed", "cuda::atomic_ref<T>(*p).load(cuda::memory_order_relaxed)"),
    ("ld.volatile", "*(const volatile T *)p, or __ldcv(p)"),
    ("ld.global.nc", "__ldg(p)"),
    ("ld.shared", "a plain load of the __shared__ variable"),
    ("ld.", "a plain load, or __ldcg(p), __ldcs(p), __ldcv(p)"),
    ("st.release", "cuda::atomic_ref<T, cuda::thread_scope_system>(*p).store(v, cuda::memory_order_release)"),
    ("st.relaxed", "cuda::atomic_ref<T>(*p).store(v, cuda::memory_order_relaxed)"),
    ("st.volatile", "*(volatile T *)p = v"),
    ("st.async", "a plain store, and cuda::barrier"),
    ("st.", "a plain store, or __stcg(p, v), __stcs(p, v)"),
    ("atom.", "cuda::atomic_ref<T>(*p).fetch_add(v, order) and its like, or atomicAdd, atomicCAS, atomicExch"),
    ("red.async", "cuda::atomic_ref<T>(*p).fetch_add(v, order) and its like"),
    ("red.", "cuda::atomic_ref<T>(*p).fetch_add(v, order) and its like, or atomicAdd"),
    ("multimem.", "rushmem's collectives (rushmem/reduce.h)"),
    ("fence.proxy", "nothing: leave it out here"),
    ("fence.", "cuda::atomic_thread_fence(order, scope), or __threadfence_system(), or rushmem::fence()"),
    ("membar.", "__threadfence_block(), __threadfence() or __threadfence_system()"),
    ("bar.warp.sync", "__syncwarp(mask)"),
    ("barrier.cluster", "__syncthreads(): a cluster is a block here"),
    ("bar.", "__syncthreads(), or cuda::barrier for some of the block's threads"),
    ("barrier.", "__syncthreads(), or cuda::barrier for some of the block's threads"),
    ("mbarrier.", "cuda::barrier<cuda::thread_scope_block>"),
    ("cp.async.bulk", "cuda::memcpy_async with a cuda::barrier"),
    ("cp.reduce", "a loop of atomicAdd"),
    ("cp.async", "__pipeline_memcpy_async, __pipeline_commit, __pipeline_wait_prior (<cuda_pipeline.h>)"),
    ("nanosleep", "__nanosleep(ns)"),
    ("ex2.", "exp2f(x)"),
    ("lg2.", "log2f(x)"),
    ("tanh.", "tanhf(x)"),
    ("sin.", "__sinf(x)"),
    ("cos.", "__cosf(x)"),
    ("rcp.", "__frcp_rn(x)"),
    ("rsqrt.", "rsqrtf(x)"),
    ("sqrt.", "sqrtf(x)"),
    ("fma.", "__fmaf_rn(a, b, c), __hfma2(a, b, c)"),
    ("cvt.", "a conversion of C++, of <cuda_fp16.h>, <cuda_bf16.h> or <cuda_fp8.h>, or __float2int_rn(x) and its like"),
    ("cvta.", "__cvta_generic_to_shared(p)"),
    ("prmt.", "__byte_perm(x, y, selector)"),
    ("lop3.", "C++'s &, |, ^ and ~"),
    ("shf.", "__funnelshift_l(low, high, by)"),
    ("bfe.", "shifts and masks"),
    ("bfi.", "shifts and masks"),
    ("bfind.", "31 - __clz(x)"),
    ("brev.", "__brev(x)"),
    ("popc.", "__popc(x)"),
    ("clz.", "__clz(x)"),
    ("dp4a.", "__dp4a(a, b, c)"),
    ("dp2a.", "__dp2a_lo(a, b, c)"),
    ("shfl.", "__shfl_sync(mask, v, lane) and its like"),
    ("vote.", "__ballot_sync(mask, predicate)"),
    ("activemask.", "__activemask()"),
    ("match.", "__match_any_sync(mask, v)"),
    ("redux.", "__reduce_add_sync(mask, v)"),
    ("elect.", "the lowest lane: threadIdx.x % 32 == 0"),
    ("trap", "__trap()"),
    ("exit", "return"),
    ("brkpt", "__trap()"),
    ("griddepcontrol", "nothing: leave it out here"),
    ("setmaxnreg", "nothing: leave it out here"),
    ("prefetch", "nothing: leave it out here"),
    ("createpolicy", "nothing: leave it out here"),
    ("mma.", "a loop: there are no tensor cores here"),
    ("wmma.", "a loop: there are no tensor cores here"),
    ("wgmma.", "a loop: there are no tensor cores here"),
    ("tcgen05.", "a loop: there are no tensor cores here"),
    ("ldmatrix.", "loads of the __shared__ variable by each lane"),
    ("stmatrix.", "stores to the __shared__ variable by each lane"),
    ("setp.", "an if of C++"),
    ("selp.", "C++'s ?:"),
    ("mov.", "an assignment"),
    ("add.", "C++'s operator"),
    ("sub.", "C++'s operator"),
    ("mul.", "C++'s operator, __umulhi(a, b)"),
    ("mad.", "C++'s operators"),
    ("abs.", "fabsf(x), abs(x)"),
    ("max.", "max(a, b), fmaxf(a, b)"),
    ("min.", "min(a, b), fminf(a, b)"),
];

/// What a special register holds.
const REGISTERS: &[(&str, &str)] = &[
    ("globaltimer", "clock64(), which counts nanoseconds here"),
    ("clock", "clock64()"),
    ("laneid", "threadIdx.x % 32, of blocks of one dimension"),
    ("lanemask_lt", "(1u << lane) - 1"),
    ("warpid", "threadIdx.x / 32, of blocks of one dimension"),
    ("smid", "blockIdx.x: no blocks share a processor here"),
    ("nsmid", "gridDim.x"),
    ("dynamic_smem_size", "the number that the launch was given, as an argument"),
    ("cluster", "blockIdx and gridDim: a cluster is a block here"),
];

/// A line for each `asm` with PTX of a preprocessed text, as the compiler writes its errors.
pub(crate) fn complaints(preprocessed: &str) -> String {
    let tokens = tokenize(preprocessed);
    let mut out = String::new();
    for (i, token) in tokens.list.iter().enumerate() {
        if token.kind != TokenKind::Name || !matches!(token.text, "asm" | "__asm__" | "__asm") {
            continue;
        }
        let text = code(&tokens.list[i + 1..]);
        if let Some((instruction, instead)) = instruction(&text) {
            let _ = writeln!(
                out,
                "{}:{}: error: PTX in `asm` does not run on the CPU device; for `{instruction}` write {instead} (or keep it \
                 for GPUs, under #if !defined(RUSHMEM_CPU))",
                tokens.files[token.file], token.line
            );
        }
    }
    out
}

/// The string literals at the beginning of an `asm`'s brackets, as one text.
fn code(after: &[Token<'_>]) -> String {
    let words = ["volatile", "__volatile__", "__volatile", "inline", "goto"];
    let mut rest = after.iter().skip_while(|token| words.contains(&token.text));
    if !rest.next().is_some_and(|token| token.is("(")) {
        return String::new();
    }
    let literals = rest.take_while(|token| token.kind == TokenKind::Literal);
    let parts: Vec<&str> = literals.map(|token| token.text.trim_matches('"')).collect();
    parts.concat().replace("\\n", "\n").replace("\\t", " ")
}

/// The first instruction of PTX in a text that the table has, and what to write instead.
fn instruction(code: &str) -> Option<(&str, &'static str)> {
    let found = code.split([';', '\n', '{', '}']).find_map(|line| {
        let line = line.trim();
        // A predicate comes first: `@p`, `@!p`.
        let line = if line.starts_with('@') { line.split_once(' ')?.1.trim() } else { line };
        let opcode = line.split_whitespace().next()?;
        let of_opcode = |(name, instead): &(&str, &'static str)| {
            (opcode == *name
                || opcode.starts_with(name)
                    && (name.contains('.') || opcode.starts_with(&format!("{name}."))))
            .then_some((opcode, *instead))
        };
        let known = INSTEAD.iter().find_map(of_opcode)?;
        let register = |(name, instead): &(&str, &'static str)| {
            let named = line.split('%').skip(1).any(|operand| operand.starts_with(name));
            named.then_some((opcode, *instead))
        };
        Some((known, REGISTERS.iter().find_map(register).filter(|_| opcode.starts_with("mov."))))
    });
    // What else there is: directives of PTX, which no other assembler has.
    match found {
        Some((_, Some(of_register))) => Some(of_register),
        Some((known, None)) => Some(known),
        None => {
            let directive =
                [".reg", ".pred", ".param"].into_iter().find(|name| code.contains(&format!("{name} ")))?;
            Some((code.get(code.find(directive)?..)?.lines().next()?, "C++, or a function of CUDA's"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_asm_with_ptx_is_named() {
        let text = "# 7 \"a.cu\"\nvoid f() { asm volatile(\"st.release.sys.global.s32 [%0], %1;\" :: \"l\"(x), \"r\"(v)); }\n\
                    int g() { asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(y));\n __asm__ __volatile__(\"{\\n\\t\"\n\
                    \".reg .pred p;\\n\\t\" \"@!p ex2.approx.ftz.f32 %0, %1;}\" : \"=f\"(f)); }\n";
        let complaints = complaints(text);
        let lines: Vec<&str> = complaints.lines().collect();
        assert_eq!(lines.len(), 3, "{complaints}");
        for (line, wanted) in lines.iter().zip([
            ["a.cu:7: error:", "`st.release.sys.global.s32`", "memory_order_release"],
            ["a.cu:8: error:", "`mov.u32`", "threadIdx.x % 32"],
            ["a.cu:9: error:", "`ex2.approx.ftz.f32`", "exp2f"],
        ]) {
            for part in wanted {
                assert!(line.contains(part), "{part} in {line}");
            }
        }
    }

    #[test]
    fn what_is_no_ptx_is_let_be() {
        for text in [
            "asm(\"lock; cmpxchg %1, %0\" : \"+m\"(x));",
            "asm volatile(\"\" ::: \"memory\");",
            "extern int f() __asm__(\"__f\");",
            "asm(\"mov %0, %%eax\");",
            "const char *asm_text = \"ld.acquire.sys\";",
            "asm",
            "asm(",
            "asm volatile",
            "asm(\"pause\");",
        ] {
            assert_eq!(complaints(text), "", "{text}");
        }
    }
}
