//! `tiphys history`, `tiphys diff` and `tiphys undo`: what objects were, who changed them, and how to go back. They use
//! paths of this server that others do not have.

mod compare;
mod history;
mod lines;
mod undo;

use api::Tree;

use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::objects::{Select, Target};

/// The commands of the past, below `tiphys`.
pub(crate) static PAST: Command = Command {
    name: "tiphys",
    short: "What objects were, who changed them, and how to go back.",
    children: &[&history::HISTORY, &compare::DIFF, &undo::UNDO],
    ..Command::EMPTY
};

/// The object that the arguments name.
async fn one_object(context: &Context) -> Result<(Resource, String, String)> {
    let select = Select { is_by_name: true, ..Select::of(context) };
    let targets = select.targets(context).await?;
    Error::all(targets.errors)?;
    match <[Target; 1]>::try_from(targets.targets) {
        Ok([Target::Object { resource, namespace, name }]) => Ok((resource, namespace, name)),
        _ => message("name one object, as TYPE NAME or TYPE/NAME"),
    }
}

fn is_secret(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.kind == "Secret"
}

/// Without what changes with every write, and what repeats the object.
fn comparable(mut object: Tree) -> Tree {
    if let Some(metadata) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        metadata.remove("generation");
        if let Some(annotations) = metadata.get_mut("annotations") {
            annotations.remove(crate::commands::common::LAST_APPLIED);
        }
        if metadata.map("annotations").is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

/// The differing values of two secrets, as such, and all others as hidden.
fn mask(before: &mut Tree, after: &mut Tree) {
    for field in ["data", "stringData"] {
        let (old, new) = (before.at(field).clone(), after.at(field).clone());
        mask_field(before, field, &new, "*** (before)");
        mask_field(after, field, &old, "*** (after)");
    }
}

fn mask_field(object: &mut Tree, field: &str, other: &Tree, changed: &str) {
    let Some(Tree::Map(data)) = object.get_mut(field) else { return };
    for (key, value) in data.iter_mut() {
        let differs = other.get(key).is_some_and(|other| other != value);
        *value = Tree::from(if differs { changed } else { "***" });
    }
}

/// The lines of an object as YAML; none for no object.
fn yaml_lines(object: &Tree) -> Vec<String> {
    if object.is_null() {
        return Vec::new();
    }
    String::from_utf8_lossy(&api::yaml::encode(object)).lines().map(str::to_string).collect()
}

/// The differences of two objects; empty if there are none.
fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    lines::difference(&yaml_lines(before), &yaml_lines(after))
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn secrets_show_only_which_values_differ() {
        let secret = |password: &str, user: &str| tree! { "data" => tree! { "password" => password, "user" => user } };
        let (mut before, mut after) = (secret("b25l", "YQ=="), secret("dHdv", "YQ=="));
        mask(&mut before, &mut after);
        assert_eq!(
            difference(&before, &after),
            ["  data:", "-   password: '*** (before)'", "+   password: '*** (after)'", "    user: '***'"]
        );
    }

    #[test]
    fn versions_and_managers_are_no_difference() {
        let object = |version: &str| {
            let annotations = tree! { "kubectl.kubernetes.io/last-applied-configuration" => version };
            tree! { "metadata" => tree! { "name" => "a", "resourceVersion" => version, "annotations" => annotations } }
        };
        assert_eq!(difference(&comparable(object("1")), &comparable(object("2"))), [""; 0]);
    }
}
