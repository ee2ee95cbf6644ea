//! The relaxed form of a path, as `--sort-by`, `wait --for=jsonpath` and custom columns take it.

/// A path that is not in one of the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{{name1.name2}}' or '{{.name1.name2}}'"
)]
pub struct RelaxedError;

/// The template of a path: `x.y`, `.x.y`, `{x.y}` and `{.x.y}` are all `{.x.y}`. An empty path stays empty.
pub fn relaxed(path: &str) -> Result<String, RelaxedError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let inside = match path.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or(RelaxedError)?,
        None => path,
    };
    let field = match inside.strip_prefix('.') {
        Some("") => inside,
        Some(field) => field,
        None => inside,
    };
    if field.is_empty() || field.contains(['{', '}']) {
        return Err(RelaxedError);
    }
    Ok(format!("{{.{field}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_relaxed_paths() {
        for path in ["a.b", ".a.b", "{a.b}", "{.a.b}"] {
            assert_eq!(relaxed(path).as_deref(), Ok("{.a.b}"), "{path}");
        }
        assert_eq!(relaxed("").as_deref(), Ok(""));
        assert_eq!(relaxed(".").as_deref(), Ok("{..}"));
        for path in ["{a", "a}", "{a}{b}", "{}", "{a}b"] {
            assert_eq!(relaxed(path), Err(RelaxedError), "{path}");
        }
    }
}
