//! The near PEs: those whose memory is mapped here. A set of numbers, and where each one's copy of an address
//! lies.
//!
//! A near PE's memory lies in the window of addresses by its slot, so its copy is
//! `(slot - own slot) * stride` away. Kernels and the host's inline path have PE numbers, not slots. There
//! are three [`NearForm`]s, from the cheapest:
//!
//! * A **run** of consecutive PEs: slots differ as numbers do. One comparison and one multiply-add, of 32
//!   bits in kernels: distances by multiplication are multiples of [`RUSHMEM_NEAR_UNIT`].
//! * **Steps**: every k-th PE, as where hosts are dealt out in turn. Slots differ as numbers divided by k,
//!   and a division by a constant of what it divides is a multiplication modulo a power of two: with
//!   `k = 2^shift * odd`, `inverse` the inverse of `odd` modulo 2^32, and `d = pe - first`, `(d * inverse)`
//!   rotated right by `shift` is `d / k` where k divides d, and more than any index where it does not
//!   (Granlund and Montgomery, "Division by invariant integers using multiplication", section 9). The
//!   distance has the run's form, `(pe - me) * apart` modulo 2^64, with
//!   `apart = (stride >> shift) * inverse of odd`. One multiplication more than a run.
//! * A **table** of distances for everything else: irregular sets, and windows that are not so far apart
//!   (more PEs in a process than its addresses hold such windows for). One load.
//!
//! Whatever the shape, the run of near PEs around this one is asked first: it is all that most jobs have.

use std::fmt;

use rushmem_abi::c::RUSHMEM_NEAR_NOT;
use rushmem_abi::device::{RUSHMEM_NEAR_UNIT, RUSHMEM_NOT_NEAR as NOT_NEAR};

/// Kernels and the host's clients read one table.
const _: () = assert!(NOT_NEAR == RUSHMEM_NEAR_NOT);

/// Every k-th PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) first: i32,
    pub(crate) count: u32,
    /// k.
    pub(crate) step: u32,
    pub(crate) inverse: u32,
    pub(crate) shift: u32,
}

impl Steps {
    /// `pe`'s place among them.
    fn index(&self, pe: i32) -> Option<u32> {
        let times = (pe as u32).wrapping_sub(self.first as u32).wrapping_mul(self.inverse);
        Some(times.rotate_right(self.shift)).filter(|index| *index < self.count)
    }
}

/// The form of the set of near PEs: how a PE is tested for membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NearForm {
    Run,
    Steps(Steps),
    /// By PE of the job: the distance of its copy, or [`NOT_NEAR`].
    Table(Box<[u64]>),
}

/// See the top of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Near {
    me: i32,
    /// Consecutive near PEs around this one, all there are where a multiplication serves them: first and
    /// number.
    run: (i32, i32),
    /// What a difference of PE numbers is multiplied by, in the run and in steps.
    apart: u64,
    shape: NearForm,
    /// In order, with their slots.
    pes: Vec<(i32, usize)>,
}

impl Near {
    /// PE `me` of `n` maps `pes`, in order, each with its slot in a window of parts `stride` bytes long; `me`
    /// is one of them.
    pub(crate) fn new(me: usize, n: usize, pes: &[(usize, usize)], stride: u64) -> Near {
        let own = pes.iter().position(|(pe, _)| *pe == me).expect("a PE maps its own memory");
        let follows = |i: &usize| pes[*i].0 == pes[i - 1].0 + 1;
        let first = (1..=own).rev().take_while(follows).last().map_or(own, |i| i - 1);
        let last = (own + 1..pes.len()).take_while(follows).last().unwrap_or(own);
        // A PE alone is at distance 0 by any multiplication.
        let far_enough = stride % RUSHMEM_NEAR_UNIT == 0;
        let run = if far_enough { (pes[first].0 as i32, (last - first + 1) as i32) } else { (me as i32, 1) };
        let away = |slot: usize| (slot as u64).wrapping_sub(pes[own].1 as u64).wrapping_mul(stride);
        let (shape, apart) = if run.1 as usize == pes.len() {
            (NearForm::Run, if far_enough { stride } else { 0 })
        } else if let Some((steps, apart)) = steps(pes, stride) {
            (NearForm::Steps(steps), apart)
        } else {
            let mut table = vec![NOT_NEAR; n];
            pes.iter().for_each(|(pe, slot)| table[*pe] = away(*slot));
            (NearForm::Table(table.into()), if far_enough { stride } else { 0 })
        };
        let pes = pes.iter().map(|(pe, slot)| (*pe as i32, *slot)).collect();
        Near { me: me as i32, run, apart, shape, pes }
    }

    /// Consecutive near PEs around this one: first and number. All near PEs where the shape is a run.
    pub(crate) fn run(&self) -> (i32, i32) {
        self.run
    }

    /// What kernels multiply a difference of PE numbers by.
    pub(crate) fn apart(&self) -> u64 {
        self.apart
    }

    /// The form of the set.
    pub(crate) fn shape(&self) -> &NearForm {
        &self.shape
    }

    /// The lowest of them.
    pub(crate) fn first(&self) -> i32 {
        self.pes[0].0
    }

    /// How many there are, this PE included.
    pub(crate) fn count(&self) -> usize {
        self.pes.len()
    }

    /// What is added to this PE's address for `pe`'s copy, modulo 2^64; `None` where `pe` is not near, or no
    /// PE.
    #[inline]
    pub(crate) fn distance(&self, pe: i32) -> Option<u64> {
        if (pe.wrapping_sub(self.run.0) as u32) < self.run.1 as u32 {
            Some(self.affine(pe))
        } else {
            self.distance_apart(pe)
        }
    }

    #[inline]
    fn affine(&self, pe: i32) -> u64 {
        ((i64::from(pe) - i64::from(self.me)) as u64).wrapping_mul(self.apart)
    }

    /// The same for a PE outside the run.
    fn distance_apart(&self, pe: i32) -> Option<u64> {
        match &self.shape {
            NearForm::Run => None,
            NearForm::Steps(steps) => steps.index(pe).map(|_| self.affine(pe)),
            NearForm::Table(table) => {
                table.get(usize::try_from(pe).ok()?).copied().filter(|distance| *distance != NOT_NEAR)
            }
        }
    }

    /// Whether `pe`'s memory is mapped here.
    #[inline]
    pub(crate) fn contains(&self, pe: i32) -> bool {
        self.distance(pe).is_some()
    }

    /// The slot of a near PE.
    pub(crate) fn slot(&self, pe: i32) -> Option<usize> {
        let at = self.pes.binary_search_by_key(&pe, |(pe, _)| *pe).ok()?;
        Some(self.pes[at].1)
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pes = ranges(&self.pes);
        match self.shape {
            NearForm::Run => write!(f, "{pes}, a run"),
            NearForm::Steps(Steps { step, .. }) => write!(f, "{pes}, {step} apart"),
            NearForm::Table(_) => write!(f, "{pes}, by a table"),
        }
    }
}

/// `PE 2`, `PEs 0-3, 7` for numbers in order.
fn ranges(pes: &[(i32, usize)]) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &(pe, _) in pes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == pe => *last = pe,
            _ => runs.push((pe, pe)),
        }
    }
    let text = |(first, last): &(i32, i32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let texts: Vec<String> = runs.iter().map(text).collect();
    format!("{} {}", if pes.len() == 1 { "PE" } else { "PEs" }, texts.join(", "))
}

/// The steps in which both numbers and slots go on, and what a difference of numbers is multiplied by.
fn steps(pes: &[(usize, usize)], stride: u64) -> Option<(Steps, u64)> {
    let [(first, slot), (second, next), ..] = *pes else { return None };
    let (step, gap) = (second - first, next - slot);
    if !pes.windows(2).all(|two| (two[1].0 - two[0].0, two[1].1 - two[0].1) == (step, gap)) {
        return None;
    }
    let (shift, bytes) = (step.trailing_zeros(), gap as u64 * stride);
    if bytes.trailing_zeros() < shift + RUSHMEM_NEAR_UNIT.trailing_zeros() {
        return None;
    }
    let inverse = inverse((step >> shift) as u64);
    let steps = Steps {
        first: first as i32,
        count: pes.len() as u32,
        step: step as u32,
        inverse: inverse as u32,
        shift,
    };
    Some((steps, (bytes >> shift).wrapping_mul(inverse)))
}

/// What an odd number is to be multiplied by for 1, modulo 2^64, and so modulo 2^32.
fn inverse(odd: u64) -> u64 {
    // Newton: an odd number is its own inverse modulo 8, and each turn doubles the bits that are right.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
#[path = "near_tests.rs"]
mod tests;
