//! The reference: `ucx_perftest`, UCX's own benchmark, as a server and a client on this machine.
//!
//! Its last line is `Final:` and eight numbers: iterations; the 50th percentile, the mean since the report
//! before and the mean over all of the microseconds that an operation took; the same two means of MB (2^20
//! bytes) in a second; and of messages in a second. UCX 1.13 and 1.16 write it alike.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Figure;
use crate::job::{Failure, Result};

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two tries to reach the server, and between two looks at a child.
const PAUSE: Duration = Duration::from_millis(5);

/// The program, and the library that it is to use.
pub(super) struct Perftest {
    program: PathBuf,
    /// The folder of the UCX that rushmem uses, which the dynamic loader is to look into first.
    library: Option<PathBuf>,
}

impl Perftest {
    /// The one in PATH, if there is one.
    pub(super) fn find() -> Option<Perftest> {
        let path = std::env::var_os("PATH")?;
        let program =
            std::env::split_paths(&path).map(|folder| folder.join("ucx_perftest")).find(|p| p.is_file())?;
        Some(Perftest { program, library: None })
    }

    /// From now on with this `libucp.so.0`.
    pub(super) fn with_library(&mut self, library: &Path) {
        self.library = library.parent().map(Path::to_owned);
    }

    /// One run of the test that goes with `figure`, with so many operations on their way at once.
    pub(super) fn run(
        &self,
        figure: Figure,
        window: Option<u32>,
        environment: &[(&str, &str)],
    ) -> Result<f64> {
        let arguments = figure.perftest(window);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut server = Ending(self.command(environment).args(["-p", &port]).spawn()?);
        let begin = Instant::now();
        loop {
            let mut client = self.command(environment);
            client.args(["127.0.0.1", "-p", &port]).args(&arguments);
            let (ok, text) = finish(client.spawn()?, begin)?;
            if let Some(value) = ok.then(|| final_line(&text)).flatten() {
                finish_quietly(&mut server.0, begin);
                return Ok(figure.of_perftest(value));
            }
            if server.0.try_wait()?.is_some() || begin.elapsed() > LIMIT {
                return Err(Failure::new(format!("ucx_perftest {}: {text}", arguments.join(" "))));
            }
            std::thread::sleep(PAUSE); // the server does not listen yet
        }
    }

    fn command(&self, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(environment.iter().copied());
        if let Some(folder) = &self.library {
            let mut path = vec![folder.clone()];
            path.extend(std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
            if let Ok(path) = std::env::join_paths(path) {
                command.env("LD_LIBRARY_PATH", path);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A child that does not outlive this.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails when it has ended
        let _ = self.0.wait();
    }
}

/// Waits for the end of `child`, which writes less than a pipe holds; whether it ended well, and what it
/// wrote.
fn finish(child: Child, begin: Instant) -> Result<(bool, String)> {
    let mut child = Ending(child);
    let ok = loop {
        if let Some(status) = child.0.try_wait()? {
            break status.success();
        }
        if begin.elapsed() > LIMIT {
            break false;
        }
        std::thread::sleep(PAUSE);
    };
    let _ = child.0.kill();
    let mut text = String::new();
    if let Some(mut stdout) = child.0.stdout.take() {
        stdout.read_to_string(&mut text)?;
    }
    if let Some(mut stderr) = child.0.stderr.take() {
        stderr.read_to_string(&mut text)?;
    }
    Ok((ok, text))
}

/// Gives a server whose client has all it wanted a moment to leave by itself.
fn finish_quietly(server: &mut Child, begin: Instant) {
    let until = begin.elapsed() + Duration::from_secs(1);
    while matches!(server.try_wait(), Ok(None)) && begin.elapsed() < until {
        std::thread::sleep(PAUSE);
    }
}

/// What a run found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Final {
    /// Microseconds of the median operation.
    pub(super) median_us: f64,
    /// 2^20 bytes in a second, over all.
    pub(super) mib_s: f64,
    /// Messages in a second, over all.
    pub(super) messages_s: f64,
}

fn final_line(text: &str) -> Option<Final> {
    let line = text.lines().rev().find_map(|line| line.trim_start().strip_prefix("Final:"))?;
    let numbers: Vec<f64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [_, median_us, _, _, _, mib_s, _, messages_s] => Some(Final { median_us, mib_s, messages_s }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_line_is_read() {
        let text = "\
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]               536      0.059  1869.344  1869.344      534.95     534.95         535         535
Final:                  1000      0.060  4614.470  3143.082      216.71     318.16         217         318
";
        let want = Final { median_us: 0.060, mib_s: 318.16, messages_s: 318.0 };
        assert_eq!(final_line(text), Some(want));
        for bad in
            ["", "Final:", "Final: 1 2 3 4 5 6 7", "Final: 1 2 3 4 5 6 7 x", "Final: 1 2 3 4 5 6 7 8 9"]
        {
            assert_eq!(final_line(bad), None, "{bad:?}");
        }
    }
}
