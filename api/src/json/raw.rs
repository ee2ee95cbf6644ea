//! Decodes a document around one value that is kept as bytes: a list around its items, an event around its object.

use std::ops::Range;

use super::Error;
use super::decode::Decoder;
use crate::tree::{Map, Str, Tree};

/// The document without the value under `key`, and the position of that value.
pub fn decode_around(bytes: &[u8], key: &str) -> Result<(Tree, Option<Range<usize>>), Error> {
    let mut decoder = Decoder::new(bytes, None)?;
    let mut found = None;
    let mut entries: Vec<(Str, Tree)> = Vec::new();
    decoder.open(b'{')?;
    while let Some(name) = decoder.next_key()? {
        if name == key {
            let start = decoder.at();
            decoder.skip_value()?;
            found = Some(start..decoder.at());
        } else {
            entries.push((name, decoder.value(None, 1)?));
        }
    }
    Ok((Tree::Map(Map::from_entries(entries, |_| {})), found))
}

/// The positions of the items of a list.
pub fn items(bytes: &[u8]) -> Result<Vec<Range<usize>>, Error> {
    let mut decoder = Decoder::new(bytes, None)?;
    let mut items = Vec::new();
    decoder.open(b'[')?;
    while decoder.has_item()? {
        let start = decoder.at();
        decoder.skip_value()?;
        items.push(start..decoder.at());
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_item_positions() {
        let text = r#"{"kind":"PodList","items":[ {"a":"]}"} , {"b":[1,{}]},3 ],"metadata":{"continue":"x"}} "#;
        let (head, at) = decode_around(text.as_bytes(), "items").expect("a list");
        assert_eq!((head.str("kind"), head.str("metadata.continue")), ("PodList", "x"));
        let list = &text[at.expect("items")];
        let found: Vec<&str> =
            items(list.as_bytes()).expect("items").into_iter().map(|range| list[range].trim()).collect();
        assert_eq!(found, [r#"{"a":"]}"}"#, r#"{"b":[1,{}]}"#, "3"]);
        assert_eq!(items(b"[]").expect("items"), []);
        assert_eq!(decode_around(b"{}", "items").expect("a map"), (Tree::map_new(), None));
    }

    #[test]
    fn refuses_incomplete_documents() {
        for text in ["", "{", r#"{"items":[1"#, r#"{"a":1"#, "[1]"] {
            assert!(decode_around(text.as_bytes(), "items").is_err(), "{text}");
        }
        for text in ["", "[", "[1", "[1,", "{}", "[1 2"] {
            assert!(items(text.as_bytes()).is_err(), "{text}");
        }
    }
}
