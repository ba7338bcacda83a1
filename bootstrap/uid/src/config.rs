//! What a rank must say to join, and the limits that it sets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::Result;

/// A variable that, when set alike on all ranks, keeps others out of jobs that meet by a launcher's
/// variables.
pub const SECRET_VARIABLE: &str = "RUSHMEM_JOB_SECRET";
/// How often a rank that waits looks at its [`Watch`].
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Asked now and then by a rank that waits for the others: an error is a reason not to wait any longer, and
/// the others learn it.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<dyn Fn() -> Result<()> + Send + Sync>>);

impl Watch {
    /// Asks `look`, which returns at once.
    pub fn new(look: impl Fn() -> Result<()> + Send + Sync + 'static) -> Watch {
        Watch(Some(Arc::new(look)))
    }

    pub(crate) fn look(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |look| look())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Watch" } else { "no Watch" })
    }
}

/// One rank's side of a start.
#[derive(Debug, Clone)]
pub struct UidConfig {
    /// This rank, `0..n_ranks`.
    pub rank: u32,
    /// Number of ranks; all must say the same.
    pub n_ranks: u32,
    /// How long joining may take in all, whichever rank comes first. The shortest limit of the job counts.
    pub init_timeout: Duration,
    /// How long one collective call may take.
    pub timeout: Duration,
    /// The interface to listen on for neighbours, as [`crate::interface_from_env`]; `None` takes the address
    /// from which this host reaches the rendezvous.
    pub ifname: Option<String>,
    /// When all ranks are to know, at the latest, of a host that does not answer any more: down, or cut off.
    /// Its ranks count as dead a little earlier, once its kernel has said nothing for four fifths of this
    /// time, neither to data nor to the probes that go out each second; at least 2 s. An idle, busy or
    /// stopped process is not silent: its kernel answers. `None` leaves it to the kernel's defaults, which
    /// are hours.
    pub host_silence: Option<Duration>,
    /// What else may end the wait for the others.
    pub watch: Watch,
}

impl UidConfig {
    /// The defaults: 60 s to join, 600 s for a collective, any interface, 10 s of a host's silence.
    pub fn new(rank: u32, n_ranks: u32) -> UidConfig {
        UidConfig {
            rank,
            n_ranks,
            init_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            ifname: None,
            host_silence: Some(Duration::from_secs(10)),
            watch: Watch::default(),
        }
    }
}

/// When a limit that starts now ends; limits of centuries (`Duration::MAX` for none) do not overflow the
/// clock.
pub(crate) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(Duration::from_secs(10 * 365 * 86400))
}
