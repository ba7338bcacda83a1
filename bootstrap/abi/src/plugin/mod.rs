//! Between the trait and the C vtable, both ways: [`ForeignBootstrap`] makes a vtable a [`crate::Bootstrap`],
//! and [`export()`] makes a [`crate::Bootstrap`] a vtable. A plug-in in Rust is its `Bootstrap` and one
//! exported function that calls [`plugin_main`]. Panics are caught on the exporting side and become errors;
//! none crosses.

mod export;
mod foreign;

pub use export::{export, plugin_main};
pub use foreign::ForeignBootstrap;

use std::ffi::{c_char, CString};
use std::mem::size_of;
use std::time::Duration;

use crate::ffi::{BootstrapVtable, RawError, ERROR_TEXT_BYTES};

/// The time limits of a plug-in's bootstrap; `None` waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of one collective call.
    pub call: Option<Duration>,
    /// Of the start, until every rank is there.
    pub init: Option<Duration>,
}

fn to_ms(limit: Option<Duration>) -> u64 {
    // A limit below one millisecond must not turn into "none".
    limit.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn from_ms(ms: u64) -> Option<Duration> {
    (ms != 0).then(|| Duration::from_millis(ms))
}

fn vtable_size() -> u32 {
    size_of::<BootstrapVtable>() as u32
}

impl RawError {
    /// No rank, no text.
    pub const fn empty() -> Self {
        RawError { rank: -1, text: [0; ERROR_TEXT_BYTES] }
    }

    /// Stores an error; a text that is too long is cut at a character.
    pub fn set(&mut self, rank: Option<u32>, message: &str) {
        self.rank = rank.map_or(-1, i64::from);
        let mut end = message.len().min(ERROR_TEXT_BYTES - 1);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        // An inner NUL would end the text early for its reader.
        let bytes = message.as_bytes()[..end].iter().map(|&b| if b == 0 { b' ' } else { b });
        for (to, from) in self.text.iter_mut().zip(bytes) {
            *to = from as c_char;
        }
        self.text[end] = 0;
    }

    /// The text, up to its NUL or the end of the room.
    pub fn message(&self) -> String {
        let bytes: Vec<u8> = self.text.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The rank at fault.
    pub fn rank(&self) -> Option<u32> {
        u32::try_from(self.rank).ok()
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("its NULs were replaced")
}
