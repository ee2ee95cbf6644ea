//! Indented text with aligned columns: Go's `text/tabwriter` with a padding of two spaces.

use api::{Map, Tree};

/// Annotations longer than this are cut.
pub(super) const MAX_ANNOTATION: usize = 140;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const PADDING: usize = 2;

/// Text whose cells end with tabs.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pending: String,
    done: String,
    /// Levels that are added to all lines.
    pub(super) indent: usize,
}

/// Writes a formatted text at a level of indentation: `put!(w, 1, "Name:\t{}\n", name)`.
macro_rules! put {
    ($writer:expr, $level:expr, $($format:tt)+) => {
        $writer.write($level, &format!($($format)+))
    };
}
pub(super) use put;

impl Writer {
    /// Appends a text that begins with the indentation of a level.
    pub(super) fn write(&mut self, level: usize, text: &str) {
        self.pending.extend(std::iter::repeat_n("  ", level + self.indent));
        // Terminals must not be controlled by what is described.
        self.pending.push_str(&text.replace('\u{1b}', "^[").replace('\r', "\\r"));
    }

    /// A line with a title and a value.
    pub(super) fn field(&mut self, title: &str, value: impl std::fmt::Display) {
        put!(self, 0, "{title}:\t{value}\n");
    }

    /// Columns after this have widths of their own.
    pub(super) fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        self.done.push_str(&align(&text));
    }

    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.done
    }

    /// The text with its tabs.
    pub(super) fn unaligned(self) -> String {
        self.done + &self.pending
    }

    pub(super) fn labels(&mut self, title: &str, labels: &Map) {
        self.labels_with("", title, labels);
    }

    /// One line for each label.
    pub(super) fn labels_with(&mut self, before: &str, title: &str, labels: &Map) {
        let lines = labels.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect();
        self.multiline(before, title, lines);
    }

    pub(super) fn multiline(&mut self, before: &str, title: &str, lines: Vec<String>) {
        put!(self, 0, "{before}{title}:\t");
        if lines.is_empty() {
            return self.write(0, "<none>\n");
        }
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                put!(self, 0, "{before}");
                self.write(0, "\t");
            }
            put!(self, 0, "{line}\n");
        }
    }

    pub(super) fn annotations(&mut self, title: &str, annotations: &Map) {
        put!(self, 0, "{title}:\t");
        let shown: Vec<(&str, String)> = annotations
            .iter()
            .filter(|(key, _)| *key != LAST_APPLIED)
            .map(|(key, value)| (key, text_of(value)))
            .collect();
        if shown.is_empty() {
            return self.write(0, "<none>\n");
        }
        for (at, (key, value)) in shown.iter().enumerate() {
            if at > 0 {
                self.write(0, "\t");
            }
            let value = value.strip_suffix('\n').unwrap_or(value);
            if value.len() + key.len() + 2 <= MAX_ANNOTATION && !value.contains('\n') {
                put!(self, 0, "{key}: {value}\n");
                continue;
            }
            put!(self, 0, "{key}:\n");
            for line in value.split('\n') {
                put!(self, 0, "\t  {}\n", shorten(line, MAX_ANNOTATION - 2));
            }
        }
    }
}

/// The first bytes of a text, up to the end of a character.
pub(super) fn shorten(text: &str, length: usize) -> String {
    if text.len() <= length {
        return text.to_string();
    }
    let end = (0..=length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// A scalar as Go's `%v` prints it; empty for null.
pub(super) fn text_of(value: &Tree) -> String {
    match value {
        Tree::Null => String::new(),
        other => api::patch::printed(other),
    }
}

fn align(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
    let mut widths: Vec<Vec<usize>> = lines.iter().map(|cells| vec![0; cells.len()]).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    for column in 0..columns {
        let has_cell = |at: usize| column + 1 < lines[at].len();
        let mut at = 0;
        while at < lines.len() {
            if !has_cell(at) {
                at += 1;
                continue;
            }
            let end = (at..lines.len()).find(|line| !has_cell(*line)).unwrap_or(lines.len());
            let widest = lines[at..end].iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
            widths[at..end].iter_mut().for_each(|widths| widths[column] = widest + PADDING);
            at = end;
        }
    }
    let mut out = String::with_capacity(text.len() * 2);
    for (at, cells) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        for (column, cell) in cells.iter().enumerate() {
            out.push_str(cell);
            if column + 1 < cells.len() {
                out.extend(std::iter::repeat_n(' ', widths[at][column].saturating_sub(cell.chars().count())));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_adjacent_lines() {
        let mut w = Writer::default();
        w.write(0, "Name:\ta\nLong Title:\tb\n");
        w.write(1, "x\ty\tz\n");
        w.flush();
        w.write(0, "A:\tb\n");
        assert_eq!(w.finish(), "Name:        a\nLong Title:  b\n  x          y  z\nA:  b\n");
    }
}
