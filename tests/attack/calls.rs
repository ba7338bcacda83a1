//! Every function of the C ABI, as the header declares it, called with random arguments: there is always a
//! code, never a crash, and the world works afterwards. Pointers are null, symmetric (whole, freed, off the
//! granule, at the very end) or memory of the process that is large enough for whatever the call may do to
//! it, for so much C itself demands.

use std::ffi::{c_char, c_void, CStr};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use libloading::Library;
use rushmem::{testing, Pe};

use super::{rounds, Random};

const HEADER: &str = include_str!("../../host/runtime/include/rushmem.h");
/// Bytes of the process's own memory that calls may use, and of the block that they name.
const OWN: usize = 16 << 20;
const BLOCK: usize = 64 << 10;
/// Names a file to note each call in before it is made.
const NOTES: &str = "RUSHMEM_TEST_NOTES";

struct Parameter {
    /// The type, without qualifiers.
    kind: String,
    name: String,
}

struct Function {
    name: String,
    parameters: Vec<Parameter>,
}

/// What the header declares.
fn functions() -> Vec<Function> {
    let mut text = String::new();
    let mut rest = HEADER;
    while let Some((code, comment)) = rest.split_once("/*") {
        text += code;
        rest = comment.split_once("*/").expect("comments end").1;
    }
    text += rest;
    let text = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ");
    let declared = text.split(';').filter_map(|line| line.strip_suffix(')')?.split_once('('));
    let named = declared.filter_map(|(head, parameters)| {
        let name = head.rsplit([' ', '*']).next()?;
        name.starts_with("rushmem_").then(|| Function {
            name: name.to_owned(),
            parameters: parameters
                .split(',')
                .map(str::trim)
                .filter(|p| *p != "void")
                .map(parameter)
                .collect(),
        })
    });
    named.collect()
}

fn parameter(text: &str) -> Parameter {
    let at = text.rfind([' ', '*']).expect("a type and a name") + 1;
    let kind = text[..at].replace("const", "").replace("struct", "");
    Parameter { kind: kind.split_whitespace().collect::<Vec<_>>().join(" "), name: text[at..].to_owned() }
}

/// What calls are made with.
struct Stock {
    world: usize,
    team: usize,
    module: usize,
    kernel: usize,
    event: usize,
    stream: usize,
    block: usize,
    freed: usize,
    own: usize,
}

impl Stock {
    /// An argument for a parameter of a function.
    fn argument(&self, function: &Function, p: &Parameter, random: &mut Random) -> u64 {
        let by_elements = function.parameters.iter().any(|p| p.name == "elem_bytes");
        let function = function.name.as_str();
        let ends = ["free", "unload", "destroy", "finalize", "abort", "leave", "break"];
        let ends_it = ends.iter().any(|end| function.contains(end));
        let ends_world = ends[3..].iter().any(|end| function.ends_with(end));
        // What is valid, mostly, so that calls get past the first check; else nothing, or what was never a
        // handle.
        let mut handle = |valid: usize, ends: bool| match random.below(8) {
            0 => random.one_of(&[0, 1, self.own as u64, self.block as u64]),
            _ if ends => 0,
            _ => valid as u64,
        };
        match p.kind.as_str() {
            "rushmem_world_t *" => handle(self.world, ends_world),
            "rushmem_team_t *" => handle(self.team, ends_it),
            "rushmem_module_t *" => handle(self.module, ends_it),
            "rushmem_kernel_t *" => handle(self.kernel, ends_it),
            "rushmem_event_t *" => handle(self.event, ends_it),
            "void *" if p.name == "stream" => {
                let live = if ends_it { 0 } else { self.stream };
                random.one_of(&[0, live, live, 1, self.own, self.block]) as u64
            }
            // Only what is not in use may go.
            "void *" if ends_it => random.one_of(&[0, self.freed, self.block + 1, self.own]) as u64,
            // With null it would meet a job of the environment, which this process has met already.
            "rushmem_init_attr_t *" => self.own as u64,
            // The one that is called: it has to be a function.
            "int32_t (*" => random.one_of(&[0, goes_on as *const () as u64]),
            kind if kind.ends_with('*') => self.pointer(p, random),
            // A count and a size of elements, whose product has to lie in the memory at hand or be refused.
            "size_t" if by_elements => match p.name.as_str() {
                "n" => random.one_of(&[0, 1, 2, 7, 1000]),
                _ => random.one_of(&[0, 1, 2, 3, 4, 8, 16, 1000, u64::MAX, 1 << 63]),
            },
            // The far side may be anything, the near side is the program's memory; a collective's are both.
            "ptrdiff_t" => {
                let source = function.contains("iput");
                let near = (p.name == "src_stride") == source || function.contains("alltoalls");
                let far = random.one_of(&[i64::MIN, i64::MAX, 1 << 40, -(1 << 40), 0, 1, 2, -1]);
                let close = random.one_of(&[0, 1, 2, 3, -1, -2]);
                (if near { close } else { far }) as u64
            }
            // A compiler's run each is too long, and options are read for as many as are announced.
            "size_t" if function == "rushmem_module_load" => random.one_of(&[0, u64::MAX]),
            "size_t" | "uint64_t" if p.name == "timeout_ns" => random.one_of(&[1, 1000, 100_000]),
            "size_t" => random.one_of(&[
                0,
                1,
                2,
                3,
                4,
                7,
                8,
                9,
                100,
                4096,
                BLOCK as u64 - 1,
                BLOCK as u64,
                BLOCK as u64 + 1,
                1 << 20,
                u64::MAX,
                u64::MAX - 7,
                1 << 63,
                1 << 61,
                1 << 48,
            ]),
            "int32_t" if p.name == "pe" => random.one_of(&[0, 0, 0, 0, 1, -1, i32::MAX, i32::MIN]) as u64,
            "int32_t" => {
                random.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99, -1, i32::MAX, i32::MIN]) as u64
            }
            "int64_t" => random.one_of(&[0, 1, -1, 5, i64::MAX, i64::MIN]) as u64,
            "uint32_t" | "uint64_t" => random.one_of(&[0, 1, 2, 8, 255, 1 << 31, u64::MAX, 1 << 63]),
            other => panic!("{function}: a parameter of type {other}, which this test does not know"),
        }
    }

    fn pointer(&self, p: &Parameter, random: &mut Random) -> u64 {
        // Zeros: an empty text, an array of nulls, a struct without a size.
        let own = self.own as u64;
        let near = own + (OWN / 2) as u64;
        if p.kind.contains("char") || p.kind.contains("_t *") || p.kind.contains("* *") {
            let symmetric = p.kind == "uint64_t *" && p.name == "sig";
            if !symmetric {
                return random.one_of(&[0, own, own, own]);
            }
        }
        let block = self.block as u64;
        let end = block + BLOCK as u64;
        random.one_of(&[
            0,
            near,
            near,
            block,
            block,
            block,
            block + 8,
            block + 1,
            end - 8,
            end - 1,
            end,
            self.freed as u64,
        ])
    }
}

/// For `rushmem_on_wait`.
extern "C" fn goes_on() -> i32 {
    0
}

/// The library that this process has loaded.
fn library() -> Library {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let path = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let path = path.into_iter().find(|path| path.contains("librushmem_host")).expect("it is loaded");
    // SAFETY: loaded already.
    unsafe { Library::new(path) }.expect("loaded already")
}

/// Calls a function of up to ten integers and pointers, which all travel alike in the C ABIs of x86-64 and
/// aarch64.
///
/// # Safety
/// The function is one, takes no more, and is sound with these.
unsafe fn call(function: *const c_void, a: &[u64]) -> i32 {
    type F = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    let at = |i: usize| a.get(i).copied().unwrap_or(0);
    // SAFETY: per contract: more arguments than a function takes are not looked at.
    unsafe {
        let f = std::mem::transmute::<*const c_void, F>(function);
        f(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9)) as i32
    }
}

/// Own memory, zeroed.
fn own_memory() -> usize {
    // SAFETY: fresh memory.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            OWN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize
}

fn storm(calls: u32) {
    rushmem::gpus().expect("the library is loaded");
    let library = library();
    let find = |name: &str| {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
        *found.unwrap_or_else(|e| panic!("{name}: {e}")) as *const c_void
    };
    let mut out = 0usize;
    let slot = &raw mut out as u64;
    let mut made = |name: &str, a: &[u64]| {
        // SAFETY: called as the header says.
        let code = unsafe { call(find(name), a) };
        assert_eq!(code, 0, "{name}");
        // SAFETY: written by the call, or as it was.
        unsafe { std::ptr::read_volatile(&raw const out) }
    };
    let w = made("rushmem_init", &[0, slot]);
    let source = "extern \"C\" __global__ void k(int *p) {}\0";
    let (text, name) = (source.as_ptr() as u64, c"k.cu".as_ptr() as u64);
    let w64 = w as u64;
    let alloc = |made: &mut dyn FnMut(&str, &[u64]) -> usize, bytes: usize| {
        made("rushmem_alloc", &[w64, bytes as u64, 0, slot])
    };
    // What overruns the block on the program's side stays in the heap.
    let _before = alloc(&mut made, 1 << 20);
    let block = alloc(&mut made, BLOCK);
    let _behind = alloc(&mut made, 1 << 20);
    let freed = alloc(&mut made, 4096);
    made("rushmem_free", &[w64, freed as u64]);
    let module = made("rushmem_module_load", &[w64, text, source.len() as u64 - 1, name, 0, 0, slot]);
    let kernel = made("rushmem_module_kernel", &[module as u64, c"k".as_ptr() as u64, slot]);
    let stream = made("rushmem_stream_create", &[w64, slot]);
    let event = made("rushmem_event_record", &[w64, stream as u64, slot]);
    let team = made("rushmem_team_world", &[w64, slot]);
    let stock = Stock { world: w, team, module, kernel, event, stream, block, freed, own: own_memory() };

    let functions = functions();
    assert!(functions.len() > 80, "{} functions in the header", functions.len());
    let notes = std::env::var_os(NOTES).map(|path| File::create(path).expect("a file for notes"));
    let (mut random, mut refused) = (Random::new(), 0);
    let error_name = find("rushmem_error_name");
    for i in 0..calls as usize {
        // Each at least so often, then at random.
        let function = &functions
            [if i < 20 * functions.len() { i % functions.len() } else { random.below(functions.len()) }];
        let arguments: Vec<u64> =
            function.parameters.iter().map(|p| stock.argument(function, p, &mut random)).collect();
        if let Some(notes) = &notes {
            let note = format!("{i}: {}({arguments:x?})\n{:200}", function.name, "");
            notes.write_all_at(note.as_bytes(), 0).expect("room for a note");
        }
        // SAFETY: what this test is about: whatever C allows is answered.
        let code = unsafe { call(find(&function.name), &arguments) };
        // SAFETY: zeroed own memory, which calls have written to.
        unsafe { std::ptr::write_bytes(stock.own as *mut u8, 0, 1 << 16) };
        if ["version", "path", "error", "name", "my_pe", "n_pes"]
            .iter()
            .any(|text| function.name.ends_with(text))
            && code >= 0
            || matches!(
                function.name.as_str(),
                "rushmem_version" | "rushmem_library_path" | "rushmem_last_error" | "rushmem_error_name"
            )
        {
            continue;
        }
        // SAFETY: takes a number and gives a text that lives for ever.
        let name = unsafe {
            let name =
                std::mem::transmute::<*const c_void, unsafe extern "C" fn(i32) -> *const c_char>(error_name);
            CStr::from_ptr(name(code)).to_string_lossy()
        };
        assert!(!name.contains('?'), "{}({arguments:x?}) gave {code}", function.name);
        assert!(!name.contains("INTERNAL"), "{}({arguments:x?}) gave {code}, {name}", function.name);
        refused += usize::from(code != 0);
    }
    println!("{calls} calls, {refused} refused");
    assert!(refused > calls as usize / 10 && refused < calls as usize, "{refused}");
    std::io::stdout().flush().expect("printed");
    // The world is as good as new.
    // SAFETY: as the header says.
    unsafe {
        assert_eq!(call(find("rushmem_put"), &[w64, block as u64, stock.own as u64, 64, 0]), 0);
        assert_eq!(call(find("rushmem_barrier_all"), &[w64]), 0);
        assert_eq!(call(find("rushmem_event_free"), &[event as u64]), 0);
    }
}

#[test]
fn random_calls_are_answered() {
    let notes = tempfile::NamedTempFile::new().expect("a file for notes");
    let calls = rounds(4000);
    testing::pes(1)
        .timeout(Duration::from_secs(60 + u64::from(calls) / 100))
        .env(NOTES, notes.path())
        .env("RUSHMEM_DEVICE", "cpu")
        .env("RUSHMEM_WAIT_TIMEOUT", "0.01")
        .env("RUSHMEM_HEAP_MAX", "64M")
        .env("RUSHMEM_LOG", "error")
        .supervise(
            |_| storm(calls),
            |job| {
                let outcome = job.outcome(Pe::new(0));
                let last = std::fs::read_to_string(notes.path()).unwrap_or_default();
                let last = last.lines().next().unwrap_or_default().to_owned();
                assert_eq!(
                    outcome.exit,
                    testing::Exit::Done,
                    "last call {last}\n{}\n{}",
                    outcome.stdout,
                    outcome.stderr
                );
            },
        );
}
