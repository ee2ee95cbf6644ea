//! Strings, in code points.

use super::{Function, check_length, formatting, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Value};

pub(super) const ROWS: &[Row] = &[
    ("charAt", "string_char_at_int", "string.(int) -> string"),
    ("indexOf", "string_index_of_string", "string.(string) -> int"),
    ("indexOf", "string_index_of_string_int", "string.(string, int) -> int"),
    ("lastIndexOf", "string_last_index_of_string", "string.(string) -> int"),
    ("lastIndexOf", "string_last_index_of_string_int", "string.(string, int) -> int"),
    ("lowerAscii", "string_lower_ascii", "string.() -> string"),
    ("upperAscii", "string_upper_ascii", "string.() -> string"),
    ("replace", "string_replace_string_string", "string.(string, string) -> string"),
    ("replace", "string_replace_string_string_int", "string.(string, string, int) -> string"),
    ("split", "string_split_string", "string.(string) -> list<string>"),
    ("split", "string_split_string_int", "string.(string, int) -> list<string>"),
    ("substring", "string_substring_int", "string.(int) -> string"),
    ("substring", "string_substring_int_int", "string.(int, int) -> string"),
    ("trim", "string_trim", "string.() -> string"),
    ("format", "string_format", "string.(list<dyn>) -> string"),
    ("strings.quote", "strings_quote", "(string) -> string"),
    ("join", "list_join", "list<string>.() -> string"),
    ("join", "list_join_string", "list<string>.(string) -> string"),
];

pub(super) const JSON_PATCH: &[Row] =
    &[("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", "(string) -> string")];

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "charAt" => |_, args| match args {
            [Value::String(text), Value::Int(index)] => char_at(text, *index),
            _ => no_overload(),
        },
        "lowerAscii" => |_, args| map_string(args, |text| Ok(text.to_ascii_lowercase())),
        "upperAscii" => |_, args| map_string(args, |text| Ok(text.to_ascii_uppercase())),
        "trim" => |_, args| map_string(args, |text| Ok(text.trim_matches(is_space).to_owned())),
        "strings.quote" => |_, args| map_string(args, |text| Ok(quote(text))),
        "jsonpatch.escapeKey" => |_, args| map_string(args, |text| Ok(text.replace('~', "~0").replace('/', "~1"))),
        "replace" => |_, args| match args {
            [Value::String(text), Value::String(old), Value::String(new)] => replace(text, old, new, -1),
            [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
                replace(text, old, new, *limit)
            }
            _ => no_overload(),
        },
        "split" => |_, args| match args {
            [Value::String(text), Value::String(separator)] => Ok(split(text, separator, -1)),
            [Value::String(text), Value::String(separator), Value::Int(limit)] => Ok(split(text, separator, *limit)),
            _ => no_overload(),
        },
        "substring" => |_, args| match args {
            [Value::String(text), Value::Int(start)] => substring(text, *start, None),
            [Value::String(text), Value::Int(start), Value::Int(end)] => substring(text, *start, Some(*end)),
            _ => no_overload(),
        },
        "format" => |call, args| match args {
            [Value::String(text), Value::List(values)] => formatting::format(call, text, values).map(Value::string),
            _ => no_overload(),
        },
        "join" => |_, args| match args {
            [Value::List(_)] => join(&args[0], ""),
            [Value::List(_), Value::String(separator)] => join(&args[0], separator),
            _ => no_overload(),
        },
        _ => return None,
    })
}

fn map_string<'a>(args: &[Value<'a>], map: fn(&str) -> Result<String, EvalError>) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::String(text)] => map(text).map(Value::string),
        _ => no_overload(),
    }
}

/// White space as Go defines it.
fn is_space(char: char) -> bool {
    char.is_whitespace()
}

fn out_of_range<'a>(index: i64) -> Result<Value<'a>, EvalError> {
    Err(EvalError::failed(format!("index out of range: {index}")))
}

fn char_at<'a>(text: &str, index: i64) -> Result<Value<'a>, EvalError> {
    let Ok(at) = usize::try_from(index) else { return out_of_range(index) };
    match text.chars().nth(at) {
        Some(char) => Ok(Value::string(char.to_string())),
        None if text.chars().count() == at => Ok(Value::string("")),
        None => out_of_range(index),
    }
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Result<Value<'a>, EvalError> {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let last = end.unwrap_or(length);
    if end.is_some() && start > last {
        let message = format!("invalid substring range. start: {start}, end: {last}");
        return Err(EvalError::failed(message));
    }
    if let Some(index) = [start, last].into_iter().find(|index| *index < 0 || *index > length) {
        return out_of_range(index);
    }
    let (skip, take) = (usize::try_from(start).unwrap_or(0), usize::try_from(last - start).unwrap_or(0));
    Ok(Value::string(text.chars().skip(skip).take(take).collect::<String>()))
}

/// The index of the first or last occurrence of a part from an offset on, in code points.
pub(super) fn index_of(args: &[Value<'_>], last: bool) -> Result<i64, EvalError> {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, Some(*offset)),
        _ => return Err(EvalError::overload()),
    };
    let length = text.chars().count();
    let at = match offset {
        Some(offset) => match usize::try_from(offset) {
            Ok(at) => at,
            Err(_) => return Err(EvalError::failed(format!("index out of range: {offset}"))),
        },
        None if last => length,
        None => 0,
    };
    let found = if part.is_empty() { Some(at.min(length)) } else { search(text, part, at, last, offset.is_some()) };
    Ok(found.and_then(|found| i64::try_from(found).ok()).unwrap_or(-1))
}

fn search(text: &str, part: &str, at: usize, last: bool, has_offset: bool) -> Option<usize> {
    let byte = text.char_indices().nth(at).map(|(byte, _)| byte);
    let found = if last {
        if has_offset && byte.is_none() {
            return None;
        }
        let end = byte.map_or(text.len(), |byte| (byte + part.len()).min(text.len()));
        memchr::memmem::rfind(&text.as_bytes()[..end], part.as_bytes())
    } else {
        let start = byte?;
        memchr::memmem::find(&text.as_bytes()[start..], part.as_bytes()).map(|found| start + found)
    };
    found.map(|byte| text[..byte].chars().count())
}

fn replace<'a>(text: &str, old: &str, new: &str, limit: i64) -> Result<Value<'a>, EvalError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let occurrences = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let count = occurrences.min(limit);
    check_length(text.len().saturating_add(new.len().saturating_mul(count)))?;
    Ok(Value::string(text.replacen(old, new, count)))
}

fn split<'a>(text: &str, separator: &str, limit: i64) -> Value<'a> {
    let parts: Vec<&str> = match (limit, separator) {
        (0, _) => Vec::new(),
        (_, "") => split_chars(text, limit),
        (1.., _) => text.splitn(usize::try_from(limit).unwrap_or(usize::MAX), separator).collect(),
        _ => text.split(separator).collect(),
    };
    Value::list(parts.into_iter().map(Value::string).collect())
}

/// The code points, of which the last part is the rest.
fn split_chars(text: &str, limit: i64) -> Vec<&str> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut starts: Vec<usize> = text.char_indices().map(|(at, _)| at).take(limit).collect();
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

fn join<'a>(list: &Value<'a>, separator: &str) -> Result<Value<'a>, EvalError> {
    let Value::List(list) = list else { return no_overload() };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let Value::String(text) = item? else { return Err(EvalError::failed("join: invalid input")) };
        if at > 0 {
            out.push_str(separator);
        }
        out.push_str(&text);
        check_length(out.len())?;
    }
    Ok(Value::string(out))
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match api::quote::escape_letter(char) {
            Some(letter) => out.extend(['\\', letter]),
            None => out.push(char),
        }
    }
    out.push('"');
    out
}
