//! Where the PEs of a start-up measure wait for each other: before there is a world, while none may start,
//! and after it is gone. It must not depend on what is measured, so it is a star of Unix sockets around PE
//! 0. A PE that ends closes its socket, which ends the others; one that hangs is rushmem-run's to end.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::job::{Failure, Result};

/// How long PE 0 may take to come; the others have nothing to wait for before that.
const COMING: Duration = Duration::from_secs(60);

/// One PE's place in it.
pub(super) enum Meeting {
    /// PE 0, with the sockets of the others in their order.
    Host(Vec<UnixStream>),
    /// Any other, with its socket to PE 0.
    Guest(UnixStream),
}

impl Meeting {
    /// Meets at a path that does not exist yet. Returns once this PE is connected, not once all are.
    pub(super) fn join(at: &Path, pe: u32, n: u32) -> Result<Meeting> {
        if pe == 0 {
            return Meeting::host(at, n);
        }
        let begin = Instant::now();
        loop {
            match UnixStream::connect(at) {
                Ok(mut stream) => {
                    stream.write_all(&pe.to_ne_bytes())?;
                    return Ok(Meeting::Guest(stream));
                }
                // PE 0 is not here yet, or between the two steps of being here.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    if begin.elapsed() > COMING {
                        return Err(Failure::new(format!("PE {pe}: PE 0 did not come within {COMING:?}")));
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(e) => return Err(Failure::new(format!("PE {pe} cannot reach PE 0: {e}"))),
            }
        }
    }

    fn host(at: &Path, n: u32) -> Result<Meeting> {
        let listener = UnixListener::bind(at)
            .map_err(|e| Failure::new(format!("PE 0 cannot listen: {e} (TMPDIR too long?)")))?;
        let mut guests = Vec::new();
        for _ in 1..n {
            let mut stream = listener.accept()?.0;
            let mut pe = [0; 4];
            stream.read_exact(&mut pe)?;
            guests.push((u32::from_ne_bytes(pe), stream));
        }
        guests.sort_by_key(|(pe, _)| *pe);
        Ok(Meeting::Host(guests.into_iter().map(|(_, stream)| stream).collect()))
    }

    /// Returns once every PE has called it.
    pub(super) fn meet(&mut self) -> Result<()> {
        self.gather(0).map(drop)
    }

    /// The same, and PE 0 gets everybody's word, in the order of PEs; the others get nothing.
    pub(super) fn gather(&mut self, word: u64) -> Result<Vec<u64>> {
        let ended =
            |e: std::io::Error| Failure::new(format!("a PE ended while the others waited for it ({e})"));
        let mut words = Vec::new();
        match self {
            Meeting::Host(guests) => {
                words.push(word);
                for guest in guests.iter_mut() {
                    let mut bytes = [0; 8];
                    guest.read_exact(&mut bytes).map_err(ended)?;
                    words.push(u64::from_ne_bytes(bytes));
                }
                for guest in guests.iter_mut() {
                    guest.write_all(&[1]).map_err(ended)?;
                }
            }
            Meeting::Guest(host) => {
                host.write_all(&word.to_ne_bytes()).map_err(ended)?;
                host.read_exact(&mut [0]).map_err(ended)?;
            }
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const N: u32 = 5;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (at, came) = (folder.path().join("meet"), AtomicU32::new(0));
        std::thread::scope(|scope| {
            // The highest first: PE 0 may come last.
            for pe in (0..N).rev() {
                let (at, came) = (&at, &came);
                scope.spawn(move || {
                    let mut meeting = Meeting::join(at, pe, N).expect("all come");
                    for round in 1..=20 {
                        came.fetch_add(1, Ordering::SeqCst);
                        meeting.meet().expect("all are here");
                        assert!(came.load(Ordering::SeqCst) >= round * N);
                    }
                    let words = meeting.gather(u64::from(pe) * 10).expect("all are here");
                    let expected: &[u64] = if pe == 0 { &[0, 10, 20, 30, 40] } else { &[] };
                    assert_eq!(words, expected);
                });
            }
        });
    }

    #[test]
    fn a_wait_for_a_process_that_has_ended_fails() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = &folder.path().join("meet");
        std::thread::scope(|scope| {
            for pe in 0..3 {
                scope.spawn(move || {
                    let mut meeting = Meeting::join(at, pe, 3).expect("all come");
                    if pe != 2 {
                        let failure = meeting.meet().expect_err("PE 2 has ended");
                        assert!(failure.to_string().contains("ended"), "{failure}");
                    }
                });
            }
        });
    }
}
