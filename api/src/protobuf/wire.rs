//! The wire format: varints, tags and lengths.

use super::Error;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
pub(crate) const GROUP_START: u8 = 3;
pub(crate) const GROUP_END: u8 = 4;
pub(crate) const FIXED32: u8 = 5;

pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn write_tag(out: &mut Vec<u8>, number: u32, wire_type: u8) {
    write_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

/// Negative numbers take ten bytes, as in upstream.
pub(crate) fn write_int(out: &mut Vec<u8>, number: u32, value: i64) {
    write_tag(out, number, VARINT);
    write_varint(out, value as u64);
}

pub(crate) fn write_double(out: &mut Vec<u8>, number: u32, value: f64) {
    write_tag(out, number, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_tag(out, number, BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A nested message. One byte is reserved for its length, and more is inserted if needed, so that nothing is measured
/// in advance.
pub(super) fn write_message(out: &mut Vec<u8>, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    write_tag(out, number, BYTES);
    let start = out.len();
    out.push(0);
    body(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    write_varint(&mut prefix, length as u64);
    out.splice(start..start + 1, prefix);
}

/// Iterates over the fields of a message.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

/// A field's value; its wire type is kept to reject mismatches.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    Group,
}

impl Value<'_> {
    pub(crate) fn wire_type(self) -> u8 {
        match self {
            Value::Varint(_) => VARINT,
            Value::Fixed64(_) => FIXED64,
            Value::Bytes(_) => BYTES,
            Value::Fixed32 => FIXED32,
            Value::Group => GROUP_START,
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// The next field's number and value; groups, which no type uses, are skipped.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Error> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            VARINT => Value::Varint(self.varint()?),
            FIXED64 => Value::Fixed64(self.fixed64()?),
            BYTES => Value::Bytes(self.sized()?),
            GROUP_START => self.skip_group().map(|()| Value::Group)?,
            FIXED32 => self.take(4).map(|_| Value::Fixed32)?,
            _ => return Err(Error::IllegalTag),
        };
        Ok(Some((number, value)))
    }

    fn tag(&mut self) -> Result<(u32, u8), Error> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Error::IllegalTag)?;
        if number == 0 { Err(Error::IllegalTag) } else { Ok((number, (tag & 7) as u8)) }
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first().ok_or(Error::UnexpectedEnd)?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Overflow)
    }

    fn fixed64(&mut self) -> Result<u64, Error> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn sized(&mut self) -> Result<&'a [u8], Error> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| Error::UnexpectedEnd)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Error::UnexpectedEnd)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Counts nested groups instead of recursing.
    fn skip_group(&mut self) -> Result<(), Error> {
        let mut open = 1;
        while open > 0 {
            match self.tag()?.1 {
                VARINT => self.varint().map(|_| ())?,
                FIXED64 => self.take(8).map(|_| ())?,
                BYTES => self.sized().map(|_| ())?,
                FIXED32 => self.take(4).map(|_| ())?,
                GROUP_START => open += 1,
                GROUP_END => open -= 1,
                _ => return Err(Error::IllegalTag),
            }
        }
        Ok(())
    }
}
