//! Arrivals: collective calls across nodes. A PE that enters one sends a record to the leaders of the other
//! nodes that have members of its team; a leader notes it where its node's PEs look, and that is all that the
//! network has to do with collective calls of the host.

use crate::node::control::Arrival;

/// Notes that a PE of another node has entered a collective call.
pub(in crate::net) type Note = Box<dyn Fn(usize, &Arrival) + Send>;
