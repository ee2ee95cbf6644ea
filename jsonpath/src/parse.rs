//! Templates to nodes.

use api::{Str, Tree};

use crate::quote::unquote;

/// A template that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unclosed action")]
    UnclosedAction,
    #[error("unrecognized character in action: U+{:04X} '{}'", u32::from(*.0), .0)]
    UnrecognizedCharacter(char),
    #[error("unterminated array")]
    UnterminatedArray,
    #[error("unterminated filter")]
    UnterminatedFilter,
    #[error("unclosed array expect ]")]
    UnclosedFilter,
    #[error("unterminated quoted string")]
    UnterminatedString,
    #[error("unquote string {0} error invalid syntax")]
    InvalidString(String),
    #[error("invalid array index {0}")]
    InvalidIndex(String),
    #[error("array index {0} is not a number")]
    IndexNotANumber(String),
    #[error("invalid multiple recursive descent")]
    MultipleRecursiveDescent,
    #[error("cannot parse number {0}")]
    InvalidNumber(String),
    #[error("the expression is nested too deeply")]
    TooDeep,
}

/// Expressions in expressions beyond this are rejected.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    List(Vec<Node>),
    /// Text and numbers.
    Literal(Tree),
    /// A number or a boolean has as many results as there are values.
    Constant(Tree),
    Field(Str),
    Slice(Slice),
    Filter {
        left: Vec<Node>,
        /// None tests whether the left side exists.
        operator: Option<Str>,
        right: Vec<Node>,
    },
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    Identifier(Str),
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Slice {
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) step: Option<i64>,
    /// The end of an index is derived from its start.
    pub(crate) is_index: bool,
}

pub(crate) fn parse(text: &str) -> Result<Vec<Node>, ParseError> {
    parse_at(text, 0)
}

fn parse_at(text: &str, depth: usize) -> Result<Vec<Node>, ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::TooDeep);
    }
    let mut nodes = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        if start > 0 {
            nodes.push(Node::Literal(Tree::from(&rest[..start])));
        }
        let mut parser = Parser { text: &rest[start + 1..], depth };
        nodes.push(Node::List(parser.parse_action()?));
        rest = parser.text;
    }
    if !rest.is_empty() {
        nodes.push(Node::Literal(Tree::from(rest)));
    }
    Ok(nodes)
}

/// The nodes of one expression without its braces.
fn parse_expression(text: &str, depth: usize) -> Result<Vec<Node>, ParseError> {
    match parse_at(&format!("{{{text}}}"), depth + 1)?.into_iter().next() {
        Some(Node::List(nodes)) => Ok(nodes),
        _ => Ok(Vec::new()),
    }
}

struct Parser<'a> {
    text: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Everything up to the closing brace.
    fn parse_action(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        loop {
            if self.skip("}") {
                return Ok(nodes);
            } else if self.skip("[?(") {
                nodes.push(self.parse_filter()?);
            } else if self.skip("..") {
                self.parse_recursive(&mut nodes)?;
            } else {
                self.parse_element(&mut nodes)?;
            }
        }
    }

    fn skip(&mut self, prefix: &str) -> bool {
        let rest = self.text.strip_prefix(prefix);
        if let Some(rest) = rest {
            self.text = rest;
        }
        rest.is_some()
    }

    fn parse_element(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let first = self.text.chars().next().ok_or(ParseError::UnclosedAction)?;
        match first {
            '\n' | '\r' => return Err(ParseError::UnclosedAction),
            ' ' | '@' | '$' => self.text = &self.text[1..],
            '[' => self.parse_array(nodes)?,
            '"' | '\'' => nodes.push(self.parse_quoted(first)?),
            '.' => {
                self.text = &self.text[1..];
                nodes.push(self.parse_field());
            }
            c if c == '+' || c == '-' || is_digit(c) => nodes.push(self.parse_number()?),
            c if is_alphanumeric(c) => nodes.push(self.parse_identifier()),
            c => return Err(ParseError::UnrecognizedCharacter(c)),
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.text.split_at(length);
        self.text = rest;
        taken
    }

    fn parse_identifier(&mut self) -> Node {
        let end = self.text.find(is_terminator).unwrap_or(self.text.len());
        match self.take(end) {
            "true" => Node::Constant(Tree::Bool(true)),
            "false" => Node::Constant(Tree::Bool(false)),
            name => Node::Identifier(Str::new(name)),
        }
    }

    fn parse_recursive(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        if nodes.last() == Some(&Node::Recursive) {
            return Err(ParseError::MultipleRecursiveDescent);
        }
        nodes.push(Node::Recursive);
        if self.text.starts_with(is_alphanumeric) {
            nodes.push(self.parse_field());
        }
        Ok(())
    }

    fn parse_number(&mut self) -> Result<Node, ParseError> {
        let sign = usize::from(self.text.starts_with(['+', '-']));
        let end = self.text[sign..].find(|c| c != '.' && !is_digit(c)).map_or(self.text.len(), |end| sign + end);
        let number = self.take(end);
        if let Ok(value) = number.parse::<i64>() {
            return Ok(Node::Constant(Tree::Int(value)));
        }
        let value = number.parse::<f64>().ok().filter(|value| value.is_finite());
        value.map(|value| Node::Constant(Tree::Float(value))).ok_or_else(|| ParseError::InvalidNumber(number.into()))
    }

    fn parse_field(&mut self) -> Node {
        let mut escaped = false;
        let end = self.text.find(|c| {
            let is_end = !escaped && is_terminator(c);
            escaped = !escaped && c == '\\';
            is_end
        });
        match self.take(end.unwrap_or(self.text.len())) {
            "*" => Node::Wildcard,
            name => Node::Field(Str::from(name.replace('\\', ""))),
        }
    }

    fn parse_quoted(&mut self, quote: char) -> Result<Node, ParseError> {
        let bytes = self.text.as_bytes();
        let ends = |at: &usize| bytes[*at] == b'\n' || (bytes[*at] == quote as u8 && bytes[*at - 1] != b'\\');
        let end = (1..bytes.len()).find(ends).filter(|at| bytes[*at] != b'\n').ok_or(ParseError::UnterminatedString)?;
        let quoted = self.take(end + 1);
        let text = unquote(quoted).ok_or_else(|| ParseError::InvalidString(quoted.to_string()))?;
        Ok(Node::Literal(Tree::from(text)))
    }

    fn parse_array(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let end = self.text.find([']', '\n']).filter(|end| self.text.as_bytes()[*end] == b']');
        let inside = self.take(end.ok_or(ParseError::UnterminatedArray)? + 1);
        let inside = &inside[1..inside.len() - 1];
        if inside.contains(',') {
            let parts =
                inside.split(',').map(|part| parse_expression(&format!("[{}]", part.trim_matches(' ')), self.depth));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
        } else if let Some(key) = dictionary_key(inside) {
            nodes.extend(parse_expression(&format!(".{key}"), self.depth)?);
        } else {
            nodes.push(Node::Slice(parse_slice(if inside == "*" { ":" } else { inside })?));
        }
        Ok(())
    }

    fn parse_filter(&mut self) -> Result<Node, ParseError> {
        let end = filter_end(self.text).ok_or(ParseError::UnterminatedFilter)?;
        let inside = self.take(end + 1);
        let inside = &inside[..end];
        if !self.skip("]") {
            return Err(ParseError::UnclosedFilter);
        }
        let Some((left, operator, right)) = split_comparison(inside) else {
            let left = parse_expression(inside, self.depth)?;
            return Ok(Node::Filter { left, operator: None, right: Vec::new() });
        };
        Ok(Node::Filter {
            left: parse_expression(left, self.depth)?,
            operator: Some(Str::new(operator)),
            right: parse_expression(right, self.depth)?,
        })
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphabetic() || is_digit(c)
}

/// The key in `['key']`.
fn dictionary_key(text: &str) -> Option<&str> {
    let key = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (!key.contains('\'')).then_some(key)
}

/// The bracket that closes a filter. Only the first pair of quotes protects brackets.
fn filter_end(text: &str) -> Option<usize> {
    let (mut quote, mut is_closed) = (None, false);
    let mut before = '(';
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            '"' | '\'' => match quote {
                None => quote = Some(c),
                Some(open) => is_closed |= before != '\\' && c == open,
            },
            ')' if quote.is_some() == is_closed => return Some(at),
            _ => {}
        }
        before = c;
    }
    None
}

/// `left`, operator and `right` of a comparison; None without an operator.
fn split_comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let start = text.find(is_operator).filter(|start| *start > 0)?;
    let (left, rest) = text.split_at(start);
    let length = rest.find(|c| !is_operator(c)).unwrap_or(rest.len());
    // The right side has at least one character, even if that is part of the operator.
    let length = if length == rest.len() { length - 1 } else { length };
    let (operator, right) = rest.split_at(length);
    (!operator.is_empty()).then_some((left, operator, right))
}

fn parse_slice(text: &str) -> Result<Slice, ParseError> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(is_number) {
        return Err(ParseError::InvalidIndex(text.to_string()));
    }
    let part = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(number) => number.parse::<i64>().map(Some).map_err(|_| ParseError::IndexNotANumber(number.to_string())),
    };
    Ok(Slice { start: part(0)?, end: part(1)?, step: part(2)?, is_index: parts.len() == 1 })
}
