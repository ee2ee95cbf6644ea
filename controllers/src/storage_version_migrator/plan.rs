//! The next step of a StorageVersionMigration, and the conditions that report it.

use api::{Tree, list, tree};

pub(crate) const RUNNING: &str = "Running";
pub(crate) const SUCCEEDED: &str = "Succeeded";
pub(crate) const FAILED: &str = "Failed";
/// The verbs of a resource that can be migrated.
pub(crate) const REQUIRED_VERBS: [&str; 3] = ["update", "patch", "list"];

/// The next step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The migration is finished, or another migration of the same resource runs first.
    Nothing,
    /// The migration starts to run.
    Start,
    /// Objects up to the current revision are to be migrated; that revision is recorded.
    RecordRevision,
    Migrate,
    /// The migration is finished, but still marked as running.
    Finish,
}

/// Decides the next step. `all` are the migrations of the same resource; one of them runs at a time, the oldest first.
pub(crate) fn next_step(migration: &Tree, all: &[impl AsRef<Tree>]) -> Step {
    match (is_true(migration, RUNNING), is_finished(migration)) {
        (true, true) => Step::Finish,
        (false, true) => Step::Nothing,
        (true, false) if migration.str("status.resourceVersion").is_empty() => Step::RecordRevision,
        (true, false) => Step::Migrate,
        (false, false) => {
            let mut open = all.iter().map(AsRef::as_ref).filter(|other| !is_finished(other));
            let is_first = open.all(|other| !is_true(other, RUNNING) && order(other) >= order(migration));
            if is_first { Step::Start } else { Step::Nothing }
        }
    }
}

fn order(migration: &Tree) -> (&str, &str) {
    (migration.str("metadata.creationTimestamp"), migration.str("metadata.name"))
}

fn is_finished(migration: &Tree) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

pub(crate) fn is_true(object: &Tree, name: &str) -> bool {
    let conditions = object.list("status.conditions");
    conditions.iter().any(|condition| condition.str("type") == name && condition.str("status") == "True")
}

/// Sets a condition; its time changes with its status.
pub(crate) fn set_condition(object: &mut Tree, name: &str, is_true: bool, (reason, message): (&str, &str), now: &str) {
    let status = if is_true { "True" } else { "False" };
    let conditions = object.child("status").list_entry("conditions");
    let known = conditions.iter_mut().find(|condition| condition.str("type") == name);
    let time =
        known.as_ref().filter(|known| known.str("status") == status).map(|known| known.str("lastTransitionTime"));
    let condition = tree! {
        "type" => name, "status" => status, "lastTransitionTime" => time.unwrap_or(now),
        "reason" => reason, "message" => message,
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// The progress of a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub left: usize,
    pub total: usize,
}

/// The message of the Running condition.
pub(crate) fn running_message(progress: Progress, error: Option<&str>) -> String {
    let Progress { left, total } = progress;
    let mut message = "The migration is running".to_string();
    if total > 0 && left > 0 {
        message.push_str(&format!(", {left}/{total} objects not yet migrated"));
    } else if total > 0 {
        message.push_str(&format!(", {total} objects verified migrated"));
    }
    if let Some(error) = error {
        message.push_str(&format!("; transient error: {error}"));
    }
    message
}

/// The objects of a list that were last written at or before a revision.
pub(crate) fn candidates(items: &[Tree], revision: u64) -> impl Iterator<Item = &Tree> {
    let of = |item: &Tree| item.str("metadata.resourceVersion").parse::<u64>().unwrap_or(0);
    items.iter().filter(move |item| of(item) <= revision)
}

/// The status that is applied to a definition while its objects are migrated.
pub(crate) fn definition_running(definition: &Tree, migration: &str, now: &str) -> Tree {
    let message = format!("Migration {migration} is running");
    applied(definition, true, ("MigrationRunning", &message), now)
}

/// The status that is applied after a migration: if the definition did not change meanwhile, only one version remains
/// stored.
pub(crate) fn definition_finished(definition: &Tree, is_success: bool, now: &str) -> Tree {
    let generation = definition.int("metadata.generation");
    let conditions = definition.list("status.conditions").iter();
    let migrating = conditions.into_iter().find(|condition| condition.str("type") == "StorageMigrating");
    let is_unchanged = migrating.is_some_and(|condition| condition.int("observedGeneration") == generation);
    let why = match (is_success, is_unchanged) {
        (true, true) => ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let mut out = applied(definition, false, why, now);
    let storage = definition.list("spec.versions").iter().find(|version| version.bool("storage"));
    // Upstream removes them after a failure too, which loses the versions of objects that were not migrated.
    if let Some(storage) = storage.filter(|_| is_unchanged && is_success) {
        out.child("status").set("storedVersions", list![storage.str("name")]);
    }
    out
}

fn applied(definition: &Tree, is_true: bool, (reason, message): (&str, &str), now: &str) -> Tree {
    let condition = tree! {
        "type" => "StorageMigrating", "status" => if is_true { "True" } else { "False" },
        "lastTransitionTime" => now, "reason" => reason, "message" => message,
        "observedGeneration" => definition.int("metadata.generation").unwrap_or(0),
    };
    tree! {
        "apiVersion" => "apiextensions.k8s.io/v1", "kind" => "CustomResourceDefinition",
        "metadata" => tree! {
            "name" => definition.str("metadata.name"),
            "resourceVersion" => definition.str("metadata.resourceVersion"),
        },
        "status" => tree! { "conditions" => list![condition] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(name: &str, created: &str, conditions: &[&str], revision: &str) -> Box<Tree> {
        let mut out = tree! { "metadata" => tree! { "name" => name, "creationTimestamp" => created } };
        conditions.iter().for_each(|condition| set_condition(&mut out, condition, true, ("R", "m"), "t"));
        if !revision.is_empty() {
            out.child("status").set("resourceVersion", revision);
        }
        Box::new(out)
    }

    #[test]
    fn one_migration_of_a_resource_runs_at_a_time() {
        let check = |conditions: &[&str], revision: &str, others: &[(&str, &str, &[&str])], want: Step| {
            let own = migration("m", "2", conditions, revision);
            let mut all = vec![own.clone()];
            all.extend(others.iter().map(|(name, created, conditions)| migration(name, created, conditions, "")));
            assert_eq!(next_step(&own, &all), want, "{conditions:?} {others:?}");
        };
        check(&[], "", &[], Step::Start);
        check(&[], "", &[("a", "1", &[])], Step::Nothing);
        check(&[], "", &[("n", "2", &[])], Step::Start);
        check(&[], "", &[("n", "3", &[RUNNING])], Step::Nothing);
        check(&[], "", &[("a", "1", &[SUCCEEDED])], Step::Start);
        check(&[RUNNING], "", &[], Step::RecordRevision);
        check(&[RUNNING], "7", &[], Step::Migrate);
        check(&[RUNNING, SUCCEEDED], "7", &[], Step::Finish);
        check(&[RUNNING, FAILED], "7", &[], Step::Finish);
        check(&[FAILED], "7", &[], Step::Nothing);
    }

    #[test]
    fn progress_is_reported() {
        let check = |left, total, error, want: &str| {
            assert_eq!(running_message(Progress { left, total }, error), want);
        };
        check(0, 0, None, "The migration is running");
        check(2, 3, None, "The migration is running, 2/3 objects not yet migrated");
        check(0, 3, None, "The migration is running, 3 objects verified migrated");
        let text = "The migration is running, 1/1 objects not yet migrated; transient error: busy";
        check(1, 1, Some("busy"), text);
    }

    #[test]
    fn stored_versions_are_replaced_if_the_definition_stayed_the_same() {
        let check = |observed: i64, is_success: bool, want: Option<&str>| {
            let condition = tree! { "type" => "StorageMigrating", "observedGeneration" => observed };
            let definition = tree! {
                "metadata" => tree! { "generation" => 2 },
                "spec" => tree! { "versions" => list![tree! { "name" => "v1" }, tree! { "name" => "v2", "storage" => true }] },
                "status" => tree! { "conditions" => list![condition] },
            };
            let applied = definition_finished(&definition, is_success, "t");
            let stored = applied.list("status.storedVersions").first().and_then(Tree::as_str);
            assert_eq!(stored, want, "{observed} {is_success}");
        };
        check(2, true, Some("v2"));
        check(1, true, None);
        check(2, false, None);
    }

    #[test]
    fn later_objects_are_migrated_already() {
        let item = |revision: &str| tree! { "metadata" => tree! { "resourceVersion" => revision } };
        let items = [item("5"), item("9"), item("10")];
        assert_eq!(candidates(&items, 9).count(), 2);
    }
}
