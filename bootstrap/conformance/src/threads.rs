//! Ranks as threads of the test's process.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Bootstrap;

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "a panic".into())
}

/// Runs `body` on `n` threads, each with the bootstrap that `factory` makes for its rank (all at once, so
/// that it may be a collective start). The bootstrap is *not* finalised here.
///
/// # Errors
/// All that the ranks complain of, one line each; and after `limit`, which ranks are not done (their threads
/// are left behind).
pub fn on_threads(
    n: u32,
    factory: impl Fn(u32) -> Result<Arc<dyn Bootstrap>, String> + Send + Sync + 'static,
    limit: Duration,
    body: impl Fn(&dyn Bootstrap) -> Result<(), String> + Send + Sync + 'static,
) -> Result<(), String> {
    let work = Arc::new((factory, body));
    let (tx, rx) = mpsc::channel();
    let mut threads = Vec::new();
    for rank in 0..n {
        let (work, tx) = (work.clone(), tx.clone());
        let thread = std::thread::Builder::new().name(format!("rank-{rank}")).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| (work.1)(&*(work.0)(rank)?)));
            let result = result.unwrap_or_else(|p| Err(format!("panicked: {}", panic_text(&*p))));
            let _ = tx.send((rank, result)); // the receiver may have given up
        });
        threads.push(thread.map_err(|e| format!("no thread for rank {rank}: {e}"))?);
    }
    let deadline = Instant::now() + limit;
    let mut open: Vec<u32> = (0..n).collect();
    let mut complaints = Vec::new();
    while !open.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((rank, result)) = rx.recv_timeout(left) else {
            complaints.push(format!("ranks {open:?} are not done after {limit:?}"));
            return Err(complaints.join("\n"));
        };
        open.retain(|r| *r != rank);
        if let Err(e) = result {
            complaints.push(format!("rank {rank}: {e}"));
        }
    }
    for thread in threads {
        let _ = thread.join(); // panics were caught and reported
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints.join("\n"))
    }
}
