//! Values as kubectl prints them.

use api::{Tree, json};

use crate::Found;

/// Results separated by spaces.
pub fn print_text(found: &[Found]) -> String {
    found.iter().map(|value| text_of(value)).collect::<Vec<_>>().join(" ")
}

/// Results as an indented JSON list.
pub fn print_json(found: &[Found]) -> String {
    let mut out = String::new();
    write_indented(&mut out, found.iter().map(AsRef::as_ref), 0);
    out.push('\n');
    out
}

/// A value as text: maps and lists as compact JSON.
pub fn text_of(value: &Tree) -> String {
    match value {
        Tree::Str(text) => text.to_string(),
        Tree::Float(number) => go_float(*number),
        other => json_of(other),
    }
}

/// JSON as Go encodes it, which escapes the special characters of HTML.
fn json_of(value: &Tree) -> String {
    let text = String::from_utf8_lossy(&json::encode(value, None)).into_owned();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}', '\u{8}', '\u{c}']) && !text.contains("\\u00") {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    // The two control characters that have a letter in Go's encoder.
    out.replace("\\u0008", "\\b").replace("\\u000c", "\\f")
}

fn write_indented<'a>(out: &mut String, items: impl ExactSizeIterator<Item = &'a Tree>, level: usize) {
    if items.len() == 0 {
        return out.push_str("[]");
    }
    out.push('[');
    for (at, item) in items.enumerate() {
        start_line(out, at, level + 1);
        write_value(out, item, level + 1);
    }
    start_line(out, 0, level);
    out.push(']');
}

fn write_value(out: &mut String, value: &Tree, level: usize) {
    match value {
        Tree::List(items) => write_indented(out, items.iter(), level),
        Tree::Map(map) if !map.is_empty() => {
            out.push('{');
            for (at, (key, value)) in map.iter().enumerate() {
                start_line(out, at, level + 1);
                out.push_str(&json_of(&Tree::from(key)));
                out.push_str(": ");
                write_value(out, value, level + 1);
            }
            start_line(out, 0, level);
            out.push('}');
        }
        other => out.push_str(&json_of(other)),
    }
}

fn start_line(out: &mut String, at: usize, level: usize) {
    if at > 0 {
        out.push(',');
    }
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", level));
}

/// Go's shortest form: with an exponent from seven digits before the point, or five zeros after it.
fn go_float(number: f64) -> String {
    if !number.is_finite() {
        return match number {
            number if number.is_nan() => "NaN".to_string(),
            number if number > 0.0 => "+Inf".to_string(),
            _ => "-Inf".to_string(),
        };
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 6..)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}
