//! Tagged output: what PEs write, in whole lines with `[pe] ` before each, stdout and stderr kept apart.
//!
//! One thread reads all pipes and alone writes, a line at a time, so lines never mix. A line that its PE leaves
//! unfinished is written, with a line feed, when the pipe ends. A reader that is slow slows the PEs; one that is
//! gone (`| head`) ends their pipes, as it would without tags.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};

use crate::say;

/// A line longer than this is written in pieces, each tagged.
const LONGEST_LINE: usize = 1 << 20;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// How long, in milliseconds, nothing may come once every process is gone: then somebody foreign holds a pipe.
const PATIENCE_MS: u16 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    Out,
    Err,
}

impl Sink {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        let put = |to: &mut dyn Write| to.write_all(bytes).and_then(|()| to.flush());
        match self {
            Sink::Out => put(&mut io::stdout().lock()),
            Sink::Err => put(&mut io::stderr().lock()),
        }
    }
}

/// Cuts a PE's bytes into tagged lines.
struct Lines {
    tag: String,
    /// An unfinished line, without its tag.
    rest: Vec<u8>,
}

impl Lines {
    fn new(pe: usize) -> Lines {
        Lines { tag: format!("[{pe}] "), rest: Vec::new() }
    }

    /// Adds `bytes`; what can be written now.
    fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut ready = Vec::new();
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                ready.extend_from_slice(self.tag.as_bytes());
                ready.append(&mut self.rest);
            } else if self.rest.len() >= LONGEST_LINE {
                ready.append(&mut self.end());
            }
        }
        ready
    }

    /// The unfinished line, finished.
    fn end(&mut self) -> Vec<u8> {
        if self.rest.is_empty() {
            return Vec::new();
        }
        let mut ready = self.tag.clone().into_bytes();
        ready.append(&mut self.rest);
        ready.push(b'\n');
        ready
    }
}

struct Stream {
    pipe: File,
    sink: Sink,
    lines: Lines,
}

/// The thread that writes.
pub(crate) struct Output {
    everybody_gone: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Output {
    /// Takes over the pipes of `pes`, in the order of their numbers.
    pub(crate) fn start(pes: &mut [Child]) -> io::Result<Output> {
        let mut streams = Vec::new();
        for (pe, child) in pes.iter_mut().enumerate() {
            let ends = [
                (child.stdout.take().map(OwnedFd::from), Sink::Out),
                (child.stderr.take().map(OwnedFd::from), Sink::Err),
            ];
            for (pipe, sink) in ends {
                streams.extend(pipe.map(|fd| Stream { pipe: fd.into(), sink, lines: Lines::new(pe) }));
            }
        }
        let everybody_gone = Arc::new(AtomicBool::new(false));
        let gone = everybody_gone.clone();
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || copy(streams, &gone))?;
        Ok(Output { everybody_gone, thread })
    }

    /// Waits until all that was written is through; call it when no process is left to write more.
    pub(crate) fn finish(self) {
        self.everybody_gone.store(true, Ordering::Release);
        // It has said what was wrong if it panicked.
        let _ = self.thread.join();
    }
}

fn copy(mut streams: Vec<Stream>, everybody_gone: &AtomicBool) {
    let mut buffer = vec![0; READ_BYTES];
    while !streams.is_empty() {
        let gone = everybody_gone.load(Ordering::Acquire);
        let mut polled: Vec<PollFd<'_>> =
            streams.iter().map(|s| PollFd::new(s.pipe.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PATIENCE_MS) {
            Ok(0) if gone => break,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return say(&format!("cannot wait for output: {e}")),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.any().unwrap_or(false)).collect();
        let mut ready = ready.into_iter();
        let mut closed = None;
        streams.retain_mut(|stream| {
            if ready.next() != Some(true) {
                return true;
            }
            let (text, goes_on) = match stream.pipe.read(&mut buffer) {
                Ok(n) if n > 0 => (stream.lines.add(&buffer[..n]), true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
                _ => (stream.lines.end(), false),
            };
            if let Err(e) = stream.sink.write(&text) {
                if e.kind() != io::ErrorKind::BrokenPipe {
                    say(&format!("cannot pass on output: {e}"));
                }
                closed = Some(stream.sink);
            }
            goes_on
        });
        streams.retain(|stream| Some(stream.sink) != closed);
    }
    for stream in &mut streams {
        // There is nobody to tell if this fails.
        let _ = stream.sink.write(&stream.lines.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_wherever_the_pipe_cuts_them() {
        let text = b"one\n\ntwo three\nfour\xff";
        for at in 0..=text.len() {
            let mut lines = Lines::new(7);
            let mut got = lines.add(&text[..at]);
            got.extend(lines.add(&text[at..]));
            got.extend(lines.end());
            assert_eq!(got, b"[7] one\n[7] \n[7] two three\n[7] four\xff\n", "cut at {at}");
        }
    }

    #[test]
    fn an_endless_line_does_not_fill_memory() {
        let mut lines = Lines::new(0);
        let piece = vec![b'x'; READ_BYTES];
        let written: usize = (0..40).map(|_| lines.add(&piece).len()).sum();
        assert!(written > 2 * LONGEST_LINE && lines.rest.len() < LONGEST_LINE);
    }
}
