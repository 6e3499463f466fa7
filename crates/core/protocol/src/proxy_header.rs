//! The header of the PROXY protocol, by which a balancer passes on the address of its client.
//!
//! Owns: both versions of the header, as HAProxy's specification defines them
//! (`doc/proxy-protocol.txt`, version 2.9). Version 1 is a line of text, version 2 is binary and
//! may have further values (TLV) after the addresses, which are skipped.
//!
//! Invariants: decoding allocates nothing and reads no byte after the header; a header is at most
//! [`HEADER_BYTES_MAX`] long; a header that is torn is `Incomplete` up to its last byte, and bytes
//! that cannot become a header are invalid at the first wrong one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest header of version 2. The format allows 64 KiB. Addresses and the usual further values
/// take less than a tenth of this, the chain of a client's certificate most of it.
pub const HEADER_BYTES_MAX: usize = 4096;

/// Longest header of version 1, its line end included.
const LINE_BYTES_MAX: usize = 107;
const LINE_BEGIN: &[u8] = b"PROXY ";

/// The first bytes of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Offset of version and command.
const COMMAND_AT: usize = SIGNATURE.len();
/// Offset of address family and transport.
const FAMILY_AT: usize = COMMAND_AT + 1;
/// Offset of the length of all that follows it: 16 bits, big endian.
const LENGTH_AT: usize = FAMILY_AT + 1;
/// Bytes before the addresses.
const FIXED_BYTES: usize = LENGTH_AT + 2;

/// The connection is the balancer's own, a health check for example.
const LOCAL: u8 = 0x20;
/// The connection is passed on for a client.
const PROXY: u8 = 0x21;

/// No address is known.
const UNSPECIFIED: u8 = 0x00;
const TCP_V4: u8 = 0x11;
const TCP_V6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;

/// Two addresses and two ports.
const V4_BYTES: usize = 12;
const V6_BYTES: usize = 36;
/// Two paths.
const UNIX_BYTES: usize = 216;

const _: () = assert!(FIXED_BYTES == 16 && FIXED_BYTES + UNIX_BYTES < HEADER_BYTES_MAX);

/// Kind of the bytes at the head of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodedProxyHeader {
    /// The beginning of a header.
    Incomplete,
    /// A header.
    Complete {
        /// The client's address. `None` when the balancer speaks for itself, or does not know it.
        client: Option<SocketAddr>,
        /// Bytes of the header.
        consumed: usize,
    },
    /// Not a header, or one that is damaged.
    Invalid,
    /// A header longer than [`HEADER_BYTES_MAX`], or than version 1 allows.
    TooLong,
}

/// Decodes the header at the beginning of `bytes`, which may hold more than the header.
pub fn decode(bytes: &[u8]) -> DecodedProxyHeader {
    match bytes.first() {
        None => DecodedProxyHeader::Incomplete,
        Some(b'P') => decode_line(bytes),
        Some(_) => decode_binary(bytes),
    }
}

/// True when the common part of both is equal.
fn agree(bytes: &[u8], expected: &[u8]) -> bool {
    bytes.iter().zip(expected).all(|(byte, other)| byte == other)
}

fn decode_line(bytes: &[u8]) -> DecodedProxyHeader {
    if !agree(bytes, LINE_BEGIN) {
        return DecodedProxyHeader::Invalid;
    }
    let head = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', head) else {
        return if head.len() < LINE_BYTES_MAX {
            DecodedProxyHeader::Incomplete
        } else {
            DecodedProxyHeader::TooLong
        };
    };
    let line = head[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(LINE_BEGIN));
    match line.and_then(client_of_line) {
        Some(client) => DecodedProxyHeader::Complete { client, consumed: end + 1 },
        None => DecodedProxyHeader::Invalid,
    }
}

/// The client in a line of version 1, after its first word.
fn client_of_line(line: &[u8]) -> Option<Option<SocketAddr>> {
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Some(None);
    }
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let family = words.next()?;
    let (source, destination) = (words.next()?, words.next()?);
    let address = match family {
        "TCP4" => {
            Ipv4Addr::from_str(destination).ok()?;
            IpAddr::V4(source.parse().ok()?)
        }
        "TCP6" => {
            Ipv6Addr::from_str(destination).ok()?;
            IpAddr::V6(source.parse().ok()?)
        }
        _ => return None,
    };
    let (source, _) = (port(words.next()?)?, port(words.next()?)?);
    words.next().is_none().then_some(Some(SocketAddr::new(address, source)))
}

/// A port in decimal digits, without a sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let is_canonical = word == "0" || !word.starts_with(['0', '+']);
    word.parse().ok().filter(|_| is_canonical)
}

fn decode_binary(bytes: &[u8]) -> DecodedProxyHeader {
    if !agree(bytes, SIGNATURE) {
        return DecodedProxyHeader::Invalid;
    }
    let (command, family) = (bytes.get(COMMAND_AT), bytes.get(FAMILY_AT));
    let families = [UNSPECIFIED, TCP_V4, TCP_V6, UNIX_STREAM];
    match (command, family) {
        (Some(&LOCAL | &PROXY) | None, None) | (Some(&LOCAL), Some(_)) => {}
        (Some(&PROXY), Some(family)) if families.contains(family) => {}
        _ => return DecodedProxyHeader::Invalid,
    }
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
        return DecodedProxyHeader::Incomplete;
    };
    let length = u16::from_be_bytes([fixed[LENGTH_AT], fixed[LENGTH_AT + 1]]);
    let consumed = FIXED_BYTES + usize::from(length);
    if consumed > HEADER_BYTES_MAX {
        return DecodedProxyHeader::TooLong;
    }
    let Some(rest) = bytes.get(FIXED_BYTES..consumed) else {
        return DecodedProxyHeader::Incomplete;
    };
    let client = match (fixed[COMMAND_AT], fixed[FAMILY_AT]) {
        (PROXY, TCP_V4) => client_of::<4>(rest, V4_BYTES).map(Some),
        (PROXY, TCP_V6) => client_of::<16>(rest, V6_BYTES).map(Some),
        (PROXY, UNIX_STREAM) => (rest.len() >= UNIX_BYTES).then_some(None),
        _ => Some(None),
    };
    match client {
        Some(client) => DecodedProxyHeader::Complete { client, consumed },
        None => DecodedProxyHeader::Invalid,
    }
}

/// The client in `bytes_min` bytes of addresses and ports: client, server, port of each.
fn client_of<const N: usize>(rest: &[u8], bytes_min: usize) -> Option<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let addresses = rest.get(..bytes_min)?;
    let address = IpAddr::from(*addresses.first_chunk::<N>()?);
    let port = addresses.get(2 * N..)?.first_chunk::<2>()?;
    Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests;
