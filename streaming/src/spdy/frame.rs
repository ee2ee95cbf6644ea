//! SPDY/3.1 frames. Data is decoded in the pieces in which it arrives, so that a large frame needs no large buffer.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::headers::{Compressor, Decompressor, Headers};

const VERSION: u16 = 3;
pub(crate) const FLAG_FIN: u8 = 1;
pub(crate) const FLAG_UNIDIRECTIONAL: u8 = 2;
/// The maximum size of control frames, which have a few short headers; not for DATA.
pub(crate) const MAX_CONTROL: usize = 64 * 1024;
pub(crate) const SETTING_INITIAL_WINDOW: u32 = 7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    SynStream { id: u32, headers: Headers, fin: bool, unidirectional: bool },
    SynReply { id: u32, headers: Headers, fin: bool },
    RstStream { id: u32, status: u32 },
    Settings(Vec<(u32, u32)>),
    Ping(u32),
    GoAway { last: u32, status: u32 },
    Headers { id: u32, headers: Headers, fin: bool },
    WindowUpdate { id: u32, delta: u32 },
    Data { id: u32, data: Bytes, fin: bool },
}

/// Status codes of RST_STREAM.
pub(super) mod status {
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const INVALID_STREAM: u32 = 2;
    pub(crate) const REFUSED_STREAM: u32 = 3;
    pub(crate) const CANCEL: u32 = 5;
    pub(crate) const STREAM_IN_USE: u32 = 8;
}

/// Why the bytes are not SPDY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    Version(u16),
    Kind(u16),
    Length {
        kind: &'static str,
        length: usize,
    },
    TooLarge(usize),
    ZeroStream(&'static str),
    Compression,
    HeaderBlock(&'static str),
    /// A window exceeded 31 bits.
    Window(u32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(version) => write!(f, "SPDY version {version} is not 3"),
            Self::Kind(kind) => write!(f, "SPDY control frame of unknown type {kind}"),
            Self::Length { kind, length } => write!(f, "SPDY {kind} frame of {length} bytes"),
            Self::TooLarge(length) => write!(f, "SPDY control frame of {length} bytes is larger than {MAX_CONTROL}"),
            Self::ZeroStream(kind) => write!(f, "SPDY {kind} frame for stream 0"),
            Self::Compression => f.write_str("SPDY header block cannot be decompressed"),
            Self::HeaderBlock(what) => write!(f, "SPDY header block: {what}"),
            Self::Window(id) => write!(f, "SPDY window of stream {id} grew past 2^31-1"),
        }
    }
}

impl std::error::Error for Error {}

/// A data frame that is not complete yet.
struct Partial {
    id: u32,
    fin: bool,
    left: usize,
}

#[derive(Default)]
pub(super) struct Decoder {
    decompressor: Decompressor,
    partial: Option<Partial>,
}

impl Decoder {
    /// Decodes the next frame or piece from the front of the buffer; None if more bytes are needed.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if let Some(partial) = self.partial.take() {
            return Ok(self.data(partial, buffer));
        }
        let Some((word, length)) = peek(buffer) else { return Ok(None) };
        let flags = (length >> 24) as u8;
        let length = (length & 0x00ff_ffff) as usize;
        if word & 0x8000_0000 == 0 {
            return self.start_data(word, flags, length, buffer);
        }
        if length > MAX_CONTROL {
            return Err(Error::TooLarge(length));
        }
        if buffer.len() < 8 + length {
            return Ok(None);
        }
        buffer.advance(8);
        let payload = buffer.split_to(length).freeze();
        let version = (word >> 16) as u16 & 0x7fff;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        self.control(word as u16, flags, payload).map(Some)
    }

    fn start_data(&mut self, id: u32, flags: u8, length: usize, buffer: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if id == 0 {
            return Err(Error::ZeroStream("DATA"));
        }
        buffer.advance(8);
        let fin = flags & FLAG_FIN != 0;
        if length == 0 {
            return Ok(Some(Frame::Data { id, data: Bytes::new(), fin }));
        }
        Ok(self.data(Partial { id, fin, left: length }, buffer))
    }

    fn data(&mut self, mut partial: Partial, buffer: &mut BytesMut) -> Option<Frame> {
        let take = partial.left.min(buffer.len());
        if take == 0 {
            self.partial = Some(partial);
            return None;
        }
        partial.left -= take;
        let data = buffer.split_to(take).freeze();
        let (id, fin) = (partial.id, partial.fin && partial.left == 0);
        if partial.left > 0 {
            self.partial = Some(partial);
        }
        Some(Frame::Data { id, data, fin })
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Frame, Error> {
        let fin = flags & FLAG_FIN != 0;
        match kind {
            1 => {
                at_least("SYN_STREAM", &payload, 10)?;
                let id = stream("SYN_STREAM", payload.get_u32())?;
                payload.advance(6); // The stream it belongs to, its priority and its slot, which are not used.
                let headers = self.decompressor.read(&payload)?;
                Ok(Frame::SynStream { id, headers, fin, unidirectional: flags & FLAG_UNIDIRECTIONAL != 0 })
            }
            2 => {
                at_least("SYN_REPLY", &payload, 4)?;
                let id = stream("SYN_REPLY", payload.get_u32())?;
                Ok(Frame::SynReply { id, headers: self.decompressor.read(&payload)?, fin })
            }
            3 => {
                exactly("RST_STREAM", &payload, 8)?;
                Ok(Frame::RstStream { id: stream("RST_STREAM", payload.get_u32())?, status: payload.get_u32() })
            }
            4 => settings(payload),
            6 => {
                exactly("PING", &payload, 4)?;
                Ok(Frame::Ping(payload.get_u32()))
            }
            7 => {
                exactly("GOAWAY", &payload, 8)?;
                Ok(Frame::GoAway { last: payload.get_u32() & 0x7fff_ffff, status: payload.get_u32() })
            }
            8 => {
                at_least("HEADERS", &payload, 4)?;
                let id = stream("HEADERS", payload.get_u32())?;
                Ok(Frame::Headers { id, headers: self.decompressor.read(&payload)?, fin })
            }
            9 => {
                exactly("WINDOW_UPDATE", &payload, 8)?;
                let id = payload.get_u32() & 0x7fff_ffff;
                Ok(Frame::WindowUpdate { id, delta: payload.get_u32() & 0x7fff_ffff })
            }
            other => Err(Error::Kind(other)),
        }
    }
}

fn peek(buffer: &BytesMut) -> Option<(u32, u32)> {
    let mut head = buffer.get(..8)?;
    Some((head.get_u32(), head.get_u32()))
}

fn stream(kind: &'static str, id: u32) -> Result<u32, Error> {
    match id & 0x7fff_ffff {
        0 => Err(Error::ZeroStream(kind)),
        id => Ok(id),
    }
}

fn at_least(kind: &'static str, payload: &Bytes, length: usize) -> Result<(), Error> {
    if payload.len() < length { Err(Error::Length { kind, length: payload.len() }) } else { Ok(()) }
}

fn exactly(kind: &'static str, payload: &Bytes, length: usize) -> Result<(), Error> {
    if payload.len() == length { Ok(()) } else { Err(Error::Length { kind, length: payload.len() }) }
}

fn settings(mut payload: Bytes) -> Result<Frame, Error> {
    let length = payload.len();
    at_least("SETTINGS", &payload, 4)?;
    let count = payload.get_u32() as usize;
    if count.checked_mul(8) != Some(payload.len()) {
        return Err(Error::Length { kind: "SETTINGS", length });
    }
    let settings = (0..count).map(|_| (payload.get_u32() & 0x00ff_ffff, payload.get_u32())).collect();
    Ok(Frame::Settings(settings))
}

#[derive(Default)]
pub(super) struct Encoder {
    compressor: Compressor,
}

impl Encoder {
    /// Appends a frame. Frames must be encoded in send order, since header blocks share a compression context.
    pub(super) fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), Error> {
        match frame {
            Frame::SynStream { id, headers, fin, unidirectional } => {
                let block = self.compressor.write(headers)?;
                let flags = (u8::from(*fin) * FLAG_FIN) | (u8::from(*unidirectional) * FLAG_UNIDIRECTIONAL);
                control(out, 1, flags, 10 + block.len());
                out.put_u32(*id);
                out.put_bytes(0, 6);
                out.put_slice(&block);
            }
            Frame::SynReply { id, headers, fin } => self.header_frame(out, 2, *id, headers, *fin)?,
            Frame::Headers { id, headers, fin } => self.header_frame(out, 8, *id, headers, *fin)?,
            Frame::RstStream { id, status } => words(out, 3, &[*id, *status]),
            Frame::Settings(settings) => {
                control(out, 4, 0, 4 + settings.len() * 8);
                out.put_u32(settings.len() as u32);
                settings.iter().for_each(|(id, value)| {
                    out.put_u32(*id);
                    out.put_u32(*value);
                });
            }
            Frame::Ping(id) => words(out, 6, &[*id]),
            Frame::GoAway { last, status } => words(out, 7, &[*last, *status]),
            Frame::WindowUpdate { id, delta } => words(out, 9, &[*id, *delta]),
            Frame::Data { id, data, fin } => {
                out.put_u32(*id);
                out.put_u32(u32::from(u8::from(*fin) * FLAG_FIN) << 24 | data.len() as u32);
                out.put_slice(data);
            }
        }
        Ok(())
    }

    fn header_frame(
        &mut self,
        out: &mut BytesMut,
        kind: u16,
        id: u32,
        headers: &Headers,
        fin: bool,
    ) -> Result<(), Error> {
        let block = self.compressor.write(headers)?;
        control(out, kind, u8::from(fin) * FLAG_FIN, 4 + block.len());
        out.put_u32(id);
        out.put_slice(&block);
        Ok(())
    }
}

fn control(out: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(u32::from(flags) << 24 | length as u32);
}

fn words(out: &mut BytesMut, kind: u16, words: &[u32]) {
    control(out, kind, 0, words.len() * 4);
    words.iter().for_each(|word| out.put_u32(*word));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn frames_round_trip_in_any_pieces() {
        let frames = vec![
            Frame::Settings(vec![(SETTING_INITIAL_WINDOW, 1 << 18)]),
            Frame::SynStream { id: 1, headers: headers(&[("streamtype", "error")]), fin: false, unidirectional: false },
            Frame::SynStream { id: 3, headers: headers(&[("streamtype", "stdin")]), fin: true, unidirectional: true },
            Frame::SynReply { id: 1, headers: headers(&[]), fin: false },
            Frame::Headers { id: 3, headers: headers(&[("a", "b"), ("c", "")]), fin: true },
            Frame::Data { id: 1, data: Bytes::from_static(b"x"), fin: false },
            Frame::Data { id: 1, data: Bytes::new(), fin: true },
            Frame::RstStream { id: 3, status: status::CANCEL },
            Frame::Ping(7),
            Frame::WindowUpdate { id: 0, delta: 65_536 },
            Frame::GoAway { last: 3, status: 0 },
        ];
        let mut encoder = Encoder::default();
        let mut wire = BytesMut::new();
        frames.iter().for_each(|frame| encoder.encode(frame, &mut wire).unwrap());
        for step in [1, 2, 7, wire.len()] {
            let mut decoder = Decoder::default();
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for piece in wire.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "in pieces of {step}");
        }
    }

    #[test]
    fn large_data_arrives_in_pieces() {
        let mut wire = BytesMut::new();
        let data = Bytes::from(vec![7; 100]);
        Encoder::default().encode(&Frame::Data { id: 1, data, fin: true }, &mut wire).unwrap();
        let mut decoder = Decoder::default();
        let mut first = wire.split_to(50);
        assert_eq!(
            decoder.decode(&mut first),
            Ok(Some(Frame::Data { id: 1, data: Bytes::from(vec![7; 42]), fin: false }))
        );
        assert_eq!(decoder.decode(&mut first), Ok(None));
        assert_eq!(
            decoder.decode(&mut wire),
            Ok(Some(Frame::Data { id: 1, data: Bytes::from(vec![7; 58]), fin: true }))
        );
    }

    #[test]
    fn reports_malformed_frames() {
        let check = |wire: &[u8], error: Error| {
            assert_eq!(Decoder::default().decode(&mut BytesMut::from(wire)), Err(error), "{wire:?}");
        };
        check(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], Error::Version(2));
        check(&[0x80, 3, 0, 5, 0, 0, 0, 0], Error::Kind(5));
        check(&[0x80, 3, 0, 6, 0, 0, 0, 3, 0, 0, 0], Error::Length { kind: "PING", length: 3 });
        check(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1], Error::ZeroStream("RST_STREAM"));
        check(&[0, 0, 0, 0, 0, 0, 0, 0], Error::ZeroStream("DATA"));
        check(&[0x80, 3, 0, 1, 0, 1, 0, 1], Error::TooLarge(65_537));
        check(&[0x80, 3, 0, 4, 0, 0, 0, 4, 0x20, 0, 0, 0], Error::Length { kind: "SETTINGS", length: 4 });
        check(&[0x80, 3, 0, 2, 0, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4], Error::Compression);
    }
}
