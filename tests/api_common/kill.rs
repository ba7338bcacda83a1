//! What befalls PEs in the middle of their work: some are killed, and the others end within seconds, each
//! with an error that names one of the dead, not by a signal or an assertion of a library; or one is stopped
//! for a while, and all go on.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::Rng;
use rushmem::testing::{self, Exit, Job, Outcome, Pes};
use rushmem::{Error, Pe, Result};

const READY: &str = "READY";
const ENDED: &str = "ENDED";
/// The survivors' code.
const CODE: i32 = 7;
/// For all to begin.
const START: Duration = Duration::from_secs(60);

/// Says that this PE begins.
pub fn ready() {
    println!("{READY}");
}

/// Ends this PE with the error, at once and whatever is on its stack: a program that gives up does, too.
pub fn ended(error: &Error) -> ! {
    println!("{ENDED} with {:?}: {error}", error.code());
    #[allow(clippy::disallowed_methods, reason = "the end in the middle is the point")]
    std::process::exit(CODE)
}

/// Says that this PE begins, repeats `step` until it fails, and ends.
pub fn until_it_fails(mut step: impl FnMut() -> Result<()>) -> ! {
    ready();
    loop {
        if let Err(error) = step() {
            ended(&error);
        }
    }
}

/// Something that befalls some of `n` PEs, processes all.
#[must_use]
pub struct Blow {
    pes: Pes,
    n: u32,
    victims: u32,
    most: Duration,
    limit: Duration,
}

/// One of so many PEs, drawn anew, within 40 ms after all are [`ready`].
pub fn one_of(n: u32) -> Blow {
    let most = Duration::from_millis(40);
    Blow { pes: testing::pes(n), n, victims: 1, most, limit: Duration::from_secs(5) }
}

impl Blow {
    /// PEs with these settings.
    pub fn with(mut self, pes: Pes) -> Self {
        self.pes = pes;
        self
    }

    /// So many PEs, one right after the other.
    pub fn victims(mut self, victims: u32) -> Self {
        self.victims = victims;
        self
    }

    /// Within this time after all are ready.
    pub fn within(mut self, most: Duration) -> Self {
        self.most = most;
        self
    }

    /// The others end within this time. 5 s unless said.
    pub fn noticed_within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Each PE runs `body`, which ends with the error of a PE that is dead.
    #[track_caller]
    pub fn kills(self, body: impl FnOnce() -> Infallible) {
        let Blow { pes, n, victims, most, limit } = self;
        pes.supervise(
            |_| -> () { match body() {} },
            |job| {
                let first = moment(job, n, most);
                let victims: Vec<Pe> = (0..victims).map(|i| Pe::new((first + i) % n)).collect();
                for pe in &victims {
                    job.signal(*pe, libc::SIGKILL);
                }
                // Until then nobody can hear of it.
                let killed =
                    victims.iter().map(|pe| job.outcome(*pe).ended).min().expect("there are victims");
                expect_named(job, &victims, killed, limit);
            },
        );
    }

    /// Each PE runs `body`, and one is stopped for so long: all come to the end.
    #[track_caller]
    pub fn stops(self, long: Duration, body: impl FnOnce() -> Result<()>) {
        let Blow { pes, n, most, .. } = self;
        pes.supervise(
            |_| body(),
            |job| {
                let victim = Pe::new(moment(job, n, most));
                job.signal(victim, libc::SIGSTOP);
                std::thread::sleep(long);
                job.signal(victim, libc::SIGCONT);
                for Outcome { pe, exit, stdout, stderr, .. } in job.outcomes() {
                    assert_eq!(exit, Exit::Done, "{pe}, {victim} was stopped:\n{stdout}\n{stderr}");
                }
            },
        );
    }
}

/// Waits until all are ready, and for a part of `most`; draws a PE.
#[track_caller]
fn moment(job: &mut Job, n: u32, most: Duration) -> u32 {
    let mut rng = Rng::printed();
    (0..n).for_each(|pe| drop(job.wait_for_line(Pe::new(pe), READY, START)));
    std::thread::sleep(Duration::from_micros(rng.below(most.as_micros() as usize) as u64));
    rng.below(n as usize) as u32
}

/// All but the victims end within the limit, with an error that names one of these.
#[track_caller]
fn expect_named(job: &mut Job, victims: &[Pe], killed: Instant, limit: Duration) {
    for Outcome { pe, exit, stdout, stderr, ended, .. } in job.outcomes() {
        if victims.contains(&pe) {
            continue;
        }
        let said = format!("{pe} {exit} {:?} after the kill:\n{stdout}\n{stderr}", ended - killed);
        let last = stdout.lines().rfind(|line| line.starts_with(ENDED)).unwrap_or_default();
        // PE 1 is not PE 10, and a bootstrap says rank.
        let names = |victim: &Pe| {
            let number = format!(" {} ", victim.number());
            last.contains(&format!("PE{number}")) || last.contains(&format!("rank{number}"))
        };
        assert!(exit == Exit::Code(CODE) && victims.iter().any(names), "{said}");
        assert!(ended < killed + limit, "{said}");
    }
}
