//! Sockets that only this user's processes on this host can use: abstract Unix sockets, both of whose ends
//! ask the kernel for the other's user (`SO_PEERCRED`), so that neither a secret nor a folder is needed.
//!
//! Why abstract: a socket in a folder needs a folder that every rank sees, that nobody else could have made
//! before, and that a process cleans up. An abstract name vanishes with its socket. Anybody may bind any
//! abstract name, though, so a name that follows from what names the job could be held by a stranger: half of
//! a name is random, and the other ranks find it in the kernel's list of Unix sockets (`/proc/net/unix`). A
//! stranger can add names to that list, which costs a failed check of its user each, but cannot take one
//! away.
//!
//! Abstract names belong to a network namespace: ranks in containers with networks of their own do not see
//! each other and must meet over the network. User namespaces do not matter as long as the kernel can tell
//! users apart.

use std::io::{self, BufRead, BufReader};
use std::sync::OnceLock;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use rushmem_bootstrap_abi::Result;
use socket2::{SockAddr, Socket};

use crate::auth::random;

/// What every name begins with.
const PREFIX: &str = "rushmem-uid-";
/// `__SO_ACCEPTCON` in the flags of `/proc/net/unix`: it listens.
const LISTENS: &str = "00010000";

/// Bytes of a name that say which job it is of.
pub(crate) const TAG_BYTES: usize = 8;

/// The name of a local socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalName(pub(crate) [u8; 16]);

impl std::fmt::Display for LocalName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "@{PREFIX}{}", hex(&self.0))
    }
}

impl std::fmt::Debug for LocalName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl LocalName {
    /// A fresh random name.
    pub(crate) fn random() -> Result<LocalName> {
        Ok(LocalName(random()?))
    }

    /// A fresh random name that [`listening`] finds by `tag`.
    pub(crate) fn tagged(tag: [u8; TAG_BYTES]) -> Result<LocalName> {
        let mut name = [0; 16];
        name[..TAG_BYTES].copy_from_slice(&tag);
        name[TAG_BYTES..].copy_from_slice(&random::<{ 16 - TAG_BYTES }>()?);
        Ok(LocalName(name))
    }

    /// As the kernel wants it: a zero byte first.
    pub(crate) fn address(self) -> io::Result<SockAddr> {
        SockAddr::unix(format!("\0{PREFIX}{}", hex(&self.0)))
    }

    fn parse(hex: &str) -> Option<LocalName> {
        let mut name = [0; 16];
        if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in name.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
        }
        Some(LocalName(name))
    }
}

/// The names with this tag under which something listens in this network namespace; connecting shows which
/// user's they are.
pub(crate) fn listening(tag: [u8; TAG_BYTES]) -> io::Result<Vec<LocalName>> {
    let list = BufReader::new(std::fs::File::open("/proc/thread-self/net/unix")?);
    let start = format!("@{PREFIX}{}", hex(&tag));
    let mut found = Vec::new();
    // Any process may choose any bytes for a name; a line that is no text is not ours.
    for line in list.split(b'\n') {
        let line = line?;
        let Ok(line) = std::str::from_utf8(&line) else { continue };
        let mut fields = line.split_ascii_whitespace();
        let (flags, path) = (fields.nth(3), fields.nth(3));
        if flags != Some(LISTENS) {
            continue;
        }
        let name = path.filter(|p| p.starts_with(&start)).and_then(|p| p.strip_prefix('@'));
        found.extend(name.and_then(|p| p.strip_prefix(PREFIX)).and_then(LocalName::parse));
    }
    Ok(found)
}

/// The process at the other end, which must be this user's.
pub(crate) fn peer_of_this_user(socket: &Socket) -> io::Result<i32> {
    let peer = getsockopt(socket, PeerCredentials)?;
    if is_this_user(peer.uid()) {
        return Ok(peer.pid());
    }
    let text = format!("process {} of user {}, who is not this one ({})", peer.pid(), peer.uid(), geteuid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether the number that the kernel gives for a peer's user (`SO_PEERCRED`) is this process' own user. The
/// kernel shows every user that this user namespace does not know as one and the same number, which therefore
/// says nothing.
pub fn is_this_user(uid: u32) -> bool {
    static UNKNOWN: OnceLock<Option<u32>> = OnceLock::new();
    let unknown = UNKNOWN.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        overflow(&map, &std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default())
    });
    uid == geteuid().as_raw() && Some(uid) != *unknown
}

/// The number that stands for users unknown to a namespace with this map; none where the map knows all.
fn overflow(map: &str, number: &str) -> Option<u32> {
    let knows_all = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    (!knows_all).then(|| number.trim().parse().unwrap_or(65534))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Address;

    #[test]
    fn a_name_is_found_by_its_tag_while_it_listens() {
        let tag: [u8; TAG_BYTES] = random().expect("random");
        assert_eq!(listening(tag).expect("the kernel's list"), []);
        let names = [(); 3].map(|()| LocalName::tagged(tag).expect("a name"));
        let sockets = names.map(|n| Address::Local(n).listen().expect("a free name"));
        let client = Address::Local(names[0]).dial().expect("it listens, as this user");
        let mut found = listening(tag).expect("the kernel's list");
        found.sort_by_key(|n| n.0);
        let mut want = names.to_vec();
        want.sort_by_key(|n| n.0);
        assert_eq!(found, want);
        drop((sockets, client));
        assert_eq!(listening(tag).expect("the kernel's list"), []);
    }

    #[test]
    fn names_come_back_and_others_are_none() {
        let name = LocalName::random().expect("random");
        let text = name.to_string();
        assert_eq!(LocalName::parse(text.strip_prefix(&format!("@{PREFIX}")).expect("ours")), Some(name));
        for bad in ["", "00", &"0".repeat(31), &"g".repeat(32), &"é".repeat(16), &"+1".repeat(16)] {
            assert!(LocalName::parse(bad).is_none(), "{bad}");
        }
    }

    /// Where the kernel cannot tell users apart their number is no proof.
    #[test]
    fn the_number_of_unknown_users_is_nobody_s() {
        assert_eq!(overflow("         0          0 4294967295\n", "65534\n"), None);
        assert_eq!(overflow("         0       1000          1\n", "65534\n"), Some(65534));
        assert_eq!(overflow("", "7"), Some(7));
        assert_eq!(overflow("0 0 1000", "x"), Some(65534));
    }
}
