//! Patches from the difference of objects: strategic for built-in kinds, JSON merge patches for all others.

use api::schema::{Field, Ty, Type, type_of};
use api::{Map, Tree, tree};

use crate::discovery::Resource;

/// The patch that makes `modified` of `original`.
pub(crate) fn two_way(original: &Tree, modified: &Tree, resource: &Resource) -> Tree {
    match type_of(&resource.group, &resource.version, &resource.kind) {
        Some(ty) => Tree::Map(diff_maps(map(original), map(modified), Some(ty), BOTH)),
        None => Tree::Map(merge_diff(map(original), map(modified), true, true)),
    }
}

/// The patch for `current` that adds and changes what `modified` has, and deletes what it no longer has and
/// `last_applied` had.
pub(crate) fn three_way(last_applied: &Tree, modified: &Tree, current: &Tree, resource: &Resource) -> Tree {
    let (last, modified, current) = (map(last_applied), map(modified), map(current));
    match type_of(&resource.group, &resource.version, &resource.kind) {
        Some(ty) => {
            let changes = diff_maps(current, modified, Some(ty), CHANGES);
            let deletions = diff_maps(last, modified, Some(ty), DELETIONS);
            Tree::Map(join(deletions, changes, Some(ty)))
        }
        None => {
            let changes = merge_diff(current, modified, true, false);
            let deletions = merge_diff(last, modified, false, true);
            Tree::Map(join(deletions, changes, None))
        }
    }
}

/// The paths of the fields that both patches set, to different values.
pub(crate) fn conflicts(patch: &Tree, other: &Tree, resource: &Resource) -> Vec<String> {
    let mut paths = Vec::new();
    let ty = type_of(&resource.group, &resource.version, &resource.kind);
    add_conflicts(map(patch), map(other), ty, "", &mut paths);
    paths
}

fn add_conflicts(patch: &Map, other: &Map, ty: Option<&'static Type>, at: &str, paths: &mut Vec<String>) {
    for (key, new) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let Some(old) = other.get(key) else { continue };
        let path = if at.is_empty() { key.to_string() } else { format!("{at}.{key}") };
        let (field, inner) = inner(ty, key);
        let strategy = field.map(|field| field.strategy).unwrap_or_default();
        match (new, old) {
            (Tree::Map(new), Tree::Map(old)) => add_conflicts(new, old, inner, &path, paths),
            (Tree::List(new), Tree::List(old)) if strategy.merge && strategy.merge_key.is_some() => {
                let merge_key = strategy.merge_key.unwrap_or_default();
                for item in new {
                    let name = item.get(merge_key);
                    let same = old.iter().find(|one| one.get(merge_key) == name);
                    let path = format!("{path}[{}]", name.and_then(Tree::as_str).unwrap_or_default());
                    add_conflicts(map(item), map(same.unwrap_or(&Tree::Null)), inner, &path, paths);
                    let is_key = format!("{path}.{merge_key}");
                    paths.retain(|path| *path != is_key);
                }
            }
            (new, old) if new != old => paths.push(path),
            _ => {}
        }
    }
}

static EMPTY: Map = Map::new();

fn map(tree: &Tree) -> &Map {
    tree.as_map().unwrap_or(&EMPTY)
}

/// Which differences are wanted.
#[derive(Clone, Copy)]
struct Options {
    changes: bool,
    deletions: bool,
    retain_keys: bool,
}

const BOTH: Options = Options { changes: true, deletions: true, retain_keys: false };
const CHANGES: Options = Options { changes: true, deletions: false, retain_keys: false };
const DELETIONS: Options = Options { changes: false, deletions: true, retain_keys: false };

fn merge_diff(original: &Map, modified: &Map, changes: bool, deletions: bool) -> Map {
    let mut patch = Map::new();
    for (key, new) in modified.iter() {
        match (original.get(key), new) {
            (Some(Tree::Map(old)), Tree::Map(new)) => {
                let inner = merge_diff(old, new, changes, deletions);
                if !inner.is_empty() {
                    patch.insert(key, inner);
                }
            }
            (Some(old), new) if old == new => {}
            (None, Tree::Null) => {}
            (_, new) if changes => {
                patch.insert(key, new.clone());
            }
            _ => {}
        }
    }
    if deletions {
        add_nulls(original, modified, &mut patch);
    }
    patch
}

fn add_nulls(original: &Map, modified: &Map, patch: &mut Map) {
    for key in original.keys().filter(|key| !modified.contains(key)) {
        patch.insert(key, Tree::Null);
    }
}

fn same_type(a: &Tree, b: &Tree) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// The type of the values below a field.
fn inner(ty: Option<&'static Type>, key: &str) -> (Option<&'static Field>, Option<&'static Type>) {
    let field = ty.and_then(|ty| ty.field(key));
    let ty: Option<&'static Type> = match field.map(|field| field.ty) {
        Some(Ty::Struct(ty)) => Some(ty),
        Some(Ty::List(Ty::Struct(ty)) | Ty::Map(Ty::Struct(ty))) => Some(*ty),
        _ => None,
    };
    (field, ty)
}

fn diff_maps(original: &Map, modified: &Map, ty: Option<&'static Type>, options: Options) -> Map {
    let mut patch = Map::new();
    let below = Options { retain_keys: false, ..options };
    for (key, new) in modified.iter() {
        let Some(old) = original.get(key) else {
            if options.changes {
                patch.insert(key, new.clone());
            }
            continue;
        };
        if !same_type(old, new) {
            if options.changes {
                patch.insert(key, new.clone());
            }
            continue;
        }
        let (field, inner) = inner(ty, key);
        let strategy = field.map(|field| field.strategy).unwrap_or_default();
        match (old, new) {
            (Tree::Map(old), Tree::Map(new)) if !strategy.replace => {
                let is_map = matches!(field.map(|field| field.ty), Some(Ty::Map(_)));
                let value = diff_maps(
                    old,
                    new,
                    inner.filter(|_| !is_map),
                    Options { retain_keys: strategy.retain_keys, ..below },
                );
                if !value.is_empty() {
                    patch.insert(key, value);
                }
            }
            (Tree::List(old), Tree::List(new)) if strategy.merge => {
                let options = Options { retain_keys: strategy.retain_keys, ..below };
                diff_lists(key, old, new, inner, strategy.merge_key, options, &mut patch);
            }
            (old, new) if old != new && options.changes => {
                patch.insert(key, new.clone());
            }
            _ => {}
        }
    }
    if options.deletions {
        add_nulls(original, modified, &mut patch);
    }
    if options.retain_keys {
        let keys: Vec<Tree> =
            modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.into()).collect();
        let has_more = original.keys().any(|key| !modified.contains(key));
        if !keys.is_empty() && (!patch.is_empty() || has_more) {
            patch.insert("$retainKeys", keys);
        }
    }
    patch
}

fn diff_lists(
    key: &str,
    old: &[Tree],
    new: &[Tree],
    ty: Option<&'static Type>,
    merge_key: Option<&str>,
    options: Options,
    patch: &mut Map,
) {
    if old.is_empty() {
        if !new.is_empty() && options.changes {
            patch.insert(key, new.to_vec());
        }
        return;
    }
    let Some(merge_key) = merge_key else { return diff_scalars(key, old, new, options, patch) };
    let find = |list: &[Tree], value: &Tree| list.iter().position(|item| item.at(merge_key) == value);
    let mut items = Vec::new();
    for item in new {
        match find(old, item.at(merge_key)).map(|at| &old[at]) {
            Some(before) => {
                let mut inner = diff_maps(map(before), map(item), ty, options);
                if !inner.is_empty() {
                    inner.insert(merge_key, item.at(merge_key).clone());
                    items.push(Tree::Map(inner));
                }
            }
            None if options.changes => items.push(item.clone()),
            None => {}
        }
    }
    if options.deletions {
        let gone = old.iter().filter(|item| find(new, item.at(merge_key)).is_none());
        items.extend(gone.map(|item| {
            let mut deletion = tree! { "$patch" => "delete" };
            deletion.set(merge_key, item.at(merge_key).clone());
            deletion
        }));
    }
    let keys = |list: &[Tree]| list.iter().map(|item| item.at(merge_key).clone()).collect::<Vec<_>>();
    let is_reordered = options.changes && keys(old) != keys(new);
    if !items.is_empty() || is_reordered {
        let order = |value: Tree| {
            let mut item = tree! {};
            item.set(merge_key, value);
            item
        };
        patch.insert(format!("$setElementOrder/{key}"), keys(new).into_iter().map(order).collect::<Vec<_>>());
    }
    if !items.is_empty() {
        patch.insert(key, items);
    }
}

fn diff_scalars(key: &str, old: &[Tree], new: &[Tree], options: Options, patch: &mut Map) {
    let missing =
        |from: &[Tree], list: &[Tree]| from.iter().filter(|item| !list.contains(item)).cloned().collect::<Vec<_>>();
    let added = if options.changes { missing(new, old) } else { Vec::new() };
    let gone = if options.deletions { missing(old, new) } else { Vec::new() };
    if (options.deletions && !gone.is_empty()) || (options.changes && old != new) {
        patch.insert(format!("$setElementOrder/{key}"), new.to_vec());
    }
    if !added.is_empty() {
        patch.insert(key, added);
    }
    if !gone.is_empty() {
        patch.insert(format!("$deleteFromPrimitiveList/{key}"), gone);
    }
}

/// Two patches as one.
fn join(mut first: Map, second: Map, ty: Option<&'static Type>) -> Map {
    for (key, value) in second.into_entries() {
        let (field, inner) = inner(ty, &key);
        let merge_key = field.and_then(|field| field.strategy.merge_key);
        let joined = match (first.remove(&key), value) {
            (Some(Tree::Map(old)), Tree::Map(new)) => Tree::Map(join(old, new, inner)),
            (Some(Tree::List(old)), Tree::List(new)) if merge_key.is_some() && !key.starts_with('$') => {
                Tree::List(join_lists(old, new, inner, merge_key.unwrap_or_default()))
            }
            (_, value) => value,
        };
        first.insert(key, joined);
    }
    first
}

fn join_lists(mut deletions: Vec<Tree>, changes: Vec<Tree>, ty: Option<&'static Type>, merge_key: &str) -> Vec<Tree> {
    let mut joined = Vec::new();
    for item in changes {
        let same = deletions.iter().position(|other| other.at(merge_key) == item.at(merge_key));
        match (same.map(|at| deletions.remove(at)), item) {
            (Some(Tree::Map(old)), Tree::Map(new)) => joined.push(Tree::Map(join(old, new, ty))),
            (_, item) => joined.push(item),
        }
    }
    joined.extend(deletions);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, kind: &str) -> Resource {
        crate::objects::guess(if group.is_empty() { "v1".into() } else { format!("{group}/v1") }.as_str(), kind)
    }

    fn parse(text: &str) -> Tree {
        api::yaml::decode(text.as_bytes()).expect("YAML")
    }

    fn json(tree: &Tree) -> String {
        String::from_utf8_lossy(&api::json::encode(tree, None)).into_owned()
    }

    #[test]
    fn strategic_patches_use_merge_keys() {
        let check = |last: &str, modified: &str, current: &str, want: &str| {
            let patch = three_way(&parse(last), &parse(modified), &parse(current), &resource("", "Pod"));
            assert_eq!(json(&patch), want);
        };
        check(
            "{spec: {containers: [{name: a, image: x1}]}}",
            "{spec: {containers: [{name: a, image: y1}]}}",
            "{spec: {containers: [{name: a, image: x1, stdin: false}]}}",
            r#"{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"image":"y1","name":"a"}]}}"#,
        );
        check(
            "{spec: {containers: [{name: a}, {name: b}]}}",
            "{spec: {containers: [{name: a}]}}",
            "{spec: {containers: [{name: a}, {name: b}]}}",
            r#"{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"$patch":"delete","name":"b"}]}}"#,
        );
        check(
            "{metadata: {labels: {a: x}}}",
            "{metadata: {}}",
            "{metadata: {labels: {a: x}}}",
            r#"{"metadata":{"labels":null}}"#,
        );
        check("{}", "{spec: {x: 1}}", "{spec: {x: 1, y: 2}}", "{}");
    }

    #[test]
    fn applied_patches_give_the_modified_object() {
        let last = parse(
            "{spec: {containers: [{name: a, image: x, args: [p]}, {name: b}], volumes: [{name: v, emptyDir: {}}]}}",
        );
        let new = parse(
            "{spec: {containers: [{name: c, image: z}, {name: a, image: y}], volumes: [{name: v, hostPath: {path: /}}]}}",
        );
        let patch = two_way(&last, &new, &resource("", "Pod"));
        let ty = type_of("", "v1", "Pod").expect("a type");
        assert_eq!(api::patch::strategic(last, &patch, ty).expect("applied"), new);
    }

    #[test]
    fn custom_resources_get_merge_patches() {
        let other = resource("x.io", "Thing");
        let patch =
            three_way(&parse("{a: 1, b: {c: 1}}"), &parse("{b: {d: 2}}"), &parse("{a: 1, b: {c: 1, e: 3}}"), &other);
        assert_eq!(json(&patch), r#"{"a":null,"b":{"c":null,"d":2}}"#);
    }
}
