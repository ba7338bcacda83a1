//! Reading variables so that every complaint names the variable, its value and a way out.

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use super::Ranks;

/// A look-up; empty values count as unset.
pub(super) struct Vars<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

pub(super) fn wrong(text: String) -> BootError {
    BootError::new(BootErrorKind::Environment, text)
}

impl Vars<'_> {
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|n| self.has(n))
    }

    /// The first of `names` that is set.
    pub(super) fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|n| Some((*n, self.get(n)?)))
    }

    /// `A=1 B=2` of those that are set.
    pub(super) fn show(&self, names: &[&str]) -> String {
        let set = names.iter().filter_map(|n| Some(format!("{n}={}", self.get(n)?)));
        set.collect::<Vec<_>>().join(" ")
    }

    /// A variable that must be set because others of `set` are.
    pub(super) fn need(&self, name: &str, set: &[&str], remedy: &str) -> Result<String> {
        self.get(name)
            .ok_or_else(|| wrong(format!("{name} is not set though {} is: {remedy}", self.show(set))))
    }

    /// A number that must be one if set.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str, remedy: &str) -> Result<Option<T>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let kind = std::any::type_name::<T>();
        text.parse()
            .map(Some)
            .map_err(|_| wrong(format!("{name}={text} is not a whole number ({kind}): {remedy}")))
    }

    /// Rank and number of ranks, which must both be there and fit; local ones if they are there.
    pub(super) fn ranks(&self, rank: &str, size: &str, local: [&str; 2], remedy: &str) -> Result<Ranks> {
        let set = [rank, size];
        self.need(rank, &set, remedy)?;
        self.need(size, &set, remedy)?;
        let (r, n): (Option<u32>, Option<u32>) = (self.number(rank, remedy)?, self.number(size, remedy)?);
        let (Some(r), Some(n)) = (r, n) else { return Err(wrong(format!("{} vanished", self.show(&set)))) };
        if r >= n {
            return Err(wrong(format!("{rank}={r} is not below {size}={n}: {remedy}")));
        }
        let (local_rank, local_ranks) = (self.number(local[0], remedy)?, self.number(local[1], remedy)?);
        if let (Some(lr), Some(ln)) = (local_rank, local_ranks) {
            if lr >= ln || ln > n {
                return Err(wrong(format!("{} do not fit {size}={n}: {remedy}", self.show(&local))));
            }
        }
        Ok(Ranks { rank: r, n_ranks: n, local_rank, local_ranks })
    }
}
