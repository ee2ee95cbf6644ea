//! The merge of an apply configuration without managed fields, as mutating admission policies apply it.

use super::merge::merge;
use super::shape::{Shape, Typed};
use super::validate::validate;
use crate::schema::TypeRef;
use crate::tree::{MAX_DEPTH, Tree};

/// A configuration that cannot be merged. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The configuration does not have the type of the object.
    #[error("failed to convert patch object to typed object: {0}")]
    Type(String),
    /// The configuration has lists or maps that would be replaced as a whole, which is rarely intended.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}")]
    Atomic(String),
}

/// The live object with the values of a configuration.
pub fn merge_configuration(live: &Tree, applied: &Tree, ty: TypeRef<'_>) -> Result<Tree, ConfigurationError> {
    validate(applied, ty).map_err(|problems| ConfigurationError::Type(problems.to_string()))?;
    let mut atomics = Vec::new();
    find_atomics(applied, Typed::root(ty), "", 0, &mut atomics);
    if !atomics.is_empty() {
        return Err(ConfigurationError::Atomic(atomics.join(", ")));
    }
    Ok(merge(live, applied, ty))
}

fn find_atomics(tree: &Tree, typed: Typed<'_>, path: &str, depth: usize, found: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    match (typed.shape(tree), tree) {
        (Shape::Leaf, Tree::Map(_) | Tree::List(_)) => found.push(path.to_string()),
        (Shape::Struct(fields), Tree::Map(map)) => {
            for (name, value) in map.iter() {
                if let Some(typed) = fields.field(name) {
                    find_atomics(value, typed, &format!("{path}.{name}"), depth + 1, found);
                }
            }
        }
        (Shape::List(_, item), Tree::List(items)) => {
            for (index, value) in items.iter().enumerate() {
                find_atomics(value, item, &format!("{path}[{index}]"), depth + 1, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::schema::type_of;

    #[test]
    fn merges_what_has_keys_and_refuses_what_is_atomic() {
        let pod = TypeRef::Table(type_of("", "v1", "Pod").expect("a pod"));
        let read = |text: &str| json::decode(text.as_bytes()).expect("the test's own JSON");
        let live = read(r#"{"spec":{"containers":[{"name":"a","image":"x"}]}}"#);
        let check = |applied: &str, want: &str| {
            let got = match merge_configuration(&live, &read(applied), pod) {
                Ok(tree) => String::from_utf8_lossy(&json::encode(&tree, None)).into_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{applied}");
        };
        check(
            r#"{"spec":{"containers":[{"name":"a","image":"y"},{"name":"b"}]}}"#,
            r#"{"spec":{"containers":[{"image":"y","name":"a"},{"name":"b"}]}}"#,
        );
        check(
            r#"{"spec":{"containers":[{"name":"a","command":["x"]}]}}"#,
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].command",
        );
        check(
            r#"{"spec":{"nope":1}}"#,
            "failed to convert patch object to typed object: .spec.nope: field not declared in schema",
        );
    }
}
