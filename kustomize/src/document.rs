//! Files of resources: YAML documents, lists expanded.

use api::patch::printed;
use api::{Tree, json, yaml};

use crate::error::Error;
use crate::fields::map_text;
use crate::resource::Resource;

/// The resources of a file, or of the text of a patch.
pub(crate) fn resources(bytes: &[u8]) -> Result<Vec<Resource>, Error> {
    let mut pending: std::collections::VecDeque<Tree> = documents(bytes)?.into();
    let mut out = Vec::new();
    while let Some(tree) = pending.pop_front() {
        let Some(items) = tree.get("items").filter(|_| tree.str("kind").ends_with("List")) else {
            out.push(Resource::new(tree));
            continue;
        };
        for item in items.as_list().unwrap_or_default() {
            validate(item)?;
            pending.push_back(item.clone());
        }
    }
    Ok(out)
}

/// The documents of a file that are objects.
fn documents(bytes: &[u8]) -> Result<Vec<Tree>, Error> {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let mut out = Vec::new();
    for document in split(&text)? {
        let tree = yaml::decode_core(document.as_bytes())?;
        if tree.is_null() || tree.as_map().is_some_and(api::Map::is_empty) {
            continue;
        }
        for tree in unwrap_list(tree) {
            validate(&tree)?;
            out.push(tree);
        }
    }
    Ok(out)
}

/// The items of a `ResourceList` or `List`.
fn unwrap_list(tree: Tree) -> Vec<Tree> {
    let is_list = matches!(tree.str("kind"), "List" | "ResourceList");
    match tree.get("items").and_then(Tree::as_list) {
        Some(items) if is_list => items.to_vec(),
        _ => vec![tree],
    }
}

/// Documents between lines that begin with `---`.
fn split(text: &str) -> Result<Vec<String>, Error> {
    let mut out = vec![String::new()];
    for (at, line) in text.split_inclusive('\n').enumerate() {
        match line.strip_prefix("---") {
            Some(rest) if at > 0 => {
                let rest = rest.trim();
                if !rest.is_empty() && !rest.starts_with('#') {
                    return Err(Error::Separator(line.trim().to_string()));
                }
                out.push(String::new());
            }
            _ => {
                if let Some(last) = out.last_mut() {
                    last.push_str(line);
                }
            }
        }
    }
    Ok(out)
}

fn printed_map(tree: &Tree, field: &str) -> String {
    tree.get(field).filter(|map| !map.is_null()).map_or_else(|| "map[]".to_string(), printed)
}

fn validate(tree: &Tree) -> Result<(), Error> {
    let text = || String::from_utf8_lossy(&json::encode(tree, None)).into_owned();
    let metadata = || {
        let field = |key: &str| map_text(tree, key);
        let (own, meta) = ((field("apiVersion"), field("kind")), tree.at("metadata"));
        let (labels, annotations) = (printed_map(meta, "labels"), printed_map(meta, "annotations"));
        format!(
            "{{{{{} {}}} {{{{{} {}}} {labels} {annotations}}}}}",
            own.0,
            own.1,
            map_text(meta, "name"),
            map_text(meta, "namespace")
        )
    };
    if tree.as_map().is_none() {
        return Err(Error::MissingMetadata);
    }
    if tree.str("kind").is_empty() {
        return Err(Error::MissingObjectKind(metadata()));
    }
    if tree.str("metadata.name").is_empty() && !tree.str("kind").ends_with("List") {
        return Err(Error::MissingName(metadata()));
    }
    if let Some(path) = null_item(tree, &mut String::new()) {
        return Err(Error::NullItem { path, object: text() });
    }
    Ok(())
}

/// The path of a null in a list.
fn null_item(tree: &Tree, path: &mut String) -> Option<String> {
    let length = path.len();
    match tree {
        Tree::List(items) => {
            if items.iter().any(Tree::is_null) {
                return Some(path.clone());
            }
            items.iter().enumerate().find_map(|(at, item)| {
                path.push_str(&format!("[{at}]"));
                let found = null_item(item, path);
                path.truncate(length);
                found
            })
        }
        Tree::Map(map) => map.iter().find_map(|(key, item)| {
            path.push('/');
            path.push_str(key);
            let found = null_item(item, path);
            path.truncate(length);
            found
        }),
        _ => None,
    }
}
