//! rushmem's own bootstrap.
mod address;
mod auth;
mod bootstrap;
mod collective;
mod config;
mod conn;
mod connect;
pub mod environment;
mod handshake;
mod join;
mod mesh;
mod messages;
mod net;
mod ranks;
mod rendezvous;
mod single;
mod threads;
mod uid;
mod wire;

pub use address::{join_address, join_meeting, MeetingPoint};
pub use bootstrap::{join_uid, UidBootstrap};
pub use config::UidConfig;
pub use net::{interface_from_env, IFNAME_VARIABLE};
pub use ranks::{compress, neighbours};
pub use rendezvous::RendezvousHandle;
pub use single::Single;
pub use uid::{Uid, UID_BYTES};
