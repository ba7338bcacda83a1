//! One process, one runtime: a Rust program and a C library in it that both use rushmem see the same
//! instance, whichever of them comes first, even where they would find different copies of the file by
//! themselves.

use std::ffi::{c_char, CStr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::job;
use crate::stage::{self, Stage};
use libloading::os::unix::{Library, Symbol, RTLD_LOCAL, RTLD_NOW};
use rushmem::{SymSlice, World};
use rushmem_abi::c::rushmem_world_t;
use rushmem_test_support::programs::copied;

/// Tells the process that a test starts where the C library is, and which side is to come first.
const CLIENT: &str = "ONE_RUNTIME_CLIENT";
const ORDER: &str = "ONE_RUNTIME_ORDER";

/// The C library of tests/c/client.c.
struct Client {
    path: Symbol<unsafe extern "C" fn() -> *const c_char>,
    pass_right: Symbol<unsafe extern "C" fn(*mut rushmem_world_t, *mut i64, i64) -> i32>,
    error: Symbol<unsafe extern "C" fn(*mut rushmem_world_t) -> *const c_char>,
    _library: Library,
}

impl Client {
    fn load(path: &Path) -> Client {
        // SAFETY: our own library; its functions have these types.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).expect("the C library loads");
            Client {
                path: library.get(b"client_library_path").expect("it is there"),
                pass_right: library.get(b"client_pass_right").expect("it is there"),
                error: library.get(b"client_error").expect("it is there"),
                _library: library,
            }
        }
    }

    fn path(&self) -> PathBuf {
        // SAFETY: returns a C string that lives for ever.
        PathBuf::from(unsafe { CStr::from_ptr((self.path)()) }.to_str().expect("a plain path"))
    }
}

/// How often this process has the runtime's file mapped as code, and which files those are.
fn mapped_runtimes() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let mut files: Vec<String> = maps
        .lines()
        .filter(|l| l.contains("librushmem_host.so") && l.contains("r-xp"))
        // Address, permissions, offset, device, inode; the rest is the name, with spaces in that of a deleted
        // file.
        .map(|l| l.split_whitespace().skip(5).collect::<Vec<_>>().join(" "))
        .collect();
    files.dedup();
    files
}

fn use_both(world: &World, client: &Client) {
    let (_, path) = rushmem::runtime().expect("it is loaded");
    assert_eq!(path, client.path(), "two runtimes");
    println!("runtime: {}", path.display());
    // Where the program carried it, that is a link to something without a name.
    let file = std::fs::read_link(&path).unwrap_or(path);
    assert_eq!(mapped_runtimes(), [file.to_string_lossy()], "one file is mapped");

    // The C library works on the Rust program's world and memory, and meets it in its barrier.
    let word: SymSlice<'_, i64> = world.alloc(1).expect("a word");
    // SAFETY: the handle and the word are this live world's.
    let code = unsafe { (client.pass_right)(world.as_raw(), word.as_ptr(), 42) };
    assert_eq!(code, 0);
    assert_eq!(word.to_vec().unwrap(), [42]);
    // SAFETY: a live world; the text is terminated, and copied at once.
    let text = unsafe { CStr::from_ptr((client.error)(world.as_raw())) }.to_string_lossy().into_owned();
    assert!(text.contains("0x8"), "{text}");
    word.free().expect("it was allocated");
}

/// What the started processes do; nothing in the test run itself.
#[test]
fn inside() {
    let (Some(client), Ok(order)) = (std::env::var_os(CLIENT), std::env::var(ORDER)) else { return };
    if order == "rust first" {
        let world = World::init().expect("a world of one");
        use_both(&world, &Client::load(Path::new(&client)));
        world.finalize().expect("all is well");
    } else {
        let prefix = Path::new(&client).parent().expect("the installation's folder").to_owned();
        let client = Client::load(Path::new(&client));
        let installed = client.path();
        assert!(installed.starts_with(prefix), "not the installed copy: {}", installed.display());
        let world = World::init().expect("a world of one");
        use_both(&world, &client);
        assert_eq!(installed, client.path(), "the copy that came first stays");
        world.finalize().expect("all is well");
    }
    println!("inside, {order}: all well");
}

/// `program` is this test program, or a copy of it.
fn in_a_process_of_its_own(order: &str, program: &Path) -> String {
    let Some(stage) = Stage::new(order) else { return String::new() };
    // Linked against the installed copy, while the Rust API would find the one in cargo's folder.
    let client = stage.dir().join("libclient.so");
    let source = stage::sources().join("tests/c/client.c");
    stage.compile(&source, &["-shared", "-fPIC"], &client);
    let mut inside = Command::new(program);
    inside.args(["one_runtime::inside", "--exact", "--nocapture", "--test-threads=1"]);
    inside.env(CLIENT, &client).env(ORDER, order);
    let text = job::alone(inside, Duration::from_secs(30));
    assert!(text.contains(&format!("inside, {order}: all well")), "{text}");
    text
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test knows its file")
}

#[test]
fn rust_comes_first() {
    in_a_process_of_its_own("rust first", &this_program());
}

#[test]
fn c_comes_first() {
    in_a_process_of_its_own("C first", &this_program());
}

/// With no library around it, a program loads the one that it carries, and a C library which needs
/// `librushmem_host.so`, and would find the installed one, is bound to that.
#[test]
fn a_rust_program_with_its_own_copy_comes_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("program");
    copied(this_program(), &copy);
    let text = in_a_process_of_its_own("rust first", &copy);
    assert!(text.is_empty() || text.contains("runtime: /proc/self/fd/"), "{text}");
}
