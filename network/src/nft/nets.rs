//! Rules for packets from or to a network.

use super::{Batch, Expression, Field, Register};
use crate::cidr::{IpNet, octets};

/// Which address of a packet is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Destination,
}

impl Batch<'_> {
    /// Adds a rule for packets from or to a network, in a chain that only gets packets of its family.
    pub fn match_net(&mut self, chain: &str, net: IpNet, side: Side, then: Expression<'_>) {
        const R0: Register = Register(0);
        let field = match (side, net.is_ipv4()) {
            (Side::Source, true) => Field::Ipv4Source,
            (Side::Destination, true) => Field::Ipv4Destination,
            (Side::Source, false) => Field::Ipv6Source,
            (Side::Destination, false) => Field::Ipv6Destination,
        };
        let (value, mask) = (octets(net.network().address), mask(net));
        let compare = [Expression::Load(field, R0), Expression::Mask(R0, &mask), Expression::Equal(R0, &value)];
        let rule: Vec<Expression<'_>> = compare.into_iter().chain([then]).collect();
        self.rule(chain, &rule);
    }
}

fn mask(net: IpNet) -> Vec<u8> {
    let all = IpNet::host(net.address).prefix() / 8;
    (0..all)
        .map(|byte| u8::MAX.checked_shl(8 - u32::from(net.prefix().saturating_sub(byte * 8).min(8))).unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        for (net, expected) in [
            ("10.0.0.0/8", vec![255, 0, 0, 0]),
            ("10.0.0.0/12", vec![255, 240, 0, 0]),
            ("10.0.0.0/32", vec![255; 4]),
            ("0.0.0.0/0", vec![0; 4]),
        ] {
            assert_eq!(mask(net.parse().unwrap()), expected, "{net}");
        }
        assert_eq!(mask("fd00::/64".parse().unwrap()), [vec![255; 8], vec![0; 8]].concat());
    }
}
