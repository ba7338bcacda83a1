//! A fault of a kernel ends the process by its signal, with a text that says where and what. Each is made by
//! a child: this test program again.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rushmem_device_cpu::{Compiler, Limits};
use rushmem_device_cpu_test_support::parts::{is_part, part};
use rushmem_device_cpu_test_support::{arg, run, shape, Bench};

/// The faults, a kernel each; the line that is at fault says so.
const SOURCE: &str = r#"
__global__ void null(int *p) {
  if (threadIdx.x == 5) p[3] = 1;  // fault null
}
__global__ void wild(long *p) {
  if (blockIdx.x == 1 && threadIdx.x == 2) *p += 1;  // fault wild
}
__device__ int divided(int a, int b);
__global__ void divide(int *p) {
  p[1] = divided(p[0], threadIdx.x - 3);  // called
}
__device__ __attribute__((noinline)) int divided(int a, int b) {
  return a / b;  // fault divide
}
__global__ void illegal(int *p) {
  if (threadIdx.x == 7) __builtin_trap();  // fault illegal
}
__device__ __attribute__((noinline)) int deeper(volatile int *p, int n) {
  volatile char memory[512];
  memory[n % 512] = 1;  // fault deep
  return *p == 0 ? 1 : deeper(p, n + 1) + memory[3];
}
__global__ void deep(int *p) {
  p[1] = deeper(p, 0);
}
__global__ void large(int *p) {
  volatile char memory[300 << 10];
  memory[*p] = 1;
  p[1] = memory[5];
}
__global__ void copies(int *p) {
  memcpy(p + 4, reinterpret_cast<void *>(0x5000000000), 1000 + p[0]);  // fault copies
}
__global__ void jumps(int *p) {
  auto call = reinterpret_cast<void (*)()>(static_cast<unsigned long>(p[0]) * 8);
  call();  // fault jumps
}
__global__ void frees(int *p) {
  free(reinterpret_cast<void *>(0x5000000010));  // fault frees
}
"#;

fn line(mark: &str) -> usize {
    let found = SOURCE.lines().position(|line| line.ends_with(mark));
    found.unwrap_or_else(|| panic!("{mark} is in the source")) + 1
}

/// Launches that kernel as the child.
fn play(kernel: &str) {
    let bench = Bench::new();
    let limits = Limits { stack: 96 << 10, ..Limits::default() };
    let compiler = Compiler { limits, ..bench.compiler.clone() };
    let module = compiler.compile("folder/faults.cu", SOURCE).unwrap_or_else(|error| panic!("{error}"));
    let kernel_of = module.kernel(kernel).expect("defined");
    let mut words = [4i32; 1000];
    let pointer: usize = match kernel {
        "null" => 0,
        "wild" => 0xdead_beef_dead_beef,
        _ => words.as_mut_ptr() as usize,
    };
    let ended = run(&kernel_of, &shape(2, 8), &[arg(&pointer)]);
    println!("NOT DEAD: {ended:?}");
}

/// Signal and output of a child.
fn end_of(test: &str, what: &str) -> (Option<i32>, String) {
    let start = Instant::now();
    let output = part(test, what).stdin(Stdio::null()).output().expect("the child runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(start.elapsed() < Duration::from_secs(60), "{text}");
    (output.status.signal(), text)
}

#[test]
fn each_fault_is_told() {
    const TEST: &str = "each_fault_is_told";
    let faults: [(&str, i32, &str, &[&str]); 9] = [
        (
            "null",
            libc::SIGSEGV,
            "null",
            &["thread (5,0,0)", "writes address 0xc", "a null pointer plus 12 bytes"],
        ),
        (
            "wild",
            libc::SIGSEGV,
            "wild",
            &["block (1,0,0), thread (2,0,0)", "0xdeadbeefdeadbeef, which is no address"],
        ),
        (
            "divide",
            libc::SIGFPE,
            "divide",
            &["thread (3,0,0)", "an integer is divided by zero", "called at folder/faults.cu:"],
        ),
        ("illegal", libc::SIGILL, "illegal", &["thread (7,0,0)", "__builtin_trap()"]),
        (
            "deep",
            libc::SIGSEGV,
            "",
            &["the stack of the CUDA thread is full: it has 96 KiB", "RUSHMEM_CPU_STACK=192K", "faults.cu:"],
        ),
        ("large", libc::SIGSEGV, "", &["the stack of the CUDA thread is full: it has 96 KiB"]),
        ("copies", libc::SIGSEGV, "copies", &["reads address 0x5000000", "nothing is mapped there"]),
        ("jumps", libc::SIGSEGV, "jumps", &["runs code at address 0x20", "a null pointer plus 32 bytes"]),
        ("frees", libc::SIGSEGV, "frees", &["address 0x50000000"]),
    ];
    if let Some((kernel, ..)) = faults.iter().find(|(kernel, ..)| is_part(kernel)) {
        return play(kernel);
    }
    for (kernel, signal, mark, says) in faults {
        if kernel == "divide" && cfg!(target_arch = "aarch64") {
            continue; // there it is 0
        }
        let (ended, text) = end_of(TEST, kernel);
        assert_eq!(ended, Some(signal), "{kernel}: {text}");
        assert_eq!(text.matches("rushmem [error]").count(), 1, "{kernel}: {text}");
        assert!(text.contains(&format!("kernel `{kernel}` (folder/faults.cu), block (")), "{text}");
        if !mark.is_empty() {
            let at = format!(" at folder/faults.cu:{}", line(&format!("// fault {mark}")));
            assert!(text.contains(&at), "{kernel}: {at} is not in: {text}");
        }
        for part in says {
            assert!(text.contains(part), "{kernel}: {part} is not in: {text}");
        }
        println!("{}", text.split_once("rushmem [error]").map_or("", |(_, text)| text));
    }
}

/// Runs both in threads of their own, which begin together.
fn at_once(parts: [impl FnOnce() + Send; 2]) {
    let ready = Barrier::new(2);
    std::thread::scope(|scope| {
        for part in parts {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                part();
            });
        }
    });
}

/// Whichever fault ends the process has its text; the other one may have one, too, and they do not mix.
#[test]
fn of_two_faults_at_once_the_one_that_ends_the_process_is_told() {
    const TEST: &str = "of_two_faults_at_once_the_one_that_ends_the_process_is_told";
    if is_part("two") {
        let module = Bench::new().compiler.compile("folder/faults.cu", SOURCE).expect("it compiles");
        let word = 0usize;
        at_once(["null", "illegal"].map(|name| {
            let kernel = module.kernel(name).expect("defined");
            move || run(&kernel, &shape(1, 8), &[arg(&word)]).expect("dead before")
        }));
        return;
    }
    let says =
        [(libc::SIGSEGV, "null", "a null pointer plus 12"), (libc::SIGILL, "illegal", "__builtin_trap()")];
    for _ in 0..6 {
        let (ended, text) = end_of(TEST, "two");
        let (_, kernel, what) = says.iter().find(|(signal, ..)| Some(*signal) == ended).expect(&text);
        let texts: Vec<&str> = text.split("rushmem [error]").skip(1).collect();
        assert!(matches!(texts.len(), 1 | 2), "{text}");
        let of_it: Vec<_> =
            texts.iter().filter(|text| text.contains(&format!("kernel `{kernel}`"))).collect();
        assert!(matches!(of_it[..], [one] if one.contains(what)), "signal {ended:?}: {text}");
        let at = format!(" at folder/faults.cu:{}", line(&format!("// fault {kernel}")));
        assert!(of_it[0].contains(&at), "{at} is not in: {text}");
    }
}

const HANDLERS: &str = r#"
#include <sys/resource.h>
__global__ void writes(int *p) { *p = 5; }  // writes
#include <sys/mman.h>
__global__ void cramped(int *p) {
  // A megabyte more than there is: not enough for who reads debug information. Nor is what other threads have
  // given back meanwhile.
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert(fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  rlimit little{((rlim_t)pages << 12) + (1 << 20), RLIM_INFINITY};
  assert(setrlimit(RLIMIT_AS, &little) == 0);
  while (mmap(nullptr, 2 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
  *p = 5;
}
"#;

/// Runs a kernel of those on this address.
fn launch(kernel: &str, pointer: usize) {
    let bench = Bench::new();
    let module = bench.module(HANDLERS);
    let ended = run(&module.kernel(kernel).expect("defined"), &shape(1, 1), &[arg(&pointer)]);
    println!("RAN {ended:?}");
}

fn handle(signal: i32, handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: the handlers below make system calls alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

extern "C" fn leaves(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: system calls on static text.
    unsafe {
        libc::write(1, c"THE PROGRAM'S HANDLER\n".as_ptr().cast(), 22);
        libc::_exit(44);
    }
}

/// Pages that the program itself opens when they are touched.
extern "C" fn opens(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the address that was touched, in a mapping of the test's.
    unsafe {
        let page = ((*info).si_addr() as usize & !4095) as *mut libc::c_void;
        libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE);
    }
}

static URGENT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn counts(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    URGENT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

fn play_with_handlers(role: &str) {
    match role {
        "before" => {
            handle(libc::SIGSEGV, leaves);
            launch("writes", 16);
        }
        "after" => {
            let mut word = 0;
            launch("writes", &raw mut word as usize);
            handle(libc::SIGSEGV, leaves);
            launch("writes", 16);
        }
        "opens" => {
            handle(libc::SIGSEGV, opens);
            // SAFETY: a fresh mapping.
            let page = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            launch("writes", page as usize);
            // SAFETY: open by now.
            println!("WROTE {}", unsafe { page.cast::<i32>().read() });
        }
        "foreign" => {
            let mut word = 0;
            launch("writes", &raw mut word as usize);
            // SAFETY: none; it is to fault in code that is not ours.
            unsafe { (16 as *mut i32).write_volatile(word) };
        }
        "all" => {
            let mut word = 0;
            launch("writes", &raw mut word as usize);
            // SAFETY: none; it is to fault in code that is not ours, on a thread of its own.
            let faults = move || unsafe { (16 as *mut i32).write_volatile(word) };
            let thread = std::thread::Builder::new().name("foreign".into()).spawn(faults);
            thread.expect("it starts").join().expect("it ends the process");
        }
        "sent" => {
            let mut word = 0;
            launch("writes", &raw mut word as usize);
            // Rust's own handler takes the first for a fault that comes again.
            for _ in 0..2 {
                // SAFETY: sends this process a signal.
                unsafe { libc::raise(libc::SIGSEGV) };
            }
        }
        "opens two" => {
            handle(libc::SIGSEGV, opens);
            let bench = Bench::new();
            let module = bench.module(HANDLERS);
            // SAFETY: a fresh mapping.
            let pages = unsafe {
                let access = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_NONE, access, -1, 0)
            } as usize;
            at_once([pages, pages + 4096].map(|page| {
                let kernel = module.kernel("writes").expect("defined");
                move || run(&kernel, &shape(1, 1), &[arg(&page)]).expect("it ends")
            }));
            // SAFETY: open by now.
            println!("WROTE {:?}", [0, 4096].map(|at| unsafe { ((pages + at) as *const i32).read() }));
        }
        "cramped" => launch("cramped", 16),
        "off" => launch("writes", 16),
        "urgent" => {
            handle(libc::SIGURG, counts);
            let bench = Bench::new();
            let source =
                "__global__ void k(volatile int *p) { if (threadIdx.x) *p = 1; else while (!*p) {} }";
            let kernel = bench.module(source).kernel("k").expect("defined");
            for _ in 0..2 {
                let mut word = 0;
                let pointer = &raw mut word;
                run(&kernel, &shape(1, 2), &[arg(&pointer)]).expect("it ends");
                // SAFETY: sends this process a signal.
                unsafe { libc::raise(libc::SIGURG) };
            }
            println!("URGENT {}", URGENT.load(std::sync::atomic::Ordering::Relaxed));
        }
        other => panic!("no role {other}"),
    }
}

/// Name, signal, exit code, texts of ours, what is said.
type Role = (&'static str, Option<i32>, Option<i32>, usize, &'static [&'static str]);

#[test]
fn the_program_s_handlers_stay() {
    const TEST: &str = "the_program_s_handlers_stay";
    let segv = Some(libc::SIGSEGV);
    let roles: [Role; 10] = [
        ("before", None, Some(44), 1, &["THE PROGRAM'S HANDLER", "at test.cu:3"]),
        ("after", None, Some(44), 0, &["RAN Ok(())", "THE PROGRAM'S HANDLER"]),
        ("opens", None, Some(0), 1, &["RAN Ok(())", "WROTE 5"]),
        ("opens two", None, Some(0), 2, &["WROTE [5, 5]"]),
        ("foreign", segv, None, 0, &["RAN Ok(())"]),
        (
            "all",
            segv,
            None,
            1,
            &[
                "thread `foreign`, in code of others: SIGSEGV: it writes address 0x10\n  at ",
                "play_with_handlers",
            ],
        ),
        ("sent", segv, None, 0, &["RAN Ok(())"]),
        (
            "cramped",
            segv,
            None,
            1,
            &["kernel `cramped` (test.cu), block (0,0,0), thread (0,0,0): SIGSEGV, address 0x10,"],
        ),
        ("off", segv, None, 0, &[]),
        ("urgent", None, Some(0), 0, &["URGENT 2"]),
    ];
    if let Some((role, ..)) = roles.iter().find(|(role, ..)| is_part(role)) {
        return play_with_handlers(role);
    }
    for (role, signal, code, texts, says) in roles {
        let mut command = part(TEST, role);
        match role {
            "off" => drop(command.env("RUSHMEM_CRASH_REPORT", "0")),
            "all" => drop(command.env("RUSHMEM_CRASH_REPORT", "all")),
            _ => {}
        }
        let output = command.stdin(Stdio::null()).output().expect("the child runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!((output.status.signal(), output.status.code()), (signal, code), "{role}: {text}");
        assert_eq!(text.matches("rushmem [error]").count(), texts, "{role}: {text}");
        for part in says {
            assert!(text.contains(part), "{role}: {part} is not in: {text}");
        }
    }
}
