//! ControllerRevisions: the templates of a StatefulSet or DaemonSet.

use std::sync::Arc;

use api::{Tree, tree};

use super::{owner, same};

/// The maximum length of a name before its hash.
const MAX_PREFIX: usize = 223;

/// The data of a revision: a patch that restores the template.
pub(crate) fn data(template: &Tree) -> Tree {
    let mut template = template.clone();
    template.set("$patch", "replace");
    tree! { "spec" => tree! { "template" => template } }
}

/// The template of a revision.
pub(crate) fn template(revision: &Tree) -> Tree {
    let mut template = revision.at("data.spec.template").clone();
    template.remove("$patch");
    template
}

pub(crate) fn has_template(revision: &Tree, template: &Tree) -> bool {
    same::is_same(revision.at("data"), &data(template))
}

pub(crate) fn number(revision: &Tree) -> i64 {
    revision.int("revision").unwrap_or_default()
}

/// By revision number, then by age.
pub(crate) fn sort(revisions: &mut [Arc<Tree>]) {
    let order = |revision: &Arc<Tree>| {
        let metadata = revision.at("metadata");
        (number(revision), metadata.str("creationTimestamp").to_string(), metadata.str("name").to_string())
    };
    revisions.sort_by_cached_key(order);
}

/// The revision of an object's template, with the hash in a label and in its name.
pub(crate) fn build(object: &Tree, number: i64, label: &str, hash: &str) -> Tree {
    let template = object.at("spec.template");
    let mut labels = template.at("metadata.labels").clone();
    labels.set(label, hash);
    let mut metadata = tree! {
        "name" => name(object.str("metadata.name"), hash),
        "namespace" => object.str("metadata.namespace"),
        "labels" => labels,
        "ownerReferences" => vec![owner::controller_reference(object)],
    };
    if !object.map("metadata.annotations").is_empty() {
        metadata.set("annotations", object.at("metadata.annotations").clone());
    }
    tree! {
        "apiVersion" => "apps/v1",
        "kind" => "ControllerRevision",
        "metadata" => metadata,
        "data" => data(template),
        "revision" => number,
    }
}

fn name(prefix: &str, hash: &str) -> String {
    format!("{}-{hash}", prefix.get(..MAX_PREFIX).unwrap_or(prefix))
}

/// An old revision that becomes the newest again.
pub(crate) fn renumbered(revision: &Tree, number: i64) -> Tree {
    let mut revision = revision.clone();
    revision.set("apiVersion", "apps/v1");
    revision.set("kind", "ControllerRevision");
    revision.set("revision", number);
    revision
}

/// Unused revisions beyond the limit, oldest first. `revisions` are sorted.
pub(crate) fn surplus(revisions: &[Arc<Tree>], limit: usize, is_live: impl Fn(&Tree) -> bool) -> Vec<Arc<Tree>> {
    let dead: Vec<Arc<Tree>> = revisions.iter().filter(|revision| !is_live(revision)).cloned().collect();
    let too_many = dead.len().saturating_sub(limit);
    dead.into_iter().take(too_many).collect()
}

/// `revisionHistoryLimit`.
pub(crate) fn limit(object: &Tree) -> usize {
    object.int("spec.revisionHistoryLimit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64) -> Arc<Tree> {
        Arc::new(tree! { "metadata" => tree! { "name" => name }, "revision" => number })
    }

    #[test]
    fn templates_round_trip() {
        let template = tree! { "spec" => tree! { "a" => 1 } };
        let object = tree! {
            "metadata" => tree! { "name" => "db", "namespace" => "x", "uid" => "u" },
            "spec" => tree! { "template" => template.clone() },
        };
        let made = build(&object, 3, "hash", "h");
        assert_eq!(super::template(&made), template);
        assert!(has_template(&made, &template));
        assert!(!has_template(&made, &tree! { "spec" => tree! { "a" => 2 } }));
        assert_eq!((made.str("metadata.name"), number(&made)), ("db-h", 3));
        assert_eq!(name(&"x".repeat(300), "h").len(), MAX_PREFIX + 2);
    }

    #[test]
    fn deletes_oldest_unused_revisions() {
        let mut revisions = vec![revision("c", 3), revision("a", 1), revision("b", 2), revision("d", 4)];
        sort(&mut revisions);
        let names = |limit| {
            let gone = surplus(&revisions, limit, |revision| revision.str("metadata.name") == "a");
            gone.iter().map(|revision| revision.str("metadata.name").to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["b", "c"]);
        assert_eq!(names(3), [] as [&str; 0]);
    }
}
