//! What a source is called: by its program, by the compiler that gets a copy of it, and in debug information.

use std::path::{Path, PathBuf};

/// The file name under which the list of a source's kernels is compiled (`compile/list.rs`).
pub(crate) const LIST: &str = "rushmem-kernel-list";

/// What a source is called, by programs and in its debug information.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceNames {
    /// What its program calls it.
    pub(crate) name: String,
    /// What the compiler was given.
    pub(crate) file: PathBuf,
    /// The cache, where rushmem's headers are, too.
    pub(crate) root: PathBuf,
}

impl SourceNames {
    /// What a program calls this file, if it is one of its own, not a header of the system or of rushmem.
    pub(crate) fn own(&self, file: &Path) -> Option<String> {
        if file == self.file {
            return Some(self.name.clone());
        }
        let foreign = file.starts_with("/usr")
            || file.starts_with(&self.root)
            || !file.is_absolute()
            || file.file_name().is_some_and(|name| name == LIST)
            || file.extension().is_some_and(|kind| kind == "rs");
        (!foreign).then(|| file.display().to_string())
    }
}

/// A file name for the source's copy: the last part of its name where that is an ordinary one.
pub(crate) fn file_name(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or_default();
    let plain =
        last.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+'));
    let reserved = last.is_empty() || last.starts_with('.') || last == "lock" || last.starts_with("kernel.");
    if plain && !reserved && last.len() <= 100 {
        last
    } else {
        "source.cu"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names() {
        assert_eq!(file_name("ring.cu"), "ring.cu");
        assert_eq!(file_name("examples/ring-2.cu"), "ring-2.cu");
        for odd in
            ["", "a b.cu", "/", "..", ".hidden", "lock", "kernel.so", "kernel.cu", "é.cu", "a\"b", "a\nb"]
        {
            assert_eq!(file_name(odd), "source.cu", "{odd:?}");
        }
    }
}
