//! SPDY's frames, as far as streams of commands and ports need them.

use std::io;

use bytes::{Buf, Bytes, BytesMut};

use super::headers::{Headers, Reader, Writer};

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
const LONGEST: usize = 1 << 20;

/// What the other side did.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Open {
        stream: u32,
        headers: Headers,
    },
    Data {
        stream: u32,
        data: Bytes,
        last: bool,
    },
    Reset {
        stream: u32,
    },
    Ping(u32),
    Goodbye,
    /// Settings, windows and the like: nothing here depends on them.
    Other,
}

/// Takes one whole frame off the buffer.
pub fn parse(buffer: &mut BytesMut, headers: &mut Reader) -> Option<io::Result<Frame>> {
    let head: [u8; 8] = buffer.get(..8)?.try_into().ok()?;
    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
    if length > LONGEST {
        return Some(Err(io::Error::new(io::ErrorKind::InvalidData, "SPDY: the frame is too long")));
    }
    if buffer.len() < 8 + length {
        return None;
    }
    buffer.advance(8);
    let body = buffer.split_to(length).freeze();
    let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    Some(if word >> 31 == 0 {
        Ok(Frame::Data { stream: word, data: body, last: head[4] & FIN != 0 })
    } else {
        control(word as u16, body, headers)
    })
}

fn control(kind: u16, mut body: Bytes, headers: &mut Reader) -> io::Result<Frame> {
    let needed = match kind {
        SYN_STREAM => 10,
        RST_STREAM | PING => 4,
        _ => 0,
    };
    if body.len() < needed {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "SPDY: the frame is too short"));
    }
    Ok(match kind {
        SYN_STREAM => {
            let stream = body.get_u32() & 0x7fff_ffff;
            body.advance(6);
            Frame::Open { stream, headers: headers.read(&body)? }
        }
        RST_STREAM => Frame::Reset { stream: body.get_u32() & 0x7fff_ffff },
        PING => Frame::Ping(body.get_u32()),
        GOAWAY => Frame::Goodbye,
        _ => Frame::Other,
    })
}

fn control_frame(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = (0x8003_0000 | u32::from(kind)).to_be_bytes().to_vec();
    frame.extend((u32::from(flags) << 24 | body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

pub fn reply(stream: u32, headers: &mut Writer) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend(headers.write(&[]));
    control_frame(SYN_REPLY, 0, &body)
}

pub fn reset(stream: u32) -> Vec<u8> {
    const REFUSED: u32 = 3;
    control_frame(RST_STREAM, 0, &[stream.to_be_bytes(), REFUSED.to_be_bytes()].concat())
}

pub fn pong(number: u32) -> Vec<u8> {
    control_frame(PING, 0, &number.to_be_bytes())
}

pub fn goodbye(last: u32) -> Vec<u8> {
    control_frame(GOAWAY, 0, &[last.to_be_bytes(), [0; 4]].concat())
}

pub fn data(stream: u32, data: &[u8], last: bool) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.extend((u32::from(u8::from(last) * FIN) << 24 | data.len() as u32).to_be_bytes());
    frame.extend(data);
    frame
}

/// As a client opens a stream; the server never does.
#[cfg(test)]
pub fn open(stream: u32, headers: &[(&str, &str)], writer: &mut Writer) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend([0; 6]);
    body.extend(writer.write(headers));
    control_frame(SYN_STREAM, 0, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_pieces() {
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        let mut whole = open(1, &[("streamtype", "error")], &mut writer);
        whole.extend(data(1, b"hello", true));
        whole.extend(pong(7));
        whole.extend(reset(3));
        whole.extend(control_frame(4, 0, &[0; 4]));
        whole.extend(goodbye(1));
        let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
        for byte in whole {
            buffer.extend([byte]);
            while let Some(frame) = parse(&mut buffer, &mut reader) {
                found.push(frame.unwrap());
            }
        }
        let expected = [
            Frame::Open { stream: 1, headers: Headers::from([("streamtype".into(), "error".into())]) },
            Frame::Data { stream: 1, data: Bytes::from_static(b"hello"), last: true },
            Frame::Ping(7),
            Frame::Reset { stream: 3 },
            Frame::Other,
            Frame::Goodbye,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn short_and_long_frames_are_refused() {
        let mut short = BytesMut::from(&control_frame(SYN_STREAM, 0, &[0; 4])[..]);
        assert!(parse(&mut short, &mut Reader::default()).unwrap().is_err());
        let mut long = BytesMut::from(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff][..]);
        assert!(parse(&mut long, &mut Reader::default()).unwrap().is_err());
    }
}
