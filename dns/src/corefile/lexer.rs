//! Tokens of a Corefile: words, separated by white space, with quotes, comments and environment variables.

use super::{CorefileError, Problem};

/// A Corefile is small; a ConfigMap has at most one MiB.
const MAX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub text: String,
    pub line: usize,
    /// A brace in quotes is no brace.
    pub is_quoted: bool,
}

impl Token {
    pub(super) fn is(&self, brace: &str) -> bool {
        !self.is_quoted && self.text == brace
    }
}

fn error(line: usize, why: &'static str) -> CorefileError {
    CorefileError { line, problem: Problem::Syntax(why) }
}

pub(super) fn lex(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Token>, CorefileError> {
    if text.len() > MAX_SIZE {
        return Err(error(1, "the file is larger than 1 MiB"));
    }
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(&next) = rest.peek() {
        match next {
            '\n' => {
                line += 1;
                rest.next();
            }
            _ if next.is_whitespace() => {
                rest.next();
            }
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                rest.next();
                let start = line;
                let text = quoted(&mut rest, &mut line).ok_or_else(|| error(start, "a quote is not closed"))?;
                tokens.push(Token { text: expand(&text, variable), line: start, is_quoted: true });
            }
            _ => {
                let mut text = String::new();
                while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                    text.push(c);
                }
                tokens.push(Token { text: expand(&text, variable), line, is_quoted: false });
            }
        }
    }
    Ok(tokens)
}

/// The text up to the closing quote; `\"` is a quote in it.
fn quoted(rest: &mut std::iter::Peekable<std::str::Chars>, line: &mut usize) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' if rest.next_if_eq(&'"').is_some() => text.push('"'),
            c => {
                *line += usize::from(c == '\n');
                text.push(c);
            }
        }
    }
}

/// Replaces `{$NAME}` and `{%NAME%}` by environment variables; what is not set is empty.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((at, mark, end)) = next_variable(rest) {
        let name = &rest[at + 2..at + end];
        out.push_str(&rest[..at]);
        out.push_str(&variable(name).unwrap_or_default());
        rest = &rest[at + end + mark.len()..];
    }
    out + rest
}

/// The start of a variable, its closing delimiter, and the end of its name.
fn next_variable(text: &str) -> Option<(usize, &'static str, usize)> {
    let find = |open: &str, close: &'static str| {
        let at = text.find(open)?;
        Some((at, close, text[at..].find(close)?))
    };
    let found = [find("{$", "}"), find("{%", "%}")];
    found.into_iter().flatten().filter(|(_, _, end)| *end >= 2).min_by_key(|(at, ..)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_words() {
        let variable = |name: &str| (name == "PORT").then(|| "53".to_string());
        let check = |text: &str, want: &[(&str, usize)]| {
            let tokens = lex(text, &variable).expect("tokens");
            let got: Vec<(&str, usize)> = tokens.iter().map(|token| (token.text.as_str(), token.line)).collect();
            assert_eq!(got, want, "{text}");
        };
        check(".:53 {\n  errors # all\n}", &[(".:53", 1), ("{", 1), ("errors", 2), ("}", 3)]);
        check("log \"a \\\"b\n c\" d", &[("log", 1), ("a \"b\n c", 1), ("d", 2)]);
        check(".:{$PORT} {%PORT%}x {$NONE}", &[(".:53", 1), ("53x", 1), ("", 1)]);
        check("{$PORT {%PORT} {} {$}", &[("{$PORT", 1), ("{%PORT}", 1), ("{}", 1), ("", 1)]);
        check("a#b #c", &[("a#b", 1)]);
        assert_eq!(lex("x\n\"y", &variable), Err(error(2, "a quote is not closed")));
    }
}
