//! What posting costs a kernel, by each back end: puts of one word, back to back. Batches are smaller than
//! the ring and the queues, so that nobody waits for a slot, and the clock runs while a batch is posted; and
//! once more until all of it has arrived, for which the proxy thread, or the card, has to keep up.

use rushmem::{Kernel, Launch};

use super::pair::Pair;
use crate::job::Result;

/// Puts of a batch: half of what RUSHMEM_RING_SLOTS and RUSHMEM_QUEUE_SLOTS have by default.
const BATCH: u64 = 512;
/// Batches of a sample.
const BATCHES: u64 = 10;

/// What the sample's kernel found.
pub(super) struct Posting {
    /// Millions in a second, until the last is posted.
    pub(super) posted: Vec<f64>,
    /// And until all have arrived.
    pub(super) arrived: Vec<f64>,
}

/// By the kernel `post` of [`KERNEL`].
pub(super) fn measure(pair: &Pair<'_>, kernel: &Kernel<'_>, samples: u32) -> Result<Posting> {
    let words = pair.world.alloc::<u64>(BATCH as usize)?;
    let spent = pair.world.alloc::<u64>(2)?;
    let mut found = Posting { posted: Vec::new(), arrived: Vec::new() };
    let other = pair.other.number() as i32;
    // The first is not counted.
    for sample in 0..=u64::from(samples) {
        let base = pair.salt.wrapping_add(sample * BATCH * BATCHES);
        pair.world.barrier_all()?;
        if pair.first {
            // SAFETY: the kernel writes words that outlive it, and that nobody reads meanwhile.
            unsafe { kernel.launch(Launch::new(1, 1), (&words, other, BATCHES, BATCH, base, &spent)) }?;
            pair.world.synchronize()?;
            let rates =
                spent.to_vec()?.into_iter().map(|ns| (BATCH * BATCHES) as f64 * 1e3 / ns.max(1) as f64);
            let [posted, arrived] = rates.collect::<Vec<_>>()[..] else { unreachable!("two words") };
            if sample > 0 {
                found.posted.push(posted);
                found.arrived.push(arrived);
            }
        }
        pair.world.barrier_all()?;
        if !pair.first {
            let last = base.wrapping_add((BATCHES - 1) * BATCH);
            let wanted: Vec<u64> = (0..BATCH).map(|i| last.wrapping_add(i)).collect();
            pair.holds("puts of one word", words.to_vec()?, &wanted)?;
        }
    }
    pair.world.barrier_all()?;
    words.free()?;
    spent.free()?;
    Ok(found)
}

/// The kernel: nanoseconds of posting, and until all had arrived.
pub(super) const KERNEL: &str = r#"
extern "C" __global__ void post(uint64_t *words, int pe, uint64_t batches, uint64_t batch, uint64_t base,
                                uint64_t *spent) {
  uint64_t posted = 0, arrived = 0;
  for (uint64_t b = 0; b < batches; ++b) {
    const uint64_t begin = rushmem::impl::now_ns();
    for (uint64_t i = 0; i < batch; ++i) rushmem::p(words + i, base + b * batch + i, pe);
    posted += rushmem::impl::now_ns() - begin;
    rushmem::quiet();
    arrived += rushmem::impl::now_ns() - begin;
  }
  spent[0] = posted;
  spent[1] = arrived;
}
"#;
