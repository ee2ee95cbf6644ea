//! `$(NAME)` in commands, arguments and variables.

/// Replaces what is known; `$$` is a dollar, and what is not known stays as it is.
pub fn expand(text: &str, known: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            out.push_str(&known(name).unwrap_or_else(|| format!("$({name})")));
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_where_they_are_known() {
        let cases = [
            ("plain", "plain"),
            ("$(A)", "one"),
            ("a $(A) b $(A)", "a one b one"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$one"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("end$", "end$"),
        ];
        let known = |name: &str| (name == "A").then(|| "one".to_string());
        for (text, expected) in cases {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }
}
