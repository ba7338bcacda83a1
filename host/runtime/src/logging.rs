//! The runtime's log, on standard error: `RUSHMEM_LOG=error|warn|info|debug`, warnings by default.
//!
//! * error: the job is broken;
//! * warn: something a user should look at (a stall, a stranger's connection);
//! * info: what was chosen and why, one line each;
//! * debug: what helps to find a fault: settings, thresholds, growth, connections, first uses, long waits.

use std::io::Write;
use std::sync::Once;

use log::LevelFilter;

const VARIABLE: &str = "RUSHMEM_LOG";

/// Starts the log once in a process. A logger that the program installed in this library's `log` is left
/// alone.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut builder = env_logger::Builder::new();
        builder.filter_level(LevelFilter::Warn);
        let filter = std::env::var(VARIABLE).unwrap_or_default();
        if nonsense(&filter).is_none() {
            builder.parse_filters(&filter);
        }
        let format = builder.format(|out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            writeln!(out, "rushmem [{level}] {}", record.args())
        });
        let _ = format.try_init();
    });
}

/// What to say of `RUSHMEM_LOG` where it asks for no level; warnings are shown then.
pub(crate) fn trouble() -> Option<String> {
    let filter = std::env::var_os(VARIABLE)?.to_string_lossy().into_owned();
    let word = nonsense(&filter)?;
    Some(format!(
        "{VARIABLE}={filter}: {word:?} is no level: error, warn, info and debug are; errors and warnings are shown"
    ))
}

/// The part of a filter (`info`, or `module=level,...`) that names no level. The logger itself would take a
/// misspelt level for the name of a module, in silence.
fn nonsense(filter: &str) -> Option<&str> {
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let level = |part| str::split_once(part, '=').map_or(part, |(_, level)| level.trim());
    parts.map(level).find(|level| level.parse::<LevelFilter>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_found() {
        for fine in ["", " ", "info", "Debug", "off", "trace", "rushmem_host::net=debug", "warn,a=info"] {
            assert_eq!(nonsense(fine), None, "{fine}");
        }
        for (wrong, word) in [("verbose", "verbose"), ("2", "2"), ("info,a=loud", "loud"), ("a=", "")] {
            assert_eq!(nonsense(wrong), Some(word), "{wrong}");
        }
    }
}
