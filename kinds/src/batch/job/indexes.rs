//! Index lists of Jobs: `1,3-5`.

use api::field::go_quote;
use thiserror::Error;

/// Why a text is not a list of indexes.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum IndexError {
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
    #[error(
        "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
        go_quote(.0)
    )]
    Interval(String),
    #[error("cannot convert string to integer for index: {}", go_quote(.0))]
    Number(String),
    #[error("too large index: {}", go_quote(.0))]
    TooLarge(String),
}

/// The number of indexes in a text; they must increase and stay below `completions`.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, IndexError> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    if text.is_empty() {
        return Ok(0);
    }
    for interval in text.split(',') {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(previous) = last.filter(|last| *last >= first) {
            return Err(IndexError::Order { previous, current: first });
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(text: &str, completions: i64) -> Result<(i64, i64), IndexError> {
    let limits: Vec<&str> = text.split('-').collect();
    if limits.len() > 2 {
        return Err(IndexError::Interval(text.to_string()));
    }
    let number = |text: &str| text.parse::<i64>().map_err(|_| IndexError::Number(text.to_string()));
    let first = number(limits[0])?;
    if first >= completions {
        return Err(IndexError::TooLarge(limits[0].to_string()));
    }
    let Some(end) = limits.get(1) else { return Ok((first, first)) };
    let last = number(end)?;
    if last >= completions {
        return Err(IndexError::TooLarge((*end).to_string()));
    }
    if first >= last {
        return Err(IndexError::Order { previous: first, current: last });
    }
    Ok((first, last))
}

/// An index in both texts; invalid parts are skipped. Both lists increase, so one pass suffices.
pub(super) fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &'_ str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut at, mut other) = (0, 0);
    while let (Some(a), Some(b)) = (completed.get(at), failed.get(other)) {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        if a.0 <= b.0 { at += 1 } else { other += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        let cases: [(&str, Result<i64, &str>); 6] = [
            ("", Ok(0)),
            ("0,2-4", Ok(4)),
            ("3,1", Err("non-increasing order, previous: 3, current: 1")),
            ("x", Err("cannot convert string to integer for index: \"x\"")),
            ("0-9", Err("too large index: \"9\"")),
            ("4-2", Err("non-increasing order, previous: 4, current: 2")),
        ];
        for (text, want) in cases {
            let found = count(text, 6).map_err(|error| error.to_string());
            assert_eq!(found, want.map_err(str::to_string), "{text}");
        }
        assert_eq!(overlap("0-2", "2,4", 6), Some(2));
        assert_eq!(overlap("0-1", "2,4", 6), None);
    }
}
