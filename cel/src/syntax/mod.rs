//! From text to a syntax tree: tokens, grammar, macros, and syntax errors with their positions.

pub(crate) mod ast;
mod literal;
mod macros;
pub(crate) mod operators;
mod parser;
mod recovery;
mod source;
mod token;

pub(crate) use macros::Macros;
pub(crate) use parser::parse;
pub(crate) use source::Source;
pub use source::{Issue, Issues};
