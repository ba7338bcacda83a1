//! A logger that keeps the process's warnings, for test binaries of which each has one test that looks at
//! them.

use std::sync::Mutex;

struct Keep(Mutex<Vec<String>>);

static KEPT: Keep = Keep(Mutex::new(Vec::new()));

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            self.0.lock().expect("no panic in here").push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

/// Keeps warnings from now on. Once a process.
pub(crate) fn keep() {
    log::set_logger(&KEPT).expect("the only logger");
    log::set_max_level(log::LevelFilter::Warn);
}

/// What was warned of since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *KEPT.0.lock().expect("no panic in here"))
}
