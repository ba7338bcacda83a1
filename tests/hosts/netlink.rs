//! What `ip link`, `ip address` and `ip route` do, as messages to the kernel: hosts with GPUs often have no
//! `ip`.
//!
//! A socket acts on the network namespace that it was made in, wherever its holder is. See rtnetlink(7).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use netlink_packet_core::{
    NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{protocols::NETLINK_ROUTE, Socket, SocketAddr};

/// One end of a cable: the number and the name that its interface is to have.
pub(crate) struct End {
    pub(crate) index: u32,
    pub(crate) name: String,
}

/// The interfaces of one network namespace.
pub(crate) struct Interfaces {
    socket: Socket,
}

/// The number of every namespace's loopback interface.
pub(crate) const LOOPBACK: u32 = 1;

impl Interfaces {
    /// Of the namespace that the calling thread is in.
    pub(crate) fn here() -> io::Result<Interfaces> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Interfaces { socket })
    }

    /// A cable (a veth pair) from here to the network namespace `there`.
    pub(crate) fn add_cable(&self, near: &End, far: &End, there: RawFd) -> io::Result<()> {
        let mut peer = link(far.index);
        peer.attributes = vec![LinkAttribute::IfName(far.name.clone()), LinkAttribute::NetNsFd(there)];
        let mut cable = link(near.index);
        cable.attributes = vec![
            LinkAttribute::IfName(near.name.clone()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.ask(RouteNetlinkMessage::NewLink(cable), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Switches an interface on or off. Off takes its routes away.
    pub(crate) fn set_up(&self, index: u32, up: bool) -> io::Result<()> {
        let mut message = link(index);
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.ask(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives an interface an address of a network of 256.
    pub(crate) fn add_address(&self, index: u32, ip: Ipv4Addr) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::NewAddress(address(index, ip)), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes it away again.
    pub(crate) fn remove_address(&self, index: u32, ip: Ipv4Addr) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::DelAddress(address(index, ip)), 0)
    }

    /// What is for `to` leaves through `index`, with `from` as its sender.
    pub(crate) fn add_route(&self, to: Ipv4Addr, index: u32, from: Ipv4Addr) -> io::Result<()> {
        let mut route = RouteMessage::default();
        route.header = RouteHeader {
            address_family: AddressFamily::Inet,
            destination_prefix_length: 32,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Link,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        route.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Oif(index),
            RouteAttribute::PrefSource(from.into()),
        ];
        self.ask(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Sends a request and waits for the kernel's verdict.
    fn ask(&self, what: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut request = NetlinkMessage::from(what);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(verdict) if verdict.code.is_none() => Ok(()),
            NetlinkPayload::Error(verdict) => Err(verdict.to_io()),
            other => Err(io::Error::other(format!("no verdict, but {other:?}"))),
        }
    }
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn address(index: u32, ip: Ipv4Addr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 24;
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(ip.into()), AddressAttribute::Address(ip.into())];
    message
}
