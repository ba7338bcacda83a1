//! Tells on a terminal how far a run is.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use crate::job::Result;

/// How often what a job has written is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A bar; on anything but a terminal it stays hidden by itself.
pub(crate) struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Of so many steps.
    pub(crate) fn new(steps: usize) -> Progress {
        let bar = indicatif::ProgressBar::new(steps as u64);
        let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
        // Time goes on within a long step, too.
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress(bar)
    }

    /// One step is done.
    pub(crate) fn step(&self, what: impl Into<String>) {
        self.0.inc(1);
        self.0.set_message(what.into());
    }

    /// Waits for the end of a job whose PE 0 writes a line to `file` after each step; `what` that is called.
    pub(crate) fn follow(
        &self,
        job: &mut Child,
        file: &Path,
        what: impl Fn(&str) -> String,
    ) -> Result<ExitStatus> {
        let mut read = 0;
        loop {
            let ended = job.try_wait()?;
            for line in new_lines(file, &mut read)? {
                self.step(what(&line));
            }
            if let Some(status) = ended {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The lines of `file` from byte `*read` on that are whole; none where there is no file yet.
pub(crate) fn new_lines(file: &Path, read: &mut u64) -> Result<Vec<String>> {
    let Ok(mut file) = std::fs::File::open(file) else { return Ok(Vec::new()) };
    file.seek(SeekFrom::Start(*read))?;
    let (mut lines, mut reader) = (Vec::new(), BufReader::new(file.take(u64::MAX)));
    loop {
        let mut line = String::new();
        let n = reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Ok(lines);
        }
        *read += n as u64;
        line.pop();
        lines.push(line);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::Command;

    use super::*;

    #[test]
    fn each_line_of_a_job_is_a_step() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steps");
        let script = "printf one >$0; sleep 0.2; printf '\\ntwo\\nthr' >>$0; sleep 0.2; printf 'ee\\nrest' >>$0; exit 3";
        let mut job = Command::new("sh").args(["-c", script]).arg(&file).spawn().unwrap();
        let progress = Progress::new(5);
        let seen = RefCell::new(Vec::new());
        let status = progress.follow(&mut job, &file, |line| {
            seen.borrow_mut().push(line.to_owned());
            line.to_uppercase()
        });
        assert_eq!(status.unwrap().code(), Some(3));
        assert_eq!(*seen.borrow(), ["one", "two", "three"]);
        assert_eq!((progress.0.position(), progress.0.message()), (3, "THREE".to_owned()));
    }
}
