//! Tree to YAML in the format of upstream's library: natural key order, lists at the indentation of their key, lines
//! broken at spaces beyond column 80, multi-line texts as literals.

use std::cmp::Ordering;
use std::fmt::Write;

use super::resolve::{self, Plain};
use crate::float;
use crate::tree::{Map, Tree};

const WIDTH: usize = 80;
const INDENT: usize = 2;
/// Longer keys are written with a question mark.
const MAX_SIMPLE_KEY: usize = 128;

/// Encodes a tree as upstream's YAML: sorted keys, block style.
pub fn encode(tree: &Tree) -> Vec<u8> {
    let mut writer = Writer { out: String::with_capacity(512), column: 0 };
    match tree {
        Tree::Map(map) if !map.is_empty() => writer.map(map, 0, false),
        Tree::List(items) if !items.is_empty() => writer.list(items, 0, false),
        tree => {
            writer.scalar(tree, INDENT);
            writer.end_line();
        }
    }
    writer.out.into_bytes()
}

struct Writer {
    out: String,
    /// In characters, for the breaking of lines.
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn end_line(&mut self) {
        if !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.column = 0;
    }

    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column += indent;
    }

    fn new_line(&mut self, indent: usize) {
        self.out.push('\n');
        self.column = 0;
        self.indent(indent);
    }

    /// `started`: the first entry continues a line that a dash or colon began.
    fn map(&mut self, map: &Map, indent: usize, mut started: bool) {
        let mut entries: Vec<(&str, &Tree)> = map.iter().collect();
        entries.sort_by(|a, b| natural_order(a.0, b.0));
        for (key, value) in entries {
            if !std::mem::take(&mut started) {
                self.indent(indent);
            }
            if is_simple_key(key) {
                self.text(key, indent + INDENT, true);
                self.put(":");
                self.value(value, indent);
            } else {
                self.put("? ");
                self.text(key, indent + INDENT, false);
                self.end_line();
                self.indent(indent);
                self.put(":");
                self.compact(value, indent);
            }
        }
    }

    /// The value of a key: a collection on its own lines, a scalar on the same.
    fn value(&mut self, value: &Tree, indent: usize) {
        match value {
            Tree::Map(map) if !map.is_empty() => {
                self.end_line();
                self.map(map, indent + INDENT, false);
            }
            Tree::List(items) if !items.is_empty() => {
                self.end_line();
                self.list(items, indent, false);
            }
            value => {
                self.put(" ");
                self.scalar(value, indent + INDENT);
                self.end_line();
            }
        }
    }

    fn list(&mut self, items: &[Tree], indent: usize, mut started: bool) {
        for item in items {
            if !std::mem::take(&mut started) {
                self.indent(indent);
            }
            self.put("-");
            self.compact(item, indent);
        }
    }

    /// The value after a dash: even a collection begins on the same line.
    fn compact(&mut self, value: &Tree, indent: usize) {
        self.put(" ");
        match value {
            Tree::Map(map) if !map.is_empty() => self.map(map, indent + INDENT, true),
            Tree::List(items) if !items.is_empty() => self.list(items, indent + INDENT, true),
            value => {
                self.scalar(value, indent + INDENT);
                self.end_line();
            }
        }
    }

    fn scalar(&mut self, value: &Tree, indent: usize) {
        match value {
            Tree::Null => self.put("null"),
            Tree::Bool(true) => self.put("true"),
            Tree::Bool(false) => self.put("false"),
            Tree::Int(value) => self.put(itoa::Buffer::new().format(*value)),
            Tree::Float(value) => self.put(&float_text(*value)),
            Tree::Str(text) => self.text(text, indent, false),
            Tree::List(_) => self.put("[]"),
            Tree::Map(_) => self.put("{}"),
        }
    }

    fn text(&mut self, text: &str, indent: usize, key: bool) {
        let form = Form::of(text);
        let style = if text.contains('\n') {
            if form.block && !key { Style::Literal } else { Style::Double }
        } else if !reads_as_text(text) {
            Style::Double
        } else if form.plain {
            Style::Plain
        } else if form.single {
            Style::Single
        } else {
            Style::Double
        };
        match style {
            Style::Plain => self.plain(text, indent, key),
            Style::Single => self.single(text, indent, key),
            Style::Double => self.double(text, indent, key),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn plain(&mut self, text: &str, indent: usize, key: bool) {
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            let next_is_space = text[at + c.len_utf8()..].starts_with(' ');
            if c == ' ' && !key && !spaces && self.column > WIDTH && !next_is_space {
                self.new_line(indent);
            } else {
                self.put_char(c);
            }
            spaces = c == ' ';
        }
    }

    fn single(&mut self, text: &str, indent: usize, key: bool) {
        self.put("'");
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            let inside = at > 0 && !rest.is_empty() && !rest.starts_with(' ');
            if c == ' ' && !key && !spaces && self.column > WIDTH && inside {
                self.new_line(indent);
            } else if c == '\'' {
                self.put("''");
            } else {
                self.put_char(c);
            }
            spaces = c == ' ';
        }
        self.put("'");
    }

    fn double(&mut self, text: &str, indent: usize, key: bool) {
        self.put("\"");
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            if c == ' ' && !key && !spaces && self.column > WIDTH && at > 0 && !rest.is_empty() {
                self.new_line(indent);
                if rest.starts_with(' ') {
                    self.put("\\");
                }
            } else if needs_escape(c) {
                self.escape(c);
            } else {
                self.put_char(c);
            }
            spaces = c == ' ';
        }
        self.put("\"");
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => "\\0",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            '\u{1b}' => "\\e",
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{85}' => "\\N",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            _ => "",
        };
        if !short.is_empty() {
            return self.put(short);
        }
        let code = u32::from(c);
        let before = self.out.len();
        let _ = match code {
            0..=0xff => write!(self.out, "\\x{code:02X}"),
            0x100..=0xffff => write!(self.out, "\\u{code:04X}"),
            _ => write!(self.out, "\\U{code:08X}"),
        };
        self.column += self.out.len() - before;
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.put("-"),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.put("+"),
            Some(_) => {}
        }
        for line in body.unwrap_or(text).split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
        }
        self.out.push('\n');
        self.column = 0;
    }
}

enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Whether a plain text is read back as itself.
fn reads_as_text(text: &str) -> bool {
    resolve::plain(text) == Plain::Text && !resolve::is_base60(text)
}

/// The styles that can represent a text.
struct Form {
    plain: bool,
    single: bool,
    block: bool,
}

impl Form {
    fn of(text: &str) -> Form {
        if text.is_empty() {
            return Form { plain: false, single: true, block: false };
        }
        let special = text.chars().any(|c| c != '\n' && c != '"' && c != '\\' && needs_escape(c));
        let space_break = text.contains(" \n");
        let break_space = text.contains("\n ");
        let edge = |text: &str| text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        let hard = special || space_break;
        Form {
            plain: !hard && !text.contains('\n') && !edge(text) && !has_indicator(text),
            single: !hard && !break_space,
            block: !hard && !text.ends_with(' '),
        }
    }
}

/// A character or position with a special meaning in plain text.
fn has_indicator(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    if text.starts_with(|c| "#,[]{}&*!|>'\"%@`".contains(c)) {
        return true;
    }
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let before_space = rest.is_empty() || rest.starts_with([' ', '\n']);
        match c {
            '-' | '?' if at == 0 && before_space => return true,
            ':' if before_space => return true,
            '#' if previous == ' ' => return true,
            _ => {}
        }
        previous = c;
    }
    false
}

/// Upstream's library considers characters outside the basic plane and tabs as not printable.
fn needs_escape(c: char) -> bool {
    match c {
        '"' | '\\' | '\u{feff}' | '\u{2028}' | '\u{2029}' => true,
        ' '..='~' => false,
        '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' => false,
        _ => true,
    }
}

fn is_simple_key(key: &str) -> bool {
    key.len() <= MAX_SIMPLE_KEY && !key.contains('\n')
}

/// Shortest digits, with an exponent as in Go's `%g`.
fn float_text(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return (value as i64).to_string();
    }
    float::format_general(value)
}

/// Numbers in keys are compared as numbers, and letters come last.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => return a[at].cmp(&b[at]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let zero = a[at] == '0' || b[at] == '0';
    let inside = a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let start = u64::from(zero && inside);
    let (number_a, length_a) = number_at(&a[at..], start);
    let (number_b, length_b) = number_at(&b[at..], start);
    number_a.cmp(&number_b).then(length_a.cmp(&length_b)).then(a[at].cmp(&b[at]))
}

fn number_at(chars: &[char], start: u64) -> (u64, usize) {
    let digits = chars.iter().map_while(|c| c.to_digit(10));
    digits.fold((start, 0), |(value, length), digit| (value.wrapping_mul(10).wrapping_add(digit.into()), length + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::decode;
    use crate::{list, tree};

    #[test]
    fn format_matches_upstream() {
        let object = tree! {
            "kind" => "ConfigMap",
            "data" => tree! { "false" => "1", "multi" => "a\nb\n", "n" => "5", "empty" => "", "date" => "2024-01-02T03:04:05Z" },
            "list" => list!["a", tree! { "x" => 1, "y" => list![1, list![2, 3]] }, Tree::map_new(), Tree::List(vec![])],
            "items10" => Tree::Null,
            "items9" => true,
            "odd" => list!["a: b", "- x", " lead", "it's", "#c", "tab\t", "x #y", "\u{1F600}", "no", "1:20", "'", "a\n b", "a\n\n", "\n", " a\nb"],
            "f:a" => tree! { "." => Tree::map_new() },
        };
        let want = r##"data:
  date: "2024-01-02T03:04:05Z"
  empty: ""
  "false": "1"
  multi: |
    a
    b
  "n": "5"
f:a:
  .: {}
items9: true
items10: null
kind: ConfigMap
list:
- a
- x: 1
  "y":
  - 1
  - - 2
    - 3
- {}
- []
odd:
- 'a: b'
- '- x'
- ' lead'
- it's
- '#c'
- "tab\t"
- 'x #y'
- "\U0001F600"
- "no"
- "1:20"
- ''''
- |-
  a
   b
- |+
  a

- |2+

- |2-
   a
  b
"##;
        let bytes = encode(&object);
        assert_eq!(String::from_utf8_lossy(&bytes), want);
        assert_eq!(decode(&bytes), Ok(object));
    }

    #[test]
    fn breaks_long_texts_and_marks_long_keys() {
        let words = "word ".repeat(30);
        for text in [words.trim_end().to_string(), format!("{words}: x"), format!("{words}\t x"), words.clone()] {
            let key = "k".repeat(200);
            let object = tree! { "a" => tree! { "message" => text.as_str(), key => tree! { "b" => list![text] } } };
            let bytes = encode(&object);
            let written = String::from_utf8(bytes.clone()).expect("UTF-8");
            assert!(written.lines().all(|line| line.chars().count() < 95 || line.contains("kkk")), "{written}");
            assert_eq!(decode(&bytes), Ok(object), "{written}");
        }
    }

    #[test]
    fn floats_keep_their_value() {
        for value in [1.5, 0.1, 1e300, 1e-9, 1234567.5, -2.25e-7] {
            let bytes = encode(&Tree::Float(value));
            assert_eq!(decode(&bytes), Ok(Tree::Float(value)));
        }
    }
}
