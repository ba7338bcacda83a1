//! The unique ID: 128 bytes that say where a job meets and prove who belongs to it. Made on one process,
//! carried to the others by the caller (a file, an MPI broadcast, an environment variable); a process that
//! holds it may join, so it is as secret as the job. A checksum tells a truncated or mangled copy from a
//! wrong address.

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{digest, job_name, random, Key, Token};
use crate::endpoint::Address;
use crate::wire;

/// Bytes of a unique ID.
pub const UID_BYTES: usize = 128;

const MAGIC: [u8; 8] = *b"RUSHMUID";
/// 2: goes with version 3 of the handshake, and may name a local socket.
const VERSION: u16 = 2;
// Offsets; 80..96 is reserved and zero.
const AT_VERSION: usize = 8;
const AT_FAMILY: usize = 10;
const AT_PORT: usize = 12;
const AT_IP: usize = 16;
const AT_SCOPE: usize = 32;
const AT_NONCE: usize = 36;
const AT_TOKEN: usize = 48;
const AT_RESERVED: usize = 80;
const AT_CHECKSUM: usize = 96;

/// The name of a job that is about to start, and the key to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Uid {
    addr: Address,
    nonce: [u8; 8],
    token: Token,
}

impl std::fmt::Debug for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uid({} at {})", self.job(), self.addr) // not the token
    }
}

fn bad(why: impl std::fmt::Display) -> BootError {
    BootError::new(
        BootErrorKind::InvalidArgument,
        format!("not a usable unique ID: {why}; pass on all {UID_BYTES} bytes of the ID as they were made"),
    )
}

impl Uid {
    /// An ID for a rendezvous that listens at `addr`.
    pub(crate) fn new(addr: Address) -> Result<Uid> {
        Ok(Uid { addr, nonce: random()?, token: Token::random()? })
    }

    /// Where the job meets.
    pub fn addr(&self) -> Address {
        self.addr
    }

    /// The job's public name, for logs: knowing it does not help to join.
    pub fn job(&self) -> String {
        hex(&self.key().job)
    }

    pub(crate) fn key(&self) -> Key {
        Key { job: job_name(&[b"unique ID", &self.nonce]), token: self.token.clone() }
    }

    /// The 128 bytes.
    pub fn to_bytes(&self) -> [u8; UID_BYTES] {
        let wire::Parts { family, port, bytes: ip, scope } = wire::split(self.addr);
        let mut out = [0; UID_BYTES];
        out[..AT_VERSION].copy_from_slice(&MAGIC);
        out[AT_VERSION..AT_FAMILY].copy_from_slice(&VERSION.to_le_bytes());
        out[AT_FAMILY] = family;
        out[AT_PORT..AT_PORT + 2].copy_from_slice(&port.to_le_bytes());
        out[AT_IP..AT_SCOPE].copy_from_slice(&ip);
        out[AT_SCOPE..AT_NONCE].copy_from_slice(&scope.to_le_bytes());
        out[AT_NONCE..AT_NONCE + 8].copy_from_slice(&self.nonce);
        out[AT_TOKEN..AT_RESERVED].copy_from_slice(&self.token.0);
        let sum = digest(&[&out[..AT_CHECKSUM]]);
        out[AT_CHECKSUM..].copy_from_slice(&sum);
        out
    }

    /// The inverse of [`Uid::to_bytes`].
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no ID, `Mismatch` for an ID of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Uid> {
        let bytes: &[u8; UID_BYTES] =
            bytes.try_into().map_err(|_| bad(format!("it has {} bytes, not {UID_BYTES}", bytes.len())))?;
        if bytes.iter().all(|b| *b == 0) {
            return Err(bad("it is all zeros, so it was never filled in"));
        }
        if bytes[..AT_VERSION] != MAGIC {
            return Err(bad("it does not begin as one"));
        }
        let le16 = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if le16(AT_VERSION) != VERSION {
            return Err(BootError::new(
                BootErrorKind::Mismatch,
                format!(
                    "the unique ID has version {}, this rushmem reads version {VERSION}: run one version on all ranks",
                    le16(AT_VERSION)
                ),
            ));
        }
        if digest(&[&bytes[..AT_CHECKSUM]]) != bytes[AT_CHECKSUM..] {
            return Err(bad("its checksum is wrong, so it was changed on the way"));
        }
        let array4 = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let ip = bytes[AT_IP..AT_SCOPE].try_into().expect("16 bytes lie between the offsets");
        let (family, port, scope) = (bytes[AT_FAMILY], le16(AT_PORT), u32::from_le_bytes(array4(AT_SCOPE)));
        let addr = wire::join(wire::Parts { family, port, bytes: ip, scope }).map_err(|e| bad(e.0))?;
        let nonce = bytes[AT_NONCE..AT_NONCE + 8].try_into().expect("8 bytes");
        let token = Token(bytes[AT_TOKEN..AT_RESERVED].try_into().expect("32 bytes lie between the offsets"));
        Ok(Uid { addr, nonce, token })
    }

    /// 256 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex(&self.to_bytes())
    }

    /// The inverse of [`Uid::to_hex`]; white space at the ends is allowed.
    ///
    /// # Errors
    /// As [`Uid::from_bytes`], and `InvalidArgument` for what is not hexadecimal.
    pub fn from_hex(text: &str) -> Result<Uid> {
        let text = text.trim();
        let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        let bytes: Option<Vec<u8>> =
            text.as_bytes().chunks(2).map(|p| Some(digit(p[0])? << 4 | digit(*p.get(1)?)?)).collect();
        let bytes =
            bytes.ok_or_else(|| bad(format!("its {} characters are not pairs of hex digits", text.len())))?;
        Uid::from_bytes(&bytes)
    }
}

/// Makes the checksum right.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = digest(&[&bytes[..AT_CHECKSUM]]);
    bytes[AT_CHECKSUM..].copy_from_slice(&sum);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<Uid> {
        let net = |a: &str| Address::Net(a.parse().expect("an address"));
        let local = Address::Local(crate::local::LocalName::random().expect("random"));
        let all = ["127.0.0.1:1", "10.0.0.9:65535", "[::1]:4000", "[fe80::2%9]:77"].map(net);
        all.into_iter().chain([local]).map(|a| Uid::new(a).expect("random")).collect()
    }

    #[test]
    fn ids_come_back() {
        for id in ids() {
            assert_eq!(Uid::from_bytes(&id.to_bytes()), Ok(id.clone()));
            assert_eq!(Uid::from_hex(&format!(" {}\n", id.to_hex().to_uppercase())), Ok(id.clone()));
            assert!(!format!("{id:?}").contains(&hex(&id.token.0)));
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let id = ids().remove(3);
        for at in 0..UID_BYTES {
            let mut bytes = id.to_bytes();
            bytes[at] ^= 0x10;
            let error = Uid::from_bytes(&bytes).expect_err("a changed ID");
            let version = at == AT_VERSION || at == AT_VERSION + 1;
            let kind = if version { BootErrorKind::Mismatch } else { BootErrorKind::InvalidArgument };
            assert_eq!(error.kind, kind, "byte {at}: {error}");
        }
    }

    #[test]
    fn bad_texts_are_explained() {
        let id = ids().remove(0);
        let hex = id.to_hex();
        for (text, part) in [
            ("", "0 bytes"),
            (&hex[..254], "127 bytes"),
            (&hex[..255], "not pairs"),
            ("zz", "not pairs"),
            (&"0".repeat(256), "all zeros"),
            (&"11".repeat(128), "does not begin"),
        ] {
            let error = Uid::from_hex(text).expect_err(text);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
