//! A kernel source: its text, the name that messages use, and options of the compiler.

use std::path::Path;

use crate::{Error, ErrorCode, Result};

/// A kernel source in CUDA C++. A `&str` is one by itself; [`Source::file`] reads one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) options: Vec<String>,
}

impl Source {
    /// A source from its text.
    pub fn text(text: impl Into<String>) -> Self {
        Source { text: text.into(), name: "kernel.cu".into(), options: Vec::new() }
    }

    /// A source from a file, whose folder is searched for what it includes.
    ///
    /// # Errors
    /// [`ErrorCode::Io`] names the path.
    pub fn file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::new(ErrorCode::Io, format!("cannot read the kernel source {}: {error}", path.display()))
        })?;
        let source = Source::text(text).name(path.to_string_lossy());
        Ok(match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => source.include("."),
            Some(folder) => source.include(folder),
            None => source,
        })
    }

    /// The name that compiler messages use.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Defines a macro: `-Dname=value`.
    pub fn define(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.option(format!("-D{name}={value}"))
    }

    /// Adds a folder that is searched for included files: `-Ifolder`.
    pub fn include(self, folder: impl AsRef<Path>) -> Self {
        let option = format!("-I{}", folder.as_ref().display());
        self.option(option)
    }

    /// Asks for an instance of a kernel template, such as `scale<float>`, which is then a kernel of that
    /// name.
    pub fn instance(self, kernel: impl std::fmt::Display) -> Self {
        self.option(format!("--kernel={kernel}"))
    }

    /// Adds an option for the compiler of GPUs (NVRTC), such as `--maxrregcount=64`. The CPU device's does
    /// not see it.
    pub fn gpu_option(self, option: impl std::fmt::Display) -> Self {
        self.option(format!("--nvrtc={option}"))
    }

    /// Adds an option for the CPU device's compiler, such as `-O3`. That of GPUs does not see it.
    pub fn cpu_option(self, option: impl std::fmt::Display) -> Self {
        self.option(format!("--cxx={option}"))
    }

    /// Adds a compiler option as it is, for either device: NVRTC for GPUs, g++ or clang++ for the CPU device.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        Source::text(text)
    }
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        Source::text(text)
    }
}
