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
        plain.fill(&[(0, contents)])?;
        Ok(plain)
    }

    /// Replaces parts of the contents, each from a byte on, one after the other. Waits until they are there.
    /// Kernels may run meanwhile.
    pub(crate) fn fill<B: AsRef<[u8]>>(&self, parts: &[(usize, B)]) -> Result<()> {
        let _current = self.cuda.current()?;
        let stream = Stream::new(&self.cuda, Priority::High)?;
        for (from, contents) in parts {
            let contents = contents.as_ref();
            // SAFETY: the caller gives no more than there was at first; waited for.
            unsafe { stream.copy(self.at + from, contents.as_ptr() as usize, contents.len()) }?;
        }
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
