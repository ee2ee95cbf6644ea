//! IP addresses and networks. Older fields accept leading zeros and IPv4-mapped IPv6 addresses with warnings; newer
//! ones only the canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stdx::cidr::IpNet;

use super::Messages;

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An address in any form that older fields accept; IPv4-mapped IPv6 becomes IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    parse_address(text).map(|address| address.to_canonical())
}

/// A network in any form that older fields accept; IPv4-mapped IPv6 becomes IPv4. Host bits are kept.
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    let cidr = split_cidr(text)?;
    match (cidr.address, cidr.address.to_canonical()) {
        (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if cidr.prefix() >= 96 => IpNet::new(v4, cidr.prefix() - 96),
        _ => Some(cidr),
    }
}

/// A network in the family that the text has.
fn split_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let digits = !length.is_empty() && length.len() < 10 && length.bytes().all(|byte| byte.is_ascii_digit());
    let length: u32 = if digits { length.parse().ok()? } else { return None };
    IpNet::new(parse_address(address)?, u8::try_from(length).ok()?)
}

fn parse_address(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return parse_v4(text).map(IpAddr::V4);
    }
    let (head, tail) = text.split_at(text.rfind(':')? + 1);
    if tail.contains('.') {
        let text = format!("{head}{}", parse_v4(tail)?);
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Leading zeros are skipped; the number stays decimal.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Without leading zeros, as every other parser accepts.
fn is_standard(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// The rule of newer fields: only the canonical form.
pub fn ip(value: &str) -> Messages {
    let messages = ip_legacy(value, true);
    match parse_ip(value) {
        Some(address) if messages.is_empty() && address.to_string() != value => {
            vec![not_canonical(&address.to_string())]
        }
        _ => messages,
    }
}

fn not_canonical(canonical: &str) -> String {
    format!("must be in canonical form ({canonical:?})")
}

/// The rule of older fields; `strict` rejects values that otherwise get a warning.
pub fn ip_legacy(value: &str, strict: bool) -> Messages {
    let Some(address) = parse_address(value) else { return vec![BAD_IP.to_string()] };
    let mut messages = Messages::new();
    if strict && !is_standard(value) {
        messages.push("must not have leading 0s".to_string());
    } else if strict && is_mapped(address) {
        messages.push("must not be an IPv4-mapped IPv6 address".to_string());
    }
    messages
}

/// Validates an IPv4 address.
pub fn ipv4(value: &str) -> Messages {
    match parse_ip(value) {
        Some(IpAddr::V4(_)) => Messages::new(),
        _ => vec!["must be a valid IPv4 address".to_string()],
    }
}

/// Validates an IPv6 address.
pub fn ipv6(value: &str) -> Messages {
    match parse_ip(value) {
        Some(IpAddr::V6(_)) => Messages::new(),
        _ => vec!["must be a valid IPv6 address".to_string()],
    }
}

/// The warning for a non-canonical address in an older field.
pub fn ip_warning(path: &str, value: &str) -> Option<String> {
    let address = parse_address(value)?;
    if !is_standard(value) || is_mapped(address) {
        let better = address.to_canonical().to_string();
        return Some(format!(
            "{path}: non-standard IP address {value:?} will be considered invalid in a future Kubernetes release: use {better:?}"
        ));
    }
    let canonical = address.to_string();
    (address.is_ipv6() && canonical != value)
        .then(|| format!("{path}: IPv6 address {value:?} should be in RFC 5952 canonical format ({canonical:?})"))
}

/// The rule of newer fields: a network in canonical form.
pub fn cidr(value: &str) -> Messages {
    let messages = cidr_legacy(value, true);
    match network_text(value) {
        Some(network) if messages.is_empty() && network != value => vec![not_canonical(&network)],
        _ => messages,
    }
}

/// The rule of older fields; `strict` rejects values that otherwise get a warning.
pub fn cidr_legacy(value: &str, strict: bool) -> Messages {
    let Some(cidr) = split_cidr(value) else { return vec![BAD_CIDR.to_string()] };
    let message = match () {
        () if !strict => return Messages::new(),
        () if !is_standard_cidr(value) => "must not have leading 0s in IP or prefix length",
        () if is_mapped(cidr.address) => "must not have an IPv4-mapped IPv6 address",
        () if cidr.network() != cidr => "must not have bits set beyond the prefix length",
        () => return Messages::new(),
    };
    vec![message.to_string()]
}

fn is_standard_cidr(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(address, length)| is_standard(address) && (length == "0" || !length.starts_with('0')))
}

fn network_text(value: &str) -> Option<String> {
    Some(parse_cidr(value)?.network().to_string())
}

/// The warnings for a non-canonical network in an older field.
pub fn cidr_warnings(path: &str, value: &str) -> Messages {
    let Some(cidr) = parse_cidr(value) else { return Messages::new() };
    let network = cidr.network().to_string();
    let mut warnings = Messages::new();
    if cidr.network() != cidr {
        let single = IpNet::host(cidr.address).to_string();
        warnings.push(format!(
            "{path}: CIDR value {value:?} is ambiguous in this context (should be {network:?} or {single:?}?)"
        ));
    }
    if !is_standard_cidr(value) || split_cidr(value).is_some_and(|cidr| is_mapped(cidr.address)) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {value:?} will be considered invalid in a future Kubernetes release: use {network:?}"
        ));
    }
    if warnings.is_empty() && !cidr.is_ipv4() && network != value {
        warnings
            .push(format!("{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({network:?})"));
    }
    warnings
}

/// An interface address with its prefix length: `192.168.1.5/24`.
pub fn interface_address(value: &str) -> Messages {
    let Some(cidr) = parse_cidr(value) else { return vec![BAD_CIDR.to_string()] };
    let canonical = cidr.to_string();
    if canonical == value { Messages::new() } else { vec![not_canonical(&canonical)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let cases: [(&str, &[&str], &[&str]); 8] = [
            ("10.1.2.3", &[], &[]),
            ("2001:db8::1", &[], &[]),
            ("2001:DB8::1", &[r#"must be in canonical form ("2001:db8::1")"#], &[]),
            ("010.1.2.3", &["must not have leading 0s"], &["must not have leading 0s"]),
            (
                "::ffff:1.2.3.4",
                &["must not be an IPv4-mapped IPv6 address"],
                &["must not be an IPv4-mapped IPv6 address"],
            ),
            ("300.1.2.3", &[BAD_IP], &[BAD_IP]),
            ("fe80::1%eth0", &[BAD_IP], &[BAD_IP]),
            ("", &[BAD_IP], &[BAD_IP]),
        ];
        for (value, strict, legacy) in cases {
            assert_eq!(ip(value), strict, "{value}");
            assert_eq!(ip_legacy(value, true), legacy, "{value}");
        }
        assert_eq!(parse_ip("::ffff:1.2.3.4"), Some(IpAddr::from([1, 2, 3, 4])));
        assert_eq!(ip_warning("spec.ip", "10.0.0.1"), None);
        assert_eq!(
            ip_warning("spec.ip", "010.0.0.1").as_deref(),
            Some(
                r#"spec.ip: non-standard IP address "010.0.0.1" will be considered invalid in a future Kubernetes release: use "10.0.0.1""#
            )
        );
    }

    #[test]
    fn networks() {
        let cases: [(&str, &[&str]); 8] = [
            ("10.0.0.0/8", &[]),
            ("0.0.0.0/0", &[]),
            ("2001:db8::/64", &[]),
            ("10.0.0.1/8", &["must not have bits set beyond the prefix length"]),
            ("10.0.0.0/08", &["must not have leading 0s in IP or prefix length"]),
            ("::ffff:10.0.0.0/104", &["must not have an IPv4-mapped IPv6 address"]),
            ("10.0.0.0/33", &[BAD_CIDR]),
            ("10.0.0.0", &[BAD_CIDR]),
        ];
        for (value, want) in cases {
            assert_eq!(cidr(value), want, "{value}");
        }
        assert_eq!(
            cidr_warnings("spec.cidr", "10.0.0.1/8"),
            [
                r#"spec.cidr: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#
            ]
        );
        assert_eq!(interface_address("10.0.0.1/8"), Messages::new());
    }
}
