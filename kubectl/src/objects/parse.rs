//! Documents of YAML and JSON, with the place of an error.

use api::{Tree, json, yaml};

/// The documents of a file: their text and the line at which each begins.
pub(crate) fn documents(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    if is_json(bytes) {
        return json_documents(bytes);
    }
    let mut all = Vec::new();
    let (mut start, mut first_line) = (0, 1);
    let mut offset = 0;
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        if line.starts_with(b"---") && line[3..].first().is_none_or(|byte| byte.is_ascii_whitespace()) {
            all.push((first_line, &bytes[start..offset]));
            // Text may follow the marker on its line.
            start = offset + 3;
            first_line = number;
        }
        offset += line.len();
    }
    all.push((first_line, &bytes[start..]));
    all.retain(|(_, text)| !is_blank(text));
    all
}

/// Whether there are only comments and spaces.
fn is_blank(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').all(|line| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#") || line == b"---" || line == b"..."
    })
}

/// Whether the text begins like JSON.
pub(super) fn is_json(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{")
}

/// JSON values that follow each other.
fn json_documents(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let (mut all, mut depth, mut start) = (Vec::new(), 0_usize, None);
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in bytes.iter().enumerate() {
        if in_string {
            (in_string, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                start.get_or_insert(at);
                depth += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0
                    && let Some(first) = start.take()
                {
                    all.push((line_of(bytes, first), &bytes[first..=at]));
                }
            }
            _ if start.is_none() && !byte.is_ascii_whitespace() => start = Some(at),
            _ => {}
        }
    }
    if let Some(first) = start {
        all.push((line_of(bytes, first), &bytes[first..]));
    }
    all
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// Why a document is invalid, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("{error} (line {line}, column {column})")]
    Json { error: json::Error, line: usize, column: usize },
    #[error("error converting YAML to JSON: {error}{place}")]
    Yaml { error: yaml::Error, place: String },
}

/// One document; `first_line` is where it begins in its file.
pub(crate) fn parse_document(text: &[u8], first_line: usize) -> Result<Tree, DocumentError> {
    if is_json(text) {
        // A flow mapping of YAML may look like JSON.
        return json::decode(text).or_else(|error| yaml::decode(text).map_err(|_| at_json(text, first_line, error)));
    }
    yaml::decode(text).map_err(|error| {
        let place = match error.place() {
            Some((line, column)) => format!(" (line {}, column {column} of the file)", first_line + line - 1),
            None if first_line > 1 => format!(" (in the document at line {first_line} of the file)"),
            None => String::new(),
        };
        DocumentError::Yaml { error, place }
    })
}

/// The place of a syntax error: the end of the longest prefix whose error is only that it ends.
fn at_json(text: &[u8], first_line: usize, error: json::Error) -> DocumentError {
    let ends = |length: usize| {
        matches!(json::decode(&text[..length]), Err(json::Error::UnexpectedEnd) | Ok(_) | Err(json::Error::NotUtf8))
    };
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if ends(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let before = &text[..low];
    let line = first_line + before.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
    DocumentError::Json { error, line, column }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_documents() {
        let check = |text: &str, want: &[(usize, &str)]| {
            let got: Vec<(usize, String)> = documents(text.as_bytes())
                .iter()
                .map(|(line, text)| (*line, String::from_utf8_lossy(text).trim().to_string()))
                .collect();
            let want: Vec<(usize, String)> = want.iter().map(|(line, text)| (*line, text.to_string())).collect();
            assert_eq!(got, want, "{text:?}");
        };
        check("a: 1\n---\nb: 2\n", &[(1, "a: 1"), (2, "b: 2")]);
        check("---\n# c\n---\na: 1\n---\n", &[(3, "a: 1")]);
        check("--- {a: 1}\n", &[(1, "{a: 1}")]);
        check("a: |\n  ---\n  x\n", &[(1, "a: |\n  ---\n  x")]);
        check("{\"a\":1}\n{\"b\":\"}\"}", &[(1, "{\"a\":1}"), (2, "{\"b\":\"}\"}")]);
        check("", &[]);
    }

    #[test]
    fn errors_name_their_place() {
        let check = |text: &str, line: usize, want: &str| {
            assert_eq!(parse_document(text.as_bytes(), line).expect_err(text).to_string(), want);
        };
        check(
            "a: 1\nb: c: d",
            1,
            "error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context (line 2, column 5 of the file)",
        );
        check(
            "a: 1\nb: c: d",
            10,
            "error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context (line 11, column 5 of the file)",
        );
        check("{\"a\": 1,\n  \"b\" 2}", 1, "invalid character '2' after object key (line 2, column 7)");
    }
}
