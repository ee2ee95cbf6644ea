//! Shared table cells: ages, labels and selectors as `kubectl get` prints them.

use api::selector::Selector;
use api::{Map, Tree, time};

/// The columns of a kind without any of its own.
pub(crate) fn name_and_age(object: &Tree, now: i64) -> Vec<Tree> {
    vec![name(object), age(object, now)]
}

/// The cell with the object's name.
pub fn name(object: &Tree) -> Tree {
    Tree::from(object.str("metadata.name"))
}

/// The time since creation, or `<unknown>`.
pub fn age(object: &Tree, now: i64) -> Tree {
    since(object.str("metadata.creationTimestamp"), now)
}

/// The time since an RFC 3339 time, in human-readable form.
pub fn since(time: &str, now: i64) -> Tree {
    match time::parse(time) {
        Ok(time) => Tree::from(time::human_duration(now - time.seconds)),
        Err(_) => Tree::from("<unknown>"),
    }
}

/// Labels as `a=b,c=d`, or `<none>`.
pub fn labels(labels: &Map) -> String {
    if labels.is_empty() {
        return "<none>".to_string();
    }
    let pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    pairs.join(",")
}

/// A LabelSelector as text: `a=b,c in (d,e),!f`, sorted by key; `<none>` if it is empty.
pub fn label_selector(selector: &Tree) -> String {
    match Selector::from_object(selector).map(|selector| selector.to_string()) {
        Ok(text) if text.is_empty() => "<none>".to_string(),
        Ok(text) => text,
        Err(_) => "<error>".to_string(),
    }
}

/// The columns Name and Created At, for kinds without columns of their own upstream.
pub(crate) fn name_and_created(object: &Tree, _: i64) -> Vec<Tree> {
    vec![name(object), Tree::from(object.str("metadata.creationTimestamp"))]
}

/// The text at a dotted path, or `other` where it is empty.
pub(crate) fn text_or(object: &Tree, path: &str, other: &str) -> Tree {
    match object.str(path) {
        "" => Tree::from(other),
        text => Tree::from(text),
    }
}

/// Strings of a list joined by commas, or `other` where there are none.
pub fn joined(items: &[Tree], other: &str) -> Tree {
    if items.is_empty() {
        return Tree::from(other);
    }
    let texts: Vec<&str> = items.iter().map(|item| item.as_str().unwrap_or("")).collect();
    Tree::from(texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn selectors_are_sorted_by_key() {
        let selector = tree! {
            "matchLabels" => tree! { "b" => "1" },
            "matchExpressions" => list![
                tree! { "key" => "a", "operator" => "In", "values" => list!["y", "x"] },
                tree! { "key" => "c", "operator" => "DoesNotExist" },
            ],
        };
        assert_eq!(label_selector(&selector), "a in (x,y),b=1,!c");
        assert_eq!(label_selector(&Tree::Null), "<none>");
        assert_eq!(labels(selector.map("matchLabels")), "b=1");
    }
}
