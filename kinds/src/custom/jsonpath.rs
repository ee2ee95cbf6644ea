//! kubectl's JSONPath, as far as columns of custom resources use it: fields, indexes, slices, wildcards, unions,
//! filters and recursive descent.

use std::cmp::Ordering;

use api::{Str, Tree, json};

/// A path that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unclosed action")]
    Unclosed,
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("invalid array index {0}")]
    Index(String),
    #[error("invalid multiple recursive descent")]
    Recursion,
    #[error("cannot parse number {0}")]
    Number(String),
    #[error("the path is nested too deeply")]
    TooDeep,
}

/// A path that does not fit its value, such as an index of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvalError;

/// Filters in filters beyond this are rejected.
const MAX_DEPTH: usize = 8;
/// A recursive descent into a large object ends here.
const MAX_RESULTS: usize = 10_000;

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Field(Str),
    Wildcard,
    /// Start, end, step. The end of a single index is derived from its start.
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: Option<i64>,
        is_index: bool,
    },
    Union(Vec<Vec<Node>>),
    Filter {
        left: Vec<Node>,
        operator: Option<Str>,
        right: Vec<Node>,
    },
    Recursive,
    Literal(Tree),
    Identifier,
}

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    nodes: Vec<Node>,
}

impl JsonPath {
    /// Parses a path such as `.spec.containers[0].name`.
    pub fn parse(text: &str) -> Result<JsonPath, ParseError> {
        Ok(JsonPath { nodes: parse_nodes(text, 0)? })
    }

    /// The values at the path; a missing key has none.
    pub fn find<'a>(&'a self, tree: &'a Tree) -> Result<Vec<&'a Tree>, EvalError> {
        eval(&self.nodes, vec![tree])
    }
}

/// A value as text: compound values as JSON.
pub fn text_of(value: &Tree) -> String {
    match value {
        Tree::Str(text) => text.to_string(),
        Tree::Float(number) => go_float(*number),
        other => String::from_utf8_lossy(&json::encode(other, None)).into_owned(),
    }
}

/// Go prints large floats with an exponent.
fn go_float(number: f64) -> String {
    if number != 0.0 && !(1e-4..1e21).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    number.to_string()
}

struct Parser<'a> {
    text: &'a str,
    depth: usize,
}

fn parse_nodes(text: &str, depth: usize) -> Result<Vec<Node>, ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::TooDeep);
    }
    let mut parser = Parser { text, depth };
    let mut nodes = Vec::new();
    while !parser.text.is_empty() {
        parser.parse_node(&mut nodes)?;
    }
    Ok(nodes)
}

impl<'a> Parser<'a> {
    fn parse_node(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let Some(first) = self.text.chars().next() else { return Err(ParseError::Unclosed) };
        if self.text.starts_with("[?(") {
            nodes.push(self.parse_filter()?);
        } else if self.text.starts_with("..") {
            self.parse_recursive(nodes)?;
        } else {
            match first {
                '\n' | '\r' => return Err(ParseError::Unclosed),
                ' ' | '@' | '$' => self.text = &self.text[1..],
                '[' => self.parse_array(nodes)?,
                '"' | '\'' => nodes.push(self.parse_quoted(first)?),
                '.' => {
                    self.text = &self.text[1..];
                    nodes.push(self.parse_field());
                }
                '+' | '-' | '0'..='9' => nodes.push(self.parse_number()?),
                c if c == '_' || c.is_alphanumeric() => nodes.push(self.parse_identifier()),
                c => return Err(ParseError::Character(c)),
            }
        }
        Ok(())
    }

    /// The text up to a terminator that is not escaped.
    fn take_word(&mut self) -> &'a str {
        let mut escaped = false;
        let end = self.text.find(|c: char| {
            let is_end = !escaped && (c.is_whitespace() || ".,[]$@{}".contains(c));
            escaped = !escaped && c == '\\';
            is_end
        });
        let (word, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest;
        word
    }

    fn parse_field(&mut self) -> Node {
        match self.take_word() {
            "*" => Node::Wildcard,
            word => Node::Field(Str::from(word.replace('\\', ""))),
        }
    }

    fn parse_identifier(&mut self) -> Node {
        match self.take_word() {
            "true" => Node::Literal(Tree::Bool(true)),
            "false" => Node::Literal(Tree::Bool(false)),
            _ => Node::Identifier,
        }
    }

    fn parse_recursive(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        if nodes.last() == Some(&Node::Recursive) {
            return Err(ParseError::Recursion);
        }
        self.text = &self.text[2..];
        nodes.push(Node::Recursive);
        if self.text.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
            nodes.push(self.parse_field());
        }
        Ok(())
    }

    fn parse_number(&mut self) -> Result<Node, ParseError> {
        let is_sign = |c: char| c == '+' || c == '-';
        let end = self.text[1..].find(|c: char| c != '.' && !c.is_ascii_digit()).map_or(self.text.len(), |end| end + 1);
        let (number, rest) = self.text.split_at(end);
        self.text = rest;
        if let Ok(value) = number.trim_start_matches('+').parse::<i64>() {
            return Ok(Node::Literal(Tree::Int(value)));
        }
        match number.trim_start_matches('+').parse::<f64>() {
            Ok(value) if !number.ends_with(is_sign) => Ok(Node::Literal(Tree::Float(value))),
            _ => Err(ParseError::Number(number.to_string())),
        }
    }

    fn parse_quoted(&mut self, quote: char) -> Result<Node, ParseError> {
        let mut out = String::new();
        let mut chars = self.text[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.text = &self.text[at + 2..];
                    return Ok(Node::Literal(Tree::from(out)));
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, c)) => out.push(c),
                    None => break,
                },
                '\n' => break,
                c => out.push(c),
            }
        }
        Err(ParseError::Unterminated("quoted string"))
    }

    fn parse_array(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let end = self.text.find(']').ok_or(ParseError::Unterminated("array"))?;
        let inside = &self.text[1..end];
        self.text = &self.text[end + 1..];
        if inside.contains(',') {
            let parts = inside.split(',').map(|part| parse_nodes(&format!("[{}]", part.trim()), self.depth + 1));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        if let Some(key) = inside.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
            nodes.extend(parse_nodes(&format!(".{key}"), self.depth + 1)?);
            return Ok(());
        }
        nodes.push(parse_slice(if inside == "*" { ":" } else { inside })?);
        Ok(())
    }

    fn parse_filter(&mut self) -> Result<Node, ParseError> {
        let body = &self.text[3..];
        let end = filter_end(body).ok_or(ParseError::Unterminated("filter"))?;
        let (inside, rest) = (&body[..end], &body[end + 1..]);
        self.text = rest.strip_prefix(']').ok_or(ParseError::Unterminated("filter"))?;
        let is_operator = |c: char| "!<>=".contains(c);
        let depth = self.depth + 1;
        let Some(start) = inside.find(is_operator).filter(|start| *start > 0) else {
            return Ok(Node::Filter { left: parse_nodes(inside, depth)?, operator: None, right: Vec::new() });
        };
        let after = &inside[start..];
        let length = after.find(|c| !is_operator(c)).ok_or(ParseError::Unterminated("filter"))?;
        Ok(Node::Filter {
            left: parse_nodes(&inside[..start], depth)?,
            operator: Some(Str::new(&after[..length])),
            right: parse_nodes(&after[length..], depth)?,
        })
    }
}

/// The closing bracket of a filter, outside of quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open && !escaped => quote = None,
            (')', None) => return Some(at),
            ('\n', _) => return None,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn parse_slice(text: &str) -> Result<Node, ParseError> {
    let invalid = || ParseError::Index(text.to_string());
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return Err(invalid());
    }
    let part = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(number) => number.parse::<i64>().map(Some).map_err(|_| invalid()),
    };
    Ok(Node::Slice { start: part(0)?, end: part(1)?, step: part(2)?, is_index: parts.len() == 1 })
}

fn eval<'a>(nodes: &'a [Node], input: Vec<&'a Tree>) -> Result<Vec<&'a Tree>, EvalError> {
    nodes.iter().try_fold(input, |input, node| eval_node(node, input))
}

fn eval_node<'a>(node: &'a Node, input: Vec<&'a Tree>) -> Result<Vec<&'a Tree>, EvalError> {
    let mut out = Vec::new();
    match node {
        Node::Field(name) => out.extend(input.into_iter().filter_map(|value| value.get(name))),
        Node::Wildcard => input.into_iter().for_each(|value| out.extend(children(value))),
        Node::Slice { start, end, step, is_index } => {
            for value in input.into_iter().filter(|value| !value.is_null()) {
                let items = value.as_list().ok_or(EvalError)?;
                out.extend(slice(items, (*start, *end, *step), *is_index)?);
            }
        }
        Node::Union(parts) => {
            for part in parts {
                out.extend(eval(part, input.clone())?);
            }
        }
        Node::Filter { left, operator, right } => {
            for value in input {
                for item in value.as_list().ok_or(EvalError)? {
                    if passes(item, left, operator.as_deref(), right)? {
                        out.push(item);
                    }
                }
            }
        }
        Node::Recursive => input.into_iter().for_each(|value| descend(value, &mut out)),
        Node::Literal(tree) => out.extend(input.iter().map(|_| tree)),
        Node::Identifier => return Err(EvalError),
    }
    out.truncate(MAX_RESULTS);
    Ok(out)
}

fn children(value: &Tree) -> Vec<&Tree> {
    match value {
        Tree::Map(map) => map.iter().map(|(_, value)| value).collect(),
        Tree::List(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

/// The value and everything below it that has children.
fn descend<'a>(value: &'a Tree, out: &mut Vec<&'a Tree>) {
    let children = children(value);
    if children.is_empty() || out.len() >= MAX_RESULTS {
        return;
    }
    out.push(value);
    children.into_iter().for_each(|child| descend(child, out));
}

type Bounds = (Option<i64>, Option<i64>, Option<i64>);

fn slice(items: &[Tree], (start, end, step): Bounds, is_index: bool) -> Result<Vec<&Tree>, EvalError> {
    let length = items.len() as i64;
    let from_end = |at: i64| if at < 0 { at + length } else { at };
    let start = from_end(start.unwrap_or(0));
    let end = if is_index { start + 1 } else { from_end(end.unwrap_or(length)) };
    if start == end {
        return Ok(Vec::new());
    }
    if start < 0 || start >= length || end < 0 || end > length || start > end {
        return Err(EvalError);
    }
    let step = match step {
        None => 1,
        Some(step) => usize::try_from(step).ok().filter(|step| *step > 0).ok_or(EvalError)?,
    };
    Ok(items[start as usize..end as usize].iter().step_by(step).collect())
}

fn passes(item: &Tree, left: &[Node], operator: Option<&str>, right: &[Node]) -> Result<bool, EvalError> {
    let found = eval(left, vec![item]);
    let Some(operator) = operator else { return Ok(found.is_ok_and(|found| !found.is_empty())) };
    let one = |found: Vec<&Tree>| match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some((*only).clone())),
        _ => Err(EvalError),
    };
    let (Some(left), Some(right)) = (one(found?)?, one(eval(right, vec![item])?)?) else { return Ok(false) };
    compare(&left, operator, &right)
}

fn compare(left: &Tree, operator: &str, right: &Tree) -> Result<bool, EvalError> {
    let order = match (left, right) {
        (Tree::Str(left), Tree::Str(right)) => left.cmp(right),
        (Tree::Bool(left), Tree::Bool(right)) => left.cmp(right),
        _ => {
            let (Some(left), Some(right)) = (super::schema::number(left), super::schema::number(right)) else {
                return Err(EvalError);
            };
            left.partial_cmp(&right).ok_or(EvalError)?
        }
    };
    Ok(match operator {
        "==" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        ">=" => order != Ordering::Less,
        _ => return Err(EvalError),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, want: &[&str]) {
        let tree = json::decode(
            br#"{"spec":{"a.b":"dot","n":3,"list":[{"t":"x","v":1},{"t":"y","v":2},{"t":"z","v":3}]},"m":{"k":"v"}}"#,
        )
        .expect("valid JSON");
        let path = JsonPath::parse(path).expect(path);
        let found: Vec<String> = path.find(&tree).expect("it fits").into_iter().map(text_of).collect();
        assert_eq!(found, want, "{path:?}");
    }

    #[test]
    fn finds_values() {
        check(".spec.n", &["3"]);
        check(".spec.missing.deeper", &[]);
        check(r".spec.a\.b", &["dot"]);
        check(".m['k']", &["v"]);
        check(".spec.list[0].t", &["x"]);
        check(".spec.list[-1].t", &["z"]);
        check(".spec.list[*].v", &["1", "2", "3"]);
        check(".spec.list[0:2].v", &["1", "2"]);
        check(".spec.list[::2].v", &["1", "3"]);
        check(".spec.list[0,2].t", &["x", "z"]);
        check(r#".spec.list[?(@.t=="y")].v"#, &["2"]);
        check(".spec.list[?(@.v>1)].t", &["y", "z"]);
        check(".spec.list[?(@.w)].t", &[]);
        check("..t", &["x", "y", "z"]);
        check(".m", &[r#"{"k":"v"}"#]);
    }

    #[test]
    fn rejects_what_is_no_path() {
        for path in [".a[", ".a[x]", "[?(@.a", "....a", "'a", "#"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        let tree = api::tree! { "a" => api::list![1] };
        for path in [".a[3]", ".a.b[0].c[?(@.x==1)]"] {
            let path = JsonPath::parse(path).expect("a path");
            assert!(path.find(&tree).is_err() || path.find(&tree).is_ok_and(|found| found.is_empty()));
        }
    }
}
