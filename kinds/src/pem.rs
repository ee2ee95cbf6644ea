//! PEM blocks and the outer DER structure in them. Cryptographic checks, such as signatures, are done where
//! certificates are signed.

use api::base64;

/// A block: `-----BEGIN CERTIFICATE-----` and so on.
#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    pub label: String,
    pub has_headers: bool,
    pub der: Vec<u8>,
}

/// All well-formed blocks of a text; anything between them is skipped. Each line is read once, so that a text of many
/// BEGIN lines is not more expensive.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in text.lines() {
        if let Some(label) = marked(line, "-----BEGIN ") {
            open = Some((label, Vec::new()));
        } else if let Some(label) = marked(line, "-----END ") {
            let block = open.take().filter(|(begun, _)| *begun == label);
            blocks.extend(block.and_then(|(label, lines)| parse(label, &lines.join("\n"))));
        } else if let Some((_, lines)) = &mut open {
            lines.push(line);
        }
    }
    blocks
}

fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(mark)?.strip_suffix("-----")
}

fn parse(label: &str, body: &str) -> Option<Block> {
    let body = body.trim();
    let has_headers = body.lines().next().is_some_and(|line| line.contains(':'));
    let data = if has_headers { body.split_once("\n\n").map_or("", |(_, data)| data) } else { body };
    let data: String = data.chars().filter(|c| !c.is_whitespace()).collect();
    Some(Block { label: label.to_string(), has_headers, der: base64::decode(&data).ok()? })
}

/// Whether the bytes are a DER sequence of a sequence, an algorithm and a signature, like certificates and requests.
pub(crate) fn is_signed(der: &[u8]) -> bool {
    let Some((0x30, inside, [])) = element(der) else { return false };
    let Some((0x30, _, rest)) = element(inside) else { return false };
    let Some((0x30, _, rest)) = element(rest) else { return false };
    matches!(element(rest), Some((0x03, _, [])))
}

/// The tag and content of the first element, and the remainder.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_blocks_among_other_text() {
        let text =
            "# one\n-----BEGIN A-----\nAQI=\n-----END A-----\n-----BEGIN B-----\nk: v\n\nAw==\n-----END B-----\n";
        let blocks = blocks(text);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0], Block { label: "A".to_string(), has_headers: false, der: vec![1, 2] });
        assert_eq!(blocks[1], Block { label: "B".to_string(), has_headers: true, der: vec![3] });
    }

    #[test]
    fn validates_the_outer_structure() {
        assert!(is_signed(&[0x30, 7, 0x30, 0, 0x30, 0, 0x03, 1, 0]));
        assert!(!is_signed(&[0x30, 7, 0x30, 0, 0x30, 0, 0x03, 1]));
        assert!(!is_signed(b"x"));
    }
}
