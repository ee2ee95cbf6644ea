//! YAML to and from the tree, with the semantics of upstream's library: YAML 1.1 booleans, octal numbers, scalar keys
//! converted to strings; sorted keys, compact lists and quoting on output.

mod decode;
mod encode;
mod positions;
mod resolve;

use std::fmt;

use crate::json::Strict;
use crate::schema::{Ty, Type};
use crate::tree::Tree;

pub use encode::encode;
pub use positions::{Position, key_positions};

/// Invalid YAML, with the messages of upstream's parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The problem, the line that upstream's parser reports, if it reports one, and where this parser found it: its line
    /// and column.
    Syntax {
        line: Option<usize>,
        place: (usize, usize),
        problem: String,
    },
    NotUtf8,
    TooDeep,
    /// Aliases that would expand to far more than the document.
    TooManyAliases,
    /// An anchor's value refers to itself.
    Recursive,
    BadKey(String),
    /// JSON has no infinities.
    NotFinite(&'static str),
    BadBinary,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Syntax { line: Some(line), problem, .. } => write!(f, "yaml: line {line}: {problem}"),
            Error::Syntax { line: None, problem, .. } => write!(f, "yaml: {problem}"),
            Error::NotUtf8 => f.write_str("yaml: invalid leading UTF-8 octet"),
            Error::TooDeep => f.write_str("yaml: exceeded max depth"),
            Error::TooManyAliases => f.write_str("yaml: document contains excessive aliasing"),
            Error::Recursive => f.write_str("yaml: anchor value contains itself"),
            Error::BadKey(key) => write!(f, "yaml: invalid map key: {key}"),
            Error::NotFinite(value) => write!(f, "json: unsupported value: {value}"),
            Error::BadBinary => f.write_str("yaml: !!binary value contains invalid base64 data"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The line of a syntax error, if upstream's parser reports one.
    pub fn line(&self) -> Option<usize> {
        match self {
            Error::Syntax { line, .. } => *line,
            _ => None,
        }
    }

    /// The line and column of a syntax error, from 1.
    pub fn place(&self) -> Option<(usize, usize)> {
        match self {
            Error::Syntax { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// Any YAML; the last of duplicate keys wins silently.
pub fn decode(bytes: &[u8]) -> Result<Tree, Error> {
    decode_as(bytes, None, &mut Strict::default())
}

/// Any YAML with the booleans of YAML 1.2 only, as kustomize and KYAML read it: `yes` and `on` are strings.
pub fn decode_core(bytes: &[u8]) -> Result<Tree, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
    Ok(decode::document(text, decode::Booleans::Core)?.0)
}

/// The first document, of a known type. Duplicate keys are reported together with their lines; unknown fields are
/// dropped and reported sorted by name, since upstream converts the document to JSON first.
pub fn decode_as(bytes: &[u8], ty: Option<&'static Type>, strict: &mut Strict) -> Result<Tree, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
    let (mut tree, duplicates) = decode::document(text, decode::Booleans::Words)?;
    if !duplicates.is_empty() {
        strict.push(format!("{DUPLICATES}\n  {}", duplicates.join("\n  ")));
    }
    if let Some(ty) = ty {
        prune(&mut tree, Ty::Struct(ty), &mut String::new(), strict);
    }
    Ok(tree)
}

const DUPLICATES: &str = "yaml: unmarshal errors:";

fn prune(tree: &mut Tree, ty: Ty, path: &mut String, strict: &mut Strict) {
    let length = path.len();
    match (ty, tree) {
        (Ty::Struct(ty), Tree::Map(map)) => map.retain(|key, value| {
            push_key(path, key);
            let field = ty.field(key);
            match field {
                Some(field) => prune(value, field.ty, path, strict),
                None => strict.unknown(path),
            }
            path.truncate(length);
            field.is_some()
        }),
        (Ty::Map(item @ (Ty::Struct(_) | Ty::List(_))), Tree::Map(map)) => map.iter_mut().for_each(|(key, value)| {
            push_key(path, key);
            prune(value, *item, path, strict);
            path.truncate(length);
        }),
        (Ty::List(item @ Ty::Struct(_)), Tree::List(items)) => {
            for (index, value) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune(value, *item, path, strict);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::schema::type_of;

    fn json_of(text: &str) -> String {
        let tree = decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        String::from_utf8(json::encode(&tree, None)).expect("UTF-8")
    }

    #[test]
    fn booleans_of_the_core_schema_are_no_words() {
        let tree = decode_core(b"{a: yes, on: off, n: [y, true, False, !!bool yes]}").expect("valid YAML");
        let want = r#"{"a":"yes","n":["y",true,false,true],"on":"off"}"#;
        assert_eq!(String::from_utf8_lossy(&json::encode(&tree, None)), want);
    }

    #[test]
    fn scalars_have_yaml_1_1_meaning() {
        let cases = [
            ("a: yes", r#"{"a":true}"#),
            ("a: [on, No, OFF, y, n, true, \"yes\"]", r#"{"a":[true,false,false,true,false,true,"yes"]}"#),
            ("[0o14, 014, 0x1F, 0b11, 1_000, -5, +5]", "[12,12,31,3,1000,-5,5]"),
            ("[1.5, 1e3, .5, 1., 0.1]", "[1.5,1000,0.5,1,0.1]"),
            ("[~, null, NULL, ]", "[null,null,null]"),
            ("2024-01-02T03:04:05Z", r#""2024-01-02T03:04:05Z""#),
            ("2024-01-02", r#""2024-01-02""#),
            ("1:20", r#""1:20""#),
            ("{1: a, true: b, 1.5: c, no: d}", r#"{"1":"a","1.5":"c","false":"d","true":"b"}"#),
            ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
            ("a: >-\n  x\n  y\n", r#"{"a":"x y"}"#),
            ("a: |\n  x\n  y", r#"{"a":"x\ny"}"#),
            ("a: |+\n  x", r#"{"a":"x"}"#),
            ("a: >\n  x\n  y", r#"{"a":"x y"}"#),
            ("a: |\n  x\n  ", r#"{"a":"x\n"}"#),
            ("a: |\n  x\n    ", r#"{"a":"x\n  "}"#),
            ("a: |\n  x\n\n", r#"{"a":"x\n"}"#),
            ("a: |+\n  x\n\n", r#"{"a":"x\n\n"}"#),
            ("a: |\n  é\nb: 1", r#"{"a":"é\n","b":1}"#),
            ("a: !!str 5\nb: !!int \"5\"\nc: !custom 5", r#"{"a":"5","b":5,"c":"5"}"#),
            ("", "null"),
            ("# only a comment\n", "null"),
            ("a: 1\n---\nb: [", r#"{"a":1}"#),
            ("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2", r#"{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}"#),
            (r#"{"a": "A\n", "b": [1, 2]}"#, r#"{"a":"A\n","b":[1,2]}"#),
            ("18446744073709551615", "18446744073709552000"),
        ];
        for (text, want) in cases {
            assert_eq!(json_of(text), want, "{text:?}");
        }
    }

    #[test]
    fn yaml_errors_match_upstream() {
        let cases = [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a: 1\nb: c: d", "yaml: line 2: mapping values are not allowed in this context"),
            ("a: *x", "yaml: unknown anchor 'x' referenced"),
            ("a: .inf", "json: unsupported value: +Inf"),
            ("? [a]\n: b", "yaml: invalid map key: a list or a map"),
            ("a: &x [*x]", "yaml: anchor value contains itself"),
        ];
        for (text, want) in cases {
            assert_eq!(decode(text.as_bytes()).expect_err(text).to_string(), want);
        }
        assert_eq!(decode("[".repeat(5000).as_bytes()), Err(Error::TooDeep));
        assert_eq!(decode("- ".repeat(5000).as_bytes()), Err(Error::TooDeep));
        assert_eq!(decode(b"\xff"), Err(Error::NotUtf8));
    }

    #[test]
    fn aliases_cannot_explode() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert_eq!(decode(text.as_bytes()), Err(Error::TooManyAliases));
    }

    #[test]
    fn aliases_cannot_escape_the_depth_limit() {
        let check = |count: usize, levels: usize, fits: bool| {
            let decoded = decode(chained_anchors(count, levels, "- *a\n").as_bytes());
            assert_eq!(decoded.is_ok(), fits, "{count} {levels}: {:?}", decoded.err());
            if let Ok(tree) = decoded {
                assert!(!tree.exceeds_depth(crate::tree::MAX_DEPTH));
            }
        };
        check(2, 100, true);
        check(2, 128, true);
        check(2, 129, false);
        check(3, 100, false);
        check(32, 250, false);
        assert_eq!(decode(chained_anchors(32, 250, "- {<<: *a}\n").as_bytes()), Err(Error::TooDeep));
        assert_eq!(decode(chained_anchors(32, 250, "- ? *a\n  : b\n").as_bytes()), Err(Error::TooDeep));
    }

    /// A list of anchors, each with `levels` brackets around the previous one, and an end that refers to the last.
    fn chained_anchors(count: usize, levels: usize, end: &str) -> String {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels));
        let mut text = format!("- &a0 {}\n", nested(""));
        for at in 1..count {
            text.push_str(&format!("- &a{at} {}\n", nested(&format!("*a{}", at - 1))));
        }
        text + &end.replace("*a", &format!("*a{}", count - 1))
    }

    #[test]
    fn reports_duplicates_and_unknown_fields_like_upstream() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dupy}\ndata:\n  a: \"1\"\n  a: \"2\"\nbogus: 1\n";
        let mut strict = Strict::default();
        let tree = decode_as(text.as_bytes(), type_of("", "v1", "ConfigMap"), &mut strict).expect("valid YAML");
        let want = ["yaml: unmarshal errors:\n  line 6: key \"a\" already set in map", "unknown field \"bogus\""];
        assert_eq!(strict.problems, want);
        assert_eq!(tree.str("data.a"), "2");
        assert!(tree.at("bogus").is_null());
    }

    #[test]
    fn duplicates_are_reported_on_the_line_of_the_value() {
        let cases = [
            ("a: 1\na: 2\n", 2),
            ("a: 1\na:\n  b: 1\n", 3),
            ("a: 1\na:\n\n- b\n", 4),
            ("a: 1\na:\n  2\n", 3),
            ("a: 1\na: |\n\n  text\n", 2),
            ("a: 1\na:\n\nb: 1\n", 2),
            ("a: 1\na: &x\n  b: 1\n", 2),
            ("x: &x {a: 1}\nb:\n  <<: *x\n  a: 2\n", 4),
        ];
        for (text, line) in cases {
            let mut strict = Strict::default();
            decode_as(text.as_bytes(), None, &mut strict).expect(text);
            let want = format!("yaml: unmarshal errors:\n  line {line}: key \"a\" already set in map");
            assert_eq!(strict.problems, [want], "{text:?}");
        }
    }
}
