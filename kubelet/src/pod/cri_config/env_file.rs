//! A file of variables that an init container writes for later containers: lines of `KEY='value'`. The syntax is a
//! subset of a shell's: values are in single quotes, without escapes, and may have several lines. Empty lines and lines
//! that begin with `#` are ignored.

/// A file that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source} at line {line}")]
pub(crate) struct ParseError {
    source: Syntax,
    line: usize,
}

/// A syntax error in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Syntax {
    #[error("invalid environment variable format")]
    NoName,
    #[error("whitespace before '=' is not allowed")]
    Whitespace,
    #[error("value must be enclosed in single quotes")]
    NoQuotes,
    #[error("unclosed single quote")]
    Unclosed,
    #[error("unexpected content after closing quote")]
    Trailing,
}

/// The first value of a key; None without the key. All lines before it have to be valid.
pub(crate) fn value(text: &str, key: &str) -> Result<Option<String>, ParseError> {
    let (mut rest, mut line) = (text, 1);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return Ok(None);
        }
        if rest.starts_with(['\n', '#']) {
            (rest, line) = (after_line(rest), line + 1);
            continue;
        }
        let (name, value, after) = assignment(rest).map_err(|source| ParseError { source, line })?;
        if name == key {
            return Ok(Some(value.to_string()));
        }
        line += value.matches('\n').count() + 1;
        rest = after;
    }
}

fn after_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, after)| after)
}

/// A name, its value, and the text after its line.
fn assignment(text: &str) -> Result<(&str, &str, &str), Syntax> {
    let line = text.lines().next().unwrap_or_default();
    let (name, _) = line.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(Syntax::NoName)?;
    if name.contains([' ', '\t']) {
        return Err(Syntax::Whitespace);
    }
    let quoted = text[name.len() + 1..].strip_prefix('\'').ok_or(Syntax::NoQuotes)?;
    let (value, after) = quoted.split_once('\'').ok_or(Syntax::Unclosed)?;
    let end = after.lines().next().unwrap_or_default();
    let comment = end.trim_start_matches([' ', '\t', '\r']);
    let is_comment = comment.starts_with('#') && comment.len() < end.len();
    if !comment.is_empty() && !is_comment {
        return Err(Syntax::Trailing);
    }
    Ok((name, value, after_line(after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_values_like_a_shell() {
        let text = "# first\n\n  A='a'\n\tB='two\n# lines'  # said\nC=''\nD='x=\"$Y\\'\nA='again'\n";
        let cases =
            [("A", Some("a")), ("B", Some("two\n# lines")), ("C", Some("")), ("D", Some("x=\"$Y\\")), ("E", None)];
        for (key, wanted) in cases {
            assert_eq!(value(text, key), Ok(wanted.map(str::to_string)), "{key}");
        }
        let refused = [
            ("A=a", "value must be enclosed in single quotes at line 1"),
            ("A=\"a\"", "value must be enclosed in single quotes at line 1"),
            ("A= 'a'", "value must be enclosed in single quotes at line 1"),
            ("A ='a'", "whitespace before '=' is not allowed at line 1"),
            ("X='1\n2'\nnothing\n", "invalid environment variable format at line 3"),
            ("='a'", "invalid environment variable format at line 1"),
            ("A='a''b'", "unexpected content after closing quote at line 1"),
            ("A='a'#b", "unexpected content after closing quote at line 1"),
            ("\nA='a", "unclosed single quote at line 2"),
        ];
        for (text, wanted) in refused {
            assert_eq!(value(text, "Z").map_err(|error| error.to_string()), Err(wanted.to_string()), "{text}");
        }
        assert_eq!(value("A='a'\nnothing", "A"), Ok(Some("a".to_string())), "what comes later is not looked at");
    }
}
