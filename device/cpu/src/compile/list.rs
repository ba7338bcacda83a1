//! The list of a source's kernels, which is appended to the source: a table of names and functions that the
//! loaded module hands out. What is wrong with it is said by the source's own lines.

use std::fmt::Write;
use std::path::Path;

use super::Job;
use crate::error::Error;
use crate::scan::{Found, KernelForm};
use crate::source::LIST;

impl Job<'_> {
    /// A kernel is found by its name, so no two functions may have one.
    pub(super) fn check_names(&self, found: &[Found]) -> Result<(), Error> {
        for (i, kernel) in found.iter().enumerate() {
            let same = |other: &&Found| other.name == kernel.name && other.form == KernelForm::Function;
            let Some(first) = found[..i].iter().find(same).filter(|_| kernel.form == KernelForm::Function)
            else {
                continue;
            };
            let place =
                |kernel: &Found| self.readable(&format!("{}:{}", kernel.file, kernel.line)).trim().to_owned();
            let text = format!(
                "{}: error: kernel `{}` is overloaded (first at {}): a kernel is found by its name, so give each its own\n",
                place(kernel),
                kernel.name,
                place(first)
            );
            return Err(Error::Compile { text });
        }
        Ok(())
    }

    /// Name and C++ expression of every kernel to list.
    pub(super) fn entries(&self, found: &[Found]) -> Vec<(String, String)> {
        let asked = self
            .instances
            .iter()
            .map(|option| option["--kernel=".len()..].trim_start_matches("::").to_owned());
        let listed = found
            .iter()
            .filter(|kernel| kernel.form != KernelForm::Template)
            .map(|kernel| kernel.name.clone());
        let mut entries: Vec<(String, String)> = Vec::new();
        for name in listed.chain(asked) {
            if !entries.iter().any(|known| known.0 == name) {
                let expression = format!("::{name}");
                entries.push((name, expression));
            }
        }
        entries
    }

    /// What is wrong when only the appended list does not compile.
    pub(super) fn unlistable(&self, text: &str, entries: &[(String, String)]) -> String {
        let mut out = String::new();
        for (i, (name, _)) in entries.iter().enumerate() {
            let at = format!("{LIST}:{}:", i + FIRST_LINE);
            let mut here = text.lines().filter(|line| line.starts_with(&at)).peekable();
            if here.peek().is_none() {
                continue;
            }
            // The error itself may be in a template of ours that this line instantiates.
            let why =
                here.chain(text.lines()).find_map(|line| line.split_once("error: ")).unwrap_or_default().1;
            let _ = writeln!(
                out,
                "{}: error: kernel `{name}` cannot be taken by its name (overloaded, ambiguous, no such instance, or it \
                 does not return void): {why}",
                self.name
            );
        }
        if out.is_empty() {
            out = self.readable(text);
        }
        out
    }
}

/// The line of the list that holds its first kernel.
const FIRST_LINE: usize = 3;

/// What is appended to the source: a table of its kernels, each on its line.
pub(super) fn list(entries: &[(String, String)], found: &[Found]) -> String {
    let mut out = format!(
        "# 1 \"{LIST}\"\nRUSHMEM_CPU_EXPORT const rushmem_cpu_kernel *rushmem_cpu_kernels(void) {{\n\
         static const rushmem_cpu_kernel rushmem_cpu_list[] = {{\n"
    );
    for (name, expression) in entries {
        let text = quoted(Path::new(name));
        let _ = writeln!(
            out,
            "::rushmem_cpu_detail::registrar<std::remove_pointer_t<decltype(&{expression})>, &{expression}>::entry({text}),"
        );
    }
    out += "{nullptr, nullptr, nullptr, 0}};\nreturn rushmem_cpu_list;\n}\n";
    let templates: Vec<&str> = found
        .iter()
        .filter(|kernel| kernel.form == KernelForm::Template)
        .map(|kernel| kernel.name.as_str())
        .collect();
    let _ = writeln!(
        out,
        "RUSHMEM_CPU_EXPORT const char *rushmem_cpu_templates(void) {{ return \"{}\"; }}",
        templates.join(" ")
    );
    out
}

/// A C string literal.
pub(super) fn quoted(path: &Path) -> String {
    let mut out = String::from("\"");
    for c in path.to_string_lossy().chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}
