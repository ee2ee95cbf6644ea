//! ControllerRevision.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::{Kind, column};
use crate::{cells, checks};

pub(crate) static KIND: Kind = Kind {
    validate,
    validate_update,
    columns: &[
        column("Name", "string", "name", 0),
        column("Controller", "string", "", 0),
        column("Revision", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision")
};

fn validate(revision: &Tree, errors: &mut Errors) {
    if !revision.has("data") {
        errors.required(&Path::root("data"), "data is mandatory");
    }
    checks::non_negative(revision, "revision", &Path::nil(), errors);
}

/// Revisions are immutable.
fn validate_update(revision: &Tree, old: &Tree, errors: &mut Errors) {
    validate(revision, errors);
    checks::immutable((revision, old), "data", |data| data.into(), &Path::nil(), errors);
}

fn row(revision: &Tree, now: i64) -> Vec<Tree> {
    let owners = revision.list("metadata.ownerReferences");
    let controller = owners.iter().find(|owner| owner.bool("controller"));
    vec![
        cells::name(revision),
        Tree::from(controller.map_or("<none>".to_string(), owner_text)),
        Tree::from(revision.int("revision").unwrap_or(0)),
        cells::age(revision, now),
    ]
}

/// `statefulset.apps/web`
fn owner_text(owner: &Tree) -> String {
    let kind = owner.str("kind").to_lowercase();
    match owner.str("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.str("name")),
        None => format!("{kind}/{}", owner.str("name")),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn revisions_name_their_owner() {
        let owner = tree! { "apiVersion" => "apps/v1", "kind" => "StatefulSet", "name" => "web", "controller" => true };
        let revision =
            tree! { "metadata" => tree! { "name" => "r", "ownerReferences" => list![owner] }, "revision" => 3 };
        let row = row(&revision, 0);
        assert_eq!(row[1], Tree::from("statefulset.apps/web"));
        assert_eq!(row[2], Tree::from(3));
    }
}
