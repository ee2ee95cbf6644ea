//! JSON to and from the tree. The decoder uses the schema to drop and report unknown fields, and reports duplicates,
//! in document order; `typed` checks types.

mod decode;
mod encode;
mod raw;

pub(crate) use decode::decode_at;
pub use decode::{decode, decode_as, decode_metadata, decode_only, decode_unmanaged};
pub use encode::{encode, encode_changed, encode_into, encode_pretty, encode_with_hole, write_string};
pub use raw::{decode_around, items};

/// Invalid JSON. The messages are Go's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    UnexpectedEnd,
    /// The unexpected character and its context: `looking for beginning of value`.
    Invalid(char, &'static str),
    /// Inside `true`, `false` or `null`: the character, the word, and the expected letter.
    Literal(char, &'static str, char),
    TooDeep,
    NotUtf8,
    BadNumber,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::UnexpectedEnd => f.write_str("unexpected end of JSON input"),
            Error::Invalid(c, place) => write!(f, "invalid character {} {place}", quoted_char(*c)),
            Error::Literal(c, word, expected) => {
                write!(f, "invalid character {} in literal {word} (expecting '{expected}')", quoted_char(*c))
            }
            Error::TooDeep => f.write_str("exceeded max depth"),
            Error::NotUtf8 => f.write_str("invalid UTF-8 in string"),
            Error::BadNumber => f.write_str("invalid number"),
        }
    }
}

impl std::error::Error for Error {}

fn quoted_char(c: char) -> String {
    match c {
        '\'' => r"'\''".to_string(),
        '"' => "'\"'".to_string(),
        '\n' => r"'\n'".to_string(),
        '\r' => r"'\r'".to_string(),
        '\t' => r"'\t'".to_string(),
        c if (c as u32) < 0x20 => format!(r"'\x{:02x}'", c as u32),
        c => format!("'{c}'"),
    }
}

/// Problems of strict decoding in document order: `unknown field "spec.replicaz"`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strict {
    /// The problems, without duplicates.
    pub problems: Vec<String>,
}

impl Strict {
    /// Reports a field that the schema does not have.
    pub fn unknown(&mut self, path: &str) {
        self.push(format!("unknown field {path:?}"));
    }

    /// Reports a key that appears twice.
    pub fn duplicate(&mut self, path: &str) {
        self.push(format!("duplicate field {path:?}"));
    }

    /// Upstream stops at one hundred.
    pub fn push(&mut self, problem: String) {
        if self.problems.len() < 100 && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::type_of;

    fn check(input: &str, output: &str) {
        let tree = decode(input.as_bytes()).expect("valid JSON");
        assert_eq!(String::from_utf8_lossy(&encode(&tree, None)), output);
    }

    #[test]
    fn values_round_trip() {
        check(
            r#" {"b":[1,-2.5,true,null],"a":"x\n\"\u00e9\ud83d\ude00"} "#,
            "{\"a\":\"x\\n\\\"é😀\",\"b\":[1,-2.5,true,null]}",
        );
        check("1e3", "1000");
        check("9223372036854775807", "9223372036854775807");
    }

    #[test]
    fn json_errors_match_go() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            (r#"{"a":1}{"#, "invalid character '{' after top-level value"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (r#"[1 2]"#, "invalid character '2' after array element"),
        ];
        for (input, message) in cases {
            assert_eq!(decode(input.as_bytes()).expect_err(input).to_string(), message);
        }
        assert_eq!(decode("[".repeat(10_000).as_bytes()), Err(Error::TooDeep));
    }

    #[test]
    fn reports_fields_in_document_order() {
        let mut strict = Strict::default();
        let text = r#"{"metadata":{"name":"a","foo":1,"name":"b"},"spec":{"containers":[{"imagee":"x"}],"zzz":1}}"#;
        let tree = decode_as(text.as_bytes(), type_of("", "v1", "Pod"), &mut strict).expect("valid JSON");
        let want = [
            "unknown field \"metadata.foo\"",
            "duplicate field \"metadata.name\"",
            "unknown field \"spec.containers[0].imagee\"",
            "unknown field \"spec.zzz\"",
        ];
        assert_eq!(strict.problems, want);
        assert_eq!(tree.str("metadata.name"), "b");
        assert!(tree.at("spec.zzz").is_null());
    }

    #[test]
    fn decodes_only_the_requested_paths() {
        let text = r#"{"a":{"x":[1,{"y":"]}\\\""}],"b":{"c":1,"d":2}},"e":"f","g":null}"#;
        let tree = decode_only(text.as_bytes(), &["a.b.c", "e"]).expect("valid JSON");
        assert_eq!(String::from_utf8_lossy(&encode(&tree, None)), r#"{"a":{"b":{"c":1}},"e":"f"}"#);
        assert!(decode_only(b"{\"a\":[1,2", &["b"]).is_err());
    }

    #[test]
    fn managed_fields_can_be_skipped() {
        let text = r#"{"kind":"A","metadata":{"name":"n", "managedFields" : [{"x":"]}"}],"uid":"u"},"spec":{"managedFields":[1]}}"#;
        let lean = r#"{"kind":"A","metadata":{"name":"n","uid":"u"},"spec":{"managedFields":[1]}}"#;
        let read = |text: &str| decode(text.as_bytes()).expect("valid JSON");
        assert_eq!(decode_unmanaged(text.as_bytes()), Ok(read(lean)));
        let metadata = r#"{"kind":"A","metadata":{"name":"n","uid":"u"}}"#;
        assert_eq!(decode_metadata(text.as_bytes()), Ok(read(metadata)));
        assert!(decode_unmanaged(br#"{"metadata":{"managedFields":["#).is_err());
    }

    #[test]
    fn placeholder_is_in_the_metadata() {
        let tree = crate::tree! { "kind" => "Pod", "apiVersion" => "v1", "metadata" => crate::tree! { "name" => "a", "resourceVersion" => "7" } };
        let (bytes, hole) = encode_with_hole(&tree, type_of("", "v1", "Pod"));
        let text = String::from_utf8(bytes).expect("UTF-8");
        let filled = format!("{}42{}", &text[..hole], &text[hole..]);
        assert_eq!(filled, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":"a"}}"#);
    }
}
