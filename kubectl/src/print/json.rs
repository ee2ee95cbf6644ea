//! JSON with four spaces, as upstream prints it: keys sorted, and the characters of HTML escaped.

use api::{Tree, json};

/// An object as text, with a line feed at its end.
pub(crate) fn pretty(tree: &Tree) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write(&mut out, tree, 0);
    out.push(b'\n');
    out
}

fn indent(out: &mut Vec<u8>, level: usize) {
    out.push(b'\n');
    out.resize(out.len() + 4 * level, b' ');
}

fn write(out: &mut Vec<u8>, tree: &Tree, level: usize) {
    match tree {
        Tree::Map(map) if map.is_empty() => out.extend_from_slice(b"{}"),
        Tree::Map(map) => {
            out.push(b'{');
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                indent(out, level + 1);
                string(out, key);
                out.extend_from_slice(b": ");
                write(out, value, level + 1);
            }
            indent(out, level);
            out.push(b'}');
        }
        Tree::List(items) if items.is_empty() => out.extend_from_slice(b"[]"),
        Tree::List(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                indent(out, level + 1);
                write(out, item, level + 1);
            }
            indent(out, level);
            out.push(b']');
        }
        Tree::Str(text) => string(out, text),
        scalar => json::encode_into(out, scalar, None),
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    json::write_string(out, text);
    if !text.bytes().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
        return;
    }
    let plain = String::from_utf8_lossy(&out[start..]).into_owned();
    out.truncate(start);
    for char in plain.chars() {
        match char {
            '<' => out.extend_from_slice(b"\\u003c"),
            '>' => out.extend_from_slice(b"\\u003e"),
            '&' => out.extend_from_slice(b"\\u0026"),
            '\u{2028}' => out.extend_from_slice(b"\\u2028"),
            '\u{2029}' => out.extend_from_slice(b"\\u2029"),
            char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Writes a List as its objects arrive.
#[derive(Debug, Default)]
pub(crate) struct ListWriter {
    count: usize,
}

impl ListWriter {
    /// The text before the first object or between two, and the object.
    pub(crate) fn item(&mut self, item: &Tree) -> Vec<u8> {
        let mut out = Vec::with_capacity(2048);
        if self.count == 0 {
            out.extend_from_slice(b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [");
        } else {
            out.push(b',');
        }
        self.count += 1;
        indent(&mut out, 2);
        write(&mut out, item, 2);
        out
    }

    /// The rest.
    pub(crate) fn end(&self) -> &'static [u8] {
        const TAIL: &[u8] =
            b"\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n";
        const EMPTY: &[u8] =
            b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n";
        if self.count == 0 { EMPTY } else { TAIL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn escapes_and_indents() {
        let tree = tree! { "b" => "a<b&c", "a" => list![1], "c" => tree! {} };
        let want = "{\n    \"a\": [\n        1\n    ],\n    \"b\": \"a\\u003cb\\u0026c\",\n    \"c\": {}\n}\n";
        assert_eq!(String::from_utf8_lossy(&pretty(&tree)), want);
    }

    #[test]
    fn a_written_list_is_the_printed_one() {
        for count in 0..3 {
            let items: Vec<Tree> = (0..count).map(|at: i64| tree! { "at" => at }).collect();
            let mut writer = ListWriter::default();
            let mut out: Vec<u8> = items.iter().flat_map(|item| writer.item(item)).collect();
            out.extend_from_slice(writer.end());
            let list = tree! {
                "apiVersion" => "v1", "kind" => "List", "items" => items, "metadata" => tree! { "resourceVersion" => "" },
            };
            assert_eq!(out, pretty(&list));
        }
    }
}
