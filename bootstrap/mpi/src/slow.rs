//! Why MPI's start takes long: because a rank never came, or because MPI itself is slow. MPI asks for this
//! host's own name when it starts, often more than once; where nothing knows the name (no `/etc/hosts`, a
//! resolver that cannot be reached) each time takes as long as the resolver waits. So this asks for the name,
//! too, and measures.

use std::net::ToSocketAddrs;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// An answer that takes longer is worth telling.
const SLOW: Duration = Duration::from_secs(1);

type Answer = std::io::Result<usize>;

/// What is wrong with this host's own name, if anything is; waits for an answer for `limit` at most.
pub(crate) fn name_trouble(limit: Duration) -> Option<String> {
    let name = own_name();
    let asked = name.clone();
    trouble(&name, limit, move || (asked.as_str(), 0).to_socket_addrs().map(|all| all.count()))
}

fn own_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer with its length; the name is cut rather than written past it.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

fn trouble(name: &str, limit: Duration, ask: impl FnOnce() -> Answer + Send + 'static) -> Option<String> {
    let (tx, rx) = channel();
    let begin = Instant::now();
    // The resolver knows no limit: the thread ends when it answers.
    std::thread::Builder::new().name("rushmem-resolve".into()).spawn(move || tx.send(ask())).ok()?;
    let answer = rx.recv_timeout(limit);
    let took = begin.elapsed();
    let seconds = took.as_secs_f64();
    let what = match answer {
        Ok(Ok(n)) if n > 0 && took < SLOW => return None,
        Ok(Ok(n)) if n > 0 => format!("took {seconds:.1} s to resolve"),
        Ok(Ok(_)) => "does not resolve (no address)".to_owned(),
        Ok(Err(e)) => format!("does not resolve ({e}; that took {seconds:.1} s)"),
        Err(_) => format!("does not resolve (no answer within {seconds:.1} s)"),
    };
    Some(format!("this host's own name, {name:?}, {what}"))
}

/// Why `MPI_Init_thread` has not returned within `limit`.
pub(crate) fn verdict(limit: Duration, trouble: Option<&str>) -> String {
    let begin = format!("MPI_Init_thread did not return within {:.1} s: ", limit.as_secs_f64());
    let never = "some process of this job never called it (MPI cannot say which), or mpirun of another MPI \
                 started it";
    match trouble {
        None => format!("{begin}{never}"),
        Some(trouble) => format!(
            "{begin}{trouble}, and MPI asks for it when it starts, so MPI itself may be slow here: add the \
             name to /etc/hosts, or raise RUSHMEM_INIT_TIMEOUT. If that changes nothing, {never}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_resolves_is_no_trouble_and_any_other_is() {
        let limit = Duration::from_millis(1500);
        let fails = || Err(std::io::Error::other("nobody knows"));
        let slow = || {
            std::thread::sleep(Duration::from_millis(1100));
            Ok(1)
        };
        let never = || {
            std::thread::sleep(Duration::from_secs(30));
            Ok(1)
        };
        assert_eq!(trouble("h", limit, || Ok(2)), None);
        for (found, part) in [
            (trouble("h", limit, fails), "nobody knows"),
            (trouble("h", limit, || Ok(0)), "no address"),
            (trouble("h", limit, slow), "to resolve"),
            (trouble("h", limit, never), "no answer"),
        ] {
            let text = found.expect(part);
            assert!(text.contains("\"h\"") && text.contains(part), "{text}");
        }
        assert!(!own_name().is_empty());
    }

    #[test]
    fn the_verdict_blames_a_rank_only_where_nothing_else_is_known() {
        let limit = Duration::from_secs(60);
        assert!(!verdict(limit, None).contains("/etc/hosts"));
        let text = verdict(limit, Some("this host's own name does not resolve"));
        assert!(text.contains("60.0 s: this host's own name") && text.contains("/etc/hosts"), "{text}");
    }
}
