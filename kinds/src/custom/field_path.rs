//! Paths of rules and selectable fields: `.spec.replicas`, `.spec['replicas']`.

use api::Tree;

/// A path that does not lead to a field.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("array notation is not allowed")]
    Array,
    #[error("unexpected end of JSON path")]
    End,
    #[error("does not refer to a valid field")]
    Unknown,
    #[error("expected single quoted string but got {0}")]
    Quote(String),
    #[error("expected ] but got {0}")]
    Bracket(String),
    #[error("expected [ or . but got: {0}")]
    Delimiter(String),
}

/// The schema at the end of a path.
pub(crate) struct ResolvedField<'a> {
    /// The path as errors print it.
    pub(crate) text: String,
    pub(crate) root: String,
    pub(crate) schema: &'a Tree,
}

/// Follows a path in a schema.
pub(crate) fn resolve<'a>(text: &str, schema: &'a Tree, arrays: bool) -> Result<ResolvedField<'a>, PathError> {
    let mut found = ResolvedField { text: String::new(), root: String::new(), schema };
    let mut rest = text;
    while !rest.is_empty() {
        let name;
        (name, rest) = next_name(rest, arrays)?;
        let is_named = matches!(found.schema.get("properties"), Some(Tree::Map(_)));
        found.schema = match is_named {
            true => found.schema.at("properties").get(&name),
            false => found.schema.get("additionalProperties").filter(|inner| matches!(inner, Tree::Map(_))),
        }
        .ok_or(PathError::Unknown)?;
        if found.root.is_empty() {
            found.root.clone_from(&name);
        }
        found.text.push_str(&match (is_named, found.text.is_empty()) {
            (true, true) => name,
            (true, false) => format!(".{name}"),
            (false, _) => format!("[{name}]"),
        });
    }
    Ok(found)
}

fn next_name(text: &str, arrays: bool) -> Result<(String, &str), PathError> {
    let word = |text: &str| text[..text.find(['.', '[', ']']).unwrap_or(text.len())].to_string();
    if let Some(rest) = text.strip_prefix('.') {
        if rest.is_empty() {
            return Err(PathError::End);
        }
        let name = word(rest);
        let behind = &rest[name.len()..];
        return Ok((name, behind));
    }
    let Some(rest) = text.strip_prefix('[') else { return Err(PathError::Delimiter(word(text))) };
    if !arrays {
        return Err(PathError::Array);
    }
    let inner = rest.strip_prefix('\'').ok_or_else(|| PathError::Quote(word(rest)))?;
    let end = quote_end(inner).ok_or_else(|| PathError::Quote(rest.to_string()))?;
    let behind = &inner[end + 1..];
    let behind = behind.strip_prefix(']').ok_or_else(|| PathError::Bracket(word(behind)))?;
    Ok((inner[..end].replace("\\'", "'").replace("\\\\", "\\"), behind))
}

fn quote_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == '\'' && !escaped;
        escaped = c == '\\' && !escaped;
        is_end.then_some(at)
    })
}
