//! `$(NAME)` in commands, arguments, values and paths.

/// Expands known variables and keeps unknown references; `$$` is a dollar sign.
pub(crate) fn expand(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = match (after.starts_with('$'), name) {
            (true, _) => {
                out.push('$');
                &after[1..]
            }
            (false, Some((name, behind))) => {
                out.push_str(&value(name).unwrap_or_else(|| format!("$({name})")));
                behind
            }
            (false, None) => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_names() {
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(B)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("a$", "a$"),
            ("$()", "$()"),
            ("é$(A)$(B)é", "é1$(B)é"),
        ];
        for (text, wanted) in cases {
            assert_eq!(expand(text, |name| (name == "A").then(|| "1".to_string())), wanted, "{text}");
        }
    }
}
