//! Networks of addresses, as a setting names them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses that begin with the same bits. A single address is the network of all its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    bits: u32,
}

impl Subnet {
    /// True when the network has the address. An IPv4 address that a socket shows as IPv6
    /// (`::ffff:a.b.c.d`) is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        assert!(
            self.bits <= if self.address.is_ipv4() { 32 } else { 128 },
            "a prefix fits its address"
        );
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u64::from(own.to_bits() ^ other.to_bits());
                differing >> (32 - self.bits) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let wrong = || format!("{text:?} is neither an IP address nor a network like 10.0.0.0/8");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => bits_max,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= bits_max).ok_or_else(wrong)?,
        };
        // Such an address is compared as IPv4.
        match address.to_canonical() == address {
            true => Ok(Subnet { address, bits }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::Subnet;

    #[test]
    fn a_network_has_the_addresses_that_begin_alike() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.6/31", "::ffff:192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "2001:db8::1", "127.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Subnet = network.parse().expect(network);
            assert!(parsed.contains(inside.parse().expect("an address")), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().expect("an address")), "{network} {outside}");
        }
    }

    #[test]
    fn malformed_networks_are_rejected() {
        for text in ["", "localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129", "1.2.3"]
        {
            assert!(text.parse::<Subnet>().is_err(), "{text:?}");
        }
        assert!("::ffff:10.0.0.1/128".parse::<Subnet>().is_err(), "write it as IPv4");
    }
}
