//! Where the keys of a document are, for errors about them.

use granit_parser::{Event, Parser};

/// A position in a text; both numbers begin with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// The keys of the first document's mapping with their positions; as far as it is valid YAML.
pub fn key_positions(bytes: &[u8]) -> Vec<(String, Position)> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let mut parser = Parser::new_from_str(text);
    let (mut keys, mut depth, mut is_key) = (Vec::new(), 0_usize, true);
    while let Some(Ok((event, span))) = parser.next_event() {
        let is_top = depth == 1;
        match event {
            Event::SequenceStart(..) if depth == 0 => break,
            Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
            Event::MappingEnd | Event::SequenceEnd => depth = depth.saturating_sub(1),
            Event::Scalar(ref key, ..) if is_top && is_key => {
                keys.push((key.to_string(), Position { line: span.start.line(), column: span.start.col() + 1 }));
            }
            Event::DocumentEnd => break,
            _ => {}
        }
        let is_node_end = match event {
            Event::Scalar(..) | Event::Alias(..) => is_top,
            Event::MappingEnd | Event::SequenceEnd => depth == 1,
            _ => false,
        };
        is_key ^= is_node_end;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_keys_of_the_first_mapping() {
        let text = "# comment\na: 1\nb:\n  a: {c: d}\n  e: [f, {g: h}]\n\"c d\": [x]\n? e\n: f\n---\nz: 1\n";
        let found: Vec<(String, usize, usize)> = key_positions(text.as_bytes())
            .into_iter()
            .map(|(key, position)| (key, position.line, position.column))
            .collect();
        let want = [("a", 2, 1), ("b", 3, 1), ("c d", 6, 1), ("e", 7, 3)];
        assert_eq!(found, want.map(|(key, line, column)| (key.to_string(), line, column)));
        assert!(key_positions(b"- a\n").is_empty());
        assert_eq!(key_positions(b"a: 1\nb: [\n").len(), 2);
    }
}
