//! rushmem's own bootstrap: PEs find each other by a 128-byte unique ID or at a known address, over TCP, and
//! exchange bytes until (and after) a symmetric heap exists. [`environment`] reads what launchers leave
//! behind.
//!
//! # How a job starts
//! 1. A PE or `rushmem-run` makes a [`Uid`], or rank 0 listens where all expect it ([`join_address`],
//!    [`join_meeting`]): that process is the *root*, its rendezvous one thread. Where all ranks are on one
//!    host, the place is a local socket that only this user's processes can use, else a TCP port.
//! 2. Every rank dials the root, both prove that they hold the job's token (HMAC-SHA256 over two nonces, the
//!    rank first: `handshake`), and the rank says who it is and where it listens. No order is assumed: a
//!    rank that finds no root tries again.
//! 3. When all are there, the root sends every rank the addresses of its neighbours, `rank ± 2^k (mod n)`,
//!    and nothing of the others. Neighbours connect, with the same proof and a token of this start.
//! 4. When all are connected the root gives the start, closes its sockets, and ends.
//!
//! What strangers do at the listeners costs the job no more than the time to turn them away (`pending`).
//!
//! Collectives run over the neighbours' connections in ⌈log2 n⌉ rounds; so does the report of a death.
//!
//! # What it costs
//! With d = |neighbours| ≤ 2⌈log2 n⌉ and h bytes of host name (sizes are those of the frames):
//!
//! | | n ranks | n = 10,000, h = 16 (d = 28) |
//! |---|---|---|
//! | root: sockets while starting | n + 1 (and 2 descriptors) | 10,001 |
//! | root: messages in, out | 4n, 6n | 40,000, 60,000 |
//! | root: bytes in | n (160 + h) | 1.8 MB |
//! | root: bytes out, ranks of a host in one run | n (148 + h + d (60 + h)) | 22.9 MB |
//! | root: time, about 100 us a rank (measured at 512) | 100 us n | 1.0 s |
//! | root: after the start | nothing | 0 |
//! | rank: sockets, I/O threads | d + 2 while starting, then d; 1 | 30, then 28; 1 |
//! | rank: handshakes with neighbours | 4 messages, 179 bytes each | 112 messages, 5.0 kB |
//! | rank: a secret that a person chose | Argon2id, 19 MiB, once a process | 20 to 40 ms |
//! | barrier: messages a rank | ⌈log2 n⌉ of 32 bytes | 14, 448 bytes |
//! | allgather of b bytes: sent by a rank | (n − 1) b in ⌈log2 n⌉ messages | 14 messages |
//! | a death: frames of about 150 bytes | d a rank, each sent once | 280,000 in all, 14 hops |
//! | memory a rank | ≤ 512 KiB of foreign data a link, 4 MiB in an alltoall | ≤ 14 MiB + 4 MiB |
//!
//! The root needs as many descriptors as there are ranks: the soft limit (`RLIMIT_NOFILE`) of every process
//! that makes an ID or joins is raised to its hard limit. Many ranks may be threads of one process: n of them
//! take n (d + 4) descriptors while they start, 512 about 11,000.
//!
//! # Deaths
//! The kernel closes a dead process' sockets; a neighbour that sees an end without a goodbye passes the
//! report on to all its neighbours, each rank passes it on once, and a blocked collective ends with an error
//! that names rank, host and pid. A host that vanishes says nothing: each rank asks the kernel how long ago
//! its neighbours answered on other hosts, which are probed each second, and names all ranks of a host that
//! is silent for too long ([`UidConfig::host_silence`]).

mod address;
mod auth;
mod bootstrap;
mod collective;
mod config;
mod conn;
mod connect;
mod endpoint;
pub mod environment;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod join;
mod local;
mod meeting_address;
mod mesh;
mod messages;
mod names;
mod net;
mod outgoing;
mod pending;
mod ranks;
mod rendezvous;
mod search;
#[cfg(any(test, feature = "fuzzing"))]
mod seeds;
mod single;
mod stretch;
mod threads;
mod uid;
mod wire;

pub use address::{join_address, join_meeting, MeetingPoint};
pub use bootstrap::{join_uid, UidBootstrap};
pub use config::{UidConfig, Watch};
pub use endpoint::Address;
pub use local::{is_this_user, LocalName};
pub use net::{home, interface_from_env, interfaces_named, IFNAME_VARIABLE};
pub use ranks::{compress, neighbours};
pub use rendezvous::RendezvousHandle;
pub use single::Single;
pub use uid::{Uid, UID_BYTES};
