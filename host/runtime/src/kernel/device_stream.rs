//! What the list of a world's streams asks of one, whatever its device.

/// A stream of a device.
pub(super) trait DeviceStream {
    /// What C calls it.
    fn raw(&self) -> usize;
    /// Whether its work is done, and no failure is left to report.
    fn is_spent(&self) -> bool;
}
