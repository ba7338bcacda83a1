//! A directory of the cache, held by its descriptor: everything in it is opened, made, renamed and removed
//! relative to that, follows no link, and is read only if it is this user's own. The path is for people.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::steps::{self, own};
use super::unique;

const OPEN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// A directory that only this user writes to.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Folder {
    /// This user's folder in a directory that others may share.
    pub(super) fn of_user(shared: &Path) -> io::Result<Folder> {
        let parent = steps::open(shared)?;
        let name = format!("uid-{}", steps::user());
        Folder::within(parent.as_fd(), OsStr::new(&name), shared.join(&name))
    }

    /// Opens a directory by its name in another, or makes it.
    pub(super) fn within(parent: BorrowedFd<'_>, name: &OsStr, path: PathBuf) -> io::Result<Folder> {
        let open = || fs::openat(parent, name, OPEN | OFlags::DIRECTORY, Mode::empty());
        let fd = match open() {
            Err(Errno::NOENT) => {
                match fs::mkdirat(parent, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open()?
            }
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(steps::refused(format!("{} is a link or no directory", path.display())));
            }
            other => other?,
        };
        steps::unwritable(&own(&fd, FileType::Directory, &path)?, &path)?;
        Ok(Folder { fd, path })
    }

    /// The folder `name` in this one, made where it is missing.
    pub fn sub(&self, name: &str) -> io::Result<Folder> {
        Folder::within(self.as_fd(), OsStr::new(name), self.path.join(name))
    }

    /// Where it was found, for messages and debug information. What is there now may be another's.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path by which other processes of this user reach the very directory, for the compiler: through this
    /// process's descriptor. Where `/proc` does not serve (it is not mounted, or others may not look at this
    /// process) it is the path that was walked.
    pub fn via(&self) -> PathBuf {
        let way = by_descriptor(self.fd.as_raw_fd());
        // SAFETY: takes and writes no memory.
        let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) } == 1;
        if dumpable && leads_to(&way, &self.fd) {
            way
        } else {
            self.path.clone()
        }
    }

    /// Whether [`via`](Self::via) is the descriptor's.
    pub(super) fn has_own_way(&self) -> bool {
        self.via() != self.path
    }

    /// The content of a file that is this user's own, and nobody else's to write.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.read_as(name, steps::unwritable)
    }

    /// The content of a file that a program of this user made here, with whatever mode it is used to.
    pub(crate) fn read_built(&self, name: &str) -> io::Result<Vec<u8>> {
        self.read_as(name, |_, _| Ok(()))
    }

    fn read_as(&self, name: &str, check: impl Fn(&Stat, &Path) -> io::Result<()>) -> io::Result<Vec<u8>> {
        // A named pipe must not hold us up.
        let flags = OPEN | OFlags::RDONLY | OFlags::NONBLOCK;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty())?;
        let shown = self.path.join(name);
        let stat = own(&fd, FileType::RegularFile, &shown)?;
        check(&stat, &shown)?;
        let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or(0));
        File::from(fd).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes `name` hold `bytes`, in one step.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.{}.{}.tmp", std::process::id(), unique());
        let written = self.create(&temporary).and_then(|mut file| file.write_all(bytes));
        written.and_then(|()| Ok(fs::renameat(&self.fd, &temporary, &self.fd, name)?)).inspect_err(|_| {
            let _ = self.remove(OsStr::new(&temporary));
        })
    }

    /// A new file.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OPEN | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// A file to lock, made where it is missing.
    pub(super) fn lock_file(&self, name: &str) -> io::Result<File> {
        let flags = OPEN | OFlags::WRONLY | OFlags::CREATE;
        Ok(File::from(fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Whether this user may make files here.
    pub(super) fn can_write(&self) -> bool {
        let access = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
        fs::accessat(&self.fd, ".", access, AtFlags::EACCESS).is_ok()
    }

    /// Names in it, in no order.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        names(self.as_fd())
    }

    /// Removes a file, or a directory with all in it.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        remove(self.as_fd(), name)
    }
}

/// The path of a descriptor of this process, for all processes of this user: a debugger opens what is loaded
/// by it.
pub(crate) fn by_descriptor(fd: i32) -> PathBuf {
    format!("/proc/{}/fd/{fd}", std::process::id()).into()
}

/// Whether a path leads to what is open here.
pub(crate) fn leads_to(path: &Path, fd: impl AsFd) -> bool {
    let (Ok(there), Ok(here)) = (std::fs::metadata(path), fs::fstat(fd)) else { return false };
    (there.dev(), there.ino()) == (here.st_dev, here.st_ino)
}

pub(super) fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if !matches!(name.as_bytes(), b"." | b"..") {
            all.push(name);
        }
    }
    Ok(all)
}

pub(super) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return Ok(other?),
    }
    let fd = fs::openat(parent, name, OPEN | OFlags::DIRECTORY, Mode::empty())?;
    for inner in names(fd.as_fd())? {
        remove(fd.as_fd(), &inner)?;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
