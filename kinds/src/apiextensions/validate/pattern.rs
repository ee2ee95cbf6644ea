//! Go's error messages for a regular expression that does not compile.

/// Go's text for the usual mistakes; others are reported in the words of our own parser.
pub(super) fn go_error(pattern: &str, own: &str) -> String {
    let why = match reason(pattern) {
        Some(why) => why,
        None => own.lines().last().unwrap_or(own).trim().to_string(),
    };
    format!("error parsing regexp: {why}")
}

fn reason(pattern: &str) -> Option<String> {
    for syntax in ["(?!", "(?=", "(?<!", "(?<="] {
        if pattern.contains(syntax) {
            let shown = if syntax.starts_with("(?<") { "(?<" } else { syntax };
            return Some(format!("invalid or unsupported Perl syntax: `{shown}`"));
        }
    }
    let mut depth = 0_i32;
    let mut class: Option<usize> = None;
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, class) {
            ('\\', _) if chars.next().is_none() => {
                return Some("trailing backslash at end of expression: ``".to_string());
            }
            ('[', None) => class = Some(at),
            (']', Some(start)) if at > start + 1 => class = None,
            ('(', None) => depth += 1,
            (')', None) if depth == 0 => return Some(format!("unexpected ): `{pattern}`")),
            (')', None) => depth -= 1,
            ('*' | '+' | '?', None) if at == 0 => {
                return Some(format!("missing argument to repetition operator: `{c}`"));
            }
            _ => {}
        }
    }
    if let Some(start) = class {
        return Some(format!("missing closing ]: `{}`", &pattern[start..]));
    }
    (depth > 0).then(|| format!("missing closing ): `{pattern}`"))
}
