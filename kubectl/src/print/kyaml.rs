//! KYAML: YAML in flow style with quoted strings, so that neither indentation nor types of plain words matter.

use std::fmt::Write;

use api::{Tree, json};

/// An object as a document.
pub(crate) fn encode(tree: &Tree) -> String {
    let mut out = String::from("---\n");
    write(&mut out, tree, 0);
    out.push('\n');
    out
}

fn write(out: &mut String, tree: &Tree, level: usize) {
    let pad = |level: usize| "  ".repeat(level);
    match tree {
        Tree::Map(map) if map.is_empty() => out.push_str("{}"),
        Tree::Map(map) => {
            out.push_str("{\n");
            for (key, value) in map.iter() {
                let _ = write!(out, "{}{}: ", pad(level + 1), key_text(key));
                write(out, value, level + 1);
                out.push_str(",\n");
            }
            let _ = write!(out, "{}}}", pad(level));
        }
        Tree::List(items) if items.is_empty() => out.push_str("[]"),
        // Maps and lists in a list are cuddled: their brackets share its lines.
        Tree::List(items) if items.iter().all(|item| matches!(item, Tree::Map(_) | Tree::List(_))) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, item, level);
            }
            out.push(']');
        }
        Tree::List(items) => {
            out.push_str("[\n");
            for item in items {
                out.push_str(&pad(level + 1));
                write(out, item, level + 1);
                out.push_str(",\n");
            }
            let _ = write!(out, "{}]", pad(level));
        }
        Tree::Str(text) => out.push_str(&quoted(text)),
        scalar => out.push_str(&String::from_utf8_lossy(&json::encode(scalar, None))),
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

/// Keys are quoted if YAML could read them as another type or as syntax.
fn key_text(key: &str) -> String {
    let is_plain = key.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
        && key.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '/'));
    const WORDS: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    if is_plain && !WORDS.contains(&key.to_lowercase().as_str()) { key.to_string() } else { quoted(key) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn quotes_and_cuddles() {
        let tree =
            tree! { "no" => "yes", "items" => list![tree! { "a" => 1 }, tree! { "a" => 2 }], "args" => list!["x"] };
        let want = "---\n{\n  args: [\n    \"x\",\n  ],\n  items: [{\n    a: 1,\n  }, {\n    a: 2,\n  }],\n  \"no\": \"yes\",\n}\n";
        assert_eq!(encode(&tree), want);
        assert_eq!(api::yaml::decode(encode(&tree).as_bytes()), Ok(tree));
    }
}
