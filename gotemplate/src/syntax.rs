//! The syntax tree, and its source as Go prints it in errors.

use std::fmt;

use api::quote::go_quote;

use crate::number::Number;

#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The byte at which it begins.
    pub(crate) position: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Text(String),
    Action(Pipe),
    Branch { keyword: Keyword, pipe: Pipe, list: List, otherwise: Option<List> },
    Template { name: String, pipe: Option<Pipe> },
    Break,
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    If,
    With,
    Range,
}

impl Keyword {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Keyword::If => "if",
            Keyword::With => "with",
            Keyword::Range => "range",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    pub(crate) position: usize,
    /// `=` instead of `:=`.
    pub(crate) is_assignment: bool,
    pub(crate) variables: Vec<String>,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) position: usize,
    /// At least one.
    pub(crate) operands: Vec<Operand>,
}

#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(crate) position: usize,
    pub(crate) term: Term,
}

#[derive(Debug, Clone)]
pub(crate) enum Term {
    Dot,
    Nil,
    Bool(bool),
    Number {
        text: String,
        value: Number,
    },
    Text {
        quoted: String,
        value: Vec<u8>,
    },
    Function(String),
    Field(Vec<String>),
    /// The name with its dollar sign, and the fields after it.
    Variable(Vec<String>),
    Pipe(Box<Pipe>),
    Chain {
        operand: Box<Operand>,
        fields: Vec<String>,
    },
}

impl List {
    /// Nothing but space.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| matches!(&node.kind, Kind::Text(text) if text.trim().is_empty()))
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|node| write!(f, "{node}"))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Text(text) => f.write_str(text),
            Kind::Action(pipe) => write!(f, "{{{{{pipe}}}}}"),
            Kind::Branch { keyword, pipe, list, otherwise } => {
                write!(f, "{{{{{} {pipe}}}}}{list}", keyword.name())?;
                if let Some(otherwise) = otherwise {
                    write!(f, "{{{{else}}}}{otherwise}")?;
                }
                f.write_str("{{end}}")
            }
            Kind::Template { name, pipe } => {
                write!(f, "{{{{template {}", go_quote(name))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Kind::Break => f.write_str("{{break}}"),
            Kind::Continue => f.write_str("{{continue}}"),
        }
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.is_assignment { "=" } else { ":=" };
            write!(f, "{} {sign} ", self.variables.join(", "))?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            write!(f, "{}{command}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            write!(f, "{}{operand}", if at > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Dot => f.write_str("."),
            Term::Nil => f.write_str("nil"),
            Term::Bool(value) => write!(f, "{value}"),
            Term::Number { text, .. } => f.write_str(text),
            Term::Text { quoted, .. } => f.write_str(quoted),
            Term::Function(name) => f.write_str(name),
            Term::Field(fields) => fields.iter().try_for_each(|field| write!(f, ".{field}")),
            Term::Variable(names) => f.write_str(&names.join(".")),
            Term::Pipe(pipe) => write!(f, "({pipe})"),
            Term::Chain { operand, fields } => {
                write!(f, "{operand}")?;
                fields.iter().try_for_each(|field| write!(f, ".{field}"))
            }
        }
    }
}
