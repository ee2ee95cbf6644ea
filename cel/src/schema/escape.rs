//! Names of properties as identifiers of CEL.

/// The words that cannot be identifiers.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Whether a word is reserved in CEL.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The identifier of a property: `foo-bar` is `foo__dash__bar`, `namespace` is `__namespace__`. None if the property
/// has characters that no identifier can express.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if let Some((plain, escaped)) = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            out.push_str(escaped);
            rest = &rest[plain.len()..];
        } else if first.is_ascii_alphanumeric() || first == '_' {
            out.push(first);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// The property of an identifier. None if it has an unknown escape.
pub fn unescape(identifier: &str) -> Option<String> {
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(at) = rest.find("__") {
        out.push_str(&rest[..at]);
        let Some(word) = escaped_word(&rest[at..]) else {
            out.push('_');
            rest = &rest[at + 1..];
            continue;
        };
        match ESCAPES.iter().find(|(_, escaped)| escaped[2..escaped.len() - 2] == *word) {
            Some((plain, _)) => out.push_str(plain),
            None if is_reserved(word) && word.len() + 4 == identifier.len() => out.push_str(word),
            None => return None,
        }
        rest = &rest[at + word.len() + 4..];
    }
    out.push_str(rest);
    Some(out)
}

/// The word between two pairs of underscores at the start.
fn escaped_word(text: &str) -> Option<&str> {
    let inner = &text[2..];
    let end = inner.find('_').filter(|end| *end > 0)?;
    inner[end..].starts_with("__").then(|| &inner[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_unescapes_names() {
        let names = [
            ("plain", "plain"),
            ("foo-bar", "foo__dash__bar"),
            ("foo.bar/baz", "foo__dot__bar__slash__baz"),
            ("a__b", "a__underscores__b"),
            ("_a", "_a"),
            ("namespace", "__namespace__"),
            ("x_y", "x_y"),
            ("int", "int"),
        ];
        for (name, identifier) in names {
            assert_eq!(escape(name).as_deref(), Some(identifier), "{name}");
            assert_eq!(unescape(identifier).as_deref(), Some(name), "{identifier}");
        }
        for name in ["", "1a", "a b", "é", "$x"] {
            assert_eq!(escape(name), None, "{name}");
        }
        for identifier in ["__nope__", "x__if__"] {
            assert_eq!(unescape(identifier), None, "{identifier}");
        }
    }
}
