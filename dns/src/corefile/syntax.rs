//! The structure of a Corefile: server blocks of directives, which may have lines in braces.

use super::lexer::Token;
use super::{CorefileError, Problem};

/// `KEYS { DIRECTIVES }`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub keys: Vec<Line>,
    pub directives: Vec<Directive>,
}

/// `NAME ARGUMENTS { LINES }`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub head: Line,
    pub lines: Vec<Line>,
}

/// The words of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub name: String,
    pub arguments: Vec<String>,
    pub line: usize,
}

fn error<T>(line: usize, why: &'static str) -> Result<T, CorefileError> {
    Err(CorefileError { line, problem: Problem::Syntax(why) })
}

struct Parser<'a> {
    tokens: &'a [Token],
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.first()
    }

    /// The words on the line of the first one, up to a brace.
    fn line(&mut self, first: &Token) -> Line {
        let mut arguments = Vec::new();
        while let Some(token) = self.peek().filter(|token| token.line == first.line && !token.is("{") && !token.is("}"))
        {
            arguments.push(token.text.clone());
            self.next();
        }
        Line { name: first.text.clone(), arguments, line: first.line }
    }

    /// The lines up to the closing brace.
    fn lines(&mut self, opened: usize) -> Result<Vec<Line>, CorefileError> {
        let mut lines = Vec::new();
        loop {
            match self.next() {
                None => return error(opened, "a brace is not closed"),
                Some(token) if token.is("}") => return Ok(lines),
                Some(token) if token.is("{") => return error(token.line, "a brace is not expected here"),
                Some(token) => lines.push(self.line(token)),
            }
        }
    }

    fn directive(&mut self, first: &Token) -> Result<Directive, CorefileError> {
        let head = self.line(first);
        let opens = self.peek().filter(|token| token.is("{") && token.line == head.line);
        let lines = match opens {
            Some(token) => {
                self.next();
                self.lines(token.line)?
            }
            None => Vec::new(),
        };
        Ok(Directive { head, lines })
    }

    fn block(&mut self, first: &Token) -> Result<Block, CorefileError> {
        let mut keys = vec![first];
        let opened = loop {
            match self.next() {
                None => return error(first.line, "a server block needs braces"),
                Some(token) if token.is("{") => break token.line,
                Some(token) if token.is("}") => return error(token.line, "a brace is not expected here"),
                Some(token) => keys.push(token),
            }
        };
        let key = |token: &&Token| Line { name: token.text.clone(), arguments: Vec::new(), line: token.line };
        let mut block = Block { keys: keys.iter().map(key).collect(), directives: Vec::new() };
        loop {
            match self.next() {
                None => return error(opened, "a brace is not closed"),
                Some(token) if token.is("}") => return Ok(block),
                Some(token) if token.is("{") => return error(token.line, "a brace is not expected here"),
                Some(token) => block.directives.push(self.directive(token)?),
            }
        }
    }
}

pub(super) fn parse(tokens: &[Token]) -> Result<Vec<Block>, CorefileError> {
    let mut parser = Parser { tokens };
    let mut blocks = Vec::new();
    while let Some(token) = parser.next() {
        if token.is("{") || token.is("}") {
            return error(token.line, "a brace is not expected here");
        }
        if token.text.starts_with('(') {
            return error(token.line, "snippets are not supported");
        }
        blocks.push(parser.block(token)?);
    }
    if blocks.is_empty() { error(1, "there is no server block") } else { Ok(blocks) }
}
