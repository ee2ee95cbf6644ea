//! Strategic merge as kustomize does it: items that the patch adds come first, and lists of unknown kinds are replaced.

use std::cmp::Ordering;

use api::schema::{self, Field, Strategy, Topology, Ty, Type};
use api::{Map, Tree, yaml};

use crate::error::Error;
use crate::fields::scalar_text;
use crate::id::Gvk;

const DIRECTIVE: &str = "$patch";

/// The object with the patch merged in; None if the patch deletes it.
pub(crate) fn merge(object: Tree, patch: &Tree) -> Result<Option<Tree>, Error> {
    let gvk = Gvk::of(&object);
    let ty = schema::type_of(&gvk.group, &gvk.version, &gvk.kind);
    merge_values(
        Some(object),
        Some(patch),
        ty.map(|ty| MergeSchema { ty: Ty::Struct(ty), strategy: Strategy::default(), keys: &[] }),
    )
}

/// What the schema says about a value.
#[derive(Clone, Copy)]
struct MergeSchema {
    ty: Ty,
    strategy: Strategy,
    /// The fields that identify an item.
    keys: &'static [&'static str],
}

impl MergeSchema {
    fn of(field: &'static Field) -> MergeSchema {
        let keys = match field.topology {
            Topology::Map(keys) => keys,
            _ => field.strategy.merge_key.as_slice(),
        };
        MergeSchema { ty: field.ty, strategy: field.strategy, keys }
    }

    fn field(self, name: &str) -> Option<MergeSchema> {
        match self.ty {
            Ty::Struct(ty) => Type::field(ty, name).map(MergeSchema::of),
            Ty::Map(item) => Some(MergeSchema { ty: *item, strategy: Strategy::default(), keys: &[] }),
            _ => None,
        }
    }

    fn item(self) -> Option<MergeSchema> {
        match self.ty {
            Ty::List(item) => Some(MergeSchema { ty: *item, strategy: Strategy::default(), keys: &[] }),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Tree) -> Result<Directive, Error> {
    match patch.get(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(value) => match value.as_str() {
            Some("merge") => Ok(Directive::Merge),
            Some("replace") => Ok(Directive::Replace),
            Some("delete") => Ok(Directive::Delete),
            _ => Err(Error::PatchStrategy(scalar_text(value))),
        },
    }
}

fn kind(tree: &Tree) -> &'static str {
    match tree {
        Tree::Map(_) => "MappingNode",
        Tree::List(_) => "SequenceNode",
        _ => "ScalarNode",
    }
}

/// A missing result removes the field.
fn merge_values(dest: Option<Tree>, patch: Option<&Tree>, place: Option<MergeSchema>) -> Result<Option<Tree>, Error> {
    let Some(patch) = patch else { return Ok(dest) };
    let present = dest.as_ref().filter(|dest| !dest.is_null());
    if let Some(dest) = present
        && !patch.is_null()
        && kind(dest) != kind(patch)
    {
        let contents = String::from_utf8_lossy(&yaml::encode(patch)).into_owned();
        return Err(Error::NodeKind { expected: kind(dest), actual: kind(patch), contents });
    }
    match (present.is_some(), patch) {
        (_, Tree::Null) => Ok(None),
        (_, Tree::Map(_)) => merge_maps(dest, patch, place),
        (_, Tree::List(items)) => merge_lists(dest, items, place),
        _ => Ok(Some(patch.clone())),
    }
}

fn merge_maps(dest: Option<Tree>, patch: &Tree, place: Option<MergeSchema>) -> Result<Option<Tree>, Error> {
    let mut target = match (directive(patch)?, dest) {
        (Directive::Delete, _) => return Ok(None),
        (Directive::Merge, Some(Tree::Map(map))) => map,
        _ => Map::new(),
    };
    for (key, value) in patch.as_map().into_iter().flat_map(Map::iter).filter(|(key, _)| *key != DIRECTIVE) {
        let merged = merge_values(target.remove(key), Some(value), place.and_then(|place| place.field(key)))?;
        if let Some(merged) = merged {
            target.insert(key, merged);
        }
    }
    Ok(Some(Tree::Map(target)))
}

fn merge_lists(dest: Option<Tree>, patch: &[Tree], place: Option<MergeSchema>) -> Result<Option<Tree>, Error> {
    let Some(place) = place.filter(|place| place.strategy.merge) else {
        return Ok(Some(Tree::List(patch.to_vec())));
    };
    let is_directive = |item: &&Tree| item.as_map().is_some_and(|map| map.len() == 1 && map.contains(DIRECTIVE));
    let whole = patch.iter().find(is_directive).map(directive).transpose()?;
    let items: Vec<&Tree> = patch.iter().filter(|item| !is_directive(item)).collect();
    let dest = match (whole, dest) {
        (Some(Directive::Delete), _) => return Ok(None),
        (None | Some(Directive::Merge), Some(Tree::List(dest))) => dest,
        _ => Vec::new(),
    };
    if place.keys.is_empty() {
        return Ok(Some(Tree::List(merge_primitives(dest, &items))));
    }
    merge_items(dest, &items, place).map(|merged| Some(Tree::List(merged)))
}

fn merge_primitives(dest: Vec<Tree>, patch: &[&Tree]) -> Vec<Tree> {
    let mut out: Vec<Tree> = Vec::new();
    for item in patch.iter().copied().cloned().chain(dest) {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

fn merge_items(dest: Vec<Tree>, patch: &[&Tree], place: MergeSchema) -> Result<Vec<Tree>, Error> {
    let mut dest: Vec<Option<Tree>> = dest.into_iter().map(Some).collect();
    let mut out: Vec<Tree> = Vec::new();
    for item in patch {
        let found =
            dest.iter_mut().find(|known| known.as_ref().is_some_and(|known| is_same_item(known, item, place.keys)));
        let old = found.and_then(Option::take);
        if let Some(merged) = merge_values(old, Some(item), place.item())? {
            match out.iter_mut().find(|known| is_same_item(known, &merged, place.keys)) {
                Some(known) => *known = merged,
                None => out.push(merged),
            }
        }
    }
    out.extend(dest.into_iter().flatten());
    Ok(out)
}

/// Whether two items have the same keys. A key that one of them lacks does not count if another one is equal.
fn is_same_item(one: &Tree, other: &Tree, keys: &[&str]) -> bool {
    let mut is_common = false;
    for key in keys {
        match (one.get(key), other.get(key)) {
            (Some(one), Some(other)) if scalar_text(one).cmp(&scalar_text(other)) == Ordering::Equal => {
                is_common = true
            }
            (Some(_), Some(_)) => return false,
            _ => {}
        }
    }
    is_common
}
