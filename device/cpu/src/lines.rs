//! The lines of one module, read from its own bytes: `backtrace` knows no module that was loaded after it
//! first looked, and reads one's debug information again each time that it is asked for another's.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::function::{demangled, Function};

type Reader = EndianArcSlice<LittleEndian>;

/// A thread-local variable of a module: block-shared memory, or the CPU device's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Among the module's thread-local variables.
    pub(crate) range: Range<usize>,
    pub(crate) name: String,
    pub(crate) is_shared: bool,
}

/// Debug information that is read when it is first asked for.
pub(crate) struct Lines {
    object: Vec<u8>,
    locals: OnceLock<Arc<[Variable]>>,
    /// From addresses in the object to those in memory.
    bias: usize,
    context: OnceLock<Option<Mutex<Context<Reader>>>>,
}

impl Lines {
    /// Of an object that was loaded so far from where it says.
    pub(crate) fn of(object: &[u8], bias: usize) -> Lines {
        Lines { object: object.to_vec(), locals: OnceLock::new(), bias, context: OnceLock::new() }
    }

    /// The functions, inlined ones included, that a counter stands in, behind a call or `exact`; innermost
    /// first. Empty where the object has no debug information.
    pub(crate) fn functions(&self, counter: usize, exact: bool) -> Vec<Function> {
        let context = self.context.get_or_init(|| self.read().map(Mutex::new));
        let Some(context) = context else { return Vec::new() };
        let context = context.lock().unwrap_or_else(PoisonError::into_inner);
        let mut functions = Vec::new();
        let at = counter.wrapping_sub(self.bias).wrapping_sub(usize::from(!exact)) as u64;
        let Ok(mut frames) = context.find_frames(at).skip_all_loads() else { return functions };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let (file, line) = frame
                .location
                .map_or((None, 0), |location| (location.file.map(PathBuf::from), location.line.unwrap_or(0)));
            let name = demangled(name.unwrap_or(Cow::Borrowed("")));
            functions.push(Function { name, file, line, counter });
        }
        functions
    }

    /// The thread-local variables, by their offsets; none where the object has no symbols.
    pub(crate) fn thread_locals(&self) -> Arc<[Variable]> {
        Arc::clone(self.locals.get_or_init(|| {
            let Ok(file) = object::File::parse(&*self.object) else { return Arc::default() };
            let symbols =
                file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Tls && symbol.size() > 0);
            let mut found: Vec<Variable> = symbols
                .map(|symbol| {
                    let raw = symbol.name().unwrap_or_default();
                    let start = symbol.address() as usize;
                    // The device's own variables, and the compiler's guards.
                    let is_shared =
                        !raw.contains("rushmem_cpu_") && !raw.starts_with("_ZG") && !raw.starts_with("__tls");
                    let name = demangled(Cow::Borrowed(raw));
                    let name = name.rsplit("::").next().unwrap_or_default().to_owned();
                    Variable { range: start..start + symbol.size() as usize, name, is_shared }
                })
                .collect();
            found.sort_by_key(|variable| variable.range.start);
            found.into()
        }))
    }

    fn read(&self) -> Option<Context<Reader>> {
        let file = object::File::parse(&*self.object).ok()?;
        let section = |id: SectionId| -> Result<Reader, ()> {
            let data = file.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
            Ok(EndianArcSlice::new(Arc::from(data.unwrap_or_default().into_owned()), LittleEndian))
        };
        Context::from_dwarf(Dwarf::load(section).ok()?).ok()
    }
}
