//! A kernel's code, as its module hands it to a launch.

use std::ffi::c_void;
use std::ops::Range;

use crate::check_mode::Mode;
use crate::context::ThreadContext;
use crate::lines::Lines;
use crate::source::SourceNames;
use crate::stack_trace::{Counters, SourcePlace};

/// Where a kernel's arguments are: an array of pointers.
pub(crate) type Arguments = *const *const c_void;

/// The functions of a loaded module that a block needs, and what texts need.
#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) run: unsafe extern "C" fn(Arguments),
    pub(crate) slot: unsafe extern "C" fn() -> *mut *mut ThreadContext,
    /// The addresses of the module's code.
    pub(crate) text: Range<usize>,
    /// The kernel's name and its source's, in the module.
    pub(crate) kernel: *const str,
    pub(crate) names: *const SourceNames,
    pub(crate) lines: *const Lines,
    /// What is checked.
    pub(crate) check: Mode,
}

impl Code {
    pub(crate) fn kernel(&self) -> &str {
        // SAFETY: the launch's caller holds the module.
        unsafe { &*self.kernel }
    }

    pub(crate) fn names(&self) -> &SourceNames {
        // SAFETY: the launch's caller holds the module.
        unsafe { &*self.names }
    }

    pub(crate) fn lines(&self) -> &Lines {
        // SAFETY: the launch's caller holds the module.
        unsafe { &*self.lines }
    }

    /// Where a thread of the kernel's is.
    pub(crate) fn place(&self, counters: &Counters) -> SourcePlace {
        counters.place(&self.text, self.lines(), self.names())
    }

    pub(crate) fn source(&self) -> &str {
        &self.names().name
    }
}
