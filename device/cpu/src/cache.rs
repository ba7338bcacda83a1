//! The cache of compiled kernels: one directory for each content key, holding the source (for debuggers), the
//! object and a record that says what a sound one is: its hash, and the size and time of each file that it
//! included. A reader that finds the record wanting rebuilds under a file lock, so that N PEs that load one
//! source at once compile it once, and a compiler killed half-way costs nothing but its directory. Public,
//! because the runtime keeps what it compiles for GPUs in the same way.
//!
//! What is kept here will be run, so no other user of the host may be able to change it. Each user has a
//! folder `uid-N` of mode 0700 in the cache's directory. The way there is walked by descriptors and refused
//! where others could change it (`steps.rs`), everything below is reached relative to the folder's descriptor
//! (`folder.rs`), and what is loaded is the very bytes whose hash was compared. Where there is no such
//! folder, or no room in it, the process makes one of its own for as long as it lives (`private.rs`), and
//! says so once.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_128;

use crate::error::Error;

mod folder;
mod private;
pub(crate) mod record;
mod steps;

pub use folder::Folder;
pub(crate) use folder::{by_descriptor, leads_to};
use record::Record;

/// How long to wait for another process that compiles the same source.
const LOCK_LIMIT: Duration = Duration::from_secs(330);
const RECORD: &str = "kernel.record";

/// What a cache's entries hold.
#[derive(Debug)]
pub struct Form {
    /// First line of each record: changes when what an entry means does.
    pub heading: &'static str,
    /// Names of the files that the record vouches for.
    pub files: &'static [&'static str],
}

/// The object's file name.
pub(crate) const OBJECT: &str = "kernel.so";

pub(crate) const CPU: Form = Form { heading: "rushmem cpu kernel 2", files: &[OBJECT] };

/// A content key: a hash over strings, each with its length.
#[derive(Debug, Default)]
pub struct Key {
    bytes: Vec<u8>,
}

impl Key {
    /// Adds a string.
    pub fn add(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    /// The key, a name for a directory.
    pub fn finish(&self) -> String {
        hex(xxh3_128(&self.bytes))
    }
}

/// The build ID of a library or program, which linkers write: of equal files, wherever they lie.
pub fn build_id(path: &Path) -> Option<String> {
    let parts = object::ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&parts).ok()?;
    object::Object::build_id(&file)
        .ok()
        .flatten()
        .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A number that no other call of this process gives.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Does `work` in the folder for kernels of this `kind` in the cache `dir` (`RUSHMEM_CACHE_DIR`; `None`: the
/// user's own), or, where there is none to trust or the work says that files were the trouble, in one of this
/// process's own.
pub fn in_cache<T, E: std::fmt::Display>(
    dir: Option<&Path>,
    kind: &str,
    failed: impl Fn(Error) -> E,
    files_failed: impl Fn(&E) -> bool,
    mut work: impl FnMut(&Folder) -> Result<T, E>,
) -> Result<T, E> {
    let why = match open(dir, kind) {
        Ok(folder) => match work(&folder) {
            Err(error) if files_failed(&error) => error.to_string(),
            other => return other,
        },
        Err(error) => error.to_string(),
    };
    let (private, new) = private::folder().map_err(|error| failed(storage(format!("{why}; and"), error)))?;
    if new {
        log::warn!(
            "{why}: compiled kernels are kept in {} instead, until this process ends (RUSHMEM_CACHE_DIR names another place)",
            private.path().display()
        );
    }
    let folder = private.sub(kind).map_err(|error| failed(storage(private.path().display(), error)))?;
    work(&folder)
}

fn open(dir: Option<&Path>, kind: &str) -> Result<Folder, Error> {
    let inside = |dir: &Path| Folder::of_user(dir)?.sub(kind);
    if let Some(dir) = dir {
        let what = || format!("kernel cache {} (RUSHMEM_CACHE_DIR)", dir.display());
        return inside(dir).map_err(|error| storage(what(), error));
    }
    let mut reasons = Vec::new();
    for dir in default_dirs() {
        match inside(&dir) {
            Ok(folder) if folder.can_write() => return Ok(folder),
            Ok(_) => reasons.push(format!("{} cannot be written to", dir.display())),
            Err(error) => reasons.push(format!("{}: {error}", dir.display())),
        }
    }
    Err(Error::Io { text: format!("no place for a kernel cache ({})", reasons.join("; ")) })
}

/// `RUSHMEM_CACHE_DIR`'s default is the first of these that can be used: `$XDG_CACHE_HOME/rushmem`,
/// `~/.cache/rushmem`, a directory of this user's under the system's temporary one.
fn default_dirs() -> impl Iterator<Item = PathBuf> {
    let under = |name: &str, rest: &str| {
        Some(std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())?.join(rest))
    };
    let temporary = std::env::temp_dir().join(format!("rushmem-cache-{}", steps::user()));
    let homes = [under("XDG_CACHE_HOME", "rushmem"), under("HOME", ".cache/rushmem")];
    homes.into_iter().flatten().chain([temporary])
}

/// An error of a file that is not the source's fault. A full disk is called that.
pub fn storage(what: impl std::fmt::Display, error: io::Error) -> Error {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    );
    Error::io(if full { format!("no room on the disk: {what}") } else { what.to_string() }, error)
}

/// The place of one compiled source.
#[derive(Debug)]
pub struct Entry {
    /// Its directory.
    pub folder: Folder,
    /// What it holds.
    pub form: &'static Form,
}

impl Entry {
    /// The entry of a key, empty if it is new.
    pub fn open(root: &Folder, key: &str, form: &'static Form) -> io::Result<Entry> {
        Ok(Entry { folder: root.sub(key)?, form })
    }

    /// The files' contents, if they are sound and everything that they were made from is unchanged. The
    /// caller loads these bytes: the names may lead elsewhere a moment later.
    pub fn contents(&self) -> Option<Vec<Vec<u8>>> {
        let record = self.folder.read(RECORD).ok()?;
        let record = Record::parse(&record, self.form)?;
        let contents: Vec<_> =
            self.form.files.iter().map(|name| self.folder.read(name)).collect::<Result<_, _>>().ok()?;
        (record.vouches_for(&contents) && record.is_up_to_date()).then_some(contents)
    }

    /// Puts what was built in place, a content for each of the form's files. `includes` are the files outside
    /// the system's that it was made from.
    pub fn install<C: AsRef<[u8]>>(&self, contents: &[C], includes: &[PathBuf]) -> io::Result<()> {
        assert_eq!(contents.len(), self.form.files.len(), "a content for each file");
        for (name, content) in self.form.files.iter().zip(contents) {
            self.folder.replace(name, content.as_ref())?;
        }
        self.folder.replace(RECORD, &Record::write(self.form, contents, includes))
    }

    /// Waits until nobody else builds this entry, for as long as a compiler may take. `None` then, and where
    /// files cannot be locked: build anyway, what is installed is whole in any case. The holder of the lock
    /// has swept away what a killed builder left.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = self.folder.lock_file("lock")?;
        let start = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.sweep();
                    return Ok(Some(file));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            if start.elapsed() > LOCK_LIMIT {
                log::warn!(
                    "{} has been locked for {} s; compiling without",
                    self.folder.path().display(),
                    LOCK_LIMIT.as_secs()
                );
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn sweep(&self) {
        for name in self.folder.names().unwrap_or_default() {
            if name.as_bytes().starts_with(b"build-") || name.as_bytes().ends_with(b".tmp") {
                let _ = self.folder.remove(&name);
            }
        }
    }

    /// A directory to build in, removed when dropped.
    pub fn scratch(&self) -> io::Result<Scratch<'_>> {
        let name = format!("build-{}-{}", std::process::id(), unique());
        Ok(Scratch { path: self.folder.via().join(&name), folder: self.folder.sub(&name)?, entry: self })
    }
}

/// A directory that goes with the value.
#[derive(Debug)]
pub struct Scratch<'a> {
    /// The directory.
    pub folder: Folder,
    /// Its path for the compiler, by the entry's descriptor.
    pub path: PathBuf,
    entry: &'a Entry,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.path.file_name() {
            let _ = self.entry.folder.remove(name);
        }
    }
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

/// The prerequisites in a make rule, as compilers write them with `-MMD -MF`.
pub(crate) fn prerequisites(rule: &[u8]) -> Vec<PathBuf> {
    let start = rule.iter().position(|&byte| byte == b':').map_or(rule.len(), |at| at + 1);
    let (mut paths, mut word) = (Vec::new(), Vec::new());
    let mut bytes = rule[start..].iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek().copied()) {
            (b'\\', Some(b'\n')) => {
                bytes.next();
                flush(&mut word, &mut paths);
            }
            (b'\\', Some(escaped @ (b' ' | b'#' | b'\\'))) | (b'$', Some(escaped @ b'$')) => {
                bytes.next();
                word.push(escaped);
            }
            (b' ' | b'\t' | b'\r', _) => flush(&mut word, &mut paths),
            // Further rules (-MP) hold no further names.
            (b'\n', _) => break,
            _ => word.push(byte),
        }
    }
    flush(&mut word, &mut paths);
    paths
}

fn flush(word: &mut Vec<u8>, paths: &mut Vec<PathBuf>) {
    if !word.is_empty() {
        paths.push(PathBuf::from(OsString::from_vec(std::mem::take(word))));
    }
}

#[cfg(test)]
mod tests;
