//! Who is warned that no secret is set: rank 0 of a job that meets over the network without one, once. A test
//! binary of its own, with its own logger.

mod warnings;

use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::{join_meeting, MeetingPoint, UidConfig};

/// A job of three ranks from its beginning to its end; what was warned of.
fn job(secret: Option<&str>, one_host: Option<&str>) -> Vec<String> {
    let point = MeetingPoint {
        host: "127.0.0.1".into(),
        host_from: "MASTER_ADDR",
        identity: vec![format!("{} {secret:?}", std::process::id())],
        secret: secret.map(|s| (s.to_owned(), "RUSHMEM_JOB_SECRET")),
        taken: None,
        one_host: one_host.map(str::to_owned),
    };
    warnings::take();
    std::thread::scope(|s| {
        for rank in 0..3 {
            let (point, limit) = (&point, Duration::from_secs(30));
            let cfg = UidConfig { init_timeout: limit, timeout: limit, ..UidConfig::new(rank, 3) };
            s.spawn(move || {
                join_meeting(point, cfg).expect("the job comes up").finalize().expect("all leave")
            });
        }
    });
    warnings::take()
}

#[test]
fn no_secret_is_warned_of_once_and_only_where_it_matters() {
    warnings::keep();
    assert_eq!(job(None, Some("a test says so")), [""; 0], "nobody else reaches a local socket");
    assert_eq!(job(Some("a secret"), None), [""; 0]);
    let warned = job(None, None);
    let [text] = &warned[..] else { panic!("{warned:?}") };
    for part in ["no secret is set", "RUSHMEM_JOB_SECRET", "openssl rand", "127.0.0.1"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(job(None, None), [""; 0], "once is enough");
}
