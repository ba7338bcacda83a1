//! Little-endian encoding of the handshake's messages. Reading never panics and never reads past the end:
//! what comes from a socket is a stranger's until proved otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::endpoint::Address;
use crate::local::LocalName;

/// Longest text that travels in one field.
pub(crate) const MAX_TEXT: usize = 2048;

/// What a reader found to be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

pub(crate) type Parsed<T> = Result<T, Malformed>;

/// Appends fields to a buffer.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }
    pub(crate) fn u16(mut self, v: u16) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub(crate) fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub(crate) fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub(crate) fn bytes(mut self, v: &[u8]) -> Self {
        self.0.extend(v);
        self
    }
    /// A text, cut at a character boundary to `MAX_TEXT` bytes.
    pub(crate) fn text(self, v: &str) -> Self {
        let mut end = v.len().min(MAX_TEXT);
        while !v.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16).bytes(&v.as_bytes()[..end])
    }
    /// `rank + 1`, or 0 for none.
    pub(crate) fn rank(self, v: Option<u32>) -> Self {
        self.u64(v.map_or(0, |r| u64::from(r) + 1))
    }
    /// Family, port, 16 bytes of address, scope: 23 bytes.
    pub(crate) fn addr(self, v: Address) -> Self {
        let Parts { family, port, bytes, scope } = split(v);
        self.u8(family).u16(port).bytes(&bytes).u32(scope)
    }
}

/// The family of names of local sockets; the others are IP's versions.
const LOCAL: u8 = 1;

/// An address as fields: family (4, 6 or [`LOCAL`]), port, 16 bytes of address (IPv4 uses the first 4) or
/// name, scope id.
pub(crate) struct Parts {
    pub(crate) family: u8,
    pub(crate) port: u16,
    pub(crate) bytes: [u8; 16],
    pub(crate) scope: u32,
}

/// The fields of an address.
pub(crate) fn split(addr: Address) -> Parts {
    match addr {
        Address::Net(SocketAddr::V4(a)) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&a.ip().octets());
            Parts { family: 4, port: a.port(), bytes, scope: 0 }
        }
        Address::Net(SocketAddr::V6(a)) => {
            Parts { family: 6, port: a.port(), bytes: a.ip().octets(), scope: a.scope_id() }
        }
        Address::Local(name) => Parts { family: LOCAL, port: 0, bytes: name.0, scope: 0 },
    }
}

/// The inverse of [`split`].
pub(crate) fn join(parts: Parts) -> Parsed<Address> {
    let Parts { family, port, bytes: b, scope } = parts;
    let net = |ip: IpAddr| Ok(Address::Net(SocketAddr::new(ip, port)));
    match family {
        4 => net(Ipv4Addr::new(b[0], b[1], b[2], b[3]).into()),
        6 => Ok(Address::Net(SocketAddrV6::new(Ipv6Addr::from(b), port, 0, scope).into())),
        LOCAL => Ok(Address::Local(LocalName(b))),
        other => Err(Malformed(format!("address family {other} is none of 4, 6 and {LOCAL}"))),
    }
}

/// Takes fields off the front of a buffer.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Parsed<&'a [u8]> {
        if n > self.0.len() {
            return Err(Malformed(format!("message ends {} bytes early", n - self.0.len())));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take gives N bytes"))
    }
    pub(crate) fn u8(&mut self) -> Parsed<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> Parsed<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> Parsed<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn text(&mut self) -> Parsed<String> {
        let len = usize::from(self.u16()?);
        if len > MAX_TEXT {
            return Err(Malformed(format!("a text of {len} bytes where at most {MAX_TEXT} are allowed")));
        }
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }
    pub(crate) fn rank(&mut self) -> Parsed<Option<u32>> {
        match self.u64()? {
            0 => Ok(None),
            v => u32::try_from(v - 1).map(Some).map_err(|_| Malformed("a rank past 2^32".into())),
        }
    }
    pub(crate) fn addr(&mut self) -> Parsed<Address> {
        let (family, port) = (self.u8()?, self.u16()?);
        join(Parts { family, port, bytes: self.array()?, scope: self.u32()? })
    }
    /// Nothing may be left over.
    pub(crate) fn end(self) -> Parsed<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed(format!("{} bytes too many in a message", self.0.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let v6 = Address::Net("[fe80::1%7]:80".parse().expect("an address"));
        let v4 = Address::Net("10.1.2.3:65535".parse().expect("an address"));
        let local = Address::Local(LocalName::random().expect("random"));
        let w = Writer::default().u8(1).u16(2).u32(3).u64(4).text("hé").rank(None).rank(Some(u32::MAX));
        let bytes = w.addr(v6).addr(v4).addr(local).0;
        let mut r = Reader(&bytes);
        assert_eq!((r.u8(), r.u16(), r.u32(), r.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(r.text(), Ok("hé".into()));
        assert_eq!((r.rank(), r.rank()), (Ok(None), Ok(Some(u32::MAX))));
        assert_eq!((r.addr(), r.addr(), r.addr()), (Ok(v6), Ok(v4), Ok(local)));
        assert_eq!(r.end(), Ok(()));
        for cut in 0..bytes.len() {
            let mut r = Reader(&bytes[..cut]);
            let all = (|| {
                r.u8()?;
                r.u16()?;
                r.u32()?;
                r.u64()?;
                r.text()?;
                r.rank()?;
                r.rank()?;
                r.addr()?;
                r.addr()?;
                r.addr()
            })();
            assert!(all.is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "é".repeat(MAX_TEXT);
        let bytes = Writer::default().u8(0).text(&long[..long.len() - 2]).0;
        assert_eq!(Reader(&bytes[1..]).text().map(|t| t.len()), Ok(MAX_TEXT));
    }
}
