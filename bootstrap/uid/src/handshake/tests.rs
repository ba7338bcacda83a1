//! Who learns what: each side of the handshake beside a stranger, and beside an older version.

use std::time::{Duration, Instant};

use super::*;
use crate::auth::Token;
use socket2::{Domain, Socket, Type};

fn pair() -> (Conn, Conn) {
    let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair of sockets");
    (Conn::new(a).expect("a connection"), Conn::new(b).expect("a connection"))
}

fn key(job: u8, token: u8) -> Key {
    Key { job: [job; JOB_BYTES], token: Token([token; 32]) }
}

fn frame(conn: &mut Conn) -> Frame {
    let soon = Instant::now() + Duration::from_secs(10);
    conn.wait_frame(soon).expect("the connection stands").expect("a frame within 10 s")
}

/// Everything that the acceptor says to one that knows all but the token.
#[test]
fn a_stranger_that_dials_gets_a_random_number_and_no_proof() {
    let (mine, mut nonces) = (key(1, 1), Vec::new());
    for _ in 0..2 {
        let (mut near, mut far) = pair();
        let mut acceptor = Acceptor::new(Purpose::Rendezvous);
        let stranger = Initiator::new(Purpose::Rendezvous, Vec::new()).expect("random");
        stranger.hello(&mut far, &key(1, 2)).expect("a hello");
        let hello = frame(&mut near);
        assert!(matches!(acceptor.take(&mut near, &mine, hello), Ok(None)));
        let (kind, challenge) = frame(&mut far);
        assert_eq!((kind, challenge.len()), (CHALLENGE, 32), "a nonce and nothing else");
        nonces.push(challenge);
        // A guess at the proof: what it gets for it depends on nothing.
        far.send(PROOF, &[7; 32]).expect("a guess");
        let guess = frame(&mut near);
        assert!(matches!(acceptor.take(&mut near, &mine, guess), Err(Broken::Malformed(_))));
        let (kind, refusal) = frame(&mut far);
        assert_eq!(kind, REFUSED);
        assert_eq!(refusal, Writer::default().u16(VERSION).text(WRONG_TOKEN).0);
    }
    assert_ne!(nonces[0], nonces[1]);
}

/// A stranger that took the place of the rendezvous gets a proof, but can answer none, and learns nothing
/// after it.
#[test]
fn a_stranger_that_listens_is_told_nothing() {
    let (mut near, mut far) = pair();
    let mine = key(1, 1);
    let mut initiator = Initiator::new(Purpose::Rendezvous, Vec::new()).expect("random");
    initiator.hello(&mut near, &mine).expect("a hello");
    let (kind, hello) = frame(&mut far);
    assert_eq!((kind, hello.len()), (HELLO, 4 + 2 + 1 + JOB_BYTES + 32));
    far.send(CHALLENGE, &[9; 32]).expect("a challenge");
    let challenge = frame(&mut near);
    assert!(matches!(initiator.take(&mut near, &mine, &challenge), Ok(false)));
    let (kind, proof) = frame(&mut far);
    assert_eq!((kind, proof.len()), (PROOF, 32), "a proof, and nothing of what the rank wants");
    // Its own proof, sent back.
    far.send(ANSWER, &proof).expect("a reflection");
    let answer = frame(&mut near);
    assert!(matches!(initiator.take(&mut near, &mine, &answer), Err(Broken::Malformed(_))));
}

#[test]
fn both_prove_and_the_body_is_bound() {
    let (mut near, mut far) = pair();
    let key = key(1, 1);
    for forged in [true, false] {
        let mut acceptor = Acceptor::new(Purpose::Mesh);
        let mut initiator = Initiator::new(Purpose::Mesh, b"rank 3".to_vec()).expect("random");
        initiator.hello(&mut far, &key).expect("a hello");
        let hello = frame(&mut near);
        assert!(matches!(acceptor.take(&mut near, &key, hello), Ok(None)));
        assert!(acceptor.greeted());
        let challenge = frame(&mut far);
        assert!(matches!(initiator.take(&mut far, &key, &challenge), Ok(false)));
        let mut proof = frame(&mut near);
        if forged {
            *proof.1.last_mut().expect("a body") ^= 1;
            assert!(matches!(acceptor.take(&mut near, &key, proof), Err(Broken::Malformed(_))));
            assert_eq!(frame(&mut far).0, REFUSED);
            continue;
        }
        let body = acceptor.take(&mut near, &key, proof).expect("it holds the token");
        assert_eq!(body.as_deref(), Some(&b"rank 3"[..]));
        let answer = frame(&mut far);
        assert!(matches!(initiator.take(&mut far, &key, &answer), Ok(true)));
    }
}

#[test]
fn another_job_is_told_from_a_wrong_token() {
    for (theirs, part) in [(key(2, 1), "looks for another job"), (key(1, 2), "secret")] {
        let (mut near, mut far) = pair();
        let (mine, mut acceptor) = (key(1, 1), Acceptor::new(Purpose::Rendezvous));
        let mut initiator = Initiator::new(Purpose::Rendezvous, Vec::new()).expect("random");
        initiator.hello(&mut far, &theirs).expect("a hello");
        let hello = frame(&mut near);
        let mut said = acceptor.take(&mut near, &mine, hello);
        if said.is_ok() {
            let challenge = frame(&mut far);
            assert!(matches!(initiator.take(&mut far, &theirs, &challenge), Ok(false)));
            let proof = frame(&mut near);
            said = acceptor.take(&mut near, &mine, proof);
        }
        let said = said.expect_err("not this job").to_string();
        assert!(said.contains(part), "{said}");
        let refusal = frame(&mut far);
        let refused = initiator.take(&mut far, &theirs, &refusal).expect_err("a refusal");
        assert!(matches!(refused, Broken::Refused(_)), "{refused}");
    }
}

/// Version 2's hello, as it was, and what a version 2 acceptor does with this one's: both ways the other is
/// named.
#[test]
fn an_older_peer_is_named_as_such() {
    let (mut near, mut far) = pair();
    let old = Writer::default().u32(MAGIC).u16(2).u8(1).bytes(&[7; 32]).0;
    far.send(HELLO, &old).expect("a hello of version 2");
    let hello = frame(&mut near);
    let e = Acceptor::new(Purpose::Rendezvous).take(&mut near, &key(1, 1), hello).expect_err("too old");
    let text = e.to_string();
    assert!(text.contains("an older rushmem") && text.contains("version 2"), "{text}");
    // A newer initiator learns which version this is.
    let (kind, refusal) = frame(&mut far);
    let mut initiator = Initiator::new(Purpose::Rendezvous, Vec::new()).expect("random");
    let newer = Writer::default().u16(VERSION + 1).text("").0;
    for (said, part) in [((kind, refusal), "refused"), ((REFUSED, newer), "a newer rushmem")] {
        let e = initiator.take(&mut far, &key(1, 1), &said).expect_err("no challenge").to_string();
        assert!(e.contains(part), "{e}");
    }
    let e = initiator.ended(Broken::Closed).to_string();
    assert!(e.contains("an older rushmem"), "{e}");
}
