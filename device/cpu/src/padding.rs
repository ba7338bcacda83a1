//! Room around variables, for checked runs: a compiler lays them side by side, where an index past the end
//! of one is an index into the next. So checked kernels are compiled to assembly, in which each variable is
//! moved away from the one in front of it, and there is room behind the last. (GNU as, "Assembler
//! Directives", which GCC and Clang both write.)

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Bytes on either side of a variable that belong to nobody; more where its alignment takes more.
pub(crate) const GUARD: usize = 256;

/// The assembly with such room.
pub(crate) fn padded(assembly: &str) -> String {
    let mut out = String::with_capacity(assembly.len() + assembly.len() / 8);
    let mut objects = HashSet::new();
    let mut local = HashSet::new();
    // The directive by which each section with variables was begun, in their order.
    let (mut sections, mut seen) = (Vec::new(), HashMap::new());
    let (mut in_variables, mut align) = (false, 1);
    for line in assembly.lines() {
        let text = line.trim();
        let (directive, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let mut arguments = rest.split(',').map(str::trim);
        match directive {
            ".section" | ".data" | ".bss" | ".text" => {
                in_variables = holds_variables(if directive == ".section" { rest } else { directive });
                align = 1;
                if in_variables && seen.insert(text, ()).is_none() {
                    sections.push(text);
                }
            }
            ".previous" | ".popsection" | ".pushsection" | ".subsection" => in_variables = false,
            ".type" if rest.ends_with("object") => {
                objects.extend(arguments.next());
            }
            ".local" => local.extend(arguments.next()),
            ".align" | ".balign" => align = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            ".p2align" => {
                align = arguments.next().and_then(|n| n.parse().ok()).map_or(1, |n: u32| 1 << n.min(16));
            }
            ".comm" => {
                // Of this file alone: a place in .bss whose size is the variable's.
                let name = arguments.next().unwrap_or_default();
                let numbers: Vec<usize> = arguments.filter_map(|n| n.parse().ok()).collect();
                if let (true, [bytes, align @ ..]) = (local.contains(name), &numbers[..]) {
                    let align = align.first().copied().unwrap_or(1).max(1);
                    let guard = GUARD.next_multiple_of(align);
                    let _ = write!(
                        out,
                        "\t.pushsection .bss\n\t.balign {align}\n\t.zero {guard}\n\t.type {name}, %object\n\
                         \t.size {name}, {bytes}\n{name}:\n\t.zero {bytes}\n\t.zero {GUARD}\n\t.popsection\n"
                    );
                    continue;
                }
            }
            _ if in_variables && label(text).is_some_and(|name| objects.contains(name)) => {
                let _ = writeln!(out, "\t.zero {}", GUARD.next_multiple_of(align));
            }
            _ => {}
        }
        out.push_str(line);
        out.push('\n');
    }
    for section in sections {
        let _ = write!(out, "\t{section}\n\t.zero {GUARD}\n");
    }
    out
}

/// The label that a line is, with a comment behind it or none.
fn label(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(':')?;
    let rest = rest.trim_start();
    (rest.is_empty() || rest.starts_with('#') || rest.starts_with("//")).then_some(name)
}

/// Whether a section's arguments, or its own directive, say that it has variables which can be written.
fn holds_variables(section: &str) -> bool {
    let name = section.split(',').next().unwrap_or_default().trim().trim_matches('"');
    [".tbss", ".tdata", ".bss", ".data"].iter().any(|kind| {
        name.strip_prefix(kind)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') && !rest.starts_with(".rel.ro"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_both_compilers_get_room() {
        // As GCC writes them, and Clang.
        let gcc = "\t.text\n_Z1kv:\n\tret\n\t.section\t.tbss,\"awT\",@nobits\n\t.align 32\n\t.type\t_ZZ1kvE1a, @object\n\
                   \t.size\t_ZZ1kvE1a, 64\n_ZZ1kvE1a:\n\t.zero\t64\n\t.align 512\n\t.type\tb, @object\nb:\n\t.zero\t1024\n";
        let padded_gcc = padded(gcc);
        assert!(padded_gcc.contains("64\n\t.zero 256\n_ZZ1kvE1a:\n"), "{padded_gcc}");
        assert!(padded_gcc.contains("@object\n\t.zero 512\nb:\n"), "{padded_gcc}");
        assert!(padded_gcc.ends_with("\t.section\t.tbss,\"awT\",@nobits\n\t.zero 256\n"), "{padded_gcc}");
        let clang = "\t.type\tt,@object\n\t.data\n\t.p2align\t4, 0x0\nt:\n\t.long\t1\n\t.size\tt, 4\n";
        assert!(padded(clang).contains("0x0\n\t.zero 256\nt:\n"));
        let common = padded("\t.local\tz\n\t.comm\tz,12,8\n\t.comm\tshared,4,4\n");
        assert!(
            common.contains("\t.size z, 12\nz:\n\t.zero 12\n") && common.contains("\t.comm\tshared,4,4\n")
        );
    }

    #[test]
    fn code_constants_and_labels_are_let_be() {
        for text in [
            "\t.text\n\t.type\tf, @function\nf:\n\tret\n",
            "\t.section\t.rodata\n\t.type\tc, @object\nc:\n\t.long 3\n",
            "\t.section\t.data.rel.ro,\"aw\"\n\t.type\tv, @object\nv:\n\t.quad f\n",
        ] {
            assert_eq!(padded(text), text);
        }
        let label = "\t.data\n.L3:\n\t.long 3\n";
        assert_eq!(padded(label), format!("{label}\t.data\n\t.zero 256\n"));
    }
}
