//! The folder of one process, for when there is no cache to trust or none to write to: kernels are compiled
//! there, kept for as long as the process lives, and removed with it. It is new and empty when it is opened
//! and has this user's mode, so it does not matter who owns the directory that it is in. What a killed
//! process leaves the next one sweeps away.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use rustix::fs::{self, FlockOperation, Mode, OFlags};

use super::folder::{self, Folder};
use super::{steps, unique};

/// What must fit into it: about what a kernel with the device library takes.
const ROOM: usize = 4 << 20;

pub(super) struct Private {
    folder: Arc<Folder>,
    parent: OwnedFd,
    name: OsString,
    /// A child of fork has the value too, and must leave the folder alone.
    process: u32,
}

impl Private {
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }
}

static PRIVATE: Mutex<Option<Private>> = Mutex::new(None);

/// This process's folder, and whether this call made it.
pub(super) fn folder() -> io::Result<(Arc<Folder>, bool)> {
    let mut private = PRIVATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = private.as_ref().filter(|known| known.process == std::process::id()) {
        return Ok((Arc::clone(&known.folder), false));
    }
    let made = make()?;
    let folder = Arc::clone(&made.folder);
    *private = Some(made);
    static AT_EXIT: std::sync::Once = std::sync::Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function takes nothing and does not unwind. Where it is not registered, the next
        // process sweeps.
        unsafe { libc::atexit(remove_at_exit) };
    });
    Ok((folder, true))
}

extern "C" fn remove_at_exit() {
    let private = match PRIVATE.try_lock() {
        Ok(mut private) => private.take(),
        Err(TryLockError::Poisoned(private)) => private.into_inner().take(),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(private) = private.filter(|private| private.process == std::process::id()) {
        let _ = folder::remove(private.parent.as_fd(), &private.name);
    }
}

/// Where there may be room, best first.
fn bases() -> Vec<PathBuf> {
    let mut all = vec![std::env::temp_dir()];
    all.extend(["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from));
    all.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()));
    let mut seen = Vec::new();
    all.retain(|base| {
        !seen.contains(base) && {
            seen.push(base.clone());
            base.is_dir()
        }
    });
    all
}

fn make() -> io::Result<Private> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no temporary directory");
    // One whose path only this user and root can change, where there is one.
    for checked in [true, false] {
        for base in bases() {
            match make_in(&base, checked) {
                Ok(private) => return Ok(private),
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("{}: {error}", base.display()));
                }
            }
        }
    }
    Err(last)
}

pub(super) fn make_in(base: &Path, checked: bool) -> io::Result<Private> {
    let parent = if checked {
        steps::open(base)?
    } else {
        fs::openat(fs::CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?
    };
    sweep(base);
    loop {
        let name: OsString = format!("{}{}-{}", prefix(), std::process::id(), unique()).into();
        match fs::mkdirat(&parent, &name, Mode::RWXU) {
            Err(rustix::io::Errno::EXIST) => continue,
            other => other?,
        }
        let folder = Folder::within(parent.as_fd(), &name, base.join(&name))?;
        let private = Private {
            folder: Arc::new(folder),
            parent: parent.try_clone()?,
            name,
            process: std::process::id(),
        };
        // While it is locked no process sweeps it. If it was swept in between, it has lost its name.
        let locked = fs::flock(&*private.folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !locked || fs::fstat(&*private.folder)?.st_nlink == 0 {
            continue;
        }
        let usable = check(private.folder(), checked);
        if usable.is_err() {
            let _ = folder::remove(private.parent.as_fd(), &private.name);
        }
        return usable.map(|()| private);
    }
}

fn check(folder: &Folder, checked: bool) -> io::Result<()> {
    if !folder.names()?.is_empty() {
        return Err(steps::refused("the new directory is not empty".into()));
    }
    // The compiler would look names up again.
    if !checked && !folder.has_own_way() {
        return Err(steps::refused(
            "others could change its path, and /proc is not there to do without".into(),
        ));
    }
    let room = folder.create("room").and_then(|mut file| file.write_all(&vec![1; ROOM]));
    folder.remove(OsStr::new("room"))?;
    room
}

fn prefix() -> String {
    format!("rushmem-kernels-{}-", steps::user())
}

/// Removes what killed processes of this user left.
fn sweep(base: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = fs::openat(fs::CWD, base, flags, Mode::empty()) else { return };
    for name in folder::names(parent.as_fd()).unwrap_or_default() {
        if !name.as_bytes().starts_with(prefix().as_bytes()) {
            continue;
        }
        let Ok(left) = Folder::within(parent.as_fd(), &name, base.join(&name)) else { continue };
        if fs::flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = folder::remove(parent.as_fd(), &name);
        }
    }
}
