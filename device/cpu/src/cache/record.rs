//! An entry's record: what its files must hold and what its sources' headers looked like. It is damage that
//! the hashes find (a full disk, a crash, a bad sector), and so they need no key: a process that could write
//! a record could as well write whatever opens the record, and both are shut out by the owners of folder and
//! files.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::{hex, Form};

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// A hash for each of the form's files.
    hashes: Vec<&'a [u8]>,
    /// Size and time of a file, and its path.
    includes: Vec<(&'a [u8], PathBuf)>,
}

impl<'a> Record<'a> {
    /// Reads a record; `None`: it is of another form, or damaged.
    pub(crate) fn parse(bytes: &'a [u8], form: &Form) -> Option<Record<'a>> {
        let end = bytes.iter().rposition(|&byte| byte == b'\n')?;
        let (body, seal) = (&bytes[..end], &bytes[end + 1..]);
        if seal != hex(xxh3_128(body)).as_bytes() {
            return None;
        }
        let mut lines = body.split(|&byte| byte == b'\n');
        if lines.next()? != form.heading.as_bytes() {
            return None;
        }
        let hashes = form.files.iter().map(|_| lines.next()).collect::<Option<_>>()?;
        let include = |line: &'a [u8]| {
            let space = line.iter().position(|&byte| byte == b' ')?;
            Some((&line[..space], PathBuf::from(OsString::from_vec(line[space + 1..].to_vec()))))
        };
        Some(Record { hashes, includes: lines.map(include).collect::<Option<_>>()? })
    }

    /// The record of these contents, made from these headers.
    pub(super) fn write<C: AsRef<[u8]>>(form: &Form, contents: &[C], includes: &[PathBuf]) -> Vec<u8> {
        let mut record = form.heading.as_bytes().to_vec();
        for content in contents {
            record.extend_from_slice(format!("\n{}", hex(xxh3_128(content.as_ref()))).as_bytes());
        }
        for path in includes {
            // A name with a line end would be two lines: its change will not be seen.
            let Some(stamp) = stamp_of(path).filter(|_| !path.as_os_str().as_bytes().contains(&b'\n')) else {
                continue;
            };
            record.extend_from_slice(format!("\n{stamp} ").as_bytes());
            record.extend_from_slice(path.as_os_str().as_bytes());
        }
        sealed(&record)
    }

    /// Whether the contents are those of the record.
    pub(crate) fn vouches_for(&self, contents: &[Vec<u8>]) -> bool {
        self.hashes.len() == contents.len()
            && self
                .hashes
                .iter()
                .zip(contents)
                .all(|(hash, content)| *hash == hex(xxh3_128(content)).as_bytes())
    }

    /// Whether the headers are as they were.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.includes.iter().all(|(stamp, path)| stamp_of(path).is_some_and(|now| now.as_bytes() == *stamp))
    }
}

/// A record with its own hash behind it.
pub(crate) fn sealed(body: &[u8]) -> Vec<u8> {
    [body, b"\n", hex(xxh3_128(body)).as_bytes()].concat()
}

/// Size and modification time, as one word.
fn stamp_of(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    Some(format!("{}:{}.{:09}", meta.len(), meta.mtime(), meta.mtime_nsec()))
}
