//! The query of a URL.

use std::borrow::Cow;

/// The decoded parameters in order.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
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

    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Upstream's boolean parameters: anything except absent, "false" and "0" is true.
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key), "false" | "0")
    }
}

pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let code = hex.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Percent-encodes a query value.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
}
