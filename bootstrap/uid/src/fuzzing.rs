//! What parses bytes of others, for the fuzz targets (`fuzz/`) and for the test that replays their seeds.
//! Only in builds for those: `cfg(test)`, or the feature `fuzzing`. A parser may refuse whatever it is given;
//! it must not panic or run for ever.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::auth::{Key, Purpose, Token, JOB_BYTES};
use crate::conn::Conn;
use crate::handshake::{Acceptor, Initiator};
use crate::mesh::frame;
use crate::messages::{ToRank, ToRoot};
use crate::uid::{Uid, UID_BYTES};

/// Unique IDs, as bytes and as text.
pub fn unique_ids(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut sealed = bytes.to_vec();
    if sealed.len() == UID_BYTES {
        crate::uid::seal(&mut sealed);
    }
    for id in [Uid::from_bytes(bytes), Uid::from_bytes(&sealed), Uid::from_hex(&text)].into_iter().flatten() {
        assert_eq!(Uid::from_bytes(&id.to_bytes()).as_ref(), Ok(&id));
        assert_eq!(Uid::from_hex(&id.to_hex()).as_ref(), Ok(&id));
    }
}

/// What ranks, the rendezvous and strangers send. The first byte says to whom.
pub fn boot_frames(bytes: &[u8]) {
    let Some((to, bytes)) = bytes.split_first() else { return };
    match (to % 5, bytes.split_first()) {
        (0, Some((kind, body))) => drop(ToRank::decode(&(*kind, body.to_vec()))),
        (1, Some((kind, body))) => drop(ToRoot::decode(&(*kind, body.to_vec()))),
        (2, _) => mesh(bytes),
        (3, _) => stream(bytes, true),
        (4, _) => stream(bytes, false),
        _ => {}
    }
}

fn mesh(bytes: &[u8]) {
    let Some((header, payload)) = bytes.split_first_chunk() else { return };
    if let Ok((kind, length)) = frame::parse(header, 9) {
        // What is said again is the same, but for bytes that mean nothing.
        let again = frame::header(&kind, length);
        let again = again.first_chunk().expect("a header's size");
        assert_eq!(frame::parse(again, 9), Ok((kind, length)));
    }
    drop(frame::read_broken(payload));
    if let Ok(mismatch) = frame::Mismatch::decode(payload) {
        let _ = (mismatch.seq(), mismatch.error(None));
    }
}

/// Frames of a peer that has not proved anything, to a listener or to a rank that has dialled.
fn stream(bytes: &[u8], listens: bool) {
    let (mut stranger, ours) = pair();
    let mut conn = Conn::new(ours.into()).expect("a socket");
    let key = Key { job: [0; JOB_BYTES], token: Token([7; 32]) };
    let mut acceptor = Acceptor::new(Purpose::Rendezvous);
    let mut initiator = Initiator::new(Purpose::Rendezvous, Vec::new()).expect("random bytes");
    stranger.write_all(bytes).expect("room in the socket");
    stranger.shutdown(Shutdown::Write).expect("a socket");
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Ok(Some(frame)) = conn.wait_frame(deadline) {
        let proved = if listens {
            acceptor.take(&mut conn, &key, frame).map(|body| body.is_some())
        } else {
            initiator.take(&mut conn, &key, &frame)
        };
        match proved {
            Ok(true) => panic!("one who does not hold the token has proved to"),
            Ok(false) => {}
            Err(_) => break,
        }
    }
}

fn pair() -> (TcpStream, TcpStream) {
    thread_local! {
        static LISTENER: TcpListener = TcpListener::bind("127.0.0.1:0").expect("a port");
    }
    LISTENER.with(|listener| {
        let stranger = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        // Many connections come and go: none is to wait for what was lost.
        socket2::SockRef::from(&stranger).set_linger(Some(Duration::ZERO)).expect("a socket");
        (stranger, listener.accept().expect("it has connected").0)
    })
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn unique_ids() {
        replay("unique_ids", super::unique_ids);
    }

    #[test]
    fn boot_frames() {
        replay("boot_frames", super::boot_frames);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
