//! Memory of a GPU that nobody else maps: what a PE's own threads and its host talk over.

use std::sync::Arc;

use cudarc::driver::sys;

use super::driver::{cu, ignore};
use super::stream::{Priority, Stream};
use super::Cuda;
use crate::error::Result;

/// A range of a GPU's memory. Given back on drop, for which the GPU must be done with it: `cuMemFree` waits
/// for all its work.
#[derive(Debug)]
pub(crate) struct Plain {
    cuda: Arc<Cuda>,
    at: usize,
}

impl Plain {
    /// Memory that holds `contents`. Waits until they are there.
    pub(crate) fn holding(cuda: &Arc<Cuda>, contents: &[u8]) -> Result<Plain> {
        let _current = cuda.current()?;
        let mut at = 0;
        // SAFETY: writes the address of new memory, which is owned here at once.
        unsafe { cu!(cuMemAlloc_v2(&mut at, contents.len().max(1))) }
            .map_err(|e| e.context(format_args!("{} bytes of memory of {cuda}", contents.len())))?;
        let plain = Plain { cuda: Arc::clone(cuda), at: at as usize };
        let stream = Stream::new(cuda, Priority::High)?;
        // SAFETY: as long as said, and waited for.
        unsafe { stream.copy(plain.at, contents.as_ptr() as usize, contents.len()) }?;
        stream.finish()?;
        Ok(plain)
    }

    /// Replaces the contents from byte `from` on. Waits until they are there.
    pub(crate) fn fill(&self, from: usize, contents: &[u8]) -> Result<()> {
        let _current = self.cuda.current()?;
        let stream = Stream::new(&self.cuda, Priority::High)?;
        // SAFETY: the caller gives no more than there was at first; waited for.
        unsafe { stream.copy(self.at + from, contents.as_ptr() as usize, contents.len()) }?;
        stream.finish()
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.at
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: made in `holding`.
        ignore("cuMemFree", unsafe { sys::cuMemFree_v2(self.at as u64) });
    }
}
