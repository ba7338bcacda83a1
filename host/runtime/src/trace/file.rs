//! The file of a timeline: whole at each moment, so that it can be read however the process ends. Each write
//! replaces the end of the file by more events and the same end, in one system call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

const HEAD: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
const TAIL: &str = "\n]}\n";

/// A file is no larger than this: what comes later is dropped, and counted.
const MOST: u64 = 1 << 30;

pub(crate) struct TraceFile {
    /// None where only counters are wanted.
    file: Option<File>,
    /// Where the tail is.
    end: u64,
    first: bool,
    buffer: String,
    pub(crate) dropped: u64,
    /// How many of them readers know of.
    pub(crate) told: u64,
}

/// `out.json` of PE 3 is `out.3.json`; of its second world in one process, `out.3-2.json`.
pub(crate) fn path_of(given: &Path, pe: i32) -> PathBuf {
    static WORLDS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
    let earlier = worlds.iter().filter(|other| **other == pe).count();
    worlds.push(pe);
    let world = match earlier {
        0 => String::new(),
        earlier => format!("-{}", earlier + 1),
    };
    let extension = given.extension().map_or("json".into(), |e| e.to_string_lossy());
    given.with_extension(format!("{pe}{world}.{extension}"))
}

impl TraceFile {
    pub(crate) fn create(path: &Path) -> io::Result<TraceFile> {
        let file = File::create(path)?;
        file.write_all_at(format!("{HEAD}{TAIL}").as_bytes(), 0)?;
        Ok(TraceFile { file: Some(file), ..TraceFile::nowhere() })
    }

    /// Takes nothing.
    pub(crate) fn nowhere() -> TraceFile {
        TraceFile {
            file: None,
            end: HEAD.len() as u64,
            first: true,
            buffer: String::new(),
            dropped: 0,
            told: 0,
        }
    }

    /// Whether there is a file.
    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// One more event, for the next [`TraceFile::write`].
    pub(crate) fn add(&mut self, event: &Value) {
        if self.file.is_none() {
            return;
        }
        if self.end + self.buffer.len() as u64 > MOST {
            self.dropped += 1;
            return;
        }
        self.buffer.push_str(if self.first { "\n" } else { ",\n" });
        self.buffer.push_str(&event.to_string());
        self.first = false;
    }

    /// Writes what has been added.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.buffer.is_empty()) else { return Ok(()) };
        let events = self.buffer.len() as u64;
        self.buffer.push_str(TAIL);
        file.write_all_at(self.buffer.as_bytes(), self.end)?;
        self.buffer.clear();
        self.end += events;
        Ok(())
    }
}
