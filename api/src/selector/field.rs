//! Field selectors; the caller decides which fields a kind supports.

use std::fmt;

use super::{Error, join};
use crate::tree::Str;

/// `status.phase!=Running`: a field and the value that it must or must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// The path of the field.
    pub field: Str,
    /// The value to compare with.
    pub value: Str,
    /// Whether the value must be equal or must differ.
    pub equal: bool,
}

/// All terms must match. The caller decides which fields a kind supports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Matches all objects.
    pub fn everything() -> FieldSelector {
        FieldSelector::default()
    }

    /// Matches objects whose field has this value.
    pub fn one(field: &str, value: &str) -> FieldSelector {
        FieldSelector { terms: vec![FieldTerm { field: Str::new(field), value: Str::new(value), equal: true }] }
    }

    /// Parses the `fieldSelector` of a request.
    pub fn parse(text: &str) -> Result<FieldSelector, Error> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.map(|part| read_term(text, part)).collect::<Result<_, _>>().map(|terms| FieldSelector { terms })
    }

    /// The same selector with renamed fields.
    pub fn rename(self, name: impl Fn(&str) -> String) -> FieldSelector {
        let rename = |term: FieldTerm| FieldTerm { field: Str::from(name(&term.field)), ..term };
        FieldSelector { terms: self.terms.into_iter().map(rename).collect() }
    }

    /// The terms, all of which must match.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether it matches all objects.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// A missing field is empty.
    pub fn matches<'a>(&self, fields: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> bool {
        self.matches_with(|field| fields.clone().find(|(name, _)| *name == field).map_or("", |(_, value)| value))
    }

    /// Whether an object matches, by a lookup of its fields.
    pub fn matches_with<T: AsRef<str>>(&self, field: impl Fn(&str) -> T) -> bool {
        self.terms.iter().all(|term| (field(&term.field).as_ref() == term.value) == term.equal)
    }

    /// The only value that a field may have.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.equal { "=" } else { "!=" };
        write!(f, "{}{operator}{}", self.field, escape(&self.value))
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, &self.terms)
    }
}

/// A value with `\`, `,` and `=` escaped.
pub fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let cut = |c: char| {
        let cut = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        cut
    };
    text.split(cut).collect()
}

fn read_term(text: &str, part: &str) -> Result<FieldTerm, Error> {
    let unknown = || Error(format!("invalid selector: '{text}'; can't understand '{part}'"));
    let starts = |at: usize| part[at..].starts_with('=') || part[at..].starts_with("!=");
    let at = part.char_indices().map(|(at, _)| at).find(|at| starts(*at)).ok_or_else(unknown)?;
    let (field, rest) = part.split_at(at);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    };
    Ok(FieldTerm { field: Str::new(field), value: unescape(value)?, equal })
}

fn unescape(value: &str) -> Result<Str, Error> {
    let mut out = Str::default();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(Error(format!("invalid field selector: invalid escape sequence: {sequence}")));
                }
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(Error(format!("invalid field selector: unescaped character in value: {code}")));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors() {
        let fields = [("metadata.name", "a,b"), ("spec.nodeName", "")];
        let cases = [
            ("", true),
            (r"metadata.name=a\,b", true),
            (r"metadata.name!=a\,b", false),
            ("metadata.name==x", false),
            ("spec.nodeName=,status.phase!=Running", true),
        ];
        for (text, want) in cases {
            let selector = FieldSelector::parse(text).expect(text);
            assert_eq!(selector.matches(fields.into_iter()), want, "{text}");
            assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector), "{text}");
        }
        let bad = [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ];
        for (text, want) in bad {
            assert_eq!(FieldSelector::parse(text).expect_err(text).to_string(), want);
        }
    }
}
