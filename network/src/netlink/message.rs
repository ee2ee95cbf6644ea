//! Encoding and decoding of netlink messages: a header, the family's header, and attributes, which may be nested.

/// A message under construction. Lengths and the sequence number are filled in when it is sent.
pub struct Message {
    bytes: Vec<u8>,
    /// Whether a nested attribute is too long for its 16-bit length.
    overflow: bool,
}

pub(crate) const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
const NESTED: u16 = 0x8000;
/// Removes the bits for "nested" and "network byte order" from an attribute's type.
const KIND_MASK: u16 = 0x3fff;

impl Message {
    /// A message with the header of its family.
    pub fn new(kind: u16, flags: u16, family_header: &[u8]) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(family_header);
        let mut message = Message { bytes, overflow: false };
        message.pad();
        message
    }

    /// Adds an attribute.
    pub fn put(&mut self, kind: u16, payload: &[u8]) {
        match u16::try_from(payload.len() + ATTRIBUTE_HEADER) {
            Ok(length) => {
                self.bytes.extend_from_slice(&length.to_ne_bytes());
                self.bytes.extend_from_slice(&kind.to_ne_bytes());
                self.bytes.extend_from_slice(payload);
                self.pad();
            }
            Err(_) => self.overflow = true,
        }
    }

    /// Adds an attribute with one byte.
    pub fn put_u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    /// Adds an attribute with a number.
    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// In network byte order, which netfilter uses for all numbers.
    pub fn put_be32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// In network byte order.
    pub fn put_be64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// A string with a terminating zero byte.
    pub fn put_text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    /// Adds an attribute that contains others.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.bytes.len();
        self.put(kind | NESTED, &[]);
        fill(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes()),
            Err(_) => self.overflow = true,
        }
    }

    /// The header of another family inside a nested attribute.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    /// Sets more flags.
    pub fn add_flags(&mut self, flags: u16) {
        let old = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[6..8].copy_from_slice(&(old | flags).to_ne_bytes());
    }

    /// The bytes to send; None if something in the message is too long.
    pub fn finish(mut self, sequence: u32) -> Option<Vec<u8>> {
        let length = u32::try_from(self.bytes.len()).ok().filter(|_| !self.overflow)?;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        Some(self.bytes)
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Iterates over the attributes of a message or of a nested attribute, as type and payload. Stops at a truncated one.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(u16::from_ne_bytes([*self.0.first()?, *self.0.get(1)?]));
        let kind = u16::from_ne_bytes([*self.0.get(2)?, *self.0.get(3)?]) & KIND_MASK;
        let payload = self.0.get(ATTRIBUTE_HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    }
}

/// The first attribute of this type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    Attributes(bytes).find(|(found, _)| *found == kind).map(|(_, payload)| payload)
}

pub(crate) fn u32_of(payload: &[u8]) -> Option<u32> {
    payload.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
}

/// A string up to its zero byte.
pub(crate) fn text(payload: &[u8]) -> String {
    let end = payload.iter().position(|byte| *byte == 0).unwrap_or(payload.len());
    String::from_utf8_lossy(&payload[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_a_round_trip() {
        let mut message = Message::new(16, 1, &[2, 0, 0, 0]);
        message.put_text(3, "eth0");
        message.nest(18, |nest| {
            nest.put_u32(1, 7);
            nest.put_u8(2, 9);
        });
        let bytes = message.finish(5).unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(u32_of(&bytes), Some(bytes.len() as u32));
        let attributes = &bytes[HEADER + 4..];
        assert_eq!(text(attribute(attributes, 3).unwrap()), "eth0");
        let nest = attribute(attributes, 18).unwrap();
        assert_eq!(u32_of(attribute(nest, 1).unwrap()), Some(7));
        assert_eq!(attribute(nest, 2), Some(&[9][..]));
        assert_eq!(attribute(nest, 3), None);
    }

    #[test]
    fn rejects_oversized_messages_and_stops_at_truncated_attributes() {
        let mut message = Message::new(16, 1, &[]);
        message.nest(1, |nest| (0..20_000).for_each(|number| nest.put_u32(1, number)));
        assert!(message.finish(1).is_none());
        assert_eq!(Attributes(&[8, 0, 1, 0, 1]).count(), 0);
        assert_eq!(Attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(Attributes(&[0, 0, 0, 0]).count(), 0);
    }
}
