//! Networks in the configuration, and the networks whose addresses count as one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Returns the *source* of a client's address: an IPv4 address, or the /64 network of an IPv6
/// address, as one machine may have a whole /64. Bounds for one address apply to a source.
///
/// The crate `znode` has a copy of this rule to count sessions, because it must not depend on this
/// crate.
pub fn source(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(addr) => addr.into(),
        IpAddr::V6(addr) => std::net::Ipv6Addr::from_bits(addr.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// Returns the *site* of an address, to which a limit of log lines applies: the /24 network of an
/// IPv4 address, or the /48 network of an IPv6 address.
pub(crate) fn site(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(addr) => std::net::Ipv4Addr::from_bits(addr.to_bits() & !0xff).into(),
        IpAddr::V6(addr) => std::net::Ipv6Addr::from_bits(addr.to_bits() & !(u128::MAX >> 48)).into(),
    }
}

/// Returns the *site* of a source, by which full servers compare numbers of connections: an IPv4
/// address, or the /48 network of an IPv6 address.
pub(crate) fn site_of_source(source: IpAddr) -> IpAddr {
    if source.is_ipv4() { source } else { site(source) }
}

/// Length of the prefix of IPv6 addresses that stand for IPv4 addresses: `::ffff:0:0/96`.
const MAPPED_BITS: u32 = 96;

/// A list of networks, as in `10.0.0.0/8,2001:db8::/32,192.0.2.7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// Network of all addresses that begin with the first `bits` bits of `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    bits: u32,
}

impl Networks {
    /// Tells whether an address lies in one of the networks.
    pub fn contain(&self, addr: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(addr))
    }
}

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Networks, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Network::from_str).collect::<Result<_, _>>().map(Networks)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Network { first, bits }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{first}/{bits}")?;
        }
        Ok(())
    }
}

impl Network {
    fn contains(self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        let unlike = self.first.is_ipv4() != addr.is_ipv4();
        // For /0, the shift by all bits overflows; such a network contains every address.
        !unlike && ((whole(self.first) ^ whole(addr)).checked_shr(width(addr) - self.bits).unwrap_or(0)) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is not an IP address or a network such as `10.0.0.0/8`");
        let (addr, bits) = text.split_once('/').map_or((text, None), |(addr, bits)| (addr, Some(bits)));
        let first: IpAddr = addr.parse().map_err(|_| wrong())?;
        let bits = match bits {
            None => width(first),
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= width(first)).ok_or_else(wrong)?,
        };
        // Addresses of clients are converted from mapped IPv6 to IPv4, so a mapped network is
        // converted, too.
        Ok(match (first.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
            (IpAddr::V4(inner), Some(bits)) if first.is_ipv6() => Network { first: inner.into(), bits },
            _ => Network { first, bits },
        })
    }
}

fn whole(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

fn width(addr: IpAddr) -> u32 {
    if addr.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(networks: &str, addr: &str, expected: bool) {
        let networks: Networks = networks.parse().unwrap();
        assert_eq!(networks.contain(addr.parse().unwrap()), expected, "{networks} and {addr}");
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        check("", "127.0.0.1", false);
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.0.0.0/8", "::ffff:10.0.0.1", true);
        check("::ffff:10.0.0.0/104", "10.255.0.1", true);
        check("::ffff:10.0.0.0/104", "::ffff:10.0.0.1", true);
        check("::ffff:10.0.0.0/104", "11.0.0.1", false);
        check("::ffff:10.0.0.1", "10.0.0.1", true);
        check("::ffff:0:0/96", "203.0.113.9", true);
        check("::ffff:0:0/96", "::1", false);
        check("::/90", "10.0.0.1", false);
        check("192.0.2.7", "192.0.2.7", true);
        check("192.0.2.7", "192.0.2.6", false);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "::1", false);
        check("::/0", "2001:db8::1", true);
        check("192.0.2.7, 2001:db8::/32", "2001:db8:ffff::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
    }

    #[test]
    fn a_list_of_networks_reads_back_as_it_is_shown() {
        let networks: Networks = "10.0.0.0/8, ::1".parse().unwrap();
        assert_eq!(networks.to_string(), "10.0.0.0/8,::1/128");
        assert_eq!(networks.to_string().parse(), Ok(networks));
        assert_eq!("::ffff:10.0.0.0/104".parse::<Networks>().unwrap().to_string(), "10.0.0.0/8");
        for wrong in ["10.0.0.0/33", "::/129", "localhost", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Networks>().unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn an_ipv6_client_counts_by_its_network() {
        let source = |text: &str| source(text.parse().unwrap()).to_string();
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(source("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(source("192.0.2.7"), "192.0.2.7");
        let site = |text: &str| site(text.parse().unwrap()).to_string();
        assert_eq!(site("2001:db8:1:2:3:4:5:6"), "2001:db8:1::");
        assert_eq!([site("::ffff:192.0.2.7"), site("192.0.2.9")], ["192.0.2.0", "192.0.2.0"]);
    }
}
