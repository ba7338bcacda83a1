//! The clock that never goes back, in nanoseconds: what `clock64()` reads in kernels, and what waits are
//! measured by.

pub(crate) extern "C" fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to; CLOCK_MONOTONIC always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_clock_runs() {
        let (start, before) = (Instant::now(), now_ns());
        std::thread::sleep(std::time::Duration::from_millis(2));
        let (after, limit) = (now_ns(), start.elapsed());
        assert!(after - before >= 2_000_000 && after - before <= limit.as_nanos() as u64);
    }
}
