//! Domain names in wire format.

use std::fmt;
use std::sync::Arc;

/// The longest name on the wire, with all lengths and the root (RFC 1035, 3.1).
pub(super) const MAX_NAME: usize = 255;
/// The longest label.
pub(super) const MAX_LABEL: usize = 63;

/// Why a text is not a domain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A label is empty.
    #[error("a label is empty")]
    EmptyLabel,
    /// A label is longer than 63 bytes.
    #[error("a label is longer than 63 bytes")]
    LongLabel,
    /// The name is longer than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    LongName,
    /// An escape sequence is invalid.
    #[error("an escape sequence is invalid")]
    Escape,
}

/// A domain name: the labels, each after its length, and the root. The case is preserved, and `==` compares it; names
/// of the DNS are compared by [`Name::matches`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// The root of all names.
    pub fn root() -> Name {
        Name(Arc::from([0u8]))
    }

    /// Parses the presentation format: `example.org.`, with escapes. A name without the last dot is absolute too.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        let mut wire = Vec::with_capacity(text.len() + 2);
        if !matches!(text, "" | ".") {
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                rest = push_label(&mut wire, rest)?;
            }
        }
        wire.push(0);
        if wire.len() > MAX_NAME { Err(NameError::LongName) } else { Ok(Name(wire.into())) }
    }

    /// Wire format that was checked by the reader.
    pub(crate) fn from_wire(wire: &[u8]) -> Name {
        Name(Arc::from(wire))
    }

    /// Labels below a zone. None if the name would be too long, or a label is invalid.
    pub fn below<'a>(labels: impl IntoIterator<Item = &'a str>, zone: &Name) -> Option<Name> {
        let mut wire = Vec::with_capacity(64);
        for label in labels {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
            wire.push(length);
            wire.extend_from_slice(label.as_bytes());
        }
        wire.extend_from_slice(&zone.0);
        (wire.len() <= MAX_NAME).then(|| Name(wire.into()))
    }

    /// This name with another zone below it: its labels, then those of the zone.
    pub fn with_suffix(&self, zone: &Name) -> Option<Name> {
        let mut wire = self.0[..self.0.len() - 1].to_vec();
        wire.extend_from_slice(&zone.0);
        (wire.len() <= MAX_NAME).then(|| Name(wire.into()))
    }

    /// The wire format.
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The same in lower case.
    pub fn to_lower(&self) -> Name {
        // Lengths are below 64, so no length is a letter.
        match self.0.iter().any(u8::is_ascii_uppercase) {
            true => Name(self.0.to_ascii_lowercase().into()),
            false => self.clone(),
        }
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Whether both are the same name of the DNS, which ignores case.
    pub fn matches(&self, other: &Name) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// The labels from left to right, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let label = after.get(..usize::from(*length)).filter(|label| !label.is_empty())?;
            rest = &after[label.len()..];
            Some(label)
        })
    }

    /// The number of labels.
    pub fn label_count(&self) -> usize {
        self.labels().count()
    }

    /// The name without its first label; None of the root.
    pub fn parent(&self) -> Option<Name> {
        let first = self.labels().next()?;
        Some(Name(Arc::from(&self.0[first.len() + 1..])))
    }

    /// Whether this is the zone or a name below it.
    pub fn is_within(&self, zone: &Name) -> bool {
        self.prefix_length(zone).is_some()
    }

    /// The labels before a zone; none of the zone itself. `None` if the name is outside of it.
    pub fn labels_within(&self, zone: &Name) -> Option<Vec<&[u8]>> {
        let prefix = self.prefix_length(zone)?;
        let mut at = 0;
        let within = |label: &&[u8]| {
            at += label.len() + 1;
            at <= prefix
        };
        Some(self.labels().take_while(within).collect())
    }

    /// The labels before a zone as a name of their own.
    pub fn relative_to(&self, zone: &Name) -> Option<Name> {
        let prefix = self.prefix_length(zone)?;
        let mut wire = self.0[..prefix].to_vec();
        wire.push(0);
        Some(Name(wire.into()))
    }

    /// The bytes before a zone, which begins at a label.
    fn prefix_length(&self, zone: &Name) -> Option<usize> {
        let prefix = self.0.len().checked_sub(zone.0.len())?;
        if !self.0[prefix..].eq_ignore_ascii_case(&zone.0) {
            return None;
        }
        let mut at = 0;
        while at < prefix {
            at += usize::from(self.0[at]) + 1;
        }
        (at == prefix).then_some(prefix)
    }
}

/// Appends the first label of a text; returns what follows its dot.
fn push_label<'a>(wire: &mut Vec<u8>, text: &'a [u8]) -> Result<&'a [u8], NameError> {
    let start = wire.len();
    wire.push(0);
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'.' => break,
            b'\\' => {
                let (byte, after) = unescape(rest).ok_or(NameError::Escape)?;
                wire.push(byte);
                rest = after;
            }
            byte => wire.push(byte),
        }
        if wire.len() > start + 1 + MAX_LABEL {
            return Err(NameError::LongLabel);
        }
    }
    let length = wire.len() - start - 1;
    if length == 0 {
        return Err(NameError::EmptyLabel);
    }
    wire[start] = u8::try_from(length).map_err(|_| NameError::LongLabel)?;
    Ok(rest)
}

/// `\.` or `\046`.
fn unescape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, after) = text.split_first()?;
    if !first.is_ascii_digit() {
        return Some((first, after));
    }
    let digits = std::str::from_utf8(text.get(..3)?).ok()?;
    Some((digits.parse().ok()?, &text[3..]))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &byte in label {
                match byte {
                    b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => write!(f, "\\{}", char::from(byte))?,
                    0x21..=0x7e => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn parses_and_prints_names() {
        let check = |text: &str, want: &str| assert_eq!(name(text).to_string(), want);
        check("", ".");
        check(".", ".");
        check("Example.org", "Example.org.");
        check("a.b.", "a.b.");
        check("a\\.b.c", "a\\.b.c.");
        check("\\000\\255.x", "\\000\\255.x.");
        assert_eq!(name("a\\.b.c").label_count(), 2);
    }

    #[test]
    fn rejects_invalid_names() {
        let check = |text: &str, want: NameError| assert_eq!(Name::parse(text), Err(want), "{text}");
        check("..", NameError::EmptyLabel);
        check(".a", NameError::EmptyLabel);
        check("a..b", NameError::EmptyLabel);
        check(&"x".repeat(64), NameError::LongLabel);
        check(&["x".repeat(63).as_str(); 4].join("."), NameError::LongName);
        check("a\\", NameError::Escape);
        check("a\\25", NameError::Escape);
        check("a\\999", NameError::Escape);
        let longest =
            [&"x".repeat(63), &"y".repeat(63), &"z".repeat(63), &"w".repeat(61)].map(String::as_str).join(".");
        assert_eq!(name(&longest).as_wire().len(), MAX_NAME);
    }

    #[test]
    fn finds_the_labels_within_a_zone() {
        let zone = name("cluster.local");
        let labels = |text: &str| {
            let name = name(text);
            let labels = name.labels_within(&zone)?;
            Some(labels.iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(labels("web.default.svc.Cluster.LOCAL"), Some("web default svc".to_string()));
        assert_eq!(labels("cluster.local"), Some(String::new()));
        assert_eq!(labels("xcluster.local"), None);
        assert_eq!(labels("local"), None);
        // The bytes of the zone, but inside of a label.
        assert_eq!(labels("a\\007cluster\\005local"), None);
        assert!(name("a.b").is_within(&Name::root()));
    }

    #[test]
    fn joins_names_and_zones() {
        let zone = name("svc.cluster.local");
        assert_eq!(Name::below(["web", "default"], &zone), Some(name("web.default.svc.cluster.local")));
        assert_eq!(Name::below([""], &zone), None);
        assert_eq!(Name::below(["x".repeat(64).as_str()], &zone), None);
        assert_eq!(Name::below(["x".repeat(63).as_str(); 4], &zone), None);
        assert_eq!(name("a.b").with_suffix(&zone), Some(name("a.b.svc.cluster.local")));
        assert_eq!(name("a.b.svc.cluster.local").relative_to(&zone), Some(name("a.b")));
        assert_eq!(name("a.b").parent(), Some(name("b")));
        assert_eq!(Name::root().parent(), None);
    }
}
