//! What a measuring program prints: a line for each of its figures, with the operation's name, its bytes, and
//! the nanoseconds of one call in each batch.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::job::{Failure, Result};

/// Samples in nanoseconds, by the operation's name and its bytes.
pub(crate) type Samples = BTreeMap<(String, u64), Vec<f64>>;

/// The last line of a program that has measured everything: its figures stand, however it ends after that.
const LAST: &str = "end 0";

/// Runs a program to its end, and gives what it printed.
pub(crate) fn text_of(command: &mut Command, who: &str) -> Result<String> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| Failure::new(format!("cannot start {who}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && text.lines().all(|line| line != LAST) {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::new(format!("{who} ended with {}: {said}", output.status)));
    }
    Ok(text)
}

/// Takes the lines that one of the programs has printed.
pub(crate) fn take(samples: &mut Samples, text: &str) -> Result<()> {
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(bytes)) = (words.next(), words.next()) else { continue };
        let Ok(bytes) = bytes.parse() else { continue };
        let mut times = words.map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
        if times.is_empty() {
            continue;
        }
        samples.entry((name.to_owned(), bytes)).or_default().append(&mut times);
    }
    Ok(())
}
