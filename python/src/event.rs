//! Events: whether a stream has passed what it was given. They are the runtime's, by their addresses.

use rushmem_abi::c::RUSHMEM_OK;

use crate::core::Core;
use crate::keep::lock;

impl Core {
    /// An event behind what the stream was given so far, or the code of why there is none. What is no stream
    /// of the world's is refused.
    pub(crate) fn record_event(&self, stream: usize) -> Result<usize, i32> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a live handle, a stream that the world knew or one that is refused, and a place for the
        // answer.
        match unsafe { (self.table.event_record)(self.raw(), stream as *mut _, &mut event) } {
            RUSHMEM_OK => Ok(event as usize),
            code => Err(code),
        }
    }

    /// Whether the work before an event has ended. Waits for nothing.
    pub(crate) fn has_passed(&self, event: usize) -> bool {
        let mut done = 0;
        // SAFETY: an event that was not freed, and a place for the answer.
        let code = unsafe { (self.table.event_test)(event as *mut _, &mut done) };
        // An error means that the work has ended, too.
        code != RUSHMEM_OK || done != 0
    }

    /// Gives an event back, once.
    pub(crate) fn free_event(&self, event: usize) {
        // SAFETY: an event of `record_event`'s, given back once.
        unsafe { (self.table.event_free)(event as *mut _) };
    }
}

/// Handles outlive their streams in what arrays have noted (`ledger.rs`). On a GPU the runtime takes a handle
/// that it does not know for another library's stream, and the driver reads what is not there any more.
impl Core {
    /// A handle may come again; work on the new stream is behind none of the old one's.
    pub(crate) fn stream_begins(&self, handle: usize) {
        let event = lock(&self.keep.ended).remove(&handle);
        if let Some(event) = event.filter(|event| *event != 0) {
            self.free_event(event);
        }
    }

    pub(crate) fn stream_ends(&self, handle: usize) {
        let event = self.record_event(handle).unwrap_or(0);
        lock(&self.keep.ended).insert(handle, event);
    }

    /// Whether the stream is no more and its work has ended; none where it is not known to be so.
    pub(crate) fn has_ended(&self, handle: usize) -> Option<bool> {
        let event = *lock(&self.keep.ended).get(&handle)?;
        Some(event == 0 || self.has_passed(event))
    }
}
