//! Makes the texts of `shmem.h` and `pshmem.h` from the table.

use std::fmt::Write;

use crate::table::{argument_names, Function, Operation, Table};

/// Fills the template of `c/`.
pub fn shmem_h(table: &Table, template: &str) -> String {
    template
        .replace("@DECLARATIONS@\n", &declarations(table, ""))
        .replace("@GENERICS@\n", &generics(table))
        .replace("@OVERLOADS@\n", &overloads(table))
}

/// The header of the profiling interface.
pub fn pshmem_h(table: &Table) -> String {
    let declarations = declarations(table, "p");
    format!(
        "/* Every function of shmem.h under a second name, by which a profiler's own shmem_put calls the library's.\n \
         * Generated from compat/openshmem; do not edit. */\n#ifndef PSHMEM_H\n#define PSHMEM_H\n\n\
         #include \"shmem.h\"\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{declarations}\n\
         #ifdef __cplusplus\n}}\n#endif\n\n#endif /* PSHMEM_H */\n"
    )
}

/// A prototype.
pub fn prototype(f: &Function, prefix: &str) -> String {
    let space = if f.result.ends_with('*') { "" } else { " " };
    format!("{}{space}{prefix}{}({})", f.result, f.name, f.arguments)
}

fn declarations(table: &Table, prefix: &str) -> String {
    let mut out = String::new();
    for chapter in &table.chapters {
        writeln!(out, "/* {} */", chapter.title).expect("a string takes it");
        for f in chapter.operations.iter().flat_map(|row| table.functions(row)) {
            writeln!(out, "{};", prototype(&f, prefix)).expect("a string takes it");
        }
        out.push('\n');
    }
    out
}

/// The functions of a row that differ by their C type: `int32_t` is `int`. By their context.
fn distinct(table: &Table, row: &Operation) -> [Vec<Function>; 2] {
    let mut forms: [Vec<Function>; 2] = Default::default();
    for f in table.functions(row) {
        let form = &mut forms[usize::from(f.with_context)];
        let standard = |f: &Function| f.of.as_ref().map(|of| of.standard.clone());
        if !form.iter().any(|other| standard(other) == standard(&f)) {
            form.push(f);
        }
    }
    forms
}

fn rows(table: &Table) -> impl Iterator<Item = (&Operation, &String)> {
    let rows = table.chapters.iter().flat_map(|chapter| &chapter.operations);
    rows.filter_map(|row| row.generic.as_ref().map(|generic| (row, generic)))
}

/// For each generic name a macro that counts its arguments, and one for each number of them, which chooses by
/// the type that the first pointer behind the context points at.
fn generics(table: &Table) -> String {
    let mut out = String::new();
    for (row, generic) in rows(table) {
        let forms = distinct(table, row);
        let short = generic.strip_prefix("shmem_").unwrap_or(generic);
        for form in forms.iter().filter(|form| !form.is_empty()) {
            let names = argument_names(&form[0].arguments);
            let list = names.join(", ");
            write!(out, "#define RUSHMEM_SHMEM_{short}_{}({list}) ", names.len()).expect("a string takes it");
            if form[0].of.is_none() {
                writeln!(out, "{}({list})", form[0].name).expect("a string takes it");
                continue;
            }
            let pointer = names.iter().find(|name| !["ctx", "team"].contains(name));
            let pointer = pointer.expect("a generic form has a pointer");
            write!(out, "_Generic(*({pointer})").expect("a string takes it");
            for f in form {
                let of = f.of.as_ref().expect("forms of a type");
                write!(out, ", \\\n  {}: {}", of.standard, f.name).expect("a string takes it");
            }
            let passed: Vec<String> = names.iter().map(|name| format!("({name})")).collect();
            writeln!(out, ")({})", passed.join(", ")).expect("a string takes it");
        }
        writeln!(
            out,
            "#define {generic}(...) RUSHMEM_SHMEM_JOIN(RUSHMEM_SHMEM_{short}_, RUSHMEM_SHMEM_COUNT(__VA_ARGS__))(__VA_ARGS__)\n"
        )
        .expect("a string takes it");
    }
    out.push_str(
        "/* One argument: a team. Four: an active set, deprecated. */\n\
         #define RUSHMEM_SHMEM_sync_1(team) shmem_team_sync(team)\n\
         #define RUSHMEM_SHMEM_sync_4(start, stride, size, psync) (shmem_sync)(start, stride, size, psync)\n\
         #define shmem_sync(...) RUSHMEM_SHMEM_JOIN(RUSHMEM_SHMEM_sync_, RUSHMEM_SHMEM_COUNT(__VA_ARGS__))(__VA_ARGS__)\n",
    );
    out
}

fn overloads(table: &Table) -> String {
    let mut out = String::new();
    for (row, generic) in rows(table) {
        for f in distinct(table, row).iter().flatten() {
            // What C has under this very name, with these arguments, is declared.
            let same = f.name == *generic
                || (generic == "shmem_wait_until" && f.of.as_ref().is_some_and(|of| of.name == "long"));
            if same {
                continue;
            }
            let result = if f.result == "void" { "" } else { "return " };
            let list = argument_names(&f.arguments).join(", ");
            writeln!(
                out,
                "static inline {} {generic}({}) {{ {result}{}({list}); }}",
                f.result, f.arguments, f.name
            )
            .expect("a string takes it");
        }
    }
    out.push_str("static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }\n");
    out
}
