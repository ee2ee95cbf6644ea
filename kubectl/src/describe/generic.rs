//! Any object, by its fields.

use api::Tree;

use super::writer::{Writer, put};

const SKIPPED: &[&str] =
    &[".metadata.managedFields", ".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations"];

pub(super) fn describe(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    fields(w, 0, object, "");
}

fn fields(w: &mut Writer, level: usize, object: &Tree, before: &str) {
    for (key, value) in object.as_map().into_iter().flat_map(api::Map::iter) {
        let path = format!("{before}.{key}");
        if SKIPPED.contains(&path.as_str()) {
            continue;
        }
        let label = label(key);
        match value {
            Tree::Map(_) => {
                put!(w, level, "{label}:\n");
                fields(w, level + 1, value, &path);
            }
            Tree::List(items) => {
                put!(w, level, "{label}:\n");
                for item in items {
                    match item {
                        Tree::Map(_) => fields(w, level + 1, item, &path),
                        other => put!(w, level + 1, "{}\n", api::patch::printed(other)),
                    }
                }
            }
            other => put!(w, level, "{label}:\t{}\n", api::patch::printed(other)),
        }
    }
}

/// `hostIP` becomes `Host IP`. Names with other characters than letters stay.
fn label(field: &str) -> String {
    if field.chars().any(|c| !c.is_alphabetic() && c != '-') {
        return field.to_string();
    }
    let word = |part: String| {
        let upper = part.to_uppercase();
        if ["API", "URL", "UID", "GUID"].contains(&upper.as_str()) {
            return upper;
        }
        let mut chars = part.chars();
        match chars.next() {
            Some(first) if part.to_lowercase() == part => first.to_uppercase().chain(chars).collect(),
            _ => part,
        }
    };
    split_words(field).into_iter().filter(|part| part != "_").map(word).collect::<Vec<_>>().join(" ")
}

/// Splits where the class of characters changes; the last of several capitals begins the next word.
fn split_words(text: &str) -> Vec<String> {
    let class = |c: char| match c {
        c if c.is_lowercase() => 1,
        c if c.is_uppercase() => 2,
        _ => 3,
    };
    let mut words: Vec<String> = Vec::new();
    let mut last = 0;
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if class(c) == last => word.push(c),
            _ => words.push(c.to_string()),
        }
        last = class(c);
    }
    for at in 0..words.len().saturating_sub(1) {
        if words[at].chars().all(char::is_uppercase) && words[at + 1].starts_with(char::is_lowercase) {
            let moved = words[at].pop();
            words[at + 1].insert_str(0, &moved.map(String::from).unwrap_or_default());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_become_words() {
        for (field, want) in [
            ("hostIP", "Host IP"),
            ("apiVersion", "API Version"),
            ("uid", "UID"),
            ("a.b", "a.b"),
            ("HTTPServer", "HTTP Server"),
        ] {
            assert_eq!(label(field), want);
        }
    }
}
