//! Strategic merge patch: a merge patch with list merge keys from the schema, and directives.

use std::collections::BTreeSet;

use super::order::{Id, arrange, id_of, places};
use super::{Error, Unprocessable, go, into_map};
use crate::schema::{Strategy, Ty, Type};
use crate::tree::{Map, Str, Tree};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// The object with the patch merged in.
pub fn strategic(original: Tree, patch: &Tree, ty: &'static Type) -> Result<Tree, Error> {
    merge_map(into_map(original), patch, Some(Ty::Struct(ty))).map(Tree::Map)
}

static EMPTY: Map = Map::new();

fn merge_map(original: Map, patch_tree: &Tree, ty: Option<Ty>) -> Result<Map, Error> {
    let patch = patch_tree.as_map().unwrap_or(&EMPTY);
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Tree::Str(directive)) if directive == "replace" => return Ok(without_directive(patch)),
        Some(Tree::Str(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other, patch_tree)),
    }
    let mut target = Target { map: retain_keys(original, patch)?, ..Target::default() };
    let mut ordered: BTreeSet<&str> = BTreeSet::new();
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(ELEMENT_ORDER)) {
        let field = list_name(key, ELEMENT_ORDER, "setElementOrder list")?;
        merge_ordered(&mut target, patch, field, order, ty)?;
        ordered.insert(field);
    }
    for (key, value) in patch.iter() {
        let is_order = key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER);
        if is_order || ordered.contains(key) {
            continue;
        }
        if key.starts_with(DELETE_FROM) {
            delete_from(&mut target, list_name(key, DELETE_FROM, "primitive list")?, value, ty)?;
        } else {
            merge_field(&mut target, key, value, ty)?;
        }
    }
    Ok(target.finish())
}

/// A map being merged. Keys are added and removed together at the end: one by one the cost would be quadratic.
#[derive(Default)]
struct Target<'a> {
    map: Map,
    added: Vec<(Str, Tree)>,
    removed: BTreeSet<&'a str>,
}

impl<'a> Target<'a> {
    fn set(&mut self, key: &str, value: Tree) {
        match self.map.get_mut(key) {
            Some(slot) => *slot = value,
            None => self.added.push((Str::new(key), value)),
        }
    }

    fn remove(&mut self, key: &'a str) {
        self.removed.insert(key);
    }

    fn finish(mut self) -> Map {
        if !self.removed.is_empty() {
            self.map.retain(|key, _| !self.removed.contains(key));
        }
        if self.added.is_empty() {
            return self.map;
        }
        let mut entries = self.map.into_entries();
        entries.append(&mut self.added);
        Map::from_entries(entries, |_| {})
    }
}

fn without_directive(patch: &Map) -> Map {
    let mut patch = patch.clone();
    patch.remove(DIRECTIVE);
    patch
}

fn unknown_directive(directive: &Tree, map: &Tree) -> Error {
    Error::Internal(format!("unknown patch type: {} in map: {}", go::print(directive), go::print(map)))
}

/// `containers` of `$setElementOrder/containers`.
fn list_name<'a>(key: &'a str, prefix: &str, what: &str) -> Result<&'a str, Error> {
    match key.split_once('/') {
        Some((before, name)) if before == prefix => Ok(name),
        _ => Err(Error::BadRequest(format!("invalid patch format of {what}"))),
    }
}

/// Drops all keys that `$retainKeys` does not name; the patch must not set others.
fn retain_keys(mut original: Map, patch: &Map) -> Result<Map, Error> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(original) };
    let bad = || Error::BadRequest("invalid patch format of retainKeys".to_string());
    let keys = keys.as_list().ok_or_else(bad)?;
    let keys: BTreeSet<&str> = keys.iter().filter_map(Tree::as_str).collect();
    let named = |key: &str| keys.contains(key);
    let is_directive = |key: &str| key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    if !patch.iter().all(|(key, value)| value.is_null() || is_directive(key) || named(key)) {
        return Err(bad());
    }
    original.retain(|key, _| named(key));
    Ok(original)
}

/// The schema of a key below a type.
fn lookup(ty: Option<Ty>, key: &str) -> Result<(Option<Ty>, Strategy), Error> {
    let not_found =
        |name: &str| Error::Internal(format!("unable to find api field in struct {name} for the json field {key:?}"));
    match ty {
        Some(Ty::Struct(ty)) => match ty.field(key) {
            Some(field) => Ok((Some(field.ty), field.strategy)),
            None => Err(not_found(ty.name)),
        },
        Some(Ty::Map(item)) => Ok((Some(*item), Strategy::default())),
        Some(Ty::Raw) => Err(not_found("RawExtension")),
        _ => Ok((None, Strategy::default())),
    }
}

fn item_ty(ty: Option<Ty>) -> Option<Ty> {
    match ty {
        Some(Ty::List(item)) => Some(*item),
        _ => None,
    }
}

fn merge_field<'a>(target: &mut Target<'a>, key: &'a str, value: &Tree, ty: Option<Ty>) -> Result<(), Error> {
    if value.is_null() {
        target.remove(key);
        return Ok(());
    }
    match (target.map.get_mut(key), value) {
        (Some(slot @ Tree::Map(_)), Tree::Map(_)) => {
            let (ty, strategy) = lookup(ty, key)?;
            *slot = match strategy.replace {
                true => value.clone(),
                false => Tree::Map(merge_map(into_map(slot.take()), value, ty)?),
            };
        }
        (Some(slot @ Tree::List(_)), Tree::List(patch)) => {
            let (ty, strategy) = lookup(ty, key)?;
            let old = std::mem::take(slot);
            *slot = Tree::List(merge_list(old, patch, item_ty(ty), strategy)?);
        }
        _ => match without_directives(value) {
            Some(value) => target.set(key, value),
            None => target.remove(key),
        },
    }
    Ok(())
}

/// A value without a counterpart is copied, without nulls, and without maps that have a directive.
fn without_directives(value: &Tree) -> Option<Tree> {
    match value {
        Tree::Map(map) if map.contains(DIRECTIVE) => None,
        Tree::Map(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            let entries = kept.filter_map(|(key, value)| Some((Str::new(key), without_directives(value)?))).collect();
            Some(Tree::Map(Map::from_entries(entries, |_| {})))
        }
        Tree::List(items) => Some(Tree::List(items.iter().filter_map(without_directives).collect())),
        scalar => Some(scalar.clone()),
    }
}

fn delete_from<'a>(target: &mut Target<'a>, key: &'a str, value: &Tree, ty: Option<Ty>) -> Result<(), Error> {
    if value.is_null() {
        target.remove(key);
        return Ok(());
    }
    let (Some(Tree::List(items)), Tree::List(deleted)) = (target.map.get_mut(key), value) else { return Ok(()) };
    let (_, strategy) = lookup(ty, key)?;
    if !strategy.merge {
        *items = deleted.clone();
        return Ok(());
    }
    if items.is_empty() && deleted.is_empty() {
        return Ok(());
    }
    element_kind(&[items, deleted])?;
    let deleted = places(deleted, None);
    items.retain(|item| !deleted.contains_key(&Id(item)));
    Ok(())
}

/// Merges a list with `$setElementOrder`, and sorts it.
fn merge_ordered(target: &mut Target<'_>, patch: &Map, field: &str, order: &Tree, ty: Option<Ty>) -> Result<(), Error> {
    let order = order.as_list().ok_or_else(|| not_a_list(order))?;
    let (ty, strategy) = lookup(ty, field)?;
    let patch_list = patch.get(field).map(|list| list.as_list().ok_or_else(|| not_a_list(list))).transpose()?;
    check_order(patch_list.unwrap_or(&[]), order, strategy.merge_key)?;
    let server = match target.map.get_mut(field) {
        Some(Tree::List(items)) => Some(std::mem::take(items)),
        Some(other) => return Err(not_a_list(other)),
        None => None,
    };
    let merged = match (&server, patch_list) {
        (None, None) => return Ok(()),
        (Some(items), None) => items.clone(),
        (None, Some(patch)) => patch.to_vec(),
        (Some(items), Some(patch)) => merge_list(Tree::List(items.clone()), patch, item_ty(ty), strategy)?,
    };
    let server = server.unwrap_or_default();
    element_kind(&[&server, patch_list.unwrap_or(&[])])?;
    for list in [&merged, order, &server] {
        check_items(list, strategy.merge_key)?;
    }
    let (deleted, kept): (Vec<Tree>, Vec<Tree>) = merged.into_iter().partition(is_delete);
    let mut arranged = arrange(kept, order, &server, strategy.merge_key);
    // A list that the server does not have keeps the items to delete, as in upstream; the directive is then dropped
    // as an unknown field.
    arranged.extend(deleted);
    target.set(field, Tree::List(arranged));
    Ok(())
}

fn not_a_list(value: &Tree) -> Error {
    Error::Internal(format!("expected a []interface {{}}, but received a {}", go::go_type(value)))
}

fn is_delete(item: &Tree) -> bool {
    item.get(DIRECTIVE).and_then(Tree::as_str) == Some("delete")
}

/// The items of the patch must be in the order that the patch sets.
fn check_order(patch: &[Tree], order: &[Tree], merge_key: Option<&str>) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| merge_key.is_none() || !is_delete(item)) {
        if item.get(DIRECTIVE).is_some() {
            continue;
        }
        check_item(item, merge_key)?;
        let found = rest.any(|ordered| id_of(ordered, merge_key) == id_of(item, merge_key));
        if !found {
            return Err(Error::Internal(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                go::print_list(patch),
                go::print_list(order)
            )));
        }
    }
    Ok(())
}

fn check_items(items: &[Tree], merge_key: Option<&str>) -> Result<(), Error> {
    items.iter().try_for_each(|item| check_item(item, merge_key))
}

fn check_item(item: &Tree, merge_key: Option<&str>) -> Result<(), Error> {
    match (merge_key, item) {
        (None, _) => Ok(()),
        (Some(key), Tree::Map(map)) if map.contains(key) => Ok(()),
        (Some(key), Tree::Map(_)) => Err(no_merge_key(item, key)),
        _ => {
            Err(Error::Internal(format!("expected a map[string]interface {{}}, but received a {}", go::go_type(item))))
        }
    }
}

fn no_merge_key(item: &Tree, key: &str) -> Error {
    Error::Internal(format!("map: {} does not contain declared merge key: {key}", go::print(item)))
}

fn merge_list(original: Tree, patch: &[Tree], item: Option<Ty>, strategy: Strategy) -> Result<Vec<Tree>, Error> {
    let Tree::List(original) = original else { return Ok(patch.to_vec()) };
    if !strategy.merge {
        return Ok(patch.to_vec());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    match (element_kind(&[&original, patch])?, strategy.merge_key) {
        (Kind::Scalar, _) => Ok(merge_scalars(original, patch)),
        (Kind::Map, Some(key)) => merge_maps(original, patch, key, item),
        (Kind::Map, None) => {
            let name = match item {
                Some(Ty::Struct(ty)) => ty.name,
                _ => "",
            };
            Err(Error::Internal(format!("cannot merge lists without merge key for {name}")))
        }
    }
}

enum Kind {
    Scalar,
    Map,
}

/// The type of the items of the lists, which must be the same.
fn element_kind(lists: &[&[Tree]]) -> Result<Kind, Error> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else {
        return Err(Error::Internal("no elements in any of the given slices".to_string()));
    };
    if matches!(first, Tree::List(_)) {
        return Err(Unprocessable::ListOfLists.into());
    }
    if first.is_null() || items.any(|item| go::go_type(item) != go::go_type(first)) {
        let printed: Vec<String> = lists.iter().map(|list| go::print_list(list)).collect();
        return Err(Error::Internal(format!("list element types are not identical: [{}]", printed.join(" "))));
    }
    Ok(if matches!(first, Tree::Map(_)) { Kind::Map } else { Kind::Scalar })
}

fn merge_scalars(original: Vec<Tree>, patch: &[Tree]) -> Vec<Tree> {
    let both: Vec<Tree> = original.iter().chain(patch).cloned().collect();
    let first = places(&both, None);
    let unique = both.iter().enumerate().filter(|(at, item)| first.get(&Id(item)) == Some(at));
    let unique = unique.map(|(_, item)| item.clone()).collect();
    arrange(unique, patch, &original, None)
}

fn merge_maps(original: Vec<Tree>, patch: &[Tree], key: &str, item: Option<Ty>) -> Result<Vec<Tree>, Error> {
    let DirectiveItems { original, patch } = special_items(original, patch, key)?;
    let mut merged = original.clone();
    let mut found = places(&original, Some(key));
    found.retain(|_, at| original[*at].get(key).is_some());
    for value in &patch {
        check_item(value, Some(key))?;
        match found.get(&id_of(value, Some(key))).copied() {
            Some(at) => {
                let slot = &mut merged[at];
                *slot = Tree::Map(merge_map(into_map(slot.take()), value, item)?);
                // A merge that removed the key is rejected below; until then the slot has no key.
            }
            None => {
                found.insert(id_of(value, Some(key)), merged.len());
                merged.push(value.clone());
            }
        }
    }
    for list in [&merged, &patch, &original] {
        check_items(list, Some(key))?;
    }
    Ok(arrange(merged, &patch, &original, Some(key)))
}

struct DirectiveItems {
    original: Vec<Tree>,
    patch: Vec<Tree>,
}

/// Executes the items with a directive, and returns the others.
fn special_items(mut original: Vec<Tree>, patch: &[Tree], key: &str) -> Result<DirectiveItems, Error> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut deleted: Vec<Tree> = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => rest.push(item.clone()),
            Some(directive) => match directive.as_str() {
                Some("delete") => deleted.push(item.get(key).cloned().ok_or_else(|| no_merge_key(item, key))?),
                Some("replace") => replace = true,
                Some("merge") => {
                    let text = "merging lists cannot yet be specified in the patch";
                    return Err(Error::Internal(text.to_string()));
                }
                _ => return Err(unknown_directive(directive, item)),
            },
        }
    }
    if replace {
        return Ok(DirectiveItems { original: rest, patch: Vec::new() });
    }
    let deleted = places(&deleted, None);
    original.retain(|item| !item.get(key).is_some_and(|value| deleted.contains_key(&Id(value))));
    Ok(DirectiveItems { original, patch: rest })
}
