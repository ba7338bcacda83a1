//! One function of a stack, and its name as its source has it.

use std::borrow::Cow;
use std::path::PathBuf;

use cpp_demangle::{DemangleOptions, Symbol};

/// One function of a stack, inlined ones included.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: u32,
    /// The counter that it belongs to.
    pub(crate) counter: usize,
}

/// A symbol's name as its source has it: C++'s without parameters.
pub(crate) fn demangled(raw: Cow<'_, str>) -> String {
    let raw = raw.into_owned();
    if !raw.starts_with("_Z") {
        return raw;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    Symbol::new(raw.as_bytes())
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or(raw)
}
