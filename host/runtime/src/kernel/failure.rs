//! What is said of a kernel that gave up, and of those that may have: who, where in the launch, and what was
//! waited or asked for.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{lock, Common};
use crate::device_state::place_of;
use crate::error::{err, Error};
use rushmem_abi::device::{
    StallRecord, RUSHMEM_DEVICE_FAIL_BAD_ADDRESS, RUSHMEM_DEVICE_FAIL_BAD_PE, RUSHMEM_DEVICE_FAIL_BROKEN,
    RUSHMEM_DEVICE_FAIL_BUSY, RUSHMEM_DEVICE_FAIL_CARD_WORD, RUSHMEM_DEVICE_FAIL_MISMATCH,
    RUSHMEM_DEVICE_FAIL_QUEUE, RUSHMEM_DEVICE_FAIL_TEAM, RUSHMEM_DEVICE_FAIL_TIMEOUT,
    RUSHMEM_DEVICE_FAIL_TURNS, RUSHMEM_DEVICE_FAIL_UNMAPPED, RUSHMEM_STALL_ADDRESS, RUSHMEM_STALL_BUSY,
    RUSHMEM_STALL_MISMATCH, RUSHMEM_STALL_REFUSED, RUSHMEM_STALL_UNREACHED,
};

/// The latest records that kernels have made, oldest first. Printing a record takes it from the device; a
/// kernel that gives up later still needs it for its error: the monitor often prints the record before the
/// driver reports the kernel's end.
#[derive(Default)]
pub(super) struct Printed(Mutex<VecDeque<(Instant, StallRecord)>>);

impl Printed {
    /// More threads than this do not wait at once for different reasons that anybody would tell apart.
    const MOST: usize = 64;

    fn keep(&self, records: impl IntoIterator<Item = StallRecord>) {
        let mut kept = lock(&self.0);
        for record in records {
            if kept.len() == Self::MOST {
                kept.pop_front();
            }
            kept.push_back((Instant::now(), record));
        }
    }

    /// The latest record of the thread at `place` that fits.
    fn latest(&self, place: &str, fits: impl Fn(&StallRecord) -> bool) -> Option<StallRecord> {
        let kept = lock(&self.0);
        kept.iter().rev().map(|(_, record)| *record).find(|record| fits(record) && place_of(record) == place)
    }

    /// The latest record of any thread that fits, if it is no older than that.
    fn of_another(&self, age: Duration, fits: impl Fn(&StallRecord) -> bool) -> Option<StallRecord> {
        let kept = lock(&self.0);
        let young = kept.iter().rev().take_while(|(at, _)| at.elapsed() <= age);
        young.map(|(_, record)| *record).find(fits)
    }
}

impl Common {
    /// Prints what kernels have reported since the last call.
    pub(super) fn print_stalls(&self) {
        let records = self.state.take_stalls();
        for record in &records {
            log::warn!("{}", self.state.describe(self.health.who(), record));
        }
        self.printed.keep(records);
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

    /// The error that a kernel's code of `RUSHMEM_DEVICE_FAIL_*` means; `place` is empty or says where in the
    /// launch, `at` is empty or says where in the source.
    pub(super) fn gave_up(&self, head: &str, code: u32, place: &str, at: &str) -> Error {
        let here = format!("{place}{at}");
        match code {
            RUSHMEM_DEVICE_FAIL_BROKEN => self.broken(head),
            RUSHMEM_DEVICE_FAIL_TIMEOUT => {
                let limit = self.config.wait_timeout.unwrap_or_default().as_secs_f64();
                let what = self.waited_for(place);
                let what = what.map_or(String::new(), |what| format!(", {what}"));
                err!(
                    TIMEOUT,
                    "{head}: a thread{here} has waited longer than RUSHMEM_WAIT_TIMEOUT allows, {limit} s{what}"
                )
            }
            RUSHMEM_DEVICE_FAIL_BAD_ADDRESS => {
                let what = self.record(place, |record| record.cmp == RUSHMEM_STALL_ADDRESS);
                let what = what.unwrap_or_else(|| "an address that is not symmetric memory".into());
                err!(
                    BAD_ADDRESS,
                    "{head}: a thread{here} asks for {what}; use what alloc or register returned on this PE, or an address \
                     within it"
                )
            }
            RUSHMEM_DEVICE_FAIL_BAD_PE => err!(BAD_PE, "{head}: a PE that does not exist was addressed{here}"),
            RUSHMEM_DEVICE_FAIL_UNMAPPED => err!(
                UNSUPPORTED,
                "{head}: a PE was addressed{here} whose memory is not mapped here and to which no network leads; \
                 rushmem-info says how each PE is reached"
            ),
            RUSHMEM_DEVICE_FAIL_MISMATCH => {
                let what = self.record(place, |record| record.cmp == RUSHMEM_STALL_MISMATCH);
                let what = what.unwrap_or_else(|| "the members of a team make different collectives".into());
                err!(MISMATCH, "{head}{here}: {what}")
            }
            RUSHMEM_DEVICE_FAIL_BUSY => {
                let what = self.record(place, |record| record.cmp == RUSHMEM_STALL_BUSY);
                let what = what.unwrap_or_else(|| "a collective was begun in a slot set that is in use".into());
                // On a GPU nothing runs after a failure.
                let left = match self.failed.load(Ordering::Acquire) {
                    true => "; or a launch that failed has left it so: its members are in different phases for good, use \
                             another slot set or team",
                    false => "",
                };
                err!(BUSY, "{head}{here}: {what}{left}")
            }
            RUSHMEM_DEVICE_FAIL_QUEUE => {
                let what = self.record(place, |record| record.cmp == RUSHMEM_STALL_REFUSED);
                let what = what.unwrap_or_else(|| "the network card refused a request".into());
                err!(IO, "{head}{here}: {what}")
            }
            RUSHMEM_DEVICE_FAIL_CARD_WORD => {
                match self.record(place, |record| record.cmp == RUSHMEM_STALL_UNREACHED) {
                    Some(what) => err!(
                        UNSUPPORTED,
                        "{head}: a thread{here} asks for {what}; the logs of all PEs say why (RUSHMEM_LOG=info), ulimit -l may \
                         be too low, and with RUSHMEM_TRANSPORT=ucx the targets update such words"
                    ),
                    None => err!(
                        UNSUPPORTED,
                        "{head}: it was compiled without queues and asks{here} for a card_word, which network cards update in \
                         this job; compile it with -DRUSHMEM_NET_QUEUE (and without -DRUSHMEM_NO_NET_QUEUE), or leave out \
                         RUSHMEM_TRANSPORT=queue, so that the targets update such words, for all kernels alike"
                    ),
                }
            }
            RUSHMEM_DEVICE_FAIL_TEAM => err!(
                INVALID_ARGUMENT,
                "{head}: a collective was given{here} a team of another world, one that was freed, or a slot set that \
                 the team does not have (slot_sets())"
            ),
            RUSHMEM_DEVICE_FAIL_TURNS => err!(
                LAUNCH,
                "{head}: blocks were to meet{here}, by sync_grid() or a call at grid scope, in a launch whose blocks take \
                 turns; launch no more than max_blocks says, without in_turns (CUDA: cooperatively)"
            ),
            code => err!(LAUNCH, "{head}: gave up{here} with code {code}"),
        }
    }

    /// What the thread at `place`, or another one, has waited for.
    pub(super) fn waited_for(&self, place: &str) -> Option<String> {
        self.record(place, |record| record.cmp != RUSHMEM_STALL_ADDRESS)
    }

    /// What the thread that gave up at `place` waited for; where it found no free record, what another one
    /// has waited for meanwhile.
    fn record(&self, place: &str, fits: impl Fn(&StallRecord) -> bool) -> Option<String> {
        /// For who reports, and who reads it: a GPU that processes share leaves either waiting for seconds.
        const LATE: Duration = Duration::from_secs(30);
        self.printed.keep(self.state.take_stalls());
        let age = self.config.wait_timeout.unwrap_or_default() + LATE;
        let record = self.printed.latest(place, &fits).or_else(|| self.printed.of_another(age, &fits));
        record.map(|record| self.state.waits_for(&record))
    }

    pub(super) fn broken(&self, head: &str) -> Error {
        match self.health.check() {
            Err(why) => why.context(format!("{head} was ended")),
            Ok(()) => err!(INTERNAL, "{head} was ended, though the job is whole"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of many threads that wait alike few find a free record, and the one that gives up may have none: it is
    /// said what others waited for, but not what one waited for long ago.
    #[test]
    fn a_thread_without_a_record_tells_of_another_s() {
        let printed = Printed::default();
        let of =
            |thread: u32, from_pe: i32| StallRecord { thread: [thread, 0, 0], from_pe, ..Default::default() };
        printed.keep([of(1, 10)]);
        std::thread::sleep(Duration::from_millis(60));
        printed.keep([of(2, 20), of(3, 30)]);
        let place = |thread| place_of(&of(thread, 0));
        assert_eq!(printed.latest(&place(2), |_| true), Some(of(2, 20)));
        assert_eq!(printed.latest(&place(9), |_| true), None);
        assert_eq!(printed.of_another(Duration::from_secs(900), |_| true), Some(of(3, 30)));
        assert_eq!(printed.of_another(Duration::from_secs(900), |r| r.from_pe == 10), Some(of(1, 10)));
        assert_eq!(printed.of_another(Duration::from_millis(50), |r| r.from_pe == 10), None);
    }
}
