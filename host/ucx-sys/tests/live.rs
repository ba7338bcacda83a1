//! The bindings against a real UCX: two workers in one process talk over shared memory and over tcp.
//!
//! One test, because a process has one UCX. Without any the test skips aloud; one that `RUSHMEM_UCX_LIB`
//! names must load.

mod pair;

use std::sync::mpsc;
use std::time::Duration;
use ucx_sys::Ucp;

#[test]
fn two_workers_exchange_everything() {
    let ucp = match Ucp::load() {
        Ok(ucp) => ucp,
        Err(error) if std::env::var_os("RUSHMEM_UCX_LIB").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIP two_workers_exchange_everything: {error}");
            return;
        }
    };
    assert!(std::ptr::eq(ucp, Ucp::load().expect("what loaded once")), "looked up once");
    println!("UCX {} in {}", ucp.version(), ucp.path().display());
    assert!(ucp.version() >= ucx_sys::OLDEST);
    assert!(ucp.path().is_absolute() && ucp.path().is_file());
    assert_eq!(ucp.status_text(ucx_sys::UCS_ERR_NO_MEMORY), "Out of memory");

    // A second UCX beside this one is refused.
    let other = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(other.path().join("libucp.so.0"), "").expect("a file");
    let search = ucx_sys::Search { explicit: Some(other.path().into()), ..Default::default() };
    let refusal = Ucp::load_from(&search).err().expect("a refusal").to_string();
    assert!(refusal.contains("loaded already") && refusal.contains("Open MPI"), "{refusal}");

    for tls in ["self,tcp", "self,sm"] {
        // UCX's own calls may hang where a binding is wrong; the pair's waits have shorter limits.
        let (done, wait) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            pair::exercise(ucp, tls);
            done.send(()).expect("the test waits");
        });
        match wait.recv_timeout(Duration::from_secs(60)) {
            Ok(()) => thread.join().expect("it has ended"),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{tls}: still at it after 60 s"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}
