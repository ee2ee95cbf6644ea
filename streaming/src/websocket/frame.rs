//! RFC 6455 frames. Payloads are decoded in the pieces in which they arrive, so that a large message needs no large
//! buffer.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The maximum payload of control frames in the standard.
const MAX_CONTROL: usize = 125;

/// The end of a connection: clients mask their frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Binary,
}

/// A received frame, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of a message; `first` and `last` mark its boundaries.
    Data {
        kind: Kind,
        data: Bytes,
        first: bool,
        last: bool,
    },
    Ping(Bytes),
    Pong(Bytes),
    Close {
        code: Option<u16>,
        reason: String,
    },
}

/// Why the bytes are not WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    Reserved,
    Opcode(u8),
    Mask(Role),
    Control(&'static str),
    Fragment(&'static str),
    Length,
    CloseCode,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reserved => f.write_str("WebSocket frame with reserved bits"),
            Self::Opcode(opcode) => write!(f, "WebSocket frame of unknown opcode {opcode}"),
            Self::Mask(Role::Server) => f.write_str("WebSocket frame of a client is not masked"),
            Self::Mask(Role::Client) => f.write_str("WebSocket frame of a server is masked"),
            Self::Control(what) => write!(f, "WebSocket control frame {what}"),
            Self::Fragment(what) => write!(f, "WebSocket {what}"),
            Self::Length => f.write_str("WebSocket frame length out of range"),
            Self::CloseCode => f.write_str("WebSocket close frame with a bad code or reason"),
        }
    }
}

impl std::error::Error for Error {}

/// A data frame that is not complete yet.
struct Partial {
    left: u64,
    mask: [u8; 4],
    /// The position in the mask of the next byte.
    phase: usize,
    last: bool,
}

/// Decodes frames from bytes.
pub struct Decoder {
    role: Role,
    partial: Option<Partial>,
    /// The message in progress, and whether none of it was returned yet.
    message: Option<(Kind, bool)>,
}

struct FrameHeader {
    fin: bool,
    opcode: u8,
    length: u64,
    mask: [u8; 4],
    size: usize,
}

impl Decoder {
    /// A decoder of one end.
    pub fn new(role: Role) -> Self {
        Self { role, partial: None, message: None }
    }

    /// Decodes the next event from the front of the buffer; None if more bytes are needed.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, Error> {
        if let Some(partial) = self.partial.take() {
            return Ok(self.piece(partial, buffer));
        }
        let Some(head) = self.head(buffer)? else { return Ok(None) };
        if head.opcode >= 8 {
            return control(&head, buffer);
        }
        self.begin(&head)?;
        buffer.advance(head.size);
        let partial = Partial { left: head.length, mask: head.mask, phase: 0, last: head.fin };
        Ok(self.piece(partial, buffer))
    }

    fn head(&self, buffer: &BytesMut) -> Result<Option<FrameHeader>, Error> {
        let &[first, second, ..] = buffer.as_ref() else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(Error::Reserved);
        }
        let masked = second & 0x80 != 0;
        if masked != (self.role == Role::Server) {
            return Err(Error::Mask(self.role));
        }
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + extended + if masked { 4 } else { 0 };
        let Some(mut rest) = buffer.get(2..size) else { return Ok(None) };
        let length = match extended {
            2 => u64::from(rest.get_u16()),
            8 => rest.get_u64(),
            _ => u64::from(second & 0x7f),
        };
        if length > i64::MAX as u64 {
            return Err(Error::Length);
        }
        let mask = if masked { rest.get_u32().to_be_bytes() } else { [0; 4] };
        Ok(Some(FrameHeader { fin: first & 0x80 != 0, opcode: first & 0x0f, length, mask, size }))
    }

    fn begin(&mut self, head: &FrameHeader) -> Result<(), Error> {
        let kind = match (head.opcode, self.message) {
            (0, Some(_)) => return Ok(()),
            (0, None) => return Err(Error::Fragment("continuation without a message")),
            (1 | 2, Some(_)) => return Err(Error::Fragment("new message before the previous one ended")),
            (1, None) => Kind::Text,
            (2, None) => Kind::Binary,
            (other, _) => return Err(Error::Opcode(other)),
        };
        self.message = Some((kind, true));
        Ok(())
    }

    fn piece(&mut self, mut partial: Partial, buffer: &mut BytesMut) -> Option<Event> {
        let take = partial.left.min(buffer.len() as u64) as usize;
        if take == 0 && partial.left > 0 {
            self.partial = Some(partial);
            return None;
        }
        let mut data = buffer.split_to(take);
        apply(partial.mask, partial.phase, &mut data);
        partial.left -= take as u64;
        partial.phase = (partial.phase + take) % 4;
        let last = partial.last && partial.left == 0;
        let (kind, first) = self.message.take()?;
        if !last {
            self.message = Some((kind, false));
        }
        if partial.left > 0 {
            self.partial = Some(partial);
        }
        Some(Event::Data { kind, data: data.freeze(), first, last })
    }
}

fn control(head: &FrameHeader, buffer: &mut BytesMut) -> Result<Option<Event>, Error> {
    if !head.fin {
        return Err(Error::Control("fragmented"));
    }
    if head.length as usize > MAX_CONTROL {
        return Err(Error::Control("longer than 125 bytes"));
    }
    let end = head.size + head.length as usize;
    if buffer.len() < end {
        return Ok(None);
    }
    let mut payload = buffer.split_to(end).split_off(head.size);
    apply(head.mask, 0, &mut payload);
    match head.opcode {
        8 => close(payload.freeze()).map(Some),
        9 => Ok(Some(Event::Ping(payload.freeze()))),
        10 => Ok(Some(Event::Pong(payload.freeze()))),
        other => Err(Error::Opcode(other)),
    }
}

fn close(mut payload: Bytes) -> Result<Event, Error> {
    if payload.is_empty() {
        return Ok(Event::Close { code: None, reason: String::new() });
    }
    if payload.len() < 2 {
        return Err(Error::CloseCode);
    }
    let code = payload.get_u16();
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Error::CloseCode);
    }
    let reason = String::from_utf8(payload.into()).map_err(|_| Error::CloseCode)?;
    Ok(Event::Close { code: Some(code), reason })
}

fn apply(mask: [u8; 4], phase: usize, data: &mut [u8]) {
    if mask != [0; 4] {
        data.iter_mut().zip(mask.iter().cycle().skip(phase)).for_each(|(byte, key)| *byte ^= key);
    }
}

/// The opcode of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

/// Appends a whole message as one frame; clients mask theirs.
pub fn encode(opcode: Opcode, parts: &[&[u8]], mask: Option<[u8; 4]>, out: &mut BytesMut) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let bit = if mask.is_some() { 0x80 } else { 0 };
    out.put_u8(0x80 | opcode as u8);
    match length {
        0..=125 => out.put_u8(bit | length as u8),
        126..=0xffff => {
            out.put_u8(bit | 126);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(bit | 127);
            out.put_u64(length as u64);
        }
    }
    out.put_slice(mask.as_ref().map_or(&[], |mask| mask));
    let start = out.len();
    parts.iter().for_each(|part| out.put_slice(part));
    apply(mask.unwrap_or_default(), 0, &mut out[start..]);
}

/// The payload of a close frame; a long reason is cut.
pub fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_CONTROL - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    [&code.to_be_bytes()[..], &reason.as_bytes()[..end]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(role: Role, wire: &[u8], step: usize) -> Result<Vec<Event>, Error> {
        let mut decoder = Decoder::new(role);
        let (mut buffer, mut events) = (BytesMut::new(), Vec::new());
        for piece in wire.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(event) = decoder.decode(&mut buffer)? {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Joins the pieces of messages.
    fn messages(events: &[Event]) -> Vec<Vec<u8>> {
        let mut out: Vec<Vec<u8>> = Vec::new();
        for event in events {
            if let Event::Data { data, first, .. } = event {
                if *first {
                    out.push(Vec::new());
                }
                out.last_mut().unwrap().extend_from_slice(data);
            }
        }
        out
    }

    #[test]
    fn messages_round_trip_in_any_pieces() {
        for (role, mask) in [(Role::Server, Some([1, 2, 3, 4])), (Role::Client, None)] {
            for length in [0, 1, 125, 126, 127, 65_535, 65_536, 100_000] {
                let message: Vec<u8> = (0..length).map(|n| n as u8).collect();
                let mut wire = BytesMut::new();
                encode(Opcode::Binary, &[&message], mask, &mut wire);
                encode(Opcode::Ping, &[b"p"], mask, &mut wire);
                for step in [1, 1000, wire.len()] {
                    let events = events(role, &wire, step).unwrap();
                    assert_eq!(messages(&events), std::slice::from_ref(&message), "{length} by {step}");
                    assert_eq!(events.last(), Some(&Event::Ping(Bytes::from_static(b"p"))));
                }
            }
        }
    }

    #[test]
    fn pings_can_interrupt_fragmented_messages() {
        let wire = [0x02, 1, b'a', 0x89, 0, 0x00, 1, b'b', 0x80, 1, b'c', 0x82, 1, b'd'];
        let events = events(Role::Client, &wire, 3).unwrap();
        assert_eq!(messages(&events), [b"abc".to_vec(), b"d".to_vec()]);
        assert!(events.contains(&Event::Ping(Bytes::new())));
    }

    #[test]
    fn reports_malformed_frames() {
        let check = |role, wire: &[u8], error| assert_eq!(events(role, wire, wire.len()), Err(error), "{wire:?}");
        check(Role::Client, &[0xc2, 0], Error::Reserved);
        check(Role::Client, &[0x83, 0], Error::Opcode(3));
        check(Role::Client, &[0x8b, 0], Error::Opcode(11));
        check(Role::Client, &[0x82, 0x80, 0, 0, 0, 0], Error::Mask(Role::Client));
        check(Role::Server, &[0x82, 0], Error::Mask(Role::Server));
        check(Role::Client, &[0x80, 0], Error::Fragment("continuation without a message"));
        check(Role::Client, &[0x02, 0, 0x82, 0], Error::Fragment("new message before the previous one ended"));
        check(Role::Client, &[0x09, 0], Error::Control("fragmented"));
        check(Role::Client, &[0x89, 126, 0, 126], Error::Control("longer than 125 bytes"));
        check(Role::Client, &[0x88, 1, 3], Error::CloseCode);
        check(Role::Client, &[0x88, 2, 3, 0xed], Error::CloseCode);
        check(Role::Client, &[0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0], Error::Length);
    }

    #[test]
    fn close_has_code_and_truncated_reason() {
        let mut wire = BytesMut::new();
        encode(Opcode::Close, &[&close_payload(1011, &"ä".repeat(100))], None, &mut wire);
        let events = events(Role::Client, &wire, wire.len()).unwrap();
        assert_eq!(events, [Event::Close { code: Some(1011), reason: "ä".repeat(61) }]);
    }
}
