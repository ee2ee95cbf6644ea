//! Validation of single values shared by several kinds, with upstream's messages.

use std::collections::HashSet;

use api::field::{Errors, Path, Value};
use api::schema::Ty;
use api::{Tree, validation};

use crate::kind::Kind;

const IMMUTABLE: &str = "field is immutable";

/// The integer under a key must not be negative if it is set.
pub(crate) fn non_negative(parent: &Tree, key: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = parent.get(key).and_then(Tree::as_int)
        && number < 0
    {
        errors.invalid(&path.field(key), number, "must be greater than or equal to 0");
    }
}

pub(crate) fn all_non_negative(parent: &Tree, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        non_negative(parent, key, path, errors);
    }
}

/// The field under a key must not change; `show` formats the new value for the error.
pub(crate) fn immutable(
    (new, old): (&Tree, &Tree),
    key: &str,
    show: impl FnOnce(&Tree) -> Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let value = new.at(key);
    if value != old.at(key) {
        errors.invalid(&path.field(key), show(value), IMMUTABLE);
    }
}

/// Like [`immutable`], for fields whose rule upstream declares on the type: the error shows no value.
pub(crate) fn declared_immutable((new, old): (&Tree, &Tree), key: &str, path: &Path<'_>, errors: &mut Errors) {
    immutable((new, old), key, |_| Value::raw("null"), path, errors);
}

/// A value as upstream's JSON of its type prints it; `path` is its dotted path in the kind.
pub(crate) fn shown(kind: &Kind, path: &str, value: &Tree) -> Value {
    Value::raw(shown_text(kind, path, value))
}

pub(crate) fn shown_text(kind: &Kind, path: &str, value: &Tree) -> String {
    String::from_utf8_lossy(&api::json::encode(value, type_at(kind, path))).into_owned()
}

pub(crate) fn type_at(kind: &Kind, path: &str) -> Option<&'static api::schema::Type> {
    let mut here = kind.schema();
    for step in path.split('.') {
        here = match here.field(step)?.ty {
            Ty::Struct(ty) => ty,
            Ty::List(Ty::Struct(ty)) => *ty,
            _ => return None,
        };
    }
    Some(here)
}

/// A number of at least zero, or a percentage.
pub(crate) fn int_or_percent(value: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Tree::Str(text) => errors.invalid_all(path, text, validation::percent(text)),
        Tree::Int(number) if *number < 0 => errors.invalid(path, *number, "must be greater than or equal to 0"),
        _ => {}
    }
}

pub(crate) fn at_most_100_percent(value: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if percent_of(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}

/// The number of an int-or-percent value; 0 if it is neither.
pub(crate) fn int_or_percent_value(value: &Tree) -> i64 {
    percent_of(value).or_else(|| value.as_int()).unwrap_or_else(|| value.as_str().unwrap_or("").parse().unwrap_or(0))
}

fn percent_of(value: &Tree) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that is too large exceeds any limit.
    Some(digits.parse().unwrap_or(i64::MAX))
}

pub(crate) fn port_number(number: i64, path: &Path<'_>, errors: &mut Errors) {
    for message in validation::port_number(number) {
        errors.invalid(path, number, &message);
    }
}

/// A port number, or its name in the pod.
pub(crate) fn port_number_or_name(port: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Tree::Str(name) => errors.invalid_all(path, name, validation::port_name(name)),
        _ => port_number(port.as_int().unwrap_or(0), path, errors),
    }
}

/// Values of the stored object, which may stay even if invalid.
pub(crate) type StoredValues<'a> = HashSet<&'a str>;

/// The strings of a list.
pub(crate) fn stored(list: &[Tree]) -> StoredValues<'_> {
    list.iter().filter_map(Tree::as_str).collect()
}

/// An IP address of an older field; a value that is already stored is not validated again.
pub(crate) fn ip(value: &str, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) -> bool {
    if stored.contains(value) {
        return true;
    }
    let messages = validation::ip_legacy(value, true);
    let good = messages.is_empty();
    errors.invalid_all(path, value, messages);
    good
}

/// A CIDR of an older field, like [`ip`].
pub(crate) fn cidr(value: &str, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) {
    if !stored.contains(value) {
        errors.invalid_all(path, value, validation::cidr_legacy(value, true));
    }
}

/// An IP address that is reachable from another machine.
pub(crate) fn endpoint_ip(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(address) = validation::parse_ip(value) else {
        return errors.invalid(path, value, "must be a valid IP address");
    };
    if address.is_unspecified() {
        errors.invalid(path, value, &format!("may not be unspecified ({value})"));
    }
    if address.is_loopback() {
        errors.invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local(address) {
        errors.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast(address) {
        errors.invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(v4) => v4.is_link_local(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        std::net::IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

const MAX_DRIVER_BYTES: usize = 63;

/// The name of a CSI driver: a domain in any case.
pub(crate) fn validate_driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_DRIVER_BYTES {
        errors.too_long(path, MAX_DRIVER_BYTES);
    }
    errors.invalid_all(path, name, validation::dns1123_subdomain(&name.to_lowercase()));
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn check(run: impl Fn(&Path<'_>, &mut Errors), want: &[&str]) {
        let mut errors = Errors::new();
        run(&Path::root("f"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn ints_and_percents() {
        let percent = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
        let cases: [(Tree, i64, Vec<String>); 5] = [
            (Tree::from(3), 3, vec![]),
            (Tree::from("25%"), 25, vec![]),
            (Tree::from(-1), -1, vec!["f: Invalid value: -1: must be greater than or equal to 0".into()]),
            (Tree::from("150%"), 150, vec!["f: Invalid value: \"150%\": must not be greater than 100%".into()]),
            (Tree::from("x"), 0, vec![format!("f: Invalid value: \"x\": {percent}")]),
        ];
        for (value, number, want) in cases {
            assert_eq!(int_or_percent_value(&value), number);
            let want: Vec<&str> = want.iter().map(String::as_str).collect();
            check(
                |path, errors| {
                    int_or_percent(&value, path, errors);
                    at_most_100_percent(&value, path, errors);
                },
                &want,
            );
        }
    }

    #[test]
    fn immutable_fields_show_the_new_value() {
        let (new, old) = (tree! { "a" => "y" }, tree! { "a" => "x" });
        check(
            |path, errors| immutable((&new, &old), "a", |value| value.into(), path, errors),
            &["f.a: Invalid value: \"y\": field is immutable"],
        );
        check(
            |path, errors| declared_immutable((&new, &old), "a", path, errors),
            &["f.a: Invalid value: null: field is immutable"],
        );
    }

    #[test]
    fn refuses_local_endpoint_addresses() {
        let cases = [
            ("192.0.2.1", None),
            ("0.0.0.0", Some("may not be unspecified (0.0.0.0)")),
            ("::1", Some("may not be in the loopback range (127.0.0.0/8, ::1/128)")),
            ("fe80::1", Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)")),
            ("224.0.0.9", Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")),
        ];
        for (value, message) in cases {
            let want: Vec<String> = message.iter().map(|text| format!("f: Invalid value: {value:?}: {text}")).collect();
            let want: Vec<&str> = want.iter().map(String::as_str).collect();
            check(|path, errors| endpoint_ip(value, path, errors), &want);
        }
    }
}
