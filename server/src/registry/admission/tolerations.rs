//! Sets of tolerations: coverage and merging.

use api::Tree;

/// Merges two lists; a toleration that another one covers is dropped.
pub(super) fn merge(first: &[Tree], second: &[Tree]) -> Vec<Tree> {
    let all: Vec<&Tree> = first.iter().chain(second).collect();
    let mut merged: Vec<Tree> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let covered = merged.iter().any(|other| covers(other, toleration))
            || all[at + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !covered {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether each toleration is covered by a toleration of a list.
pub(crate) fn are_covered(tolerations: &[Tree], list: &[Tree]) -> bool {
    tolerations.iter().all(|toleration| list.iter().any(|wide| covers(wide, toleration)))
}

fn covers(wide: &Tree, narrow: &Tree) -> bool {
    if wide == narrow {
        return true;
    }
    let every_key = wide.str("key").is_empty() && wide.str("operator") == "Exists";
    let same_key = wide.str("key") == narrow.str("key") || every_key;
    let same_effect = wide.str("effect") == narrow.str("effect") || wide.str("effect").is_empty();
    same_key && same_effect && lasts_longer(wide, narrow) && matches_value(wide, narrow)
}

fn lasts_longer(wide: &Tree, narrow: &Tree) -> bool {
    match (wide.str("effect"), wide.int("tolerationSeconds")) {
        ("NoExecute", Some(seconds)) => narrow.int("tolerationSeconds").is_some_and(|other| other <= seconds),
        _ => true,
    }
}

fn matches_value(wide: &Tree, narrow: &Tree) -> bool {
    match wide.str("operator") {
        "Exists" => true,
        "Equal" | "" => narrow.str("operator") == "Equal" && wide.str("value") == narrow.str("value"),
        _ => false,
    }
}
