//! The names of addresses below `in-addr.arpa` and `ip6.arpa`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::message::Name;

/// The address of a complete reverse name.
pub fn address_of(name: &Name) -> Option<IpAddr> {
    let lower = name.to_lower();
    let mut labels: Vec<&str> = lower.labels().map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    labels.reverse();
    match labels.as_slice() {
        ["arpa", "in-addr", octets @ ..] if octets.len() == 4 => {
            let mut address = [0u8; 4];
            for (place, label) in address.iter_mut().zip(octets) {
                *place = label.parse().ok().filter(|_| !label.starts_with('+'))?;
            }
            Some(Ipv4Addr::from(address).into())
        }
        ["arpa", "ip6", nibbles @ ..] if nibbles.len() == 32 => {
            let digit = |label: &&str| (label.len() == 1).then(|| u128::from_str_radix(label, 16).ok()).flatten();
            let bits = nibbles.iter().try_fold(0, |bits, label| Some(bits << 4 | digit(label)?))?;
            Some(Ipv6Addr::from_bits(bits).into())
        }
        _ => None,
    }
}

/// The reverse name of an address.
pub fn name_of(address: IpAddr) -> Name {
    let text = match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = (0..32).map(|at| format!("{:x}.", address.to_bits() >> (4 * at) & 0xf));
            nibbles.collect::<String>() + "ip6.arpa"
        }
    };
    Name::parse(&text).unwrap_or_else(|_| Name::root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_names_round_trip() {
        for text in ["10.96.0.1", "fd00::1:2", "255.0.1.2", "::"] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(address_of(&name_of(address)), Some(address), "{text}");
        }
        assert_eq!(name_of([10, 96, 0, 1].into()).to_string(), "1.0.96.10.in-addr.arpa.");
    }

    #[test]
    fn other_names_have_no_address() {
        for text in [
            "in-addr.arpa",
            "96.10.in-addr.arpa",
            "x.0.96.10.in-addr.arpa",
            "1.1.0.96.10.in-addr.arpa",
            "256.0.96.10.in-addr.arpa",
            "+1.0.96.10.in-addr.arpa",
            "1.ip6.arpa",
            "web.default.svc.cluster.local",
        ] {
            assert_eq!(address_of(&Name::parse(text).expect("a name")), None, "{text}");
        }
    }
}
