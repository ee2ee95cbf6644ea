//! kubectl's JSONPath: templates such as `{range .items[*]}{.metadata.name}{"\n"}{end}`, evaluated on object trees.
//! Error texts and the format of values are those of `k8s.io/client-go/util/jsonpath`. The crate does no I/O.

#![warn(unreachable_pub)]

mod compare;
mod error;
mod eval;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod parse;
mod print;
mod quote;
mod relaxed;

pub use error::EvalError;
pub use parse::ParseError;
pub use print::{print_json, print_text, text_of};
pub use relaxed::{RelaxedError, relaxed};

use std::borrow::Cow;

use api::Tree;

/// A value that an expression found: a part of the object, or a literal of the template.
pub type Found<'a> = Cow<'a, Tree>;

/// The number of values that one evaluation may visit.
const MAX_STEPS: usize = 100_000_000;

/// A compiled template.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    nodes: Vec<parse::Node>,
    allow_missing_keys: bool,
    max_steps: usize,
}

impl JsonPath {
    /// Parses a template: text with expressions in braces.
    pub fn parse(text: &str) -> Result<JsonPath, ParseError> {
        Ok(JsonPath { nodes: parse::parse(text)?, allow_missing_keys: false, max_steps: MAX_STEPS })
    }

    /// Whether a missing field is an empty result instead of an error.
    pub fn allow_missing_keys(mut self, allow: bool) -> JsonPath {
        self.allow_missing_keys = allow;
        self
    }

    /// Limits the number of values that one evaluation visits.
    pub fn max_steps(mut self, limit: usize) -> JsonPath {
        self.max_steps = limit;
        self
    }

    /// The results of each text and each expression, in order; those in ranges once for each iteration.
    pub fn find<'a>(&'a self, tree: &'a Tree) -> Result<Vec<Vec<Found<'a>>>, EvalError> {
        eval::find(self, tree)
    }

    /// The output of the template: values separated by spaces, maps and lists as compact JSON.
    pub fn execute(&self, tree: &Tree) -> Result<String, EvalError> {
        Ok(self.find(tree)?.iter().map(|found| print_text(found)).collect())
    }

    /// The output of the template as `jsonpath-as-json` has it: an indented JSON list of each result.
    pub fn execute_json(&self, tree: &Tree) -> Result<String, EvalError> {
        Ok(self.find(tree)?.iter().map(|found| print_json(found)).collect())
    }
}
