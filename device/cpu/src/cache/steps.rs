//! The way from `/` to a directory, walked by descriptors. What the cache holds will be run, so nobody but
//! this user and root may be able to change what stands at the end of the way: each step's owner and mode are
//! checked on the descriptor that the next step starts from. A name that is swapped after its check changes
//! nothing, as no name is looked up twice.
//!
//! A link on the way counts when this user or root made it; the last step must not be one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Group, User};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Opens a step to look at it and to start the next one from. A link is opened itself, not followed.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The user whose process this is, by the kernel's checks.
pub(crate) fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// An error that says why others could put something there.
pub(super) fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Opens a directory. Steps that are missing are made, for this user only.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = std::path::absolute(path)?;
    let mut walk = Walk::start()?;
    let mut todo = names(&path);
    let mut links = 0;
    while let Some(name) = todo.pop() {
        let step = walk.step(&name)?;
        let stat = fs::fstat(&step)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            walk.enter(&name, step, &stat)?;
            continue;
        }
        let shown = walk.shown.join(&name);
        if todo.is_empty() {
            return Err(refused(format!("{} is a link; name what it points to", shown.display())));
        }
        if !walk.trusts(stat.st_uid) {
            return Err(refused(format!("{} is a link of {}", shown.display(), named(stat.st_uid))));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = PathBuf::from(OsString::from_vec(fs::readlinkat(&step, "", Vec::new())?.into_bytes()));
        if target.is_absolute() {
            walk = Walk::start()?;
        }
        todo.extend(names(&target));
    }
    Ok(walk.here)
}

/// The names of a path, last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

struct Walk {
    here: OwnedFd,
    shown: PathBuf,
    /// Who owns `/`.
    root: u32,
}

impl Walk {
    fn start() -> io::Result<Walk> {
        let here = fs::openat(fs::CWD, "/", STEP | OFlags::DIRECTORY, Mode::empty())?;
        let root = fs::fstat(&here)?.st_uid;
        Ok(Walk { here, shown: "/".into(), root })
    }

    /// The owner of `/` owns every program that runs here. That is root, except in a user namespace that does
    /// not map root: all users outside look like one there, so only the check of [`own`] protects.
    fn trusts(&self, uid: u32) -> bool {
        uid == user() || uid == 0 || uid == self.root
    }

    fn step(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let shown = |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", self.shown.join(name).display()))
        };
        match fs::openat(&self.here, name, STEP, Mode::empty()) {
            Err(Errno::NOENT) => {}
            other => return other.map_err(shown),
        }
        match fs::mkdirat(&self.here, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(shown(error)),
        }
        fs::openat(&self.here, name, STEP, Mode::empty()).map_err(shown)
    }

    fn enter(&mut self, name: &OsStr, step: OwnedFd, stat: &Stat) -> io::Result<()> {
        self.shown.push(name);
        let shown = self.shown.display();
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{shown} is not a directory")));
        }
        if !self.trusts(stat.st_uid) {
            let why =
                format!("{shown} belongs to {}, who could put code there to run as you", named(stat.st_uid));
            return Err(refused(why));
        }
        // In a sticky directory only the owner of a name, or of the directory, can move it.
        let mode = stat.st_mode;
        if mode & STICKY == 0 {
            if mode & OTHERS_WRITE != 0 {
                let why = format!("everybody may write to {shown} (chmod o-w, or chmod +t to share it)");
                return Err(refused(why));
            }
            if mode & GROUP_WRITES != 0 && !own_group(stat.st_gid) {
                let why = format!(
                    "group {} may write to {shown} (chmod g-w, or chmod +t to share it)",
                    stat.st_gid
                );
                return Err(refused(why));
            }
        }
        self.here = step;
        Ok(())
    }
}

/// Whether a group is this user's alone, as many systems give each user one: of the user's name, with no
/// other member.
pub(super) fn own_group(gid: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(user().into()) else { return false };
    let Ok(Some(group)) = Group::from_gid(gid.into()) else { return false };
    user.gid == group.gid && user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

fn named(uid: u32) -> String {
    match User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {} ({uid})", user.name),
        _ => format!("user {uid}"),
    }
}

fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// What is opened inside a folder must be this user's own: what is run is the user's own work, no matter who
/// owns the directories above.
pub(super) fn own(fd: impl AsFd, kind: FileType, shown: &Path) -> io::Result<Stat> {
    let stat = fs::fstat(fd)?;
    let found = FileType::from_raw_mode(stat.st_mode);
    let shown = shown.display();
    if found != kind {
        return Err(refused(format!("{shown} is {}, not {}", type_name(found), type_name(kind))));
    }
    if stat.st_uid != user() {
        return Err(refused(format!("{shown} belongs to {}: we did not make it", named(stat.st_uid))));
    }
    Ok(stat)
}

/// And only its owner may write to it.
pub(super) fn unwritable(stat: &Stat, shown: &Path) -> io::Result<()> {
    if stat.st_mode & (GROUP_WRITES | OTHERS_WRITE) != 0 {
        return Err(refused(format!("others may write to {}: we did not make it so", shown.display())));
    }
    Ok(())
}
