//! The lines of one module, read from its own bytes: `backtrace` knows no module that was loaded after it
//! first looked, and reads one's debug information again each time that it is asked for another's.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};

use crate::trace::{demangled, Function};

type Reader = EndianArcSlice<LittleEndian>;

/// Debug information that is read when it is first asked for.
pub(crate) struct Lines {
    object: Vec<u8>,
    /// From addresses in the object to those in memory.
    bias: usize,
    context: OnceLock<Option<Mutex<Context<Reader>>>>,
}

impl Lines {
    /// Of an object that was loaded so far from where it says.
    pub(crate) fn of(object: &[u8], bias: usize) -> Lines {
        Lines { object: object.to_vec(), bias, context: OnceLock::new() }
    }

    /// The functions, inlined ones included, that calls behind which these counters are stand in; innermost
    /// first. Empty where the object has no debug information.
    pub(crate) fn functions(&self, counters: &[usize]) -> Vec<Function> {
        let context = self.context.get_or_init(|| self.read().map(Mutex::new));
        let Some(context) = context else { return Vec::new() };
        let context = context.lock().unwrap_or_else(PoisonError::into_inner);
        let mut functions = Vec::new();
        for &counter in counters {
            let at = counter.wrapping_sub(self.bias).wrapping_sub(1) as u64;
            let Ok(mut frames) = context.find_frames(at).skip_all_loads() else { continue };
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                let (file, line) = frame.location.map_or((None, 0), |location| {
                    (location.file.map(PathBuf::from), location.line.unwrap_or(0))
                });
                let name = demangled(name.unwrap_or(Cow::Borrowed("")));
                functions.push(Function { name, file, line, counter });
            }
        }
        functions
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
