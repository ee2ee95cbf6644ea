//! Checks writes against the head. Pure: a transaction becomes events and a new head, or an error.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::entries::Entries;
use crate::{Committed, Entry, Error, Event, Op, Precondition, Result, Revision, Template, Write};

/// The state after every accepted write, on disk or not.
#[derive(Clone)]
pub(crate) struct Head {
    pub entries: Entries,
    pub revision: Revision,
}

/// Checks all preconditions before any write is applied.
pub(crate) fn check(head: &Head, writes: &[Write], max_value_bytes: usize) -> Result<()> {
    refuse_duplicates(writes)?;
    for (place, write) in writes.iter().enumerate() {
        let current = head.entries.get(&write.key);
        if !is_satisfied(write.expect, current.map(|entry| entry.revision)) {
            return Err(Error::Conflict { write: place, current: current.cloned() });
        }
        let size = match &write.op {
            Op::Put(template) => template.bytes.len(),
            Op::Delete | Op::Check => 0,
        };
        if size > max_value_bytes {
            return Err(Error::TooLarge { size, limit: max_value_bytes });
        }
    }
    Ok(())
}

/// etcd rejects two writes of one key in a transaction. All engines do, which keeps their behaviour the same.
pub(crate) fn refuse_duplicates(writes: &[Write]) -> Result<()> {
    let mut keys = BTreeSet::new();
    match writes.len() > 1 && !writes.iter().all(|write| keys.insert(write.key.as_str())) {
        true => Err(Error::Io {
            what: "a transaction writes one key twice".to_owned(),
            source: io::ErrorKind::InvalidInput.into(),
        }),
        false => Ok(()),
    }
}

pub(crate) fn is_satisfied(expect: Precondition, current: Option<Revision>) -> bool {
    match expect {
        Precondition::Anything => true,
        Precondition::Absent => current.is_none(),
        Precondition::Revision(revision) => current == Some(revision),
    }
}

/// Applies one write that `check` has accepted. No event if nothing changes.
pub(crate) fn apply(head: &mut Head, key: String, op: Op, ttl: Option<Duration>, now: Duration) -> Option<Event> {
    let revision = head.revision + 1;
    let event = match op {
        Op::Put(template) => {
            let expires = ttl.map_or(0, |ttl| expiry(now + ttl));
            let value = fill(&template, revision);
            let entry = Arc::new(Entry { key: key.as_str().into(), value, revision, expires });
            let previous = head.entries.insert(entry.clone());
            Event { revision, key: key.into(), entry: Some(entry), previous }
        }
        Op::Delete => {
            let previous = Some(head.entries.remove(&key)?);
            Event { revision, key: key.into(), entry: None, previous }
        }
        Op::Check => return None,
    };
    head.revision = revision;
    Some(event)
}

/// The first whole second after the expiration.
fn expiry(at: Duration) -> u64 {
    at.as_secs() + u64::from(at.subsec_nanos() > 0)
}

/// The result for the writer.
pub(crate) fn committed(head: &Head, event: Option<&Event>) -> Committed {
    match event {
        Some(event) => {
            Committed { revision: event.revision, entry: event.entry.clone(), previous: event.previous.clone() }
        }
        None => Committed { revision: head.revision, entry: None, previous: None },
    }
}

/// The value with its revision, in memory of its exact size.
pub(crate) fn fill(template: &Template, revision: Revision) -> Bytes {
    let Some(hole) = template.hole else {
        return Bytes::copy_from_slice(&template.bytes);
    };
    let mut digits = [0u8; 20];
    let mut rest = &mut digits[..];
    // 20 digits hold any u64.
    let _ = write!(rest, "{revision}");
    let count = 20 - rest.len();
    let (before, after) = template.bytes.split_at(hole.min(template.bytes.len()));
    let mut value = Vec::with_capacity(template.bytes.len() + count);
    value.extend_from_slice(before);
    value.extend_from_slice(&digits[..count]);
    value.extend_from_slice(after);
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_fill(bytes: &str, hole: Option<usize>, revision: Revision, expected: &str) {
        let value = fill(&Template { bytes: bytes.into(), hole }, revision);
        assert_eq!(std::str::from_utf8(&value), Ok(expected));
    }

    #[test]
    fn fills_the_revision() {
        check_fill(r#"{"rv":""}"#, Some(7), 42, r#"{"rv":"42"}"#);
        check_fill("ab", Some(0), 7, "7ab");
        check_fill("ab", Some(2), u64::MAX, "ab18446744073709551615");
        check_fill("ab", Some(99), 1, "ab1");
        check_fill("ab", None, 1, "ab");
    }

    #[test]
    fn expectations() {
        for (expect, current, expected) in [
            (Precondition::Anything, None, true),
            (Precondition::Anything, Some(1), true),
            (Precondition::Absent, None, true),
            (Precondition::Absent, Some(1), false),
            (Precondition::Revision(1), Some(1), true),
            (Precondition::Revision(1), Some(2), false),
            (Precondition::Revision(1), None, false),
        ] {
            assert_eq!(is_satisfied(expect, current), expected, "{expect:?} of {current:?}");
        }
    }

    #[test]
    fn expiry_is_never_early() {
        assert_eq!(expiry(Duration::from_millis(1000)), 1);
        assert_eq!(expiry(Duration::from_millis(1001)), 2);
    }
}
