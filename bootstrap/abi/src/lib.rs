//! How PEs exchange bytes before a heap exists.
//!
//! A *bootstrap* gives every PE its rank and a handful of small collectives. Runtime and bootstraps meet in
//! one Rust trait, [`Bootstrap`]; a bootstrap that lives in another shared object (MPI) meets the runtime in
//! the C vtable of [`ffi`], which [`plugin`] adapts to and from the trait. Nothing here depends on anything
//! of ours. [`fork`] keeps the sockets that this takes out of the children of a PE.

mod error;
pub mod ffi;
pub mod fork;
pub mod plugin;

pub use error::{BootError, BootErrorKind};

/// The result of a bootstrap call.
pub type Result<T> = std::result::Result<T, BootError>;

/// Version of the C vtable; a plug-in built for another version is refused with both numbers.
pub const ABI_VERSION: u32 = 1;

/// The death (or the unannounced leaving) of a PE, as the bootstrap learnt of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The rank that is gone.
    pub rank: u32,
    /// What was seen, for a person: host, pid where known, and the cause.
    pub what: String,
}

/// What the runtime asks of a bootstrap. Every call is collective over all ranks unless it says otherwise,
/// takes blobs of one size on all ranks (0 bytes are allowed), and ends within the bootstrap's time limit
/// with an error that names the ranks that never came or that died.
pub trait Bootstrap: Send + Sync {
    /// Short name for logs: `uid`, `mpi`, `single`.
    fn name(&self) -> &str;
    /// This PE's rank, `0..n_ranks`.
    fn rank(&self) -> u32;
    /// Number of ranks.
    fn n_ranks(&self) -> u32;
    /// `out[r*len..][..len]` becomes rank `r`'s `input` on every rank, where `len = input.len()`.
    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()>;
    /// Block `r` of `input` goes to rank `r`; block `s` of `out` comes from rank `s`. Both hold `n_ranks`
    /// blocks.
    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()>;
    /// Returns once every rank has entered.
    fn barrier(&self) -> Result<()>;
    /// `buf` of rank `root` becomes `buf` on every rank.
    fn broadcast(&self, buf: &mut [u8], root: u32) -> Result<()>;
    /// Local: the names of this host's network interfaces that have the address at which the ranks have met,
    /// for further connections between them. None where the bootstrap does not know.
    fn interfaces(&self) -> Vec<String> {
        Vec::new()
    }
    /// Local, never blocks: the first death that this rank has learnt of. `None` where the bootstrap cannot
    /// know (MPI) or nobody died.
    fn death(&self) -> Option<Death> {
        None
    }
    /// Local, never blocks: this rank knows from elsewhere that `rank` has died. A bootstrap that tells of
    /// deaths tells the others before it returns: this process may end because of it, and they are to know
    /// the cause before they see that end.
    fn report_death(&self, _rank: u32, _what: &str) {}
    /// Local, never blocks for long: tells the other ranks that this one leaves because of `why`. After it
    /// only dropping is allowed.
    fn abort(&self, _why: &str) {}
    /// Leaves in good order; every rank calls it, so that nobody mistakes the leaving for a death.
    fn finalize(&self) -> Result<()> {
        Ok(())
    }
}
