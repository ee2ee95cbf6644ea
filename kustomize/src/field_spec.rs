//! Fields that transformers change: a path, and the kinds that have it.

use api::Tree;

use crate::error::Error;
use crate::id::{Gvk, ResId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldSpec {
    pub(crate) gvk: Gvk,
    /// Field names between slashes. Lists on the way are traversed.
    pub(crate) path: String,
    pub(crate) create: bool,
}

/// What a missing field is created as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Creates {
    Nothing,
    Scalar,
    Map,
}

/// Changes the value of a field.
pub(crate) type Setter<'s> = dyn FnMut(&mut Tree) -> Result<(), Error> + 's;

impl FieldSpec {
    pub(crate) fn new(path: &str, create: bool) -> FieldSpec {
        FieldSpec { gvk: Gvk::default(), path: path.to_string(), create }
    }

    pub(crate) fn is_equivalent(&self, other: &FieldSpec) -> bool {
        self.gvk.is_selected_by(&other.gvk) && self.path == other.path
    }

    /// Calls the setter for each value at the path, if the object is of the kind.
    pub(crate) fn apply(&self, object: &mut Tree, creates: Creates, set: &mut Setter) -> Result<(), Error> {
        if !Gvk::of(object).is_selected_by(&self.gvk) {
            return Ok(());
        }
        let path = split_path(&self.path, '/');
        let creates = if self.create { creates } else { Creates::Nothing };
        let id = ResId::of(object);
        visit(object, &path, creates, set)
            .map_err(|error| error.context(format!("considering field '{}' of object {id}", self.path)))
    }
}

/// Adds specs that are not there yet.
pub(crate) fn merge(specs: &mut Vec<FieldSpec>, incoming: &[FieldSpec]) -> Result<(), Error> {
    for spec in incoming {
        match specs.iter().find(|known| known.is_equivalent(spec)) {
            Some(known) if known.create != spec.create => return Err(Error::ConflictingFieldSpecs),
            Some(_) => {}
            None => specs.push(spec.clone()),
        }
    }
    Ok(())
}

/// The parts of a path; a separator after a backslash belongs to its part.
pub(crate) fn split_path(path: &str, separator: char) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut continues = false;
    let path = path.strip_prefix(separator).unwrap_or(path);
    for part in path.split(separator) {
        let (text, escaped) = part.strip_suffix('\\').map_or((part, false), |text| (text, true));
        match parts.last_mut() {
            Some(last) if continues => {
                last.push(separator);
                last.push_str(text);
            }
            _ => parts.push(text.to_string()),
        }
        continues = escaped;
    }
    parts
}

fn visit(value: &mut Tree, path: &[String], creates: Creates, set: &mut Setter) -> Result<(), Error> {
    let Some((field, rest)) = path.split_first() else { return set(value) };
    match value {
        Tree::Null => Ok(()),
        Tree::List(items) => items
            .iter_mut()
            .try_for_each(|item| visit(item, path, creates, set))
            .map_err(|error| error.context(format!("visit traversal on path: [{}]", path.join(" ")))),
        Tree::Map(_) => visit_field(value, field, rest, creates, set),
        _ => Err(Error::NotTraversable),
    }
}

fn visit_field(
    value: &mut Tree,
    field: &str,
    rest: &[String],
    creates: Creates,
    set: &mut Setter,
) -> Result<(), Error> {
    let (name, is_list) = field.strip_suffix("[]").map_or((field, false), |name| (name, true));
    if name.is_empty() {
        return Err(Error::EmptyFieldName);
    }
    let created = match (creates, rest) {
        (Creates::Nothing, _) => None,
        _ if is_list => None,
        (Creates::Scalar, []) => Some(Tree::Null),
        _ => Some(Tree::map_new()),
    };
    if let Some(created) = created {
        let is_missing = value.get(name).is_none_or(Tree::is_null);
        if is_missing {
            value.set(name, created);
        }
    }
    match value.get_mut(name) {
        Some(next) => visit(next, rest, creates, set),
        None => Ok(()),
    }
}
