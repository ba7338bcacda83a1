//! Arrivals: collective calls across nodes. A PE that enters one sends a record to the leaders of the other
//! nodes that have members of its team; a leader notes it where its node's PEs look, and that is all that the
//! network has to do with collective calls of the host.

use crate::error::Result;
use crate::node::control::FromAfar;

/// Notes that a PE of another node has entered a collective call, and before that what the call carries of
/// it.
pub(in crate::net) type Note = Box<dyn Fn(usize, &FromAfar<'_>) -> Result<()> + Send>;
