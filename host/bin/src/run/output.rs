//! What PEs write to their pipes: taken from there by one thread, and written by a [`Writer`]. A reader that
//! is slow slows the PEs; one that is gone (`| head`) ends their pipes, as it would without us.
//!
//! [`Tagged`] writes whole lines with `[pe] ` before each, stdout and stderr kept apart, so lines never mix.
//! A line that its PE leaves unfinished is written, with a line feed, when the pipe ends.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::say;

/// A line longer than this is written in pieces, each tagged.
const LONGEST_LINE: usize = 1 << 20;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// Once every process is gone, reading ends after so many milliseconds without output: a foreign process
/// holds a pipe open.
const PATIENCE_MS: u16 = 100;

/// One of a program's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Sink {
    Out,
    Err,
}

/// Takes what PEs write. An error ends that stream of all PEs.
pub(crate) trait Writer: Send + 'static {
    fn data(&mut self, pe: u32, sink: Sink, bytes: &[u8]) -> io::Result<()>;
    /// The PE has closed the stream.
    fn end(&mut self, pe: u32, sink: Sink) -> io::Result<()>;
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
    fn new(pe: u32) -> Lines {
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

/// To this process' own streams, line by line with tags, or as it comes.
pub(crate) struct Tagged {
    tags: bool,
    lines: HashMap<(u32, Sink), Lines>,
}

impl Tagged {
    pub(crate) fn new(tags: bool) -> Tagged {
        Tagged { tags, lines: HashMap::new() }
    }
}

impl Writer for Tagged {
    fn data(&mut self, pe: u32, sink: Sink, bytes: &[u8]) -> io::Result<()> {
        if !self.tags {
            return sink.write(bytes);
        }
        sink.write(&self.lines.entry((pe, sink)).or_insert_with(|| Lines::new(pe)).add(bytes))
    }

    fn end(&mut self, pe: u32, sink: Sink) -> io::Result<()> {
        let rest = self.lines.remove(&(pe, sink)).map(|mut lines| lines.end()).unwrap_or_default();
        sink.write(&rest)
    }
}

struct PePipe {
    pipe: File,
    pe: u32,
    sink: Sink,
}

/// The thread that writes.
pub(crate) struct Output {
    everybody_gone: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Output {
    /// Takes over the pipes of `pes`, whose `numbers` come in the same order.
    pub(crate) fn start(pes: &mut [Child], numbers: &[u32], writer: impl Writer) -> io::Result<Output> {
        let mut streams = Vec::new();
        for (child, &pe) in pes.iter_mut().zip(numbers) {
            let ends = [
                (child.stdout.take().map(OwnedFd::from), Sink::Out),
                (child.stderr.take().map(OwnedFd::from), Sink::Err),
            ];
            for (pipe, sink) in ends {
                streams.extend(pipe.map(|fd| PePipe { pipe: fd.into(), pe, sink }));
            }
        }
        let everybody_gone = Arc::new(AtomicBool::new(false));
        let gone = everybody_gone.clone();
        let thread =
            std::thread::Builder::new().name("output".into()).spawn(move || copy(streams, writer, &gone))?;
        Ok(Output { everybody_gone, thread })
    }

    /// Waits until all that was written is through; call it when no process is left to write more.
    pub(crate) fn finish(self) {
        self.everybody_gone.store(true, Ordering::Release);
        // It has said what was wrong if it panicked.
        let _ = self.thread.join();
    }
}

fn copy(mut streams: Vec<PePipe>, mut writer: impl Writer, everybody_gone: &AtomicBool) {
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
            let PePipe { pipe, pe, sink } = stream;
            let (written, goes_on) = match pipe.read(&mut buffer) {
                Ok(n) if n > 0 => (writer.data(*pe, *sink, &buffer[..n]), true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
                _ => (writer.end(*pe, *sink), false),
            };
            if let Err(e) = written {
                if e.kind() != io::ErrorKind::BrokenPipe {
                    say(&format!("cannot pass on output: {e}"));
                }
                closed = Some(*sink);
            }
            goes_on
        });
        streams.retain(|stream| Some(stream.sink) != closed);
    }
    for stream in &mut streams {
        // There is nobody to tell if this fails.
        let _ = writer.end(stream.pe, stream.sink);
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
