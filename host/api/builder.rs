//! How a world starts when the caller knows better than the environment: a unique ID, an address, or MPI.

use std::ffi::{c_void, CString};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rushmem_abi::c::*;

use crate::runtime::Runtime;
use crate::{Device, Error, ErrorCode, Result, World};

/// A unique ID: made on one PE, carried to the others by any means (a file, an MPI broadcast, a key-value
/// store), and given by all of them to [`WorldBuilder::uid`]. Its text form (`Display`, `FromStr`) is hex.
///
/// The process that makes the ID must live until every PE has started: the PEs meet there. It holds a secret
/// token, so treat it like a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uid([u8; RUSHMEM_UID_BYTES]);

impl Uid {
    /// Length in bytes.
    pub const BYTES: usize = RUSHMEM_UID_BYTES;

    /// Makes one. Local.
    pub fn create() -> Result<Uid> {
        let runtime = Runtime::get()?;
        let mut uid = rushmem_uid_t { bytes: [0; RUSHMEM_UID_BYTES] };
        // SAFETY: a place for the answer.
        runtime.check(unsafe { (runtime.uid_create)(&mut uid) })?;
        Ok(Uid(uid.bytes))
    }

    /// The ID of these bytes.
    pub fn from_bytes(bytes: [u8; Uid::BYTES]) -> Uid {
        Uid(bytes)
    }

    /// The bytes, to ship.
    pub fn as_bytes(&self) -> &[u8; Uid::BYTES] {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Uid(…)")
    }
}

impl FromStr for Uid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uid> {
        let wrong = || {
            let message =
                format!("a unique ID is {} hex digits, this text has {}", 2 * Uid::BYTES, text.len());
            Error::new(ErrorCode::InvalidArgument, message)
        };
        if text.len() != 2 * Uid::BYTES || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; Uid::BYTES];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Uid(bytes))
    }
}

/// How to start a [`World`]. With nothing said, the environment decides.
///
/// ```no_run
/// # fn main() -> rushmem::Result<()> {
/// let uid = rushmem::Uid::create()?; // on one PE; ship it to the others
/// let world = rushmem::World::builder().uid(&uid, 0, 4).heap_max(1 << 30).init()?;
/// # world.finalize() }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing starts before init()"]
pub struct WorldBuilder {
    meeting: Meeting,
    heap_max: u64,
    init_timeout: Option<Duration>,
    device: Option<Device>,
}

#[derive(Debug, Clone, Default)]
enum Meeting {
    #[default]
    Environment,
    Uid(Uid, u32, u32),
    Address(String, u32, u32),
    Mpi(*const c_void),
}

impl World {
    /// Joins the job that the environment describes: `rushmem-run`, `torchrun`, Slurm or MPI variables, or,
    /// with none of them, a job of one PE. Collective. What was chosen is one log line.
    ///
    /// # Errors
    /// [`ErrorCode::Environment`] names the variable that is missing or contradicts; [`ErrorCode::Timeout`]
    /// names the PEs that never came; [`ErrorCode::LibraryNotFound`] lists the paths tried.
    pub fn init() -> Result<World> {
        World::builder().init()
    }

    /// A builder, to say what the environment does not.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }
}

impl WorldBuilder {
    /// Meets the other PEs by a unique ID, as PE `rank` of `n_pes`.
    pub fn uid(mut self, uid: &Uid, rank: u32, n_pes: u32) -> Self {
        self.meeting = Meeting::Uid(*uid, rank, n_pes);
        self
    }

    /// Meets the other PEs at `host:port`, where rank 0 listens. Any start order.
    pub fn address(mut self, address: &str, rank: u32, n_pes: u32) -> Self {
        self.meeting = Meeting::Address(address.to_owned(), rank, n_pes);
        self
    }

    /// Meets the other PEs over an MPI communicator; MPI stays the caller's to finalise.
    ///
    /// # Safety
    /// `communicator` points at an `MPI_Comm` of an initialised MPI, and both outlive [`WorldBuilder::init`]
    /// and the world.
    pub unsafe fn mpi(mut self, communicator: *const c_void) -> Self {
        self.meeting = Meeting::Mpi(communicator);
        self
    }

    /// Upper limit of the symmetric heap in bytes; otherwise `RUSHMEM_HEAP_MAX` or its default. Memory is
    /// taken as it is needed, so a generous limit costs addresses only. The same on every PE.
    pub fn heap_max(mut self, bytes: u64) -> Self {
        self.heap_max = bytes;
        self
    }

    /// How long to wait for the other PEs to come; otherwise `RUSHMEM_INIT_TIMEOUT` or its default of 60 s.
    pub fn init_timeout(mut self, limit: Duration) -> Self {
        self.init_timeout = Some(limit);
        self
    }

    /// The kind of device; otherwise `RUSHMEM_DEVICE` (`auto`, `cpu`, `cuda` or `cuda:N`), or a GPU where
    /// there is one. The same kind on every PE.
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Joins the job. Collective. Errors as for [`World::init`].
    pub fn init(&self) -> Result<World> {
        let mut attr = rushmem_init_attr_t {
            size: size_of::<rushmem_init_attr_t>() as u32,
            flags: 0,
            uid: std::ptr::null(),
            address: std::ptr::null(),
            mpi_comm: std::ptr::null(),
            rank: 0,
            n_pes: 0,
            device: match self.device {
                None => 0,
                Some(Device::Cpu) => RUSHMEM_DEVICE_CPU,
                Some(Device::Cuda(_)) => RUSHMEM_DEVICE_CUDA,
            },
            gpu: match self.device {
                Some(Device::Cuda(Some(number))) => as_int(number.saturating_add(1))?,
                _ => 0,
            },
            heap_max: self.heap_max,
            // Zero means "the default", so the shortest limit that can be said is a millisecond.
            init_timeout_ms: self.init_timeout.map_or(0, |limit| (limit.as_millis() as u64).max(1)),
        };
        // What `attr` points at lives here, through the call.
        let (uid, address);
        match &self.meeting {
            Meeting::Environment => {}
            Meeting::Uid(id, rank, n_pes) => {
                uid = rushmem_uid_t { bytes: id.0 };
                attr.uid = &uid;
                (attr.rank, attr.n_pes) = (as_int(*rank)?, as_int(*n_pes)?);
            }
            Meeting::Address(text, rank, n_pes) => {
                address = CString::new(text.as_str()).map_err(|_| {
                    Error::new(
                        ErrorCode::InvalidArgument,
                        format!("the address {text:?} contains a NUL byte"),
                    )
                })?;
                attr.address = address.as_ptr();
                (attr.rank, attr.n_pes) = (as_int(*rank)?, as_int(*n_pes)?);
            }
            Meeting::Mpi(communicator) => attr.mpi_comm = *communicator,
        }
        World::start(&attr)
    }
}

fn as_int(number: u32) -> Result<i32> {
    i32::try_from(number)
        .map_err(|_| Error::new(ErrorCode::InvalidArgument, format!("{number} is too large for a PE number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_survives_its_text_form() {
        let uid = Uid(std::array::from_fn(|i| (i * 7) as u8));
        assert_eq!(uid.to_string().parse::<Uid>(), Ok(uid));
        for bad in ["", "00", &"g".repeat(256), &"+1".repeat(128), &"é".repeat(128)] {
            assert_eq!(bad.parse::<Uid>().map_err(|e| e.code()), Err(ErrorCode::InvalidArgument), "{bad:?}");
        }
    }
}
