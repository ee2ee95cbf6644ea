//! The named formats of Kubernetes.

use api::formats::{is_base64, is_date, is_date_time};
use api::validation;

use super::{Function, no_overload, urls};
use crate::library::signature::Row;
use crate::value::{NamedFormat, Opaque, Value};

pub(super) const ROWS: &[Row] = &[
    ("validate", "format-validate", "kubernetes.NamedFormat.(string) -> optional<list<string>>"),
    ("format.named", "format-named", "(string) -> optional<kubernetes.NamedFormat>"),
];

const DATE_TIME: &str = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
const UUID: &str = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";

/// The formats by the name of their function.
static FORMATS: [(&str, NamedFormat); 13] = [
    ("format.dns1123Label", format("DNS1123Label", 30, |text| messages(validation::dns1123_label(text)))),
    ("format.dns1123Subdomain", format("DNS1123Subdomain", 60, |text| messages(validation::dns1123_subdomain(text)))),
    ("format.dns1035Label", format("DNS1035Label", 30, |text| messages(validation::dns1035_label(text)))),
    ("format.qualifiedName", format("QualifiedName", 60, |text| messages(validation::qualified_name(text)))),
    (
        "format.dns1123LabelPrefix",
        format("DNS1123LabelPrefix", 30, |text| messages(validation::dns1123_label(&mask_dash(text)))),
    ),
    (
        "format.dns1123SubdomainPrefix",
        format("DNS1123SubdomainPrefix", 60, |text| messages(validation::dns1123_subdomain(&mask_dash(text)))),
    ),
    (
        "format.dns1035LabelPrefix",
        format("DNS1035LabelPrefix", 30, |text| messages(validation::dns1035_label(&mask_dash(text)))),
    ),
    ("format.labelValue", format("LabelValue", 40, |text| messages(validation::label_value(text)))),
    (
        "format.uri",
        format("URI", 1103, |text| match urls::parse_url(text) {
            Ok(_) => Vec::new(),
            Err(error) => vec![error.to_string()],
        }),
    ),
    ("format.uuid", format("uuid", UUID.len() as u64, |text| reject(is_uuid(text), "does not match the UUID format"))),
    ("format.byte", format("byte", 84, |text| reject(is_base64(text), "invalid base64"))),
    ("format.date", format("date", DATE_TIME.len() as u64, |text| reject(is_date(text), "invalid date"))),
    (
        "format.datetime",
        format("datetime", DATE_TIME.len() as u64, |text| reject(is_date_time(text), "invalid datetime")),
    ),
];

const fn format(name: &'static str, regex_size: u64, validate: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat { name, regex_size, validate }
}

/// A row for the function of each format.
pub(super) fn constant_rows() -> Vec<Row> {
    FORMATS.iter().map(|(function, _)| (*function, *function, "() -> kubernetes.NamedFormat")).collect()
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "validate" => |_, args| {
            let [Value::Opaque(Opaque::Format(format)), Value::String(text)] = args else { return no_overload() };
            let errors = (format.validate)(text);
            Ok(match errors.is_empty() {
                true => Value::Optional(None),
                false => Value::some(Value::list(errors.into_iter().map(Value::string).collect())),
            })
        },
        "format.named" => |_, args| {
            let Value::String(name) = &args[0] else { return no_overload() };
            let found = FORMATS.iter().find(|(function, _)| function.strip_prefix("format.") == Some(name));
            Ok(found.map_or(Value::Optional(None), |(_, format)| Value::some(Value::Opaque(Opaque::Format(format)))))
        },
        _ => return None,
    })
}

/// The value of a function without arguments that is a format.
pub(crate) fn find_constant(name: &str) -> Option<Value<'static>> {
    let (_, format) = FORMATS.iter().find(|(function, _)| *function == name)?;
    Some(Value::Opaque(Opaque::Format(format)))
}

fn messages(found: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    found.into_iter().map(Into::into).collect()
}

/// A prefix may end in a dash, since a suffix follows.
fn mask_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(head) if !head.is_empty() => format!("{head}a"),
        _ => text.to_owned(),
    }
}

fn reject(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..length) {
            Some(part) if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest = &rest[length..],
            _ => return false,
        }
    }
    rest.is_empty()
}
