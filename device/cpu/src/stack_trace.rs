//! Where a thread of a kernel is, from its stack and the compiler's debug information: the line of the
//! program's own source, and the call of CUDA's or rushmem's that it makes there.

use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;

use crate::function::{demangled, Function};
use crate::lines::Lines;
use crate::source::SourceNames;

/// Frames of a stack that are looked at.
pub(crate) const DEPTH: usize = 48;

/// Program counters of a stack, innermost first. The first is exact where a signal has interrupted it, all
/// others are where a call returns to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Counters {
    at: [usize; DEPTH],
    count: usize,
    exact: bool,
}

/// What becomes of a frame.
enum FrameFate {
    Skip,
    Keep,
    /// The last that is kept.
    End,
}

/// A place in a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourcePlace {
    /// `k.cu:12`, of the program's own sources.
    pub(crate) at: Option<String>,
    /// The function that has it.
    pub(crate) function: String,
    /// What that line calls of CUDA, rushmem or libc, if it does.
    pub(crate) call: Option<String>,
    /// The places that called it, innermost first: `k.cu:40 in kernel`.
    pub(crate) callers: Vec<String>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { at: [0; DEPTH], count: 0, exact: false }
    }
}

impl Counters {
    /// Of the calling thread, from its innermost frame in `text`, a kernel's code, which a signal has
    /// interrupted (`exact`) or which has called. Allocates nothing.
    pub(crate) fn capture(&mut self, text: &Range<usize>, exact: bool) {
        self.collect(|counter| text.contains(&counter));
        self.exact = exact;
    }

    /// Of what a signal has interrupted at `counter`, exactly there or behind a call; the caller runs in its
    /// handler.
    pub(crate) fn interrupted(counter: usize, exact: bool) -> Counters {
        let mut counters = Counters::default();
        counters.collect(|at| at == counter);
        if counters.count == 0 {
            (counters.at[0], counters.count) = (counter, 1);
        }
        counters.exact = exact;
        counters
    }

    /// Of the calling function.
    pub(crate) fn of_this_call() -> Counters {
        let mut counters = Counters::default();
        counters.collect(|_| true);
        counters
    }

    /// The innermost line of the program's own, behind what it calls of rushmem and of Rust's library.
    pub(crate) fn program_line(&self) -> Option<String> {
        const OTHERS: [&str; 6] = [
            "/rustc/",
            "/.cargo/registry/",
            "/rustlib/",
            "/host/api/",
            "/host/runtime/src/",
            "/device/cpu/src/",
        ];
        let functions = self.functions_of_known_modules();
        let own = functions.iter().find(|function| {
            let file = function.file.as_deref().filter(|file| file.is_absolute()).map(Path::to_string_lossy);
            file.is_some_and(|file| !OTHERS.iter().any(|other| file.contains(other)))
        })?;
        let file = own.file.as_deref()?;
        let here = std::env::current_dir().ok();
        let file = here.and_then(|here| file.strip_prefix(here).ok()).unwrap_or(file);
        Some(format!("{}:{}", file.display(), own.line))
    }

    #[inline(never)]
    fn collect(&mut self, begins: impl Fn(usize) -> bool) {
        let mut started = false;
        self.walk(|counter| {
            started |= begins(counter);
            if started {
                FrameFate::Keep
            } else {
                FrameFate::Skip
            }
        });
    }

    /// Of the calling function up to `callers` frames outside of `own`, its library's code.
    pub(crate) fn of_callers(own: &Range<usize>, callers: usize) -> Counters {
        let mut counters = Counters::default();
        let mut outside = 0;
        counters.walk(|counter| {
            outside += usize::from(!own.contains(&counter));
            if outside < callers {
                FrameFate::Keep
            } else {
                FrameFate::End
            }
        });
        counters
    }

    #[inline(never)]
    fn walk(&mut self, mut what: impl FnMut(usize) -> FrameFate) {
        self.count = 0;
        // SAFETY: what must be in step is another system's library.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                let counter = frame.ip() as usize;
                let fate = if counter == 0 { FrameFate::Skip } else { what(counter) };
                if !matches!(fate, FrameFate::Skip) {
                    self.at[self.count] = counter;
                    self.count += 1;
                }
                !matches!(fate, FrameFate::End) && self.count < DEPTH
            });
        }
    }

    /// Of places behind calls, innermost first.
    pub(crate) fn of_calls(at: &[usize]) -> Counters {
        let mut counters = Counters { count: at.len().min(DEPTH), ..Counters::default() };
        counters.at[..counters.count].copy_from_slice(&at[..counters.count]);
        counters
    }

    /// The counters.
    pub(crate) fn list(&self) -> &[usize] {
        &self.at[..self.count]
    }

    /// Every function that they stand in, innermost first; one without a name where nothing is known.
    pub(crate) fn functions(&self) -> Vec<Function> {
        // Modules have come and gone since the last time.
        backtrace::clear_symbol_cache();
        self.functions_of_known_modules()
    }

    fn functions_of_known_modules(&self) -> Vec<Function> {
        self.each().flat_map(|(counter, exact)| known_functions(counter, exact)).collect()
    }

    /// The counters, and whether each is exact.
    fn each(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        self.list().iter().enumerate().map(|(i, &counter)| (counter, i == 0 && self.exact))
    }

    /// The place in a kernel whose module's code is in `text`: what it has called of others counts, too.
    pub(crate) fn place(&self, text: &Range<usize>, lines: &Lines, names: &SourceNames) -> SourcePlace {
        let functions = self.each().flat_map(|(counter, exact)| {
            let own = text.contains(&counter).then(|| lines.functions(counter, exact));
            own.filter(|own| !own.is_empty()).unwrap_or_else(|| known_functions(counter, exact))
        });
        SourcePlace::of(functions.collect(), names)
    }

    /// The same, of calls in the module alone.
    pub(crate) fn place_in(&self, lines: &Lines, names: &SourceNames) -> SourcePlace {
        let functions = self.each().flat_map(|(counter, exact)| lines.functions(counter, exact));
        SourcePlace::of(functions.collect(), names)
    }
}

impl SourcePlace {
    fn of(functions: Vec<Function>, names: &SourceNames) -> SourcePlace {
        let mut place = SourcePlace::default();
        for function in functions {
            let own = function.file.as_deref().and_then(|file| names.own(file));
            match own {
                Some(file) if place.at.is_none() => {
                    place.at = Some(format!("{file}:{}", function.line));
                    place.function = function.name;
                }
                Some(file) => place.callers.push(format!("{file}:{} in {}", function.line, function.name)),
                // The outermost before the program's own line, as a program calls it.
                None if place.at.is_none() && !function.name.is_empty() => {
                    let name = function.name.split('<').next().unwrap_or_default();
                    place.call = Some(plain(name).to_owned());
                }
                None => {}
            }
        }
        place
    }
}

impl SourcePlace {
    /// ` at k.cu:12 in rushmem::wait_until`, or nothing.
    pub(crate) fn phrase(&self) -> String {
        let at = self.at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
        let call = self.call.as_ref().map_or(String::new(), |call| format!(" in {call}()"));
        at + &call
    }
}

/// By `backtrace`, which knows no module that was loaded after it first looked: not the kernels'. One without
/// a name where nothing is known.
fn known_functions(counter: usize, exact: bool) -> Vec<Function> {
    let mut functions = Vec::new();
    // Addresses are taken for those behind a call.
    backtrace::resolve((counter + usize::from(exact)) as *mut c_void, |symbol| {
        functions.push(Function {
            name: symbol.name().map(|name| readable(&name)).unwrap_or_default(),
            file: symbol.filename().map(Path::to_owned),
            line: symbol.lineno().unwrap_or(0),
            counter,
        });
    });
    if functions.is_empty() {
        functions.push(Function { name: String::new(), file: None, line: 0, counter });
    }
    functions
}

/// `memcpy` of glibc's `__memcpy_avx512_unaligned_erms`.
fn plain(name: &str) -> &str {
    let word = name.strip_prefix("__").and_then(|rest| rest.split('_').next());
    word.filter(|word| word.starts_with("mem") || word.starts_with("str")).unwrap_or(name)
}

/// A symbol's name as its source has it.
fn readable(name: &backtrace::SymbolName<'_>) -> String {
    demangled(name.to_string().into())
}
