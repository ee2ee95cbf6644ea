//! Pipelines: their variables, commands and operands.

use api::quote::go_quote;

use super::{Parsed, Parser};
use crate::functions;
use crate::lex::{Token, TokenKind};
use crate::number;
use crate::quote::unquote;
use crate::syntax::{Command, Operand, Pipe, Term};

impl Parser<'_> {
    pub(super) fn parse_pipe(&mut self, context: &str, end: TokenKind) -> Parsed<Pipe> {
        let first = self.next_non_space();
        let mut pipe =
            Pipe { position: first.position, is_assignment: false, variables: Vec::new(), commands: Vec::new() };
        self.back(first);
        self.parse_declarations(&mut pipe, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                kind if starts_operand(kind) => {
                    self.back(token);
                    pipe.commands.push(self.parse_command()?);
                }
                _ => return self.unexpected(&token, context),
            }
        }
        self.check_pipe(&pipe, context)?;
        Ok(pipe)
    }

    /// `$x :=`, `$x =` or `$i, $x :=`.
    fn parse_declarations(&mut self, pipe: &mut Pipe, context: &str) -> Parsed<()> {
        while self.peek_non_space() == TokenKind::Variable {
            let variable = self.next();
            let after = self.next();
            let is_space = after.kind == TokenKind::Space;
            let next = if is_space { self.next_non_space() } else { after.clone() };
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    pipe.is_assignment = next.kind == TokenKind::Assign;
                    self.declare(pipe, variable.text);
                    return Ok(());
                }
                TokenKind::Char if next.text == "," => {
                    self.declare(pipe, variable.text);
                    self.check_second_variable(pipe, context)?;
                }
                _ => {
                    self.back(next);
                    if is_space {
                        self.back(after);
                    }
                    self.back(variable);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, pipe: &mut Pipe, name: String) {
        pipe.variables.push(name.clone());
        self.variables.push(name);
    }

    fn check_second_variable(&mut self, pipe: &Pipe, context: &str) -> Parsed<()> {
        if context != "range" || pipe.variables.len() >= 2 {
            return self.error(format!("too many declarations in {context}"));
        }
        match self.peek_non_space() {
            TokenKind::Variable | TokenKind::RightDelimiter | TokenKind::RightParen => Ok(()),
            _ => self.error("range can only initialize variables"),
        }
    }

    fn check_pipe(&self, pipe: &Pipe, context: &str) -> Parsed<()> {
        if pipe.commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        for (at, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = command.operands.first().map(|operand| &operand.term);
            if matches!(first, Some(Term::Bool(_) | Term::Dot | Term::Nil | Term::Number { .. } | Term::Text { .. })) {
                return self.error(format!("non executable command in pipeline stage {}", at + 1));
            }
        }
        Ok(())
    }

    fn parse_command(&mut self) -> Parsed<Command> {
        let first = self.next_non_space();
        let mut command = Command { position: first.position, operands: Vec::new() };
        self.back(first);
        loop {
            self.peek_non_space();
            if let Some(operand) = self.parse_operand()? {
                command.operands.push(operand);
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => continue,
                TokenKind::RightDelimiter | TokenKind::RightParen => self.back(token),
                TokenKind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if command.operands.is_empty() { self.error("empty command") } else { Ok(command) }
    }

    /// A term and the fields after it.
    fn parse_operand(&mut self) -> Parsed<Option<Operand>> {
        let Some(operand) = self.parse_term()? else { return Ok(None) };
        let token = self.next();
        let position = token.position;
        self.back(token);
        if self.peek() != TokenKind::Field {
            return Ok(Some(operand));
        }
        let mut fields = Vec::new();
        while self.peek() == TokenKind::Field {
            fields.push(self.next().text[1..].to_string());
        }
        let term = match operand.term {
            Term::Field(mut names) => {
                names.append(&mut fields);
                Term::Field(names)
            }
            Term::Variable(mut names) => {
                names.append(&mut fields);
                Term::Variable(names)
            }
            Term::Pipe(_) | Term::Function(_) | Term::Chain { .. } => {
                Term::Chain { operand: Box::new(operand), fields }
            }
            _ => return self.error(format!("unexpected . after term {}", go_quote(&operand.to_string()))),
        };
        Ok(Some(Operand { position, term }))
    }

    fn parse_term(&mut self) -> Parsed<Option<Operand>> {
        let token = self.next_non_space();
        let term = match token.kind {
            TokenKind::Identifier if functions::find(&token.text).is_some() => Term::Function(token.text),
            TokenKind::Identifier => return self.error(format!("function {} not defined", go_quote(&token.text))),
            TokenKind::Dot => Term::Dot,
            TokenKind::Nil => Term::Nil,
            TokenKind::Variable if self.variables.contains(&token.text) => Term::Variable(vec![token.text]),
            TokenKind::Variable => return self.error(format!("undefined variable {}", go_quote(&token.text))),
            TokenKind::Field => Term::Field(vec![token.text[1..].to_string()]),
            TokenKind::Bool => Term::Bool(token.text == "true"),
            TokenKind::Number | TokenKind::Complex | TokenKind::CharConstant => self.parse_number(&token)?,
            TokenKind::String | TokenKind::RawString => match unquote(&token.text) {
                Some(value) => Term::Text { quoted: token.text, value },
                None => return self.error("invalid syntax"),
            },
            TokenKind::LeftParen => {
                self.enter()?;
                let pipe = self.parse_pipe("parenthesized pipeline", TokenKind::RightParen)?;
                self.depth -= 1;
                return Ok(Some(Operand { position: pipe.position, term: Term::Pipe(Box::new(pipe)) }));
            }
            _ => {
                self.back(token);
                return Ok(None);
            }
        };
        Ok(Some(Operand { position: token.position, term }))
    }

    fn parse_number(&self, token: &Token) -> Parsed<Term> {
        let value = match token.kind {
            TokenKind::CharConstant => number::parse_char(&token.text),
            TokenKind::Complex => number::parse_complex(&token.text),
            _ => number::parse(&token.text),
        };
        match value {
            Ok(value) => Ok(Term::Number { text: token.text.clone(), value }),
            Err(error) => self.error(error),
        }
    }
}

fn starts_operand(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Bool
            | TokenKind::CharConstant
            | TokenKind::Complex
            | TokenKind::Dot
            | TokenKind::Field
            | TokenKind::Identifier
            | TokenKind::Number
            | TokenKind::Nil
            | TokenKind::RawString
            | TokenKind::String
            | TokenKind::Variable
            | TokenKind::LeftParen
    )
}
