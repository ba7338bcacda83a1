//! What needs a process of its own: memory that crosses processes, and failures that take the context with
//! them. The test runs its own binary again, with a variable that tells the child what to be.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::kernels::{arg, shape};
use super::pes::{start, Pes};
use super::*;
use rushmem_abi::device::{RUSHMEM_DEVICE_FAIL_BAD_PE, RUSHMEM_DEVICE_FAIL_BROKEN};

const ROLE: &str = "RUSHMEM_TEST_CUDA_CHILD";

/// Runs the test `name` (of this module) as a child that finds `role` in the environment; its output.
fn child(name: &str, role: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("gpu::tests::children::{name}"), "--nocapture"]);
    command.env(ROLE, role).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let output = wait(child);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the child: {}\n{text}", output.status);
    assert!(text.contains("1 passed"), "{text}");
    text
}

fn wait(mut child: Child) -> std::process::Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > 2 * LIMIT {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("the child never ended:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

#[test]
fn memory_crosses_processes() {
    let name = "memory_crosses_processes";
    let Some(mut t) = turn(name) else { return };
    let grain = Allocation::granularity(&t.cuda).unwrap();
    if let Some(role) = role() {
        let (fd, seed) = role.split_once(' ').unwrap();
        // SAFETY: the parent left this descriptor open for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.parse().unwrap()) };
        let imported = Arc::new(Allocation::import(&t.cuda, fd, grain).unwrap());
        let range = AddressRange::reserve(&t.cuda, grain, 0).unwrap();
        let mapping = range.map(0, &imported, &[&t.cuda]).unwrap();
        let mut random = Random::seeded(seed.parse().unwrap());
        assert!(t.read(mapping.base(), grain) == random.bytes(grain), "what the parent wrote");
        t.write(mapping.base(), &random.bytes(grain));
        return;
    }
    let mapping = t.memory(grain);
    let seed = t.random.next();
    let mut random = Random::seeded(seed);
    t.write(mapping.base(), &random.bytes(grain));
    let fd = mapping.allocation().export().unwrap();
    // SAFETY: a descriptor that children inherit; owned at once.
    let inherited = unsafe { OwnedFd::from_raw_fd(libc::dup(fd.as_raw_fd())) };
    child(name, &format!("{} {seed}", inherited.as_raw_fd()));
    // The child is gone; what it wrote is here.
    assert!(t.read(mapping.base(), grain) == random.bytes(grain), "what the child wrote");
}

#[test]
fn a_lost_context_is_an_error_and_no_crash() {
    let name = "a_lost_context_is_an_error_and_no_crash";
    let Some(role) = role() else {
        if turn(name).is_some() {
            for failure in ["bad pe", "broken", "bad address"] {
                eprintln!("{}", child(name, failure));
            }
        }
        return;
    };
    let t = turn(name).unwrap();
    let pes = Pes::new(&t, 1);
    let Some(started) = start(name, &t, &pes) else { return };
    let (module, stream) = &started[0];
    let at = if role == "bad address" { 64 } else { pes.free(0) as u64 };
    let (kernel, expected) = match role.as_str() {
        "bad pe" => ("nowhere", RUSHMEM_DEVICE_FAIL_BAD_PE),
        "broken" => ("lost", RUSHMEM_DEVICE_FAIL_BROKEN),
        _ => ("who", 0),
    };
    // SAFETY: the argument's type is the parameter's; that it goes wrong is what is tested.
    unsafe { module.kernel(kernel).unwrap().launch(&shape(1, 1), &[arg(&at)], stream) }.unwrap();
    if role == "broken" {
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stream.query().unwrap());
        pes.broken.store(1, Ordering::Release);
    }
    let e = stream.synchronize(&healthy(), Some(LIMIT), &|| "for a failure".into()).unwrap_err();
    eprintln!("{e}");
    assert_eq!(e.code, code::LAUNCH, "{e}");
    assert!(e.message.contains("the device's context is lost"), "{e}");
    // The reason is in host memory, which outlives the context.
    assert_eq!(pes.failure[0].load(Ordering::Acquire), expected);
    // Everything else fails with the same, and nothing panics or hangs.
    eprintln!("{}", t.cuda.check().unwrap_err());
    assert!(t.stream.query().is_err() && t.cuda.synchronize().is_err());
    // SAFETY: the addresses are valid.
    assert!(unsafe { t.stream.copy(pes.free(0), pes.free(0) + 64, 8) }.is_err());
    assert!(crate::gpu::pinned::PinnedBox::new(&t.cuda, 0u32).is_err());
    match Allocation::create(&t.cuda, Allocation::granularity(&t.cuda).unwrap_or(2 << 20)) {
        Ok(_) => eprintln!("memory can still be had"),
        Err(e) => eprintln!("{e}"),
    }
}
