//! Single words on a stream: writes and waits that the GPU's front end carries out, without a kernel and so
//! without an SM.
//!
//! A write comes after all earlier work of the stream, and what that work wrote is visible, to the whole
//! system, before the word is (CUDA driver API, stream memory operations: a write without `NO_MEMORY_BARRIER`
//! is a system-wide fence first). A wait holds the stream back until the word is large enough, which is
//! cyclic: `(word - at_least) >= 0` as a signed number.

use cudarc::driver::sys::{self, CUstreamBatchMemOpType as Type, CUstreamWaitValue_flags as Flags};

use super::driver::cu;
use super::stream::Stream;
use crate::error::{err, Result};

/// A write of, or a wait for, one aligned word that the GPU can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemOp {
    /// Stores 4 bytes.
    Write32 { at: usize, value: u32 },
    /// Stores 8 bytes.
    Write64 { at: usize, value: u64 },
    /// Waits for 8 bytes.
    Wait64 { at: usize, at_least: u64 },
}

/// What the driver takes in one call.
const MOST: usize = 255;

impl Stream {
    /// Puts operations on the stream, carried out in order.
    ///
    /// # Safety
    /// The words stay valid until the operations are done. Others access them atomically.
    pub(crate) unsafe fn words(&self, ops: &[MemOp]) -> Result<()> {
        if !self.cuda().facts().stream_words && !ops.is_empty() {
            return Err(err!(UNSUPPORTED, "{}: its streams cannot wait for words", self.cuda()));
        }
        let mut list: Vec<_> = ops.iter().map(MemOp::describe).collect();
        let _current = self.cuda().current()?;
        for part in list.chunks_mut(MOST) {
            // SAFETY: the list is as long as said and read before the call returns; the words per contract.
            unsafe { cu!(cuStreamBatchMemOp_v2(self.raw(), part.len() as u32, part.as_mut_ptr(), 0)) }?;
        }
        Ok(())
    }
}

impl MemOp {
    /// The store of the low `bytes` of `bits`, where that is one of the words that there are.
    pub(crate) fn store(at: usize, bits: u64, bytes: usize) -> Option<MemOp> {
        match bytes {
            4 if at % 4 == 0 => Some(MemOp::Write32 { at, value: bits as u32 }),
            8 if at % 8 == 0 => Some(MemOp::Write64 { at, value: bits }),
            _ => None,
        }
    }

    fn describe(&self) -> sys::CUstreamBatchMemOpParams {
        match *self {
            MemOp::Write32 { at, value } => {
                write(Type::CU_STREAM_MEM_OP_WRITE_VALUE_32, at, u64::from(value))
            }
            MemOp::Write64 { at, value } => write(Type::CU_STREAM_MEM_OP_WRITE_VALUE_64, at, value),
            MemOp::Wait64 { at, at_least } => wait(at, at_least),
        }
    }
}

// The 32-bit value is the first half of the 64-bit one's place on every machine that CUDA runs on
// (little-endian).
const _: () = assert!(cfg!(target_endian = "little"));

fn write(operation: Type, at: usize, value64: u64) -> sys::CUstreamBatchMemOpParams {
    let mut op = empty();
    op.writeValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
        operation,
        address: at as u64,
        __bindgen_anon_1:
            sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 { value64 },
        flags: 0,
        alias: 0,
    };
    op
}

fn wait(at: usize, value64: u64) -> sys::CUstreamBatchMemOpParams {
    let mut op = empty();
    op.waitValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st {
        operation: Type::CU_STREAM_MEM_OP_WAIT_VALUE_64,
        address: at as u64,
        __bindgen_anon_1: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 {
            value64,
        },
        flags: Flags::CU_STREAM_WAIT_VALUE_GEQ as u32,
        alias: 0,
    };
    op
}

/// All bytes zero, those that a variant does not use too.
fn empty() -> sys::CUstreamBatchMemOpParams {
    sys::CUstreamBatchMemOpParams { pad: [0; 6] }
}
