//! The parser: recursive descent over the tokens, with upstream's limits. If it fails, [`super::recovery`] finds the
//! syntax errors.

use std::sync::Arc;

use super::ast::{Ast, Expr, ExprId, Literal, MapEntry, StructField};
use super::macros::{self, Macros};
use super::operators;
use super::source::{Issue, Issues, Source};
use super::token::{Kind, Token, tokenize};
use super::{literal, recovery};

/// The maximum nesting of rules of the grammar, and of nodes of the tree.
const MAX_DEPTH: usize = 250;
/// The maximum depth of the tree with what macros add, which bounds the stack of all that walks it.
const MAX_TREE_DEPTH: usize = 2 * MAX_DEPTH;
/// The maximum length of an expression in code points.
const MAX_LENGTH: usize = 100_000;

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Why parsing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Syntax,
    Recursion,
}

type Parsed = Result<ExprId, Stop>;

/// Parses an expression and expands its macros.
pub(crate) fn parse(text: &str, macros: Macros) -> Result<Ast, Issues> {
    let source = Source::new(text);
    let length = text.chars().count();
    if length > MAX_LENGTH {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        return Err(Issues::new(vec![source.error(None, message)]));
    }
    let (tokens, errors) = tokenize(&source, text);
    let mut parser = Parser::new(&source, &tokens, errors, macros);
    let parsed = parser.start();
    match parsed {
        Ok(root) => parser.ast.root = Some(root),
        Err(Stop::Recursion) => parser.report(None, format!("expression recursion limit exceeded: {MAX_DEPTH}")),
        Err(Stop::Syntax) => {
            let offset = parser.token().offset;
            parser.errors.extend(recovery::find_errors(&source, &tokens));
            if parser.errors.is_empty() {
                parser.report(Some(offset), "Syntax error");
            }
        }
    }
    parser.finish()
}

pub(super) struct Parser<'p> {
    source: &'p Source<'p>,
    tokens: &'p [Token<'p>],
    at: usize,
    pub(super) ast: Ast,
    /// How deeply upstream's visitor nests to reach the leaves below each node.
    depths: Vec<usize>,
    calculations: usize,
    errors: Vec<Issue>,
    macros: Macros,
}

impl<'p> Parser<'p> {
    fn new(source: &'p Source<'p>, tokens: &'p [Token<'p>], errors: Vec<Issue>, macros: Macros) -> Parser<'p> {
        let ast = Ast::default();
        Parser { source, tokens, at: 0, ast, depths: Vec::new(), calculations: 0, errors, macros }
    }

    fn finish(mut self) -> Result<Ast, Issues> {
        if self.ast.root.is_some_and(|root| self.depth(root) > MAX_DEPTH) || self.ast.depth() > MAX_TREE_DEPTH {
            self.report(None, "max recursion depth exceeded");
        }
        if self.ast.is_too_large() {
            self.report(None, "expression expands to too many nodes");
        }
        if self.errors.is_empty() { Ok(self.ast) } else { Err(Issues::new(self.errors)) }
    }

    pub(super) fn macros(&self) -> Macros {
        self.macros
    }

    pub(super) fn report(&mut self, offset: Option<u32>, message: impl Into<String>) {
        let error = self.source.error(offset, message);
        self.errors.push(error);
    }

    /// Reports an error and returns its placeholder node.
    fn fail(&mut self, offset: u32, message: impl Into<String>) -> ExprId {
        self.report(Some(offset), message);
        self.ast.push(Expr::Unspecified, offset)
    }

    fn depth(&self, id: ExprId) -> usize {
        self.depths.get(id.index()).copied().unwrap_or(0)
    }

    fn deepest(&self, ids: impl IntoIterator<Item = ExprId>) -> usize {
        ids.into_iter().map(|id| self.depth(id)).max().unwrap_or(0)
    }

    fn set_depth(&mut self, id: ExprId, depth: usize) -> ExprId {
        self.depths.resize(self.depths.len().max(id.index() + 1), 0);
        self.depths[id.index()] = depth;
        id
    }
}

/// Tokens.
impl<'p> Parser<'p> {
    fn token(&self) -> Token<'p> {
        self.tokens[self.at]
    }

    fn kind(&self) -> Kind {
        self.token().kind
    }

    fn peek(&self, ahead: usize) -> Kind {
        self.tokens.get(self.at + ahead).map_or(Kind::End, |token| token.kind)
    }

    fn advance(&mut self) -> Token<'p> {
        let token = self.token();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn accept(&mut self, kind: Kind) -> Option<Token<'p>> {
        (self.kind() == kind).then(|| self.advance())
    }

    /// The opening token of a list or map, and the comma of an empty one.
    fn open(&mut self, close: Kind) -> Token<'p> {
        let open = self.advance();
        if self.kind() == Kind::Comma && self.peek(1) == close {
            self.advance();
        }
        open
    }

    fn expect(&mut self, kind: Kind) -> Result<Token<'p>, Stop> {
        self.accept(kind).ok_or(Stop::Syntax)
    }
}

/// Operators.
impl Parser<'_> {
    fn start(&mut self) -> Parsed {
        let root = self.expression()?;
        self.expect(Kind::End)?;
        Ok(root)
    }

    fn expression(&mut self) -> Parsed {
        let condition = self.logical(Kind::Or)?;
        let Some(op) = self.accept(Kind::Question) else { return Ok(condition) };
        let yes = self.logical(Kind::Or)?;
        self.expect(Kind::Colon)?;
        let no = self.expression()?;
        Ok(self.nested_call(operators::CONDITIONAL, None, vec![condition, yes, no], op.offset))
    }

    /// A call that counts as a level of nesting.
    fn nested_call(&mut self, function: &str, target: Option<ExprId>, args: Vec<ExprId>, offset: u32) -> ExprId {
        let depth = 1 + self.deepest(args.iter().copied().chain(target));
        let id = self.call(function, target, args, offset);
        self.set_depth(id, depth)
    }

    fn call(&mut self, function: &str, target: Option<ExprId>, args: Vec<ExprId>, offset: u32) -> ExprId {
        if let Some(expanded) = macros::expand(self, function, target, &args, offset) {
            return expanded;
        }
        self.ast.push(Expr::Call { function: function.into(), target, args }, offset)
    }

    fn logical(&mut self, kind: Kind) -> Parsed {
        let operand = |parser: &mut Self| match kind {
            Kind::Or => parser.logical(Kind::And),
            _ => parser.relation(0),
        };
        let mut terms = vec![operand(self)?];
        let mut operators = Vec::new();
        while let Some(op) = self.accept(kind) {
            operators.push(op.offset);
            terms.push(operand(self)?);
        }
        let name = if kind == Kind::Or { operators::OR } else { operators::AND };
        Ok(self.balance(name, &terms, &operators))
    }

    /// A balanced tree of the terms, so that long chains do not nest deeply.
    fn balance(&mut self, name: &str, terms: &[ExprId], operators: &[u32]) -> ExprId {
        if operators.is_empty() {
            return terms[0];
        }
        let middle = operators.len() / 2;
        let left = self.balance(name, &terms[..=middle], &operators[..middle]);
        let right = self.balance(name, &terms[middle + 1..], &operators[middle + 1..]);
        let depth = self.deepest([left, right]);
        let call = Expr::Call { function: name.into(), target: None, args: vec![left, right] };
        let id = self.ast.push(call, operators[middle]);
        self.set_depth(id, depth)
    }

    fn relation(&mut self, precedence: u8) -> Parsed {
        let mut left = self.calculation(0)?;
        while precedence <= 1
            && let Some(name) = operators::relation(self.kind())
        {
            let op = self.advance();
            let right = self.relation(2)?;
            left = self.nested_call(name, None, vec![left, right], op.offset);
        }
        Ok(left)
    }

    fn calculation(&mut self, precedence: u8) -> Parsed {
        self.calculations += 1;
        if self.calculations > MAX_DEPTH {
            return Err(Stop::Recursion);
        }
        let mut left = self.unary()?;
        while let Some((name, own)) = operators::calculation(self.kind())
            && own >= precedence
        {
            let op = self.advance();
            let right = self.calculation(own + 1)?;
            left = self.nested_call(name, None, vec![left, right], op.offset);
        }
        self.calculations -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let sign = self.kind();
        let name = match sign {
            Kind::Exclamation => operators::NOT,
            Kind::Minus if !matches!(self.peek(1), Kind::Int | Kind::Float) => operators::NEGATE,
            _ => return self.member(),
        };
        let first = self.advance();
        let mut count = 1;
        while self.accept(sign).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let depth = self.depth(operand);
        let id = self.call(name, None, vec![operand], first.offset);
        Ok(self.set_depth(id, depth))
    }
}

/// Members.
impl Parser<'_> {
    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            operand = match self.kind() {
                Kind::Dot => self.dot(operand)?,
                Kind::LeftBracket => self.index(operand)?,
                _ => return Ok(operand),
            };
        }
    }

    fn dot(&mut self, operand: ExprId) -> Parsed {
        let dot = self.advance();
        let optional = self.accept(Kind::Question).is_some();
        let name = match self.kind() {
            Kind::Identifier | Kind::EscapedIdentifier => self.advance(),
            _ => return Err(Stop::Syntax),
        };
        if !optional && name.kind == Kind::Identifier && self.kind() == Kind::LeftParen {
            return self.member_call(operand, name.text);
        }
        let field = name.text.trim_matches('`');
        let depth = 1 + self.depth(operand);
        let expr = if optional {
            let literal = self.ast.push(Expr::Literal(Literal::String(field.into())), name.offset);
            let function = Arc::from(operators::OPTIONAL_SELECT);
            Expr::Call { function, target: None, args: vec![operand, literal] }
        } else {
            Expr::Select { operand, field: field.into(), test: false }
        };
        let id = self.ast.push(expr, dot.offset);
        Ok(self.set_depth(id, depth))
    }

    fn member_call(&mut self, target: ExprId, name: &str) -> Parsed {
        let open = self.advance();
        let args = self.arguments()?;
        Ok(self.nested_call(name, Some(target), args, open.offset))
    }

    fn arguments(&mut self) -> Result<Vec<ExprId>, Stop> {
        let mut args = Vec::new();
        if self.accept(Kind::RightParen).is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.expect(Kind::RightParen)?;
        Ok(args)
    }

    fn index(&mut self, operand: ExprId) -> Parsed {
        let open = self.advance();
        let optional = self.accept(Kind::Question).is_some();
        let index = self.expression()?;
        self.expect(Kind::RightBracket)?;
        let name = if optional { operators::OPTIONAL_INDEX } else { operators::INDEX };
        Ok(self.nested_call(name, None, vec![operand, index], open.offset))
    }
}

/// Primaries.
impl Parser<'_> {
    fn primary(&mut self) -> Parsed {
        match self.kind() {
            Kind::Dot | Kind::Identifier => self.name(),
            Kind::LeftParen => {
                self.advance();
                let inner = self.expression()?;
                self.expect(Kind::RightParen)?;
                Ok(inner)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// An identifier, a call of a global function, or a message.
    fn name(&mut self) -> Parsed {
        if let Some(length) = self.message_name() {
            return self.message(length);
        }
        let start = self.token().offset;
        let dot = if self.accept(Kind::Dot).is_some() { "." } else { "" };
        let ident = self.expect(Kind::Identifier)?;
        let name = format!("{dot}{}", ident.text);
        let reserved = RESERVED.contains(&ident.text);
        if let Some(open) = self.accept(Kind::LeftParen) {
            let args = self.arguments()?;
            let depth = self.deepest(args.iter().copied());
            if reserved {
                return Ok(self.fail(start, format!("reserved identifier: {}", ident.text)));
            }
            let id = self.call(&name, None, args, open.offset);
            return Ok(self.set_depth(id, depth));
        }
        if reserved {
            return Ok(self.fail(start, format!("reserved identifier: {}", ident.text)));
        }
        Ok(self.ast.push(Expr::Ident(name.into()), ident.offset))
    }

    /// The number of tokens of a message's name, if one begins here.
    fn message_name(&self) -> Option<usize> {
        let mut length = usize::from(self.kind() == Kind::Dot);
        loop {
            if self.peek(length) != Kind::Identifier {
                return None;
            }
            match self.peek(length + 1) {
                Kind::LeftBrace => return Some(length + 1),
                Kind::Dot => length += 2,
                _ => return None,
            }
        }
    }

    fn message(&mut self, length: usize) -> Parsed {
        let name: String = (0..length).map(|_| self.advance().text).collect();
        let open = self.open(Kind::RightBrace);
        let mut fields = Vec::new();
        while self.kind() != Kind::RightBrace {
            fields.push(self.field()?);
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.expect(Kind::RightBrace)?;
        let depth = self.deepest(fields.iter().map(|field| field.value));
        let id = self.ast.push(Expr::Struct { name: name.into(), fields }, open.offset);
        Ok(self.set_depth(id, depth))
    }

    fn field(&mut self) -> Result<StructField, Stop> {
        let optional = self.accept(Kind::Question).is_some();
        let name = match self.kind() {
            Kind::Identifier | Kind::EscapedIdentifier => self.advance().text,
            _ => return Err(Stop::Syntax),
        };
        let offset = self.expect(Kind::Colon)?.offset;
        let value = self.expression()?;
        Ok(StructField { name: name.trim_matches('`').into(), value, optional, offset })
    }

    fn list(&mut self) -> Parsed {
        let open = self.open(Kind::RightBracket);
        let (mut elements, mut optionals) = (Vec::new(), Vec::new());
        while self.kind() != Kind::RightBracket {
            if self.accept(Kind::Question).is_some() {
                optionals.push(elements.len());
            }
            elements.push(self.expression()?);
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.expect(Kind::RightBracket)?;
        let depth = self.deepest(elements.iter().copied());
        let id = self.ast.push(Expr::List { elements, optionals }, open.offset);
        Ok(self.set_depth(id, depth))
    }

    fn map(&mut self) -> Parsed {
        let open = self.open(Kind::RightBrace);
        let mut entries = Vec::new();
        while self.kind() != Kind::RightBrace {
            let optional = self.accept(Kind::Question).is_some();
            let key = self.expression()?;
            self.expect(Kind::Colon)?;
            let value = self.expression()?;
            entries.push(MapEntry { key, value, optional });
            if self.accept(Kind::Comma).is_none() {
                break;
            }
        }
        self.expect(Kind::RightBrace)?;
        let depth = self.deepest(entries.iter().flat_map(|entry| [entry.key, entry.value]));
        let id = self.ast.push(Expr::Map(entries), open.offset);
        Ok(self.set_depth(id, depth))
    }
}

/// Literals.
impl Parser<'_> {
    fn literal(&mut self) -> Parsed {
        let offset = self.token().offset;
        let negative = self.accept(Kind::Minus).is_some();
        match literal::read(negative, self.advance()) {
            None => Err(Stop::Syntax),
            Some(Ok(literal)) => Ok(self.ast.push(Expr::Literal(literal), offset)),
            Some(Err(error)) => Ok(self.fail(offset, error.to_string())),
        }
    }
}
