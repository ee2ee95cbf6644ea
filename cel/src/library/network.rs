//! Addresses and networks.

mod describe;

use std::net::IpAddr;

use stdx::cidr::IpNet;

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Opaque, Value};

use describe::describe_ip;

pub(super) const ROWS: &[Row] = &[
    ("ip", "string_to_ip", "(string) -> net.IP"),
    ("ip", "cidr_ip", "net.CIDR.() -> net.IP"),
    ("isIP", "is_ip", "(string) -> bool"),
    ("ip.isCanonical", "ip_is_canonical", "(string) -> bool"),
    ("family", "ip_family", "net.IP.() -> int"),
    ("isUnspecified", "ip_is_unspecified", "net.IP.() -> bool"),
    ("isLoopback", "ip_is_loopback", "net.IP.() -> bool"),
    ("isLinkLocalMulticast", "ip_is_link_local_multicast", "net.IP.() -> bool"),
    ("isLinkLocalUnicast", "ip_is_link_local_unicast", "net.IP.() -> bool"),
    ("isGlobalUnicast", "ip_is_global_unicast", "net.IP.() -> bool"),
    ("string", "ip_to_string", "(net.IP) -> string"),
    ("cidr", "string_to_cidr", "(string) -> net.CIDR"),
    ("isCIDR", "is_cidr", "(string) -> bool"),
    ("containsIP", "cidr_contains_ip_string", "net.CIDR.(string) -> bool"),
    ("containsIP", "cidr_contains_ip_ip", "net.CIDR.(net.IP) -> bool"),
    ("containsCIDR", "cidr_contains_cidr_string", "net.CIDR.(string) -> bool"),
    ("containsCIDR", "cidr_contains_cidr", "net.CIDR.(net.CIDR) -> bool"),
    ("prefixLength", "cidr_prefix_length", "net.CIDR.() -> int"),
    ("masked", "cidr_masked", "net.CIDR.() -> net.CIDR"),
    ("string", "cidr_to_string", "(net.CIDR) -> string"),
];

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "ip" => |_, args| match &args[0] {
            Value::String(text) => parse_ip(text).map(wrap_ip),
            Value::Opaque(Opaque::Cidr(cidr)) => Ok(wrap_ip(cidr.address)),
            _ => no_overload(),
        },
        "isIP" => |_, args| match &args[0] {
            Value::String(text) => Ok(Value::Bool(parse_ip(text).is_ok())),
            _ => no_overload(),
        },
        "ip.isCanonical" => |_, args| match &args[0] {
            Value::String(text) => Ok(Value::Bool(parse_ip(text)?.to_string() == **text)),
            _ => no_overload(),
        },
        "family" => |_, args| Ok(Value::Int(if address(&args[0])?.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |_, args| Ok(Value::Bool(address(&args[0])?.is_unspecified())),
        "isLoopback" => |_, args| Ok(Value::Bool(address(&args[0])?.is_loopback())),
        "isLinkLocalMulticast" => |_, args| Ok(Value::Bool(is_link_local_multicast(address(&args[0])?))),
        "isLinkLocalUnicast" => |_, args| Ok(Value::Bool(is_link_local_unicast(address(&args[0])?))),
        "isGlobalUnicast" => |_, args| Ok(Value::Bool(is_global_unicast(address(&args[0])?))),
        _ => return find_cidr(name),
    })
}

fn find_cidr(name: &str) -> Option<Function> {
    Some(match name {
        "cidr" => |_, args| match &args[0] {
            Value::String(text) => Ok(wrap_cidr(convert_cidr(text)?)),
            _ => no_overload(),
        },
        "isCIDR" => |_, args| match &args[0] {
            Value::String(text) => Ok(Value::Bool(parse_cidr(text).is_ok())),
            _ => no_overload(),
        },
        "containsIP" => |_, args| {
            let address = match &args[1] {
                Value::String(text) => parse_ip(text).map_err(|_| EvalError::UnsupportedArgument)?,
                other => address(other)?,
            };
            Ok(Value::Bool(network(&args[0])?.contains(address)))
        },
        "containsCIDR" => |_, args| {
            let other = match &args[1] {
                Value::String(text) => convert_cidr(text)?,
                other => network(other)?,
            };
            Ok(Value::Bool(network(&args[0])?.contains_net(&other)))
        },
        "prefixLength" => |_, args| Ok(Value::Int(i64::from(network(&args[0])?.prefix()))),
        "masked" => |_, args| Ok(wrap_cidr(network(&args[0])?.network())),
        _ => return None,
    })
}

fn wrap_ip<'a>(address: IpAddr) -> Value<'a> {
    Value::Opaque(Opaque::Ip(address))
}

fn wrap_cidr<'a>(cidr: IpNet) -> Value<'a> {
    Value::Opaque(Opaque::Cidr(cidr))
}

fn address(value: &Value<'_>) -> Result<IpAddr, EvalError> {
    match value {
        Value::Opaque(Opaque::Ip(address)) => Ok(*address),
        _ => Err(EvalError::overload()),
    }
}

fn network(value: &Value<'_>) -> Result<IpNet, EvalError> {
    match value {
        Value::Opaque(Opaque::Cidr(cidr)) => Ok(*cidr),
        _ => Err(EvalError::overload()),
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let quoted = api::quote::go_quote(text);
    let (plain, zone) = text.split_once('%').map_or((text, false), |(plain, _)| (plain, true));
    match plain.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) if zone => {
            Err(EvalError::failed(format!("IP address {quoted} with zone value is not allowed")))
        }
        Ok(address) if is_mapped(address) => {
            Err(EvalError::failed(format!("IPv4-mapped IPv6 address {quoted} is not allowed")))
        }
        Ok(address) if !zone => Ok(address),
        _ => {
            let cause = describe_ip(text);
            Err(EvalError::failed(format!("IP Address {quoted} parse error during conversion from string: {cause}")))
        }
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

const CONVERSION: &str = "network address parse error during conversion from string";

/// The network of an argument; its errors have the prefix twice, as in upstream.
fn convert_cidr(text: &str) -> Result<IpNet, EvalError> {
    parse_cidr(text).map_err(|error| EvalError::failed(format!("{CONVERSION}: {error}")))
}

fn parse_cidr(text: &str) -> Result<IpNet, EvalError> {
    let fail = |cause: String| {
        Err(EvalError::failed(format!("{CONVERSION}: netip.ParsePrefix({}): {cause}", api::quote::go_quote(text))))
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return fail("no '/'".to_owned()) };
    if address.contains('%') {
        return fail("IPv6 zones cannot be present in a prefix".to_owned());
    }
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return fail(describe_ip(address));
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return fail(format!("bad bits after slash: {}", api::quote::go_quote(bits)));
    }
    match bits.parse().ok().and_then(|bits| IpNet::new(parsed, bits)) {
        None => fail("prefix length out of range".to_owned()),
        Some(_) if is_mapped(parsed) => {
            Err(EvalError::failed(format!("IPv4-mapped IPv6 address {} is not allowed", api::quote::go_quote(text))))
        }
        Some(network) => Ok(network),
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
