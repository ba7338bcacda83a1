//! What is said of a kernel that gave up, and of those that may have: who, where in the launch, and what was waited or asked for.

use super::{lock, Common};
use crate::device_state::place_of;
use crate::error::{err, Error};
use rushmem_abi::device::{
    StallRecord, RUSHMEM_DEVICE_FAIL_BAD_ADDRESS, RUSHMEM_DEVICE_FAIL_BAD_PE, RUSHMEM_DEVICE_FAIL_BROKEN,
    RUSHMEM_DEVICE_FAIL_TIMEOUT, RUSHMEM_DEVICE_FAIL_UNMAPPED, RUSHMEM_STALL_ADDRESS,
};

impl Common {
    pub(super) fn print_stalls(&self) {
        for text in self.state.drain_stalls(self.health.who()) {
            log::warn!("{text}");
        }
    }

    pub(super) fn note_launch(&self, kernel: &str, source: &str) {
        /// More would be no help.
        const MOST: usize = 8;
        let mut launched = lock(&self.launched);
        if launched.len() < MOST
            && !launched.iter().any(|name| name.starts_with(kernel) && name.ends_with(source))
        {
            log::debug!("{}: first launch of kernel `{kernel}` ({source})", self.health.who());
            launched.push(format!("{kernel}` ({source}"));
        }
    }

    /// What begins every text about a failure of `kernel`.
    pub(super) fn head(&self, kernel: &str, source: &str) -> String {
        format!("{}: kernel `{kernel}` ({source})", self.health.who())
    }

    /// The error that a kernel's code of `RUSHMEM_DEVICE_FAIL_*` means; `place` is empty or says where in the launch.
    pub(super) fn gave_up(&self, head: &str, code: u32, place: &str) -> Error {
        match code {
            RUSHMEM_DEVICE_FAIL_BROKEN => self.broken(head),
            RUSHMEM_DEVICE_FAIL_TIMEOUT => {
                let limit = self.config.wait_timeout.unwrap_or_default().as_secs_f64();
                let what = self.record(place, |record| record.cmp != RUSHMEM_STALL_ADDRESS);
                let what = what.map_or(String::new(), |what| format!(", {what}"));
                err!(
                    TIMEOUT,
                    "{head}: a thread{place} has waited longer than RUSHMEM_WAIT_TIMEOUT allows, {limit} s{what}"
                )
            }
            RUSHMEM_DEVICE_FAIL_BAD_ADDRESS => {
                let what = self.record(place, |record| record.cmp == RUSHMEM_STALL_ADDRESS);
                let what = what.unwrap_or_else(|| "an address that is none of symmetric memory".into());
                err!(
                    BAD_ADDRESS,
                    "{head}: a thread{place} asks for {what}; use what alloc or register returned on this PE, or an address \
                     within it"
                )
            }
            RUSHMEM_DEVICE_FAIL_BAD_PE => err!(BAD_PE, "{head}: a PE that does not exist was addressed{place}"),
            RUSHMEM_DEVICE_FAIL_UNMAPPED => err!(
                UNSUPPORTED,
                "{head}: a PE was addressed{place} whose memory is not mapped here and to which no network leads; \
                 rushmem-info says how each PE is reached"
            ),
            code => err!(LAUNCH, "{head}: gave up{place} with code {code}"),
        }
    }

    /// What a thread that has given up at `place` waited for, or another one at the same time.
    pub(super) fn record(&self, place: &str, of_that_kind: impl Fn(&StallRecord) -> bool) -> Option<String> {
        let records = self.state.take_stalls();
        let mut fitting = records.iter().filter(|record| of_that_kind(record));
        let first = fitting.clone().next();
        fitting.find(|record| place_of(record) == place).or(first).map(|record| self.state.waits_for(record))
    }

    pub(super) fn broken(&self, head: &str) -> Error {
        match self.health.check() {
            Err(why) => why.context(format!("{head} was ended")),
            Ok(()) => err!(INTERNAL, "{head} was ended, though the job is whole"),
        }
    }
}
