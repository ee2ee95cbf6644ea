//! Values in the forms of a Corefile.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use api::time::DurationError;

use crate::message::{Name, NameError};
use crate::zone::name_of;

/// Why a value cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// What a line must have.
    #[error("{0}")]
    Syntax(&'static str),
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("{0} is negative")]
    Negative(String),
    #[error("invalid {what} {text:?}")]
    Invalid { what: &'static str, text: String },
    #[error("invalid name {text:?}: {error}")]
    Name { text: String, error: NameError },
    #[error("unknown {what} {text:?}")]
    Unknown { what: &'static str, text: String },
    #[error("{0} is not supported")]
    Unsupported(String),
    /// Text that is no value of this kind.
    #[error("{text:?} {why}")]
    Refused { text: String, why: &'static str },
    #[error("a pattern has at most {0} characters")]
    PatternTooLong(usize),
    #[error("{0}")]
    Selector(api::selector::Error),
}

impl ValueError {
    fn invalid(what: &'static str, text: &str) -> ValueError {
        ValueError::Invalid { what, text: text.to_string() }
    }

    pub(super) fn unknown(what: &'static str, text: &str) -> ValueError {
        ValueError::Unknown { what, text: text.to_string() }
    }

    pub(super) fn refused(text: &str, why: &'static str) -> ValueError {
        ValueError::Refused { text: text.to_string(), why }
    }
}

impl From<&'static str> for ValueError {
    fn from(what: &'static str) -> ValueError {
        ValueError::Syntax(what)
    }
}

/// A value that was read.
pub(super) type Value<T> = Result<T, ValueError>;

/// Go's durations.
pub(super) fn duration(text: &str) -> Value<Duration> {
    let nanos = api::time::parse_duration(text)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| ValueError::Negative(text.to_string()))
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Value<T> {
    text.parse().map_err(|_| ValueError::invalid("number", text))
}

pub(super) fn name(text: &str) -> Value<Name> {
    Name::parse(text).map(|name| name.to_lower()).map_err(|error| ValueError::Name { text: text.to_string(), error })
}

/// `:8080`, `localhost:8080` or an address with a port.
pub(super) fn listen(text: &str, default_port: u16) -> Value<SocketAddr> {
    let bad = || ValueError::invalid("address", text);
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port = number(port)?;
    match host {
        "" => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        "localhost" => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
        _ => Err(bad()),
    }
}

/// A zone: a name, or the reverse zones of a network in CIDR notation.
pub(super) fn zones(text: &str) -> Value<Vec<Name>> {
    match text.split_once('/') {
        None => name(text).map(|name| vec![name]),
        Some((address, length)) => {
            let address = address.parse().map_err(|_| ValueError::invalid("network", text))?;
            let length = number(length)?;
            reverse_zones(address, length).ok_or_else(|| ValueError::invalid("network", text))
        }
    }
}

/// All zones of arguments, or those of the server block if there are none.
pub(super) fn zones_or(arguments: &[String], otherwise: &[Name]) -> Value<Vec<Name>> {
    if arguments.is_empty() {
        return Ok(otherwise.to_vec());
    }
    let all: Value<Vec<Vec<Name>>> = arguments.iter().map(|text| zones(text)).collect();
    Ok(all?.concat())
}

/// Reverse zones end at whole octets or nibbles: a network in between is several zones.
fn reverse_zones(address: IpAddr, length: u32) -> Option<Vec<Name>> {
    let (bits, width, unit) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32, 8),
        IpAddr::V6(address) => (address.to_bits(), 128, 4),
    };
    if length > width || (length == 0 && width == 128) {
        return None;
    }
    let labels = length.div_ceil(unit);
    let whole = labels * unit;
    let host = width - whole;
    let first = if length == 0 { 0 } else { bits >> (width - length) << (width - length) };
    let zone = |index: u128| {
        let bits = first | index << host;
        let address: IpAddr = match width {
            32 => Ipv4Addr::from_bits(u32::try_from(bits).ok()?).into(),
            _ => Ipv6Addr::from_bits(bits).into(),
        };
        let skipped = (width / unit - labels) as usize;
        (0..skipped).try_fold(name_of(address), |name, _| name.parent())
    };
    (0..1u128 << (whole - length)).map(zone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_reverse_zones() {
        let check = |text: &str, want: &[&str]| {
            let got: Vec<String> = zones(text).expect("zones").iter().map(Name::to_string).collect();
            assert_eq!(got, want, "{text}");
        };
        check("Example.org", &["example.org."]);
        check("10.0.0.0/8", &["10.in-addr.arpa."]);
        check("10.1.2.0/24", &["2.1.10.in-addr.arpa."]);
        check("10.1.2.4/31", &["4.2.1.10.in-addr.arpa.", "5.2.1.10.in-addr.arpa."]);
        check("10.96.0.0/15", &["96.10.in-addr.arpa.", "97.10.in-addr.arpa."]);
        check("fd00::/8", &["d.f.ip6.arpa."]);
        check("0.0.0.0/0", &["in-addr.arpa."]);
        for text in ["10.0.0.0/33", "x/8", "10.0.0.0/x", "a..b"] {
            assert!(zones(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_addresses_and_times() {
        assert_eq!(listen(":8080", 1), Ok("[::]:8080".parse().expect("an address")));
        assert_eq!(listen("localhost:9153", 1), Ok("127.0.0.1:9153".parse().expect("an address")));
        assert_eq!(listen("10.0.0.1", 53), Ok("10.0.0.1:53".parse().expect("an address")));
        assert!(listen("x", 1).is_err() && listen(":x", 1).is_err() && listen("x:1", 1).is_err());
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        assert!(duration("-1s").is_err() && duration("30").is_err());
    }
}
