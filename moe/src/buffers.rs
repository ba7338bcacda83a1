//! The program's memory that a call reads and writes: addresses on its device, and their check.

use std::ffi::c_void;

use crate::{Config, Error, Payload, Result};

/// How many tokens a rank has in a round.
#[derive(Debug, Clone, Copy)]
pub enum Count {
    /// So many.
    Host(u32),
    /// As many as this word of the device's memory says when the launch runs, so that a CUDA graph that holds
    /// it serves for any number.
    Device(*const u32),
}

/// A rank's tokens, in memory of its device. Addresses are multiples of 16; `experts` and `weights` of their
/// elements' sizes.
#[derive(Debug, Clone, Copy)]
pub struct Tokens {
    /// `[count][hidden]`, of the payload's type before it is cast.
    pub x: *const c_void,
    /// `[count][side]` bytes of [`Payload::Bytes`](crate::Payload::Bytes); else null.
    pub side: *const c_void,
    /// `[count][top_k]` numbers of experts, of `i32` or `i64`; a negative one is nowhere.
    pub experts: *const c_void,
    /// `[count][top_k]`; null in an exchange without weights.
    pub weights: *const f32,
    /// How many.
    pub count: Count,
}

/// Where a rank's experts find what is for them, in memory of its device; addresses as for [`Tokens`]. What
/// is null is not written.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Tokens, as the [`Layout`](crate::Layout) says. Must not be null.
    pub x: *mut c_void,
    /// Scales or side bytes, a row of [`Config::side_bytes`] for each row of `x`.
    pub side: *mut c_void,
    /// `[local experts]`: tokens of each expert; in [`Layout::RankMajor`](crate::Layout::RankMajor)
    /// `[ranks]`: of each source.
    pub counts: *mut i32,
    /// For each row of `x` that was written `source * max_tokens + token`.
    pub sources: *mut i32,
    /// In [`Layout::RankMajor`](crate::Layout::RankMajor) `[ranks][max_tokens][top_k]`: which of this rank's
    /// experts a row is for, from 0; -1 stands for none.
    pub experts: *mut i32,
    /// In [`Layout::RankMajor`](crate::Layout::RankMajor) the weights that belong to `experts`.
    pub weights: *mut f32,
}

/// A rank's tokens: `struct tokens` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawTokens {
    x: *const c_void,
    side: *const c_void,
    experts: *const c_void,
    weights: *const f32,
    count_at: *const u32,
    count: u64,
}

/// Results and sums: `struct products` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Products {
    pub(crate) y: *const c_void,
    pub(crate) out: *mut c_void,
}

/// Where tokens are received: `struct received` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawReceived {
    x: *mut c_void,
    side: *mut c_void,
    counts: *mut i32,
    sources: *mut i32,
    experts: *mut i32,
    weights: *mut f32,
}

impl Tokens {
    /// As the kernels take it, for an exchange of this configuration.
    pub(crate) fn checked(&self, config: &Config) -> Result<RawTokens> {
        let Tokens { x, side, experts, weights, count } = *self;
        aligned("x", x.addr(), 16)?;
        aligned("side", side.addr(), 16)?;
        aligned("experts", experts.addr(), if config.wide { 8 } else { 4 })?;
        aligned("weights", weights.addr(), 4)?;
        let (count_at, count) = match count {
            Count::Host(count) => (std::ptr::null(), count),
            Count::Device(at) => (at, 0),
        };
        aligned("the count", count_at.addr(), 4)?;
        if count > config.max_tokens {
            let most = config.max_tokens;
            return Err(Error::Invalid(format!("{count} tokens are more than max_tokens, which is {most}")));
        }
        let needed = count > 0 || !count_at.is_null();
        let lacks = x.is_null()
            || experts.is_null()
            || (config.weighted && weights.is_null())
            || (matches!(config.payload, Payload::Bytes { side: 1.., .. }) && side.is_null());
        if needed && lacks {
            let text =
                "tokens need x, experts, and the weights and side bytes that the exchange has: one is null";
            return Err(Error::Invalid(text.into()));
        }
        Ok(RawTokens { x, side, experts, weights, count_at, count: count.into() })
    }
}

impl Received {
    /// As the kernels take it.
    pub(crate) fn checked(&self) -> Result<RawReceived> {
        let Received { x, side, counts, sources, experts, weights } = *self;
        if x.is_null() {
            return Err(Error::Invalid("there is no place for the tokens: x is null".into()));
        }
        aligned("x", x.addr(), 16)?;
        aligned("side", side.addr(), 16)?;
        for (name, at) in [
            ("counts", counts.addr()),
            ("sources", sources.addr()),
            ("experts", experts.addr()),
            ("weights", weights.addr()),
        ] {
            aligned(name, at, 4)?;
        }
        Ok(RawReceived { x, side, counts, sources, experts, weights })
    }
}

/// Refuses an address that is no multiple of `to`.
pub(crate) fn aligned(name: &str, address: usize, to: usize) -> Result<()> {
    if address % to == 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!("the address of {name}, {address:#x}, is no multiple of {to}")))
}
