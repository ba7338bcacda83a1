//! Warp collectives: which lanes have met. Lanes that hand in the same mask meet in one exchange; it is
//! complete once every lane of the mask that has not exited has arrived. Several may be open in one warp
//! (divergent halves with masks of their own), and a released lane may run ahead of another that has yet to
//! read, so an exchange is kept until all its lanes have asked for something else.

use std::ffi::{c_char, CStr};

/// One meeting of lanes.
pub(crate) struct Exchange {
    mask: u32,
    arrived: u32,
    /// Released lanes that may still read `values`; zero for one that is open or unused.
    readers: u32,
    open: bool,
    what: *const c_char,
    values: [u64; 32],
}

/// Lanes that may go on, and what they see.
pub(crate) struct Released {
    pub(crate) lanes: u32,
    /// The lanes that were to meet.
    pub(crate) mask: u32,
    pub(crate) values: *const u64,
}

/// One warp.
#[derive(Default)]
pub(crate) struct Warp {
    live: u32,
    /// As many as were ever in use at once: at most one for each lane.
    #[expect(clippy::vec_box, reason = "lanes hold pointers to the values while the list grows")]
    exchanges: Vec<Box<Exchange>>,
}

impl Warp {
    /// A fresh warp of the first `lanes` lanes; keeps its memory.
    pub(crate) fn reset(&mut self, lanes: u32) {
        self.live = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
        for exchange in &mut self.exchanges {
            (exchange.open, exchange.readers) = (false, 0);
        }
    }

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// `lane` hands `value` in. `Err` is a text: the lanes can never meet as they are.
    pub(crate) fn arrive(
        &mut self,
        lane: u32,
        mask: u32,
        value: u64,
        what: *const c_char,
    ) -> Result<Option<Released>, String> {
        if mask >> lane & 1 == 0 {
            return Err(format!(
                "lane {lane} calls {} with mask {mask:#010x}, which it is not in",
                name(what)
            ));
        }
        let index = match self.exchanges.iter().position(|e| e.open && e.mask == mask) {
            Some(index) => index,
            None => self.open(mask, what),
        };
        let exchange = &mut self.exchanges[index];
        if exchange.what != what && name(exchange.what) != name(what) {
            return Err(format!(
                "lanes of one warp meet under mask {mask:#010x} in different operations: lanes {:#010x} in {}, lane \
                 {lane} in {}",
                exchange.arrived,
                name(exchange.what),
                name(what)
            ));
        }
        exchange.arrived |= 1 << lane;
        exchange.values[lane as usize] = value;
        Ok(exchange.complete(self.live))
    }

    /// `lane` has left the kernel; what waits for it alone goes on.
    pub(crate) fn exit(&mut self, lane: u32, mut release: impl FnMut(Released)) {
        self.live &= !(1 << lane);
        for exchange in &mut self.exchanges {
            if exchange.open {
                if let Some(released) = exchange.complete(self.live) {
                    release(released);
                }
            }
        }
    }

    /// `lane` has read what it was released with.
    pub(crate) fn has_read(&mut self, lane: u32) {
        for exchange in &mut self.exchanges {
            exchange.readers &= !(1 << lane);
        }
    }

    fn open(&mut self, mask: u32, what: *const c_char) -> usize {
        let index = match self.exchanges.iter().position(|e| !e.open && e.readers == 0) {
            Some(index) => index,
            None => {
                let unused = Exchange { mask: 0, arrived: 0, readers: 0, open: false, what, values: [0; 32] };
                self.exchanges.push(Box::new(unused));
                self.exchanges.len() - 1
            }
        };
        let exchange = &mut self.exchanges[index];
        (exchange.mask, exchange.arrived, exchange.open, exchange.what) = (mask, 0, true, what);
        index
    }
}

impl Exchange {
    fn complete(&mut self, live: u32) -> Option<Released> {
        if self.mask & live & !self.arrived != 0 {
            return None;
        }
        self.open = false;
        self.readers = self.arrived;
        Some(Released { lanes: self.arrived, mask: self.mask, values: self.values.as_ptr() })
    }
}

fn name(what: *const c_char) -> String {
    // SAFETY: `what` is a string literal of the kernel's shared object, which stays loaded during the launch.
    unsafe { CStr::from_ptr(what) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: *const c_char = c"__syncwarp()".as_ptr();
    const BALLOT: *const c_char = c"__ballot_sync()".as_ptr();

    fn arrive(warp: &mut Warp, lane: u32, mask: u32) -> Option<u32> {
        warp.has_read(lane);
        warp.arrive(lane, mask, u64::from(lane), SYNC).expect("a proper call").map(|released| released.lanes)
    }

    #[test]
    fn disjoint_masks_do_not_wait_for_each_other() {
        let mut warp = Warp::default();
        warp.reset(32);
        assert_eq!(arrive(&mut warp, 0, 0b0011), None);
        assert_eq!(arrive(&mut warp, 2, 0b1100), None);
        assert_eq!(arrive(&mut warp, 3, 0b1100), Some(0b1100));
        assert_eq!(arrive(&mut warp, 1, 0b0011), Some(0b0011));
    }

    #[test]
    fn exited_and_missing_lanes_are_not_waited_for() {
        let mut warp = Warp::default();
        warp.reset(3);
        assert_eq!(arrive(&mut warp, 0, u32::MAX), None);
        assert_eq!(arrive(&mut warp, 1, u32::MAX), None);
        let mut released = vec![];
        warp.exit(2, |r| released.push(r.lanes));
        assert_eq!(released, [0b011]);
        assert_eq!(warp.live(), 0b011);
    }

    #[test]
    fn values_stay_while_a_lane_may_read_them() {
        let mut warp = Warp::default();
        warp.reset(2);
        assert!(warp.arrive(0, 3, 10, SYNC).expect("proper").is_none());
        let first = warp.arrive(1, 3, 11, SYNC).expect("proper").expect("complete");
        // Lane 1 runs ahead through two exchanges of its own before lane 0 reads.
        for value in [20, 21] {
            warp.has_read(1);
            warp.arrive(1, 2, value, SYNC).expect("proper").expect("complete");
        }
        // SAFETY: the exchange is still held for lane 0.
        let seen = unsafe { std::slice::from_raw_parts(first.values, 2) };
        assert_eq!(seen, [10, 11]);
    }

    #[test]
    fn misuse_is_told() {
        let mut warp = Warp::default();
        warp.reset(32);
        assert!(warp.arrive(4, 0xf, 0, SYNC).is_err_and(|text| text.contains("which it is not in")));
        assert_eq!(arrive(&mut warp, 0, 3), None);
        assert!(warp.arrive(1, 3, 0, BALLOT).is_err_and(|text| text.contains("different operations")));
    }
}
