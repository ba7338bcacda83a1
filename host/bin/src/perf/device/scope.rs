//! Who takes part in one operation.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Threads of a kernel, or a way of the host's.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// One thread.
    Thread,
    /// A warp.
    Warp,
    /// A block.
    Block,
    /// All blocks of the launch.
    Grid,
    /// The same, whose blocks do not wait for one another.
    GridParts,
    /// None: the host puts it on a stream.
    #[value(skip)]
    Stream,
    /// None: a CUDA graph of such operations is launched.
    #[value(skip)]
    Graph,
    /// None: the host does it itself.
    #[value(skip)]
    Host,
}

impl Scope {
    /// Whether all blocks of a launch make one call.
    pub(crate) fn is_grid(self) -> bool {
        matches!(self, Scope::Grid | Scope::GridParts)
    }

    /// As the kernels' names and other tools' files say it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Block => "block",
            Scope::Grid => "grid",
            Scope::GridParts => "grid_parts",
            Scope::Stream => "stream",
            Scope::Graph => "graph",
            Scope::Host => "host",
        }
    }
}
