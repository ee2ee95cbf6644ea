//! The query of a URL, and the escapes of its parts.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The decoded parameters in order.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a query string; invalid escapes are kept as they are.
    pub fn parse(query: &str) -> Query {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let decode = |text: &str| percent_decode(&text.replace('+', " ")).into_owned();
        let split = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Query { pairs: pairs.map(split).collect() }
    }

    /// The first value; empty if there is none.
    pub fn get(&self, key: &str) -> &str {
        self.pairs.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    /// Whether the key occurs, with or without a value.
    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    /// All values of a key, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Upstream's boolean parameters: anything except absent, "false" and "0" is true.
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key), "false" | "0")
    }
}

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What Go escapes in a query, where a space becomes a plus sign.
const QUERY: &AsciiSet = &RESERVED.remove(b' ');

/// What Go escapes in a segment of a path.
const SEGMENT: &AsciiSet = &RESERVED.remove(b'$').remove(b'&').remove(b'+').remove(b':').remove(b'=').remove(b'@');

/// What Go escapes in a path.
const PATH: &AsciiSet = &SEGMENT.remove(b',').remove(b'/').remove(b';');

/// Decodes a part of a URL. A percent sign without two digits stays as it is.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy()
}

/// Percent-encodes a query value.
pub fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Percent-encodes a query value as Go does: a space becomes a plus sign.
pub fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string().replace(' ', "+")
}

/// Percent-encodes a segment of a path as Go does.
pub fn encode_segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Percent-encodes a path as Go does.
pub fn encode_path(path: &[u8]) -> String {
    percent_encoding::percent_encode(path, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_queries() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&dryRun=All&dryRun=x&pretty");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.flag("watch") && query.flag("pretty") && !query.flag("other"));
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
    }

    #[test]
    fn encoding_round_trips() {
        for text in ["", "a-b.c_d~e", "2026-01-02T03:04:05+02:00", "a&b=c d%", "ü"] {
            let query = Query::parse(&format!("x={}", percent_encode(text)));
            assert_eq!(query.get("x"), text);
        }
        assert_eq!(percent_encode("a b+/"), "a%20b%2B%2F");
    }

    #[test]
    fn escapes_as_go_does() {
        let text = "a-._~ $&+,/:;=?@!'()*[]%ü";
        assert_eq!(encode_query(text), "a-._~+%24%26%2B%2C%2F%3A%3B%3D%3F%40%21%27%28%29%2A%5B%5D%25%C3%BC");
        assert_eq!(encode_segment(text), "a-._~%20$&+%2C%2F:%3B=%3F@%21%27%28%29%2A%5B%5D%25%C3%BC");
        assert_eq!(encode_path(text.as_bytes()), "a-._~%20$&+,/:;=%3F@%21%27%28%29%2A%5B%5D%25%C3%BC");
    }
}
