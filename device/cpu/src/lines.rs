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

/// A variable of a module that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Among the module's thread-local variables, or addresses.
    pub(crate) range: Range<usize>,
    pub(crate) name: String,
    /// Not the CPU device's own, nor the compiler's.
    pub(crate) is_users: bool,
}

/// Those of a module, in the order of their places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    /// Thread-local ones, which are block-shared memory, by their offsets.
    pub(crate) locals: Arc<[Variable]>,
    /// `__device__`, `__constant__` and static ones, by their addresses.
    pub(crate) globals: Arc<[Variable]>,
}

/// Debug information that is read when it is first asked for.
pub(crate) struct Lines {
    object: Vec<u8>,
    variables: OnceLock<Variables>,
    /// From addresses in the object to those in memory.
    bias: usize,
    context: OnceLock<Option<Mutex<Context<Reader>>>>,
}

impl Lines {
    /// Of an object that was loaded so far from where it says.
    pub(crate) fn of(object: &[u8], bias: usize) -> Lines {
        Lines { object: object.to_vec(), variables: OnceLock::new(), bias, context: OnceLock::new() }
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

    /// The variables; none where the object has no symbols.
    pub(crate) fn variables(&self) -> &Variables {
        self.variables.get_or_init(|| {
            let Ok(file) = object::File::parse(&*self.object) else { return Variables::default() };
            let is_writable = |section| {
                let section = file.section_by_index(section);
                section.is_ok_and(|section| {
                    let name = section.name().unwrap_or_default();
                    name == ".data"
                        || name == ".bss"
                        || name.starts_with(".data.")
                        || name.starts_with(".bss.")
                })
            };
            let (mut locals, mut globals) = (Vec::new(), Vec::new());
            for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
                let raw = symbol.name().unwrap_or_default();
                // The device's own variables, and the compiler's guards and tables.
                let own = ["_ZG", "_ZT", "__tls"].iter().any(|begin| raw.starts_with(begin));
                let is_users = !raw.contains("rushmem_cpu_") && !own;
                let name = demangled(Cow::Borrowed(raw));
                let name = name.rsplit("::").next().unwrap_or_default().to_owned();
                let (start, size) = (symbol.address() as usize, symbol.size() as usize);
                match symbol.kind() {
                    SymbolKind::Tls => locals.push(Variable { range: start..start + size, name, is_users }),
                    SymbolKind::Data if symbol.section_index().is_some_and(is_writable) => {
                        let start = start.wrapping_add(self.bias);
                        globals.push(Variable { range: start..start.wrapping_add(size), name, is_users });
                    }
                    _ => {}
                }
            }
            for list in [&mut locals, &mut globals] {
                list.sort_by_key(|variable| variable.range.start);
            }
            Variables { locals: locals.into(), globals: globals.into() }
        })
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
