//! Semantic versions, and the functions that order them and quantities.

use std::sync::Arc;

use super::{Function, no_overload, quantities};
use crate::library::signature::Row;
use crate::value::{EvalError, Opaque, Semver, Value};

pub(super) const ROWS: &[Row] = &[
    ("semver", "string_to_semver", "(string) -> kubernetes.Semver"),
    ("semver", "string_bool_to_semver", "(string, bool) -> kubernetes.Semver"),
    ("isSemver", "is_semver_string", "(string) -> bool"),
    ("isSemver", "is_semver_string_bool", "(string, bool) -> bool"),
    ("isGreaterThan", "semver_is_greater_than", "kubernetes.Semver.(kubernetes.Semver) -> bool"),
    ("isLessThan", "semver_is_less_than", "kubernetes.Semver.(kubernetes.Semver) -> bool"),
    ("compareTo", "semver_compare_to", "kubernetes.Semver.(kubernetes.Semver) -> int"),
    ("major", "semver_major", "kubernetes.Semver.() -> int"),
    ("minor", "semver_minor", "kubernetes.Semver.() -> int"),
    ("patch", "semver_patch", "kubernetes.Semver.() -> int"),
];

impl<'a> Value<'a> {
    /// A semantic version, or what is wrong with its text.
    pub fn semver(text: &str) -> Result<Value<'a>, EvalError> {
        Ok(Value::Opaque(Opaque::Semver(Arc::new(parse(text)?))))
    }
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "semver" => |_, args| {
            let version = read(args)??;
            Ok(Value::Opaque(Opaque::Semver(Arc::new(version))))
        },
        "isSemver" => |_, args| Ok(Value::Bool(read(args)?.is_ok())),
        "major" => |_, args| number(&args[0], 0),
        "minor" => |_, args| number(&args[0], 1),
        "patch" => |_, args| number(&args[0], 2),
        "isGreaterThan" => |_, args| Ok(Value::Bool(order(args)?.is_gt())),
        "isLessThan" => |_, args| Ok(Value::Bool(order(args)?.is_lt())),
        "compareTo" => |_, args| Ok(Value::Int(order(args)? as i64)),
        _ => return None,
    })
}

fn order(args: &[Value<'_>]) -> Result<std::cmp::Ordering, EvalError> {
    match args {
        [Value::Opaque(Opaque::Semver(a)), Value::Opaque(Opaque::Semver(b))] => Ok(a.compare(b)),
        [a, b] => quantities::compare(a, b),
        _ => Err(EvalError::overload()),
    }
}

fn number<'a>(version: &Value<'a>, index: usize) -> Result<Value<'a>, EvalError> {
    let Value::Opaque(Opaque::Semver(version)) = version else { return no_overload() };
    // Larger numbers wrap around, as the conversion of upstream does.
    Ok(Value::Int(version.numbers[index] as i64))
}

/// The version of the arguments, or what is wrong with its text.
fn read(args: &[Value<'_>]) -> Result<Result<Semver, EvalError>, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(normalize(text).and_then(|text| parse(&text))),
        _ => Err(EvalError::overload()),
    }
}

/// A version without a leading `v` and leading zeros, and with all three numbers.
fn normalize(text: &str) -> Result<String, EvalError> {
    let mut parts: Vec<String> = text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(strip_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(EvalError::failed("short version cannot contain PreRelease/Build meta data"));
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn strip_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|c: char| c.is_ascii_digit()) { stripped.to_owned() } else { format!("0{stripped}") }
}

fn parse(text: &str) -> Result<Semver, EvalError> {
    if text.is_empty() {
        return Err(EvalError::failed("Version string empty"));
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(EvalError::failed("No Major.Minor.Patch elements found"));
    };
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, prerelease) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let numbers = [read_number(major, "major")?, read_number(minor, "minor")?, read_number(patch, "patch")?];
    let prerelease = prerelease.map(read_prerelease).transpose()?.unwrap_or_default();
    if let Some(build) = build {
        build.split('.').try_for_each(check_build)?;
    }
    Ok(Semver { numbers, prerelease })
}

fn read_number(text: &str, name: &str) -> Result<u64, EvalError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        // The conversion rejects an empty number.
        return match text.is_empty() {
            true => Err(EvalError::failed("strconv.ParseUint: parsing \"\": invalid syntax")),
            false => Err(EvalError::failed(format!(
                "Invalid character(s) found in {name} number {}",
                api::quote::go_quote(text)
            ))),
        };
    }
    if text.len() > 1 && text.starts_with('0') {
        let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        return Err(EvalError::failed(format!(
            "{name} number must not contain leading zeroes {}",
            api::quote::go_quote(text)
        )));
    }
    text.parse().map_err(|_| {
        EvalError::failed(format!("strconv.ParseUint: parsing {}: value out of range", api::quote::go_quote(text)))
    })
}

fn read_prerelease(text: &str) -> Result<Vec<String>, EvalError> {
    text.split('.').map(read_prerelease_part).collect()
}

fn read_prerelease_part(part: &str) -> Result<String, EvalError> {
    if part.is_empty() {
        return Err(EvalError::failed("Prerelease is empty"));
    }
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        if part.len() > 1 && part.starts_with('0') {
            return Err(EvalError::failed(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                api::quote::go_quote(part)
            )));
        }
        return Ok(part.to_owned());
    }
    match part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(part.to_owned()),
        false => {
            Err(EvalError::failed(format!("Invalid character(s) found in prerelease {}", api::quote::go_quote(part))))
        }
    }
}

fn check_build(part: &str) -> Result<(), EvalError> {
    if part.is_empty() {
        return Err(EvalError::failed("Build meta data is empty"));
    }
    match part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(()),
        false => Err(EvalError::failed(format!(
            "Invalid character(s) found in build meta data {}",
            api::quote::go_quote(part)
        ))),
    }
}
