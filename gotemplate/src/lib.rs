//! Go templates (`text/template`) with kubectl's functions `exists` and `base64decode`, executed on object trees.
//! The output, and the error texts with their positions, are Go's. The crate does no I/O.

#![warn(unreachable_pub)]

mod compare;
mod error;
mod escape;
mod exec;
mod format;
mod functions;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod lex;
mod number;
mod parse;
mod quote;
mod syntax;
mod value;

pub use error::{ExecError, ParseError};
pub use format::{go_syntax, go_value};

use std::collections::BTreeMap;

use api::Tree;

/// What one execution may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Templates in templates, and blocks and pipelines in each other.
    pub depth: usize,
    /// Actions and evaluations.
    pub steps: usize,
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 250, steps: 100_000_000, output_bytes: 256 << 20 }
    }
}

/// A parsed template with the templates that it defines.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    text: String,
    roots: BTreeMap<String, syntax::List>,
    allow_missing_keys: bool,
    limits: Limits,
}

impl Template {
    /// Parses a template; kubectl's name for it is "output".
    pub fn parse(name: &str, text: &str) -> Result<Template, ParseError> {
        Ok(Template {
            name: name.to_string(),
            text: text.to_string(),
            roots: parse::parse(name, text)?,
            allow_missing_keys: true,
            limits: Limits::default(),
        })
    }

    /// Whether a missing key is `<no value>` instead of an error.
    pub fn allow_missing_keys(mut self, allow: bool) -> Template {
        self.allow_missing_keys = allow;
        self
    }

    /// Replaces the default limits.
    pub fn limits(mut self, limits: Limits) -> Template {
        self.limits = limits;
        self
    }

    /// Appends the output for an object. An error leaves what was written before it.
    pub fn execute(&self, object: &Tree, out: &mut Vec<u8>) -> Result<(), ExecError> {
        exec::execute(self, object, out)
    }
}
