//! What the launcher and its part on another host say to each other, over the standard streams of the command
//! that started it.
//!
//! Frames: a length (4 bytes, little-endian), a kind, and that many bytes: an order or a report as JSON, or
//! output or input as it is. The remote part begins with a [`greeting`], because a host's shell may print
//! things before it. Nothing is on a command line: the job's unique ID, which holds its secret, and the
//! environment are in the first order.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::Sink;

const JSON: u8 = 0;
const OUT: u8 = 1;
const ERR: u8 = 2;
const INPUT: u8 = 3;
/// Far more than a frame of ours has.
const LONGEST: usize = 64 << 20;
/// What a host's shell may print before the greeting.
const MOST_NOISE: usize = 64 << 10;
/// What PE 0 may have of the launcher's input before it has read any.
pub(crate) const WINDOW: usize = 256 << 10;

/// What a host is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The host, as the launcher calls it.
    pub(crate) host: String,
    /// PEs of the job, and those of this host.
    pub(crate) n: u32,
    pub(crate) pes: Vec<u32>,
    pub(crate) uid: String,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
    pub(crate) program: Vec<OsString>,
}

/// The launcher to a host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Start(Plan),
    /// A signal for the PEs.
    Signal(i32),
    /// Nobody reads that stream any more.
    Close(Sink),
    /// The PEs are to end.
    End,
}

/// A host to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Ended {
        pe: u32,
        pid: i32,
        failure: Option<(u8, String)>,
    },
    /// PE 0 has read so many bytes.
    Took(usize),
    /// The job cannot run there: the launcher's exit code, and why.
    Failure(u8, String),
    /// No PE is left there, nor anything that one started.
    Done,
}

/// A frame that has arrived.
pub(crate) enum Frame<T> {
    Said(T),
    /// Of a PE.
    Output(u32, Sink, Vec<u8>),
    /// For PE 0; empty: its end.
    Input(Vec<u8>),
}

fn frame(kind: u8, head: &[u8], bytes: &[u8]) -> Vec<u8> {
    let length = (head.len() + bytes.len()) as u32;
    let mut all = Vec::with_capacity(5 + length as usize);
    all.extend_from_slice(&length.to_le_bytes());
    all.push(kind);
    all.extend_from_slice(head);
    all.extend_from_slice(bytes);
    all
}

/// An order or a report.
pub(crate) fn said(what: &impl Serialize) -> Vec<u8> {
    frame(JSON, &[], &serde_json::to_vec(what).expect("plain data can be written as JSON"))
}

/// What a PE has written.
pub(crate) fn output(pe: u32, sink: Sink, bytes: &[u8]) -> Vec<u8> {
    frame(if sink == Sink::Out { OUT } else { ERR }, &pe.to_le_bytes(), bytes)
}

/// What PE 0 is to read; empty: no more.
pub(crate) fn input(bytes: &[u8]) -> Vec<u8> {
    frame(INPUT, &[], bytes)
}

/// The next frame; `None` at the end.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<Frame<T>>> {
    let bad = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let mut head = [0; 5];
    match from.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut head[1..])?,
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > LONGEST {
        return Err(bad(format!("a frame of {length} bytes")));
    }
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(match head[4] {
        JSON => Frame::Said(serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?),
        INPUT => Frame::Input(bytes),
        kind @ (OUT | ERR) if length >= 4 => {
            let pe = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let sink = if kind == OUT { Sink::Out } else { Sink::Err };
            Frame::Output(pe, sink, bytes.split_off(4))
        }
        kind => return Err(bad(format!("a frame of kind {kind}"))),
    }))
}

/// What the remote part begins with.
pub(crate) fn greeting() -> String {
    format!("\n\0rushmem-run {}\0\n", env!("CARGO_PKG_VERSION"))
}

/// Reads up to the greeting. What came before it goes to `noise`.
pub(crate) fn expect_greeting(from: &mut impl Read, noise: &mut impl Write) -> io::Result<()> {
    let want = greeting().into_bytes();
    let start = b"\n\0rushmem-run ";
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(&want) {
        if from.read(&mut byte)? == 0 || seen.len() > MOST_NOISE {
            noise.write_all(&seen)?;
            return Err(ErrorKind::UnexpectedEof.into());
        }
        seen.push(byte[0]);
        let other = seen.windows(start.len()).position(|part| part == start);
        if let Some(at) = other.filter(|at| seen.ends_with(b"\0\n") && seen.len() > at + start.len() + 2) {
            if !seen.ends_with(&want) {
                let version = String::from_utf8_lossy(&seen[at + start.len()..seen.len() - 2]).into_owned();
                let why = format!(
                    "rushmem-run has version {version} there and {} here: install the same on all hosts",
                    env!("CARGO_PKG_VERSION")
                );
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
    }
    noise.write_all(&seen[..seen.len() - want.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut bytes = said(&Report::Took(7));
        bytes.extend(output(3, Sink::Err, b"a\0b\n"));
        bytes.extend(output(4, Sink::Out, b""));
        bytes.extend(input(b"in"));
        let mut from = &bytes[..];
        let mut next = || read::<Report>(&mut from).expect("whole frames");
        assert!(matches!(next(), Some(Frame::Said(Report::Took(7)))));
        assert!(matches!(next(), Some(Frame::Output(3, Sink::Err, data)) if data == b"a\0b\n"));
        assert!(matches!(next(), Some(Frame::Output(4, Sink::Out, data)) if data.is_empty()));
        assert!(matches!(next(), Some(Frame::Input(data)) if data == b"in"));
        assert!(next().is_none());
        // Cut anywhere, it is an error, and never more than what came.
        let whole = output(3, Sink::Err, b"text");
        for at in 1..whole.len() {
            assert!(read::<Report>(&mut &whole[..at]).is_err(), "cut at {at}");
        }
        assert!(read::<Report>(&mut &[255, 255, 255, 255, 0][..]).is_err());
        assert!(read::<Report>(&mut &[1, 0, 0, 0, 9, 0][..]).is_err());
    }

    #[test]
    fn a_shell_may_say_what_it_likes_before_the_greeting() {
        for before in ["", "Welcome to b!\n", "\n\0rushmem", "\0\n\n\0"] {
            let text = format!("{before}{}rest", greeting());
            let (mut from, mut noise) = (text.as_bytes(), Vec::new());
            expect_greeting(&mut from, &mut noise).expect("it is there");
            assert_eq!((from, noise.as_slice()), (&b"rest"[..], before.as_bytes()), "{before:?}");
        }
        let other = "hello\n\0rushmem-run 0.0.1\0\nrest";
        let e = expect_greeting(&mut other.as_bytes(), &mut Vec::new()).unwrap_err();
        assert!(e.to_string().contains("0.0.1"), "{e}");
        assert!(expect_greeting(&mut &b"sh: rushmem-run: not found\n"[..], &mut Vec::new()).is_err());
    }
}
