//! What is kept of many timed samples. A sample is the mean of one batch of operations, so `p99` says how bad
//! the worst batches were (other programs, interrupts), not how bad single operations were; the median is the
//! figure to compare, because a batch that was interrupted belongs to the machine and not to the operation.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::job::Result;

/// Order statistics of samples, in the unit of the row that holds them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Half of the samples are below.
    pub(crate) median: f64,
    /// The quickest sample.
    pub(crate) min: f64,
    /// One sample in a hundred is above.
    pub(crate) p99: f64,
    /// How many there were.
    pub(crate) samples: usize,
}

impl Summary {
    /// A figure that stands alone.
    pub(crate) fn single(value: f64) -> Summary {
        Summary { median: value, min: value, p99: value, samples: 0 }
    }

    /// How far the samples lie apart: from the least to the 99th percentile, as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        match self.median {
            0.0 => 0.0,
            median => (self.p99 - self.min) / median,
        }
    }

    /// Sorts the samples; none gives none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Option<Summary> {
        samples.sort_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        let rank = |q: f64| samples[(q * last as f64).round() as usize];
        Some(Summary { median: rank(0.5), min: samples[0], p99: rank(0.99), samples: samples.len() })
    }
}

/// A batch: does its operation as often as its argument says. It holds the loop itself, as a program would:
/// the compiler then does the same for the loops of both sides of a comparison.
pub(crate) trait Batch: FnMut(u64) -> Result<()> {}
impl<F: FnMut(u64) -> Result<()>> Batch for F {}

/// Nanoseconds that one of `n` repetitions took.
fn time_each(n: u64, batch: &mut impl Batch) -> Result<f64> {
    let start = Instant::now();
    batch(n)?;
    Ok(start.elapsed().as_nanos() as f64 / n as f64)
}

/// How often to repeat an operation so that a batch takes about `batch_ns`, at least once.
pub(crate) fn calibrate(batch_ns: f64, batch: &mut impl Batch) -> Result<u64> {
    let mut n = 1;
    loop {
        let each = time_each(n, batch)?.max(0.1);
        if each * n as f64 >= batch_ns / 4.0 || n >= 1 << 30 {
            return Ok(((batch_ns / each) as u64).max(1));
        }
        n *= 4;
    }
}

/// Samples two operations turn by turn, so that what the machine does meanwhile (clock speed, neighbours)
/// meets both alike. Gives nanoseconds for one repetition of each.
pub(crate) fn interleave(
    samples: usize,
    repetitions: u64,
    mut ours: impl Batch,
    mut reference: impl Batch,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut a, mut b) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
    // One untimed batch of each: page faults, caches, branch predictors.
    ours(repetitions)?;
    reference(repetitions)?;
    for turn in 0..samples {
        // Who goes first changes, so that neither always runs in the other's wake.
        if turn % 2 == 0 {
            a.push(time_each(repetitions, &mut ours)?);
            b.push(time_each(repetitions, &mut reference)?);
        } else {
            b.push(time_each(repetitions, &mut reference)?);
            a.push(time_each(repetitions, &mut ours)?);
        }
    }
    Ok((a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Failure;

    #[test]
    fn summary_of_nothing_is_nothing() {
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn summary_orders_whatever_came() {
        let got = Summary::of((0..=100).rev().map(f64::from).collect()).expect("there are samples");
        assert_eq!(got, Summary { median: 50.0, min: 0.0, p99: 99.0, samples: 101 });
        let one = Summary::of(vec![7.5]).expect("there is a sample");
        assert_eq!(one, Summary { median: 7.5, min: 7.5, p99: 7.5, samples: 1 });
    }

    #[test]
    fn both_operations_get_the_same_number_of_turns() {
        let (mut a, mut b) = (0, 0);
        let count = |total: &mut u64, n| {
            *total += n;
            Ok(())
        };
        let (x, y) = interleave(5, 3, |n| count(&mut a, n), |n| count(&mut b, n)).expect("nothing fails");
        assert_eq!((x.len(), y.len()), (5, 5));
        assert_eq!((a, b), (6 * 3, 6 * 3));
    }

    #[test]
    fn a_failing_batch_ends_the_measurement() {
        let mut fails = |_| Err(Failure::new("no"));
        assert!(calibrate(1e3, &mut fails).is_err());
        assert!(interleave(5, 3, |_| Ok(()), fails).is_err());
    }
}
