//! Reads of fields as they are printed.

use api::selector::Selector;
use api::{Map, Tree, time};

use super::writer::text_of;

/// The scalar at a dotted path; empty if it is missing.
pub(super) fn text(tree: &Tree, path: &str) -> String {
    text_of(tree.at(path))
}

/// The scalar at a dotted path, or a word for a missing one.
pub(super) fn text_or(tree: &Tree, path: &str, missing: &str) -> String {
    let found = text(tree, path);
    if found.is_empty() { missing.to_string() } else { found }
}

/// The integer at a dotted path, or 0.
pub(super) fn int(tree: &Tree, path: &str) -> i64 {
    tree.int(path).unwrap_or(0)
}

/// The strings at a dotted path.
pub(super) fn texts(tree: &Tree, path: &str) -> Vec<String> {
    tree.list(path).iter().map(text_of).collect()
}

pub(super) fn joined(tree: &Tree, path: &str, separator: &str) -> String {
    texts(tree, path).join(separator)
}

pub(super) fn is_set(tree: &Tree, path: &str) -> bool {
    !tree.at(path).is_null()
}

pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_string() } else { text }
}

/// `True`, `False`, or `<unset>`.
pub(super) fn bool_or_unset(tree: &Tree, path: &str) -> &'static str {
    match tree.at(path).as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

/// Labels in one line.
pub(super) fn format_labels(labels: &Map) -> String {
    or_none(labels.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect::<Vec<_>>().join(","))
}

/// A label selector in one line; `<none>` if it is missing or selects everything.
pub(super) fn format_selector(tree: &Tree) -> String {
    or_none(selector_text(tree))
}

pub(super) fn selector_text(tree: &Tree) -> String {
    match Selector::from_object(tree) {
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_string(),
    }
}

/// `Mon, 02 Jan 2006 15:04:05 +0000`.
pub(super) fn long_time(text: &str) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Some(seconds) = seconds_of(text) else { return "Mon, 01 Jan 0001 00:00:00 +0000".to_string() };
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = time::civil(days);
    let weekday = DAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let month = MONTHS.get(usize::try_from(month - 1).unwrap_or(0)).unwrap_or(&"Jan");
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

pub(super) fn seconds_of(text: &str) -> Option<i64> {
    time::parse(text).ok().map(|time| time.seconds)
}

/// How long ago a time was.
pub(super) fn age(text: &str, now: i64) -> String {
    seconds_of(text).map_or_else(|| "<unknown>".to_string(), |then| time::human_duration(now - then))
}

/// Kind and name of the controller in the owner references.
pub(super) fn controller(object: &Tree) -> Option<String> {
    let owner = object.list("metadata.ownerReferences").iter().find(|owner| owner.bool("controller"))?;
    Some(format!("{}/{}", owner.str("kind"), owner.str("name")))
}

/// Host and port, with brackets around an IPv6 address.
pub(super) fn host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times() {
        assert_eq!(long_time("2026-11-18T21:30:05Z"), "Wed, 18 Nov 2026 21:30:05 +0000");
        assert_eq!(long_time("1970-01-01T00:00:00Z"), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(long_time(""), "Mon, 01 Jan 0001 00:00:00 +0000");
    }
}
