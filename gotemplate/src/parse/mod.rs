//! Tokens to syntax trees.

mod pipe;

use std::collections::BTreeMap;

use api::quote::go_quote;

use crate::error::ParseError;
use crate::lex::{Lexer, Token, TokenKind};
use crate::quote::unquote;
use crate::syntax::{Keyword, Kind, List, Node};

/// Blocks, definitions and parentheses in each other.
const MAX_DEPTH: usize = 60;

/// The templates of a text by name. The text itself has the name of the template.
pub(crate) fn parse(name: &str, text: &str) -> Result<BTreeMap<String, List>, ParseError> {
    let mut parser = Parser {
        name,
        lexer: Lexer::new(text),
        pending: Vec::new(),
        line: 1,
        action_line: 0,
        variables: vec!["$".to_string()],
        ranges: 0,
        depth: 0,
        roots: BTreeMap::new(),
    };
    let root = parser.parse_root()?;
    parser.add_root(name, root)?;
    parser.roots.entry(name.to_string()).or_default();
    Ok(parser.roots)
}

struct Parser<'a> {
    name: &'a str,
    lexer: Lexer<'a>,
    /// Tokens that were put back, the next one last.
    pending: Vec<Token>,
    /// The line of the last token that was read.
    line: usize,
    /// The line at which the current action began; 0 outside of actions.
    action_line: usize,
    variables: Vec<String>,
    ranges: usize,
    depth: usize,
    roots: BTreeMap<String, List>,
}

/// What ends a list.
enum End {
    End,
    /// `{{else}}`, or `{{else if` and `{{else with` up to the second keyword.
    Else(Option<TokenKind>),
}

impl End {
    fn name(&self) -> &'static str {
        match self {
            End::End => "{{end}}",
            End::Else(_) => "{{else}}",
        }
    }
}

enum Item {
    Node(Node),
    End(End),
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn error<T>(&self, message: impl ToString) -> Parsed<T> {
        Err(ParseError { name: self.name.to_string(), line: self.line, message: message.to_string() })
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> Parsed<T> {
        if token.kind != TokenKind::Error {
            return self.error(format!("unexpected {token} in {context}"));
        }
        if self.action_line == 0 || self.action_line == token.line {
            return self.error(token);
        }
        // Avoids "action in action".
        let action = if token.text.ends_with(" action") { "" } else { " in action" };
        self.error(format!("{token}{action} started at {}:{}", self.name, self.action_line))
    }

    fn next(&mut self) -> Token {
        self.pending.pop().unwrap_or_else(|| {
            let token = self.lexer.next_token();
            self.line = token.line;
            token
        })
    }

    fn back(&mut self, token: Token) {
        self.pending.push(token);
    }

    fn peek(&mut self) -> TokenKind {
        let token = self.next();
        let kind = token.kind;
        self.back(token);
        kind
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> TokenKind {
        let token = self.next_non_space();
        let kind = token.kind;
        self.back(token);
        kind
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Parsed<Token> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { self.error("max expression depth exceeded") } else { Ok(()) }
    }

    /// Only one definition of a name may have content.
    fn add_root(&mut self, name: &str, root: List) -> Parsed<()> {
        match self.roots.get(name) {
            Some(old) if !old.is_empty() => {
                if !root.is_empty() {
                    return self.error(format!("template: multiple definition of template {}", go_quote(name)));
                }
            }
            _ => drop(self.roots.insert(name.to_string(), root)),
        }
        Ok(())
    }

    fn parse_root(&mut self) -> Parsed<List> {
        let mut root = List::default();
        loop {
            match self.peek() {
                TokenKind::Eof => return Ok(root),
                TokenKind::LeftDelimiter => {
                    let delimiter = self.next();
                    let token = self.next_non_space();
                    if token.kind == TokenKind::Define {
                        self.parse_definition()?;
                        continue;
                    }
                    self.back(token);
                    self.back(delimiter);
                }
                _ => {}
            }
            match self.parse_item()? {
                Item::Node(node) => root.nodes.push(node),
                Item::End(end) => return self.error(format!("unexpected {}", end.name())),
            }
        }
    }

    fn parse_definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let token = self.next_non_space();
        let name = self.parse_template_name(&token, CONTEXT)?;
        self.expect(TokenKind::RightDelimiter, CONTEXT)?;
        let root = self.parse_inner_template(CONTEXT)?;
        self.add_root(&name, root)
    }

    /// A definition or a block has its own variables.
    fn parse_inner_template(&mut self, context: &str) -> Parsed<List> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_string()]);
        let ranges = std::mem::take(&mut self.ranges);
        let (root, end) = self.parse_list()?;
        (self.variables, self.ranges) = (variables, ranges);
        match end {
            End::End => Ok(root),
            end => self.error(format!("unexpected {} in {context}", end.name())),
        }
    }

    /// Nodes up to `{{end}}` or `{{else}}`.
    fn parse_list(&mut self) -> Parsed<(List, End)> {
        self.enter()?;
        let mut list = List::default();
        while self.peek_non_space() != TokenKind::Eof {
            match self.parse_item()? {
                Item::Node(node) => list.nodes.push(node),
                Item::End(end) => {
                    self.depth -= 1;
                    return Ok((list, end));
                }
            }
        }
        self.error("unexpected EOF")
    }

    fn parse_item(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(Node { position: token.position, kind: Kind::Text(token.text) })),
            TokenKind::LeftDelimiter => {
                self.action_line = token.line;
                let item = self.parse_action()?;
                self.action_line = 0;
                Ok(item)
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn parse_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::Else => return self.parse_else().map(Item::End),
            TokenKind::End => {
                self.expect(TokenKind::RightDelimiter, "end")?;
                return Ok(Item::End(End::End));
            }
            TokenKind::Block => self.parse_block()?,
            TokenKind::Break => self.parse_jump(token.position, Kind::Break, "{{break}}")?,
            TokenKind::Continue => self.parse_jump(token.position, Kind::Continue, "{{continue}}")?,
            TokenKind::If => self.parse_branch(Keyword::If)?,
            TokenKind::Range => self.parse_branch(Keyword::Range)?,
            TokenKind::With => self.parse_branch(Keyword::With)?,
            TokenKind::Template => self.parse_template()?,
            _ => {
                let position = token.position;
                self.back(token);
                let pipe = self.parse_pipe("command", TokenKind::RightDelimiter)?;
                Node { position, kind: Kind::Action(pipe) }
            }
        };
        Ok(Item::Node(node))
    }

    fn parse_else(&mut self) -> Parsed<End> {
        match self.peek_non_space() {
            kind @ (TokenKind::If | TokenKind::With) => Ok(End::Else(Some(kind))),
            _ => {
                self.expect(TokenKind::RightDelimiter, "else")?;
                Ok(End::Else(None))
            }
        }
    }

    fn parse_jump(&mut self, position: usize, kind: Kind, name: &str) -> Parsed<Node> {
        let token = self.next_non_space();
        if token.kind != TokenKind::RightDelimiter {
            return self.unexpected(&token, name);
        }
        if self.ranges == 0 {
            return self.error(format!("{name} outside {{{{range}}}}"));
        }
        Ok(Node { position, kind })
    }

    /// `if`, `with` or `range`, after its keyword.
    fn parse_branch(&mut self, keyword: Keyword) -> Parsed<Node> {
        self.enter()?;
        let variables = self.variables.len();
        let pipe = self.parse_pipe(keyword.name(), TokenKind::RightDelimiter)?;
        let is_range = usize::from(keyword == Keyword::Range);
        self.ranges += is_range;
        let (list, end) = self.parse_list()?;
        self.ranges -= is_range;
        let otherwise = match end {
            End::End => None,
            End::Else(next) => Some(self.parse_otherwise(keyword, next)?),
        };
        self.variables.truncate(variables);
        self.depth -= 1;
        Ok(Node { position: pipe.position, kind: Kind::Branch { keyword, pipe, list, otherwise } })
    }

    /// `{{else if}}` is an `if` inside of `{{else}}`, with the same `{{end}}`.
    fn parse_otherwise(&mut self, keyword: Keyword, next: Option<TokenKind>) -> Parsed<List> {
        let nested = match (keyword, next) {
            (Keyword::If, Some(TokenKind::If)) => Some(Keyword::If),
            (Keyword::With, Some(TokenKind::With)) => Some(Keyword::With),
            _ => None,
        };
        if let Some(nested) = nested {
            self.next_non_space();
            return Ok(List { nodes: vec![self.parse_branch(nested)?] });
        }
        match self.parse_list()? {
            (list, End::End) => Ok(list),
            (_, end) => self.error(format!("expected end; found {}", end.name())),
        }
    }

    fn parse_block(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.parse_template_name(&token, CONTEXT)?;
        let pipe = self.parse_pipe(CONTEXT, TokenKind::RightDelimiter)?;
        let root = self.parse_inner_template(CONTEXT)?;
        self.add_root(&name, root)?;
        Ok(Node { position: token.position, kind: Kind::Template { name, pipe: Some(pipe) } })
    }

    fn parse_template(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.parse_template_name(&token, CONTEXT)?;
        let next = self.next_non_space();
        let pipe = match next.kind {
            TokenKind::RightDelimiter => None,
            _ => {
                self.back(next);
                Some(self.parse_pipe(CONTEXT, TokenKind::RightDelimiter)?)
            }
        };
        Ok(Node { position: token.position, kind: Kind::Template { name, pipe } })
    }

    fn parse_template_name(&mut self, token: &Token, context: &str) -> Parsed<String> {
        if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
            return self.unexpected(token, context);
        }
        match unquote(&token.text) {
            Some(name) => Ok(String::from_utf8_lossy(&name).into_owned()),
            None => self.error("invalid syntax"),
        }
    }
}
