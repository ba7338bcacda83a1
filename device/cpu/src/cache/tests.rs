use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};

use super::record::Record;
use super::*;

static CPU: Form = super::CPU;
static TWO: Form = Form { heading: "test 1", files: &["kernel.so", "kernel.names"] };

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stat").permissions().mode() & 0o7777
}

fn folder(temp: &tempfile::TempDir) -> Folder {
    Folder::of_user(&temp.path().join("cache")).expect("this user's own")
}

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
    let entry = Entry::open(&folder(&temp), "key", &TWO).expect("a new one");
    assert_eq!(entry.contents(), None);
    let include = temp.path().join("my header.h");
    let contents = [b"object".to_vec(), b"names".to_vec()];
    let install = || entry.install(&contents, std::slice::from_ref(&include)).expect("installing");
    fs::write(&include, "one").expect("writing");
    install();
    assert_eq!(entry.contents().as_deref(), Some(&contents[..]));
    // Another size.
    fs::write(&include, "three").expect("writing");
    assert_eq!(entry.contents(), None);
    install();
    assert!(entry.contents().is_some());
    // A flipped byte, a cut, nothing, in either file.
    for name in TWO.files {
        let file = entry.folder.path().join(name);
        for damage in [&b"objekt"[..], b"namen", b"obj", b""] {
            fs::write(&file, damage).expect("writing");
            assert_eq!(entry.contents(), None);
        }
        install();
        // A link to the very content, and a file that others may write to.
        let aside = temp.path().join("aside");
        fs::rename(&file, &aside).expect("renaming");
        symlink(&aside, &file).expect("linking");
        assert_eq!(entry.contents(), None);
        install();
        for loose in [0o620, 0o602] {
            chmod(&file, loose);
            assert_eq!(entry.contents(), None);
        }
        install();
    }
    let record = fs::read(entry.folder.path().join(RECORD)).expect("reading");
    for end in 0..record.len() {
        assert_eq!(Record::parse(&record[..end], &TWO), None, "cut at {end}");
        let mut flipped = record.clone();
        flipped[end] ^= 1;
        assert_eq!(Record::parse(&flipped, &TWO), None, "flipped at {end}");
    }
    // Of another form.
    assert!(Record::parse(&record, &TWO).is_some() && Record::parse(&record, &CPU).is_none());
    assert!(entry.contents().is_some());
    fs::remove_file(&include).expect("removing");
    assert_eq!(entry.contents(), None);
}

#[test]
fn a_lock_excludes_and_sweeps() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let entry = Entry::open(&folder(&temp), "key", &CPU).expect("a new one");
    let left = entry.folder.path().join("build-1-2");
    fs::create_dir_all(left.join("deep")).expect("making");
    fs::write(left.join("deep/file"), "").expect("writing");
    let held = entry.lock().expect("locking");
    assert!(held.is_some() && !left.exists());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| entry.lock().expect("locking").map(|_| Instant::now()));
        std::thread::sleep(Duration::from_millis(50));
        let released = Instant::now();
        drop(held);
        assert!(other.join().expect("no panic").expect("locked") >= released);
    });
}

#[test]
fn what_others_could_change_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (a, b) = (temp.path().join("a"), temp.path().join("a/b"));
    let (root, mine) = (b.join("cache"), b.join("cache").join(format!("uid-{}", steps::user())));
    let open = || Folder::of_user(&root).map(drop);
    open().expect("making");
    let group = fs::metadata(&mine).expect("stat").gid();
    for dir in [&a, &b, &root, &mine] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    for dir in [&a, &b, &root, &mine] {
        for loose in [0o777, 0o720, 0o702] {
            chmod(dir, loose);
            // A group that is this user's alone is as good as none.
            if loose == 0o720 && dir != &mine && steps::own_group(group) {
                assert!(open().is_ok());
                continue;
            }
            let error = open().expect_err("refused").to_string();
            assert!(error.contains(&*dir.to_string_lossy()), "{error}");
        }
        // To be read by others is no harm; a directory that is shared has the sticky bit.
        for tight in [0o755, 0o1777] {
            chmod(dir, tight);
            assert_eq!(open().is_ok(), tight == 0o755 || dir != &mine, "{} {tight:o}", dir.display());
        }
        chmod(dir, 0o700);
    }
    // Links: followed on the way, where they are this user's, never at the cache or below.
    for (dir, followed) in [(&a, true), (&b, true), (&root, false), (&mine, false)] {
        let aside = dir.with_file_name("aside");
        fs::rename(dir, &aside).expect("renaming");
        symlink(&aside, dir).expect("linking");
        assert_eq!(open().is_ok(), followed, "{}", dir.display());
        fs::remove_file(dir).expect("removing");
        // One that leads into itself, and one whose way others can change.
        symlink(dir, dir).expect("linking");
        assert!(open().is_err());
        fs::remove_file(dir).expect("removing");
        chmod(&aside, 0o777);
        symlink(&aside, dir).expect("linking");
        assert!(open().is_err());
        fs::remove_file(dir).expect("removing");
        chmod(&aside, 0o700);
        fs::rename(&aside, dir).expect("renaming");
    }
    fs::remove_dir_all(&root).expect("removing");
    fs::write(&root, "").expect("writing");
    assert!(open().expect_err("a file").to_string().contains("not a directory"));
}

#[test]
fn a_path_goes_by_parents_and_relative_links() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir_all(temp.path().join("x/y")).expect("making");
    symlink("x/y", temp.path().join("link")).expect("linking");
    let opened = Folder::of_user(&temp.path().join("link/../there")).expect("opened");
    let real = temp.path().join("x/there").join(format!("uid-{}", steps::user()));
    assert!(leads_to(&real, &opened));
    // By its descriptor it is reached wherever it is moved.
    fs::rename(temp.path().join("x"), temp.path().join("z")).expect("renaming");
    assert!(leads_to(&opened.via(), &opened) && !leads_to(opened.path(), &opened));
}

#[test]
fn a_foreign_owner_is_refused_at_each_step() {
    if steps::user() != 0 {
        eprintln!("SKIP a_foreign_owner_is_refused_at_each_step: only root gives files away");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let a = temp.path().join("a");
    let root = a.join("cache");
    let mine = Folder::of_user(&root).expect("making").path().to_owned();
    let give = |path: &Path, uid| std::os::unix::fs::lchown(path, Some(uid), None).expect("chown");
    for dir in [&a, &root, &mine] {
        // Sticky or not: an owner may move what is in it.
        for bits in [0o700, 0o755, 0o1777] {
            give(dir, 65534);
            chmod(dir, bits);
            let error = Folder::of_user(&root).expect_err("refused").to_string();
            assert!(error.contains("65534") && error.contains(&*dir.to_string_lossy()), "{error}");
            give(dir, 0);
            chmod(dir, 0o700);
        }
    }
    // A group of others.
    for dir in [&a, &root, &mine] {
        std::os::unix::fs::chown(dir, None, Some(65534)).expect("chown");
        chmod(dir, 0o770);
        assert!(Folder::of_user(&root).expect_err("refused").to_string().contains("write to"));
        std::os::unix::fs::chown(dir, None, Some(0)).expect("chown");
        chmod(dir, 0o700);
    }
    // A link of another's, in a directory where anybody may make one.
    chmod(&a, 0o1777);
    let link = a.join("link");
    symlink(&root, &link).expect("linking");
    Folder::of_user(&link.join("inner")).expect("root's own");
    give(&link, 65534);
    assert!(Folder::of_user(&link.join("inner")).expect_err("refused").to_string().contains("is a link of"));
    // A file of another's in the folder.
    let entry = Entry::open(&folder(&temp), "key", &CPU).expect("a new one");
    entry.install(&["object"], &[]).expect("installing");
    assert!(entry.contents().is_some());
    give(&entry.folder.path().join("kernel.so"), 65534);
    assert_eq!(entry.contents(), None);
}

#[test]
fn a_folder_of_ones_own_needs_no_trust() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let base = temp.path().join("base");
    fs::create_dir(&base).expect("making");
    chmod(&base, 0o777);
    assert!(private::make_in(&base, true).is_err());
    let private = private::make_in(&base, false).expect("new, and reached by its descriptor");
    let folder = private.folder();
    assert!(folder.via() != folder.path() && leads_to(&folder.via(), folder));
    assert_eq!((folder.names().expect("readable").len(), mode(folder.path())), (0, 0o700));
    // Another process's is left alone while it lives, and swept away when it does not.
    let second = private::make_in(&base, false).expect("another");
    assert!(leads_to(folder.path(), folder) && leads_to(second.folder().path(), second.folder()));
    drop(private);
    let third = private::make_in(&base, false).expect("another");
    assert_eq!(fs::read_dir(&base).expect("readable").count(), 2, "the second and the third");
    drop((second, third));
}
