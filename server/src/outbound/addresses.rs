//! The addresses that the server may connect to on behalf of clients.

use std::net::{IpAddr, SocketAddr};

/// The server must not be led to itself or to its neighbours on the link, however the address is written.
pub(crate) fn is_proxyable(ip: &IpAddr) -> bool {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    !(ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || link_local)
}

/// The address to dial must be one of the checked addresses: a second lookup of the name may return another one.
pub(crate) fn proxyable_address(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    match addresses {
        [first, ..] if addresses.iter().all(|address| is_proxyable(&address.ip())) => Some(*first),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_addresses_are_not_proxyable() {
        let cases = [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0.0.0.0", false),
        ];
        for (ip, want) in cases {
            assert_eq!(is_proxyable(&ip.parse().expect("an address")), want, "{ip}");
        }
    }

    #[test]
    fn every_address_of_a_name_must_be_allowed() {
        let check = |addresses: &[&str], want: Option<&str>| {
            let parse = |address: &str| address.parse().expect("an address");
            let addresses: Vec<SocketAddr> = addresses.iter().copied().map(parse).collect();
            assert_eq!(proxyable_address(&addresses), want.map(parse), "{addresses:?}");
        };
        check(&["10.0.0.1:80", "10.0.0.2:80"], Some("10.0.0.1:80"));
        check(&["10.0.0.1:80", "127.0.0.1:80"], None);
        check(&["[::ffff:127.0.0.1]:80"], None);
        check(&[], None);
    }
}
