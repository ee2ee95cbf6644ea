//! The text of an expression, and errors with their position in it.

use std::fmt;

/// The name of the text in compile errors.
const NAME: &str = "<input>";
/// Errors of longer lines are shown without the line.
const MAX_SNIPPET: usize = 16384;
/// The maximum number of reported errors of one expression; more are only counted.
const MAX_ERRORS: usize = 100;

/// The text, addressed by code points.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    /// The code point offsets at which lines begin.
    lines: Vec<u32>,
}

/// A position of an error: an offset in code points, or none for errors of the whole text.
pub(crate) type Offset = Option<u32>;

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Source<'a> {
        let mut lines = vec![0];
        let newlines = text.chars().enumerate().filter(|(_, c)| *c == '\n');
        lines.extend(newlines.map(|(at, _)| u32::try_from(at + 1).unwrap_or(u32::MAX)));
        Source { text, lines }
    }

    /// The line, from 1, and the column, from 0, of an offset.
    fn location(&self, offset: u32) -> (usize, u32) {
        let line = self.lines.partition_point(|start| *start <= offset);
        (line, offset - self.lines[line - 1])
    }

    pub(crate) fn error(&self, offset: Offset, message: impl Into<String>) -> Issue {
        if self.text.is_empty() && offset.is_some() {
            // The position before the first character of nothing.
            return Issue { position: Some((1, None)), message: message.into(), line: None };
        }
        let Some(offset) = offset else {
            return Issue { position: None, message: message.into(), line: None };
        };
        let (line, column) = self.location(offset);
        let snippet = self.text.split('\n').nth(line - 1).filter(|text| text.len() <= MAX_SNIPPET);
        Issue { position: Some((line, Some(column))), message: message.into(), line: snippet.map(str::to_owned) }
    }
}

/// One error of an expression. Its text is upstream's, with the line and a mark below the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Issue {
    /// The line, from 1, and the column, from 0 or none in an empty text; none for errors of the whole expression.
    position: Option<(usize, Option<u32>)>,
    message: String,
    line: Option<String>,
}

impl Issue {
    /// The message without its position.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((line, column)) = self.position else {
            return write!(f, "ERROR: {NAME}:-1:0: {}", self.message);
        };
        write!(f, "ERROR: {NAME}:{line}:{}: {}", column.map_or(0, |column| column + 1), self.message)?;
        let Some(text) = &self.line else { return Ok(()) };
        write!(f, "\n | {}\n | ", text.replace('\t', " "))?;
        let mut chars = text.chars();
        for char in chars.by_ref().take(column.unwrap_or(0) as usize) {
            f.write_str(if char.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
        }
        f.write_str(if chars.next().is_some_and(|char| char.len_utf8() > 1) { "\u{ff3e}" } else { "^" })
    }
}

/// All errors of an expression, in the order of their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    errors: Vec<Issue>,
    truncated: usize,
}

impl Issues {
    pub(crate) fn new(mut errors: Vec<Issue>) -> Issues {
        let truncated = errors.len().saturating_sub(MAX_ERRORS);
        errors.truncate(MAX_ERRORS);
        errors.sort_by_key(|error| error.position);
        Issues { errors, truncated }
    }

    /// The issues, in the order of the source.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.errors.iter()
    }
}

impl std::error::Error for Issues {}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "\n" })?;
            write!(f, "{error}")?;
        }
        if self.truncated > 0 {
            write!(f, "\n{} more errors were truncated", self.truncated)?;
        }
        Ok(())
    }
}
