//! Objects that wait for their initializers: they are hidden from clients that do not request them, and their creator
//! waits for the result. The admission plugin of the same name sets the initializers.

use std::time::Duration;

use api::Tree;
use api::schema::initializers;
use api::status::Status;
use kinds::initializers::failure;
use tokio::time::Instant;

use crate::registry::write::{Outcome, Scope};
use crate::request::body::CHUNK_BYTES;
use crate::request::info::Query;
use crate::storage::cache::{Change, RingRead};
use crate::storage::store_status;

/// How long a creator waits by default.
const WAIT: Duration = Duration::from_secs(30);

/// Whether uninitialized objects are hidden from the reader.
pub(crate) fn hides(query: &Query) -> bool {
    initializers::are_on() && !query.flag("includeUninitialized")
}

/// Waits until a new object is initialized, unless its creator requests the uninitialized object.
pub(crate) async fn wait(scope: &Scope<'_>, outcome: Outcome) -> Result<Outcome, Status> {
    let Some(origin) = scope.origin.filter(|origin| hides(&origin.head.query)) else { return Ok(outcome) };
    let Outcome::Stored(item) = &outcome else { return Ok(outcome) };
    if item.is_initialized(scope.resource.stored_row()) {
        return Ok(outcome);
    }
    let deadline = Instant::now() + timeout(origin.head.query.get("timeout"));
    let cache = scope.resource.cache()?;
    let mut wake = cache.subscribe();
    let mut cursor = cache.cursor(item.revision).ok_or_else(lost)?;
    let mut reported = None;
    loop {
        match cache.read(cursor, CHUNK_BYTES) {
            RingRead::Lost => return Err(lost()),
            RingRead::Changes(changes, next) => {
                cursor = next;
                for change in changes.iter().filter(|change| *change.key == *item.key) {
                    if let Some(done) = outcome_of(change, scope, &mut reported) {
                        return done;
                    }
                }
            }
            RingRead::Empty if tokio::time::timeout_at(deadline, wake.changed()).await.is_err() => {
                let late = || Status::timeout("request did not complete within the allowed duration", 0);
                return Err(reported.unwrap_or_else(late));
            }
            RingRead::Empty => {}
        }
    }
}

fn lost() -> Status {
    Status::internal("lost track of the object's initialization")
}

/// The result of a change for the waiting creator; None if it continues to wait. A failure is reported once the object
/// is deleted.
fn outcome_of(change: &Change, scope: &Scope<'_>, reported: &mut Option<Status>) -> Option<Result<Outcome, Status>> {
    let kind = scope.resource.stored_row();
    match (&change.new, &change.old) {
        (Some(new), _) if new.is_initialized(kind) => Some(Ok(Outcome::Stored(new.clone()))),
        (Some(new), _) => {
            *reported = failed(&new.tree());
            None
        }
        (None, old) => {
            let failed = old.as_ref().and_then(|old| failed(&old.tree()));
            Some(Err(failed.unwrap_or_else(|| Status::internal("object deleted while waiting for creation"))))
        }
    }
}

/// The failure that an initializer has reported, as a response to the creator.
fn failed(object: &Tree) -> Option<Status> {
    let result = failure(object);
    if result.is_null() {
        return None;
    }
    let mut status = Status::from_tree(result);
    if status.code < 400 {
        status.code = 500;
    }
    Some(status)
}

/// Deletes an object whose initialization has failed. The failure was stored first: its creator, which may wait at
/// another server, can read the reason.
pub(crate) async fn remove_failed(scope: &Scope<'_>, name: &str, outcome: &Outcome) -> Result<(), Status> {
    let Outcome::Stored(item) = outcome else { return Ok(()) };
    if !initializers::are_on() || item.is_initialized(scope.resource.stored_row()) {
        return Ok(());
    }
    let object = scope.resource.read(item);
    if failure(&object).is_null() {
        return Ok(());
    }
    match scope.delete_stored(name, &object, item.revision).await {
        // Another request was faster: the object is already written.
        Ok(_) | Err(store::Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(store_status(error)),
    }
}

/// `10s`, `500ms` or `1m`, up to the usual time.
fn timeout(text: &str) -> Duration {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let Ok(number) = number.parse::<u64>() else { return WAIT };
    let given = match unit {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return WAIT,
    };
    given.min(WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_has_an_end() {
        let cases = [("", 30_000), ("2s", 2000), ("250ms", 250), ("5m", 30_000), ("x", 30_000)];
        for (text, millis) in cases {
            assert_eq!(timeout(text), Duration::from_millis(millis), "{text}");
        }
    }
}
