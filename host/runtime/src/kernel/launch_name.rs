//! What a launch is called, in texts about it.

/// What a launch is called.
pub(super) struct LaunchName {
    /// In the middle of a text: ``kernel `ring` ``.
    pub(super) what: String,
    /// Where a text begins: the PE, and what it is of.
    pub(super) head: String,
}
