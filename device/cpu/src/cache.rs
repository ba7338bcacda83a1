//! The cache of compiled kernels: one directory for each content key, holding the source (for debuggers), the object
//! and a record that says what a sound one is: its hash, and the size and time of each file that it included. A
//! reader that finds the record wanting rebuilds under a file lock, so that N PEs that load one source at once
//! compile it once, and a compiler killed half-way costs nothing but its directory. Public, because the runtime keeps
//! what it compiles for GPUs in the same way.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_128;

use crate::error::Error;

/// How long to wait for another process that compiles the same source.
const LOCK_LIMIT: Duration = Duration::from_secs(330);

/// What a cache's entries hold.
#[derive(Debug)]
pub struct Form {
    /// First line of each record: changes when what an entry means does.
    pub heading: &'static str,
    /// File name of the object.
    pub object: &'static str,
}

pub(crate) static CPU: Form = Form { heading: "rushmem cpu kernel 1", object: "kernel.so" };

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

/// `RUSHMEM_CACHE_DIR`'s default: the first of `$XDG_CACHE_HOME/rushmem` and `~/.cache/rushmem` that can be written to,
/// else a directory of this user's under the system's temporary one.
pub fn default_cache_dir() -> PathBuf {
    let under = |name: &str, rest: &str| {
        let base = std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())?;
        Some(base.join(rest)).filter(|dir| can_write(dir))
    };
    under("XDG_CACHE_HOME", "rushmem")
        .or_else(|| under("HOME", ".cache/rushmem"))
        .unwrap_or_else(|| std::env::temp_dir().join(format!("rushmem-cache-{}", user())))
}

fn can_write(dir: &Path) -> bool {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated path.
    made.is_ok() && unsafe { libc::access(path.as_ptr(), libc::W_OK) } == 0
}

fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// A number that no other call of this process gives.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes `path` hold `bytes`, in one step.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{}.tmp", std::process::id(), unique()));
    let temporary = PathBuf::from(name);
    let written = File::create(&temporary).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Makes the directory, for its owner only, and refuses one that others may write to: what is in it will be run.
pub fn private_dir(dir: &Path) -> Result<(), Error> {
    let failed =
        |error: io::Error| Error::io(format!("kernel cache {} (RUSHMEM_CACHE_DIR)", dir.display()), error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let meta = fs::metadata(dir).map_err(failed)?;
    if (meta.uid() != user() && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
        let why = "it belongs to another user, or others may write to it; what it holds would be run";
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    Ok(())
}

/// The place of one compiled source.
#[derive(Debug)]
pub struct Entry {
    /// Its directory.
    pub dir: PathBuf,
    /// What it holds.
    pub form: &'static Form,
}

impl Entry {
    /// Path of the object.
    pub fn object(&self) -> PathBuf {
        self.dir.join(self.form.object)
    }

    fn record(&self) -> PathBuf {
        self.dir.join("kernel.record")
    }

    /// Whether a sound object is here and all that it included is as it was.
    pub fn is_sound(&self) -> bool {
        let check = || -> Option<bool> {
            let record = fs::read(self.record()).ok()?;
            let end = record.iter().rposition(|&byte| byte == b'\n')?;
            let (body, seal) = (&record[..end], &record[end + 1..]);
            if seal != hex(xxh3_128(body)).as_bytes() {
                return Some(false);
            }
            let mut lines = body.split(|&byte| byte == b'\n');
            if lines.next()? != self.form.heading.as_bytes() {
                return Some(false);
            }
            let object = fs::read(self.object()).ok()?;
            if lines.next()? != hex(xxh3_128(&object)).as_bytes() {
                return Some(false);
            }
            Some(lines.all(|line| {
                let mut parts = line.splitn(2, |&byte| byte == b' ');
                let (stamp, path) = (parts.next(), parts.next());
                let path = path.map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
                path.is_some_and(|path| stamp_of(&path).map(String::into_bytes).as_deref() == stamp)
            }))
        };
        check().unwrap_or(false)
    }

    /// Puts a freshly built object in place. `includes` are the files outside the system's that it was made from.
    pub fn install(&self, built: &Path, includes: &[PathBuf]) -> io::Result<()> {
        let object = fs::read(built)?;
        let mut record = format!("{}\n{}", self.form.heading, hex(xxh3_128(&object))).into_bytes();
        for path in includes {
            let Some(stamp) = stamp_of(path) else { continue };
            record.extend_from_slice(format!("\n{stamp} ").as_bytes());
            record.extend_from_slice(path.as_os_str().as_bytes());
        }
        let seal = hex(xxh3_128(&record));
        record.push(b'\n');
        record.extend_from_slice(seal.as_bytes());
        fs::rename(built, self.object())?;
        replace(&self.record(), &record)
    }

    /// Waits until nobody else builds this entry, for as long as a compiler may take. `None` then: build anyway, what is
    /// installed is whole in any case. Whoever holds the lock has swept away what a killed builder left.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = File::options().create(true).append(true).open(self.dir.join("lock"))?;
        let start = Instant::now();
        loop {
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                self.sweep();
                return Ok(Some(file));
            }
            let error = io::Error::last_os_error();
            if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                return Err(error);
            }
            if start.elapsed() > LOCK_LIMIT {
                log::warn!(
                    "{} has been locked for {} s; compiling without",
                    self.dir.display(),
                    LOCK_LIMIT.as_secs()
                );
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn sweep(&self) {
        for left in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if left.file_name().as_bytes().starts_with(b"build-") {
                let _ = fs::remove_dir_all(left.path());
            }
        }
    }

    /// A directory to build in, removed when dropped.
    pub fn scratch(&self) -> io::Result<Scratch> {
        let path = self.dir.join(format!("build-{}-{}", std::process::id(), unique()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch { path })
    }
}

/// A directory that goes with the value.
#[derive(Debug)]
pub struct Scratch {
    /// The directory.
    pub path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

/// Size and modification time, as one word.
fn stamp_of(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    Some(format!("{}:{}.{:09}", meta.len(), meta.mtime(), meta.mtime_nsec()))
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
mod tests {
    use super::*;

    #[test]
    fn make_rules() {
        let rule = b"x: /a/b.cu \\\n  /c\\ d.h $$e.h \\\n f\\#g.h\n\n/c\\ d.h:\n";
        let expected = ["/a/b.cu", "/c d.h", "$e.h", "f#g.h"].map(PathBuf::from);
        assert_eq!(prerequisites(rule), expected);
        assert_eq!(prerequisites(b"x:"), Vec::<PathBuf>::new());
        assert_eq!(prerequisites(b""), Vec::<PathBuf>::new());
    }

    #[test]
    fn keys_tell_strings_apart() {
        let key = |parts: &[&str]| {
            let mut key = Key::default();
            for part in parts {
                key.add(part);
            }
            key.finish()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["a", ""]), key(&["a"]));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
    }

    #[test]
    fn a_sound_entry_is_whole_and_up_to_date() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let entry = Entry { dir: temp.path().to_owned(), form: &CPU };
        assert!(!entry.is_sound());
        let include = temp.path().join("my header.h");
        let install = |content: &[u8]| {
            fs::write(temp.path().join("built"), content).expect("writing");
            entry.install(&temp.path().join("built"), std::slice::from_ref(&include)).expect("installing");
        };
        fs::write(&include, "one").expect("writing");
        install(b"object");
        assert!(entry.is_sound());
        // Another size.
        fs::write(&include, "three").expect("writing");
        assert!(!entry.is_sound());
        install(b"object");
        assert!(entry.is_sound());
        // A flipped byte, a cut, nothing.
        for damage in [&b"objekt"[..], b"obj", b""] {
            fs::write(entry.object(), damage).expect("writing");
            assert!(!entry.is_sound());
        }
        install(b"object");
        let record = fs::read(entry.record()).expect("reading");
        for end in 0..record.len() {
            fs::write(entry.record(), &record[..end]).expect("writing");
            assert!(!entry.is_sound(), "cut at {end}");
        }
        fs::write(entry.record(), &record).expect("writing");
        assert!(entry.is_sound());
        fs::remove_file(&include).expect("removing");
        assert!(!entry.is_sound());
    }

    #[test]
    fn a_lock_excludes_and_sweeps() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let entry = Entry { dir: temp.path().to_owned(), form: &CPU };
        fs::create_dir(temp.path().join("build-1-2")).expect("making");
        let held = entry.lock().expect("locking");
        assert!(held.is_some() && !temp.path().join("build-1-2").exists());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| entry.lock().expect("locking").map(|_| Instant::now()));
            std::thread::sleep(Duration::from_millis(50));
            let released = Instant::now();
            drop(held);
            assert!(other.join().expect("no panic").expect("locked") >= released);
        });
    }

    #[test]
    fn a_cache_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = temp.path().join("cache");
        private_dir(&dir).expect("making");
        assert_eq!(fs::metadata(&dir).expect("stat").permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("chmod");
        assert!(private_dir(&dir).is_err_and(|error| error.to_string().contains("RUSHMEM_CACHE_DIR")));
    }
}
