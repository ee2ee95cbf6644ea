//! JSONPath for outputs, sorting, columns and conditions.

use api::Tree;
use jsonpath::JsonPath as Template;

use crate::error::{Error, Result};

/// A compiled template.
#[derive(Debug)]
pub(crate) struct JsonPath {
    template: Template,
    text: String,
}

impl JsonPath {
    /// Parses a template such as `{.items[*].metadata.name}`.
    pub(crate) fn parse(text: &str) -> Result<JsonPath> {
        let template =
            Template::parse(text).map_err(|error| Error::new(format!("error parsing jsonpath {text}, {error}")))?;
        Ok(JsonPath { template: template.allow_missing_keys(true), text: text.to_string() })
    }

    /// Parses a relaxed path: `.a.b`, `a.b` and `{.a.b}` are the same.
    pub(crate) fn relaxed(text: &str) -> Result<JsonPath> {
        let full = jsonpath::relaxed(text).map_err(|error| Error::new(error.to_string()))?;
        let template = Template::parse(&full).map_err(|error| Error::new(error.to_string()))?;
        Ok(JsonPath { template: template.allow_missing_keys(true), text: full })
    }

    /// A missing field is an error.
    pub(crate) fn strict(mut self) -> JsonPath {
        self.template = self.template.allow_missing_keys(false);
        self
    }

    /// The output for an object.
    pub(crate) fn execute(&self, tree: &Tree) -> Result<String> {
        self.template.execute(tree).map_err(|error| self.failure(&error.to_string(), tree))
    }

    /// The output for an object as JSON.
    pub(crate) fn execute_json(&self, tree: &Tree) -> Result<String> {
        self.template.execute_json(tree).map_err(|error| self.failure(&error.to_string(), tree))
    }

    /// The values that the first expression finds.
    pub(crate) fn values(&self, tree: &Tree) -> Result<Vec<Tree>> {
        let found = self.template.find(tree).map_err(|error| Error::new(error.to_string()))?;
        Ok(found.into_iter().flatten().map(|value| value.into_owned()).collect())
    }

    fn failure(&self, error: &str, tree: &Tree) -> Error {
        Error::new(format!(
            "error executing jsonpath {}: Error executing template: {error}. Printing more information for debugging the \
             template:\n\ttemplate was:\n\t\t{}\n\tobject given to jsonpath engine was:\n\t\t{}\n\n\n",
            api::field::go_quote(&self.text),
            self.text,
            gotemplate::go_syntax(tree)
        ))
    }
}
