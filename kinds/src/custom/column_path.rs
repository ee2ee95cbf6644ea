//! Paths of printer columns and selectable fields: JSONPath expressions without braces.

use std::borrow::Cow;

use api::Tree;
use jsonpath::ParseError;

/// The values that a path may visit for one cell.
const MAX_STEPS: usize = 1_000_000;

/// A compiled path such as `.spec.containers[0].name`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnPath(jsonpath::JsonPath);

impl ColumnPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<ColumnPath, ParseError> {
        let path = jsonpath::JsonPath::parse(&format!("{{{text}}}"))?;
        Ok(ColumnPath(path.allow_missing_keys(true).max_steps(MAX_STEPS)))
    }

    /// The first value at the path; None if there is none, or if the path does not fit.
    pub fn first<'a>(&'a self, object: &'a Tree) -> Option<Cow<'a, Tree>> {
        self.0.find(object).ok()?.into_iter().next()?.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_value() {
        let object = api::tree! { "a" => api::list![api::tree! { "b" => 1 }, api::tree! { "b" => 2 }] };
        let first = |path: &str| ColumnPath::parse(path).expect(path).first(&object).map(Cow::into_owned);
        assert_eq!(first(".a[*].b"), Some(Tree::Int(1)));
        assert_eq!(first(".a[?(@.b==2)].b"), Some(Tree::Int(2)));
        assert_eq!(first(".missing"), None);
        assert_eq!(first(".a[7]"), None);
        assert!(ColumnPath::parse(".a[x]").is_err());
    }
}
