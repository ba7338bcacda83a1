//! The runtime's log, on standard error: `RUSHMEM_LOG=error|warn|info|debug`, warnings by default.
//!
//! * error: the job is broken;
//! * warn: something a user should look at (a stall, a stranger's connection);
//! * info: what was chosen and why, one line each;
//! * debug: what helps to find a fault: settings, thresholds, growth, connections, first uses, long waits.

use std::io::Write;
use std::sync::Once;

/// Starts the log once in a process. A logger that the program installed in this library's `log` is left
/// alone.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut builder = env_logger::Builder::new();
        builder.filter_level(log::LevelFilter::Warn);
        if let Ok(filter) = std::env::var("RUSHMEM_LOG") {
            builder.parse_filters(&filter);
        }
        let format = builder.format(|out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            writeln!(out, "rushmem [{level}] {}", record.args())
        });
        let _ = format.try_init();
    });
}
