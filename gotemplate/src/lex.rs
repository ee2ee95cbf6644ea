//! The tokens of a template.

use api::quote::go_quote;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Error,
    Eof,
    Text,
    LeftDelimiter,
    RightDelimiter,
    Space,
    Assign,
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Char,
    CharConstant,
    Number,
    Complex,
    String,
    RawString,
    Bool,
    Field,
    Variable,
    Identifier,
    Dot,
    Nil,
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
}

#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) position: usize,
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Token {
    fn is_keyword(&self) -> bool {
        keyword(&self.text) == Some(self.kind)
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            TokenKind::Eof => f.write_str("EOF"),
            TokenKind::Error => f.write_str(&self.text),
            _ if self.is_keyword() => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                write!(f, "{}...", go_quote(&self.text.chars().take(10).collect::<String>()))
            }
            _ => f.write_str(&go_quote(&self.text)),
        }
    }
}

fn keyword(word: &str) -> Option<TokenKind> {
    Some(match word {
        "." => TokenKind::Dot,
        "block" => TokenKind::Block,
        "break" => TokenKind::Break,
        "continue" => TokenKind::Continue,
        "define" => TokenKind::Define,
        "else" => TokenKind::Else,
        "end" => TokenKind::End,
        "if" => TokenKind::If,
        "nil" => TokenKind::Nil,
        "range" => TokenKind::Range,
        "template" => TokenKind::Template,
        "with" => TokenKind::With,
        _ => return None,
    })
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

pub(crate) struct Lexer<'a> {
    input: &'a str,
    position: usize,
    /// Where the next token begins, and its line.
    start: usize,
    start_line: usize,
    in_action: bool,
    parens: usize,
    is_failed: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(input: &'a str) -> Lexer<'a> {
        Lexer { input, position: 0, start: 0, start_line: 1, in_action: false, parens: 0, is_failed: false }
    }

    /// The next token. Every token after an error is the end of the input.
    pub(crate) fn next_token(&mut self) -> Token {
        if self.is_failed {
            return Token { kind: TokenKind::Eof, position: 0, line: self.start_line, text: "EOF".to_string() };
        }
        loop {
            let token = if self.in_action { self.lex_action() } else { self.lex_text() };
            if let Some(token) = token {
                return token;
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.input[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    fn ignore(&mut self) {
        self.start_line += self.input[self.start..self.position].matches('\n').count();
        self.start = self.position;
    }

    fn emit(&mut self, kind: TokenKind) -> Option<Token> {
        let text = self.input[self.start..self.position].to_string();
        let token = Token { kind, position: self.start, line: self.start_line, text };
        self.ignore();
        Some(token)
    }

    fn fail(&mut self, message: impl Into<String>) -> Option<Token> {
        self.is_failed = true;
        Some(Token { kind: TokenKind::Error, position: self.start, line: self.start_line, text: message.into() })
    }

    fn lex_text(&mut self) -> Option<Token> {
        let Some(length) = self.rest().find("{{") else {
            self.position = self.input.len();
            return self.emit(if self.position > self.start { TokenKind::Text } else { TokenKind::Eof });
        };
        if length == 0 {
            return self.lex_left_delimiter();
        }
        let text = &self.rest()[..length];
        let is_trimmed = starts_with_trim_marker(&self.rest()[length + 2..]);
        let kept = if is_trimmed { text.trim_end_matches(SPACES).len() } else { length };
        self.position += kept;
        let token = self.emit(TokenKind::Text);
        self.position += length - kept;
        self.ignore();
        token.filter(|_| kept > 0)
    }

    fn lex_left_delimiter(&mut self) -> Option<Token> {
        self.position += 2;
        let marker = if starts_with_trim_marker(self.rest()) { 2 } else { 0 };
        if self.rest()[marker..].starts_with("/*") {
            self.position += marker;
            self.ignore();
            return self.lex_comment();
        }
        let token = self.emit(TokenKind::LeftDelimiter);
        self.in_action = true;
        self.position += marker;
        self.ignore();
        self.parens = 0;
        token
    }

    fn lex_comment(&mut self) -> Option<Token> {
        let Some(length) = self.rest()[2..].find("*/") else { return self.fail("unclosed comment") };
        self.position += length + 4;
        let Some(is_trimmed) = self.right_delimiter() else {
            return self.fail("comment ends before closing delimiter");
        };
        self.skip_right_delimiter(is_trimmed);
        self.ignore();
        None
    }

    /// Whether a right delimiter is next, and whether it trims.
    fn right_delimiter(&self) -> Option<bool> {
        let rest = self.rest();
        let is_trimmed = rest.starts_with(SPACES) && rest[1..].starts_with("-}}");
        (is_trimmed || rest.starts_with("}}")).then_some(is_trimmed)
    }

    fn skip_right_delimiter(&mut self, is_trimmed: bool) {
        self.position += if is_trimmed { 4 } else { 2 };
        if is_trimmed {
            let rest = self.rest();
            self.position += rest.len() - rest.trim_start_matches(SPACES).len();
        }
    }

    fn lex_right_delimiter(&mut self, is_trimmed: bool) -> Option<Token> {
        if is_trimmed {
            self.position += 2;
            self.ignore();
        }
        self.position += 2;
        let token = self.emit(TokenKind::RightDelimiter);
        if is_trimmed {
            let rest = self.rest();
            self.position += rest.len() - rest.trim_start_matches(SPACES).len();
            self.ignore();
        }
        self.in_action = false;
        token
    }

    fn lex_action(&mut self) -> Option<Token> {
        if let Some(is_trimmed) = self.right_delimiter() {
            if self.parens > 0 {
                return self.fail("unclosed left paren");
            }
            return self.lex_right_delimiter(is_trimmed);
        }
        let Some(first) = self.peek() else { return self.fail("unclosed action") };
        if SPACES.contains(&first) {
            return self.lex_space();
        }
        if self.starts_number(first) {
            return self.lex_number();
        }
        if is_alphanumeric(first) {
            return self.lex_identifier();
        }
        self.advance();
        self.lex_symbol(first)
    }

    fn starts_number(&self, first: char) -> bool {
        match first {
            '+' | '-' | '0'..='9' => true,
            '.' => self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) || self.rest().len() == 1,
            _ => false,
        }
    }

    fn lex_symbol(&mut self, symbol: char) -> Option<Token> {
        match symbol {
            '=' => self.emit(TokenKind::Assign),
            ':' if self.peek() == Some('=') => {
                self.advance();
                self.emit(TokenKind::Declare)
            }
            ':' => self.fail("expected :="),
            '|' => self.emit(TokenKind::Pipe),
            '"' => self.lex_quoted('"', TokenKind::String, "unterminated quoted string"),
            '\'' => self.lex_quoted('\'', TokenKind::CharConstant, "unterminated character constant"),
            '`' => self.lex_raw_quoted(),
            '$' => self.lex_name(TokenKind::Variable),
            '.' => self.lex_name(TokenKind::Field),
            '(' => {
                self.parens += 1;
                self.emit(TokenKind::LeftParen)
            }
            ')' if self.parens == 0 => self.fail("unexpected right paren"),
            ')' => {
                self.parens -= 1;
                self.emit(TokenKind::RightParen)
            }
            ' '..='~' => self.emit(TokenKind::Char),
            c => self.fail(format!("unrecognized character in action: {}", unicode(c))),
        }
    }

    /// A run of spaces. The last one may belong to a delimiter that trims.
    fn lex_space(&mut self) -> Option<Token> {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start_matches(SPACES).len();
        self.position += length;
        if rest[length..].starts_with("-}}") {
            self.position -= 1;
            if length == 1 {
                return if self.parens > 0 { self.fail("unclosed left paren") } else { self.lex_right_delimiter(true) };
            }
        }
        self.emit(TokenKind::Space)
    }

    fn take_word(&mut self) {
        let rest = self.rest();
        self.position += rest.find(|c| !is_alphanumeric(c)).unwrap_or(rest.len());
    }

    /// Identifiers, fields and variables end at a space or a symbol that may follow them.
    fn check_terminator(&mut self) -> Option<Token> {
        match self.peek() {
            None => None,
            Some(_) if self.rest().starts_with("}}") => None,
            Some(c) if SPACES.contains(&c) || matches!(c, '.' | ',' | '|' | ':' | ')' | '(') => None,
            Some(c) => self.fail(format!("bad character {}", unicode(c))),
        }
    }

    fn lex_identifier(&mut self) -> Option<Token> {
        self.take_word();
        if let Some(error) = self.check_terminator() {
            return Some(error);
        }
        match &self.input[self.start..self.position] {
            "true" | "false" => self.emit(TokenKind::Bool),
            word => self.emit(keyword(word).unwrap_or(TokenKind::Identifier)),
        }
    }

    /// A field or a variable whose first character has been read.
    fn lex_name(&mut self, kind: TokenKind) -> Option<Token> {
        let length = self.position;
        self.take_word();
        if let Some(error) = self.check_terminator() {
            return Some(error);
        }
        let is_dot = self.position == length && kind == TokenKind::Field;
        self.emit(if is_dot { TokenKind::Dot } else { kind })
    }

    fn lex_quoted(&mut self, quote: char, kind: TokenKind, unterminated: &str) -> Option<Token> {
        loop {
            match self.advance() {
                Some('\\') if self.advance().is_some_and(|c| c != '\n') => {}
                None | Some('\n' | '\\') => return self.fail(unterminated),
                Some(c) if c == quote => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn lex_raw_quoted(&mut self) -> Option<Token> {
        let Some(length) = self.rest().find('`') else { return self.fail("unterminated raw quoted string") };
        self.position += length + 1;
        self.emit(TokenKind::RawString)
    }

    fn lex_number(&mut self) -> Option<Token> {
        if !self.scan_number() {
            return self.fail_number();
        }
        if !matches!(self.peek(), Some('+' | '-')) {
            return self.emit(TokenKind::Number);
        }
        if !self.scan_number() || !self.input[..self.position].ends_with('i') {
            return self.fail_number();
        }
        self.emit(TokenKind::Complex)
    }

    fn fail_number(&mut self) -> Option<Token> {
        let text = go_quote(&self.input[self.start..self.position]);
        self.fail(format!("bad number syntax: {text}"))
    }

    fn accept(&mut self, valid: &str) -> bool {
        let accepts = self.peek().is_some_and(|c| valid.contains(c));
        if accepts {
            self.advance();
        }
        accepts
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        let mut exponent = "eE";
        if self.accept("0") {
            if self.accept("xX") {
                (digits, exponent) = ("0123456789abcdefABCDEF_", "pP");
            } else if self.accept("oO") {
                (digits, exponent) = ("01234567_", "");
            } else if self.accept("bB") {
                (digits, exponent) = ("01_", "");
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.advance();
            return false;
        }
        true
    }
}

fn starts_with_trim_marker(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Go's `%#U`.
fn unicode(c: char) -> String {
    let code = format!("U+{:04X}", u32::from(c));
    let is_printable = !go_quote(c.encode_utf8(&mut [0; 4])).starts_with("\"\\") || matches!(c, '"' | '\\');
    if is_printable { format!("{code} '{c}'") } else { code }
}
