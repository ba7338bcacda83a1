//! Tells on a terminal how far a run is.

/// A bar; on anything but a terminal it stays hidden by itself.
pub(crate) struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Of so many steps.
    pub(crate) fn new(steps: usize) -> Progress {
        let bar = indicatif::ProgressBar::new(steps as u64);
        let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
        Progress(bar)
    }

    /// One step is done.
    pub(crate) fn step(&self, what: impl Into<String>) {
        self.0.inc(1);
        self.0.set_message(what.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
