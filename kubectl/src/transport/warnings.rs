//! Warnings of the server: each is printed once, in colour on a terminal.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use http::{HeaderMap, header};
use stdx::sync::Mutex;

/// Prints warnings to the standard error stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<BTreeSet<String>>>);

impl Warnings {
    pub(super) fn print(&self, headers: &HeaderMap) {
        for value in headers.get_all(header::WARNING) {
            // Texts are UTF-8, which header values are not allowed to say.
            let text = String::from_utf8_lossy(value.as_bytes());
            for warning in parse(&text) {
                self.add(&warning);
            }
        }
    }

    /// Prints a warning, unless it was printed before.
    pub(crate) fn add(&self, text: &str) {
        if !self.0.lock().insert(text.to_string()) {
            return;
        }
        let mut out = std::io::stderr().lock();
        let is_colored = out.is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
        let label = if is_colored && std::env::var_os("NO_COLOR").is_none() {
            "\u{1b}[33;1mWarning:\u{1b}[0m"
        } else {
            "Warning:"
        };
        let _ = writeln!(out, "{label} {text}");
    }

    /// How many different warnings there were.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// The texts of `299 - "text"`, of which a header may have several.
fn parse(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header;
    while let Some(start) = rest.find('"') {
        let code = rest[..start].trim().trim_start_matches(',').trim();
        let mut text = String::new();
        let mut chars = rest[start + 1..].char_indices();
        let mut end = rest.len();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => text.extend(chars.next().map(|(_, char)| char)),
                '"' => {
                    end = start + 1 + at + 1;
                    break;
                }
                char if char.is_control() => {}
                char => text.push(char),
            }
        }
        if code.starts_with("299") {
            texts.push(text);
        }
        rest = &rest[end..];
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_warning_headers() {
        let check = |header: &str, want: &[&str]| assert_eq!(parse(header), want, "{header}");
        check("299 - \"a\"", &["a"]);
        check("299 - \"say \\\"b\\\"\", 299 - \"c\"", &["say \"b\"", "c"]);
        check("199 - \"other\"", &[]);
        check("299 - \"open", &["open"]);
        check("", &[]);
    }
}
