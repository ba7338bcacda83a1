//! Makes the generated parts of the headers: the host's declarations, and the functions of kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::table::{Caller, Function, Table};

/// A prototype.
pub fn prototype(f: &Function) -> String {
    let space = if f.result.ends_with('*') { "" } else { " " };
    format!("{}{space}{}({})", f.result, f.name, f.arguments)
}

/// The generated host.h: declarations of the library's functions. Those that kernels call, too, are for
/// both where nvcc compiles the host's side, and left to kernel.h where it compiles a kernel's.
pub fn host(table: &Table) -> String {
    let all = table.all();
    let in_kernels: BTreeSet<&str> =
        all.iter().filter(|f| f.caller == Caller::Thread).map(|f| f.name.as_str()).collect();
    let mut out = head("Functions of libnvshmem_host.", "HOST");
    out.push_str("#include <rushmem_nvshmem/types.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for chapter in &table.chapters {
        let of_chapter = chapter.operations.iter().flat_map(|row| table.functions(row));
        let host: Vec<Function> = of_chapter.filter(|f| f.caller == Caller::Host).collect();
        let (both, alone): (Vec<&Function>, Vec<&Function>) =
            host.iter().partition(|f| in_kernels.contains(f.name.as_str()));
        section(&mut out, &chapter.title, "", &alone);
        if !both.is_empty() {
            out.push_str("#ifndef RUSHMEM_NVSHMEM_IN_KERNEL\n");
            section(
                &mut out,
                &format!("{}: kernels have these, too", chapter.title),
                "RUSHMEM_NVSHMEM_BOTH ",
                &both,
            );
            out.push_str("#endif\n");
        }
    }
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    out
}

fn section(out: &mut String, title: &str, qualifier: &str, functions: &[&Function]) {
    if functions.is_empty() {
        return;
    }
    writeln!(out, "\n/* {title} */").expect("a string takes it");
    for f in functions {
        writeln!(out, "{qualifier}{};", prototype(f)).expect("a string takes it");
    }
}

/// The generated device.h: the functions of kernels, as templates without parameters to deduce, so that
/// the compiler makes those that are called and no others.
pub fn device(table: &Table) -> String {
    let all = table.all();
    let on_host: BTreeSet<&str> =
        all.iter().filter(|f| f.caller == Caller::Host).map(|f| f.name.as_str()).collect();
    let mut out = head("Functions of kernels.", "DEVICE");
    out.push_str("#include <rushmem_nvshmem/kernel.h>\n\nRUSHMEM_NVSHMEM_BEGIN\n");
    for chapter in &table.chapters {
        let of_chapter = chapter.operations.iter().flat_map(|row| table.functions(row));
        let kernels: Vec<Function> = of_chapter.filter(|f| f.caller != Caller::Host).collect();
        let is_half = |f: &&Function| f.of.as_ref().is_some_and(|of| of.is_half());
        for (halves, guard) in [(false, ""), (true, "#ifdef RUSHMEM_NVSHMEM_HALVES\n")] {
            let some: Vec<&Function> = kernels.iter().filter(|f| is_half(f) == halves).collect();
            if some.is_empty() {
                continue;
            }
            write!(out, "\n/* {} */\n{guard}", chapter.title).expect("a string takes it");
            let (both, alone): (Vec<&Function>, Vec<&Function>) =
                some.into_iter().partition(|f| on_host.contains(f.name.as_str()));
            alone.iter().for_each(|f| kernel(&mut out, f, "RUSHMEM_NVSHMEM_DEVICE"));
            if !both.is_empty() {
                out.push_str("#ifdef RUSHMEM_NVSHMEM_IN_KERNEL\n");
                both.iter().for_each(|f| kernel(&mut out, f, "RUSHMEM_NVSHMEM_SHARED"));
                out.push_str("#endif\n");
            }
            if halves {
                out.push_str("#endif\n");
            }
        }
    }
    out.push_str("\nRUSHMEM_NVSHMEM_END\n\n#endif\n");
    out
}

fn kernel(out: &mut String, f: &Function, qualifier: &str) {
    let result = if f.result == "void" { "" } else { "return " };
    let body = f.body.replace("impl::", "rushmem::nvshmem::");
    writeln!(out, "{qualifier} {} {{ {result}{body}; }}", prototype(f)).expect("a string takes it");
}

/// The generated functions.h of compat/nvshmem/device/bitcode.cu: the functions of kernels by their names in
/// C. Those that differ in a type's name, or in a queue that is not used, go on in one, whose code is there
/// once.
pub fn bitcode(table: &Table) -> String {
    let mut out = head("Functions of kernels, as symbols.", "BITCODE");
    let all = table.all();
    let kernels: Vec<&Function> = all.iter().filter(|f| f.caller != Caller::Host).collect();
    let named: BTreeMap<&str, &Function> = kernels.iter().map(|f| (f.name.as_str(), *f)).collect();
    for f in &kernels {
        writeln!(out, "extern \"C\" __device__ {};", prototype(f)).expect("a string takes it");
    }
    for f in &kernels {
        let one = same_function(f).and_then(|name| named.get(name.as_str()).copied());
        let body = one.map_or(f.body.clone(), |one| call_of(one, f));
        kernel(&mut out, &Function { body, ..(*f).clone() }, "extern \"C\" __device__");
    }
    out.push_str("\n#endif\n");
    out
}

/// The name of the function that does the same as this one.
fn same_function(f: &Function) -> Option<String> {
    if f.arguments.ends_with(", nvshmemx_qp_handle_t") {
        let grouped = ["_warp", "_block"].iter().any(|scope| f.name.ends_with(scope));
        return Some(f.name.replacen("nvshmemx_qp_", if grouped { "nvshmemx_" } else { "nvshmem_" }, 1));
    }
    let of = f.of.as_ref()?;
    let one = match of.name.as_str() {
        "char" | "int8" => "schar",
        "uint8" => "uchar",
        "int16" => "short",
        "uint16" => "ushort",
        "int32" => "int",
        "uint32" => "uint",
        "longlong" | "int64" | "ptrdiff" => "long",
        "ulonglong" | "uint64" | "size" => "ulong",
        _ => return None,
    };
    Some(f.name.replacen(&format!("_{}_", of.name), &format!("_{one}_"), 1))
}

/// A call of `one` with the arguments of `f`, which may have one more.
fn call_of(one: &Function, f: &Function) -> String {
    let end = |argument: &str| argument.rfind([' ', '*']).map_or(0, |at| at + 1);
    let pairs = one.arguments.split(", ").zip(f.arguments.split(", "));
    let cast = |(to, from): (&str, &str)| format!("({}) {}", to[..end(to)].trim(), &from[end(from)..]);
    format!("{}({})", one.name, pairs.map(cast).collect::<Vec<_>>().join(", "))
}

fn head(what: &str, guard: &str) -> String {
    format!(
        "/* {what} Generated from compat/nvshmem/operations.table; do not edit. */\n\
         #ifndef RUSHMEM_NVSHMEM_{guard}_H\n#define RUSHMEM_NVSHMEM_{guard}_H\n\n"
    )
}
