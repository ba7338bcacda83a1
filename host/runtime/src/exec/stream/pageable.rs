//! Copies between a GPU's stream and pageable host memory (an ordinary slice), through pinned buffers. For
//! operations on a stream a call of the stream to the host fills or empties them, in its turn; for operations
//! of the host the calling thread does.
//!
//! CUDA's own copies from and to pageable memory may wait in the driver until the stream comes to them, and
//! hold a lock of the context meanwhile. A stream that waits for a far PE, or for a call that this process
//! has yet to make, would then wait for ever: that call takes the lock too (docs/gpu-findings.md). It need
//! not be the same stream: more streams than the process has queues to its GPU wait for one another. These
//! copies never wait in the driver.
//!
//! A recorded copy is left to CUDA: a graph may be launched several times at once, and a buffer of ours
//! serves one copy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::gpu::copy::Strided;
use crate::gpu::memop::MemOp;
use crate::gpu::pinned::PinnedBox;
use crate::gpu::stream::Stream;
use crate::gpu::Cuda;
use crate::health::Health;

/// Bytes of a buffer, at most. A longer copy goes piece by piece through one.
const MOST: usize = 512 << 10;
/// Bytes of a buffer, at least.
const LEAST: usize = 4 << 10;
/// Bytes of all buffers in use, at most. More copies wait in the call, which says so.
const IN_USE: usize = 32 << 20;

/// The buffers of one PE.
#[derive(Default)]
struct Buffers {
    spare: Vec<PinnedBox<[u8]>>,
    in_use: usize,
}

/// Copies between streams of one PE's GPU and pageable memory.
pub(crate) struct Pageable {
    cuda: Arc<Cuda>,
    health: Arc<Health>,
    buffers: Arc<Mutex<Buffers>>,
    lent: Mutex<Lent>,
    /// The number of the last loan that its stream has done with.
    returned: PinnedBox<AtomicU64>,
}

/// Loans that one stream, the engine's, has to end, numbered in its order.
#[derive(Default)]
struct Lent {
    last: u64,
    loans: VecDeque<(u64, Loan)>,
}

/// Where the copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    IntoGpu,
    OutOfGpu,
}

/// A buffer that goes back to the others when nobody has it any more. It is never freed here: the driver's
/// threads must not call CUDA.
struct Loan {
    buffers: Arc<Mutex<Buffers>>,
    buffer: Option<PinnedBox<[u8]>>,
}

impl Loan {
    fn at(&self) -> (usize, usize) {
        let buffer = self.buffer.as_ref().expect("there until drop");
        (buffer.as_ptr().cast::<u8>() as usize, buffer.device_address())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.in_use -= buffer.len();
        buffers.spare.push(buffer);
    }
}

/// A copy of `count` elements of `size` bytes, between regular distances of `gpu` and of `host`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageableCopy {
    pub(crate) direction: Direction,
    pub(crate) gpu: Strided,
    pub(crate) host: Strided,
    pub(crate) size: usize,
    pub(crate) count: usize,
}

impl PageableCopy {
    fn parts(&self) -> impl Iterator<Item = CopyPart> {
        parts(self.gpu, self.host, self.size, self.count, MOST)
    }

    fn bytes(&self) -> usize {
        self.size.saturating_mul(self.count)
    }
}

/// A part of a copy: `count` elements of `size` bytes on both sides, packed in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyPart {
    gpu: Strided,
    host: Strided,
    size: usize,
    count: usize,
}

/// The parts of a copy of `count` elements of `size` bytes, each of at most `most` bytes.
fn parts(
    gpu: Strided,
    host: Strided,
    size: usize,
    count: usize,
    most: usize,
) -> impl Iterator<Item = CopyPart> {
    let touching = count == 1 || (gpu.stride == size && host.stride == size);
    // Elements that touch are one; whole elements go together, and one that is longer than a part goes in
    // several.
    let (size, count) = if touching { (size * count, 1) } else { (size, count) };
    let (rows, pieces) = ((most / size).clamp(1, count), size.div_ceil(most));
    let place = |side: Strided, row: usize, byte: usize| Strided {
        at: side.at.wrapping_add(row.wrapping_mul(side.stride)).wrapping_add(byte),
        stride: side.stride,
    };
    (0..count).step_by(rows).flat_map(move |row| {
        (0..pieces).map(move |piece| {
            let byte = piece * most;
            CopyPart {
                gpu: place(gpu, row, byte),
                host: place(host, row, byte),
                size: (size - byte).min(most),
                count: rows.min(count - row),
            }
        })
    })
}

impl Pageable {
    pub(crate) fn new(cuda: &Arc<Cuda>, health: &Arc<Health>) -> Result<Pageable> {
        Ok(Pageable {
            cuda: Arc::clone(cuda),
            health: Arc::clone(health),
            buffers: Arc::default(),
            lent: Mutex::default(),
            returned: PinnedBox::new(cuda, AtomicU64::new(0))?,
        })
    }

    /// Whether the copy of the caller's memory at `at` is for [`Pageable::copy`].
    pub(crate) fn takes(&self, stream: &Stream, at: usize) -> Result<bool> {
        Ok(self.cuda.place_of(at)?.is_none() && !stream.is_capturing()?)
    }

    /// Puts the copy on the stream.
    ///
    /// # Safety
    /// Every element is valid until the copy is done, on `host` for this process, on `gpu` for the GPU. No
    /// two overlap.
    pub(crate) unsafe fn copy(&self, stream: &Stream, copy: &PageableCopy) -> Result<()> {
        if copy.bytes() == 0 {
            return Ok(());
        }
        let loan = Arc::new(self.borrow(stream, copy.bytes())?);
        // SAFETY: the caller vouches for the elements of both sides until the stream has run; the loan holds
        // them all.
        let put = unsafe { self.start(stream, copy.direction, &loan, copy.parts()) };
        if put.is_err() {
            // What has been put on the stream may still use it.
            std::mem::forget(loan);
        }
        put
    }

    /// Copies by this thread, behind what is on the engine's stream: the host's memory is read and written in
    /// the call alone, and a copy into the GPU may still be on its way when it returns. `wait` returns when
    /// the stream has run.
    ///
    /// # Safety
    /// Every element of `host` is valid for this process, of `gpu` for the GPU until the stream has run. No
    /// two overlap.
    pub(crate) unsafe fn copy_in_call(
        &self,
        stream: &Stream,
        copy: &PageableCopy,
        wait: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if copy.bytes() == 0 {
            return Ok(());
        }
        for part in copy.parts() {
            let loan = self.borrow(stream, part.size * part.count)?;
            let (buffer, device) = loan.at();
            let packed = Strided { at: device, stride: part.size };
            let put = match copy.direction {
                // SAFETY: the caller vouches for the elements of both sides; the buffer holds the part and is
                // this call's, and from then on the copy's.
                Direction::IntoGpu => unsafe {
                    part.by_host(buffer, copy.direction);
                    stream.copy_strided(part.gpu, packed, part.size, part.count)
                },
                // SAFETY: the caller vouches for the elements of both sides; the copy into the buffer, which
                // is this call's, is waited for before the buffer is read.
                Direction::OutOfGpu => unsafe {
                    let put =
                        stream.copy_strided(packed, part.gpu, part.size, part.count).and_then(|()| wait());
                    if put.is_ok() {
                        part.by_host(buffer, copy.direction);
                    }
                    put
                },
            };
            match (put, copy.direction) {
                (Ok(()), Direction::OutOfGpu) => {}
                (Ok(()), Direction::IntoGpu) => self.lend(stream, loan)?,
                (Err(e), _) => {
                    // What has been put on the stream may still use it.
                    std::mem::forget(loan);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Leaves the buffer to what is on the stream, until that has run. The stream says so by a word: a call
    /// to the host could wait for other streams' calls.
    fn lend(&self, stream: &Stream, loan: Loan) -> Result<()> {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lent.last + 1;
        // SAFETY: the word lives as long as the streams of its PE; it is read by atomic loads.
        let put =
            unsafe { stream.words(&[MemOp::Write64 { at: self.returned.device_address(), value: number }]) };
        if put.is_err() {
            std::mem::forget(loan);
            return put;
        }
        lent.last = number;
        lent.loans.push_back((number, loan));
        Ok(())
    }

    /// Takes back the buffers that the stream has done with.
    fn take_back(&self) {
        let returned = self.returned.load(Ordering::Acquire);
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        while lent.loans.front().is_some_and(|(number, _)| *number <= returned) {
            lent.loans.pop_front();
        }
    }

    /// # Safety
    /// As for [`Pageable::copy`], for each part.
    unsafe fn start(
        &self,
        stream: &Stream,
        direction: Direction,
        loan: &Arc<Loan>,
        parts: impl Iterator<Item = CopyPart>,
    ) -> Result<()> {
        let (buffer, device) = loan.at();
        for part in parts {
            let CopyPart { gpu, size, count, .. } = part;
            let packed = Strided { at: device, stride: size };
            let held = Arc::clone(loan);
            let by_host = move || {
                // SAFETY: the caller vouches for the host's elements; the buffer holds the part, and the
                // stream's order keeps this call and the copy apart.
                unsafe { part.by_host(buffer, direction) };
                drop(held);
            };
            match direction {
                Direction::IntoGpu => {
                    stream.callback(by_host)?;
                    // SAFETY: the caller vouches for the GPU's elements; the buffer holds the part.
                    unsafe { stream.copy_strided(gpu, packed, size, count) }?;
                }
                Direction::OutOfGpu => {
                    // SAFETY: the caller vouches for the GPU's elements; the buffer holds the part.
                    unsafe { stream.copy_strided(packed, gpu, size, count) }?;
                    stream.callback(by_host)?;
                }
            }
        }
        if direction == Direction::IntoGpu {
            // The last copy reads the buffer.
            let held = Arc::clone(loan);
            stream.callback(move || drop(held))?;
        }
        Ok(())
    }

    /// A buffer for a copy of `bytes`. Where too many are in use, waits until one comes back.
    fn borrow(&self, stream: &Stream, bytes: usize) -> Result<Loan> {
        let len = bytes.clamp(LEAST, MOST).next_power_of_two();
        let report =
            || "for a buffer for a copy between a stream and pageable memory: 32 MiB are in use".to_owned();
        let mut taken = Ok(None);
        self.health.wait(None, &report, &mut || {
            self.take_back();
            taken = stream.query().and_then(|_| self.try_borrow(len));
            !matches!(taken, Ok(None))
        })?;
        let buffer = taken?.expect("waited for");
        Ok(Loan { buffers: Arc::clone(&self.buffers), buffer: Some(buffer) })
    }

    fn try_borrow(&self, len: usize) -> Result<Option<PinnedBox<[u8]>>> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = buffers.spare.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        if let Some((at, _)) = fitting.min_by_key(|(_, buffer)| buffer.len()) {
            let buffer = buffers.spare.swap_remove(at);
            buffers.in_use += buffer.len();
            return Ok(Some(buffer));
        }
        if buffers.in_use + len > IN_USE {
            return Ok(None);
        }
        buffers.in_use += len;
        drop(buffers);
        let made = PinnedBox::filled(&self.cuda, len, 0);
        if made.is_err() {
            self.buffers.lock().unwrap_or_else(PoisonError::into_inner).in_use -= len;
        }
        made.map(Some)
    }
}

impl CopyPart {
    /// The host's share: its elements into the buffer, or out of it.
    ///
    /// # Safety
    /// The host's elements are valid, and the buffer for all of them; nobody else uses either.
    unsafe fn by_host(&self, buffer: usize, direction: Direction) {
        for i in 0..self.count {
            let element = self.host.at.wrapping_add(i.wrapping_mul(self.host.stride));
            let packed = buffer + i * self.size;
            let (from, to) = match direction {
                Direction::IntoGpu => (element, packed),
                Direction::OutOfGpu => (packed, element),
            };
            // SAFETY: per contract; the buffer is memory of its own.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, self.size) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    /// Every byte of a copy is in exactly one part, at its place on both sides, and no part is longer than a
    /// buffer.
    #[test]
    fn parts_cover_a_copy_once() {
        let mut random = Random::new("parts_cover_a_copy_once");
        for _ in 0..400 {
            let most = 64;
            let (size, count) = (1 + random.below(150), 1 + random.below(40));
            let gap = |random: &mut Random| if random.below(2) == 0 { size } else { size + random.below(9) };
            let gpu = Strided { at: 1 << 20, stride: gap(&mut random) };
            let host = Strided { at: 1 << 30, stride: gap(&mut random) };
            let mut seen = Vec::new();
            for part in parts(gpu, host, size, count, most) {
                assert!(part.size * part.count <= most, "{part:?}");
                for i in 0..part.count {
                    for byte in 0..part.size {
                        let place = |side: Strided| side.at + i * side.stride + byte;
                        seen.push((place(part.gpu), place(part.host)));
                    }
                }
            }
            let place = |side: Strided, i: usize| side.at + i / size * side.stride + i % size;
            let all: Vec<_> = (0..size * count).map(|i| (place(gpu, i), place(host, i))).collect();
            assert!(seen == all, "{count} elements of {size} bytes, {gpu:?}, {host:?}");
        }
    }
}
