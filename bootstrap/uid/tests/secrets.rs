//! Who is warned that no secret is set: rank 0 of a job that meets over the network without one, once. A test
//! binary of its own, with its own logger.

use std::sync::Mutex;
use std::time::Duration;

use rushmem_bootstrap_abi::Bootstrap;
use rushmem_bootstrap_uid::{join_meeting, MeetingPoint, UidConfig};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            WARNINGS.lock().expect("no panic in here").push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

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
    WARNINGS.lock().expect("no panic in here").clear();
    std::thread::scope(|s| {
        for rank in 0..3 {
            let (point, limit) = (&point, Duration::from_secs(30));
            let cfg = UidConfig { init_timeout: limit, timeout: limit, ..UidConfig::new(rank, 3) };
            s.spawn(move || {
                join_meeting(point, cfg).expect("the job comes up").finalize().expect("all leave")
            });
        }
    });
    WARNINGS.lock().expect("no panic in here").clone()
}

#[test]
fn no_secret_is_warned_of_once_and_only_where_it_matters() {
    log::set_logger(&Capture).expect("the only logger");
    log::set_max_level(log::LevelFilter::Warn);
    assert_eq!(job(None, Some("a test says so")), [""; 0], "nobody else reaches a local socket");
    assert_eq!(job(Some("a secret"), None), [""; 0]);
    let warned = job(None, None);
    let [text] = &warned[..] else { panic!("{warned:?}") };
    for part in ["no secret is set", "RUSHMEM_JOB_SECRET", "openssl rand", "127.0.0.1"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(job(None, None), [""; 0], "once is enough");
}
